// Collectives are started early and waited for late, so that compute in between overlaps them, and what was gathered is released
// behind its last reader.
//
//   %s = reduce_scatter %a                %f = start reduce_scatter %a
//   ...                            ->     ...
//   %p = fused @k1 %w, %s                 %s = wait %f
//                                         %p = fused @k1 %w, %s
//
// Reductions start behind their operands (--overlap), two at a time. A gather starts where the one before it is first read, if
// both fit into what may be gathered at once (--prefetch, ZeRO-Infinity, arXiv 2104.07857, section 6.2). Updated parameters are
// gathered while the next ones are updated. Every rank runs the same nodes in the same order, so the collectives meet.
#include "ir/Builder.h"
#include "ir/Equal.h"
#include "passes/zero/Zero.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace zcc;

// How many gathers of updated parameters are under way at once: each keeps its piece alive.
constexpr size_t kUpdatesUnderWay = 2;
// How many reductions are: each keeps whole gradients alive, of which a rank goes on with its part (ZeRO, arXiv 1910.02054,
// section 5.2).
constexpr size_t kReductionsUnderWay = 2;

/// Of what is no nullptr.
static Node *firstOf(llvm::ArrayRef<Node *> nodes, const llvm::DenseMap<const Node *, int> &at) {
  Node *first = nullptr;
  for (Node *n : nodes)
    if (n && (!first || at.lookup(n) < at.lookup(first)))
      first = n;
  return first;
}

/// What brings its shards from elsewhere goes where the gather goes, but not past what else reads them, such as their norms.
static void moveGather(Node &n, Node *before, const Positions &at) {
  llvm::SmallVector<Node *, 4> brings;
  for (Value *v : n.operands())
    if (v->def && isTransfer(*v->def))
      brings.push_back(v->def);
  while (llvm::is_contained(brings, before))
    before = before->next();
  if (before == &n)
    return;
  for (Node *t : brings) {
    Node *place = before;
    for (auto &r : t->results)
      place = firstOf({place, firstUser(*r, at, [&](auto &u) { return u.node != &n; })}, at);
    t->moveBefore(place);
  }
  n.moveBefore(before);
}

/// Views stand right before what reads them, so that a wait can stand behind their old place.
static void sinkViews(Function &f) {
  for (Node *n = f.last(); n;) {
    Node *at = n;
    n = n->prev();
    if (!at->op->view || !at->hasUses() || llvm::is_contained(f.results, at->result()))
      continue;
    auto number = [&](Node *from) {
      llvm::SmallPtrSet<Node *, 4> users;
      for (auto &u : at->result()->uses)
        users.insert(u.node);
      for (Node *k = from->next(); k; k = k->next())
        if (users.contains(k))
          return k;
      return from->next();
    };
    at->moveBefore(number(at));
  }
}

/// nullptr: none.
static Node *behind(llvm::ArrayRef<Node *> nodes, size_t i) { return i < nodes.size() ? nodes[i] : nullptr; }

/// Starts it where it stands, and waits for each result before its first user, and before `latest` if that is given.
static void startHere(Function &f, Node &n, const llvm::DenseMap<const Node *, int> &at, Node *latest = nullptr) {
  startAt(f, n, &n, [&](Value &v) {
    Node *user = firstUser(v, at);
    return user ? firstOf({user, latest}, at) : &n;
  });
}

static std::vector<Node *> gathersForCompute(Function &f) {
  std::vector<Node *> out;
  for (auto &n : f.nodes)
    if (gathersParam(*n))
      out.push_back(n.get());
  return out;
}

/// Gathers stand right before their first user, wherever fusing has moved them.
static void sinkGathers(Function &f) {
  auto at = positions(f);
  for (Node *n : gathersForCompute(f)) {
    llvm::SmallVector<Node *, 4> users;
    for (auto &r : n->results)
      if (Node *user = firstUser(*r, at))
        users.push_back(user);
    if (Node *first = firstOf(users, at))
      moveGather(*n, first, at);
  }
}

static void release(Function &f) {
  auto at = positions(f);
  for (Node *n : gathersForCompute(f))
    for (auto &r : n->results)
      if (!llvm::is_contained(f.results, r.get())) {
        Node *last = lastReader(*r, at);
        Builder(f, (last ? last : n)->next(), n->loc).node(ops::release, {r.get()})->phase = n->phase;
      }
}

