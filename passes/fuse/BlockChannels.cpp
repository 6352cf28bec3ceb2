// Convolutions of a library read and write blocks of channels, [N, C/16, H, W, 16]; on plain layouts each call reorders its input
// and its result. So what lies between convolutions has such blocks, too, forward and, through differentiation, backward:
//
//   %y = conv %x, %w                       : bf16[4x64x56x56]      %y = conv %x.b, %w {block = 16}   : bf16[4x4x56x56x16]
//   %n, .. = batch_norm %y, %scale, %bias  : bf16[4x64x56x56]  ->  %n, .. = batch_norm %y, %scale, %bias : bf16[4x4x56x56x16]
//   %a = relu %n                           : bf16[4x64x56x56]      %a = relu %n                      : bf16[4x4x56x56x16]
//   %z = conv %a, %v                       : bf16[4x64x56x56]      %z = conv %a, %v {block = 16}     : bf16[4x4x56x56x16]
//
// Values of the same dims that elementwise operators and norms read and write together lie alike, as what a max_pool reads and
// its result do: for it blocks are one more spatial axis, along which its windows have one element. They have blocks where more
// convolutions then need no reordering than others read or write them, which is where they are reordered: reshaped and
// transposed. This goes before differentiation and before anything is computed again, so that all of it has the same bits.
#include "ir/Builder.h"
#include "ir/ops/Window.h"
#include "passes/Pass.h"
#include "passes/Target.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace zcc;
using namespace zcc::rules;

namespace {
/// Values that lie alike.
struct Family {
  llvm::SetVector<Value *> values;
  int64_t block = 1; ///< that convolutions want
  int ends = 0;      ///< of convolutions that want it
};

class Blocker {
public:
  Blocker(Function &f, const PassContext &ctx) : f_(f), ctx_(ctx) {}
  bool run();

private:
  struct Readers {
    Value *value;
    bool isDefined, isPlain; ///< in blocks; there is one that reads no blocks
    std::vector<Value::Use> inBlocks, plain;
  };
  int64_t wantedBy(const Node &conv);
  bool hasBlocks(const Value &v, int64_t block) const;
  bool pools(const Node &n);
  bool carries(const Node &n);
  bool isAlike(const Node &n, const Value *operand) const;
  bool isDefinedInBlocks(const Value &v);
  bool takesBlocks(const Value::Use &u);
  void findFamilies();
  Value *inBlocks(Builder &b, Value *v, size_t rank, int64_t block);
  Value *plain(Builder &b, Value *v, const Type &t);
  Readers readersOf(Value &v);
  void apply(llvm::ArrayRef<Readers> all, int64_t block);
  void adapt(Node &n, int64_t block, size_t rank);

  Function &f_;
  const PassContext &ctx_;
  llvm::DenseMap<const Node *, int64_t> wanted_;
  std::vector<Family> families_;
};
} // namespace

/// Asked for while the node's types are plain: the answer is remembered.
int64_t Blocker::wantedBy(const Node &n) {
  if (!n.is(ops::conv))
    return 1;
  auto [at, isNew] = wanted_.try_emplace(&n, 1);
  const bool mayBe = n.attrs.i("group", 1) == 1 && n.attrs.i("block", 1) == 1 && n.result()->type.elem != Elem::F64;
  if (!isNew || !mayBe)
    return at->second;
  if (const int64_t given = ctx_.options.channelBlock)
    at->second = given;
  else if (ctx_.target)
    at->second = ctx_.target->channelBlock(n);
  return at->second;
}

/// Whether a tensor has whole blocks and, unless told to have blocks, one for each thread: a norm's sums are one's.
bool Blocker::hasBlocks(const Value &v, int64_t block) const {
  const int64_t channels = v.type.dims[1], threads = ctx_.target && !ctx_.options.channelBlock ? ctx_.target->threads() : 1;
  return channels % block == 0 && channels / block >= threads;
}

/// Whether its operands and its first result have the same dims and may all have blocks. Random numbers are drawn by their
/// element's number.
static bool isPointwise(const Node &n) { return (n.op->isElementwise() && !n.op->random) || n.is(ops::batch_norm); }

