// Small collectives become one: a bucket. It has a result for each operand, so no tensor moves and no shard's boundary.
//
//   %s = reduce_scatter %a                  %s, %t = reduce_scatter %a, %b
//   ...                              ->
//   %t = reduce_scatter %b
//
// A bucket of reductions, or of updated parameters, stands where its last operand is there, and what reads the others moves
// behind it. A bucket of gathered parameters stands where the first is read.
#include "ir/Builder.h"
#include "ir/Steps.h"
#include "passes/zero/Zero.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace zcc;

namespace {
/// What was seen on the way from a bucket's first member on.
struct Walk {
  Node *at = nullptr;                                       ///< where it goes on; nullptr: at the first member
  bool isBlocked = false;                                   ///< what depends on a member cannot move further
  llvm::SmallPtrSet<const Value *, 16> values;              ///< that depend on a member
  llvm::SmallPtrSet<const Value *, 8> written, readByMoved; ///< globals
  std::vector<Node *> moved;                                ///< what depends on a member, and is none
};

struct Bucket {
  std::vector<Node *> members; ///< in order, of one operator, element and attributes
  llvm::SmallPtrSet<const Node *, 16> isMember;
  int64_t elements = 0;
  Walk walk;

  void add(Node *n) {
    members.push_back(n);
    isMember.insert(n);
    elements += n->operand(0)->type.count();
  }
};
} // namespace

static bool isBucketed(const Node &n) { return n.numOperands() == 1 && n.op->collective != Collective::None; }

static bool readsGlobal(const Node &n) { return n.operand(0)->isGlobal(); }

static bool areAlike(const Node &a, const Node &b) {
  return a.op == b.op && a.attrs == b.attrs && a.operand(0)->type.elem == b.operand(0)->type.elem &&
         readsGlobal(a) == readsGlobal(b);
}

static bool dependsOn(const Node &n, const Walk &w) {
  return llvm::any_of(n.operands(), [&](Value *v) { return v && w.values.contains(v); });
}

/// Looks at a node between members: it moves if it depends on one, and if no write in between forbids that.
static void pass(Bucket &b, Node &n) {
  ++steps;
  Walk &w = b.walk;
  const bool depends = dependsOn(n, w), isMoved = depends && !b.isMember.contains(&n);
  for (unsigned i = 0; i < n.numOperands(); ++i) {
    Value *v = n.operand(i);
    if (!v || !v->isGlobal())
      continue;
    const bool isWrite = n.op->updates(i);
    // A staying node would run before a write that came before it, or behind a read that came after its write.
    w.isBlocked |= !isMoved && (w.written.contains(v) || (isWrite && w.readByMoved.contains(v)));
    if (isMoved)
      (isWrite ? w.written : w.readByMoved).insert(v);
  }
  if (isMoved)
    w.moved.push_back(&n);
  if (depends || b.isMember.contains(&n))
    for (auto &r : n.results)
      w.values.insert(r.get());
}

/// Whether what stands before `last` and depends on a member can move behind it, and `last` depends on none.
static bool walkTo(Bucket &b, Node *last) {
  Walk &w = b.walk;
  if (!w.at)
    w.at = b.members.front();
  for (; w.at && w.at != last && !w.isBlocked; w.at = w.at->next())
    pass(b, *w.at);
  return w.at == last && !w.isBlocked && !dependsOn(*last, w);
}

static void merge(Function &f, const Bucket &b, Node *at) {
  std::vector<Value *> operands;
  Loc loc;
  for (Node *n : b.members) {
    operands.push_back(n->operand(0));
    loc = mergeLocs(loc, n->loc);
  }
  Node *all = Builder(f, at, loc).node(*b.members[0]->op, operands, b.members[0]->attrs);
  all->phase = b.members[0]->phase;
  for (unsigned i = 0; i < b.members.size(); ++i) {
    std::swap(all->result(i)->name, b.members[i]->result()->name);
    b.members[i]->result()->replaceAllUsesWith(all->result(i));
    b.members[i]->erase();
  }
}

