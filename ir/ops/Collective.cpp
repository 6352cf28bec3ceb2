// Values on several ranks: T+N is this rank's addend of a sum over N ranks, T/N this rank's piece (ir/Type.h). On one rank all of
// them are copies, which is how they are interpreted.
#include "ir/ops/Rules.h"

using namespace zcc;
using namespace zcc::rules;
using llvm::ArrayRef;

static llvm::Error evalOneRank(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  for (size_t i = 0; i < in.size(); ++i)
    if (in[i]->type.isPartitioned() || in[i]->type.isAddend() || out[i]->type.isPartitioned() || out[i]->type.isAddend())
      return errorAt(n.loc, "several ranks cannot be interpreted");
  copyOperands(in, out);
  return llvm::Error::success();
}

static TypesOr inferAddend(Operands t, const Attrs &a) {
  int64_t ranks = a.i("ranks");
  if (t[0]->isAddend() || t[0]->isPartitioned() || ranks < 1)
    return error(t[0]->str() + " cannot be the addend of a sum over " + llvm::Twine(ranks) + " ranks");
  Type r = *t[0];
  r.addends = int(ranks);
  return Types{r};
}

static TypesOr inferShard(Operands t, const Attrs &a) {
  int64_t ranks = a.i("ranks");
  if (t[0]->isAddend() || t[0]->isPartitioned() || ranks < 1)
    return error(t[0]->str() + " cannot be split over " + llvm::Twine(ranks) + " ranks");
  Type r = *t[0];
  r.shards = int(ranks);
  return Types{r};
}

static Type summed(const Type &t, bool isScattered) {
  Type r = t;
  r.shards = isScattered ? t.addends : 1;
  r.addends = 1;
  return r;
}

static TypesOr inferSumRanks(Operands t, const Attrs &a) { return Types{summed(*t[0], a.i("scatter"))}; }

static TypesOr inferAllReduce(Operands t, const Attrs &) {
  Types types;
  for (const Type *x : t)
    types.push_back(summed(*x, false));
  return types;
}

static TypesOr inferAllGather(Operands t, const Attrs &) {
  Types types;
  for (const Type *x : t) {
    if (x->isAddend())
      return error(llvm::Twine("expected a piece of a tensor, got ") + x->str());
    types.push_back(*x);
    types.back().shards = 1;
  }
  return types;
}

static TypesOr inferReduceScatter(Operands t, const Attrs &) {
  Types types;
  for (const Type *x : t) {
    if (x->isPartitioned())
      return error(llvm::Twine("expected an addend, got ") + x->str());
    types.push_back(summed(*x, true));
  }
  return types;
}

static consteval OpDef betweenRanks(const char *name, const char *summary, InferFn infer, Structural::Kind kind) {
  OpDef d;
  d.name = name;
  d.summary = summary;
  d.operands = {{{"x"}}};
  d.infer = infer;
  d.structural = kind;
  d.noGrad = "it is inserted after differentiation";
  d.eval = evalOneRank;
  d.flops = noFlops;
  return d;
}

/// Of one type, or of several as one bucket: a result for each operand.
static consteval OpDef collective(const char *name, const char *summary, InferFn infer, Collective kind, int sends) {
  OpDef d = betweenRanks(name, summary, infer, Structural::Collective);
  d.operands = {{{"x", OperandDef::Variadic}}};
  if (kind == Collective::Reduce)
    d.attrs = {{{"mean", AttrKind::Int, "1"}}};
  d.results = -1;
  d.collective = kind;
  d.sends = sends;
  d.startable = true;
  d.ordered = true;
  return defineOp(d);
}

static consteval OpDef splitting(const char *name, const char *summary, InferFn infer, Structural::Kind kind) {
  OpDef d = betweenRanks(name, summary, infer, kind);
  d.attrs = {{{"ranks", AttrKind::Int, nullptr}}};
  return defineOp(d);
}

static consteval OpDef sum(const char *name, const char *summary, InferFn infer) {
  OpDef d = betweenRanks(name, summary, infer, Structural::SumRanks);
  d.attrs = {{{"mean", AttrKind::Int, "1"}, {"scatter", AttrKind::Int, "0"}}};
  return defineOp(d);
}

constexpr OpDef ops::addend = [] {
  OpDef d = splitting("addend", "the same tensor as this rank's addend of a sum over all ranks", inferAddend, Structural::Addend);
  d.forwards = true;
  return d;
}();
constexpr OpDef ops::shard =
    splitting("shard", "this rank's piece of a tensor that every rank holds", inferShard, Structural::Shard);
constexpr OpDef ops::sum_ranks =
    sum("sum_ranks", "the sum of an addend over the ranks, or the mean; with `scatter` a piece of it", inferSumRanks);
constexpr OpDef ops::all_reduce = [] {
  OpDef d = collective("all_reduce", "the sum of an addend over the ranks, or the mean, on every rank", inferAllReduce,
                       Collective::Reduce, /*sends=*/2);
  d.inPlace = kAllOperands;
  return d;
}();
constexpr OpDef ops::all_gather =
    collective("all_gather", "the whole tensor from every rank's piece", inferAllGather, Collective::Gather, /*sends=*/1);
constexpr OpDef ops::reduce_scatter = collective("reduce_scatter", "this rank's piece of the sum of an addend, or of the mean",
                                                 inferReduceScatter, Collective::Reduce, /*sends=*/1);
