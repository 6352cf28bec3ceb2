// Sampling images at computed positions: GridSample, AffineGrid, DeformConv.
#include "frontend/ops/Windows.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

using namespace zcc;
using llvm::ArrayRef;

namespace {
namespace sample_ops {

enum class Border { Zeros, Edge, Reflect };

struct Sampler {
  Emitter &e;
  Val x; ///< [N, C, spatial...]
  Border border = Border::Zeros;
  bool alignCorners = false;

  size_t rank() const { return size_t(x.rank()) - 2; }
  int64_t size(size_t a) const { return x.dim(int64_t(a) + 2); }

  /// No gradient passes at either end, as in PyTorch. What is not a number comes to the lower end: as an index it is one.
  Val clamp(const Val &v, double lo, double hi) const {
    const Val low = e.like(lo, v), high = e.like(hi, v);
    return e.select(e(ops::ge, v, high), high, e.select(e(ops::gt, v, low), v, low));
  }

  /// Mirrors coordinates at the borders of axis `a`.
  Val reflect(const Val &v, size_t a) const {
    double lo = alignCorners ? 0 : -0.5, hi = alignCorners ? double(size(a) - 1) : double(size(a)) - 0.5;
    double span = hi - lo;
    if (span <= 0)
      return e.mul(v, 0);
    Val d = e(ops::abs, e.add(v, -lo)), flips = e(ops::floor, e.mul(d, 1 / span));
    Val extra = e.sub(d, e.mul(flips, span));
    Val even = e(ops::eq, e.mul(e(ops::floor, e.mul(flips, 0.5)), 2), flips);
    return e.select(even, e.add(extra, lo), e.sub(e.like(hi, extra), extra));
  }

  /// Values at whole coordinates, one float [N, P] per axis: [N, C, P]; 0 outside, where that is
  /// the border.
  Val at(ArrayRef<Val> whole) const {
    int64_t N = x.dim(0), C = x.dim(1), P = whole[0].dim(1);
    Val flat, inside;
    for (size_t a = 0; a < rank(); ++a) {
      const Val &p = whole[a];
      if (border == Border::Zeros) {
        Val in = e(ops::and_, e(ops::ge, p, e.like(0, p)), e(ops::le, p, e.like(double(size(a) - 1), p)));
        inside = inside ? e(ops::and_, inside, in) : in;
      }
      Val i = e.cast(clamp(p, 0, double(size(a) - 1)), Elem::I64);
      flat = flat ? e.add(e.mul(flat, double(size(a))), i) : i;
    }
    Val index = e.expand(e.reshape(flat, {N, 1, P}), {N, C, P});
    Val plane = e.reshape(x, {N, C, x.count() / (N * C)});
    Val v = e.emit(ops::gather_elements, {plane, index}, {{"axis", int64_t(2)}});
    return inside ? e.select(e.reshape(inside, {N, 1, P}), v, e.like(0, v)) : v;
  }

  /// Brings coordinates into the image, for the borders that do so.
  Val settled(Val p, size_t a) const {
    if (border == Border::Reflect)
      p = reflect(p, a);
    return border == Border::Zeros ? p : clamp(p, 0, double(size(a) - 1));
  }

  Val nearest(ArrayRef<Val> points) const {
    Vals whole;
    for (size_t a = 0; a < rank(); ++a)
      whole.push_back(e(ops::round, settled(points[a], a)));
    return at(whole);
  }

  Val linear(ArrayRef<Val> points) const {
    Vals low, fraction;
    for (size_t a = 0; a < rank(); ++a) {
      Val p = settled(points[a], a);
      low.push_back(e(ops::floor, p));
      fraction.push_back(e.sub(p, low.back()));
    }
    Val sum;
    for (size_t corner = 0; corner < size_t(1) << rank(); ++corner) {
      Vals whole;
      Val weight;
      for (size_t a = 0; a < rank(); ++a) {
        bool high = corner >> a & 1;
        whole.push_back(e.add(low[a], high ? 1.0 : 0.0));
        Val f = high ? fraction[a] : e.sub(e.like(1, fraction[a]), fraction[a]);
        weight = weight ? e.mul(weight, f) : f;
      }
      Val term = e.mul(at(whole), e.unsqueeze(e.cast(weight, x.elem()), {1}));
      sum = sum ? e.add(sum, term) : term;
    }
    return sum;
  }

