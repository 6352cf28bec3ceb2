// Builds calls of CPU kernels over an arena of its own, and compares with loops in double.
#pragma once

#include "ir/Layout.h"
#include "runtime/Device.h"
#include "runtime/DeviceMemory.h"
#include "runtime/cpu/Dnnl.h"
#include "runtime/cpu/Number.h"
#include "runtime/cpu/Packing.h"
#include "runtime/cpu/Wide.h"
#include "runtime/zccrt.h"
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

namespace kerneltest {

using Dims = std::vector<int64_t>;

inline int64_t product(const Dims &d) {
  int64_t n = 1;
  for (int64_t x : d)
    n *= x;
  return n;
}

inline Dims dense(const Dims &d) {
  Dims s(d.size());
  int64_t n = 1;
  for (size_t i = d.size(); i--;) {
    s[i] = n;
    n *= d[i];
  }
  return s;
}

/// Calls f(index) for every index of a box, in row-major order.
inline void forIndex(const Dims &dims, const std::function<void(const Dims &)> &f) {
  Dims at(dims.size());
  for (int64_t i = 0, n = product(dims); i < n; ++i) {
    int64_t rest = i;
    for (size_t a = dims.size(); a--;) {
      at[a] = rest % dims[a];
      rest /= dims[a];
    }
    f(at);
  }
}

/// While it lives, kernels compute in bf16 as on a processor that has the instructions, which oneDNN emulates from AVX-512 on.
struct AsIfNative {
  static bool possible() {
    int has = int(dnnl::get_effective_cpu_isa()), wants = int(dnnl::cpu_isa::avx512_core);
    return (has & wants) == wants;
  }
  AsIfNative() { zccrt::cpu::nativeInTests = true; }
  ~AsIfNative() { zccrt::cpu::nativeInTests.reset(); }
};

/// While it lives, calls are of the kernels of GPUs, under emulation.
struct OnEmulatedGpu {
  static inline bool isAlive = false;
  OnEmulatedGpu() {
    isAlive = true;
    if (zccrt::device())
      return;
    zccrt::openDevice(zccrt_emulated_device, 0);
    zccrt::Device &d = *zccrt::device();
    d.lend(d.allocate(zccrt::kProductWorkspace), zccrt::kProductWorkspace);
  }
  ~OnEmulatedGpu() {
    isAlive = false;
    zccrt::exchangeDevice(nullptr);
  }
};

template <typename T> struct ElemOf;
template <> struct ElemOf<float> {
  static constexpr int32_t value = ZCCRT_F32;
};
template <> struct ElemOf<double> {
  static constexpr int32_t value = ZCCRT_F64;
};
template <> struct ElemOf<int64_t> {
  static constexpr int32_t value = ZCCRT_I64;
};
template <> struct ElemOf<int32_t> {
  static constexpr int32_t value = ZCCRT_I32;
};
template <> struct ElemOf<uint8_t> {
  static constexpr int32_t value = ZCCRT_U8;
};
using zccrt::cpu::Bf16;
using zccrt::cpu::F16;
template <> struct ElemOf<Bf16> {
  static constexpr int32_t value = ZCCRT_BF16;
};
template <> struct ElemOf<F16> {
  static constexpr int32_t value = ZCCRT_F16;
};
template <typename T> T toElem(double x) { return T(float(x)); }
template <> inline double toElem<double>(double x) { return x; }
/// How far results of order 1 may be off.
template <typename T> inline constexpr double kTolerance = 2e-5;
template <> inline constexpr double kTolerance<double> = 1e-12;
template <> inline constexpr double kTolerance<F16> = 4e-3;
template <> inline constexpr double kTolerance<Bf16> = 3e-2;
template <> struct ElemOf<bool> {
  static constexpr int32_t value = ZCCRT_BOOL;
};

/// Elements that a packed tensor takes.
inline int64_t packedElements(const Dims &dims, llvm::StringRef layout) { return zcc::Layout::parse(layout)->count(dims); }

/// Reproducible numbers in [-1, 1).
struct Rng {
  uint64_t s = 0x9e3779b97f4a7c15;
  uint64_t next() {
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s;
  }
  double unit() { return double(int64_t(next()) >> 11) * 0x1p-52; }
  int64_t below(int64_t n) { return int64_t(next() >> 1) % n; }
};

/// A call under construction. Tensors lie in one buffer, as in a program; a strided tensor is given
/// the dims of the dense buffer that holds it, a permutation of its axes and so its strides.
class Call {
public:
  explicit Call(const char *kernel, int threads = 2) : threads_(threads) {
    const bool isOnGpu = OnEmulatedGpu::isAlive;
    const zccrt_kernel_def *all = isOnGpu ? zccrt_cuda_kernels : zccrt_cpu_kernels;
    for (int i = 0; i < (isOnGpu ? zccrt_cuda_kernel_count : zccrt_cpu_kernel_count); ++i)
      if (!strcmp(all[i].name, kernel))
        def_ = &all[i];
    EXPECT_TRUE(def_) << kernel;
  }