/// Whether it may have windows over one more axis: nobody reads where in a window its results were, so far, and what it reads, of
/// which there is more, need not be reordered.
bool Blocker::pools(const Node &n) {
  if (!n.is(ops::max_pool) || n.result()->type.ndim() > 4 || !n.result(1)->uses.empty() ||
      llvm::is_contained(f_.results, n.result(1)))
    return false;
  const Node *def = n.operand(0)->def;
  return def && (isPointwise(*def) || def->is(ops::max_pool) || wantedBy(*def) > 1);
}

/// Whether its first result lies as its operands do (isAlike).
bool Blocker::carries(const Node &n) { return (isPointwise(n) || pools(n)) && !n.results.empty() && n.result()->type.ndim() > 2; }

/// Whether an operand of a node that carries blocks lies as its result.
bool Blocker::isAlike(const Node &n, const Value *operand) const {
  return operand && (n.is(ops::max_pool) || operand->type.dims == n.result()->type.dims);
}

bool Blocker::isDefinedInBlocks(const Value &v) {
  return v.def && v.def->result() == &v && (carries(*v.def) || wantedBy(*v.def) > 1);
}

/// Whether a reduction leaves of a channel one element, or one for each image.
static bool sumsChannels(const Node &n) {
  const std::vector<int64_t> axes = n.attrs.ints("axes");
  for (int64_t i = 1; i < int64_t(n.operand(0)->type.ndim()); ++i)
    if (llvm::is_contained(axes, i) == (i == 1))
      return false;
  return true;
}

bool Blocker::takesBlocks(const Value::Use &u) {
  const Node &n = *u.node;
  if (n.op->reduction)
    return sumsChannels(n);
  if (n.is(ops::conv))
    return u.index == 0 && wantedBy(n) > 1;
  return carries(n) && isAlike(n, n.operand(u.index));
}

void Blocker::findFamilies() {
  llvm::EquivalenceClasses<Value *> alike;
  for (auto &n : f_.nodes) {
    if (wantedBy(*n) > 1) {
      alike.insert(n->operand(0));
      alike.insert(n->result());
    }
    if (!carries(*n))
      continue;
    for (Value *v : n->operands())
      if (isAlike(*n, v))
        alike.unionSets(v, n->result());
  }
  llvm::MapVector<Value *, size_t> numbers; // by leader
  auto add = [&](Value *v) -> Family & {
    auto [at, isNew] = numbers.insert({alike.getLeaderValue(v), families_.size()});
    if (isNew)
      families_.emplace_back();
    Family &c = families_[at->second];
    c.values.insert(v);
    return c;
  };
  for (auto &n : f_.nodes) {
    const int64_t block = wantedBy(*n);
    for (Value *v : {n->numOperands() ? n->operand(0) : nullptr, n->results.empty() ? nullptr : n->result()})
      if (block > 1 && hasBlocks(*v, block)) {
        Family &c = add(v);
        c.block = !c.ends || c.block == block ? block : 1; // of two kinds: none
        ++c.ends;
      }
    if (carries(*n))
      for (Value *v : n->operands())
        if (isAlike(*n, v)) {
          add(v);
          add(n->result());
        }
  }
}

// ---- what is changed

/// An operand, of `rank` axes or fewer, for what lies in blocks: what numpy broadcasts still does.
Value *Blocker::inBlocks(Builder &b, Value *v, size_t rank, int64_t block) {
  if (v->type.count() == 1 && v->type.ndim() <= rank)
    return v;
  Dims d(rank, 1);
  llvm::copy(v->type.dims, d.end() - v->type.ndim());
  if (d[1] == 1) {
    d.push_back(1);
    return b.reshape(v, d);
  }
  if (elementCount(d) == d[0] * d[1])
    return b.reshape(v, blocked(d, block));
  Dims split = {d[0], d[1] / block, block}, perm = {0, 1};
  split.append(d.begin() + 2, d.end());
  for (size_t i = 3; i <= rank; ++i)
    perm.push_back(int64_t(i));
  perm.push_back(2);
  return b.transpose(b.reshape(v, split), perm);
}

