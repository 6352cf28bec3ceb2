// Values on several ranks: T+N is this rank's addend of a sum over N ranks, T/N this rank's piece
// (ir/Type.h). On one rank all of them are copies, which is how they are interpreted.
#include "ir/ops/Rules.h"

using namespace zcc;
using namespace zcc::rules;
using llvm::ArrayRef;

static double noFlops(const Node &) { return 0; }

static llvm::Error evalOneRank(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  const Type &x = in[0]->type, &y = out[0]->type;
  if (x.shards > 1 || y.shards > 1 || x.addends > 1 || y.addends > 1)
    return errorAt(n.loc, "several ranks cannot be interpreted");
  out[0]->f = in[0]->f;
  out[0]->i = in[0]->i;
  return llvm::Error::success();
}

static TypesOr inferAddend(Operands t, const Attrs &a) {
  int64_t ranks = a.i("ranks");
  if (t[0]->isAddend() || t[0]->isPartitioned() || ranks < 1)
    return error(t[0]->str() + " cannot be the addend of a sum over " + llvm::Twine(ranks) +
                 " ranks");
  Type r = *t[0];
  r.addends = int(ranks);
  return Types{r};
}

static TypesOr inferSum(Operands t, const Attrs &) {
  Type r = *t[0];
  r.addends = 1;
  return Types{r};
}

static TypesOr inferGather(Operands t, const Attrs &) {
  if (t[0]->isAddend())
    return error(llvm::Twine("expected a piece of a tensor, got ") + t[0]->str());
  Type r = *t[0];
  r.shards = 1;
  return Types{r};
}

static TypesOr inferReduceScatter(Operands t, const Attrs &) {
  if (t[0]->isPartitioned())
    return error(llvm::Twine("expected an addend, got ") + t[0]->str());
  Type r = *t[0];
  r.shards = r.addends;
  r.addends = 1;
  return Types{r};
}

enum Order { Free, Ordered };

static consteval OpDef collective(const char *name, const char *summary, AttrDef attr,
                                  InferFn infer, Order order) {
  OpDef d;
  d.name = name;
  d.summary = summary;
  d.operands = {{{"x"}}};
  d.attrs = {{attr}};
  d.infer = infer;
  d.structural = true;
  d.noGrad = "it is inserted after differentiation";
  d.eval = evalOneRank;
  d.ordered = order == Ordered;
  d.flops = noFlops;
  return defineOp(d);
}

constexpr OpDef ops::addend =
    collective("addend", "the same tensor as this rank's addend of a sum over all ranks",
               {"ranks", "int", nullptr}, inferAddend, Free);
constexpr OpDef ops::sum_ranks =
    collective("sum_ranks", "the sum of an addend over the ranks, or the mean",
               {"mean", "int", "1"}, inferSum, Free);
constexpr OpDef ops::all_reduce =
    collective("all_reduce", "the sum of an addend over the ranks, or the mean, on every rank",
               {"mean", "int", "1"}, inferSum, Ordered);
constexpr OpDef ops::all_gather =
    collective("all_gather", "the whole tensor from every rank's piece", {}, inferGather, Ordered);
constexpr OpDef ops::reduce_scatter =
    collective("reduce_scatter", "this rank's piece of the sum of an addend, or of the mean",
               {"mean", "int", "1"}, inferReduceScatter, Ordered);
