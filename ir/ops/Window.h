// The geometry of convolutions and pooling: attributes `kernel` (pooling), strides, pads_lo, pads_hi, dilations, one value per
// spatial axis. Tensors are [N, C, spatial...], those of convolutions and batch norms may have their channels in blocks of B, as
// libraries compute: [N, C/B, spatial..., B].
#pragma once

#include "ir/ops/Rules.h"

namespace zcc::rules {

/// The block of a tensor that has `rank` axes where its channels are in none; 1: it has none.
inline int64_t blockOf(llvm::ArrayRef<int64_t> dims, size_t rank) { return dims.size() == rank + 1 ? dims.back() : 1; }
/// [N, C/B, spatial..., B] as [N, C, spatial...].
inline Dims unblocked(llvm::ArrayRef<int64_t> dims) {
  Dims d(dims.drop_back());
  d[1] *= dims.back();
  return d;
}
/// [N, C, spatial...] with blocks of channels; 1: without.
inline Dims blocked(llvm::ArrayRef<int64_t> dims, int64_t block) {
  Dims d = {dims[0], dims[1] / block};
  d.append(dims.begin() + 2, dims.end());
  if (block > 1)
    d.push_back(block);
  return d;
}
/// The axes of all that one channel has.
inline Dims axesBesideChannels(const Type &x, bool isBlocked) {
  Dims axes = axisRange(2, x.ndim() - isBlocked);
  axes.insert(axes.begin(), 0);
  return axes;
}

struct Window {
  Dims kernel, strides, lo, hi, dilations;
  unsigned rank() const { return kernel.size(); }

  /// Reads and checks the attributes; absent ones are stride 1, pad 0, dilation 1.
  static llvm::Expected<Window> from(const Attrs &a, llvm::ArrayRef<int64_t> kernel);
  /// Extent of the result along each spatial axis; an error if the window does not fit.
  llvm::Expected<Dims> outputs(llvm::ArrayRef<int64_t> in) const;
  /// Input position of kernel tap `k` for output position `o` along `axis`; outside the input: in
  /// the padding.
  int64_t at(unsigned axis, int64_t o, int64_t k) const { return o * strides[axis] - lo[axis] + k * dilations[axis]; }
};

/// What max_pool has in taps of such a type for a window wholly in the padding.
inline int64_t noTap(Elem e) { return e == Elem::U8 ? 255 : -1; }

/// Row-major counter: steps `i` through `dims`; false when it wrapped around.
inline bool step(Dims &i, llvm::ArrayRef<int64_t> dims) {
  for (int a = int(dims.size()) - 1; a >= 0; --a) {
    if (++i[a] < dims[a])
      return true;
    i[a] = 0;
  }
  return false;
}

/// Calls f(output position, kernel position, input position), each a flat index into its spatial
/// plane, for all taps that lie inside the input.
template <typename F> void forTaps(const Window &w, llvm::ArrayRef<int64_t> out, llvm::ArrayRef<int64_t> in, F f) {
  if (!elementCount(out) || !elementCount(w.kernel))
    return;
  Dims o(out.size(), 0);
  int64_t oFlat = 0;
  do {
    Dims k(out.size(), 0);
    int64_t kFlat = 0;
    do {
      int64_t iFlat = 0;
      bool inside = true;
      for (unsigned a = 0; a < w.rank(); ++a) {
        int64_t p = w.at(a, o[a], k[a]);
        inside &= p >= 0 && p < in[a];
        iFlat = iFlat * in[a] + p;
      }
      if (inside)
        f(oFlat, kFlat, iFlat);
      ++kFlat;
    } while (step(k, w.kernel));
    ++oFlat;
  } while (step(o, out));
}

inline llvm::Expected<Window> Window::from(const Attrs &a, llvm::ArrayRef<int64_t> kernel) {
  constexpr int64_t kMost = int64_t(1) << 30; // products of two stay exact
  Window w;
  w.kernel.assign(kernel.begin(), kernel.end());
  auto read = [&](const char *name, int64_t otherwise, int64_t least, Dims &to) -> llvm::Error {
    std::vector<int64_t> v = a.ints(name);
    if (v.empty())
      v.assign(kernel.size(), otherwise);
    if (v.size() != kernel.size())
      return error("attribute '" + llvm::Twine(name) + "' needs " + llvm::Twine(kernel.size()) + " values, one per spatial axis");
    for (int64_t x : v)
      if (x < least || x > kMost)
        return error("attribute '" + llvm::Twine(name) + "' must be " + llvm::Twine(least) + " to " + llvm::Twine(kMost));
    to.assign(v.begin(), v.end());
    return llvm::Error::success();
  };
  for (int64_t k : kernel)
    if (k < 1 || k > kMost)
      return error("a window's axis must be 1 to " + llvm::Twine(kMost) + ", not " + llvm::Twine(k));
  if (auto e = read("strides", 1, 1, w.strides))
    return e;
  if (auto e = read("pads_lo", 0, 0, w.lo))
    return e;
  if (auto e = read("pads_hi", 0, 0, w.hi))
    return e;
  if (auto e = read("dilations", 1, 1, w.dilations))
    return e;
  return w;
}

inline llvm::Expected<Dims> Window::outputs(llvm::ArrayRef<int64_t> in) const {
  Dims out;
  for (unsigned a = 0; a < rank(); ++a) {
    int64_t room = in[a] + lo[a] + hi[a] - dilations[a] * (kernel[a] - 1) - 1;
    if (room < 0)
      return error("a window of " + llvm::Twine(dilations[a] * (kernel[a] - 1) + 1) + " does not fit into spatial axis " +
                   llvm::Twine(a) + " of " + llvm::Twine(in[a] + lo[a] + hi[a]) + " with its padding");
    out.push_back(room / strides[a] + 1);
  }
  return out;
}

} // namespace zcc::rules