  /// Adds a tensor of `elems` elements of storage; returns its number. Operands first, then
  /// results.
  template <typename T> int add(const Dims &dims, const Dims &strides, int64_t elems, int64_t first = 0) {
    zccrt_tensor t{};
    t.elem = ElemOf<T>::value;
    t.ndim = int32_t(dims.size());
    t.offset = reserve(elems * int64_t(sizeof(T))) + first * int64_t(sizeof(T));
    std::copy(dims.begin(), dims.end(), t.dims);
    std::copy(strides.begin(), strides.end(), t.strides);
    tensors_.push_back(t);
    return int(tensors_.size()) - 1;
  }
  template <typename T> int add(const Dims &dims) { return add<T>(dims, dense(dims), product(dims)); }
  /// A tensor stored with its axes in another order: storage axis i is axis order[i].
  template <typename T> int addPermuted(const Dims &dims, const Dims &order) {
    Dims stored, strides(dims.size());
    for (int64_t a : order)
      stored.push_back(dims[a]);
    Dims s = dense(stored);
    for (size_t i = 0; i < order.size(); ++i)
      strides[order[i]] = s[i];
    return add<T>(dims, strides, product(dims));
  }
  int none() {
    zccrt_tensor t{};
    t.offset = -1;
    tensors_.push_back(t);
    return int(tensors_.size()) - 1;
  }
  /// From here on, tensors are results.
  void results() { nin_ = int(tensors_.size()); }
  /// Lets result `r` lie where tensor `t` lies.
  void alias(int r, int t) { tensors_[r].offset = tensors_[t].offset; }

  void ints(const char *name, Dims v) {
    intLists_.push_back(std::move(v));
    attrs_.push_back({name, int32_t(intLists_.back().size()), intLists_.back().data(), nullptr, nullptr});
  }
  void number(const char *name, double v) {
    floatLists_.push_back({v});
    attrs_.push_back({name, 1, nullptr, floatLists_.back().data(), nullptr});
  }
  void text(const char *name, const char *v) { attrs_.push_back({name, 1, nullptr, nullptr, v}); }

  template <typename T> T *data(int t) { return reinterpret_cast<T *>(arena() + tensors_[t].offset); }
  template <typename T> T &el(int t, const Dims &at) {
    int64_t o = 0;
    for (size_t i = 0; i < at.size(); ++i)
      o += at[i] * tensors_[t].strides[i];
    return data<T>(t)[o];
  }
  Dims dims(int t) const { return Dims(tensors_[t].dims, tensors_[t].dims + tensors_[t].ndim); }
  template <typename T = float> void fillRandom(int t, Rng &r) {
    forIndex(dims(t), [&](const Dims &i) { el<T>(t, i) = T(float(r.unit())); });
  }

  /// Makes a tensor a packed one, of so many elements.
  template <typename T> void redefine(int t, const Dims &dims, int64_t elems) {
    tensors_[t].offset = reserve(elems * int64_t(sizeof(T)));
    Dims strides = dense(dims);
    std::copy(strides.begin(), strides.end(), tensors_[t].strides);
  }

  /// How the kernel wants its weight packed.
  std::optional<zccrt::cpu::Packing> packing() {
    fill();
    return zccrt::cpu::packingOf(def_->name, &call_);
  }

  /// Prepares and runs; more than once is allowed.
  void run() {
    fill();
    call_.scratch = -1;
    if (def_->workspace && call_.scratch_bytes == 0)
      call_.scratch_bytes = def_->workspace(&call_);
    if (call_.scratch_bytes)
      call_.scratch = scratchAt_ ? scratchAt_ : (scratchAt_ = reserve(call_.scratch_bytes));
    if (call_.scratch >= 0 && !noScribble) // scratch holds anything
      memset(arena() + call_.scratch, 0xff, size_t(call_.scratch_bytes));
    def_->run(nullptr, &call_);
    def_->run(arena(), &call_);
    if (OnEmulatedGpu::isAlive)
      zccrt::device()->synchronize();
  }
  int64_t scratchBytes() const { return call_.scratch_bytes; }
  bool noScribble = false; ///< for timing

private:
  void fill() {
    call_.name = "%test";
    call_.node = "/test";
    call_.t = tensors_.data();
    call_.nin = nin_;
    call_.nout = int(tensors_.size()) - nin_;
    call_.attrs = attrs_.data();
    call_.nattrs = int32_t(attrs_.size());
    call_.threads = threads_;
    call_.cache = &cache_;
  }
  int64_t reserve(int64_t bytes) {
    int64_t at = used_;
    used_ += (bytes + 63) / 64 * 64 + 64;
    EXPECT_LE(used_, kArena);
    return at;
  }
  char *arena() {
    if (!arena_)
      arena_.reset(static_cast<char *>(std::aligned_alloc(64, kArena)));
    return arena_.get();
  }
  struct Free {
    void operator()(char *p) const { free(p); }
  };
  static constexpr int64_t kArena = int64_t(1) << 28;
  const zccrt_kernel_def *def_ = nullptr;
  int threads_, nin_ = 0;
  int64_t used_ = 64, scratchAt_ = 0;
  void *cache_ = nullptr;
  zccrt_call call_{};
  std::unique_ptr<char, Free> arena_;
  std::vector<zccrt_tensor> tensors_;
  std::vector<zccrt_attr> attrs_;
  std::deque<Dims> intLists_;
  std::deque<std::vector<double>> floatLists_;
};

} // namespace kerneltest
