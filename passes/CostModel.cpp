// Counts operations and bytes of each node, and predicts a step's time from what the machine does of them a second.
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
  double sum = 0;
  for (size_t i = 0; i < 2 * kProductRates; ++i)
    sum += all[i];
  return sum;
}

static double secondsOf(const NodeCost &c, const Machine &m, Rate r) { return c[r] / m[r]; }

double NodeCost::computeSeconds(const Machine &m) const {
  double sum = secondsOf(*this, m, Rate::Transcendentals);
  for (size_t i = 0; i < 2 * kProductRates; ++i)
    sum += secondsOf(*this, m, Rate(i));
  return sum;
}

double NodeCost::seconds(const Machine &m) const {
  double most = computeSeconds(m);
  for (Rate r : {Rate::Bytes, Rate::Link, Rate::HostCopy, Rate::Disk})
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

/// Functions in an expression that take as long as an exponential.
static int transcendentalsIn(const Scalar &s) {
  int n =
      s.kind == Scalar::Call && !llvm::StringSwitch<bool>(s.text)
                                     .Cases("sqrt", "max", "min", "abs", "floor", "ceil", "round", "sign", "isnan", "isinf", true)
                                     .Cases("rsqrt", "fmod", "mod", true)
                                     .Default(false);
  for (auto &a : s.args)
    n += transcendentalsIn(*a);
  return n;
}

static void addArithmetic(NodeCost &c, const Node &n) {
  c[workOf(n)] += flopsOf(n);
  if (n.op->isElementwise() && !n.results.empty())
    c[Rate::Transcendentals] += double(transcendentalsIn(scalarOf(*n.op))) * double(n.result()->type.localCount());
}

/// Bytes that one rank sends of the collective that a node is or starts.
static double sentBy(const Node &n, int ranks) {
  double bytes = 0;
  for (Value *v : n.operands())
    bytes += double(v->type.count()) * double(elemBytes(v->type.elem));
  return performed(n)->sends * (bytes * (ranks - 1) / ranks);
}

/// What moves operand i of a transfer.
static EngineKind moverOf(const Node &n, unsigned i) {
  Space from = n.operand(i)->type.space, to = n.result(i)->type.space;
  if (from == Space::Nvme || to == Space::Nvme)
    return EngineKind::Disk;
  return to == Space::Host ? EngineKind::ToHost : EngineKind::FromHost;
}

static double movedBytes(const Node &n, unsigned i) { return double(n.result(i)->type.localBytes()); }
static bool transfers(const Node &n) { return performed(n)->structural == Structural::Transfer; }

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
  if (n.op->isFused())
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
  constexpr double kLeastShared = 32768; // bytes that threads share, as the runtime's threadsFor
  c[Rate::Teams] = c[Rate::Bytes] >= kLeastShared;
  return c;
}

// ---- steps

llvm::StringRef zcc::engineName(EngineKind e) {
  static constexpr llvm::StringRef kNames[kEngines] = {"compute", "collectives", "copies to host", "copies from host", "disk"};
  return kNames[size_t(e)];
}

namespace {
/// The engines' clocks while a function's nodes are walked in their order.
class Clocks {
public:
  explicit Clocks(const Machine &machine) : machine(machine) {}
  void pass(const Node &n, const NodeCost &c);
  /// When all engines are done.
  double end() const { return *std::max_element(free.begin(), free.end()); }
  const std::array<double, kEngines> &busySeconds() const { return busy; }

private:
  /// When what begins now is done.
  double run(EngineKind e, double seconds);
  void move(const Node &n, const NodeCost &c);

  const Machine &machine;
  std::array<double, kEngines> free{}, busy{}; ///< compute's is where the program is
  llvm::DenseMap<const Value *, double> done;  ///< of futures
};
} // namespace

double Clocks::run(EngineKind e, double seconds) {
  double &clock = free[size_t(e)];
  clock = std::max(clock, free[size_t(EngineKind::Compute)]) + seconds;
  busy[size_t(e)] += seconds;
  return clock;
}

