// Transfers are started early and waited for late, as many bytes at once as the window allows.
//
//   %m0 = transfer %a.m {to = "device"}           %f0 = start transfer %a.m {to = "device"}
//   %m1 = fused @k %m0, ...                       %g0 = start transfer %b.m {to = "device"}     reads the next
//   %m2 = transfer %m1 {to = "nvme"}              %m0 = wait %f0
//   assign %a.m, %m2                       ->     %m1 = fused @k %m0, ...                       while this is updated
//   %n0 = transfer %b.m {to = "device"}           %f1 = start transfer %m1 {to = "nvme"}        and the last is written
//   ...                                           ...
//
// A group is a transfer to the device and those that take back what is made of it. A group's bytes are taken from the start of
// its first transfer to the end of its last one; as a new group starts, the oldest ones are waited for until it fits: into the
// window where most is live of what compute makes, and elsewhere into what is free beside it, too; where a note says how wide the
// window is, into no more than is enough. There a clock of what computes and one of what moves tell where a group is best begun:
// early, but not where what takes older ones back is still to be waited for. The first groups may start in front of any node
// before them: states are read beside the forward. What is transferred away until later, gradients that wait and what the
// backward reads, has a window of its own, three times as wide as the largest where less is live. Updates in the backward first
// go to where there is time for what they read and write (SpreadUpdates.h).
#include "ir/Builder.h"
#include "passes/Pass.h"
#include "passes/Target.h"
#include "passes/memory/Activations.h"
#include "passes/memory/Liveness.h"
#include "passes/memory/PlanMemory.h"
#include "passes/offload/SpreadUpdates.h"
#include "passes/zero/Zero.h"
#include <algorithm>
#include <deque>

using namespace zcc;

/// A group is read, updated and written, each beside others: so many are under way. What is read takes as many parts less one of
/// a window, lest each group be waited for as soon as it is to be written.
constexpr size_t kStages = 3;
/// Where a note says how wide a window is: so much under way is there when it is read. More, where it is free, would scatter the
/// rest, and keep what else is moved waiting behind it.
constexpr int64_t kEnough = 48 << 20;

namespace {
struct TransferGroup {
  Node *in;
  Node *head; ///< the first node that reads it; once it is started, the first that waits for it
  int64_t bytes = 0;
  llvm::SmallVector<Node *, 2> out;  ///< what takes it back
  int headAt = 0;                    ///< where `head` was before anything was started
  Node *begun = nullptr;             ///< what starts it
  llvm::SmallVector<Node *, 2> back; ///< what assigns what has been taken back
  int64_t beside = 0;                ///< bytes of the groups beside it; of a place, of the last one before it
  int64_t arrives = 0, gone = 0;     ///< when it is read, and when it has been taken back, ns of the clocks

  /// Whether it is no more than a place where later ones may start.
  bool isPlace() const { return !in && out.empty(); }
  /// Whether that is behind the first group.
  bool isBetween() const { return isPlace() && beside; }
};

/// What computes and what moves, as far as groups are begun.
struct Clocks {
  int64_t late = 0;  ///< ns by which what computes is behind
  int64_t disk = 0;  ///< when what moves is free
  size_t passed = 0; ///< groups before it have been read
};

/// The transfers of one function.
class Scheduler {
public:
  Scheduler(Function &f, std::vector<int64_t> live, const Machine &machine)
      : f_(f), at_(positions(f)), live_(std::move(live)), machine_(machine) {}
  bool run();

private:
  void collect();
  int endOf(const TransferGroup &g) const;
  void addPlaces();
  void pass(Clocks &c, size_t place);
  size_t bestPlace(Clocks &c, size_t place, size_t k, size_t oldest, int64_t taken, int64_t enough);
  int64_t nsOf(const Node &n) const { return int64_t(costOf(n, f_.module->ranks).seconds(machine_) * 1e9); }
  void startGroups();
  void startSpills();
  void finish(TransferGroup &g, Node *before);
  int madeAt(const Node &transfer) const;
  bool writesFor(const TransferGroup &g, const Node &transfer) const;
  int64_t windowFor(int64_t bytes) const;
  bool isNarrow() const { return f_.module->attrs.has("transfer_window"); }
  int64_t besideOf(size_t k) const;
  std::vector<int64_t> windows();
  std::vector<int64_t> roomForSpills(const Positions &at, int64_t window, int64_t enough) const;