/// [N, C/B, spatial..., B] as `t`, [N, C, spatial...].
Value *Blocker::plain(Builder &b, Value *v, const Type &t) {
  Dims perm = {0, 1, int64_t(t.ndim())};
  for (int64_t i = 2; i < int64_t(t.ndim()); ++i)
    perm.push_back(i);
  return b.reshape(elementCount(llvm::ArrayRef(t.dims).drop_front(2)) == 1 ? v : b.transpose(v, perm), t.dims);
}

/// Fits a node that has or reads what now lies in blocks: its other operands, its attributes, its other results.
void Blocker::adapt(Node &n, int64_t block, size_t rank) {
  if (n.op->reduction) {
    const Type old = n.result()->type;
    n.result()->type = old.withDims(blocked(old.dims, block));
    Builder b(f_, n.next(), n.loc);
    Value *like = b.reshape(n.result(), old.dims);
    n.result()->replaceAllUsesWith(like);
    like->def->setOperand(0, n.result());
    std::replace(f_.results.begin(), f_.results.end(), n.result(), like);
  } else if (n.is(ops::max_pool)) {
    for (const auto &[name, value] : {std::pair("kernel", 1), {"strides", 1}, {"dilations", 1}, {"pads_lo", 0}, {"pads_hi", 0}})
      if (auto ints = n.attrs.ints(name); !ints.empty()) {
        ints.push_back(value);
        n.attrs.set(name, std::move(ints));
      }
    n.result(1)->type.dims = n.result()->type.dims;
  } else if (n.op->isElementwise()) {
    Builder b(f_, &n, n.loc);
    for (unsigned i = 0; i < n.numOperands(); ++i)
      if (Value *v = n.operand(i); v && v->type.dims != n.result()->type.dims)
        n.setOperand(i, inBlocks(b, v, rank, block));
  }
}

/// Who reads a value, while no type has changed yet; a global may have readers in other functions.
Blocker::Readers Blocker::readersOf(Value &v) {
  Readers r{&v, isDefinedInBlocks(v), llvm::is_contained(f_.results, &v), {}, {}};
  for (const Value::Use &u : v.uses)
    if (u.node->parent() == &f_)
      (takesBlocks(u) ? r.inBlocks : r.plain).push_back(u);
  r.isPlain |= !r.plain.empty();
  return r;
}

void Blocker::apply(llvm::ArrayRef<Readers> all, int64_t block) {
  const size_t rank = all.front().value->type.ndim();
  llvm::SetVector<Node *> adapted;
  for (const Readers &r : all) {
    for (const Value::Use &u : r.inBlocks)
      adapted.insert(u.node);
    const Type old = r.value->type;
    Node *def = r.value->def;
    if (!r.isDefined) {
      Builder b(f_, def ? def->next() : f_.first(), def ? def->loc : r.inBlocks.front().node->loc);
      Value *moved = inBlocks(b, r.value, rank, block);
      for (const Value::Use &u : r.inBlocks)
        u.node->setOperand(u.index, moved);
      continue;
    }
    adapted.insert(def);
    if (def->is(ops::conv))
      def->attrs.set("block", block);
    r.value->type = old.withDims(blocked(old.dims, block));
    if (!r.isPlain)
      continue;
    Builder b(f_, def->next(), def->loc);
    Value *back = plain(b, r.value, old);
    for (const Value::Use &u : r.plain)
      u.node->setOperand(u.index, back);
    std::replace(f_.results.begin(), f_.results.end(), r.value, back);
  }
  for (Node *n : adapted)
    adapt(*n, block, rank);
}

bool Blocker::run() {
  findFamilies();
  bool changed = false;
  for (const Family &c : families_) {
    if (c.block == 1)
      continue;
    std::vector<Readers> all;
    for (Value *v : c.values)
      all.push_back(readersOf(*v));
    const auto reorders = llvm::count_if(all, [](const Readers &r) { return !r.isDefined || r.isPlain; });
    if (c.ends <= reorders)
      continue;
    apply(all, c.block);
    changed = true;
  }
  return changed;
}

llvm::Expected<bool> zcc::blockChannels(Module &m, PassContext &ctx) {
  bool changed = false;
  for (auto &f : m.functions)
    if (!f->isKernel)
      changed |= Blocker(*f, ctx).run();
  return changed;
}
