// Counts operations and bytes of each node.
#include "passes/CostModel.h"
#include "ir/Control.h"
#include "ir/Op.h"
#include "ir/Scalar.h"
#include "passes/memory/Liveness.h"
#include "llvm/ADT/StringSwitch.h"
#include <algorithm>
#include <limits>

using namespace zcc;

// ---- rates

Machine::Machine(double flops, double bytes, double link) {
  all.fill(std::numeric_limits<double>::infinity());
  std::fill_n(all.begin(), 2 * kProductRates, flops);
  (*this)[Rate::Bytes] = bytes;
  (*this)[Rate::Link] = link;
}

double NodeCost::flops() const {
  double sum = (*this)[Rate::HostFlops];
  for (size_t i = 0; i < 2 * kProductRates; ++i)
    sum += all[i];
  return sum;
}

static double secondsOf(const NodeCost &c, const Machine &m, Rate r) { return c[r] / m[r]; }

double NodeCost::computeSeconds(const Machine &m) const {
  double sum = 0;
  for (Rate r : {Rate::Transcendentals, Rate::HostFlops, Rate::HostTranscendentals})
    sum += secondsOf(*this, m, r);
  for (size_t i = 0; i < 2 * kProductRates; ++i)
    sum += secondsOf(*this, m, Rate(i));
  return sum;
}

double NodeCost::seconds(const Machine &m) const {
  double most = computeSeconds(m);
  for (Rate r : {Rate::Bytes, Rate::HostBytes, Rate::Link, Rate::HostCopy, Rate::Disk})
    most = std::max(most, secondsOf(*this, m, r));
  return most + secondsOf(*this, m, Rate::Teams);
}

// ---- nodes

static double flopsOf(const Node &n) {
  if (n.op->view || n.op->structural || n.op->leaf == Leaf::Constant)
    return 0;
  if (n.op->flops)
    return n.op->flops(n);
  if (n.op->reduction)
    return double(n.operand(0)->type.count());
  return n.results.empty() ? 0 : double(n.result()->type.count());
}

/// Which rate a node's operations go at.
static Rate workOf(const Node &n) {
  Rate r = Rate::Large;
  if (n.op->library == Library::None)
    return r;
  const Type &x = n.operand(n.op->library == Library::Product ? firstFactor(n) : 0)->type;
  if (n.op->library == Library::Attention)
    r = Rate::Attention;
  else if (n.op->library == Library::Convolution)
    r = Rate::Convolution;
  else {
    const Type &y = n.result()->type;
    int64_t columns = y.dims.back(), depth = x.dims.back();
    int64_t rows = n.operand(firstFactor(n) + 1)->type.ndim() == 2 && columns ? y.count() / columns
                                                                              : y.dims[y.ndim() - 2]; // one larger matrix
    int64_t least = std::min({rows, columns, depth});
    r = least >= kLargeProduct ? Rate::Large : least >= kNarrowProduct ? Rate::Narrow : Rate::Thin;
  }
  return elemBytes(x.elem) == 2 ? Rate(size_t(r) + kProductRates) : r;
}

/// What an expression takes, in exponentials of f32 (measured on vectors of 512 bits).
static double exponentialsIn(const Scalar &s) {
  double n = 0;
  if (s.kind == Scalar::Call)
    n = llvm::StringSwitch<double>(s.text)
            .Cases("max", "min", "abs", "floor", "ceil", "round", "sign", "isnan", "isinf", 0.1)
            .Cases("sqrt", "rsqrt", 0.4)
            .Case("sigmoid", 1.3)
            .Case("tanh", 2)
            .Case("erf", 3)
            .Cases("sin", "cos", "tan", 5.5)
            .Case("pow", 7)
            .Default(1);
  else if (s.kind != Scalar::Name && s.kind != Scalar::Number)
    n = s.text == "/" ? 0.2 : 0.05;
  for (auto &a : s.args)
    n += exponentialsIn(*a);
  return n;
}

/// The same of a node, for each element. What has 16 bits is rounded.
static double exponentialsIn(const Node &n) {
  constexpr double kRounding = 0.25;
  const Elem to = n.result()->type.elem;
  bool isRounded = isFloat(to) && elemBytes(to) == 2 && (n.op->converts() || !n.op->exact);
  return (n.op->converts() ? 0 : exponentialsIn(scalarOf(*n.op))) + (isRounded ? kRounding : 0);
}

