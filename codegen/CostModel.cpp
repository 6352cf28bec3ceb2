// Counts operations and bytes of each node, and predicts a step's time from what the machine does of both a second.
#include "codegen/CostModel.h"
#include "ir/Control.h"
#include "ir/Op.h"
#include "passes/memory/Liveness.h"
#include "runtime/cpu/Wide.h"
#include <algorithm>

using namespace zcc;

Machine zcc::machineFor(llvm::StringRef isa, int threads) {
  // One core of a Sapphire Rapids: dnnl_sgemm 185 GFLOP/s with AVX-512, 90 when held to AVX2, 25
  // with SSE; streams 12 GB/s a thread until about eight of them fill the memory's channels;
  // collectives in shared memory 5 GB/s.
  double core = isa.contains("avx512f") ? 185e9 : isa.contains("avx2") ? 90e9 : 25e9;
  return {core * threads, 12e9 * std::min(threads, 8), 5e9};
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

/// Bytes that one rank sends of the collective that a node is or starts.
static double sentBy(const Node &n, int ranks) {
  double bytes = 0;
  for (Value *v : n.operands())
    bytes += double(v->type.count()) * double(elemBytes(v->type.elem));
  return performed(n)->sends * (bytes * (ranks - 1) / ranks);
}

double NodeCost::seconds(const Machine &m) const {
  return std::max({flops / m.flopsPerSecond, bytes / m.bytesPerSecond, sent / m.linkBytesPerSecond});
}

NodeCost zcc::costOf(const Node &n, int ranks) {
  NodeCost c;
  if (movesBetweenRanks(n)) {
    c.sent = sentBy(n, ranks);
    return c;
  }
  if (!ownsMemory(n))
    return c;
  if (callsBodies(*n.op)) {
    for (const Function *body : bodiesOf(n)) { // of a cond, the dearer one
      NodeCost inside;
      for (auto &member : body->nodes) {
        NodeCost one = costOf(*member, ranks);
        inside.flops += one.flops;
        inside.bytes += one.bytes;
      }
      c.flops = std::max(c.flops, inside.flops);
      c.bytes = std::max(c.bytes, inside.bytes);
    }
    double trips = n.op->structural == Structural::Scan ? double(ScanForm(n).trips) : 1;
    c.flops *= trips;
    c.bytes *= trips;
    return c;
  }
  c.flops = flopsOf(n);
  if (n.op->structural == Structural::Fused)
    if (const Function *k = n.parent()->module->function(n.attrs.s("kernel")))
      for (auto &member : k->nodes)
        c.flops += flopsOf(*member);
  for (Value *v : n.operands()) {
    if (!v)
      continue;
    // A broadcast is read from what it looks into.
    auto s = storageOf(v);
    c.bytes += double(std::min(v->type.localBytes(), s ? s->base->type.localBytes() : INT64_MAX));
  }
  for (auto &r : n.results)
    c.bytes += double(r->type.localBytes());
  return c;
}

// ---- steps

StepCost zcc::costOfStep(const Module &m, const Options &o, const Machine &machine) {
  StepCost step;
  double compute = 0, memory = 0, communication = 0;
  bool trains = m.function("micro");
  for (auto &f : m.functions) {
    if (trains ? f->name != "micro" && f->name != "update" : f->name != "eval")
      continue;
    double times = f->name == "micro" ? o.gradAccum : 1;
    for (auto &n : f->nodes) {
      NodeCost c = costOf(*n, m.ranks);
      step.flops += times * c.flops;
      double t = times * c.seconds(machine);
      if (c.sent > 0) {
        step.sent[performed(*n)->name] += times * c.sent;
        communication += t;
      } else if (c.flops / machine.flopsPerSecond > c.bytes / machine.bytesPerSecond) {
        compute += t;
      } else {
        memory += t;
      }
    }
  }
  step.seconds = compute + memory + communication;
  step.boundBy = communication > std::max(compute, memory) ? "communication" : memory > compute ? "memory" : "compute";
  return step;
}

// ---- libraries

/// What sgemm copies blocks of its operands into, for one thread: the blocks are at most 9984 columns and 384 rows of a result,
/// 384 deep (oneDNN 2.6 for AVX-512; measured from 256x1024x1024 to 1024x50257x768). Of 16-bit products by blocks of rows, which
/// use the columns once, only rows are.
static int64_t packingBytes(const Node &n) {
  constexpr int64_t kRows = 384, kColumns = 9984, kDepth = 384;
  const Type &y = n.result()->type;
  int64_t k = n.operand(0)->type.dims.back(), rows = y.dims[y.ndim() - 2], columns = y.dims.back();
  if (elemBytes(y.elem) == 2) {
    if (zccrt::cpu::computesNatively(int32_t(y.elem)))
      return 0;
    if (int64_t block = y.ndim() == 2 ? zccrt::cpu::wideBlockRows(rows, k, columns) : 0; block && block <= kRows)
      columns = 0;
  }
  return (std::min(columns, kColumns) + std::min(rows, kRows)) * std::min(k, kDepth) * int64_t(sizeof(float));
}

int64_t zcc::libraryBytes(const Module &m, const Options &o) {
  // Resident bytes less the arena, of programs on Debian 12 with oneDNN 2.6 and Open MPI 4.1.
  constexpr int64_t kKiB = 1 << 10, kMiB = 1 << 20;
  constexpr int64_t kProcess = 4 * kMiB;      // the program, libc, libstdc++, OpenMP
  constexpr int64_t kThread = 128 * kKiB;     // stack and OpenMP state of a worker
  constexpr int64_t kMpi = 6656 * kKiB;       // Open MPI after MPI_Init
  constexpr int64_t kWindow = kMiB;           // a rank's buffers in shared memory, which all ranks map
  constexpr int64_t kMostWindows = 64;        // ranks of one node
  constexpr int64_t kOneDnn = 11 * kMiB;      // its code, and the kernels that it generates for products
  constexpr int64_t kConvolution = 64 * kKiB; // generated code of one primitive
  constexpr int64_t kFragments = 8 * kMiB;    // sgemm allocates in each call: a heap of large blocks grows by this
  constexpr int64_t kLargePacking = 8 * kMiB;
  constexpr int64_t kHugePage = 2 * kMiB; // the end of an arena of huge pages
  constexpr int64_t kHugeArena = 16 * kMiB;
  int64_t bytes = kProcess + o.threads * kThread, packing = 0;
  bool usesOneDnn = false;
  for (auto &f : m.functions)
    for (auto &n : f->nodes) {
      usesOneDnn |= n->op->library != Library::None;
      if (n->op->library == Library::Convolution)
        bytes += kConvolution;
      if (n->op->library == Library::Product)
        packing = std::max(packing, packingBytes(*n));
    }
  if (usesOneDnn)
    bytes += kOneDnn + packing * o.threads + (packing * o.threads >= kLargePacking ? kFragments : 0);
  if (m.ranks > 1)
    bytes += kMpi + std::min<int64_t>(m.ranks, kMostWindows) * kWindow;
  if (m.attrs.i("arena_bytes") >= kHugeArena)
    bytes += kHugePage;
  return bytes;
}
