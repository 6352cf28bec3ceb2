// CUDA's execution model on the host: a grid's blocks run one after the other or side by side on threads of the host, the threads
// of a block in turn, each as a fiber, from barrier to barrier. A thread that meets none costs a call.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
/// A block runs on one thread of the host from its begin to its end.
#define __shared__ static thread_local

inline constinit thread_local uint3 threadIdx{}, blockIdx{};
inline constinit thread_local dim3 blockDim{}, gridDim{};

namespace zccrt::emulate {

/// Of a launch, what a watcher wants to know when its grid runs.
struct Watched;

/// Looks at what the threads of grids do. There is one in programs whose kernels are compiled to tell of their accesses
/// (Watch.cpp).
class Watcher {
public:
  /// Memory of the device; the page on either side of it is nobody's.
  virtual void addMemory(const char *begin, int64_t bytes) = 0;
  virtual void dropMemory(const char *begin) = 0;
  virtual std::shared_ptr<const Watched> launch(int stream, const char *kernel) = 0;
  /// Calls `blocks`, which runs the blocks one after the other on this thread.
  virtual void run(const Watched &w, const std::function<void()> &blocks) = 0;
};
extern Watcher *watcher; ///< nullptr: nobody looks

/// Gives a stream a function.
void queue(int stream, std::function<void()> f);
/// Gives it a grid, whose every thread calls `thread`.
void launch(int stream, const char *kernel, dim3 blocks, dim3 threads, std::function<void()> thread);

/// Where the thread is that runs on this thread of the host. A block's rounds are its barriers, a warp's those that all of its
/// lanes have met at since the block began.
struct Position {
  int64_t block;
  int thread;
  unsigned round, warpRound;
};
Position position();

void syncBlock();
/// Lane `from` of the warp's value, of those that each lane of the mask gives; all lanes of the mask meet here.
uint64_t exchange(unsigned mask, uint64_t value, int from);
void syncLanes(unsigned mask);
int lane();

/// 16 bytes that are copied while the thread computes (cp.async); from nullptr: zeros.
struct LateCopy {
  void *to;
  const void *from;
};
void addLateCopy(LateCopy c);
/// What the thread has added since its last group is one.
void endLateGroup();
/// What the thread has to have copied by now: all but its newest `left` groups.
std::vector<LateCopy> lateCopies(int left);

template <class T> T shuffle(unsigned mask, T value, int from) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(mask, bits, from);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

} // namespace zccrt::emulate

inline void __syncthreads() { zccrt::emulate::syncBlock(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { zccrt::emulate::syncLanes(mask); }
template <class T> T __shfl_sync(unsigned mask, T value, int from) { return zccrt::emulate::shuffle(mask, value, from & 31); }
template <class T> T __shfl_xor_sync(unsigned mask, T value, int with) {
  return zccrt::emulate::shuffle(mask, value, zccrt::emulate::lane() ^ with);
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned by) {
  int from = zccrt::emulate::lane() + int(by);
  return zccrt::emulate::shuffle(mask, value, from < 32 ? from : zccrt::emulate::lane());
}
inline bool __any_sync(unsigned mask, bool is) {
  for (int with = 16; with; with /= 2) // over whole warps
    is |= __shfl_xor_sync(mask, is, with);
  return is;
}

#define ZCC_LAUNCH_ON(stream, kernel, grid, block, ...)                                                                          \
  zccrt::emulate::launch(stream, #kernel, grid, block, [=] { kernel(__VA_ARGS__); })
