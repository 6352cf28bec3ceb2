// Constants that a library kernel or a caller reads become const globals: those of equal elements stay as they are for generated
// loops, which have them in their text. What is written over its operand gets a constant one filled anew each time instead: a
// const global would be kept all the time, and copied.
//
//   %i = constant {value = [2, 0]} : i64[2]        const %i : i64[2] = [2, 0]
//   %y = gather %x, %i                       ->      ...
//                                                  %y = gather %x, %i
#include "ir/Control.h"
#include "ir/Interpreter.h"
#include "ir/Op.h"
#include "passes/Pass.h"
#include "passes/fuse/KernelShape.h"
#include "passes/fuse/Operands.h"
#include "passes/memory/Liveness.h"
#include "llvm/ADT/DenseSet.h"
#include <cmath>

using namespace zcc;

static bool fillConstantBases(Function &f) {
  bool changed = false;
  for (auto &n : f.nodes)
    for (auto [result, operand] : inplacePairs(*n))
      if (splatConstant(n->operand(operand))) {
        n->setOperand(operand, copyOf(f, n.get(), n->operand(operand)));
        changed = true;
      }
  return changed;
}

static bool isForKernels(const Value::Use &u) { return !isGenerated(*u.node) && !u.node->op->view; }

/// Whether a double holds the value: the initial value of a global is one.
static bool isExactly(const Node &n) { return isFloat(n.result()->type.elem) || std::fabs(n.attrs.floats("value")[0]) <= 0x1p53; }

/// A global with the value of a constant.
static llvm::Expected<GlobalValue *> globalFor(Module &m, Node &n, bool splat) {
  const Value &v = *n.result();
  GlobalValue *g;
  if (v.type.count() == 0) {
    g = m.addGlobal(GlobalValue::Const, v.name, v.type, Init());
  } else if (splat && v.type.count() > kMostInline &&
             isExactly(n)) { // may be larger than the memory of the machine that compiles
    Init i;
    i.kind = Init::Splat;
    i.a = n.attrs.floats("value")[0];
    if (isFloat(v.type.elem))
      i.a = roundTo(v.type.elem, i.a);
    g = m.addGlobal(GlobalValue::Const, v.name, v.type, i);
  } else {
    auto t = evalNode(n, {});
    if (!t)
      return t.takeError();
    g = m.addConst(v.name, v.type, tensorToBytes((*t)[0]));
  }
  g->loc = n.loc;
  return g;
}

static llvm::Expected<bool> globalize(Module &m, Function &f) {
  bool changed = false;
  llvm::DenseSet<const Value *> results(f.results.begin(), f.results.end());
  for (auto &n : f.nodes) {
    if (n->op->leaf != Leaf::Constant)
      continue;
    Value *v = n->result();
    bool splat = splatConstant(v) != nullptr, isResult = results.contains(v);
    if (!v->hasUses() && !isResult)
      continue;
    if (splat && !isResult && llvm::none_of(v->uses, isForKernels))
      continue;
    auto g = globalFor(m, *n, splat);
    if (!g)
      return g.takeError();
    Value::Uses uses = v->uses;
    for (auto &u : uses)
      if (!splat || isForKernels(u))
        u.node->setOperand(u.index, *g);
    std::replace(f.results.begin(), f.results.end(), v, static_cast<Value *>(*g));
    changed = true;
  }
  return changed;
}

llvm::Expected<bool> zcc::globalizeConstants(Module &m, PassContext &) {
  bool changed = false;
  for (auto &f : m.functions) {
    if (f->isKernel)
      continue;
    bool filled = fillConstantBases(*f);
    auto made = globalize(m, *f);
    if (!made)
      return made;
    if (filled || *made)
      eraseDeadNodes(*f);
    changed |= filled || *made;
  }
  return changed;
}
