// What is computed in host memory is started as work of its queue and waited for behind later updates, so that it goes beside
// what the device computes; so do its transfers.
//
//   %g0 = transfer %d.a {to = "host"}            %f0 = start transfer %d.a {to = "host"}
//   %a1, %p = fused @k %a.m, %g0                 ...                                       the backward goes on
//   assign %a.m, %a1                             %g0 = wait %f0                            where b's update stands:
//   %q = transfer %p {to = "device"}      ->     %f1, %f2 = start fused @k %a.m, %g0       a's is computed
//   assign %a, %q                                ...
//   ...                                          %p = wait %f2                             where c's stands:
//   %h0 = transfer %d.b {to = "host"}            %f3 = start transfer %p {to = "device"}   a comes back, b's is computed
//   ...                                          ...
//
// An update goes through these stages where later ones stand, as far as nothing reads before what it makes; one whose parameter
// is read behind it, because it has run on from the last step, starts where an earlier one stands, and is waited for some
// reads of others before its own: until then the device need not wait for the host. Between its start and the wait for it so
// many bytes of others may start as the window of transfers allows.
#include "ir/Builder.h"
#include "passes/Pass.h"
#include "passes/memory/Activations.h"
#include "passes/memory/Liveness.h"
#include "passes/zero/Zero.h"
#include "llvm/ADT/MapVector.h"
#include <map>

using namespace zcc;

namespace {
/// One piece of work, and what moves with it.
struct Job {
  Node *node;
  llvm::SmallVector<Node *, 4> in, out, last; ///< transfers that it reads, and of its results; assignments, gathers of them
  int64_t bytes = 0;
  int own = 0, made = -1;                    ///< positions: its own, and where all that it reads is there
  int read = INT_MAX;                        ///< where what it makes is read
  size_t begins = 0, ends = 0, finishes = 0; ///< anchors
};

/// What is computed on the host comes back while the device reads so many others': weight, bias and norm of a layer.
constexpr int64_t kReadsBefore = 3;

class HostScheduler {
public:
  explicit HostScheduler(Function &f) : f_(f) {}
  bool run();

private:
  void ownViews();
  void collect();
  void look(Job &j);
  void follow(Job &j, Value &v);
  void followWrite(Job &j, Node &assign);
  llvm::SmallVector<Node *, 4> writesOf(Value *v) const;
  int madeAt(Value *v, const Node &reader) const;
  int madeFor(const Node &n) const;
  bool isOnlyForWork(const Node &transfer) const;
  void setAnchors();
  void plan();
  size_t anchorBehind(int position) const;
  size_t readBefore(int position) const;
  void beginTransfers();
  void carryOut();
  void begin(Node &n, Node *before);
  void end(Node &n, Node *before);

  Function &f_;
  Positions at_;
  std::vector<Job> jobs_;
  std::vector<int> reads_;                      ///< positions that read what jobs make, in order, each once
  std::map<int, Node *> markers_;               ///< in front of what stood at a position
  std::vector<std::pair<int, Node *>> anchors_; ///< the same in order, and the function's end
  llvm::DenseMap<Node *, Node *> started_;
};
} // namespace

static bool isHostWork(const Node &n) { return n.op->isWork() && computeSpace(n) == Space::Host; }

/// The views that a node reads, right in front of it, go with it.
static void moveWithViews(Node &n, Node *before) {
  if (&n == before)
    return;
  n.moveBefore(before);
  for (Value *v : n.operands())
    for (Node *at = &n; v && v->def && v->def->op->view; v = v->def->operand(0)) {
      v->def->moveBefore(at);
      at = v->def;
    }
}

/// What moves has its views for itself, in front of it.
void HostScheduler::ownViews() {
  std::vector<Node *> movers;
  for (auto &n : f_.nodes)
    if (isHostWork(*n) || isTransfer(*n) || assigns(*n))
      movers.push_back(n.get());
  for (Node *n : movers)
    for (unsigned i = 0; i < n->numOperands(); ++i) {
      Value *v = n->operand(i), *root = behindViews(v);
      llvm::DenseMap<Value *, Value *> copies;
      if (v && v != root && !isConstant(root))
        n->setOperand(i, viewsAgain(v, root, root, n, copies));
    }
  for (Node *n = f_.last(); n;) {
    Node *at = n;
    n = n->prev();
    if (at->op->view && !at->hasUses() && !llvm::is_contained(f_.results, at->result()))
      at->erase();
  }
}

