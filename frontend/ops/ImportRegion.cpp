// Regions of images: RoiAlign, MaxRoiPool; and the choice of boxes, where all of it is known while compiling.
#include "frontend/Importer.h"
#include <cmath>

using namespace zcc;
using llvm::ArrayRef;

namespace {
namespace region_ops {

/// Column `i` of a matrix [R, n]: [R].
Val column(Emitter &e, const Val &m, int64_t i) { return e.squeeze(e.slice(m, 1, i, i + 1), {1}); }

/// One axis of the sample points of every region: the two neighbours of each point, their weights, and which
/// points lie in the image. [R, P], P = output * samples.
struct Points {
  Val low, high, weightLow, weightHigh, inside;
};

Points pointsOf(Emitter &e, const Val &start, const Val &bin, int64_t output, int64_t samples, int64_t size) {
  checkTableSize(double(output) * double(samples));
  int64_t R = start.count(), P = output * samples;
  std::vector<double> at;
  for (int64_t o = 0; o < output; ++o)
    for (int64_t i = 0; i < samples; ++i)
      at.push_back(double(o) + (double(i) + 0.5) / double(samples));
  Val steps = Emitter::floats(at, Type(start.elem(), {1, P}));
  Val p = e.add(e.reshape(start, {R, 1}), e.mul(e.reshape(bin, {R, 1}), steps));
  double last = double(size - 1);
  Points r;
  r.inside = e(ops::and_, e(ops::ge, p, e.like(-1, p)), e(ops::le, p, e.like(double(size), p)));
  p = e(ops::min, e(ops::max, p, e.like(0, p)), e.like(last, p));
  Val low = e(ops::floor, p);
  r.weightHigh = e.sub(p, low);
  r.weightLow = e.sub(e.like(1, p), r.weightHigh);
  r.low = e.cast(low, Elem::I64);
  r.high = e(ops::min, e.add(r.low, 1.0), e.like(last, r.low));
  return r;
}

/// Bilinear samples on a grid in each cell of a region, then their mean or their maximum. The maximum is taken over
/// the weighted neighbours, as the operator's reference does.
void roiAlign(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0), rois = n.in(1), batch = e.cast(n.in(2), Elem::I64);
  bool halfPixel = n.oneOf("coordinate_transformation_mode", {"half_pixel", "output_half_pixel"},
                           n.opset < 16 ? "output_half_pixel" : "half_pixel") == "half_pixel";
  bool isMax = n.oneOf("mode", {"avg", "max"}, "avg") == "max";
  int64_t H = n.i("output_height", 1), W = n.i("output_width", 1), ratio = n.i("sampling_ratio", 0);
  double scale = n.f("spatial_scale", 1);
  if (ratio < 1)
    unsupported("sampling_ratio 0, whose number of samples follows from the regions");
  if (x.rank() != 4 || rois.rank() != 2 || rois.dim(1) != 4 || H < 1 || W < 1)
    invalid("regions " + rois.type.str() + " of " + x.type.str());
  int64_t N = x.dim(0), C = x.dim(1), R = rois.dim(0), h = x.dim(2), w = x.dim(3);
  rois = n.graph.training() ? e(ops::stop_gradient, rois) : rois; // torchvision passes none to them
  Val scaled = e.add(e.mul(rois, scale), halfPixel ? -0.5 : 0.0);
  auto axis = [&](int64_t from, int64_t to, int64_t output, int64_t size) {
    Val start = column(e, scaled, from), extent = e.sub(column(e, scaled, to), start);
    if (!halfPixel) // malformed regions are a pixel wide
      extent = e(ops::max, extent, e.like(1, extent));
    return pointsOf(e, start, e.mul(extent, 1 / double(output)), output, ratio, size);
  };
  Points y = axis(1, 3, H, h), z = axis(0, 2, W, w);
  int64_t P = H * ratio, Q = W * ratio;
  auto rows = [&](const Val &v) { return e.reshape(v, {R, P, 1}); };
  auto columns = [&](const Val &v) { return e.reshape(v, {R, 1, Q}); };
  n.graph.noteRange(batch, 0, N - 1);
  // Pixels as rows of channels, so that one gather takes all channels of a point.
  Val pixels = e.reshape(e.transpose(x, {0, 2, 3, 1}), {N * h * w, C});
  Val base = e.mul(e.reshape(batch, {R, 1, 1}), double(h * w));
  Val result;
  for (int corner = 0; corner < 4; ++corner) {
    bool down = corner & 2, right = corner & 1;
    Val at = e.add(e.add(base, e.mul(rows(down ? y.high : y.low), double(w))), columns(right ? z.high : z.low));
    Val weight = e.mul(rows(down ? y.weightHigh : y.weightLow), columns(right ? z.weightHigh : z.weightLow));
    Val term = e.mul(e.gather(pixels, at, 0), e.unsqueeze(weight, {3})); // [R, P, Q, C]
    result = !result ? term : e(isMax ? ops::max : ops::add, result, term);
  }
  Val inside = e.unsqueeze(e(ops::and_, rows(y.inside), columns(z.inside)), {3});
  result = e.select(inside, result, e.like(0, result));
  result = e.reshape(result, {R, H, ratio, W, ratio, C});
  result =
      isMax ? e.reduce(ops::reduce_max, result, {2, 4}, Emitter::Keep::Nothing) : e.mean(result, {2, 4}, Emitter::Keep::Nothing);
  n.out(e.transpose(result, {0, 3, 1, 2}));
}

/// The largest element of each cell; where regions are constant, cells are slices.
void maxRoiPool(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  auto rois = Emitter::asFloats(n.in(1), "regions");
  auto shape = n.ints("pooled_shape");
  double scale = n.f("spatial_scale", 1);
  if (x.rank() != 4 || shape.size() != 2 || n.in(1).rank() != 2 || n.in(1).dim(1) != 5)
    invalid("regions " + n.in(1).type.str() + " of " + x.type.str());
  int64_t R = n.in(1).dim(0), extents[] = {x.dim(2), x.dim(3)};
  checkTableSize(double(R) * double(shape[0]) * double(shape[1]) * 256);
  Vals cells;
  for (int64_t r = 0; r < R; ++r) {
    int64_t batch = int64_t(rois[r * 5]);
    if (batch < 0 || batch >= x.dim(0))
      invalid("region " + llvm::Twine(r) + " is of image " + llvm::Twine(batch));
    int64_t start[2];
    double bin[2];
    for (int a = 0; a < 2; ++a) {
      start[a] = std::lround(rois[r * 5 + 2 - a] * scale);
      int64_t end = std::lround(rois[r * 5 + 4 - a] * scale);
      bin[a] = double(std::max<int64_t>(end - start[a] + 1, 1)) / double(shape[a]);
    }
    Val image = e.slice(x, 0, batch, batch + 1);
    for (int64_t cell = 0; cell < shape[0] * shape[1]; ++cell) {
      Val v = image;
      int64_t place[] = {cell / shape[1], cell % shape[1]};
      for (int a = 0; a < 2 && v; ++a) {
        auto clamped = [&](double edge) { return std::clamp(int64_t(edge) + start[a], int64_t(0), extents[a]); };
        int64_t from = clamped(std::floor(double(place[a]) * bin[a])), to = clamped(std::ceil(double(place[a] + 1) * bin[a]));
        v = from < to ? e.slice(v, a + 2, from, to) : Val();
      }
      Val top = v ? e.reduce(ops::reduce_max, v, {2, 3}, Emitter::Keep::Axes) : e.expand(e.like(0, x), {1, x.dim(1), 1, 1});
      cells.push_back(top);
    }
  }
  if (cells.empty())
    return n.out(e.expand(e.like(0, x), {0, x.dim(1), shape[0], shape[1]}));
  Val all = e.reshape(e.concat(cells, 0), {R, shape[0], shape[1], x.dim(1)});
  n.out(e.transpose(all, {0, 3, 1, 2}));
}

// ---- choosing boxes

struct Box {
  double low[2], high[2];
  double area() const { return (high[0] - low[0]) * (high[1] - low[1]); }
};

double overlap(const Box &a, const Box &b) {
  double common = 1;
  for (int i = 0; i < 2; ++i)
    common *= std::max(0.0, std::min(a.high[i], b.high[i]) - std::max(a.low[i], b.low[i]));
  double together = a.area() + b.area() - common;
  return together > 0 ? common / together : 0;
}

/// Greedily the best boxes of each class that do not overlap a better one; how many there are follows from the
/// numbers, so they must be known.
void nonMaxSuppression(NodeImport &n) {
  auto boxes = Emitter::asFloats(n.in(0), "boxes"), scores = Emitter::asFloats(n.in(1), "scores");
  int64_t most = n.has(2) ? Emitter::asInt(n.in(2), "numbers of boxes") : 0;
  double allowed = n.has(3) ? Emitter::asFloat(n.in(3), "thresholds") : 0;
  bool limited = n.has(4);
  double least = limited ? Emitter::asFloat(n.in(4), "thresholds") : 0;
  bool centred = n.i("center_point_box", 0) != 0;
  auto at = n.in(0).dims(), of = n.in(1).dims();
  if (at.size() != 3 || of.size() != 3 || at[0] != of[0] || at[1] != of[2] || at[2] != 4)
    invalid("boxes " + n.in(0).type.str() + " with scores " + n.in(1).type.str());
  int64_t B = of[0], C = of[1], K = of[2];
  auto boxAt = [&](int64_t b, int64_t k) {
    const double *v = &boxes[(b * K + k) * 4];
    Box r;
    for (int i = 0; i < 2; ++i) {
      r.low[i] = centred ? v[i] - v[i + 2] / 2 : std::min(v[i], v[i + 2]);
      r.high[i] = centred ? v[i] + v[i + 2] / 2 : std::max(v[i], v[i + 2]);
    }
    return r;
  };
  std::vector<int64_t> chosen;
  for (int64_t b = 0; b < B; ++b)
    for (int64_t c = 0; c < C; ++c) {
      const double *score = &scores[(b * C + c) * K];
      std::vector<int64_t> order(K), kept;
      for (int64_t k = 0; k < K; ++k)
        order[k] = k;
      llvm::stable_sort(order, [&](int64_t i, int64_t j) { return score[i] > score[j]; });
      for (int64_t k : order) {
        if (int64_t(kept.size()) >= most || (limited && !(score[k] > least)))
          break;
        if (llvm::any_of(kept, [&](int64_t o) { return overlap(boxAt(b, k), boxAt(b, o)) > allowed; }))
          continue;
        kept.push_back(k);
        chosen.insert(chosen.end(), {b, c, k});
      }
    }
  int64_t count = int64_t(chosen.size()) / 3;
  n.out(Emitter::integers(chosen, {count, 3}));
}

const OnnxOp kOps[] = {
    {"RoiAlign", roiAlign},
    {"MaxRoiPool", maxRoiPool},
    {"NonMaxSuppression", nonMaxSuppression},
};

} // namespace region_ops
} // namespace

ArrayRef<OnnxOp> zcc::regionOps() { return region_ops::kOps; }
