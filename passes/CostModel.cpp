// Counts operations and bytes of each node.
#include "passes/CostModel.h"
#include "ir/Control.h"
#include "ir/Epilogue.h"
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
  (*this)[Rate::Operations] = flops;
  (*this)[Rate::Bytes] = (*this)[Rate::NearBytes] = bytes;
  (*this)[Rate::Link] = (*this)[Rate::ShortLink] = (*this)[Rate::NearLink] = link;
}

void NodeCost::add(const NodeCost &c, double times) {
  for (size_t i = 0; i < kRates; ++i)
    all[i] += times * c.all[i];
}

double NodeCost::flops() const {
  double sum = (*this)[Rate::HostFlops] + (*this)[Rate::Operations];
  for (size_t i = 0; i < 2 * kProductRates; ++i)
    sum += all[i];
  return sum;
}

double NodeCost::sentBytes() const { return (*this)[Rate::Link] + (*this)[Rate::ShortLink] + (*this)[Rate::NearLink]; }

static double secondsOf(const NodeCost &c, const Machine &m, Rate r) { return c[r] / m[r]; }

/// Of rates from `begin` up to `end`.
static double secondsOf(const NodeCost &c, const Machine &m, Rate begin, Rate end) {
  double sum = 0;
  for (size_t i = size_t(begin); i < size_t(end); ++i)
    sum += secondsOf(c, m, Rate(i));
  return sum;
}

/// Of generated loops.
static double loopSeconds(const NodeCost &c, const Machine &m) {
  return secondsOf(c, m, Rate::Operations, Rate::Bytes) + secondsOf(c, m, Rate::HostFlops) +
         secondsOf(c, m, Rate::HostTranscendentals);
}

double NodeCost::computeSeconds(const Machine &m) const {
  return secondsOf(*this, m, Rate(0), Rate::Operations) + loopSeconds(*this, m);
}

double NodeCost::memorySeconds(const Machine &m) const {
  return secondsOf(*this, m, Rate::Bytes) + secondsOf(*this, m, Rate::NearBytes) + secondsOf(*this, m, Rate::HostBytes);
}

double NodeCost::startSeconds(const Machine &m) const {
  return secondsOf(*this, m, Rate::Teams) + secondsOf(*this, m, Rate::Collectives) + secondsOf(*this, m, Rate::Launches);
}

double NodeCost::takenSeconds(const Machine &m) const {
  return m.hostComputes ? secondsOf(*this, m, Rate::DiskCores) + secondsOf(*this, m, Rate::DiskStarts) : 0;
}

/// What is computed and what is fetched for it overlap but for half of the shorter, as measured: libraries and loops begin and
/// end too often, and a product of few rows that adds to a large matrix waits for both in turn.
static double workSeconds(const NodeCost &c, const Machine &m) {
  const double library = secondsOf(c, m, Rate(0), Rate::Operations), loops = loopSeconds(c, m), memory = c.memorySeconds(m);
  const double overlaps = library > 0 ? library : loops;
  return std::max(overlaps, memory) + std::min(overlaps, memory) / 2 + (library > 0 ? loops : 0);
}

