// Linear quantisation to integers of 8 bits and more.
#include "frontend/Importer.h"

using namespace zcc;

namespace {
namespace quantize_ops {

/// A scale or zero point against x: one for all, one per element of an axis, or one per block along
/// it.
Val against(NodeImport &n, const Val &s, const Val &x, int64_t axis, int64_t block) {
  Emitter &e = n.e;
  if (s.count() == 1)
    return e.reshape(s, {});
  if (s.rank() == 1 && block == 0) {
    Dims d(x.rank(), 1);
    d[normalAxis(axis, x.rank())] = s.count();
    return e.reshape(s, d);
  }
  if (block == 0)
    return s;
  int64_t a = normalAxis(axis, x.rank()), extent = x.dim(a);
  if (block < 0 || s.rank() != x.rank() || s.dim(a) != extent / block + (extent % block != 0))
    invalid("scales or zero points of " + s.type.str() + " for blocks of " + llvm::Twine(block) + " along axis " +
            llvm::Twine(a) + " of " + x.type.str());
  block = std::min(block, std::max<int64_t>(extent, 1));
  Dims wide(s.dims().begin(), s.dims().end()), dims = wide;
  wide.insert(wide.begin() + a + 1, block);
  dims[a] *= block;
  Val v = e.reshape(e.expand(e.unsqueeze(s, {a + 1}), wide), dims);
  return e.slice(v, a, 0, extent);
}

void dequantize(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0), scale = n.in(1);
  int64_t axis = n.i("axis", 1), block = n.i("block_size", 0);
  Elem to = n.i("output_dtype", 0) ? n.elemOf("output_dtype", scale.elem()) : scale.elem();
  const Elem precise = to == Elem::F64 || scale.elem() == Elem::F64 ? Elem::F64 : Elem::F32;
  Val v = e.cast(x, precise);
  if (n.has(2))
    v = e.sub(v, e.cast(against(n, n.in(2), x, axis, block), precise));
  Val y = e.cast(e.mul(v, e.cast(against(n, scale, x, axis, block), precise)), to);
  if (auto *q = n.graph.passOn(x)) { // y, and the gradient of what it was made of
    Val from = e.cast(q->from, to);
    from = e.select(q->isInRange, from, e.like(0, from));
    y = e.add(e(ops::stop_gradient, y), e.sub(from, e(ops::stop_gradient, from)));
  }
  n.out(y);
}

/// What x is divided in: as the node says, else as its scale has it.
Elem precisionOf(NodeImport &n) {
  if (n.i("precision", 0))
    return n.elemOf("precision", Elem::F32);
  return n.in(1).isFloat() ? n.in(1).elem() : Elem::F32;
}

void quantize(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  n.ignore({"saturate"});
  int64_t axis = n.i("axis", 1), block = n.i("block_size", 0);
  Elem to = n.has(2) ? n.in(2).elem() : Elem::U8;
  if (n.i("output_dtype", 0))
    to = n.elemOf("output_dtype", to);
  double lo, hi;
  switch (to) {
  case Elem::U8:
    lo = 0, hi = 255;
    break;
  case Elem::I8:
    lo = -128, hi = 127;
    break;
  case Elem::U16:
    lo = 0, hi = 65535;
    break;
  case Elem::I16:
    lo = -32768, hi = 32767;
    break;
  default:
    unsupported("element type " + elemName(to));
  }
  const Elem precision = precisionOf(n), wide = precision == Elem::F64 ? Elem::F64 : Elem::F32; // holds any integer of 16 bits
  Val v = e(ops::round, e.div(e.cast(x, precision), e.cast(against(n, n.in(1), x, axis, block), precision)));
  v = e.cast(v, wide);
  if (n.has(2))
    v = e.add(v, e.cast(against(n, n.in(2), x, axis, block), wide));
  Val q = e.cast(e(ops::max, e(ops::min, v, e.like(hi, v)), e.like(lo, v)), to);
  if (n.graph.training() && x.isFloat() && q.value)
    n.graph.quantized[q.value] = {x, e(ops::and_, e(ops::ge, v, e.like(lo, v)), e(ops::le, v, e.like(hi, v)))};
  n.out(q);
}

const OnnxOp kOps[] = {{"DequantizeLinear", dequantize}, {"QuantizeLinear", quantize}};

} // namespace quantize_ops
} // namespace

llvm::ArrayRef<OnnxOp> zcc::quantizeOps() { return quantize_ops::kOps; }