// ---- what there is to do

/// The assignments to what a value looks into.
llvm::SmallVector<Node *, 4> HostScheduler::writesOf(Value *v) const {
  llvm::SmallVector<Node *, 4> out;
  auto view = storageOf(v);
  for (auto &u : behindViews(v)->uses)
    if (u.node->parent() == &f_ && isWrite(u) && (!view || rangeOf(*view).overlaps(assigned(*u.node))))
      out.push_back(u.node);
  return out;
}

/// Where a value that a node reads is there; -1: before this function. What another job makes or writes, which may end anywhere
/// in front of the node, is there only where that stands.
int HostScheduler::madeAt(Value *v, const Node &reader) const {
  Value *root = behindViews(v);
  const int here = at_.lookup(&reader);
  if (root->isGlobal())
    return llvm::any_of(writesOf(v), [&](Node *w) { return at_.lookup(w) < here; }) ? here - 1 : -1;
  return !root->def ? -1 : isHostWork(*root->def) ? here - 1 : at_.lookup(root->def);
}

int HostScheduler::madeFor(const Node &n) const {
  int made = -1;
  for (Value *v : n.operands())
    made = std::max(made, madeAt(v, n));
  return made;
}

/// Whether pieces of work alone read what a transfer brings to the host.
bool HostScheduler::isOnlyForWork(const Node &n) const {
  return isTransfer(n) && llvm::all_of(n.results, [](auto &r) {
           return r->type.space == Space::Host && llvm::all_of(readersOf(*r), [](Node *u) { return isHostWork(*u); });
         });
}

/// What reads a value that a job makes. What only keeps it is put off with it; anything else has to find it.
void HostScheduler::follow(Job &j, Value &v) {
  for (auto &u : v.uses) {
    Node *n = u.node;
    if (n->op->view) {
      auto readers = readersOf(*n->result());
      if (readers.size() == 1 && isTransfer(*readers[0]))
        n = readers[0];
    }
    bool isKept = n->op->collective == Collective::Gather && n->numOperands() == 1 &&
                  llvm::all_of(n->result()->uses, [](auto &r) { return assigns(*r.node); });
    bool isOut = isTransfer(*n) && llvm::all_of(n->operands(), [&](Value *o) { return behindViews(o)->def == j.node; });
    if (isOut && !llvm::is_contained(j.out, n)) {
      j.out.push_back(n);
      for (auto &r : n->results)
        follow(j, *r);
    } else if (isOut) {
      continue;
    } else if (assigns(*n)) {
      followWrite(j, *n);
    } else if (isKept) {
      j.last.push_back(n);
      for (auto &r : n->result()->uses)
        followWrite(j, *r.node);
    } else {
      j.read = std::min(j.read, at_.lookup(n));
    }
  }
}

/// Where what is assigned is read or written again.
void HostScheduler::followWrite(Job &j, Node &assign) {
  if (llvm::is_contained(j.last, &assign))
    return;
  j.last.push_back(&assign);
  Range range = assigned(assign);
  for (auto &u : assign.operand(0)->uses) {
    if (u.node == &assign || u.node->parent() != &f_ || at_.lookup(u.node) < at_.lookup(&assign))
      continue;
    auto view = u.node->op->view ? storageOf(u.node->result()) : std::nullopt;
    bool isApart = view ? !rangeOf(*view).overlaps(range) : isWrite(u) && !assigned(*u.node).overlaps(range);
    if (!isApart)
      j.read = std::min(j.read, at_.lookup(u.node));
  }
}