/// A collective or a transfer, started or not.
void Clocks::move(const Node &n, const NodeCost &c) {
  std::vector<double> at;
  if (transfers(n)) {
    for (unsigned i = 0; i < n.numOperands(); ++i) {
      EngineKind e = moverOf(n, i);
      at.push_back(run(e, movedBytes(n, i) / machine[e == EngineKind::Disk ? Rate::Disk : Rate::HostCopy]));
    }
  } else {
    at.assign(n.results.size(),
              run(machine.collectivesCompute ? EngineKind::Compute : EngineKind::Collectives, c.seconds(machine)));
  }
  double &now = free[size_t(EngineKind::Compute)];
  for (size_t i = 0; i < n.results.size(); ++i)
    if (n.result(i)->type.isFuture)
      done[n.result(i)] = at[i];
    else
      now = std::max(now, at[i]);
}

void Clocks::pass(const Node &n, const NodeCost &c) {
  double &now = free[size_t(EngineKind::Compute)];
  if (n.op->structural == Structural::Wait)
    now = std::max(now, done.lookup(n.operand(0)));
  else if (movesBetweenRanks(n) || transfers(n))
    move(n, c);
  else
    run(EngineKind::Compute, c.seconds(machine));
}

static void addSent(StepCost &step, const Node &n, const NodeCost &c, double times) {
  if (transfers(n))
    for (unsigned i = 0; i < n.numOperands(); ++i)
      step.sent[(spaceName(n.operand(i)->type.space) + " to " + spaceName(n.result(i)->type.space)).str()] +=
          times * movedBytes(n, i);
  else if (c[Rate::Link] > 0)
    step.sent[performed(n)->name] += times * c[Rate::Link];
}

double StepCost::diskWrites() const {
  double bytes = 0;
  for (auto &[name, count] : sent)
    if (llvm::StringRef(name).ends_with("to nvme"))
      bytes += count;
  return bytes;
}

/// The name of what is busy longest; of the compute engine's work, of what takes most of it.
static std::string boundBy(const StepCost &step, double compute, double memory, double communication) {
  auto longest = std::max_element(step.busy.begin(), step.busy.end()) - step.busy.begin();
  switch (EngineKind(longest)) {
  case EngineKind::Disk:
    return "disk";
  case EngineKind::ToHost:
  case EngineKind::FromHost:
    return "host copies";
  case EngineKind::Collectives:
    return "communication";
  case EngineKind::Compute:
    break;
  }
  return communication > std::max(compute, memory) ? "communication" : memory > compute ? "memory" : "compute";
}

StepCost zcc::costOfStep(const Module &m, const Options &o, const Machine &machine) {
  StepCost step;
  double compute = 0, memory = 0, communication = 0;
  bool trains = m.function("micro");
  for (auto &f : m.functions) {
    if (trains ? f->name != "micro" && f->name != "update" : f->name != "eval")
      continue;
    double times = f->name == "micro" ? double(o.gradAccum) / batchesPerCall(m) : 1;
    Clocks clocks(machine);
    for (auto &n : f->nodes) {
      NodeCost c = costOf(*n, m.ranks);
      clocks.pass(*n, c);
      step.flops += times * c.flops();
      addSent(step, *n, c, times);
      if (transfers(*n))
        continue;
      double &kind = c[Rate::Link] > 0                                                   ? communication
                     : c.computeSeconds(machine) > c[Rate::Bytes] / machine[Rate::Bytes] ? compute
                                                                                         : memory;
      kind += times * c.seconds(machine);
    }
    step.seconds += times * clocks.end(); // nothing that a function starts goes on behind it
    for (size_t e = 0; e < kEngines; ++e)
      step.busy[e] += times * clocks.busySeconds()[e];
  }
  step.boundBy = boundBy(step, compute, memory, communication);
  return step;
}
