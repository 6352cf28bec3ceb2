// Convolutions and what is made of them.
#include "frontend/ops/Windows.h"
#include "llvm/Support/MathExtras.h"

using namespace zcc;
using llvm::ArrayRef;

std::vector<int64_t> zcc::windowInts(NodeImport &n, const char *name, size_t count, int64_t otherwise, int64_t least) {
  auto v = n.ints(name);
  if (v.empty())
    v.assign(count, otherwise);
  if (v.size() != count)
    invalid("attribute '" + llvm::Twine(name) + "' needs " + llvm::Twine(count) + " values, it has " + llvm::Twine(v.size()));
  for (int64_t i : v) {
    if (least == 1 && i < 1)
      invalid("attribute '" + llvm::Twine(name) + "' must be positive");
    if (i < least || i > INT32_MAX)
      invalid("attribute '" + llvm::Twine(name) + "' is out of range: " + llvm::Twine(i));
  }
  return v;
}

void zcc::checkKernelShape(NodeImport &n, const Val &weight) {
  auto said = n.ints("kernel_shape");
  if (!said.empty() && llvm::ArrayRef(said) != weight.dims().drop_front(2))
    invalid("attribute 'kernel_shape' does not fit the weight, which is " + weight.type.str());
}

/// How much padding is found by itself.
static std::string autoPad(NodeImport &n) {
  return n.oneOf("auto_pad", {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"}, "NOTSET");
}

Windows Windows::from(NodeImport &n, const Val &x, ArrayRef<int64_t> kernelDims) {
  Windows w;
  w.kernel = kernelDims.vec();
  size_t rank = w.kernel.size();
  if (x.rank() != int64_t(rank) + 2)
    invalid("a window of " + llvm::Twine(rank) + " axes over " + x.type.str());
  if (llvm::any_of(w.kernel, [](int64_t k) { return k < 0 || k > INT32_MAX; }))
    invalid("attribute 'kernel_shape' is out of range");
  w.strides = windowInts(n, "strides", rank, 1, 1);
  w.dilations = windowInts(n, "dilations", rank, 1, 1);
  w.lo.assign(rank, 0);
  w.hi.assign(rank, 0);
  w.ceiled.assign(rank, 0);
  auto pads = n.ints("pads");
  if (pads.size() == 2 * rank)
    pads = windowInts(n, "pads", 2 * rank, 0, -INT32_MAX);
  const std::string automatic = autoPad(n);
  bool ceil = n.i("ceil_mode", 0) != 0;
  for (size_t a = 0; a < rank; ++a) {
    int64_t extent = x.dim(int64_t(a) + 2), reach = w.dilations[a] * (w.kernel[a] - 1) + 1;
    if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
      int64_t out = (extent + w.strides[a] - 1) / w.strides[a];
      int64_t total = std::max(int64_t(0), (out - 1) * w.strides[a] + reach - extent);
      w.lo[a] = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      w.hi[a] = total - w.lo[a];
    } else if (automatic == "NOTSET" && pads.size() == 2 * rank) {
      w.lo[a] = pads[a];
      w.hi[a] = pads[a + rank];
    } else if (automatic != "VALID" && !pads.empty() && pads.size() != 2 * rank) {
      invalid("attribute 'pads' needs two values for each spatial axis");
    }
    int64_t room = extent + w.lo[a] + w.hi[a] - reach;
    if (!ceil || room < 0 || room % w.strides[a] == 0)
      continue;
    int64_t more = w.strides[a] - room % w.strides[a]; // the last window must begin inside the input or its left pad
    if ((room + more) / w.strides[a] * w.strides[a] < extent + w.lo[a])
      w.ceiled[a] = more;
  }
  return w;
}

Attrs Windows::attrs() const {
  std::vector<int64_t> right = hi;
  for (size_t a = 0; a < right.size(); ++a)
    right[a] += ceiled[a];
  return {{"strides", strides}, {"pads_lo", lo}, {"pads_hi", right}, {"dilations", dilations}};
}

namespace {
namespace conv_ops {

/// The bias, absent if it is a constant of zeros: PyTorch's default exporter gives a Conv3d without
/// bias, unoptimised, zeros of the shape [C, 2], which nothing could be added to.
Val biasOf(const NodeImport &n) {
  Val bias = n.optional(2);
  const Tensor *t = bias && bias.known ? Emitter::tensorOf(bias) : nullptr; // other weights may be given to what is frozen
  return t && llvm::all_of(t->f, [](double v) { return v == 0; }) ? Val() : bias;
}

void conv(NodeImport &n) {
  Val x = n.in(0), w = n.in(1);
  if (w.rank() != x.rank() || x.rank() < 3)
    invalid("operands do not fit: " + x.type.str() + " and " + w.type.str());
  checkKernelShape(n, w);
  Attrs a = Windows::from(n, x, w.dims().drop_front(2)).attrs();
  a.set("group", n.i("group", 1));
  Vals operands{x, w};
  if (Val bias = biasOf(n))
    operands.push_back(bias);
  n.out(n.e.emit(ops::conv, operands, std::move(a)));
}

/// A vector per channel, with the axes that broadcast against [N, C, ...].
Val perChannel(Emitter &e, const Val &v, int64_t rank) {
  Dims d(rank, 1);
  d[1] = v.count();
  return e.reshape(v, d);
}

/// The gradient of a convolution whose input has the shape of this one's result.
void convTranspose(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0), w = n.in(1);
  if (w.rank() != x.rank() || x.rank() < 3)
    invalid("operands do not fit: " + x.type.str() + " and " + w.type.str());
  size_t rank = x.rank() - 2;
  checkKernelShape(n, w);
  auto strides = windowInts(n, "strides", rank, 1, 1), dilations = windowInts(n, "dilations", rank, 1, 1),
       more = windowInts(n, "output_padding", rank, 0, 0);
  auto pads = windowInts(n, "pads", 2 * rank, 0, -INT32_MAX), wanted = n.ints("output_shape");
  if (wanted.size() == rank + 2)
    wanted.erase(wanted.begin(), wanted.begin() + 2);
  if (!wanted.empty() && wanted.size() != rank)
    invalid("attribute 'output_shape' needs " + llvm::Twine(rank) + " values, it has " + llvm::Twine(wanted.size()));
  const std::string automatic = autoPad(n);
  int64_t group = n.i("group", 1);
  std::vector<int64_t> lo(rank, 0), hi(rank, 0), dims{x.dim(0), w.dim(1) * group};
  for (size_t a = 0; a < rank; ++a) {
    int64_t full = strides[a] * (x.dim(a + 2) - 1) + more[a] + (w.dim(a + 2) - 1) * dilations[a] + 1;
    bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
    if (!wanted.empty() || same) {
      int64_t out = wanted.empty() ? x.dim(a + 2) * strides[a] : wanted[a], total = full - out;
      int64_t half = llvm::divideFloorSigned(total, 2);
      lo[a] = automatic == "SAME_UPPER" ? half : total - half;
      hi[a] = total - lo[a];
    } else {
      lo[a] = pads[a];
      hi[a] = pads[a + rank];
    }
    dims.push_back(full - lo[a] - hi[a]);
    if (more[a] >= strides[a]) // a convolution would have more results than x: that much less is cropped
      hi[a] -= more[a];
  }
  // Padding below zero adds rows that no input reaches: computed without it, then padded.
  Dims addLo(rank + 2, 0), addHi(rank + 2, 0);
  for (size_t a = 0; a < rank; ++a) {
    addLo[a + 2] = std::max(int64_t(0), -lo[a]);
    addHi[a + 2] = std::max(int64_t(0), -hi[a]);
    dims[a + 2] -= addLo[a + 2] + addHi[a + 2];
    lo[a] += addLo[a + 2];
    hi[a] += addHi[a + 2];
  }
  Val y = e.emit(
      ops::conv_grad_input, {x, w},
      {{"dims", dims}, {"strides", strides}, {"pads_lo", lo}, {"pads_hi", hi}, {"dilations", dilations}, {"group", group}});
  y = e.pad(y, addLo, addHi);
  Val bias = biasOf(n);
  n.out(bias ? e.add(y, perChannel(e, bias, y.rank())) : y);
}

/// Depthwise, over past positions only; what came before the first is the state.
void causalConvWithState(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0), w = n.in(1);
  int64_t k = w.dim(2), channels = x.dim(1);
  Val past = n.has(3) ? n.in(3) : e.expand(e.like(0, x), {x.dim(0), channels, k - 1});
  Val all = k > 1 ? e.concat({past, x}, 2) : x;
  Vals operands{all, w};
  if (Val bias = biasOf(n))
    operands.push_back(bias);
  Val y = e.emit(ops::conv, operands, {{"group", channels}});
  std::string activation = n.s("activation", "none");
  if (activation == "silu" || activation == "swish")
    y = e(ops::silu, y);
  else if (activation != "none")
    unsupported("activation '" + activation + "'");
  n.out(0, y);
  n.out(1, e.slice(all, 2, all.dim(2) - (k - 1), all.dim(2)));
}

/// Sums the columns of blocks back into an image: the gradient of taking the blocks out, which is a
/// convolution with an identity kernel.
void col2Im(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  auto image = Emitter::asInts(n.in(1), "image sizes"), block = Emitter::asInts(n.in(2), "block sizes");
  if (llvm::any_of(block, [](int64_t b) { return b < 1; }))
    invalid("a block without elements");
  double elements = 1;
  for (int64_t b : block)
    elements *= double(b);
  checkTableSize(elements * elements);
  int64_t taps = elementCount(block), channels = x.dim(1) / taps;
  std::vector<int64_t> dims{x.dim(0) * channels, 1};
  dims.insert(dims.end(), image.begin(), image.end());
  Val whole;
  whole.type = Type(x.elem(), dims);
  Windows w = Windows::from(n, whole, block);
  Dims columns{x.dim(0) * channels, taps}, kernel{taps, 1};
  for (size_t a = 0; a < block.size(); ++a)
    columns.push_back(w.outputs(whole, a));
  kernel.append(block.begin(), block.end());
  std::vector<double> identity(taps * taps, 0);
  for (int64_t t = 0; t < taps; ++t)
    identity[t * taps + t] = 1;
  Attrs a = w.attrs();
  a.set("dims", dims);
  Val y = e.emit(ops::conv_grad_input, {e.reshape(x, columns), Emitter::floats(identity, Type(x.elem(), kernel))}, a);
  Dims out{x.dim(0), channels};
  out.append(image.begin(), image.end());
  n.out(e.reshape(y, out));
}

const OnnxOp kOps[] = {
    {"Conv", conv},
    {"ConvTranspose", convTranspose},
    {"CausalConvWithState", causalConvWithState},
    {"Col2Im", col2Im},
};

} // namespace conv_ops
} // namespace

ArrayRef<OnnxOp> zcc::convOps() { return conv_ops::kOps; }
