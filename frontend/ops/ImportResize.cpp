// Resize: every axis by itself, as a product with a matrix of weights that is known while compiling (or a gather).
#include "frontend/Importer.h"
#include "onnx.pb.h"
#include <cmath>

using namespace zcc;
using llvm::ArrayRef;

namespace {
namespace resize_ops {

/// How one axis is resized.
struct Axis {
  int64_t axis, in, out;
  double scale;
  double start = 0, end = 1; ///< region of interest, of tf_crop_and_resize
  bool isScaled = false;     ///< by a scale of the model, not to a size
};

struct Settings {
  std::string coordinates, mode, nearest;
  double cubic = -0.75, extrapolation = 0;
  bool excludeOutside = false, antialias = false;
  bool isFromPyTorch = false;
};

/// The input coordinate of output element `i`.
template <typename T> T coordinate(const Settings &s, const Axis &a, int64_t i) {
  const T x = T(i), in = T(a.in), scale = T(a.scale), half = T(0.5), start = T(a.start), end = T(a.end);
  const T out = scale * in; // the size wanted, before it was rounded down
  if (s.coordinates == "half_pixel")
    return (x + half) / scale - half;
  if (s.coordinates == "half_pixel_symmetric") {
    T adjustment = T(a.out) / out, offset = in / 2 * (1 - adjustment);
    return offset + (x + half) / scale - half;
  }
  if (s.coordinates == "pytorch_half_pixel")
    return a.out > 1 ? (x + half) / scale - half : 0;
  if (s.coordinates == "align_corners") {
    T last = (s.isFromPyTorch ? T(a.out) : out) - 1;
    return last != 0 ? x * (in - 1) / last : 0;
  }
  if (s.coordinates == "asymmetric")
    return x / scale;
  if (s.coordinates == "tf_half_pixel_for_nn")
    return (x + half) / scale;
  if (s.coordinates == "tf_crop_and_resize")
    return a.out > 1 ? start * (in - 1) + x * (end - start) * (in - 1) / (T(a.out) - 1) : half * (start + end) * (in - 1);
  unsupported("coordinate_transformation_mode '" + s.coordinates + "'");
}

/// The same of the nearest element: under a scale ONNX Runtime and PyTorch count in f32, where what should be a whole number
/// mostly is one. PyTorch multiplies by the inverse of the scale before the file's rounding, which one of few digits tells.
double nearestCoordinate(const Settings &s, const Axis &a, int64_t i) {
  if (!a.isScaled)
    return coordinate<double>(s, a, i);
  if (!s.isFromPyTorch || s.coordinates != "asymmetric" || s.nearest != "floor")
    return double(coordinate<float>(s, a, i));
  const double digits = std::round(a.scale * 1e4) / 1e4, scale = float(digits) == float(a.scale) ? digits : a.scale;
  return double(float(i) * float(1 / scale));
}

int64_t nearestIndex(const Settings &s, double x) {
  if (s.nearest == "floor")
    return int64_t(std::floor(x));
  if (s.nearest == "ceil")
    return int64_t(std::ceil(x));
  if (s.nearest == "round_prefer_ceil")
    return int64_t(std::floor(x + 0.5));
  if (s.nearest == "round_prefer_floor")
    return int64_t(std::ceil(x - 0.5));
  unsupported("nearest_mode '" + s.nearest + "'");
}

/// The interpolation kernel at distance t.
double kernel(const Settings &s, double t) {
  t = std::abs(t);
  if (s.mode == "linear")
    return std::max(0.0, 1 - t);
  double A = s.cubic;
  if (t <= 1)
    return ((A + 2) * t - (A + 3)) * t * t + 1;
  return t < 2 ? ((A * t - 5 * A) * t + 8 * A) * t - 4 * A : 0;
}

/// Weights of the input elements for one output element; what falls outside counts for the border
/// element, unless it is excluded.
std::vector<double> weights(const Settings &s, const Axis &a, double x) {
  std::vector<double> w(a.in, 0);
  double shrink = s.antialias ? std::min(1.0, a.scale) : 1, total = 0;
  double radius = (s.mode == "linear" ? 1 : 2) / shrink;
  for (int64_t p = int64_t(std::floor(x - radius)); p <= int64_t(std::ceil(x + radius)); ++p) {
    double k = kernel(s, (double(p) - x) * shrink);
    if (s.excludeOutside && (p < 0 || p >= a.in))
      continue;
    w[std::clamp(p, int64_t(0), a.in - 1)] += k;
    total += k;
  }
  if ((s.excludeOutside || s.antialias) && total != 0)
    for (double &v : w)
      v /= total;
  return w;
}

/// y[..., i, ...] = x[..., at[i], ...]; whole repetitions are a broadcast.
Val pick(Emitter &e, const Val &x, const Axis &a, ArrayRef<int64_t> at) {
  int64_t repeat = a.in ? a.out / a.in : 0;
  bool repeats = repeat * a.in == a.out;
  for (int64_t i = 0; repeats && i < a.out; ++i)
    repeats = at[i] == i / repeat;
  if (!repeats)
    return e.gather(x, Emitter::integers(at), a.axis);
  Dims wide(x.dims().begin(), x.dims().end()), dims = wide;
  wide.insert(wide.begin() + a.axis + 1, repeat);
  dims[a.axis] = a.out;
  return e.reshape(e.expand(e.unsqueeze(x, {a.axis + 1}), wide), dims);
}

Val resizeAxis(Emitter &e, const Val &x, const Settings &s, const Axis &a) {
  if (a.in < 1 || a.out < 0)
    invalid("an axis of " + llvm::Twine(a.in) + " elements");
  checkTableSize(double(a.out) * double(s.mode == "nearest" ? 1 : a.in));
  std::vector<double> at(a.out), outside(a.out, 0);
  bool extrapolates = s.coordinates == "tf_crop_and_resize";
  for (int64_t i = 0; i < a.out; ++i) {
    at[i] = s.mode == "nearest" ? nearestCoordinate(s, a, i) : coordinate<double>(s, a, i);
    outside[i] = extrapolates && (at[i] < 0 || at[i] > double(a.in - 1));
  }
  Val y;
  if (s.mode == "nearest") {
    std::vector<int64_t> index;
    for (double p : at)
      index.push_back(std::clamp(nearestIndex(s, p), int64_t(0), a.in - 1));
    y = pick(e, x, a, index);
  } else {
    std::vector<double> matrix;
    for (double p : at) {
      auto w = weights(s, a, p);
      matrix.insert(matrix.end(), w.begin(), w.end());
    }
    Val m = Emitter::floats(matrix, Type(x.elem(), {a.out, a.in}));
    int64_t last = x.rank() - 1;
    if (a.axis == last - 1)
      y = e.matmul(m, x);
    else
      y = e.swapAxes(e.matmul(e.swapAxes(x, a.axis, last), e.transpose(m, {1, 0})), a.axis, last);
  }
  if (llvm::none_of(outside, [](double o) { return o != 0; }))
    return y;
  Dims d(x.rank(), 1);
  d[a.axis] = a.out;
  Val mask = e.cast(Emitter::floats(outside, Type(Elem::F32, d)), Elem::Bool);
  return e.select(mask, e.like(s.extrapolation, y), y);
}

/// The sizes wanted, after `keep_aspect_ratio_policy`.
void keepAspect(const std::string &policy, std::vector<Axis> &axes) {
  if (policy == "stretch" || axes.empty())
    return;
  double scale = axes[0].scale;
  for (const Axis &a : axes)
    scale = policy == "not_larger" ? std::min(scale, a.scale) : std::max(scale, a.scale);
  for (Axis &a : axes) {
    a.scale = scale;
    a.out = int64_t(std::floor(scale * double(a.in) + 0.5));
  }
}

/// In f32, as ONNX Runtime counts: 10 times 0.7 is 7.
int64_t scaledSize(const Axis &a) { return a.scale == 1 ? a.in : int64_t(std::floor(float(a.in) * float(a.scale))); }

void resize(NodeImport &n) {
  Val x = n.in(0);
  Settings s;
  bool old = n.opset < 11 || n.node.op_type() == "Upsample"; // divided by the scale and rounded down
  s.coordinates = n.s("coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
  s.mode = n.s("mode", "nearest");
  s.nearest = n.s("nearest_mode", old ? "floor" : "round_prefer_floor");
  s.cubic = n.f("cubic_coeff_a", -0.75);
  s.extrapolation = n.f("extrapolation_value", 0);
  s.excludeOutside = n.i("exclude_outside") != 0;
  s.antialias = n.i("antialias") != 0;
  // Its corners, as ONNX Runtime's, are the result's; those of ONNX's own tests the ones of the size before it was rounded down.
  s.isFromPyTorch = n.graph.file.isFromPyTorch();
  if (s.mode != "nearest" && s.mode != "linear" && s.mode != "cubic")
    unsupported("mode '" + s.mode + "'");
  if (s.mode != "nearest" && !x.isFloat())
    unsupported("mode '" + s.mode + "' of element type " + elemName(x.elem()));
  auto listed = n.ints("axes");
  Dims axes = listed.empty() ? allAxes(0, x.rank()) : Dims();
  for (int64_t a : listed)
    axes.push_back(normalAxis(a, x.rank()));
  std::vector<double> scales, roi;
  if (n.has(2) && n.in(2).count())
    scales = Emitter::asFloats(n.in(2), "scales");
  if (n.has(1) && n.in(1).count() && s.coordinates == "tf_crop_and_resize")
    roi = Emitter::asFloats(n.in(1), "regions");
  auto sizes = n.has(3) && n.in(3).count() ? Emitter::asInts(n.in(3), "sizes") : std::vector<int64_t>();
  std::string policy = n.s("keep_aspect_ratio_policy", "stretch");
  if ((sizes.empty() ? scales.size() : sizes.size()) != axes.size())
    invalid("one scale or size for each resized axis is needed");
  std::vector<Axis> plan;
  for (size_t i = 0; i < axes.size(); ++i) {
    Axis a{axes[i], x.dim(axes[i]), 0, 1};
    a.scale = sizes.empty() ? scales[i] : double(sizes[i]) / double(a.in);
    a.isScaled = sizes.empty();
    a.out = !sizes.empty() ? sizes[i] : scaledSize(a);
    if (roi.size() == 2 * axes.size()) {
      a.start = roi[i];
      a.end = roi[i + axes.size()];
    }
    plan.push_back(a);
  }
  if (!sizes.empty())
    keepAspect(policy, plan);
  for (const Axis &a : plan)
    if (a.out != a.in || a.scale != 1 || !roi.empty())
      x = resizeAxis(n.e, x, s, a);
  n.out(x);
}

const OnnxOp kOps[] = {{"Resize", resize}};

} // namespace resize_ops
} // namespace

ArrayRef<OnnxOp> zcc::resizeOps() { return resize_ops::kOps; }