/// Whether nothing writes the global that `last` reads between the first member and it.
static bool isUnwritten(Bucket &b, Node *last) {
  Walk &w = b.walk;
  if (!w.at)
    w.at = b.members.front();
  for (; w.at && w.at != last; w.at = w.at->next(), ++steps)
    if (assigns(*w.at))
      w.written.insert(w.at->operand(0));
  return !w.written.contains(last->operand(0));
}

/// Members of other buckets may have moved: they are in order again.
static void sortMembers(const Function &f, llvm::MutableArrayRef<Bucket> open, llvm::ArrayRef<Node *> moved) {
  const llvm::SmallPtrSet<const Node *, 16> all(moved.begin(), moved.end());
  auto hasMoved = [&](const Node *n) { return all.contains(n); };
  if (llvm::none_of(open, [&](const Bucket &b) { return llvm::any_of(b.members, hasMoved); }))
    return;
  auto at = positions(f);
  for (Bucket &b : open)
    llvm::sort(b.members, [&](const Node *x, const Node *y) { return at.at(x) < at.at(y); });
}

/// Nodes have moved, and some are gone.
static void startAnew(llvm::MutableArrayRef<Bucket> open) {
  for (Bucket &b : open)
    b.walk = {};
}

/// Merges a bucket, unless what another one moved stands in the way by now; says whether it did.
static bool close(Function &f, Bucket &b, llvm::MutableArrayRef<Bucket> open) {
  Bucket closed = std::exchange(b, {});
  if (closed.members.size() < 2)
    return false;
  Node *at = closed.members.front();
  if (!readsGlobal(*at)) {
    at = closed.members.back();
    closed.walk = {}; // it may have gone on behind it
    if (!walkTo(closed, at))
      return false;
    Node *behind = at->next();
    for (Node *n : closed.walk.moved)
      n->moveBefore(behind);
    sortMembers(f, open, closed.walk.moved);
  }
  merge(f, closed, at);
  startAnew(open);
  return true;
}

static bool fits(Bucket &b, Node *n) { return readsGlobal(*n) ? isUnwritten(b, n) : walkTo(b, n); }

static bool bucket(Function &f, const ZeroLimits &limits) {
  std::vector<Node *> nodes;
  for (auto &n : f.nodes)
    if (isBucketed(*n))
      nodes.push_back(n.get());
  std::vector<Bucket> open;
  bool changed = false;
  for (Node *n : nodes) {
    bool isGather = n->op->collective == Collective::Gather;
    int64_t limit = isGather ? limits.gatherBucket : limits.reduceBucket;
    if (isGather && readsGlobal(*n)) // all of the bucket is alive at once
      limit = std::min(limit, limits.maxLive / 2);
    int64_t elements = n->operand(0)->type.count();
    auto b = llvm::find_if(open, [&](const Bucket &x) { return !x.members.empty() && areAlike(*x.members[0], *n); });
    if (elements >= limit) { // alone; what is read behind it is not gathered before it
      if (b != open.end() && readsGlobal(*n))
        changed |= close(f, *b, open);
      continue;
    }
    if (b != open.end() && (b->elements + elements > limit || !fits(*b, n)))
      changed |= close(f, *b, open);
    if (b == open.end() || b->members.empty()) {
      b = llvm::find_if(open, [](const Bucket &x) { return x.members.empty(); });
      if (b == open.end())
        b = open.emplace(open.end());
    }
    b->add(n);
  }
  for (Bucket &b : open)
    changed |= close(f, b, open);
  return changed;
}

llvm::Expected<bool> zcc::bucketCollectives(Module &m, PassContext &ctx) {
  ZeroLimits limits = zeroLimits(m, ctx.options);
  bool changed = false;
  for (auto &f : m.functions)
    if (!f->isKernel)
      changed |= bucket(*f, limits);
  return changed;
}