double NodeCost::seconds(const Machine &m) const {
  double most = workSeconds(*this, m);
  for (Rate r : {Rate::Link, Rate::ShortLink, Rate::NearLink, Rate::HostCopy})
    most = std::max(most, secondsOf(*this, m, r));
  most = std::max(most, secondsOf(*this, m, Rate::Disk) + secondsOf(*this, m, Rate::DiskWrites));
  return most + startSeconds(m);
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

/// Which of the three convolutions a node is.
static size_t convolutionKind(const Node &n) { return n.is(ops::conv_grad_input) ? 1 : n.is(ops::conv_grad_weight) ? 2 : 0; }
static bool isLow(const Type &t) { return elemBytes(t.elem) == 2; }

/// Which rate the operations of a library's kernel go at.
static Rate workOf(const Node &n) {
  const Type &x = n.operand(n.op->library == Library::Product ? firstFactor(n) : 0)->type;
  Rate r = Rate::Attention;
  if (n.op->library == Library::Convolution)
    r = Rate(size_t(Rate::Convolution) + convolutionKind(n));
  else if (n.op->library == Library::Product) {
    const Type y = productType(n);
    int64_t columns = y.dims.back(), depth = x.dims.back();
    int64_t rows = n.operand(firstFactor(n) + 1)->type.ndim() == 2 && columns ? y.count() / columns
                                                                              : y.dims[y.ndim() - 2]; // one larger matrix
    int64_t least = std::min({rows, columns, depth});
    r = least >= kLargeProduct ? Rate::Large : least >= kNarrowProduct ? Rate::Narrow : Rate::Thin;
  }
  return isLow(x) ? Rate(size_t(r) + kProductRates) : r;
}

static void addLayouts(NodeCost &c, const Node &n) {
  const size_t kind = convolutionKind(n), set = isLow(n.operand(0)->type) ? 2 * kConvolutions : 0;
  const Value *filters = kind == 2 ? n.result() : n.operand(1);
  for (const Value *v : {(const Value *)n.operand(0), (const Value *)n.operand(1), (const Value *)n.result()})
    c[Rate(size_t(v == filters ? Rate::Filters : Rate::Images) + set + kind)] += double(v->type.localBytes());
}

namespace {
/// What an expression takes: plain operations, and exponentials of f32 (measured on vectors of 512 bits).
struct Arithmetic {
  double operations = 0, exponentials = 0;
};
} // namespace

static void addArithmetic(Arithmetic &to, const Scalar &s) {
  constexpr double kChoice = 2;                        // comparison and choice
  if (s.kind == Scalar::Call && s.text == "uniform") { // but for the element, arguments are the same for all of a loop
    to.exponentials += 1;
    return;
  }
  if (s.kind == Scalar::Call) {
    double operations = llvm::StringSwitch<double>(s.text)
                            .Cases("max", "min", "abs", "floor", "ceil", "round", "sign", "isnan", "isinf", kChoice)
                            .Default(0);
    to.operations += operations;
    if (!operations)
      to.exponentials += llvm::StringSwitch<double>(s.text)
                             .Cases("sqrt", "rsqrt", 0.4)
                             .Case("sigmoid", 1.3)
                             .Case("rough_gelu_slope", 1.4)
                             .Case("tanh", 1.4)
                             .Case("erf", 2)
                             .Cases("sin", "cos", "tan", 5.5)
                             .Case("pow", 7)
                             .Default(1);
  } else if (s.text == "/" && s.kind != Scalar::Name)
    to.exponentials += 0.2;
  else if (s.kind != Scalar::Name && s.kind != Scalar::Number)
    ++to.operations;
  for (auto &a : s.args)
    addArithmetic(to, *a);
}

/// The same of a node, for each element. What has 16 bits is rounded.
static Arithmetic arithmeticOf(const Node &n) {
  constexpr double kRounding = 5;
  Arithmetic a;
  if (n.op->converts())
    a.operations = 1;
  else
    addArithmetic(a, compiledScalarOf(*n.op, n.operand(0)->type.elem));
  const Elem to = n.result()->type.elem;
  if (isFloat16(to) && (n.op->converts() || !n.op->exact))
    a.operations += kRounding;
  return a;
}

/// The runs of an innermost loop in which a reduction goes over its operand.
static double rowsOf(const Node &reduction) {
  const Dims &dims = reduction.operand(0)->type.dims;
  const std::vector<int64_t> axes = reduction.attrs.ints("axes");
  auto isReduced = [&](size_t axis) { return llvm::is_contained(axes, int64_t(axis)); };
  double rows = 1;
  size_t i = dims.size();
  while (i > 0 && isReduced(i - 1) == isReduced(dims.size() - 1))
    --i;
  while (i > 0)
    rows *= double(dims[--i]);
  return rows;
}

/// `times`: that each element is computed.
static void addArithmetic(NodeCost &c, const Node &n, double times = 1) {
  if (n.op->library != Library::None)
    c[workOf(n)] += flopsOf(n);
  else if (n.op->isElementwise() && !n.results.empty()) {
    Arithmetic a = arithmeticOf(n);
    c[Rate::Operations] += times * a.operations * double(n.result()->type.localCount());
    c[Rate::Transcendentals] += times * a.exponentials * double(n.result()->type.localCount());
  } else
    c[Rate::Operations] += flopsOf(n);
  if (n.op->library == Library::Convolution)
    addLayouts(c, n);
  if (n.op->reduction && !n.operand(0)->type.isPartitioned())
    c[Rate::Rows] += rowsOf(n);
}

namespace {
/// The passes of a kernel over its rows: one behind each reduction that others wait for. What lies on the way to a pass is read
/// and computed again in it.
class KernelPasses {
public:
  explicit KernelPasses(const Function &kernel);
  /// In how many passes a member is computed, or an argument read.
  double times(const Value *v) const { return std::max(1, llvm::popcount(in_.lookup(v))); }

private:
  static constexpr unsigned kMost = 31;
  llvm::DenseMap<const Value *, uint32_t> in_; ///< a bit for each pass
};
} // namespace

KernelPasses::KernelPasses(const Function &kernel) {
  llvm::DenseMap<const Value *, unsigned> first; // in which a value is there for the next member
  for (auto &n : kernel.nodes) {
    unsigned pass = 0;
    for (Value *v : n->operands())
      if (v)
        pass = std::max(pass, first.lookup(v));
    for (auto &r : n->results) {
      first[r.get()] = std::min(kMost, pass + (n->op->reduction ? 1 : 0));
      in_[r.get()] = n->op->reduction ? 1u << pass : 0;
    }
  }
  for (Value *v : kernel.results)
    if (!in_.lookup(v))
      in_[v] = 1u << first.lookup(v);
  for (auto &n : llvm::reverse(kernel.nodes))
    for (auto &r : n->results)
      for (Value *v : n->operands())
        if (Node *def = v ? v->def : nullptr; v && !(def && def->op->reduction))
          in_[v] |= in_.lookup(r.get());
}

/// What a call of a generated kernel computes, and what of its operands it reads again: rows stay in caches meanwhile.
static void addKernel(NodeCost &c, const Node &call, const Function &kernel) {
  KernelPasses passes(kernel);
  for (auto &member : kernel.nodes)
    addArithmetic(c, *member, member->results.empty() ? 1 : passes.times(member->result()));
  for (Rate r : {Rate::Operations, Rate::Transcendentals, Rate::Rows})
    c[r] *= double(call.attrs.i("parts", 1));                                // there is nothing else yet
  for (unsigned i = 0; i < call.numOperands() && !call.op->feedsKernel; ++i) // what follows a product reads once
    c[Rate::NearBytes] +=
        (passes.times(kernel.args[i % kernel.args.size()].get()) - 1) * double(call.operand(i)->type.localBytes());
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

double zcc::movedBytes(const Node &n, unsigned i) {
  const Type &t = n.result(i)->type;
  return double(moverOf(n, i) == EngineKind::Disk ? wholeBytes(t, kDiskBlock) : t.localBytes());
}

Rate zcc::rateOfMove(Space from, Space to) {
  return to == Space::Nvme ? Rate::DiskWrites : from == Space::Nvme ? Rate::Disk : Rate::HostCopy;
}

NodeCost zcc::costOfMove(const Node &n, unsigned i) {
  NodeCost c;
  const double bytes = movedBytes(n, i);
  c[rateOfMove(n.operand(i)->type.space, n.result(i)->type.space)] = bytes;
  if (moverOf(n, i) == EngineKind::Disk) {
    c[Rate::DiskCores] = bytes;
    c[Rate::DiskStarts] = bytes > 0;
  }
  return c;
}

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
    for (auto &member : body->nodes)
      inside.add(costOf(*member, ranks), trips);
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

/// Whether a node reads, or adds to, no more of its first operand than places that others name.
static bool looksUp(const Node &n) { return n.is(ops::gather) || n.is(ops::gather_elements) || n.is(ops::gather_nd); }
static bool scatters(const Node &n) { return n.is(ops::scatter_add) || n.is(ops::scatter_elements) || n.is(ops::scatter_nd); }

std::vector<Touched> zcc::touchedBy(const Node &n) {
  std::vector<Touched> all;
  auto add = [&](Value *v, double most) {
    // A broadcast is read from what it looks into.
    Value *base = baseOf(v);
    double bytes = double(std::min(v->type.localBytes(), base ? base->type.localBytes() : INT64_MAX));
    all.push_back({base ? base : v, std::min(bytes, most)});
  };
  constexpr double kAll = std::numeric_limits<double>::infinity();
  double most = kAll; // of the first operand, and of a result that lies there
  if (looksUp(n))
    most = double(n.result()->type.localBytes());
  else if (scatters(n))
    most = double(n.operand(2)->type.localBytes());
  else if (n.op->structural == Structural::Insert) // the rest stays where it is
    most = 0;
  for (unsigned i = 0; i < n.numOperands(); ++i)
    if (n.operand(i))
      add(n.operand(i), i ? kAll : most);
  if (n.op->structural == Structural::Insert)
    most = double(n.operand(1)->type.localBytes());
  for (auto &r : n.results) {
    add(r.get(), most);
    for (auto &use : r->uses) // what is assigned is written to its global
      if (assigns(*use.node) && use.index == 1)
        all.back().base = baseOf(use.node->operand(0));
  }
  return all;
}

NodeCost zcc::costOf(const Node &n, int ranks) {
  NodeCost c;
  if (movesBetweenRanks(n)) {
    const double bytes = sentBy(n, ranks);
    c[bytes > kShortLink ? Rate::Link : Rate::ShortLink] = bytes;
    c[Rate::Collectives] = bytes > 0;
    return c;
  }
  if (transfers(n)) {
    for (unsigned i = 0; i < n.numOperands(); ++i)
      c.add(costOfMove(n, i));
    return c;
  }
  if (!ownsMemory(n))
    return c;
  if (callsBodies(*n.op))
    return costOfBodies(n, ranks);
  addArithmetic(c, n);
  if (runsKernel(n))
    if (const Function *k = n.parent()->module->function(n.attrs.s("kernel")))
      addKernel(c, n, *k);
  for (auto &[value, bytes] : touchedBy(n))
    c[Rate::Bytes] += bytes;
  const int pieces = n.op->feedsKernel ? 2 : 1; // of work: the kernel runs behind the product, which is written and read again
  if (n.op->feedsKernel)
    c[Rate::Bytes] += 2 * double(productType(n).localBytes());
  constexpr double kLeastShared = 32768; // bytes that threads share, as the runtime's threadsFor
  c[Rate::Teams] = c[Rate::Bytes] >= kLeastShared ? pieces : 0;
  c[Rate::Launches] = pieces;
  return computeSpace(n) == Space::Host ? onHost(c) : c;
}
