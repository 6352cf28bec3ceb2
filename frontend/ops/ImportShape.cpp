// Shape operators: constants, views, concatenation, splitting, padding.
#include "frontend/Importer.h"
#include "onnx.pb.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace zcc;
using llvm::ArrayRef;

namespace {
namespace shape_ops {

// ---- constants

void constant(NodeImport &n) {
  if (auto *t = n.tensor("value"))
    return n.out(n.graph.valueOf(*t));
  if (n.hasAttr("value_float"))
    return n.out(Emitter::number(n.f("value_float"), Elem::F32));
  if (n.hasAttr("value_int"))
    return n.out(Emitter::integers({n.i("value_int")}, {}));
  if (n.hasAttr("value_ints"))
    return n.out(Emitter::integers(n.ints("value_ints")));
  if (n.hasAttr("value_floats")) {
    auto v = n.floats("value_floats");
    return n.out(Emitter::floats(v, Type(Elem::F32, {int64_t(v.size())})));
  }
}

void constantOfShape(NodeImport &n) {
  auto dims = Emitter::asInts(n.in(0), "dimensions");
  if (auto *t = n.tensor("value"))
    return n.out(n.e.expand(n.e.reshape(n.graph.valueOf(*t), {}), dims));
  n.out(n.e.expand(Emitter::number(0, Elem::F32), dims));
}

void shape(NodeImport &n) {
  auto dims = n.in(0).dims();
  int64_t rank = n.in(0).rank();
  auto clamp = [&](int64_t i) { return std::clamp(i < 0 ? i + rank : i, int64_t(0), rank); };
  int64_t start = clamp(n.i("start", 0)), end = clamp(n.i("end", rank));
  n.out(Emitter::integers(dims.slice(start, std::max(start, end) - start)));
}

void size(NodeImport &n) { n.out(Emitter::integers({n.in(0).count()}, {})); }

void range(NodeImport &n) {
  n.ignore({"stash_type"}); // it is computed in double
  Elem elem = n.in(0).elem();
  if (zcc::isFloat(elem)) {
    double start = Emitter::asFloat(n.in(0), "bounds"), limit = Emitter::asFloat(n.in(1), "bounds"),
           delta = Emitter::asFloat(n.in(2), "bounds");
    if (delta == 0)
      invalid("a step of 0");
    double count = std::max(0.0, std::ceil((limit - start) / delta));
    checkTableSize(count);
    std::vector<double> v;
    for (int64_t i = 0; i < int64_t(count); ++i)
      v.push_back(start + double(i) * delta);
    return n.out(Emitter::floats(v, Type(elem, {int64_t(v.size())})));
  }
  int64_t start = Emitter::asInt(n.in(0), "bounds"), limit = Emitter::asInt(n.in(1), "bounds"),
          delta = Emitter::asInt(n.in(2), "bounds");
  if (delta == 0)
    invalid("a step of 0");
  checkTableSize(std::abs(double(limit) - double(start)) / std::abs(double(delta)));
  std::vector<int64_t> v;
  for (int64_t i = start; delta > 0 ? i < limit : i > limit;) {
    v.push_back(i);
    if (llvm::AddOverflow(i, delta, i))
      break;
  }
  n.out(Emitter::integers(v, {-1}, elem));
}

/// Diagonal `k` of a matrix; beyond its corners all are alike.
int64_t diagonal(int64_t k, ArrayRef<int64_t> matrix) { return std::clamp(k, -matrix[0] - 1, matrix[1] + 1); }

void eyeLike(NodeImport &n) {
  Val x = n.in(0);
  if (x.rank() != 2)
    invalid("a matrix is needed, got " + x.type.str());
  Elem elem = n.elemOf("dtype", x.elem());
  Emitter &e = n.e;
  Val row = e.iota(x.dims(), 0), column = e.iota(x.dims(), 1);
  n.out(e.cast(e(ops::eq, column, e.add(row, double(diagonal(n.i("k"), x.dims())))), elem));
}

// ---- views

void reshape(NodeImport &n) {
  Val x = n.in(0);
  auto want = Emitter::asInts(n.in(1), "dimensions");
  bool zeroIsZero = n.i("allowzero") != 0;
  Dims d;
  int64_t open = -1, rest = 1;
  for (size_t i = 0; i < want.size(); ++i) {
    int64_t w = want[i];
    if (w == 0 && !zeroIsZero) {
      if (int64_t(i) >= x.rank())
        invalid("dimension " + llvm::Twine(i) + " is to be copied, but the operand has " + llvm::Twine(x.rank()));
      w = x.dim(i);
    }
    if (w == -1) {
      if (open >= 0)
        invalid("two dimensions are -1");
      open = int64_t(i);
    } else if (w < 0 || llvm::MulOverflow(rest, w, rest)) {
      invalid("dimension " + llvm::Twine(i) + " cannot be " + llvm::Twine(w));
    }
    d.push_back(w);
  }
  if (open >= 0) {
    if (rest == 0 || x.count() % rest)
      invalid("cannot reshape " + x.type.str() + " to [" + llvm::Twine(rest) + " x ?]");
    d[open] = x.count() / rest;
  }
  n.out(n.e.reshape(x, d));
}

void flatten(NodeImport &n) {
  Val x = n.in(0);
  int64_t axis = n.i("axis", 1);
  axis = axis < 0 ? axis + x.rank() : axis;
  if (axis < 0 || axis > x.rank())
    invalid("axis " + llvm::Twine(axis) + " of " + x.type.str());
  n.out(n.e.reshape(x, {elementCount(x.dims().take_front(axis)), elementCount(x.dims().drop_front(axis))}));
}

void squeeze(NodeImport &n) {
  Val x = n.in(0);
  auto axes = n.intsOf(1, "axes");
  if (axes)
    return n.out(n.e.squeeze(x, normalAxes(*axes, x.rank())));
  Dims ones;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (x.dim(i) == 1)
      ones.push_back(i);
  n.out(n.e.squeeze(x, ones));
}

void unsqueeze(NodeImport &n) {
  auto axes = Emitter::asInts(n.in(1), "axes");
  n.out(n.e.unsqueeze(n.in(0), normalAxes(axes, n.in(0).rank() + int64_t(axes.size()))));
}

void transpose(NodeImport &n) {
  auto perm = n.ints("perm");
  Val x = n.in(0);
  if (perm.empty())
    for (int64_t i = x.rank() - 1; i >= 0; --i)
      perm.push_back(i);
  for (int64_t &p : perm)
    p = normalAxis(p, x.rank());
  n.out(n.e.transpose(x, perm));
}

void expand(NodeImport &n) {
  auto want = Emitter::asInts(n.in(1), "dimensions");
  auto dims = broadcastDims(n.in(0).dims(), want);
  if (!dims)
    invalid("cannot broadcast " + n.in(0).type.str() + " to " + n.in(0).type.withDims(want).str());
  n.out(n.e.expand(n.in(0), *dims));
}

/// Each axis becomes [repeat, extent], which a broadcast makes without copying.
void tile(NodeImport &n) {
  Val x = n.in(0);
  auto repeats = Emitter::asInts(n.in(1), "repeats");
  if (int64_t(repeats.size()) != x.rank())
    invalid("as many repeats as axes are needed");
  Dims split, wide, dims;
  for (int64_t i = 0; i < x.rank(); ++i) {
    int64_t product;
    if (repeats[i] < 0 || llvm::MulOverflow(repeats[i], x.dim(i), product))
      invalid("axis " + llvm::Twine(i) + " of " + x.type.str() + " cannot be repeated " + llvm::Twine(repeats[i]) + " times");
    split.append({1, x.dim(i)});
    wide.append({repeats[i], x.dim(i)});
    dims.push_back(product);
  }
  n.out(n.e.reshape(n.e.expand(n.e.reshape(x, split), wide), dims));
}

void slice(NodeImport &n) {
  Val x = n.in(0);
  auto starts = Emitter::asInts(n.in(1), "bounds"), ends = Emitter::asInts(n.in(2), "bounds");
  auto axes = n.intsOf(3, "axes").value_or(std::vector<int64_t>());
  auto steps = n.intsOf(4, "steps").value_or(std::vector<int64_t>(starts.size(), 1));
  if (!n.has(3))
    for (size_t i = 0; i < starts.size(); ++i)
      axes.push_back(int64_t(i));
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    invalid("starts, ends, axes and steps differ in length");
  std::vector<int64_t> s(x.rank(), 0), t(x.dims().begin(), x.dims().end()), step(x.rank(), 1);
  bool all = true;
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t a = normalAxis(axes[i], x.rank()), d = x.dim(a), by = steps[i];
    if (by == 0)
      invalid("a step of 0");
    auto fromEnd = [&](int64_t v) { return v < 0 ? (v < -d ? -1 - d : v) + d : std::min(v, d); };
    int64_t b = fromEnd(starts[i]), f = fromEnd(ends[i]);
    if (by > 0) {
      b = std::clamp(b, int64_t(0), d);
      f = std::clamp(f, b, d);
    } else {
      b = d ? std::clamp(b, int64_t(0), d - 1) : -1;
      f = std::clamp(f, int64_t(-1), b);
    }
    s[a] = b;
    t[a] = f;
    step[a] = by;
    all &= b == 0 && f == d && by == 1;
  }
  n.out(all ? x : n.e.emit(ops::slice, {x}, {{"starts", s}, {"ends", t}, {"steps", step}}));
}

// ---- joining and splitting

void concat(NodeImport &n) {
  Vals parts;
  for (unsigned i = 0; i < n.inputs(); ++i)
    parts.push_back(n.in(i));
  n.out(n.e.concat(parts, n.i("axis")));
}

void split(NodeImport &n) {
  Val x = n.in(0);
  int64_t axis = normalAxis(n.i("axis", 0), x.rank()), d = x.dim(axis);
  int64_t parts = n.i("num_outputs", n.outputs());
  if (parts > n.outputs())
    invalid(llvm::Twine(parts) + " pieces, but " + llvm::Twine(n.outputs()) + " outputs");
  auto sizes = n.intsOf(1, "sizes").value_or(std::vector<int64_t>());
  if (sizes.empty()) {
    int64_t each = parts > 0 ? (d + parts - 1) / parts : 0;
    for (int64_t at = 0; int64_t(sizes.size()) < parts; at += each)
      sizes.push_back(std::clamp(d - at, int64_t(0), each));
  }
  int64_t at = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0 || sizes[i] > d - at)
      invalid("the pieces are longer than the axis of " + x.type.str());
    if (n.wants(unsigned(i)))
      n.out(unsigned(i), n.e.slice(x, axis, at, at + sizes[i]));
    at += sizes[i];
  }
  if (at != d)
    invalid("the pieces are shorter than the axis of " + x.type.str());
}

