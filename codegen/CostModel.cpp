#include "codegen/CostModel.h"
#include "ir/Op.h"
#include "passes/Liveness.h"
#include <algorithm>

using namespace zcc;

Machine zcc::machineFor(llvm::StringRef isa, int threads) {
  // One core of a Sapphire Rapids: dnnl_sgemm 185 GFLOP/s with AVX-512, 90 when held to AVX2, 25 with SSE;
  // streams 12 GB/s a thread until about eight of them fill the memory's channels; collectives in shared memory 5 GB/s.
  double core = isa.contains("avx512f") ? 185e9 : isa.contains("avx2") ? 90e9 : 25e9;
  return {core * threads, 12e9 * std::min(threads, 8), 5e9};
}

// ---- nodes

static double flopsOf(const Node &n) {
  if (n.op->view || n.op->structural || n.op == &ops::constant)
    return 0;
  if (n.op->flops)
    return n.op->flops(n);
  if (n.op->reduction)
    return double(n.operand(0)->type.count());
  return n.results.empty() ? 0 : double(n.result()->type.count());
}

/// Bytes of the collective that a node is or starts, that one rank sends: (N-1)/N of the tensor, twice for a sum that all get.
static double sentBy(const Node &n, llvm::StringRef op, int ranks) {
  double bytes = double(n.operand(0)->type.count()) * double(elemBytes(n.operand(0)->type.elem));
  double part = bytes * (ranks - 1) / ranks;
  return op == ops::all_reduce.name ? 2 * part : part;
}

/// "all_reduce" if the node is one or starts one; empty if it moves nothing between ranks.
static std::string collectiveOf(const Node &n) {
  if (n.op == &ops::start)
    return n.attrs.s("op");
  bool is = n.op == &ops::all_reduce || n.op == &ops::all_gather || n.op == &ops::reduce_scatter;
  return is ? n.op->name : "";
}

double NodeCost::seconds(const Machine &m) const {
  return std::max({flops / m.flopsPerSecond, bytes / m.bytesPerSecond, sent / m.linkBytesPerSecond});
}

NodeCost zcc::costOf(const Node &n, int ranks) {
  NodeCost c;
  std::string collective = collectiveOf(n);
  if (!collective.empty()) {
    c.sent = sentBy(n, collective, ranks);
    return c;
  }
  if (!ownsMemory(n))
    return c;
  c.flops = flopsOf(n);
  if (n.op == &ops::fused)
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
  for (auto &f : m.functions) {
    if (f->name != "micro" && f->name != "update")
      continue;
    double times = f->name == "micro" ? o.gradAccum : 1;
    for (auto &n : f->nodes) {
      NodeCost c = costOf(*n, m.ranks);
      step.flops += times * c.flops;
      double t = times * c.seconds(machine);
      if (c.sent > 0) {
        step.sent[collectiveOf(*n)] += times * c.sent;
        communication += t;
      } else if (c.flops / machine.flopsPerSecond > c.bytes / machine.bytesPerSecond) {
        compute += t;
      } else {
        memory += t;
      }
    }
  }
  step.seconds = compute + memory + communication;
  step.boundBy = communication > std::max(compute, memory) ? "communication"
                 : memory > compute                        ? "memory"
                                                           : "compute";
  return step;
}

// ---- libraries

int64_t zcc::libraryBytes(const Module &m, const Options &o) {
  // Measured as resident bytes less the arena of small programs on Debian 12 (oneDNN 2.6, Open MPI 4.1).
  constexpr int64_t kMiB = 1 << 20;
  constexpr int64_t kProcess = 24 * kMiB;   // code and data of the program, libc, libstdc++, oneDNN
  constexpr int64_t kMpi = 22 * kMiB;       // MPI_Init with two ranks or more
  constexpr int64_t kThread = kMiB / 4;     // stack and OpenMP state of a worker
  constexpr int64_t kPacking = 5 * kMiB;    // what sgemm packs into, a thread
  bool hasProducts = false;
  for (auto &f : m.functions)
    for (auto &n : f->nodes)
      hasProducts |= n->op == &ops::matmul || n->op == &ops::conv || n->op == &ops::attention;
  return kProcess + (m.ranks > 1 ? kMpi : 0) +
         o.threads * (kThread + (hasProducts ? kPacking : 0));
}