  Function &f_;
  Positions at_;                    ///< before anything was started, but of what is gone since
  const std::vector<int64_t> live_; ///< at each node, bytes of what is not transferred
  const Machine &machine_;
  std::vector<int64_t> begins_; ///< when each node begins, if nothing is waited for, ns
  std::vector<int64_t> room_;   ///< of each group, what may be under way from where it is first read on
  std::vector<TransferGroup> groups_;
  int64_t most_ = 0;           ///< bytes that are live anywhere, with the window
  std::vector<Node *> spills_; ///< transfers from the device of what is transferred back later
};
} // namespace

/// The first node that reads any result.
static Node *firstReader(const Node &n, const Positions &at) {
  Node *first = nullptr;
  for (auto &r : n.results)
    if (Node *user = firstUser(*r, at); user && (!first || at.lookup(user) < at.lookup(first)))
      first = user;
  return first;
}

static bool isTakenBack(const Value &v) {
  return llvm::any_of(v.uses, [](auto &u) { return assigns(*u.node); });
}

/// The globals that become what it transfers.
static llvm::SmallVector<const Value *, 4> writtenBy(const Node &transfer) {
  llvm::SmallVector<const Value *, 4> globals;
  for (auto &r : transfer.results)
    for (auto &u : r->uses)
      if (assigns(*u.node))
        globals.push_back(u.node->operand(0));
  return globals;
}

/// Whether it takes away what the next step reads: no group's.
static bool keepsForNextStep(const Node &transfer) {
  return llvm::any_of(writtenBy(transfer), [](const Value *g) { return static_cast<const GlobalValue *>(g)->attrs.has("late"); });
}

/// Where the last of what a transfer reads is made, or written; -1: before this function.
int Scheduler::madeAt(const Node &transfer) const {
  int last = -1;
  for (Value *v : transfer.operands()) {
    Node *def = behindViews(v)->def;
    last = std::max(last, def ? at_.lookup(def) : lastWrite(*v, transfer, at_));
  }
  return last;
}

/// Whether what takes `g` back writes what a transfer reads.
bool Scheduler::writesFor(const TransferGroup &g, const Node &transfer) const {
  auto reads = [&](const Node &assign) {
    return llvm::any_of(transfer.operands(), [&](Value *v) {
      auto view = storageOf(v);
      return behindViews(v) == assign.operand(0) && (!view || rangeOf(*view).overlaps(assigned(assign)));
    });
  };
  return llvm::any_of(g.out, [&](Node *out) {
    return llvm::any_of(out->results, [&](auto &r) {
      return llvm::any_of(r->uses, [&](auto &u) { return assigns(*u.node) && reads(*u.node); });
    });
  });
}

/// Places, and groups in the order of their first readers. What is transferred back belongs to the last group that was read
/// before it.
void Scheduler::collect() {
  std::vector<Node *> back;
  for (auto &n : f_.nodes) {
    if (!isTransfer(*n))
      continue;
    Node *first = firstReader(*n, at_);
    if (n->result()->type.space == Space::Device && first)
      groups_.push_back({n.get(), first, resultBytes(*n), {}});
    else if (n->result()->type.space != Space::Device && keepsForNextStep(*n))
      groups_.push_back({nullptr, n.get(), resultBytes(*n), {n.get()}}); // nothing was read for it
    else if (n->result()->type.space != Space::Device)
      (isTakenBack(*n->result()) ? back : spills_).push_back(n.get());
  }
  llvm::stable_sort(groups_,
                    [&](const TransferGroup &a, const TransferGroup &b) { return at_.lookup(a.head) < at_.lookup(b.head); });
  for (Node *n : back) {
    auto behind = llvm::partition_point(groups_, [&](const TransferGroup &g) { return at_.lookup(g.head) < at_.lookup(n); });
    if (behind == groups_.begin())
      groups_.insert(behind, {nullptr, n, 0, {n}}); // nothing was read for it
    else
      std::prev(behind)->out.push_back(n);
  }
  if (groups_.empty())
    return;
  std::vector<TransferGroup> places;
  for (Node *n = f_.first(); n != groups_.front().head; n = n->next())
    if (!isTransfer(*n) && !n->op->view) // these move themselves
      places.push_back({nullptr, n, 0, {}});
  groups_.insert(groups_.begin(), places.begin(), places.end());
  for (size_t k = 0; k < groups_.size(); ++k)
    groups_[k].beside = groups_[k].isPlace() ? 0 : besideOf(k);
}