static int64_t elementsOf(const Node &n) {
  int64_t elements = 0;
  for (auto &r : n.results)
    elements += r->type.count();
  return elements;
}

/// Where shards that it gathers, or brings from elsewhere, are last written in front of it.
static int lastWriteOf(const Node &n, const Positions &at) {
  int last = -1;
  for (Value *v : n.operands()) {
    bool isBrought = v->def && isTransfer(*v->def);
    for (Value *from : isBrought ? v->def->operands() : llvm::ArrayRef<Value *>(v))
      last = std::max(last, from->isGlobal() ? lastWrite(*from, n, at) : -1);
  }
  return last;
}

/// Each gather starts at the first reader of the one before it.
static void prefetch(Function &f, int64_t maxLive) {
  auto at = positions(f);
  struct Live {
    int end;
    int64_t elements;
  };
  std::vector<Live> live;
  Node *place = f.first();
  for (Node *n : gathersForCompute(f)) {
    // The first starts at its place: nothing comes before it that could hide it.
    int from = at.lookup(place);
    int64_t elements = elementsOf(*n);
    for (const Live &l : live)
      elements += l.end >= from ? l.elements : 0;
    int end = at.lookup(n);
    Node *first = nullptr;
    for (auto &r : n->results) {
      if (Node *last = lastReader(*r, at))
        end = std::max(end, at.lookup(last));
      Node *user = firstUser(*r, at);
      first = !first || (user && at.lookup(user) < at.lookup(first)) ? user : first;
    }
    live.push_back({end, elementsOf(*n)});
    Node *begin = elements <= maxLive && at.lookup(place) <= at.lookup(n) && at.lookup(place) > lastWriteOf(*n, at) ? place : n;
    moveGather(*n, begin, at);
    Node *behind = n->next();
    startHere(f, *n, at); // n is no more
    place = first ? first : place == n ? behind : place;
  }
}

/// Each is waited for where a later one starts, if nothing reads its result before that: updates that wait for a norm or for
/// finite gradients read all of them at the end.
static void overlapReductions(Function &f) {
  auto at = positions(f);
  std::vector<Node *> reductions;
  for (auto &n : f.nodes)
    if (n->op->isReduction())
      reductions.push_back(n.get());
  for (size_t i = 0; i < reductions.size(); ++i)
    startHere(f, *reductions[i], at, behind(reductions, i + kReductionsUnderWay));
}

/// The first node behind an assignment that reads what it writes; nullptr: none.
static Node *readBehind(const Node &assign, const Positions &at) {
  return firstUser(*assign.operand(0), at,
                   [&](auto &u) { return u.node->parent() == assign.parent() && at.lookup(u.node) > at.lookup(&assign); });
}

/// Waits for updated parameters, and the assignments behind them, go to where a later one starts, or to where the first is read.
static void overlapUpdates(Function &f) {
  auto at = positions(f);
  std::vector<Node *> gathers;
  for (auto &n : f.nodes) {
    bool isUpdate = n->op->collective == Collective::Gather && !gathersParam(*n);
    for (auto &r : n->results)
      isUpdate &= r->uses.size() == 1 && assigns(*r->uses.front().node);
    if (isUpdate)
      gathers.push_back(n.get());
  }
  std::vector<Node *> starts;
  for (size_t i = 0; i < gathers.size(); ++i) {
    Node *later = behind(gathers, i + kUpdatesUnderWay);
    for (auto &r : gathers[i]->results) {
      Node *assign = r->uses.front().node, *reader = readBehind(*assign, at);
      assign->moveBefore(firstOf({reader, later}, at));
    }
  }
  at = positions(f);
  for (Node *n : gathers)
    startHere(f, *n, at);
}

llvm::Expected<bool> zcc::schedulePrefetch(Module &m, PassContext &ctx) {
  if (m.ranks == 1)
    return false;
  const Options &o = ctx.options;
  int64_t maxLive = zeroLimits(m, o).maxLive;
  const uint64_t before = hashOf(m);
  for (auto &f : m.functions) {
    if (f->isKernel)
      continue;
    sinkViews(*f);
    sinkGathers(*f);
    release(*f);
    if (runsBeside(o.overlap, ctx.target)) {
      overlapReductions(*f);
      overlapUpdates(*f);
    }
    if (runsBeside(o.prefetch, ctx.target))
      prefetch(*f, maxLive);
  }
  return hashOf(m) != before;
}
