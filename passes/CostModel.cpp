// Counts operations and bytes of each node, and predicts a step's time from what the machine does of both a second.
#include "passes/CostModel.h"
#include "ir/Control.h"
#include "ir/Op.h"
#include "passes/memory/Liveness.h"
#include <algorithm>

using namespace zcc;

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

/// Whether the transfer of operand i is between memory and a disk.
static bool usesDisk(const Node &n, unsigned i) {
  return n.operand(i)->type.space == Space::Nvme || n.result(i)->type.space == Space::Nvme;
}

double NodeCost::seconds(const Machine &m) const {
  return std::max({flops / m.flopsPerSecond, bytes / m.bytesPerSecond, sent / m.linkBytesPerSecond, disk / m.diskBytesPerSecond,
                   host / m.hostBytesPerSecond});
}

NodeCost zcc::costOf(const Node &n, int ranks) {
  NodeCost c;
  if (movesBetweenRanks(n)) {
    c.sent = sentBy(n, ranks);
    return c;
  }
  if (performed(n)->structural == Structural::Transfer) {
    for (unsigned i = 0; i < n.numOperands(); ++i)
      (usesDisk(n, i) ? c.disk : c.host) += double(n.result(i)->type.localBytes());
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
    double trips = n.op->isScan() ? double(ScanForm(n).trips) : 1;
    c.flops *= trips;
    c.bytes *= trips;
    return c;
  }
  c.flops = flopsOf(n);
  if (n.op->isFused())
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
  double compute = 0, memory = 0, communication = 0, disk = 0, host = 0;
  bool trains = m.function("micro");
  for (auto &f : m.functions) {
    if (trains ? f->name != "micro" && f->name != "update" : f->name != "eval")
      continue;
    double times = f->name == "micro" ? o.gradAccum : 1;
    for (auto &n : f->nodes) {
      NodeCost c = costOf(*n, m.ranks);
      step.flops += times * c.flops;
      double t = times * c.seconds(machine);
      if (c.disk > 0 || c.host > 0) { // beside compute
        for (unsigned i = 0; i < n->numOperands(); ++i)
          step.sent[(spaceName(n->operand(i)->type.space) + " to " + spaceName(n->result(i)->type.space)).str()] +=
              times * double(n->result(i)->type.localBytes());
        disk += times * c.disk / machine.diskBytesPerSecond;
        host += times * c.host / machine.hostBytesPerSecond;
      } else if (c.sent > 0) {
        step.sent[performed(*n)->name] += times * c.sent;
        communication += t;
      } else if (c.flops / machine.flopsPerSecond > c.bytes / machine.bytesPerSecond) {
        compute += t;
      } else {
        memory += t;
      }
    }
  }
  step.seconds = std::max({compute + memory + communication, disk, host});
  if (disk == step.seconds && disk > 0)
    step.boundBy = "disk";
  else if (host == step.seconds && host > 0)
    step.boundBy = "host copies";
  else
    step.boundBy = communication > std::max(compute, memory) ? "communication" : memory > compute ? "memory" : "compute";
  return step;
}