/// The last node of what reads a group first, what takes it back and what assigns that.
int Scheduler::endOf(const TransferGroup &g) const {
  int end = at_.lookup(g.head);
  if (g.head->op->view)
    for (auto &u : g.head->result()->uses)
      end = std::max(end, at_.lookup(u.node));
  for (Node *out : g.out) {
    end = std::max(end, at_.lookup(out));
    for (auto &r : out->results)
      for (auto &u : r->uses)
        end = std::max(end, at_.lookup(u.node));
  }
  return end;
}

/// Where a window is narrow, later groups may also start in front of what computes between them, behind the end of all before.
void Scheduler::addPlaces() {
  constexpr int64_t kApart = 50000; // ns
  std::vector<TransferGroup> all;
  size_t next = 0;
  int64_t now = 0, last = 0, beside = 0;
  int end = -1;
  for (auto &n : f_.nodes) {
    const int position = int(begins_.size());
    begins_.push_back(now);
    for (; next < groups_.size() && groups_[next].head == n.get(); ++next) {
      end = std::max(end, endOf(groups_[next]));
      beside = groups_[next].beside;
      last = now - kApart;
      all.push_back(std::move(groups_[next]));
    }
    if (isTransfer(*n))
      continue;
    if (next && next < groups_.size() && !n->op->view && !assigns(*n) && position > end && now >= last + kApart) {
      all.push_back({nullptr, n.get()});
      all.back().beside = beside;
      last = now;
    }
    now += nsOf(*n);
  }
  groups_ = std::move(all);
}

/// What takes a group back is waited for, and assigned, before `before` (nullptr: at the end).
void Scheduler::finish(TransferGroup &g, Node *before) {
  for (Node *out : g.out) {
    at_.erase(out); // in its memory another node may be made
    startAt(f_, *out, out, [&](Value &v) {
      Node *first = before;
      for (auto &u : v.uses) {
        u.node->moveBefore(before);
        first = u.node;
        g.back.push_back(first);
      }
      return first;
    });
  }
}

/// What a note says, else enough for so many bytes.
int64_t Scheduler::windowFor(int64_t bytes) const { return f_.module->attrs.i("transfer_window", std::max(bytes, kLeastWindow)); }

/// Bytes of the groups that are beside one another there.
int64_t Scheduler::besideOf(size_t k) const {
  const size_t count = groups_.size(), first = std::min(k - std::min<size_t>(k, 1), count - std::min(count, kStages));
  int64_t bytes = 0;
  for (size_t i = first; i < std::min(count, first + kStages); ++i)
    bytes += groups_[i].bytes;
  return bytes;
}

/// From where each group is first read to where the next one is: what may be under way. Somewhere that is what a note says, else
/// enough for the groups beside one another there; nowhere does more live, with it, than there.
std::vector<int64_t> Scheduler::windows() {
  const size_t count = groups_.size();
  std::vector<int64_t> live(count, 0);
  for (size_t k = 0, next = 0; k < count; ++k) {
    if (groups_[k].isBetween()) {
      live[k] = live[k - 1];
      continue;
    }
    for (next = k + 1; next < count && groups_[next].isBetween();)
      ++next;
    auto begin = live_.begin() + at_.lookup(groups_[k].head);
    auto end = next < count ? live_.begin() + at_.lookup(groups_[next].head) : live_.end();
    live[k] = *std::max_element(begin, std::max(end, begin + 1));
    most_ = std::max(most_, live[k] + (groups_[k].isPlace() ? 0 : windowFor(groups_[k].beside)));
  }
  for (int64_t &n : live)
    n = most_ - n;
  return live;
}

