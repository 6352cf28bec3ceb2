// Each reader of a 16-bit value widens it by itself, behind views and broadcasts: a load does that for free, an f32 copy would be
// stored.
//
//   %w = cast %x {to = "f32"}                      %b = broadcast %x {dims = [4, 8]}
//   %y = mul %w, %a : f32[4x8]         ->          %w = cast %b {to = "f32"}
//   %z = transpose %w                              %y = mul %w, %a : f32[4x8]
//                                                  %t = transpose %x
//                                                  %z = cast %t {to = "f32"}
#include "ir/Builder.h"
#include "ir/Control.h"
#include "passes/Pass.h"
#include "passes/fuse/Operands.h"

using namespace zcc;

static bool castsTo32(const Node &n) {
  if (!n.op->converts() || n.result()->type.elem != Elem::F32)
    return false;
  return isFloat16(n.operand(0)->type.elem);
}

/// Gives one use of a cast a cast of its own; returns whether there was anything to do.
static bool sinkInto(Node &cast, const Value::Use &use, bool isOnly) {
  Node &user = *use.node;
  Builder b(*user.parent(), &user, cast.loc);
  Value *narrow = cast.operand(0);
  if (user.op->view)
    narrow = b.make(*user.op, {narrow}, user.attrs);
  else if (user.op->isElementwise())
    narrow = b.expand(narrow, user.result()->type.dims);
  if (isOnly && narrow == cast.operand(0))
    return false;
  Value *wide = b.make(ops::cast, {narrow}, cast.attrs);
  if (user.op->view)
    user.result()->replaceAllUsesWith(wide);
  else
    user.setOperand(use.index, wide);
  return true;
}

static bool sinkCasts(Function &f) {
  bool changed = false;
  for (Node *n = f.first(); n; n = n->next()) {
    if (!castsTo32(*n))
      continue;
    Value::Uses uses = n->result()->uses;
    for (auto &u : uses)
      changed |= sinkInto(*n, u, uses.size() == 1);
  }
  return changed;
}

llvm::Expected<bool> zcc::sinkCasts(Module &m, PassContext &) {
  bool changed = false;
  for (auto &f : m.functions)
    if (!f->isKernel && ::sinkCasts(*f)) {
      changed = true;
      eraseDeadNodes(*f);
    }
  return changed;
}
