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

static llvm::Error evalNormal(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  uint64_t seed = philoxSeed(in[0]->i[0], in[1]->i[0]);
  uint32_t time = philoxTime(in[1]->i[0], in[2]->i[0]), id = uint32_t(n.attrs.i("id"));
  for (int64_t e = 0; e < out[0]->count(); ++e)
    out[0]->f[e] = philoxNormal(seed, uint64_t(e), id, time);
  return llvm::Error::success();
}

constexpr const char *kNoGradient = "random numbers depend on no parameter";

// An element is computed where it is read, from its number `i`: masks of dropout are never stored, and drawn again in the
// backward. The id is an operand, so that equal kernels of several draws are one.
constexpr OpDef ops::random_uniform = defineOp({
    .name = "random_uniform",
    .summary = "element i of uniform random numbers in [0, 1)",
    .operands = {{{"seed"}, {"step"}, {"micro"}, {"id"}, {"i"}}},
    .scalar = "uniform(i, seed ^ ((step >> 16) << 32), (id << 32) | ((step * 65536 + micro) & 4294967295))",
    .noGrad = kNoGradient,
    .resultElem = ResultElem::F32,
    .random = true,
    .precision = Precision::F32,
    .cheap = true,
});

constexpr OpDef ops::random_normal = defineOp({
    .name = "random_normal",
    .summary = "normal random numbers of mean 0 and deviation 1",
    .operands = {{{"seed"}, {"step"}, {"micro"}}},
    .attrs = {{{"dims", AttrKind::Ints, nullptr}, {"elem", AttrKind::Str, "f32"}, {"id", AttrKind::Int, nullptr}}},
    .infer = inferRandom,
    .kernel = "random_normal",
    .noGrad = kNoGradient,
    .eval = evalNormal,
    .random = true,
    .precision = Precision::F32,
});