namespace {
/// The least of a stretch of numbers whose ends only go on.
class LeastOf {
public:
  explicit LeastOf(std::vector<int64_t> all) : all_(std::move(all)) {}
  /// Of [begin, end]; neither is before the last call's.
  int64_t operator()(size_t begin, size_t end) {
    for (; next_ <= end; ++next_) {
      while (!least_.empty() && all_[least_.back()] >= all_[next_])
        least_.pop_back();
      least_.push_back(next_);
    }
    while (least_.front() < begin)
      least_.pop_front();
    return all_[least_.front()];
  }

private:
  std::vector<int64_t> all_;
  std::deque<size_t> least_; ///< each the least from itself on
  size_t next_ = 0;
};
} // namespace

/// Up to where a group is first read: those before it have come, and are taken back.
void Scheduler::pass(Clocks &c, size_t place) {
  for (; c.passed < place; ++c.passed) {
    TransferGroup &g = groups_[c.passed];
    c.late = std::max(c.late, g.arrives - begins_[g.headAt]);
    for (Node *out : g.out) {
      c.disk = std::max(c.disk, begins_[at_.lookup(out)] + c.late) + nsOf(*out);
      g.gone = c.disk;
    }
  }
}

/// Of the places from `place` on that with which group k is read first, or the first of several such: where it is begun, what
/// must have been taken back for it is waited for. `oldest`, `taken`, `enough`: as startGroups has them.
size_t Scheduler::bestPlace(Clocks &clocks, size_t place, size_t k, size_t oldest, int64_t taken, int64_t enough) {
  constexpr size_t kMostPlaces = 256;
  const TransferGroup &g = groups_[k];
  const bool isFar = k - place >= kMostPlaces;                  // that it is begun at once
  std::vector<int64_t> room(isFar ? 1 : k + 2 - place, enough); // of a start at each place
  for (size_t p = k + 1; p-- > place && !isFar;)
    room[p - place] = std::min(room[p - place + 1], room_[p]);
  const int64_t read = g.in ? nsOf(*g.in) : 0;
  size_t best = place;
  Clocks then = clocks;
  int64_t first = INT64_MAX;
  bool waits = true;
  for (size_t p = place; waits && p <= k; ++p) {
    pass(clocks, p);
    int64_t rest = taken, wait = 0;
    const int64_t now = begins_[groups_[p].headAt] + clocks.late;
    for (size_t i = oldest; i < p && rest > room[p - place] && !isFar; ++i) {
      rest -= groups_[i].bytes;
      wait = std::max(wait, groups_[i].gone - now);
    }
    waits = wait > 0;
    Clocks c = clocks;
    c.late += wait;
    if (g.in)
      c.disk = std::max(c.disk, now + wait) + read;
    const int64_t at = std::max(g.in ? c.disk : 0, begins_[g.headAt] + c.late);
    if (at < first) {
      first = at;
      best = p;
      then = c;
    }
  }
  clocks = then;
  groups_[k].arrives = g.in ? clocks.disk : 0;
  return best;
}

/// Group k starts where group `place` is first read; those before `oldest` are waited for.
void Scheduler::startGroups() {
  room_ = windows();
  LeastOf window(room_);
  Clocks clocks;
  size_t place = 0, oldest = 0;
  int64_t unread = 0, taken = 0; // of groups [place, k], and of [oldest, k]
  for (TransferGroup &g : groups_)
    g.headAt = at_.lookup(g.head);
  for (size_t k = 0; k < groups_.size(); ++k) {
    TransferGroup &g = groups_[k];
    if (g.isPlace())
      continue;
    unread += g.bytes;
    taken += g.bytes;
    const int64_t near = g.beside, enough = isNarrow() ? std::max({windowFor(near), near, kEnough}) : INT64_MAX;
    auto room = [&] { return std::min(window(place, k), enough); };
    auto mustWait = [&] {
      return unread > room() / int64_t(kStages) * int64_t(kStages - 1) || (g.in && groups_[place].headAt <= madeAt(*g.in));
    };
    for (; place < k && mustWait(); ++place)
      unread -= groups_[place].bytes;
    if (isNarrow())
      for (const size_t best = bestPlace(clocks, place, k, oldest, taken, enough); place < best; ++place)
        unread -= groups_[place].bytes;
    Node *before = groups_[place].head;
    size_t written = oldest; // groups before it have to be back: this one reads what they write
    if (g.in && madeAt(*g.in) >= 0)
      for (size_t i = oldest; i < place; ++i)
        written = writesFor(groups_[i], *g.in) ? i + 1 : written;
    for (; (taken > room() && oldest < place) || oldest < written; ++oldest) {
      taken -= groups_[oldest].bytes;
      finish(groups_[oldest], before);
    }
    if (!g.in)
      continue;
    for (Value *v : g.in->operands()) // the views that it reads go where it goes
      for (Node *at = before; v->def && v->def->op->view; v = v->def->operand(0)) {
        v->def->moveBefore(at);
        at = v->def;
      }
    Node *head = g.head;
    unsigned first = 0; // the first result that is read
    while (firstUser(*g.in->result(first), at_) != head)
      ++first;
    at_.erase(g.in);
    Node *begun = startAt(f_, *g.in, before, [&](Value &v) { return v.hasUses() ? firstUser(v, at_) : head; });
    g.head = begun->result(first)->uses.front().node;
    g.begun = begun;
  }
  for (; oldest < groups_.size(); ++oldest)
    finish(groups_[oldest], nullptr);
}

