// Times kernels of the runtime on shapes that stand for a class, as a step calls them: on data that no cache holds, one call
// after the other, and what a call takes in the middle of them.
#include "tools/MachineRates.h"
#include "runtime/cpu/Call.h"
#include "runtime/cpu/VecMath.h"
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <unistd.h>

using namespace zcc;
using zccrt::cpu::forEach;
using Shape = std::vector<int64_t>;
using Clock = std::chrono::steady_clock;

static double secondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// The median of at least three runs, and as many as `seconds` allow.
template <class F> static double typicalSeconds(double seconds, F run) {
  constexpr size_t kLeastRuns = 3;
  std::vector<double> times;
  const auto begin = Clock::now();
  while (times.size() < kLeastRuns || secondsSince(begin) < seconds) {
    const auto start = Clock::now();
    run();
    times.push_back(secondsSince(start));
  }
  std::nth_element(times.begin(), times.begin() + long(times.size() / 2), times.end());
  return std::max(times[times.size() / 2], 1e-9);
}

static std::unique_ptr<char, void (*)(void *)> allocate(int64_t bytes) {
  char *p = static_cast<char *>(std::aligned_alloc(64, size_t(bytes + 63) / 64 * 64));
  if (!p)
    throw std::bad_alloc();
  return {p, std::free};
}

/// Bytes of a buffer that no cache holds.
static int64_t beyondCaches() {
  constexpr int64_t kMiB = 1 << 20;
  return std::clamp<int64_t>(2 * sysconf(_SC_LEVEL3_CACHE_SIZE), 32 * kMiB, 256 * kMiB);
}

// ---- kernels of the library

namespace {
/// One call over memory of its own, filled with small numbers.
class KernelRun {
public:
  KernelRun(const char *kernel, int32_t elem, double flops) : flops(flops), elem(elem) {
    for (int i = 0; i < zccrt_cpu_kernel_count; ++i)
      if (!strcmp(zccrt_cpu_kernels[i].name, kernel))
        def = &zccrt_cpu_kernels[i];
  }
  double flops;

  KernelRun &add(const Shape &dims) { return add(dims, elem); }
  KernelRun &add(const Shape &dims, int32_t type) {
    zccrt_tensor t{};
    t.elem = type;
    t.ndim = int32_t(dims.size());
    int64_t n = 1;
    for (size_t i = dims.size(); i--; n *= dims[i]) {
      t.dims[i] = dims[i];
      t.strides[i] = n;
    }
    t.offset = reserve(n * zccrt::cpu::elemBytes(type));
    tensors.push_back(t);
    return *this;
  }
  KernelRun &absent() {
    tensors.push_back({});
    tensors.back().offset = -1;
    return *this;
  }
  KernelRun &results() {
    operands = int(tensors.size());
    return *this;
  }
  KernelRun &ints(const char *name, Shape v) {
    lists.push_back({name, std::move(v)});
    return *this;
  }

  double typicalSeconds(int threads, double seconds) {
    zccrt_call c{};
    void *cache = nullptr;
    static const double scale = 0.125;
    std::vector<zccrt_attr> attrs{{"scale", 1, nullptr, &scale, nullptr}}; // of attention; others do not look
    for (auto &[name, values] : lists)
      attrs.push_back({name, int32_t(values.size()), values.data(), nullptr, nullptr});
    c.name = c.node = "calibration";
    c.t = tensors.data();
    c.nin = operands;
    c.nout = int(tensors.size()) - operands;
    c.attrs = attrs.data();
    c.nattrs = int32_t(attrs.size());
    c.threads = threads;
    c.cache = &cache;
    c.scratch_bytes = def->workspace ? def->workspace(&c) : 0;
    c.scratch = reserve(c.scratch_bytes);
    std::vector<std::unique_ptr<char, void (*)(void *)>> arenas; // in turn
    for (int64_t bytes = 0; arenas.empty() || (bytes < beyondCaches() && arenas.size() < kMostArenas); bytes += used)
      fill(arenas.emplace_back(allocate(used)).get());
    def->run(nullptr, &c);
    def->run(arenas[0].get(), &c);
    size_t next = 0;
    return ::typicalSeconds(seconds, [&] { def->run(arenas[next++ % arenas.size()].get(), &c); });
  }

private:
  static constexpr size_t kMostArenas = 16;
  int64_t reserve(int64_t bytes) {
    int64_t at = used;
    used += (bytes + 127) / 64 * 64;
    return at;
  }
  void fill(char *arena) const {
    memset(arena, 0, size_t(used));
    for (const zccrt_tensor &t : tensors)
      for (int64_t i = 0; t.offset >= 0 && i < zccrt::cpu::count(t); ++i) {
        const float x = float(i % 97) * 0.01f;
        if (t.elem == ZCCRT_F32)
          zccrt::cpu::at<float>(arena, t)[i] = x;
        else // bf16: the upper half
          zccrt::cpu::at<uint16_t>(arena, t)[i] = uint16_t(__builtin_bit_cast(uint32_t, x) >> 16);
      }
  }

  int32_t elem;
  const zccrt_kernel_def *def = nullptr;
  int operands = 0;
  int64_t used = 64;
  std::vector<zccrt_tensor> tensors;
  std::vector<std::pair<const char *, Shape>> lists; ///< attributes
};
} // namespace

static KernelRun product(int32_t elem, int64_t m, int64_t n, int64_t k) {
  KernelRun r("matmul", elem, 2.0 * double(m) * double(n) * double(k));
  r.add({m, k}).add({k, n}).results().add({m, n});
  return r;
}

