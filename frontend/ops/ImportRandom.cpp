// Random draws. All are counter-based, new at every step; a node's own `seed` gives way to the run's.
#include "frontend/Importer.h"
#include "frontend/onnx/SourceLoc.h"
#include "onnx.pb.h"

using namespace zcc;

namespace {
namespace random_ops {

/// PyTorch's default exporter writes attention's dropout without its training mode, so that nothing would be dropped; the node's
/// metadata has it: scaled_dot_product_attention(query, key, value, attn_mask, dropout_p), whose caller says 0 in evaluation.
bool lostTraining(NodeImport &n) {
  auto text = fxArgument(n.node, "aten.scaled_dot_product_attention", 4);
  double p = 0;
  if (n.has(2) || !n.graph.training() || !text || llvm::StringRef(*text).getAsDouble(p) || !(p > 0))
    return false;
  n.graph.warnOnce("the exporter left the training mode out of attention's dropout; it is trained with dropout_p=" + *text);
  return true;
}

/// In training: 0 with probability `ratio`, else scaled up. In evaluation, and with ratio 0,
/// nothing happens.
void dropout(NodeImport &n) {
  Emitter &e = n.e;
  n.ignore({"seed"});
  Val x = n.in(0);
  double ratio = n.has(1) ? Emitter::asFloat(n.in(1), "ratios") : 0.5;
  // Absent, `training_mode` is false; before opset 12 there was none, and only training exports had
  // the node.
  bool inFile = n.has(2) ? Emitter::asInt(n.in(2), "training modes") != 0 : n.opset < 12 || lostTraining(n);
  if (!n.graph.training() || !inFile || ratio == 0) {
    n.out(0, x);
    if (n.wants(1))
      n.out(1, e.expand(Emitter::number(1, Elem::Bool), x.dims()));
    return;
  }
  Val keep = e(ops::ge, n.graph.random(ops::random_uniform, x.dims()), Emitter::number(ratio, Elem::F32));
  n.out(0, e.select(keep, e.mul(x, ratio < 1 ? 1 / (1 - ratio) : 0), e.like(0, x)));
  n.out(1, keep);
}

Elem floatOf(NodeImport &n, Elem otherwise) {
  Elem elem = n.elemOf("dtype", otherwise);
  if (!isFloat(elem))
    unsupported("element type " + elemName(elem));
  return elem;
}

using Draw = Val(NodeImport &n, llvm::ArrayRef<int64_t> dims, Elem elem);

Val uniform(NodeImport &n, llvm::ArrayRef<int64_t> dims, Elem elem) {
  double low = n.f("low", 0), high = n.f("high", 1);
  return n.e.add(n.e.mul(n.e.cast(n.graph.random(ops::random_uniform, dims), elem), high - low), low);
}

Val normal(NodeImport &n, llvm::ArrayRef<int64_t> dims, Elem elem) {
  Val u = n.e.cast(n.graph.random(ops::random_normal, dims), elem);
  return n.e.add(n.e.mul(u, n.f("scale", 1)), n.f("mean", 0));
}

template <Draw draw> void random(NodeImport &n) {
  n.ignore({"seed"});
  auto dims = n.ints("shape");
  n.out(draw(n, dims, floatOf(n, Elem::F32)));
}

template <Draw draw> void randomLike(NodeImport &n) {
  n.ignore({"seed"});
  n.out(draw(n, n.in(0).dims(), floatOf(n, n.in(0).elem())));
}

void bernoulli(NodeImport &n) {
  n.ignore({"seed"});
  Val p = n.in(0), u = n.graph.random(ops::random_uniform, p.dims());
  n.out(n.e.cast(n.e(ops::lt, u, n.e.cast(p, Elem::F32)), n.elemOf("dtype", p.elem())));
}

const OnnxOp kOps[] = {
    {"Dropout", dropout},
    {"RandomUniform", random<uniform>},
    {"RandomNormal", random<normal>},
    {"RandomUniformLike", randomLike<uniform>},
    {"RandomNormalLike", randomLike<normal>},
    {"Bernoulli", bernoulli},
};

} // namespace random_ops
} // namespace

llvm::ArrayRef<OnnxOp> zcc::randomOps() { return random_ops::kOps; }