/// At each node the window, or what is free beside what is live and what groups have under way, where that is more; `enough` is
/// all that is of use: what waits longer than for the disk only scatters the rest.
std::vector<int64_t> Scheduler::roomForSpills(const Positions &at, int64_t window, int64_t enough) const {
  std::vector<int64_t> change(at.size() + 1, 0), room;
  auto take = [&](int first, int last, int64_t bytes) {
    change[first] += bytes;
    change[last + 1] -= bytes;
  };
  for (const TransferGroup &g : groups_) {
    for (Node *assign : g.back)
      if (const Node *wait = assign->operand(1)->def; wait && wait->op->structural == Structural::Wait)
        take(at.lookup(wait->operand(0)->def), at.lookup(assign), assign->operand(1)->type.localBytes());
    if (!g.begun)
      continue;
    int last = at.lookup(g.begun);
    for (auto &future : g.begun->results)
      for (Node *wait : readersOf(*future))
        for (auto &r : wait->results)
          if (Node *n = lastReader(*r, at))
            last = std::max(last, at.lookup(n));
    take(at.lookup(g.begun), last, g.bytes);
  }
  int64_t live = 0, taken = 0;
  for (auto &n : f_.nodes) {
    if (auto old = at_.find(n.get()); old != at_.end() && !n->op->view)
      live = live_[old->second];
    taken += change[room.size()];
    room.push_back(std::max(window, std::min(enough, most_ - live - taken)));
  }
  return room;
}

/// Each is waited for where later ones, or what else is live, would not fit beside it, at the latest where it is transferred
/// back.
void Scheduler::startSpills() {
  if (spills_.empty())
    return;
  int64_t largest = 0, taken = 0;
  for (const Node *n : spills_)
    largest = std::max(largest, resultBytes(*n));
  const int64_t window = windowFor(largest);
  llvm::DenseMap<const Node *, int64_t> begun; // bytes
  for (const Positions before = positions(f_); Node * n : spills_) {
    int64_t bytes = resultBytes(*n);
    at_.erase(n);
    begun[startAt(f_, *n, n, [&](Value &v) { return firstUser(v, before); })] = bytes;
  }
  const Positions at = positions(f_);
  // What a note says is narrow where most is live; without one the window is as wide as spills need.
  const std::vector<int64_t> room =
      isNarrow() ? roomForSpills(at, window, int64_t(kStages) * largest) : std::vector<int64_t>(at.size(), window);
  std::deque<Node *> under;
  for (Node *n = f_.first(); n; n = n->next()) {
    if (auto it = begun.find(n); it != begun.end()) {
      under.push_back(n);
      taken += it->second;
    }
    for (; under.size() > 1 && taken > room[at.lookup(n)]; under.pop_front()) {
      taken -= begun.lookup(under.front());
      for (auto &r : under.front()->results)
        if (Node *wait = r->uses.front().node; at.lookup(n) < at.lookup(wait))
          wait->moveBefore(n);
    }
  }
}

