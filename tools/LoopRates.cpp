// Times loops as the compiler generates them: bytes from memory and from caches, plain operations, functions, short rows, teams.
#include "tools/LoopRates.h"
#include "runtime/cpu/Call.h"
#include "runtime/cpu/VecMath.h"
#include "tools/Timing.h"

using namespace zcc;
using zccrt::cpu::forEach;

namespace {
/// Elements of a piece that a core's own cache holds.
constexpr int64_t kPiece = 4096;
} // namespace

ZCC_CLONES static void addRows(float *y, const float *a, const float *b, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    y[i] = a[i] + b[i];
}

ZCC_CLONES static void exponentials(float *x, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    x[i] = vexp(-x[i]);
}

/// A difference, two products, a choice: kOperations, none of which are contracted to one.
ZCC_CLONES static void normalize(float *y, const float *x, float mean, float scale, float weight, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    float t = (x[i] - mean) * scale * weight;
    y[i] = t > 0 ? t : 0;
  }
}
static constexpr int64_t kOperations = 5;

/// Sums side by side, as many as a generated loop has, of rows that fill a few of them.
ZCC_CLONES static void sumRows(float *y, const float *x, int64_t rows, int64_t width) {
  constexpr int64_t kLanes = 64;
  alignas(64) float sums[kLanes] = {};
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < width; ++i)
      sums[i] = sums[i] + x[r * width + i];
  std::copy_n(sums, kLanes, y);
}

/// Calls f(thread, begin, count) on each thread's share of n.
template <class F> static void share(int threads, int64_t n, F f) {
  forEach(threads, threads, [&](int64_t t) {
    const zccrt::cpu::Share s(n, t, threads);
    f(t, s.begin, s.end - s.begin);
  });
}

/// Two streams that are read and one that is written, `bytes` in all.
static double streamRate(int threads, double seconds, int64_t bytes) {
  const int64_t n = bytes / 3 / int64_t(sizeof(float));
  Buffer y(n * 4), a(n * 4), b(n * 4);
  auto floats = [](Buffer &x) { return reinterpret_cast<float *>(x.data()); };
  share(threads, n, [&](int64_t, int64_t at, int64_t count) { // each thread touches its own first
    for (auto *p : {floats(y), floats(a), floats(b)})
      std::fill_n(p + at, count, 0.5f);
  });
  auto run = [&] {
    share(threads, n,
          [&](int64_t, int64_t at, int64_t count) { addRows(floats(y) + at, floats(a) + at, floats(b) + at, count); });
  };
  run();
  return double(3 * n) * sizeof(float) / typicalSeconds(seconds, run);
}

static double memoryRate(int threads, double seconds) { return streamRate(threads, seconds, 3 * beyondCaches()); }
static double nearRate(int threads, double seconds) { return streamRate(threads, seconds, int64_t(kNearBytes / 2)); }

/// Of `f`, which works on a piece of each thread's own, by `amount` a call.
template <class F> static double pieceRate(int threads, double seconds, double amount, F f) {
  constexpr int64_t kRounds = 256;
  std::vector<std::vector<float>> x(threads, std::vector<float>(kPiece, 0.5f)), y = x;
  auto run = [&] {
    forEach(threads, threads, [&](int64_t t) {
      for (int64_t i = 0; i < kRounds; ++i)
        f(y[t].data(), x[t].data());
    });
  };
  return threads * kRounds * amount / typicalSeconds(seconds, run);
}

static double transcendentalRate(int threads, double seconds) {
  return pieceRate(threads, seconds, kPiece, [](float *, float *x) { exponentials(x, kPiece); });
}

static double operationRate(int threads, double seconds) {
  return pieceRate(threads, seconds, kPiece * kOperations,
                   [](float *y, float *x) { normalize(y, x, 0.25f, 0.5f, 2.0f, kPiece); });
}

static double rowRate(int threads, double seconds) {
  constexpr int64_t kWidth = 4;
  return pieceRate(threads, seconds, kPiece / kWidth, [](float *y, float *x) { sumRows(y, x, kPiece / kWidth, kWidth); });
}

static double teamRate(int threads, double seconds) {
  constexpr int kTeams = 100;
  std::vector<int64_t> sink(threads * 8);
  auto run = [&] {
    for (int i = 0; i < kTeams; ++i)
      forEach(threads, threads, [&](int64_t t) { ++sink[t * 8]; });
  };
  return kTeams / typicalSeconds(seconds, run);
}

static constexpr LoopRate kLoops[] = {{Rate::Operations, operationRate},
                                      {Rate::Transcendentals, transcendentalRate},
                                      {Rate::Rows, rowRate},
                                      {Rate::Bytes, memoryRate},
                                      {Rate::NearBytes, nearRate},
                                      {Rate::Teams, teamRate}};
llvm::ArrayRef<LoopRate> zcc::loopRates() { return kLoops; }