/// What a job reads and what reads it.
void HostScheduler::look(Job &j) {
  for (Value *v : j.node->operands()) {
    Value *root = v ? behindViews(v) : nullptr;
    if (!root || isConstant(root))
      continue;
    bool isIn = root->def && isOnlyForWork(*root->def);
    if (isIn && !llvm::is_contained(j.in, root->def))
      j.in.push_back(root->def);
    j.made = std::max(j.made, isIn ? madeFor(*root->def) : madeAt(v, *j.node));
    if (!root->isGlobal())
      continue;
    for (Node *w : writesOf(v)) // it is not read behind a later write
      if (at_.lookup(w) > j.own && !llvm::is_contained(j.last, w))
        j.read = std::min(j.read, at_.lookup(w));
  }
}

void HostScheduler::collect() {
  at_ = positions(f_);
  for (auto &n : f_.nodes)
    if (isHostWork(*n)) {
      Job &j = jobs_.emplace_back();
      j.node = n.get();
      j.own = at_.lookup(n.get());
    }
  for (Job &j : jobs_) {
    for (auto &r : j.node->results)
      follow(j, *r);
    look(j);
    for (Node *n : j.in)
      j.bytes += resultBytes(*n);
    j.bytes += resultBytes(*j.node);
  }
}

// ---- when

/// Nodes that stay, in front of each job and of what reads one.
void HostScheduler::setAnchors() {
  for (const Job &j : jobs_)
    if (j.read != INT_MAX)
      reads_.push_back(j.read);
  llvm::sort(reads_);
  reads_.erase(llvm::unique(reads_), reads_.end());
  std::map<int, Node *> nodes;
  for (auto &n : f_.nodes)
    nodes[at_.lookup(n.get())] = n.get();
  for (Job &j : jobs_)
    for (int p : {j.own, j.read})
      if (p != INT_MAX && !markers_.count(p))
        (markers_[p] = Builder(f_, nodes[p], nodes[p]->loc).scalar(0, Elem::I64)->def)->phase = nodes[p]->phase;
  for (auto &[p, n] : markers_)
    anchors_.push_back({p, n});
  anchors_.push_back({INT_MAX, nullptr});
}

/// The first anchor in front of something behind a position.
size_t HostScheduler::anchorBehind(int position) const {
  return llvm::partition_point(anchors_, [&](auto &a) { return a.first <= position; }) - anchors_.begin();
}

/// The anchor in front of what reads results of jobs some reads before a position; 0: there are no such.
size_t HostScheduler::readBefore(int position) const {
  const auto at = llvm::lower_bound(reads_, position);
  return at - reads_.begin() < kReadsBefore ? 0 : anchorBehind(*(at - kReadsBefore) - 1);
}

void HostScheduler::plan() {
  int64_t largest = 0;
  for (const Job &j : jobs_)
    largest = std::max(largest, j.bytes);
  const int64_t window = f_.module->attrs.i("transfer_window", std::max(2 * largest, kLeastWindow));
  auto place = [&](int64_t job) { // of a job, or the end
    return job < int64_t(jobs_.size()) ? anchorBehind(jobs_[std::max<int64_t>(job, 0)].own - 1) : anchors_.size() - 1;
  };
  // Of a job, those behind it and those before it that the window has room for.
  for (int64_t k = 0, ahead = 0, bytes = 0, from = 0, bytesBefore = 0; k < int64_t(jobs_.size()); ++k) {
    Job &j = jobs_[k];
    for (; bytesBefore > window; ++from)
      bytesBefore -= jobs_[from].bytes;
    for (ahead = std::max(ahead, k); ahead + 1 < int64_t(jobs_.size()) && bytes + jobs_[ahead + 1].bytes <= window; ++ahead)
      bytes += jobs_[ahead + 1].bytes;
    const int64_t beside = ahead - k; // jobs that start before this one is waited for
    const size_t read = anchorBehind(j.read - 1), least = anchorBehind(j.made);
    const size_t here = place(k);
    const bool isRead = anchors_[read].second;
    int64_t other = k + 1; // that is no further piece of what is read there
    while (isRead && other < int64_t(jobs_.size()) && jobs_[other].read == j.read)
      ++other;
    // Others stand in front of its reader, and there is more between the two than between what it reads and it.
    const bool isPutOff = read > place(other) && read - here > here - std::min(least, here);
    if (isPutOff || !isRead) {
      j.begins = place(k + 1);
      j.ends = std::min(place(k + 2 + beside), read);
      j.finishes = std::min(place(k + 3 + beside), read);
    } else {
      auto early = [&](int64_t job) { return std::min(std::max(job < 0 ? 0 : place(job), least), read); };
      j.begins = early(from - 2);
      j.ends = std::clamp(readBefore(j.read), j.begins, read);
      j.finishes = read;
    }
    if (ahead > k)
      bytes -= jobs_[k + 1].bytes;
    bytesBefore += j.bytes;
  }
}

