// What the emitter knows by itself: writes to globals, transfers between spaces, started operators, fused kernels. The
// interpreter knows them too.
#include "ir/ops/Rules.h"

using namespace zcc;
using namespace zcc::rules;

// ---- runs: elements begin, begin + 1, ... of what a rank holds, in row-major order

static Type runOf(const Type &t, int64_t count) { return t.withDims({count * t.shards}); }

/// Nothing, or why `part` cannot be a run of `whole`.
static std::string checkRun(const Type &whole, const Type &part, int64_t begin) {
  int64_t count = part.localCount();
  if (part != runOf(whole, count))
    return part.str() + " is no run of " + whole.str();
  if (begin < 0 || count < 1 || begin > whole.localCount() - count)
    return ("elements " + llvm::Twine(begin) + " to " + llvm::Twine(begin + count) + " do not lie in " + whole.str()).str();
  return "";
}

static TypesOr inferRun(Operands t, const Attrs &a) {
  Type r = runOf(*t[0], std::max<int64_t>(a.i("count"), 0));
  if (std::string s = checkRun(*t[0], r, a.i("begin")); !s.empty())
    return error(s);
  return Types{r};
}

static std::optional<View> viewRun(const Node &n, const View &in) {
  if (in.strides != denseStrides(in.dims))
    return std::nullopt;
  return View{in.base, in.offset + n.attrs.i("begin"), {n.attrs.i("count")}, {1}};
}

static llvm::Error evalRun(Node &n, llvm::ArrayRef<const Tensor *> in, llvm::ArrayRef<Tensor *> out) {
  copyElements(*in[0], n.attrs.i("begin"), *out[0], 0, out[0]->count());
  return llvm::Error::success();
}

constexpr OpDef ops::run = defineOp({
    .name = "run",
    .summary = "elements begin to begin + count of what a rank holds, in row-major order",
    .operands = {{{"x"}}},
    .attrs = {{{"begin", AttrKind::Int, nullptr}, {"count", AttrKind::Int, nullptr}}},
    .infer = inferRun,
    .view = viewRun,
    .noGrad = "it is inserted after differentiation",
    .eval = evalRun,
    .moves = true,
    .flops = noFlops,
});

static TypesOr inferInsert(Operands t, const Attrs &a) {
  std::vector<int64_t> dims = a.ints("dims");
  Type whole = t[1]->withDims(dims);
  if (t[0] && *t[0] != whole)
    return error(t[0]->str() + " is not " + whole.str());
  if (std::string s = checkRun(whole, *t[1], a.i("begin")); !s.empty())
    return error(s);
  return Types{whole};
}

static llvm::Error evalInsert(Node &n, llvm::ArrayRef<const Tensor *> in, llvm::ArrayRef<Tensor *> out) {
  if (in[0])
    copyElements(*in[0], 0, *out[0], 0, in[0]->count());
  copyElements(*in[1], 0, *out[0], n.attrs.i("begin"), in[1]->count());
  return llvm::Error::success();
}

constexpr OpDef ops::insert = defineOp({
    .name = "insert",
    .summary = "x, a tensor of `dims`, with a run of its elements replaced; without x the others have no value yet",
    .operands = {{{"x", OperandDef::Optional}, {"part"}}},
    .attrs = {{{"begin", AttrKind::Int, nullptr}, {"dims", AttrKind::Ints, nullptr}}},
    .infer = inferInsert,
    .structural = Structural::Insert,
    .noGrad = "it is inserted after differentiation",
    .eval = evalInsert,
    .inPlace = 1,
    .moves = true,
    .flops = noFlops,
});

static TypesOr inferAssign(Operands t, const Attrs &a) {
  if (*t[0] == *t[1] && a.i("begin") == 0)
    return Types{};
  if (!checkRun(*t[0], *t[1], a.i("begin")).empty())
    return error(llvm::Twine("cannot assign ") + t[1]->str() + " to " + t[0]->str() +
                 (a.has("begin") ? " from element " + std::to_string(a.i("begin")) + " on" : ""));
  return Types{};
}

constexpr OpDef ops::assign = defineOp({
    .name = "assign",
    .summary = "writes a param or state, or a run of its elements",
    .operands = {{{"dst"}, {"src"}}},
    .attrs = {{{"begin", AttrKind::Int, "0"}}},
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
  copyOperands(in, out);
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
    .summary = "runs a kernel of the module: elementwise operators and reductions in one loop; `parts` times, side by side, over "
               "the operands of each part in turn",
    .operands = {{{"x", OperandDef::Variadic}}},
    .attrs = {{{"kernel", AttrKind::Str, nullptr}, {"parts", AttrKind::Int, "1"}}},
    .results = -1,
    .infer = inferFused,
    .structural = Structural::Fused,
    .noGrad = "it is made after differentiation",
});
