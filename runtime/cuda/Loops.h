// What generated kernels include: functions of scalars, the launch, and sums over the threads of a row.
#pragma once

#include "runtime/DeviceMemory.h"
#include "runtime/cuda/Warp.h"
#include <initializer_list>

namespace zccrt::cuda {

/// Where the operands and results of a kernel lie that runs over several parts, N offsets in the arena for each: as many parts as
/// the arguments of one launch hold.
template <int N> struct Parts {
  static constexpr int64_t kMost = partsOfLaunch(N);
  int64_t first = 0;  ///< number of the first of these
  unsigned count = 0; ///< 0: that were all
  int64_t offsets[kMost * N];

  explicit Parts(std::initializer_list<int64_t> a) : all(a.begin()), end(a.end()) { take(); }
  void next() {
    first += count;
    take();
  }

private:
  const int64_t *all, *end; ///< of the host: what is left

  void take() {
    for (count = 0; all != end && count < kMost; ++count)
      for (int i = 0; i < N; ++i)
        offsets[count * N + i] = *all++;
  }
};

/// N elements side by side, which one instruction moves where they lie at a multiple of their size.
template <typename T, int N> struct alignas(sizeof(T) * N) Vector {
  T at[N];
};

#ifdef __CUDACC__
/// 16 bytes that lie anywhere, out of the two multiples of 16 that have them.
__device__ inline uint4 loadBetween(const void *p) {
  const unsigned by = unsigned(reinterpret_cast<uintptr_t>(p)) % 16;
  const uint4 *const from = reinterpret_cast<const uint4 *>(static_cast<const char *>(p) - by);
  uint4 a = from[0], b = from[1];
  if (by & 8)
    a = {a.z, a.w, b.x, b.y}, b = {b.z, b.w, 0, 0};
  if (by & 4)
    a = {a.y, a.z, a.w, b.x}, b.x = b.y;
  const unsigned bits = by % 4 * 8;
  return {__funnelshift_r(a.x, a.y, bits), __funnelshift_r(a.y, a.z, bits), __funnelshift_r(a.z, a.w, bits),
          __funnelshift_r(a.w, b.x, bits)};
}
#endif

template <int N, typename T> __device__ Vector<T, N> loadVector(const T *p) {
  Vector<T, N> v;
  constexpr unsigned kBytes = sizeof v < 16 ? sizeof v : 16; // that one instruction moves
  if (reinterpret_cast<uintptr_t>(p) % kBytes == 0) {
    using Part = Vector<T, kBytes / sizeof(T)>;
    for (unsigned i = 0; i < sizeof v / kBytes; ++i)
      reinterpret_cast<Part *>(&v)[i] = reinterpret_cast<const Part *>(p)[i];
    return v;
  }
#ifdef __CUDACC__
  if constexpr (sizeof v == 16)
    *reinterpret_cast<uint4 *>(&v) = loadBetween(p);
  else
#endif
    for (int i = 0; i < N; ++i)
      v.at[i] = p[i];
  return v;
}

template <int N, typename T> __device__ void store(T *p, const Vector<T, N> &v) {
  constexpr unsigned kBytes = sizeof v < 16 ? sizeof v : 16;
  if (reinterpret_cast<uintptr_t>(p) % kBytes == 0) {
    using Part = Vector<T, kBytes / sizeof(T)>;
    for (unsigned i = 0; i < sizeof v / kBytes; ++i)
      reinterpret_cast<Part *>(p)[i] = reinterpret_cast<const Part *>(&v)[i];
    return;
  }
  for (int i = 0; i < N; ++i)
    p[i] = v.at[i];
}

/// The same of the first `count`.
template <int N, typename T> __device__ Vector<T, N> loadVector(const T *p, int count) {
  if (count == N)
    return loadVector<N>(p);
  Vector<T, N> v;
  for (int i = 0; i < N; ++i)
    v.at[i] = i < count ? p[i] : T();
  return v;
}
template <int N, typename T> __device__ void store(T *p, const Vector<T, N> &v, int count) {
  if (count == N)
    return store(p, v);
  for (int i = 0; i < N; ++i)
    if (i < count)
      p[i] = v.at[i];
}

/// One for all sums of a type in a kernel, whatever operation they are of: each leaves it free.
template <typename T> __device__ T *partsOfWarps() {
  __shared__ T parts[kWarp];
  return parts;
}
template <typename T> __device__ auto partsOfColumns() -> T (*)[kWarp] {
  __shared__ T parts[8][kWarp];
  return parts;
}

/// Over the warps of a block of one axis, at most 32 of them, in their order; every thread gets the result.
template <typename T, typename Op> __device__ T blockReduce(T value, Op op) {
  T *parts = partsOfWarps<T>();
  value = warpReduce(value, op);
  if (threadIdx.x % kWarp == 0)
    parts[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = parts[0];
  for (unsigned w = 1; w < blockDim.x / kWarp; ++w)
    value = op(value, parts[w]);
  __syncthreads(); // the next one uses the same memory
  return value;
}

/// Over threadIdx.y, of 32 columns side by side; every thread gets its column's.
template <typename T, typename Op> __device__ T columnReduce(T value, Op op) {
  auto parts = partsOfColumns<T>();
  parts[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  value = parts[0][threadIdx.x];
  for (unsigned y = 1; y < 8; ++y)
    value = op(value, parts[y][threadIdx.x]);
  __syncthreads();
  return value;
}

} // namespace zccrt::cuda

using namespace zccrt::cuda;
