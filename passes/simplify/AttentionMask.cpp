// Combines the masks that the same scores meet: one boolean tensor, sums, or a causal limit.
#include "passes/simplify/AttentionMask.h"
#include <cmath>

using namespace zcc;
using llvm::ArrayRef;

bool zcc::anyBehind(Value *v, llvm::function_ref<bool(Value *)> holds) {
  llvm::DenseSet<Value *> seen;
  std::vector<Value *> work{v};
  while (!work.empty()) {
    Value *x = work.back();
    work.pop_back();
    if (!x || !isFloat(x->type.elem) || !seen.insert(x).second)
      continue;
    if (holds(x))
      return true;
    if (x->def)
      work.insert(work.end(), x->def->operands().begin(), x->def->operands().end());
  }
  return false;
}

bool zcc::dependsOnTrained(Value *v) {
  return anyBehind(v, [](Value *x) { return x->isGlobal() && static_cast<GlobalValue *>(x)->trained; });
}

namespace {
/// Finite values this low weigh nothing against any score that is not masked, in f32.
constexpr double kMasked = -1e9;
/// Adding a score to a value this low does not change it, so replacing equals adding.
constexpr double kSwallows = -1e30;

class Combiner {
public:
  Combiner(Rewriter &r, Builder &b, const Dims &scores, Elem elem) : r_(r), b_(b), scores_(scores), elem_(elem) {}
  std::optional<CombinedMask> run(ArrayRef<MaskTerm> terms);

private:
  Value *aligned(Value *v, const Dims &scores);
  bool split(const MaskTerm &t);
  bool splitSelected(Value *keep, double low);
  void splitAdded(Value *v);
  void splitKept(Value *v);
  const Tensor *constantOf(Value *v) { return r_.constants.value(v); }
  bool constantAdded(Value *v, const Tensor &t);
  bool constantKept(Value *v, const Tensor &t, bool isInfinite);
  bool isAlone() const { return terms_ == 1; }
  /// A mask, or a constant that is made when all terms are understood.
  struct Part {
    Value *value;
    std::optional<Tensor> constant = std::nullopt;
  };
  Part withoutRepeats(Value *v, Tensor t);
  Value *valueOf(const Part &p) { return p.constant ? b_.constant(*p.constant, "mask") : p.value; }

  Rewriter &r_;
  Builder &b_;
  Dims scores_;
  Elem elem_;
  size_t terms_ = 0;
  bool causal_ = false;
  std::vector<Part> kept_, added_;
};
} // namespace

/// `v`, which broadcasts to scores, with the four axes of the product's; nullptr where scores are no such view of it, as those of
/// windows, which have an axis more.
Value *Combiner::aligned(Value *v, const Dims &scores) {
  Dims d = v->type.dims;
  while (d.size() < scores.size())
    d.insert(d.begin(), 1);
  if (d.size() > scores.size() || scores.size() > 4 || (scores.size() == 4 && scores != scores_))
    return nullptr;
  if (d.size() == 3 && d[0] != 1)
    d = {scores_[0], scores_[1], d[1], d[2]};
  while (d.size() < 4)
    d.insert(d.begin(), 1);
  return b_.reshape(v, d);
}

/// A constant mask with axes of batch and heads along which it repeats as 1.
Combiner::Part Combiner::withoutRepeats(Value *v, Tensor t) {
  for (int axis : {0, 1}) {
    int64_t outer = elementCount(ArrayRef<int64_t>(t.type.dims).take_front(axis));
    int64_t extent = t.type.dims[axis], inner = t.count() / (outer * extent);
    auto shrink = [&](auto &x) {
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t e = 1; e < extent; ++e)
          if (!std::equal(x.begin() + o * extent * inner, x.begin() + (o * extent + 1) * inner,
                          x.begin() + (o * extent + e) * inner))
            return;
      for (int64_t o = 0; o < outer; ++o)
        std::copy_n(x.begin() + o * extent * inner, inner, x.begin() + o * inner);
      x.resize(outer * inner);
      t.type.dims[axis] = 1;
    };
    t.isFloat() ? shrink(t.f) : shrink(t.i);
  }
  return v && t.type == v->type ? Part{v} : Part{nullptr, std::move(t)};
}

/// The lower triangle, true where key t <= s + (T - S); needs all rows and keys.
static bool isCausal(const Tensor &t) {
  const int64_t rows = t.type.dims[2], keys = t.type.dims[3], count = t.count();
  for (int64_t i = 0; i < count; ++i)
    if ((t.i[i] != 0) != (i % keys <= i / keys % rows + keys - rows))
      return false;
  return true;
}

static bool hasFullRow(const Tensor &t) {
  int64_t keys = t.type.dims[3];
  for (int64_t row = 0; row < t.count() / keys; ++row)
    if (std::all_of(t.i.begin() + row * keys, t.i.begin() + (row + 1) * keys, [](int64_t x) { return x == 0; }))
      return true;
  return false;
}

