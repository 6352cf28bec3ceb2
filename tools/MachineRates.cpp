// Times kernels of the runtime on shapes that stand for a class, as a step calls them: on data that no cache holds, one call
// after the other, and what a call takes in the middle of them. All are measured in turn, in rounds, of which quiet ones count:
// a machine whose host others use may be slow for half a minute.
#include "tools/MachineRates.h"
#include "runtime/cpu/Call.h"
#include "runtime/cpu/Packing.h"
#include "tools/KernelRun.h"
#include "tools/LoopRates.h"
#include "tools/Timing.h"
#include <cmath>
#include <map>

using namespace zcc;

using Shape = KernelRun::Shape;

// ---- kernels of the library

/// Of what a kernel takes in each round, what it takes in quiet ones: the least, but for the first quarter of four and more.
static double quiet(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + long(v.size() / 4), v.end());
  return v[v.size() / 4];
}

namespace {
/// A kernel that stands for a rate.
struct Run : KernelRun {
  Run(Rate rate, const char *kernel, int32_t elem, double flops) : KernelRun(kernel, elem), rate(rate), flops(flops) {}
  double typical() const { return quiet(seconds); }
  Rate rate;
  double flops, filterBytes = 0, imageBytes = 0;
};
} // namespace

/// Of the class as the cost model has it for f32, or for 16-bit floats.
static Rate rateOf(Rate r, int32_t elem) { return elem == ZCCRT_F32 ? r : Rate(size_t(r) + kProductRates); }

static void addProducts(std::vector<Run> &runs, int32_t elem) {
  enum Form { Plain, Gradient }; // of a weight: the first factor is transposed
  struct {
    Rate rate;
    int64_t m, n, k;
    Form form = Plain;
  } const products[] = {
      {Rate::Large, 1024, 1024, 1024},        {Rate::Large, 512, 3072, 768}, {Rate::Large, 768, 1024, 1024, Gradient},
      {Rate::Narrow, 1024, 64, 768},          {Rate::Narrow, 1024, 768, 64}, {Rate::Narrow, 64, 512, 512},
      {Rate::Narrow, 512, 512, 64, Gradient}, {Rate::Thin, 8, 1024, 1024},   {Rate::Thin, 2048, 10, 512},
      {Rate::Thin, 1024, 1024, 8, Gradient}};
  for (auto &p : products) {
    Run &r = runs.emplace_back(rateOf(p.rate, elem), "matmul", elem, 2.0 * double(p.m) * double(p.n) * double(p.k));
    p.form == Plain ? r.add({p.m, p.k}) : r.addTransposed(p.m, p.k);
    r.add({p.k, p.n}).results().add({p.m, p.n});
  }
}

static void addAttention(std::vector<Run> &runs, int32_t elem) {
  constexpr int64_t kBatch = 2, kHeads = 12, kLength = 256, kWidth = 64;
  constexpr double kBehind = 0.375; // of the scores, behind the last of their block of 64 rows
  const Shape q{kBatch, kHeads, kLength, kWidth}, sums{kBatch, kHeads, kLength, 1};
  const Rate rate = rateOf(Rate::Attention, elem);
  for (int64_t causal : {0, 1}) {
    const double product = 2.0 * kBatch * kHeads * kLength * kLength * kWidth * (causal ? 1 - kBehind : 1);
    Run &forward = runs.emplace_back(rate, "attention", elem, 2 * product);
    forward.add(q).add(q).add(q).absent().results().add(q).add(sums, ZCCRT_F32).ints("causal", {causal});
    Run &backward = runs.emplace_back(rate, "attention_grad", elem, 5 * product);
    backward.add(q).add(q).add(q).add(q).absent().add(q).add(sums, ZCCRT_F32);
    backward.results().add(q).add(q).add(q).ints("causal", {causal});
  }
}

/// Those of a residual network: of nine pixels and of one, with much to see and with many filters, and by every other pixel; with
/// their channels in blocks where block-channels has them so.
static void addConvolutions(std::vector<Run> &runs, int32_t elem) {
  constexpr int64_t kBatch = 4;
  struct {
    int64_t from, to, side, window, stride;
  } const forms[] = {{64, 64, 56, 3, 1},  {256, 256, 14, 3, 1},  {512, 512, 7, 3, 1}, {512, 512, 4, 3, 1},
                     {64, 256, 56, 1, 1}, {1024, 256, 14, 1, 1}, {256, 512, 28, 1, 2}};
  for (auto [from, to, side, window, stride] : forms) {
    const int64_t out = (side - 1) / stride + 1;
    auto image = [&](int64_t channels, int64_t side, int64_t block) {
      return block > 1 ? Shape{kBatch, channels / block, side, side, block} : Shape{kBatch, channels, side, side};
    };
    const Shape w{to, from, window, window};
    KernelRun plain("conv", elem);
    plain.add(image(from, side, 1)).add(w).results().add(image(to, out, 1)).window(window, stride);
    const int64_t block = plain.withCall(1, zccrt::cpu::convBlock);
    const Shape x = image(from, side, block), y = image(to, out, block);
    const double bytes = double(zccrt::cpu::elemBytes(elem));
    auto add = [&](Rate rate, const char *kernel, const Shape &a, const Shape &b, const Shape &result) {
      const double filters = double(window * window * from * to), places = double(kBatch * out * out);
      Run &r = runs.emplace_back(rateOf(rate, elem), kernel, elem, 2.0 * filters * places);
      r.filterBytes = bytes * filters;
      r.imageBytes = bytes * double(kBatch * (from * side * side + to * out * out));
      r.add(a).add(b).results().add(result).window(window, stride);
    };
    add(Rate::Convolution, "conv", x, w, y);
    add(Rate::ConvolutionInput, "conv_grad_input", y, w, x);
    add(Rate::ConvolutionWeight, "conv_grad_weight", x, y, w);
  }
}