bool Scheduler::run() {
  collect();
  if (isNarrow())
    addPlaces();
  startGroups();
  startSpills();
  return !groups_.empty() || !spills_.empty();
}

/// What transfers bring to the device, and what is written over that.
static llvm::DenseSet<const Value *> movedBy(const Function &f) {
  llvm::DenseSet<const Value *> moved;
  for (auto &n : f.nodes)
    if (isTransfer(*n))
      for (unsigned i = 0; i < n->results.size(); ++i) {
        moved.insert(n->result(i));
        if (Value *source = baseOf(n->operand(i)); source && isTakenBack(*n->result(i)))
          moved.insert(source);
      }
  return moved;
}

/// Of what was brought from what `out` is written over, the last that is first read behind it: its first reader. nullptr: none,
/// or what is written is read itself.
static Node *firstReadBehind(const Node &out, const Positions &at) {
  for (auto &r : out.results)
    if (!llvm::all_of(r->uses, [](auto &u) { return assigns(*u.node); }))
      return nullptr;
  const int here = at.lookup(&out);
  int lastAt = here;
  Node *last = nullptr;
  bool isReadItself = false;
  // Of views, those of what is written.
  auto follow = [&](auto &self, Value &v, const Range &written) -> void {
    for (auto &u : v.uses) {
      if (u.node->parent() != out.parent() || assigns(*u.node))
        continue;
      if (u.node->op->view) {
        if (auto view = storageOf(u.node->result()); !view || rangeOf(*view).overlaps(written))
          self(self, *u.node->result(), written);
        continue;
      }
      isReadItself |= at.lookup(u.node) > here;
      Node *first = isTransfer(*u.node) ? firstReader(*u.node, at) : nullptr;
      if (first && at.lookup(first) > lastAt) {
        last = first;
        lastAt = at.lookup(first);
      }
    }
  };
  for (auto &r : out.results)
    for (auto &u : r->uses)
      follow(follow, *u.node->operand(0), assigned(*u.node));
  return isReadItself ? nullptr : last;
}

/// What is written over a global goes behind the first readers of what was brought from it before: a transfer is done where it is
/// waited for. Returns whether anything moved.
static bool delayWrites(Function &f) {
  const Positions at = positions(f);
  llvm::SmallVector<std::pair<Node *, Node *>, 4> moves; // what is written, the node that it goes behind
  for (auto &n : f.nodes)
    if (isTransfer(*n) && n->result()->type.space != Space::Device)
      if (Node *behind = firstReadBehind(*n, at))
        moves.push_back({n.get(), behind});
  for (auto [out, behind] : moves) {
    Node *before = behind->next();
    out->moveBefore(before);
    for (auto &r : out->results)
      for (auto &u : r->uses)
        if (at.lookup(u.node) < at.lookup(behind))
          u.node->moveBefore(before);
  }
  return !moves.empty();
}

llvm::Expected<bool> zcc::scheduleTransfers(Module &m, PassContext &ctx) {
  auto moves = [](auto &f) { return f->isEntry() && llvm::any_of(f->nodes, [](auto &n) { return isTransfer(*n); }); };
  if (llvm::none_of(m.functions, moves))
    return false;
  bool changed = false;
  for (auto &f : m.functions)
    if (moves(f))
      changed |= delayWrites(*f);
  std::unique_ptr<Module> planned = m.clone();
  if (auto e = planApart(*planned, ctx))
    return e;
  const Machine machine = machineOf(ctx.target);
  for (auto &f : m.functions)
    if (moves(f)) {
      const Function &now = *planned->function(f->name);
      auto live = computeLiveness(now);
      if (!live)
        return live.takeError();
      std::vector<int64_t> own = liveBytes(now, *live, Space::Device, movedBy(now));
      const int64_t window = m.attrs.i("transfer_window", INT64_MAX); // of 0: as little memory as can be
      if (f->name == "micro" && window) {
        int64_t most = *llvm::max_element(liveBytes(now, *live));
        if (window != INT64_MAX)
          most = std::min(most, *llvm::max_element(own) + window);
        spreadUpdates(*f, own, most, machine, m.ranks);
      }
      changed |= Scheduler(*f, std::move(own), machine).run();
    }
  return changed;
}