// ---- doing it

void HostScheduler::begin(Node &n, Node *before) {
  if (started_.count(&n))
    return;
  moveWithViews(n, before);
  started_[&n] = beginAt(f_, n, &n);
}

void HostScheduler::end(Node &n, Node *before) {
  auto s = started_.find(&n);
  if (s == started_.end() || !s->second)
    return;
  waitFor(f_, n, *s->second, [&](Value &) { return before; });
  s->second = nullptr;
}

/// Some jobs before it is needed first, but a copy of what the device computes right behind that: it frees memory there.
void HostScheduler::beginTransfers() {
  llvm::MapVector<Node *, size_t> anchorOf;
  for (size_t k = 0; k < jobs_.size(); ++k)
    for (Node *n : jobs_[k].in) {
      size_t anchor = std::min(anchorBehind(jobs_[k < 2 ? 0 : k - 2].own - 1), jobs_[k].begins);
      auto [known, isNew] = anchorOf.insert({n, anchor});
      known->second = std::min(known->second, anchor);
    }
  for (auto [n, anchor] : anchorOf) {
    const int made = madeFor(*n);
    Node *last = nullptr;
    for (Value *v : n->operands())
      if (Node *def = behindViews(v)->def; def && at_.lookup(def) == made)
        last = def;
    const size_t place = std::max(anchor, anchorBehind(made));
    if (last && !isTransfer(*last) && anchorBehind(made) >= anchor)
      begin(*n, last->next());
    else
      begin(*n, at_.lookup(n) < anchors_[place].first ? n : anchors_[place].second);
  }
}

void HostScheduler::carryOut() {
  enum Stage { Begins, Ends, Finishes };
  std::vector<std::tuple<size_t, Stage, size_t>> stages;
  beginTransfers();
  for (size_t k = 0; k < jobs_.size(); ++k) {
    const Job &j = jobs_[k];
    for (auto [at, stage] : {std::pair(j.begins, Begins), {j.ends, Ends}, {j.finishes, Finishes}})
      stages.push_back({at, stage, k});
  }
  llvm::sort(stages);
  for (auto [at, stage, k] : stages) {
    Job &j = jobs_[k];
    Node *before = anchors_[at].second;
    if (stage == Begins) {
      for (Node *n : j.in)
        end(*n, before);
      for (Value *v : llvm::SmallVector<Value *>(j.node->operands())) // what another job makes is waited for in front of it
        if (Node *maker = v ? behindViews(v)->def : nullptr; maker && isHostWork(*maker))
          end(*maker, before);
      begin(*j.node, before);
    } else if (stage == Ends) {
      end(*j.node, before);
      for (Node *n : j.out)
        begin(*n, before);
    } else {
      for (Node *n : j.out)
        end(*n, before);
      for (Node *n : j.last)
        moveWithViews(*n, before);
    }
  }
  for (auto &[p, n] : markers_)
    n->erase();
}

bool HostScheduler::run() {
  if (llvm::none_of(f_.nodes, [](auto &n) { return isHostWork(*n); }))
    return false;
  ownViews();
  collect();
  setAnchors();
  plan();
  carryOut();
  return true;
}

llvm::Expected<bool> zcc::scheduleHost(Module &m, PassContext &) {
  bool changed = false;
  for (auto &f : m.functions)
    if (f->isEntry())
      changed |= HostScheduler(*f).run();
  return changed;
}
