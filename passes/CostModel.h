// What a node costs: floating-point operations, bytes moved, the time that a machine takes for them.
#pragma once

#include "ir/Graph.h"
#include "passes/Pass.h"
#include <array>

namespace zcc {

enum class Rate {
#define ZCC_RATE(NAME, KEY, SCALING) NAME,
#include "passes/Rates.def"
};
inline constexpr size_t kRates = 0
#define ZCC_RATE(NAME, KEY, SCALING) +1
#include "passes/Rates.def"
    ;
llvm::StringRef rateKey(Rate r);                                ///< in a profile
inline constexpr size_t kProductRates = size_t(Rate::LowLarge); ///< of f32; so many of 16-bit floats follow
/// The least extent of a large product, and of a narrow one: below, libraries do worse.
inline constexpr int64_t kLargeProduct = 128, kNarrowProduct = 32;
inline constexpr size_t kConvolutions = 3; ///< kinds: forward, gradients of the input and of the weight
/// What a step touches before caches forget, whatever the machine: how much of it they keep shows in the rate.
inline constexpr double kNearBytes = 16 << 20;

/// What a rank sends in a collective that buffers in caches keep up with, bytes.
inline constexpr double kShortLink = 4 << 20;

/// A number for each rate.
struct PerRate {
  std::array<double, kRates> all{};
  double &operator[](Rate r) { return all[size_t(r)]; }
  double operator[](Rate r) const { return all[size_t(r)]; }
};

/// Rates of the machine that computes, of one rank.
struct Machine : PerRate {
  /// `flops`: of all products; nothing else takes time but what is given.
  Machine(double flops, double bytes, double link);
  bool collectivesCompute = true; ///< collectives take the cores that compute
  bool hostComputes = true;       ///< likewise what computes in host memory
};

/// One node, once.
struct NodeCost : PerRate {
  void add(const NodeCost &c, double times = 1);
  double flops() const;
  double sentBytes() const;                      ///< by a rank to others
  double computeSeconds(const Machine &m) const; ///< of arithmetic alone
  double memorySeconds(const Machine &m) const;
  double startSeconds(const Machine &m) const; ///< until threads, or a device, have begun
  double takenSeconds(const Machine &m) const; ///< that what computes meanwhile is kept from its cores, where those move it
  double seconds(const Machine &m) const;
};
NodeCost costOf(const Node &n, int ranks);

/// What a node reads or writes of a value's memory.
struct Touched {
  const Value *base;
  double bytes;
};
std::vector<Touched> touchedBy(const Node &n);

/// What works beside the others.
enum class EngineKind { Compute, Host, Collectives, ToHost, FromHost, Disk };
inline constexpr size_t kEngines = 6;
llvm::StringRef engineName(EngineKind e);

/// Whether a node is a transfer, or starts one.
bool transfers(const Node &n);
/// What moves operand i of a transfer, and how many bytes.
EngineKind moverOf(const Node &n, unsigned i);
double movedBytes(const Node &n, unsigned i);
/// The rate of what is moved from one space to another.
Rate rateOfMove(Space from, Space to);
NodeCost costOfMove(const Node &n, unsigned i);

} // namespace zcc