static void addArithmetic(NodeCost &c, const Node &n) {
  c[workOf(n)] += flopsOf(n);
  if (n.op->isElementwise() && !n.results.empty())
    c[Rate::Transcendentals] += exponentialsIn(n) * double(n.result()->type.localCount());
}

/// Bytes that one rank sends of the collective that a node is or starts.
static double sentBy(const Node &n, int ranks) {
  double bytes = 0;
  for (Value *v : n.operands())
    bytes += double(v->type.count()) * double(elemBytes(v->type.elem));
  return performed(n)->sends * (bytes * (ranks - 1) / ranks);
}

EngineKind zcc::moverOf(const Node &n, unsigned i) {
  Space from = n.operand(i)->type.space, to = n.result(i)->type.space;
  if (from == Space::Nvme || to == Space::Nvme)
    return EngineKind::Disk;
  return to == Space::Host ? EngineKind::ToHost : EngineKind::FromHost;
}

double zcc::movedBytes(const Node &n, unsigned i) { return double(n.result(i)->type.localBytes()); }
bool zcc::transfers(const Node &n) { return performed(n)->structural == Structural::Transfer; }

llvm::StringRef zcc::engineName(EngineKind e) {
  static constexpr llvm::StringRef kNames[kEngines] = {"compute",          "host", "collectives", "copies to host",
                                                       "copies from host", "disk"};
  return kNames[size_t(e)];
}

llvm::StringRef zcc::rateKey(Rate r) {
  static constexpr llvm::StringRef kKeys[kRates] = {
#define ZCC_RATE(NAME, KEY, SCALING) KEY,
#include "passes/Rates.def"
  };
  return kKeys[size_t(r)];
}

/// What a call of bodies costs: of a cond, the dearer one.
static NodeCost costOfBodies(const Node &n, int ranks) {
  NodeCost c;
  double trips = n.op->isScan() ? double(ScanForm(n).trips) : 1;
  for (const Function *body : bodiesOf(n)) {
    NodeCost inside;
    for (auto &member : body->nodes) {
      NodeCost one = costOf(*member, ranks);
      for (size_t i = 0; i < kRates; ++i)
        inside.all[i] += trips * one.all[i];
    }
    for (size_t i = 0; i < kRates; ++i)
      c.all[i] = std::max(c.all[i], inside.all[i]);
  }
  return c;
}

/// What is computed in host memory goes at the host's rates.
static NodeCost onHost(const NodeCost &c) {
  NodeCost host;
  host[Rate::HostFlops] = c.flops();
  host[Rate::HostTranscendentals] = c[Rate::Transcendentals];
  host[Rate::HostBytes] = c[Rate::Bytes];
  return host;
}

NodeCost zcc::costOf(const Node &n, int ranks) {
  NodeCost c;
  if (movesBetweenRanks(n)) {
    c[Rate::Link] = sentBy(n, ranks);
    return c;
  }
  if (transfers(n)) {
    for (unsigned i = 0; i < n.numOperands(); ++i)
      c[moverOf(n, i) == EngineKind::Disk ? Rate::Disk : Rate::HostCopy] += movedBytes(n, i);
    return c;
  }
  if (!ownsMemory(n))
    return c;
  if (callsBodies(*n.op))
    return costOfBodies(n, ranks);
  addArithmetic(c, n);
  if (runsKernel(n))
    if (const Function *k = n.parent()->module->function(n.attrs.s("kernel")))
      for (auto &member : k->nodes)
        addArithmetic(c, *member);
  for (Value *v : n.operands()) {
    if (!v)
      continue;
    // A broadcast is read from what it looks into.
    auto s = storageOf(v);
    c[Rate::Bytes] += double(std::min(v->type.localBytes(), s ? s->base->type.localBytes() : INT64_MAX));
  }
  for (auto &r : n.results)
    c[Rate::Bytes] += double(r->type.localBytes());
  if (n.op->structural == Structural::Insert) // the rest stays where it is
    c[Rate::Bytes] = 2 * double(n.operand(1)->type.localBytes());
  constexpr double kLeastShared = 32768; // bytes that threads share, as the runtime's threadsFor
  c[Rate::Teams] = c[Rate::Bytes] >= kLeastShared;
  return computeSpace(n) == Space::Host ? onHost(c) : c;
}
