// Constants and counters: values that are computed where they are read.
#include "ir/ops/Rules.h"

using namespace zcc;
using namespace zcc::rules;
using llvm::ArrayRef;

static llvm::Expected<Type> typeOf(const Attrs &a, llvm::StringRef elem) {
  auto e = elemFromName(a.s("elem", elem));
  if (!e)
    return error(llvm::Twine("'") + a.s("elem") + "' is no element type");
  std::vector<int64_t> dims = a.ints("dims");
  for (int64_t d : dims)
    if (d < 0)
      return error("'dims' must not be negative");
  return Type(*e, dims);
}

static TypesOr inferConstant(Operands, const Attrs &a) {
  auto t = typeOf(a, "f32");
  if (!t)
    return t.takeError();
  const Attr *v = a.find("value");
  bool isInts = v && std::holds_alternative<std::vector<int64_t>>(*v);
  if (!isFloat(t->elem) && !isInts)
    return error(llvm::Twine("the value of ") + t->str() + " must be integers");
  int64_t n = a.floats("value").size();
  if (n != 1 && n != t->count())
    return error(llvm::Twine(n) + " values for " + t->str());
  return Types{*t};
}

static llvm::Error evalConstant(Node &n, ArrayRef<const Tensor *>, ArrayRef<Tensor *> out) {
  auto fill = [](auto &to, const auto &from) {
    for (size_t i = 0; i < to.size(); ++i)
      to[i] = from[from.size() == 1 ? 0 : i];
  };
  if (out[0]->isFloat())
    fill(out[0]->f, n.attrs.floats("value"));
  else
    fill(out[0]->i, n.attrs.ints("value"));
  return llvm::Error::success();
}

constexpr OpDef ops::constant = defineOp({
    .name = "constant",
    .summary = "one value everywhere, or up to 8 values",
    .attrs = {{{"value", AttrKind::Floats, nullptr}, {"elem", AttrKind::Str, "f32"}, {"dims", AttrKind::Ints, nullptr}}},
    .infer = inferConstant,
    .leaf = Leaf::Constant,
    .noGrad = "a constant has no operands",
    .eval = evalConstant,
    .flops = noFlops,
});

static TypesOr inferIota(Operands, const Attrs &a) {
  auto t = typeOf(a, "i64");
  if (!t)
    return t.takeError();
  if (t->elem == Elem::Bool)
    return error("a counter cannot be bool");
  if (a.i("axis") == kEveryAxis)
    return Types{*t};
  if (auto axis = axisOf(*t, a); !axis)
    return axis.takeError();
  return Types{*t};
}

static llvm::Error evalIota(Node &n, ArrayRef<const Tensor *>, ArrayRef<Tensor *> out) {
  const Dims strides = counterStrides(n);
  const Type &t = out[0]->type;
  for (int64_t e = 0; e < out[0]->count(); ++e) {
    int64_t i = 0;
    for (int64_t axis = int64_t(t.ndim()), rest = e; axis-- > 0; rest /= t.dims[axis])
      i += rest % t.dims[axis] * strides[axis];
    if (out[0]->isFloat())
      out[0]->f[e] = double(i);
    else
      out[0]->i[e] = i;
  }
  return llvm::Error::success();
}

constexpr OpDef ops::iota = defineOp({
    .name = "iota",
    .summary = "the index along an axis; along -1, of each element among all, in row-major order",
    .attrs = {{{"dims", AttrKind::Ints, nullptr}, {"axis", AttrKind::Int, nullptr}, {"elem", AttrKind::Str, "i64"}}},
    .infer = inferIota,
    .leaf = Leaf::Counter,
    .noGrad = "a counter has no operands",
    .eval = evalIota,
    .flops = noFlops,
});