static std::vector<KernelRun> attention(int32_t elem) {
  constexpr int64_t kBatch = 2, kHeads = 12, kLength = 256, kWidth = 64;
  const Shape q{kBatch, kHeads, kLength, kWidth}, sums{kBatch, kHeads, kLength, 1};
  const double product = 2.0 * kBatch * kHeads * kLength * kLength * kWidth;
  std::vector<KernelRun> runs;
  KernelRun &forward = runs.emplace_back("attention", elem, 2 * product);
  forward.add(q).add(q).add(q).absent().results().add(q).add(sums, ZCCRT_F32).ints("causal", {1});
  KernelRun &backward = runs.emplace_back("attention_grad", elem, 5 * product);
  backward.add(q).add(q).add(q).add(q).absent().add(q).add(sums, ZCCRT_F32);
  backward.results().add(q).add(q).add(q).ints("causal", {1});
  return runs;
}

/// Those of a residual network: of one pixel that widen and narrow, and of nine.
static std::vector<KernelRun> convolution(int32_t elem) {
  constexpr int64_t kBatch = 4;
  struct Form {
    int64_t from, to, side, window;
  };
  std::vector<KernelRun> runs;
  for (auto [from, to, side, window] : {Form{64, 256, 56, 1}, {512, 128, 28, 1}, {64, 64, 56, 3}, {256, 256, 14, 3}}) {
    const Shape x{kBatch, from, side, side}, w{to, from, window, window}, y{kBatch, to, side, side};
    auto add = [&](const char *kernel, const Shape &a, const Shape &b, const Shape &result) {
      KernelRun &r = runs.emplace_back(kernel, elem, 2.0 * double(window * window * kBatch * from * to * side * side));
      r.add(a).add(b).results().add(result).ints("strides", {1, 1});
      r.ints("pads_lo", {window / 2, window / 2}).ints("pads_hi", {window / 2, window / 2});
    };
    add("conv", x, w, y);
    add("conv_grad_input", y, w, x);
    add("conv_grad_weight", x, y, w);
  }
  return runs;
}

/// What stands for each class of products, of f32 or of 16-bit floats.
static std::vector<KernelRun> runsOf(Rate r) {
  const bool isLow = size_t(r) >= kProductRates;
  const int32_t elem = isLow ? ZCCRT_BF16 : ZCCRT_F32;
  switch (isLow ? Rate(size_t(r) - kProductRates) : r) {
  case Rate::Large:
    return {product(elem, 1024, 1024, 1024), product(elem, 512, 3072, 768)};
  case Rate::Narrow:
    return {product(elem, 1024, 64, 768), product(elem, 1024, 768, 64), product(elem, 64, 1024, 768)};
  case Rate::Thin:
    return {product(elem, 8, 1024, 1024), product(elem, 2048, 10, 512)};
  case Rate::Attention:
    return attention(elem);
  default:
    return convolution(elem);
  }
}

static double productRate(Rate r, int threads, double seconds) {
  std::vector<KernelRun> runs = runsOf(r);
  double flops = 0, total = 0;
  for (KernelRun &run : runs) {
    flops += run.flops;
    total += run.typicalSeconds(threads, seconds / double(runs.size()));
  }
  return flops / total;
}

// ---- loops

ZCC_CLONES static void addRows(float *y, const float *a, const float *b, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    y[i] = a[i] + b[i];
}

ZCC_CLONES static void exponentials(float *x, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    x[i] = vexp(-x[i]);
}

/// Reads two streams and writes one.
static double memoryRate(int threads, double seconds) {
  const int64_t n = beyondCaches() / int64_t(sizeof(float));
  auto y = allocate(n * 4), a = allocate(n * 4), b = allocate(n * 4);
  auto floats = [](auto &p) { return reinterpret_cast<float *>(p.get()); };
  auto each = [&](auto f) {
    forEach(threads, threads, [&](int64_t t) {
      const zccrt::cpu::Share s(n, t, threads);
      f(s.begin, s.end - s.begin);
    });
  };
  each([&](int64_t at, int64_t count) { // each thread touches its own first
    for (auto *p : {floats(y), floats(a), floats(b)})
      std::fill_n(p + at, count, 0.5f);
  });
  auto run = [&] { each([&](int64_t at, int64_t m) { addRows(floats(y) + at, floats(a) + at, floats(b) + at, m); }); };
  return double(3 * n) * sizeof(float) / typicalSeconds(seconds, run);
}

static double transcendentalRate(int threads, double seconds) {
  constexpr int64_t kElements = 4096, kRounds = 256;
  std::vector<std::vector<float>> x(threads, std::vector<float>(kElements, 0.5f));
  auto run = [&] {
    forEach(threads, threads, [&](int64_t t) {
      for (int64_t i = 0; i < kRounds; ++i)
        exponentials(x[t].data(), kElements);
    });
  };
  return double(threads * kElements * kRounds) / typicalSeconds(seconds, run);
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

// ---- all

Profile::Rates zcc::measureRates(int threads, double seconds) {
  const double share = seconds / double(2 * kProductRates + 3);
  Profile::Rates r;
  for (size_t i = 0; i < 2 * kProductRates; ++i)
    r[Rate(i)] = productRate(Rate(i), threads, share);
  r[Rate::Transcendentals] = transcendentalRate(threads, share);
  r[Rate::Bytes] = memoryRate(threads, share);
  if (threads > 1)
    r[Rate::Teams] = teamRate(threads, share);
  return r;
}

double zcc::measureCopy(double seconds) {
  const int64_t bytes = beyondCaches();
  auto to = allocate(bytes), from = allocate(bytes);
  memset(from.get(), 1, size_t(bytes));
  memset(to.get(), 2, size_t(bytes));
  return double(bytes) / typicalSeconds(seconds, [&] { memcpy(to.get(), from.get(), size_t(bytes)); });
}
