// What the emitter knows by itself: writes to globals, transfers between spaces, started operators, fused kernels. The
// interpreter knows them too.
#include "ir/ops/Rules.h"

using namespace zcc;
using namespace zcc::rules;

static double noFlops(const Node &) { return 0; }

static TypesOr inferAssign(Operands t, const Attrs &) {
  if (*t[0] != *t[1])
    return error(llvm::Twine("cannot assign ") + t[1]->str() + " to " + t[0]->str());
  return Types{};
}

constexpr OpDef ops::assign = defineOp({
    .name = "assign",
    .summary = "writes a param or state",
    .operands = {{{"dst"}, {"src"}}},
    .results = 0,
    .infer = inferAssign,
    .structural = Structural::Assign,
    .noGrad = "it is appended after differentiation",
    .writes = 1,
    .moves = true,
    .flops = noFlops,
});

static TypesOr inferAfter(Operands t, const Attrs &) { return Types{*t[0]}; }

// What reads it is not equal to what reads `x`, so neither is computed in the other's place.
constexpr OpDef ops::after = defineOp({
    .name = "after",
    .summary = "`x`, but not before `d` is there: nothing that reads it is computed earlier",
    .operands = {{{"x", OperandDef::AnyElem}, {"d", OperandDef::AnyElem}}},
    .infer = inferAfter,
    .structural = Structural::After,
    .noGrad = "it is inserted after differentiation",
    .forwards = true,
    .moves = true,
    .flops = noFlops,
});

static TypesOr inferTransfer(Operands t, const Attrs &a) {
  auto to = spaceFromName(a.s("to"));
  if (!to)
    return error("there is no space '" + a.s("to") + "'; there are device, host, nvme");
  Types types;
  for (const Type *x : t) {
    if (x->space == *to)
      return error(x->str() + " is in @" + spaceName(*to) + " already");
    types.push_back(x->withSpace(*to));
  }
  return types;
}

static llvm::Error evalTransfer(Node &, llvm::ArrayRef<const Tensor *> in, llvm::ArrayRef<Tensor *> out) {
  for (size_t i = 0; i < in.size(); ++i) {
    out[i]->f = in[i]->f;
    out[i]->i = in[i]->i;
  }
  return llvm::Error::success();
}

constexpr OpDef ops::transfer = defineOp({
    .name = "transfer",
    .summary = "the same values in another memory space: a result for each operand",
    .operands = {{{"x", OperandDef::Variadic}}},
    .attrs = {{{"to", AttrKind::Str, nullptr}}},
    .results = -1,
    .infer = inferTransfer,
    .structural = Structural::Transfer,
    .noGrad = "it is inserted after differentiation",
    .eval = evalTransfer,
    .moves = true,
    .startable = true,
    .flops = noFlops,
});

static TypesOr inferStart(Operands t, const Attrs &a) {
  std::string name = a.s("op");
  const OpDef *op = findOp(name);
  if (!op || op == &ops::start)
    return error(llvm::Twine("'") + name + "' cannot be started");
  auto types = inferTypes(*op, t, a);
  if (!types)
    return types;
  for (Type &r : *types)
    r.isFuture = true;
  return types;
}

constexpr OpDef ops::start = defineOp({
    .name = "start",
    .summary = "begins a collective, transfer or copy, whose result `wait` gives",
    .operands = {{{"x", OperandDef::Variadic}}},
    .attrs = {{{"op", AttrKind::Str, nullptr}}},
    .infer = inferStart,
    .structural = Structural::Start,
    .noGrad = "it is inserted after differentiation",
    .ordered = true,
    .flops = noFlops,
});

static TypesOr inferWait(Operands t, const Attrs &) {
  if (!t[0]->isFuture)
    return error(llvm::Twine("nothing was started: the operand is ") + t[0]->str());
  Type r = *t[0];
  r.isFuture = false;
  return Types{r};
}

constexpr OpDef ops::wait = defineOp({
    .name = "wait",
    .summary = "the result of what was started",
    .operands = {{{"f"}}},
    .infer = inferWait,
    .structural = Structural::Wait,
    .noGrad = "it is inserted after differentiation",
    .forwards = true,
    .ordered = true,
    .moves = true,
    .flops = noFlops,
});

static TypesOr inferRelease(Operands, const Attrs &) { return Types{}; }

constexpr OpDef ops::release = defineOp({
    .name = "release",
    .summary = "ends the life of a gathered or copied value",
    .operands = {{{"x"}}},
    .results = 0,
    .infer = inferRelease,
    .structural = Structural::Release,
    .noGrad = "it is inserted after differentiation",
    .ordered = true,
    .moves = true,
    .flops = noFlops,
});

static TypesOr inferFused(Operands, const Attrs &a) {
  return error(llvm::Twine("the results of 'fused' are those of its kernel '@") + a.s("kernel") + "'");
}

constexpr OpDef ops::fused = defineOp({
    .name = "fused",
    .summary = "runs a kernel of the module: elementwise operators and reductions in one loop",
    .operands = {{{"x", OperandDef::Variadic}}},
    .attrs = {{{"kernel", AttrKind::Str, nullptr}}},
    .results = -1,
    .infer = inferFused,
    .structural = Structural::Fused,
    .noGrad = "it is made after differentiation",
});