  Val cubic(ArrayRef<Val> points) const {
    Vals low;
    std::vector<Vals> weights;
    for (size_t a = 0; a < rank(); ++a) {
      low.push_back(e(ops::floor, points[a]));
      Val t = e.sub(points[a], low[a]), one = e.like(1, t);
      weights.push_back({outer(e.add(t, 1)), inner(t), inner(e.sub(one, t)), outer(e.sub(e.like(2, t), t))});
    }
    Val sum;
    size_t taps = size_t(1) << (2 * rank());
    for (size_t tap = 0; tap < taps; ++tap) {
      Vals whole;
      Val weight;
      for (size_t a = 0; a < rank(); ++a) {
        size_t k = tap >> (2 * a) & 3;
        Val p = e.add(low[a], double(k) - 1);
        whole.push_back(border == Border::Zeros ? p : settled(p, a));
        weight = weight ? e.mul(weight, weights[a][k]) : weights[a][k];
      }
      Val term = e.mul(at(whole), e.unsqueeze(e.cast(weight, x.elem()), {1}));
      sum = sum ? e.add(sum, term) : term;
    }
    return sum;
  }

private:
  static constexpr double kA = -0.75;
  Val inner(const Val &t) const { // |t| <= 1
    return e.add(e.mul(e.mul(t, t), e.add(e.mul(t, kA + 2), -(kA + 3))), 1);
  }
  Val outer(const Val &t) const { // 1 < |t| < 2
    Val q = e.add(e.mul(t, kA), -5 * kA);
    return e.add(e.mul(e.add(e.mul(q, t), 8 * kA), t), -4 * kA);
  }
};

void gridSample(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0), grid = n.in(1);
  std::string mode = n.s("mode", "linear"), padding = n.oneOf("padding_mode", {"zeros", "border", "reflection"}, "zeros");
  Sampler s{e, x};
  s.alignCorners = n.i("align_corners") != 0;
  s.border = padding == "border" ? Border::Edge : padding == "reflection" ? Border::Reflect : Border::Zeros;
  if (x.rank() < 3 || x.count() == 0)
    invalid("cannot sample " + x.type.str());
  size_t rank = s.rank();
  if (rank > 3)
    unsupported(llvm::Twine(rank) + " spatial axes");
  if (grid.rank() != int64_t(rank) + 2 || grid.dim(-1) != int64_t(rank))
    invalid("the grid " + grid.type.str() + " is not for " + x.type.str());
  int64_t N = x.dim(0), P = grid.count() / (N * int64_t(rank));
  Val flat = e.reshape(grid, {N, P, int64_t(rank)});
  Vals points;
  for (size_t a = 0; a < rank; ++a) { // the last coordinate is the first axis
    int64_t c = int64_t(rank - 1 - a);
    Val g = e.squeeze(e.slice(flat, 2, c, c + 1), {2});
    double size = double(s.size(a));
    points.push_back(s.alignCorners ? e.mul(e.add(g, 1), (size - 1) / 2) : e.mul(e.add(e.mul(e.add(g, 1), size), -1), 0.5));
  }
  Val y;
  if (mode == "linear" || mode == "bilinear")
    y = s.linear(points);
  else if (mode == "nearest")
    y = s.nearest(points);
  else if (mode == "cubic" || mode == "bicubic")
    y = s.cubic(points);
  else
    unsupported("mode '" + mode + "'");
  Dims d{N, x.dim(1)};
  d.append(grid.dims().begin() + 1, grid.dims().end() - 1);
  n.out(e.reshape(y, d));
}

/// Coordinates -1..1 of each output element under an affine map.
void affineGrid(NodeImport &n) {
  Emitter &e = n.e;
  Val theta = n.in(0);
  auto size = Emitter::asInts(n.in(1), "sizes");
  if (size.size() < 3)
    invalid("a size of three axes at least is needed");
  bool align = n.i("align_corners") != 0;
  size_t rank = size.size() - 2;
  int64_t count = elementCount(ArrayRef(size).drop_front(2));
  checkTableSize(double(count) * double(rank + 1));
  std::vector<double> base;
  for (int64_t p = 0; p < count; ++p) {
    std::vector<double> point(rank);
    int64_t rest = p;
    for (size_t a = rank; a-- > 0;) {
      double extent = double(size[a + 2]), i = double(rest % size[a + 2]);
      rest /= size[a + 2];
      point[rank - 1 - a] = align ? (extent > 1 ? -1 + 2 * i / (extent - 1) : 0) : (2 * i + 1) / extent - 1;
    }
    base.insert(base.end(), point.begin(), point.end());
    base.push_back(1);
  }
  Val points = Emitter::floats(base, Type(theta.elem(), {count, int64_t(rank) + 1}));
  Val y = e.matmul(points, e.swapAxes(theta, 1, 2));
  Dims d{size[0]};
  d.append(size.begin() + 2, size.end());
  d.push_back(int64_t(rank));
  n.out(e.reshape(y, d));
}

/// Samples the input for every tap of the kernel at its moved position, then one product with the
/// weight.
void deformConv(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0), w = n.in(1), offset = n.in(2);
  if (x.rank() != 4)
    unsupported(llvm::Twine(x.rank() - 2) + " spatial axes");
  if (w.rank() != 4)
    invalid("operands do not fit: " + x.type.str() + " and " + w.type.str());
  checkKernelShape(n, w);
  auto strides = windowInts(n, "strides", 2, 1, 1), dilations = windowInts(n, "dilations", 2, 1, 1),
       pads = windowInts(n, "pads", 4, 0, -INT32_MAX);
  int64_t group = n.i("group", 1), offsetGroups = n.i("offset_group", 1);
  if (group < 1 || offsetGroups < 1 || x.count() == 0)
    invalid("cannot sample " + x.type.str() + " in groups");
  int64_t N = x.dim(0), C = x.dim(1), kh = w.dim(2), kw = w.dim(3), K = kh * kw, H = offset.dim(2), W = offset.dim(3), P = H * W,
          each = C / offsetGroups;
  Val moves = e.reshape(offset, {N, offsetGroups, K, 2, P});
  Val mask = n.has(4) ? e.reshape(n.in(4), {N, offsetGroups, K, 1, P}) : Val();
  Vals columns; // [N, each, 1, P] per offset group and tap
  for (int64_t g = 0; g < offsetGroups; ++g) {
    Sampler s{e, e.slice(x, 1, g * each, (g + 1) * each)};
    Vals taps;
    for (int64_t k = 0; k < K; ++k) {
      Vals points;
      for (int64_t a = 0; a < 2; ++a) {
        std::vector<double> at;
        for (int64_t p = 0; p < P; ++p)
          at.push_back(double((a ? p % W : p / W) * strides[a] - pads[a] + (a ? k % kw : k / kw) * dilations[a]));
        Val move = e.slice(e.slice(e.slice(moves, 1, g, g + 1), 2, k, k + 1), 3, a, a + 1);
        points.push_back(e.add(e.reshape(move, {N, P}), Emitter::floats(at, Type(x.elem(), {1, P}))));
      }
      Val v = s.linear(points);
      if (mask)
        v = e.mul(v, e.reshape(e.slice(e.slice(mask, 1, g, g + 1), 2, k, k + 1), {N, 1, P}));
      taps.push_back(e.reshape(v, {N, each, 1, P}));
    }
    columns.push_back(e.concat(taps, 2));
  }
  int64_t M = w.dim(0);
  Val cols = e.reshape(e.concat(columns, 1), {N, group, C / group * K, P});
  Val y = e.reshape(e.matmul(e.reshape(w, {group, M / group, C / group * K}), cols), {N, M, H, W});
  n.out(n.has(3) ? e.add(y, e.reshape(n.in(3), {M, 1, 1})) : y);
}

const OnnxOp kOps[] = {{"GridSample", gridSample}, {"AffineGrid", affineGrid}, {"DeformConv", deformConv}};

} // namespace sample_ops
} // namespace

ArrayRef<OnnxOp> zcc::sampleOps() { return sample_ops::kOps; }
