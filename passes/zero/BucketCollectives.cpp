// Small collectives become one: a bucket. It has a result for each operand, so no tensor moves and no shard's boundary.
//
//   %s = reduce_scatter %a                  %s, %t = reduce_scatter %a, %b
//   ...                              ->
//   %t = reduce_scatter %b
//
// A bucket of reductions, or of updated parameters, stands where its last operand is there, and what reads the others moves
// behind it. A bucket of gathered parameters stands where the first is read.
#include "ir/Builder.h"
#include "passes/zero/Zero.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace zcc;

namespace {
struct Bucket {
  std::vector<Node *> members; ///< in order, of one operator, element and attributes
  int64_t elements = 0;
};
} // namespace

static bool isBucketed(const Node &n) { return n.numOperands() == 1 && n.op->collective != Collective::None; }

static bool readsGlobal(const Node &n) { return n.operand(0)->isGlobal(); }

static bool areAlike(const Node &a, const Node &b) {
  return a.op == b.op && a.attrs == b.attrs && a.operand(0)->type.elem == b.operand(0)->type.elem &&
         readsGlobal(a) == readsGlobal(b);
}

/// What stands between the first member and `last` and depends on a member; nullopt if `last` does, or if it cannot move
/// behind `last` because of a write in between.
static std::optional<std::vector<Node *>> dependents(const Bucket &b, Node *last) {
  llvm::SmallPtrSet<const Value *, 16> values;
  llvm::SmallPtrSet<const Node *, 8> members(b.members.begin(), b.members.end());
  std::vector<Node *> moved;
  llvm::SmallPtrSet<const Value *, 8> written, writtenByStaying, readByMoved;
  for (Node *n = b.members.front(); n; n = n->next()) {
    bool depends = false;
    for (Value *v : n->operands())
      depends |= v && values.contains(v);
    if (n == last)
      return depends ? std::nullopt : std::optional(moved);
    bool isMoved = depends && !members.contains(n);
    for (unsigned i = 0; i < n->numOperands(); ++i) {
      Value *v = n->operand(i);
      if (!v || !v->isGlobal())
        continue;
      bool isWrite = i < 32 && (n->op->writes >> i & 1);
      // A staying node would run before a write that came before it, or behind a read that came after its write.
      if (!isMoved && (written.contains(v) || (isWrite && readByMoved.contains(v))))
        return std::nullopt;
      if (isMoved)
        (isWrite ? written : readByMoved).insert(v);
    }
    if (isMoved)
      moved.push_back(n);
    if (depends || members.contains(n))
      for (auto &r : n->results)
        values.insert(r.get());
  }
  return std::nullopt;
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

/// Whether a global that a member reads is written between it and `to`.
static bool isWrittenBetween(const Node &from, const Node &to, const Value *global) {
  for (const Node *n = from.next(); n && n != &to; n = n->next())
    if (assigns(*n) && n->operand(0) == global)
      return true;
  return false;
}

/// Members of other buckets may have moved: they are in order again.
static void sortMembers(const Function &f, llvm::MutableArrayRef<Bucket> open, llvm::ArrayRef<Node *> moved) {
  auto hasMoved = [&](const Node *n) { return llvm::is_contained(moved, n); };
  if (llvm::none_of(open, [&](const Bucket &b) { return llvm::any_of(b.members, hasMoved); }))
    return;
  auto at = positions(f);
  for (Bucket &b : open)
    llvm::sort(b.members, [&](const Node *x, const Node *y) { return at.at(x) < at.at(y); });
}

/// Merges a bucket, unless what another one moved stands in the way by now; says whether it did.
static bool close(Function &f, Bucket &b, llvm::MutableArrayRef<Bucket> open) {
  Bucket closed = std::exchange(b, {});
  if (closed.members.size() < 2)
    return false;
  if (readsGlobal(*closed.members[0])) {
    merge(f, closed, closed.members.front());
    return true;
  }
  Node *last = closed.members.back();
  Bucket others = closed;
  others.members.pop_back();
  auto moved = dependents(others, last);
  if (!moved)
    return false;
  Node *behind = last->next();
  for (Node *n : *moved)
    n->moveBefore(behind);
  sortMembers(f, open, *moved);
  merge(f, closed, last);
  return true;
}

static bool fits(const Bucket &b, Node &n) {
  if (readsGlobal(n))
    return !isWrittenBetween(*b.members.front(), n, n.operand(0));
  return dependents(b, &n).has_value();
}

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
    if (b != open.end() && (b->elements + elements > limit || !fits(*b, *n)))
      changed |= close(f, *b, open);
    if (b == open.end() || b->members.empty()) {
      b = llvm::find_if(open, [](const Bucket &x) { return x.members.empty(); });
      if (b == open.end())
        b = open.emplace(open.end());
    }
    b->members.push_back(n);
    b->elements += elements;
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