// ---- what the times say

/// Seconds for one of each kind of work, none below 0, that the times are made of, with the least squares of relative errors.
static std::array<double, 3> partsOf(llvm::ArrayRef<std::array<double, 3>> work, llvm::ArrayRef<double> seconds) {
  constexpr int kRounds = 2000; // of one unknown after the other
  std::array<double, 3> parts{};
  for (int round = 0; round < kRounds; ++round)
    for (size_t j = 0; j < parts.size(); ++j) {
      double up = 0, down = 0;
      for (size_t i = 0; i < work.size(); ++i) {
        const double scaled = work[i][j] / seconds[i];
        double others = 0;
        for (size_t k = 0; k < parts.size(); ++k)
          others += k == j ? 0 : parts[k] * work[i][k] / seconds[i];
        up += scaled * (1 - others);
        down += scaled * scaled;
      }
      parts[j] = std::max(0.0, up / down);
    }
  return parts;
}

/// Of the seconds that a library's kernel takes on data from memory, which goes at `memoryRate` bytes a second, its own without
/// what is fetched: what the cost model adds up (workSeconds), the other way round.
static double ownSeconds(const Run &r, double memoryRate) {
  constexpr double kLeast = 0.25; // of the seconds
  const double seconds = r.typical(), memory = double(r.bytes()) / memoryRate;
  const double own = seconds >= 1.5 * memory ? seconds - memory / 2 : 2 * (seconds - memory);
  return std::max(own, kLeast * seconds);
}

static void addConvolutionRates(Profile::Rates &rates, llvm::ArrayRef<Run> runs, double memoryRate) {
  constexpr double kFastest = 1e15; // what takes no time
  for (size_t low : {0, 1})
    for (size_t kind = 0; kind < kConvolutions; ++kind) {
      const Rate rate = Rate(size_t(Rate::Convolution) + low * kProductRates + kind);
      const size_t filters = size_t(Rate::Filters) + low * 2 * kConvolutions + kind;
      std::vector<std::array<double, 3>> work;
      std::vector<double> seconds;
      for (const Run &r : runs)
        if (r.rate == rate) {
          work.push_back({r.flops, r.filterBytes, r.imageBytes});
          seconds.push_back(ownSeconds(r, memoryRate));
        }
      const auto parts = partsOf(work, seconds);
      const Rate each[] = {rate, Rate(filters), Rate(filters + kConvolutions)};
      for (size_t i = 0; i < parts.size(); ++i)
        rates[each[i]] = 1 / std::max(parts[i], 1 / kFastest);
    }
}

/// The mean of what single runs of a class reach, in the time they take for an operation: no run counts for more than another.
static void addProductRates(Profile::Rates &rates, llvm::ArrayRef<Run> runs, double memoryRate) {
  std::map<Rate, std::pair<double, int>> each; // seconds for one operation, summed
  for (const Run &r : runs) {
    each[r.rate].first += ownSeconds(r, memoryRate) / r.flops;
    each[r.rate].second += 1;
  }
  for (auto &[rate, sum] : each)
    rates[rate] = sum.second / sum.first;
}

// ---- rounds

struct RateRounds::Parts {
  std::vector<Run> runs;
  std::map<Rate, std::vector<double>> loops; ///< seconds for one of what is counted, each round
};

RateRounds::RateRounds(int threads, const Profile &ways) : threads_(threads), parts_(std::make_unique<Parts>()) {
  for (int32_t elem : {ZCCRT_F32, ZCCRT_BF16}) {
    addProducts(parts_->runs, elem);
    addAttention(parts_->runs, elem);
    addConvolutions(parts_->runs, elem);
  }
  for (Run &r : parts_->runs)
    if (auto c = r.withCall(threads, [&](const zccrt_call *call) { return zccrt::cpu::wayCase(r.kernel(), call); }))
      r.way(ways.wayOf(*c, threads));
}

RateRounds::~RateRounds() = default;

void RateRounds::measure(double seconds) {
  const double share = seconds / double(parts_->runs.size() + loopRates().size());
  for (Run &r : parts_->runs)
    measureInTurn(r, threads_, share);
  for (const LoopRate &l : loopRates())
    if (threads_ > 1 || l.rate != Rate::Teams)
      parts_->loops[l.rate].push_back(1 / l.measure(threads_, share));
}

Profile::Rates RateRounds::rates() const {
  Profile::Rates rates;
  for (auto &[rate, measured] : parts_->loops)
    rates[rate] = 1 / quiet(measured);
  addProductRates(rates, parts_->runs, rates[Rate::Bytes]);
  addConvolutionRates(rates, parts_->runs, rates[Rate::Bytes]);
  return rates;
}

double zcc::measureCopy(double seconds) {
  const int64_t bytes = beyondCaches();
  Buffer to(bytes), from(bytes);
  memset(from.data(), 1, size_t(bytes));
  memset(to.data(), 2, size_t(bytes));
  return double(bytes) / typicalSeconds(seconds, [&] { memcpy(to.data(), from.data(), size_t(bytes)); });
}
