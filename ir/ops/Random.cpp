// Draws by position: element, id of the operator, step and micro-batch decide the number (ir/Philox.h), so that recomputation and
// any partitioning draw the same.
#include "ir/Philox.h"
#include "ir/ops/Rules.h"

using namespace zcc;
using namespace zcc::rules;
using llvm::ArrayRef;

static TypesOr inferRandom(Operands t, const Attrs &a) {
  for (const Type *x : t)
    if (x->elem != Elem::I64 || !x->isScalar())
      return error(llvm::Twine("seed, step and micro must be i64[], got ") + x->str());
  auto e = elemFromName(a.s("elem", "f32"));
  if (!e || (*e != Elem::F32 && *e != Elem::F64))
    return error(llvm::Twine("random numbers are drawn as f32 or f64, not '") + a.s("elem", "f32") + "'");
  return Types{Type(*e, a.ints("dims"))};
}

template <typename F> static llvm::Error draw(Node &n, ArrayRef<const Tensor *> in, Tensor &out, F f) {
  uint64_t seed = uint64_t(in[0]->i[0]);
  uint32_t time = philoxTime(in[1]->i[0], in[2]->i[0]), id = uint32_t(n.attrs.i("id"));
  for (int64_t e = 0; e < out.count(); ++e)
    out.f[e] = f(seed, uint64_t(e), id, time);
  return llvm::Error::success();
}

static llvm::Error evalUniform(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  return draw(n, in, *out[0], philoxUniform);
}

static llvm::Error evalNormal(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  return draw(n, in, *out[0], philoxNormal);
}

static consteval OpDef random(const char *name, const char *summary, EvalFn eval) {
  OpDef d;
  d.name = name;
  d.summary = summary;
  d.operands = {{{"seed"}, {"step"}, {"micro"}}};
  d.attrs = {{{"dims", AttrKind::Ints, nullptr}, {"elem", AttrKind::Str, "f32"}, {"id", AttrKind::Int, nullptr}}};
  d.infer = inferRandom;
  d.kernel = name;
  d.noGrad = "random numbers depend on no parameter";
  d.eval = eval;
  d.random = true;
  d.precision = Precision::F32;
  return defineOp(d);
}

constexpr OpDef ops::random_uniform = random("random_uniform", "uniform random numbers in [0, 1)", evalUniform);
constexpr OpDef ops::random_normal = random("random_normal", "normal random numbers of mean 0 and deviation 1", evalNormal);