/// A bool constant. Scores that are finite where masked give a fully masked row equal weights, not
/// none, so they become a bool mask only where no such row can be.
bool Combiner::constantKept(Value *v, const Tensor &t, bool isInfinite) {
  if (llvm::all_of(t.i, [](int64_t x) { return x != 0; }))
    return true;
  bool isWide = t.type.dims[2] == scores_[2] && t.type.dims[3] == scores_[3];
  if (!isInfinite && (!isAlone() || hasFullRow(t)))
    return false;
  if (isWide && scores_[3] >= scores_[2] && isCausal(t))
    causal_ = true;
  else
    kept_.push_back(withoutRepeats(v, t));
  return true;
}

/// A constant that is added: nothing, two-valued, or a bias of its own.
bool Combiner::constantAdded(Value *v, const Tensor &t) {
  if (llvm::all_of(t.f, [](double x) { return x == 0; }))
    return true;
  Tensor keep(t.type.withElem(Elem::Bool));
  bool isInfinite = true;
  for (int64_t i = 0, count = t.count(); i < count; ++i) {
    if (t.f[i] != 0 && !(t.f[i] <= kMasked)) {
      added_.push_back(withoutRepeats(v, t));
      return true;
    }
    keep.i[i] = t.f[i] == 0;
    isInfinite &= t.f[i] == 0 || std::isinf(t.f[i]);
  }
  if (!constantKept(nullptr, keep, isInfinite))
    added_.push_back(withoutRepeats(v, t));
  return true;
}

/// Of four axes, before it was broadcast.
static Value *narrow(Value *v) {
  Node *wide = defBy(v, ops::broadcast);
  return wide && wide->operand(0)->type.ndim() == 4 ? wide->operand(0) : v;
}

/// A condition for attending; masked scores are -infinity.
void Combiner::splitKept(Value *v) {
  v = narrow(v);
  if (Node *both = defBy(v, ops::and_)) {
    for (Value *o : both->operands())
      splitKept(aligned(o, scores_));
    return;
  }
  const Tensor *t = constantOf(v);
  if (!t || !constantKept(v, Tensor(*t), true))
    kept_.push_back({v});
}

/// Nothing is added where `keep` holds, elsewhere `low`. Whether it is a condition for attending.
bool Combiner::splitSelected(Value *keep, double low) {
  if (std::isinf(low)) {
    splitKept(keep);
    return true;
  }
  keep = narrow(keep);
  const Tensor *t = constantOf(keep);
  return t && constantKept(keep, Tensor(*t), false);
}

void Combiner::splitAdded(Value *v) {
  v = narrow(v);
  if (const Tensor *t = constantOf(v)) {
    constantAdded(v, Tensor(*t));
    return;
  }
  Node *n = v->def;
  if (n && n->is(ops::add) && !r_.splat(n->operand(1))) {
    ++terms_;
    for (Value *o : n->operands())
      splitAdded(aligned(o, scores_));
    return;
  }
  if (n && n->is(ops::select)) {
    auto a = r_.splat(n->operand(1)), b = r_.splat(n->operand(2));
    Value *cond = aligned(n->operand(0), scores_);
    if (a && b && *a == 0 && *b <= kMasked && splitSelected(cond, *b))
      return;
    if (a && b && *b == 0 && *a <= kMasked && splitSelected(b_.make(ops::not_, {cond}), *a))
      return;
  }
  added_.push_back({v});
}

/// Whether the term is understood.
bool Combiner::split(const MaskTerm &t) {
  Value *v = aligned(t.value, t.scores);
  if (!v)
    return false;
  if (t.kind == MaskTerm::Added) {
    splitAdded(v);
    return true;
  }
  bool isInfinite = std::isinf(t.low) && t.low < 0;
  Value *keep = t.kind == MaskTerm::Kept ? v : b_.make(ops::not_, {v});
  if (isInfinite) {
    splitKept(keep);
    return true;
  }
  const Tensor *c = t.low <= kMasked ? constantOf(keep) : nullptr;
  if (c && constantKept(keep, Tensor(*c), false))
    return true;
  if (t.low > kSwallows)
    return false;
  added_.push_back({b_.make(ops::select, {keep, b_.scalar(0, elem_), b_.scalar(t.low, elem_)})});
  return true;
}

std::optional<CombinedMask> Combiner::run(ArrayRef<MaskTerm> terms) {
  terms_ = terms.size();
  for (const MaskTerm &t : terms)
    if (!split(t))
      return std::nullopt;
  CombinedMask m;
  m.causal = causal_;
  for (const Part &p : kept_) {
    Value *k = valueOf(p);
    m.value = m.value ? b_.make(ops::and_, {m.value, k}) : k;
  }
  if (added_.empty())
    return m;
  if (m.value)
    added_.push_back({b_.make(ops::select, {m.value, b_.scalar(0, elem_), b_.scalar(-INFINITY, elem_)})});
  m.value = nullptr;
  for (const Part &p : added_) {
    Value *a = valueOf(p);
    m.value = m.value ? b_.make(ops::add, {m.value, a}) : a;
  }
  return m;
}

std::optional<CombinedMask> zcc::combineMasks(Rewriter &r, Builder &b, ArrayRef<MaskTerm> terms, const Dims &scores, Elem elem) {
  return Combiner(r, b, scores, elem).run(terms);
}
