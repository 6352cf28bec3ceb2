// Optimizer state, master weights and accumulated gradients live in another space (ZeRO-Offload, arXiv 2101.06840; ZeRO-Infinity,
// arXiv 2104.07857, section 5): what reads them reads a transfer, and what they become is transferred back.
//
//   state %w.m : f32[64]                 state %w.m : f32[64]@nvme
//                                        %m0, %v0 = transfer %w.m, %w.v {to = "device"}
//   %m1 = add %w.m, %g            ->     %m1 = add %m0, %g
//   assign %w.m, %m1                     %m2, %v2 = transfer %m1, %v1 {to = "nvme"}
//   assign %w.v, %v1                     assign %w.m, %m2
//                                        assign %w.v, %v2
//
// The states of one parameter go together. schedule-transfers starts and waits.
#include "ir/Builder.h"
#include "passes/Pass.h"
#include "passes/zero/Zero.h"
#include "llvm/ADT/MapVector.h"

using namespace zcc;

namespace {
using Group = llvm::SmallVector<GlobalValue *, 4>;

class Offloader {
public:
  Offloader(Module &m, Space space) : m_(m), space_(space) {}
  bool run();

private:
  void transferIn(Function &f, llvm::ArrayRef<GlobalValue *> group);
  void transferOut(Function &f, llvm::ArrayRef<GlobalValue *> group);

  Module &m_;
  Space space_;
};
} // namespace

/// One transfer in front of the first node that reads any of them.
void Offloader::transferIn(Function &f, llvm::ArrayRef<GlobalValue *> group) {
  auto at = positions(f);
  Node *first = nullptr;
  llvm::SmallVector<Value *, 4> read;
  for (GlobalValue *g : group) {
    bool isRead = false;
    for (auto &u : g->uses) {
      if (u.node->parent() != &f || (assigns(*u.node) && u.index == 0))
        continue;
      isRead = true;
      if (!first || at.lookup(u.node) < at.lookup(first))
        first = u.node;
    }
    if (isRead)
      read.push_back(g);
  }
  if (!first)
    return;
  Node *in = Builder(f, first, first->loc).node(ops::transfer, read, {{"to", spaceName(Space::Device).str()}});
  in->phase = first->phase;
  for (unsigned i = 0; i < read.size(); ++i)
    for (auto &u : std::list<Value::Use>(read[i]->uses))
      if (u.node != in && u.node->parent() == &f && !(assigns(*u.node) && u.index == 0))
        u.node->setOperand(u.index, in->result(i));
}

/// One transfer where the last of them is assigned, and all assignments behind it.
void Offloader::transferOut(Function &f, llvm::ArrayRef<GlobalValue *> group) {
  auto at = positions(f);
  llvm::SmallVector<Node *, 4> writes;
  llvm::SmallVector<Value *, 4> values;
  Node *last = nullptr;
  for (GlobalValue *g : group)
    for (auto &u : g->uses) {
      if (u.node->parent() != &f || !assigns(*u.node) || u.index != 0)
        continue;
      writes.push_back(u.node);
      values.push_back(u.node->operand(1));
      if (!last || at.lookup(u.node) > at.lookup(last))
        last = u.node;
    }
  if (!last)
    return;
  Node *out = Builder(f, last, last->loc).node(ops::transfer, values, {{"to", spaceName(space_).str()}});
  out->phase = last->phase;
  for (unsigned i = 0; i < writes.size(); ++i) {
    writes[i]->setOperand(1, out->result(i));
    if (writes[i] != last)
      writes[i]->moveBefore(last);
  }
}

bool Offloader::run() {
  llvm::MapVector<llvm::StringRef, Group> groups; // by parameter
  std::vector<std::string> names;
  for (auto &g : m_.globals)
    if (g->role == GlobalValue::State && g->attrs.has("of") && !g->type.isScalar())
      groups[names.emplace_back(g->attrs.s("of"))].push_back(g.get());
  for (auto &[param, group] : groups) {
    for (GlobalValue *g : group)
      g->type.space = space_;
    for (auto &f : m_.functions)
      if (f->isEntry()) {
        transferIn(*f, group);
        transferOut(*f, group);
      }
  }
  return !groups.empty();
}

llvm::Expected<bool> zcc::offloadStates(Module &m, PassContext &ctx) {
  Space space = ctx.options.offloadOptimizer;
  if (space != Space::Device && !ctx.options.offloads())
    ctx.remarks.push_back("host memory is the device's own on this target: --offload-optimizer=cpu moves nothing");
  return ctx.options.offloads() && Offloader(m, space).run();
}
