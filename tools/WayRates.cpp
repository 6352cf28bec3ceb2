// Times samples of products and convolutions in each of the library's ways and by the kernel's own rule, in turn.
#include "tools/WayRates.h"
#include "runtime/cpu/Call.h"
#include "runtime/cpu/Wide.h"
#include "tools/KernelRun.h"
#include "tools/Timing.h"

using namespace zcc;
using Shape = KernelRun::Shape;

namespace {
/// A call, and the same in each way; the first by the kernel's own rule.
struct Sample {
  std::string text;
  std::vector<std::string> ways;
  std::vector<KernelRun> runs;
};
} // namespace

static void add(std::vector<Sample> &samples, KernelRun run, int threads) {
  auto c = run.withCall(threads, [&](const zccrt_call *call) { return zccrt::cpu::wayCase(run.kernel(), call); });
  if (!c)
    return;
  Sample s{textOf(*c), {Profile::kOwnWay}, {run}};
  for (const std::string &way : zccrt::cpu::waysOf(c->kind)) {
    s.ways.push_back(way);
    s.runs.push_back(KernelRun(run).way(way));
  }
  samples.push_back(std::move(s));
}

/// The three products of a linear layer: forward, and the gradients of its input and of its weight; also where their rows share
/// few sets of a cache.
static void addProducts(std::vector<Sample> &samples, int threads) {
  struct {
    int64_t rows, from, to;
  } const layers[] = {{1024, 768, 768}, {256, 512, 2048}, {64, 1024, 1024}, {20, 650, 2600}, {512, 64, 64},
                      {2048, 512, 10},  {4096, 256, 32},  {512, 256, 1024}, {512, 1024, 256}};
  for (auto [rows, from, to] : layers) {
    auto make = [&] { return KernelRun("matmul", ZCCRT_F32); };
    add(samples, make().add({rows, from}).add({from, to}).results().add({rows, to}), threads);
    add(samples, make().add({rows, to}).addTransposed(to, from).results().add({rows, from}), threads);
    add(samples, make().addTransposed(from, rows).add({rows, to}).results().add({from, to}), threads);
  }
}

/// Those of residual networks, from many pixels to many channels, and of smaller ones.
static void addConvolutions(std::vector<Sample> &samples, int32_t elem, int threads) {
  constexpr int64_t kBatch = 4;
  struct {
    int64_t from, to, side, window, stride;
  } const forms[] = {{64, 256, 56, 1, 1},   {256, 64, 56, 1, 1},   {128, 512, 28, 1, 1}, {512, 128, 28, 1, 1},
                     {256, 1024, 14, 1, 1}, {1024, 256, 14, 1, 1}, {512, 2048, 7, 1, 1}, {2048, 512, 7, 1, 1},
                     {16, 64, 40, 1, 1},    {64, 16, 40, 1, 1},    {40, 240, 10, 1, 1},  {240, 40, 10, 1, 1},
                     {160, 960, 5, 1, 1},   {960, 160, 5, 1, 1},   {3, 64, 64, 7, 2},    {3, 32, 64, 3, 2},
                     {64, 64, 28, 3, 1},    {256, 256, 14, 3, 1},  {512, 512, 7, 3, 1},  {256, 512, 28, 1, 2},
                     {512, 512, 2, 3, 1},   {256, 256, 4, 3, 1}};
  for (auto [from, to, side, window, stride] : forms) {
    const int64_t out = (side - 1) / stride + 1;
    const Shape x{kBatch, from, side, side}, w{to, from, window, window}, y{kBatch, to, out, out};
    auto of = [&](const char *kernel, const Shape &a, const Shape &b, const Shape &result) {
      KernelRun r(kernel, elem);
      r.add(a).add(b).results().add(result).window(window, stride);
      add(samples, r, threads);
    };
    of("conv", x, w, y);
    of("conv_grad_input", y, w, x);
    of("conv_grad_weight", x, y, w);
  }
}

/// Weights' gradients where channels are in blocks, of few pixels: few images of many, and many of few.
static void addBlockedGradients(std::vector<Sample> &samples, int32_t elem, int threads) {
  constexpr int64_t kBlock = 16;
  struct {
    int64_t images, from, to, side, window, stride;
  } const forms[] = {{4, 512, 2048, 7, 1, 1},  {4, 2048, 512, 7, 1, 1},  {4, 512, 512, 7, 3, 1},    {4, 512, 512, 14, 3, 2},
                     {4, 256, 256, 28, 3, 2},  {4, 512, 1024, 28, 1, 2}, {4, 1024, 2048, 14, 1, 2}, {4, 256, 256, 14, 3, 1},
                     {4, 256, 1024, 14, 1, 1}, {32, 512, 512, 2, 3, 1},  {32, 256, 512, 4, 3, 2},   {32, 256, 256, 4, 3, 1},
                     {32, 128, 256, 8, 3, 2},  {32, 64, 128, 16, 3, 2},  {32, 128, 128, 8, 3, 1}};
  for (auto [images, from, to, side, window, stride] : forms) {
    const int64_t out = (side - 1) / stride + 1;
    KernelRun r("conv_grad_weight", elem);
    r.add({images, from / kBlock, side, side, kBlock}).add({images, to / kBlock, out, out, kBlock}).results();
    r.add({to, from, window, window}).window(window, stride);
    add(samples, r, threads);
  }
}

/// The fastest way, where it is much faster than the kernel's own rule: near ties go by the rule. Of each, what it took when it
/// was least disturbed.
static std::string best(const Sample &s) {
  constexpr double kMuch = 0.93;
  auto seconds = [&](size_t i) { return *llvm::min_element(s.runs[i].seconds); };
  size_t least = 0;
  for (size_t i = 1; i < s.runs.size(); ++i)
    if (seconds(i) < (least ? seconds(least) : kMuch * seconds(0)))
      least = i;
  return s.ways[least];
}

Profile::Ways zcc::measureWays(int threads, double seconds) {
  const int rounds = seconds < 5 ? 1 : 5;
  std::vector<Sample> samples;
  addProducts(samples, threads);
  addConvolutions(samples, ZCCRT_F32, threads);
  if (zccrt::cpu::computesNatively(ZCCRT_BF16)) { // else it is widened and goes the way of f32
    addConvolutions(samples, ZCCRT_BF16, threads);
    addBlockedGradients(samples, ZCCRT_BF16, threads);
  }
  size_t runs = 0;
  for (const Sample &s : samples)
    runs += s.runs.size();
  for (Sample &s : samples)
    measureInTurn(s.runs, threads, seconds / double(runs * size_t(rounds)), rounds);
  Profile::Ways ways;
  for (const Sample &s : samples)
    ways[s.text] = best(s);
  return ways;
}
