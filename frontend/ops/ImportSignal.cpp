// Fourier transforms, as products with matrices of cosines and sines.
#include "frontend/Importer.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

using namespace zcc;

namespace {
namespace signal_ops {

/// Real and imaginary part of a transform of [..., in] along the last axis to `out` frequencies;
/// `imaginary` may be absent.
struct Complex {
  Val real, imaginary;
};

Complex transform(Emitter &e, const Complex &x, int64_t length, int64_t out, bool inverse) {
  int64_t in = x.real.dim(-1);
  if (length < 1)
    invalid("a transform of " + llvm::Twine(length) + " elements");
  checkTableSize(double(in) * double(out));
  std::vector<double> c(in * out), s(in * out);
  for (int64_t t = 0; t < in; ++t)
    for (int64_t k = 0; k < out; ++k) {
      double angle = 2 * M_PI * double(t * k % length) / double(length) * (inverse ? 1 : -1);
      c[t * out + k] = std::cos(angle);
      s[t * out + k] = std::sin(angle);
    }
  Type matrix(x.real.elem(), {in, out});
  Val cosines = Emitter::floats(c, matrix), sines = Emitter::floats(s, matrix);
  Complex y{e.matmul(x.real, cosines), e.matmul(x.real, sines)};
  if (x.imaginary) {
    y.real = e.sub(y.real, e.matmul(x.imaginary, sines));
    y.imaginary = e.add(y.imaginary, e.matmul(x.imaginary, cosines));
  }
  // Scaled last: rounded in the matrices, it would keep what should cancel from cancelling.
  if (inverse) {
    y.real = e.div(y.real, e.like(double(length), y.real));
    y.imaginary = e.div(y.imaginary, e.like(double(length), y.imaginary));
  }
  return y;
}

/// Cuts or zero-pads the last axis.
Val ofLength(Emitter &e, const Val &v, int64_t length) {
  if (!v || v.dim(-1) == length)
    return v;
  if (v.dim(-1) > length)
    return e.slice(v, v.rank() - 1, 0, length);
  Dims lo(v.rank(), 0), hi(v.rank(), 0);
  hi.back() = length - v.dim(-1);
  return e.pad(v, lo, hi);
}

Val part(Emitter &e, const Val &x, int64_t i) { return e.squeeze(e.slice(x, x.rank() - 1, i, i + 1), {x.rank() - 1}); }

void dft(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  int64_t axis = normalAxis(n.has(2) ? Emitter::asInt(n.in(2), "axes") : -2, x.rank()), last = x.rank() - 2;
  bool inverse = n.i("inverse") != 0, oneSided = n.i("onesided") != 0;
  int64_t length = n.has(1) ? Emitter::asInt(n.in(1), "lengths") : 0;
  Complex c{part(e, x, 0), x.dim(-1) == 2 ? part(e, x, 1) : Val()};
  c.real = e.swapAxes(c.real, axis, last);
  if (c.imaginary)
    c.imaginary = e.swapAxes(c.imaginary, axis, last);
  if (inverse && oneSided) { // the other half mirrors: X[length-k] = conj X[k]
    length = length ? length : 2 * (c.real.dim(-1) - 1);
    const int64_t have = length / 2 + 1;
    auto mirrored = [&](const Val &v, double sign) {
      Val other = e.slice(v, last, length - have, 0, -1);
      return e.concat({v, e.mul(other, sign)}, last);
    };
    if (!c.imaginary)
      c.imaginary = e.expand(e.like(0, c.real), c.real.dims());
    c = {ofLength(e, c.real, have), ofLength(e, c.imaginary, have)};
    c = transform(e, {mirrored(c.real, 1), mirrored(c.imaginary, -1)}, length, length, true);
    return n.out(e.unsqueeze(e.swapAxes(c.real, axis, last), {x.rank() - 1}));
  }
  length = length ? length : c.real.dim(-1);
  c = {ofLength(e, c.real, length), ofLength(e, c.imaginary, length)};
  c = transform(e, c, length, oneSided ? length / 2 + 1 : length, inverse);
  Val re = e.unsqueeze(e.swapAxes(c.real, axis, last), {x.rank() - 1});
  Val im = e.unsqueeze(e.swapAxes(c.imaginary, axis, last), {x.rank() - 1});
  n.out(e.concat({re, im}, x.rank() - 1));
}

/// Windows of the signal, each transformed: [B, frames, frequencies, 2].
void stft(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  int64_t hop = Emitter::asInt(n.in(1), "steps");
  if (hop < 1)
    invalid("steps of " + llvm::Twine(hop));
  Val window = n.optional(2);
  int64_t length = n.has(3) ? Emitter::asInt(n.in(3), "lengths") : window ? window.dim(0) : x.dim(1);
  if (length < 1 || length > x.dim(1))
    invalid("frames of " + llvm::Twine(length) + " elements of a signal of " + llvm::Twine(x.dim(1)));
  bool oneSided = n.i("onesided", 1) != 0;
  int64_t frames = 1 + (x.dim(1) - length) / hop;
  checkTableSize(double(frames) * double(length));
  std::vector<int64_t> at;
  for (int64_t f = 0; f < frames; ++f)
    for (int64_t t = 0; t < length; ++t)
      at.push_back(f * hop + t);
  Val index = Emitter::integers(at, {frames, length});
  auto cut = [&](const Val &v) {
    Val w = e.gather(v, index, 1); // [B, frames, length]
    return window ? e.mul(w, window) : w;
  };
  Complex c{cut(x.rank() == 3 ? part(e, x, 0) : x), x.rank() == 3 && x.dim(2) == 2 ? cut(part(e, x, 1)) : Val()};
  c = transform(e, c, length, oneSided ? length / 2 + 1 : length, /*inverse=*/false);
  n.out(e.concat({e.unsqueeze(c.real, {3}), e.unsqueeze(c.imaginary, {3})}, 3));
}

/// a - b cos + c cos 2 over a window; periodic ones leave out the last point.
void window(NodeImport &n, double a, double b, double c) {
  int64_t size = Emitter::asInt(n.in(0), "sizes");
  double period = double(n.i("periodic", 1) ? size : size - 1);
  Elem elem = n.elemOf("output_datatype", Elem::F32);
  if (!isFloat(elem))
    unsupported("element type " + elemName(elem));
  checkTableSize(double(size));
  std::vector<double> w;
  for (int64_t i = 0; i < size; ++i) {
    double angle = 2 * M_PI * double(i) / std::max(period, 1.0);
    w.push_back(a - b * std::cos(angle) + c * std::cos(2 * angle));
  }
  n.out(Emitter::floats(w, Type(elem, {std::max<int64_t>(size, 0)})));
}
void hann(NodeImport &n) { window(n, 0.5, 0.5, 0); }
void hamming(NodeImport &n) { window(n, 25.0 / 46, 21.0 / 46, 0); }
void blackman(NodeImport &n) { window(n, 0.42, 0.5, 0.08); }

/// Triangles, evenly spaced on the mel scale, over the frequencies of a one-sided transform:
/// [length / 2 + 1, bins]. Their corners are rounded down to a frequency, as the operator says.
void melWeightMatrix(NodeImport &n) {
  int64_t bins = Emitter::asInt(n.in(0), "bin counts"), length = Emitter::asInt(n.in(1), "lengths"),
          rate = Emitter::asInt(n.in(2), "sample rates");
  double low = Emitter::asFloat(n.in(3), "bounds"), high = Emitter::asFloat(n.in(4), "bounds");
  Elem elem = n.elemOf("output_datatype", Elem::F32);
  if (bins < 1 || length < 1 || rate < 1)
    invalid("counts that are not positive");
  checkTableSize(double(length / 2 + 1) * double(bins));
  auto mel = [](double hertz) { return 2595 * std::log1p(hertz / 700) / std::log(10.0); };
  double from = mel(low), step = (mel(high) - from) / double(bins + 2);
  std::vector<int64_t> corner;
  for (int64_t i = 0; i < bins + 2; ++i) {
    double hertz = 700 * std::expm1((from + double(i) * step) / 2595 * std::log(10.0));
    corner.push_back(int64_t(std::floor(double(length + 1) * hertz / double(rate))));
  }
  int64_t rows = length / 2 + 1;
  Tensor t(Type(elem, {rows, bins}));
  for (int64_t b = 0; b < bins; ++b)
    for (int64_t r = std::max<int64_t>(0, corner[b]); r < std::min(rows, corner[b + 2]); ++r) {
      double up = double(corner[b + 1] - corner[b]), down = double(corner[b + 2] - corner[b + 1]);
      double w = r < corner[b + 1] ? double(r - corner[b]) / up : double(corner[b + 2] - r) / down;
      if (t.isFloat())
        t.f[r * bins + b] = roundTo(elem, w);
      else
        t.i[r * bins + b] = int64_t(w);
    }
  // A triangle without a side still has its top.
  for (int64_t b = 0; b < bins; ++b)
    if (int64_t top = corner[b + 1]; top >= 0 && top < rows) {
      if (t.isFloat())
        t.f[top * bins + b] = 1;
      else
        t.i[top * bins + b] = 1;
    }
  n.out(Emitter::known(std::move(t)));
}

const OnnxOp kOps[] = {
    {"MelWeightMatrix", melWeightMatrix}, {"DFT", dft}, {"STFT", stft}, {"HannWindow", hann}, {"HammingWindow", hamming},
    {"BlackmanWindow", blackman},
};

} // namespace signal_ops
} // namespace

llvm::ArrayRef<OnnxOp> zcc::signalOps() { return signal_ops::kOps; }