/// Negative pads crop. An axis is cropped before it is wrapped around, but after it is reflected or its
/// edge repeated, as PyTorch does: only so the other end's pads never reach into what is cropped.
Val padAndCrop(Emitter &e, const Val &x, ArrayRef<int64_t> lo, ArrayRef<int64_t> hi, double value, const std::string &mode) {
  auto split = [](ArrayRef<int64_t> v, int64_t sign) {
    Dims r;
    for (int64_t p : v)
      r.push_back(sign * std::max(int64_t(0), sign * p));
    return r;
  };
  auto crop = [&](const Val &v) { return e.pad(v, split(lo, -1), split(hi, -1)); };
  auto grow = [&](const Val &v) { return e.pad(v, split(lo, 1), split(hi, 1), value, mode); };
  if (mode == "constant")
    return e.pad(x, lo, hi, value);
  return mode == "wrap" ? grow(crop(x)) : crop(grow(x));
}

void pad(NodeImport &n) {
  Val x = n.in(0);
  auto pads = Emitter::asInts(n.in(1), "pads");
  auto axes = n.intsOf(3, "axes").value_or(std::vector<int64_t>());
  if (!n.has(3))
    for (int64_t i = 0; i < x.rank(); ++i)
      axes.push_back(i);
  if (pads.size() != 2 * axes.size())
    invalid("two pads for each axis are needed");
  Dims lo(x.rank(), 0), hi(x.rank(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t a = normalAxis(axes[i], x.rank());
    lo[a] = pads[i];
    hi[a] = pads[i + axes.size()];
  }
  std::string mode = n.s("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap")
    unsupported("mode '" + mode + "'");
  // Beyond 2^53 an attribute, a double, has not every integer.
  auto isExact = [](const Val &v) {
    const int64_t i = v.isFloat() ? 0 : Emitter::asInt(v, "pad values");
    return i >= -(int64_t(1) << 53) && i <= int64_t(1) << 53;
  };
  if (mode != "constant" || !n.has(2) || (n.in(2).known && isExact(n.in(2))))
    return n.out(padAndCrop(n.e, x, lo, hi, n.has(2) ? Emitter::asFloat(n.in(2), "pad values") : 0, mode));
  Val inside = n.e.cast(n.e.pad(n.e.expand(Emitter::number(1, Elem::I32), x.dims()), lo, hi), Elem::Bool);
  n.out(n.e.select(inside, n.e.pad(x, lo, hi), n.e.reshape(n.in(2), {}))); // a value that is computed
}

/// Crops or pads around the centre to the wanted size.
void centerCropPad(NodeImport &n) {
  Val x = n.in(0);
  auto want = Emitter::asInts(n.in(1), "dimensions");
  auto axes = n.ints("axes");
  if (axes.empty())
    axes = ArrayRef<int64_t>(allAxes(0, x.rank())).vec();
  Dims lo(x.rank(), 0), hi(x.rank(), 0);
  for (size_t i = 0; i < axes.size() && i < want.size(); ++i) {
    int64_t a = normalAxis(axes[i], x.rank()), more = want[i] - x.dim(a);
    int64_t first = more >= 0 ? more / 2 : -(-more / 2);
    lo[a] = first;
    hi[a] = more - first;
  }
  n.out(n.e.pad(x, lo, hi));
}

// ---- blocks

/// Attribute `blocksize`.
int64_t blockSize(NodeImport &n) {
  int64_t b = n.i("blocksize");
  if (b < 1 || b > INT32_MAX)
    invalid("blocks of " + llvm::Twine(b));
  return b;
}

void depthToSpace(NodeImport &n) {
  Val x = n.in(0);
  int64_t b = blockSize(n), N = x.dim(0), C = x.dim(1), H = x.dim(2), W = x.dim(3);
  if (n.oneOf("mode", {"DCR", "CRD"}, "DCR") == "DCR") {
    Val v = n.e.reshape(x, {N, b, b, C / (b * b), H, W});
    v = n.e.transpose(v, {0, 3, 4, 1, 5, 2});
    return n.out(n.e.reshape(v, {N, C / (b * b), H * b, W * b}));
  }
  Val v = n.e.reshape(x, {N, C / (b * b), b, b, H, W});
  v = n.e.transpose(v, {0, 1, 4, 2, 5, 3});
  n.out(n.e.reshape(v, {N, C / (b * b), H * b, W * b}));
}

void spaceToDepth(NodeImport &n) {
  Val x = n.in(0);
  int64_t b = blockSize(n), N = x.dim(0), C = x.dim(1), H = x.dim(2), W = x.dim(3);
  bool dcr = n.s("mode", "DCR") == "DCR";
  Val v = n.e.reshape(x, {N, C, H / b, b, W / b, b});
  v = dcr ? n.e.transpose(v, {0, 3, 5, 1, 2, 4}) : n.e.transpose(v, {0, 1, 3, 5, 2, 4});
  n.out(n.e.reshape(v, {N, C * b * b, H / b, W / b}));
}

/// Keeps the upper or lower triangle of each matrix.
void trilu(NodeImport &n) {
  Val x = n.in(0);
  Emitter &e = n.e;
  int64_t k = n.has(1) ? Emitter::asInt(n.in(1), "diagonals") : 0;
  bool upper = n.i("upper", 1) != 0;
  if (x.rank() < 2)
    invalid("a matrix is needed, got " + x.type.str());
  Dims d(x.dims().take_back(2).begin(), x.dims().end());
  Val row = e.add(e.iota(d, 0), double(diagonal(k, d))), column = e.iota(d, 1);
  Val keep = e(upper ? ops::ge : ops::le, column, row);
  n.out(e.select(keep, x, e.like(0, x)));
}

const OnnxOp kOps[] = {
    {"Constant", constant},
    {"ConstantOfShape", constantOfShape},
    {"Shape", shape},
    {"Size", size},
    {"Range", range},
    {"EyeLike", eyeLike},
    {"Reshape", reshape},
    {"Flatten", flatten},
    {"Squeeze", squeeze},
    {"Unsqueeze", unsqueeze},
    {"Transpose", transpose},
    {"Expand", expand},
    {"Tile", tile},
    {"Slice", slice},
    {"Concat", concat},
    {"Split", split},
    {"Pad", pad},
    {"CenterCropPad", centerCropPad},
    {"DepthToSpace", depthToSpace},
    {"SpaceToDepth", spaceToDepth},
    {"Trilu", trilu},
};

} // namespace shape_ops
} // namespace

ArrayRef<OnnxOp> zcc::shapeOps() { return shape_ops::kOps; }
