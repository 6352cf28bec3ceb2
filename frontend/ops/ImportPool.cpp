// Pooling by maximum, average and norm, and unpooling.
#include "frontend/onnx/SourceLoc.h"
#include "frontend/ops/Windows.h"
#include "ir/ops/Window.h"
#include <cmath>

using namespace zcc;
using llvm::ArrayRef;

namespace {
namespace pool_ops {

/// Where in the plane of an input of dims `x` a pooling's taps lie, the fastest axis the last or the first; -1: in the padding.
Val positionsOf(Emitter &e, const Windows &w, ArrayRef<int64_t> x, const Val &taps, bool isLastFastest) {
  const size_t axes = w.kernel.size();
  const double none = double(rules::noTap(taps.elem()));
  Val tap = e.cast(taps, Elem::I64), at;
  Val rest = tap;
  for (size_t a = axes; a-- > 0;) {
    Dims d(axes + 2, 1);
    d[a + 2] = taps.dim(int64_t(a) + 2);
    ArrayRef<int64_t> faster = isLastFastest ? x.drop_front(a + 3) : x.slice(2, a);
    Val first = e.add(e.mul(e.iota(d, int64_t(a) + 2), double(w.strides[a])), double(-w.lo[a]));
    Val within = e.mul(e(ops::mod, rest, e.like(double(w.kernel[a]), rest)), double(w.dilations[a]));
    Val along = e.mul(e.add(first, within), double(elementCount(faster)));
    at = at ? e.add(at, along) : along;
    rest = e.div(rest, e.like(double(w.kernel[a]), rest));
  }
  return e.select(e(ops::eq, tap, e.like(none, tap)), e.like(-1, tap), at);
}

void maxPool(NodeImport &n) {
  const bool isLastFastest = n.i("storage_order") == 0;
  Emitter &e = n.e;
  Val x = n.in(0);
  Windows w = Windows::from(n, x, n.ints("kernel_shape"));
  Attrs a = w.attrs();
  a.set("kernel", w.kernel);
  bool isWide = elemBytes(x.elem()) > 2; // every smaller integer is a float
  Val wide = x.isFloat() ? x : e.cast(x, isWide ? Elem::F64 : Elem::F32);
  Vals r = e.emitAll(ops::max_pool, {wide}, std::move(a));
  n.out(0, e.cast(r[0], x.elem()));
  if (!n.wants(1))
    return;
  // Ours counts within the window, ONNX's within the whole tensor.
  int64_t planes = x.dim(0) * x.dim(1);
  Dims d(x.rank(), 1);
  d[0] = x.dim(0);
  d[1] = x.dim(1);
  Val plane = e.reshape(e.iota({planes}, 0), d), at = positionsOf(e, w, x.dims(), r[1], isLastFastest);
  n.out(1, e.add(at, e.mul(plane, double(x.count() / std::max<int64_t>(1, planes)))));
}

/// How many input elements (and pads, if they count) each window covers, along one axis.
std::vector<double> coverage(const Windows &w, const Val &x, size_t a, bool countPad) {
  std::vector<double> r;
  int64_t extent = x.dim(int64_t(a) + 2), from = countPad ? -w.lo[a] : 0, to = extent + (countPad ? w.hi[a] : 0);
  checkTableSize(double(w.outputs(x, a)) * double(w.kernel[a]));
  for (int64_t o = 0; o < w.outputs(x, a); ++o) {
    int64_t count = 0;
    for (int64_t k = 0; k < w.kernel[a]; ++k) {
      int64_t at = o * w.strides[a] - w.lo[a] + k * w.dilations[a];
      count += at >= from && at < to;
    }
    r.push_back(double(count));
  }
  return r;
}

/// Sums of the windows: a depthwise convolution with ones where dilated, else an average times the
/// window's size.
Val windowSums(Emitter &e, const Windows &w, const Val &x) {
  Attrs a = w.attrs();
  int64_t channels = x.dim(1);
  if (llvm::any_of(w.dilations, [](int64_t d) { return d != 1; })) {
    Dims k{channels, 1};
    k.append(w.kernel.begin(), w.kernel.end());
    a.set("group", channels);
    return e.emit(ops::conv, {x, Emitter::full(1, Type(x.elem(), k))}, a);
  }
  a.erase("dilations");
  a.set("kernel", w.kernel);
  a.set("count_pad", int64_t(1));
  return e.mul(e.emit(ops::avg_pool, {x}, a), double(elementCount(w.kernel)));
}

/// PyTorch's divisor_override, which both exporters drop; the metadata of the default one has it:
/// avg_pool2d(input, kernel, strides, pads, ceil, count_include_pad, divisor_override).
std::optional<int64_t> divisorOverride(NodeImport &n) {
  int64_t divisor = 0;
  auto text = fxArgument(n.node, "aten.avg_pool", 6);
  if (!text || llvm::StringRef(*text).getAsInteger(10, divisor) || divisor == 0)
    return std::nullopt;
  return divisor;
}

void averagePool(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  Windows w = Windows::from(n, x, n.ints("kernel_shape"));
  bool countPad = n.i("count_include_pad") != 0;
  if (auto divisor = divisorOverride(n))
    return n.out(e.mul(windowSums(e, w, x), 1 / double(*divisor)));
  auto any = [](ArrayRef<int64_t> v, int64_t than) { return llvm::any_of(v, [=](int64_t i) { return i != than; }); };
  if (!any(w.dilations, 1) && !(countPad && any(w.ceiled, 0))) {
    Attrs a = w.attrs();
    a.erase("dilations");
    a.set("kernel", w.kernel);
    a.set("count_pad", int64_t(countPad));
    return n.out(e.emit(ops::avg_pool, {x}, a));
  }
  Val y = windowSums(e, w, x);
  for (size_t axis = 0; axis < w.kernel.size(); ++axis) {
    auto count = coverage(w, x, axis, countPad);
    Dims d(x.rank(), 1);
    d[axis + 2] = int64_t(count.size());
    y = e.div(y, Emitter::floats(count, Type(x.elem(), d)));
  }
  n.out(y);
}

Val rootOf(Emitter &e, const Val &sums, double order) {
  return rootOf(e, sums, [&](const Val &s) { return e(ops::pow, s, e.like(1 / order, s)); });
}

/// (sum |x|^p)^(1/p) over each window.
void lpPool(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  double p = double(n.i("p", 2));
  Windows w = Windows::from(n, x, n.ints("kernel_shape"));
  n.out(rootOf(e, windowSums(e, w, e(ops::pow, e(ops::abs, x), e.like(p, x))), p));
}

/// The axes behind samples and channels, of which there must be one.
Dims spatialAxes(const Val &x) {
  if (x.rank() < 3)
    invalid("pooling needs [N, C, spatial...], got " + x.type.str());
  return allAxes(2, x.rank());
}

template <const OpDef &Op> void global(NodeImport &n) {
  n.out(n.e.reduce(Op, n.in(0), spatialAxes(n.in(0)), Emitter::Keep::Axes));
}

void globalAverage(NodeImport &n) { n.out(n.e.mean(n.in(0), spatialAxes(n.in(0)))); }

void globalLp(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  double p = double(n.i("p", 2));
  n.out(rootOf(e, e.sum(e(ops::pow, e(ops::abs, x), e.like(p, x)), spatialAxes(x)), p));
}

/// Puts each value back to where MaxPool found it; the indices count within the whole (unpadded)
/// result of the pooling.
void maxUnpool(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0), at = e.cast(n.in(1), Elem::I64);
  auto kernel = n.ints("kernel_shape");
  if (x.rank() != int64_t(kernel.size()) + 2)
    invalid("a window of " + llvm::Twine(kernel.size()) + " axes over " + x.type.str());
  auto strides = windowInts(n, "strides", kernel.size(), 1, 1), pads = windowInts(n, "pads", 2 * kernel.size(), 0, -INT32_MAX);
  Dims d{x.dim(0), x.dim(1)};
  for (size_t a = 0; a < kernel.size(); ++a)
    d.push_back((x.dim(int64_t(a) + 2) - 1) * strides[a] - pads[a] - pads[a + kernel.size()] + kernel[a]);
  Dims want = d;
  if (auto given = n.intsOf(2, "output shapes")) {
    if (given->size() != d.size())
      invalid(llvm::Twine(given->size()) + " output dimensions for " + llvm::Twine(d.size()));
    want.assign(given->begin(), given->end());
  }
  Val flat = e.expand(e.like(0, x), {elementCount(d)});
  Val y = e.emit(ops::scatter_elements, {flat, e.reshape(at, {at.count()}), e.reshape(x, {x.count()})},
                 {{"axis", int64_t(0)}, {"reduce", std::string("none")}});
  y = e.reshape(y, d);
  Dims lo(d.size(), 0), hi(d.size(), 0);
  for (size_t a = 0; a < d.size(); ++a)
    hi[a] = want[a] - d[a];
  n.out(e.pad(y, lo, hi));
}

const OnnxOp kOps[] = {
    {"MaxPool", maxPool},
    {"AveragePool", averagePool},
    {"LpPool", lpPool},
    {"GlobalMaxPool", global<ops::reduce_max>},
    {"GlobalAveragePool", globalAverage},
    {"GlobalLpPool", globalLp},
    {"MaxUnpool", maxUnpool},
};

} // namespace pool_ops
} // namespace

ArrayRef<OnnxOp> zcc::poolOps() { return pool_ops::kOps; }
