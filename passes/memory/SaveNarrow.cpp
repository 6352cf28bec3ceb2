// What the backward needs of the forward is kept in 16 bits.
//
//   %g = gelu %x1                             : f32[8x64]    // %x1 = cast %x {to = "f32"}, %x : bf16
//   %y = cast %g {to = "bf16", !rounds}       : bf16[8x64]
//   ...                                                      // the loss, then the backward:
//   %e = erf %x1                              : f32[8x64]
//   %z = mul %g, %dz                          : f32[8x64]
// becomes
//   %x2 = cast %x {!kept = 1, to = "f32"}         : f32[8x64]
//   %e = erf %x2                              : f32[8x64]
//   %g1 = cast %y {!kept = 1, to = "f32"}         : f32[8x64]
//   %z = mul %g1, %dz                         : f32[8x64]
//
// Where the forward has rounded, the backward reads the rounded value, as PyTorch's does. `fuse` computes nothing from a `kept`
// cast in the forward, where its f32 result would have to be stored.
#include "ir/Builder.h"
#include "passes/Pass.h"

using namespace zcc;

/// The 16-bit value that stands for `v` in the backward, or nullptr.
static Value *narrowOf(Value *v) {
  if (v->type.elem != Elem::F32)
    return nullptr;
  if (v->def && v->def->op->converts() && elemBytes(v->def->operand(0)->type.elem) == 2)
    return v->def->operand(0);
  for (auto &u : v->uses)
    if (u.node->attrs.i("rounds"))
      return u.node->result();
  return nullptr;
}

llvm::Expected<bool> zcc::saveNarrow(Module &m, PassContext &) {
  Function *f = m.function("micro");
  bool changed = false;
  if (!f)
    return changed;
  std::vector<Node *> backward;
  for (auto &n : f->nodes)
    if (n->phase != Phase::Forward)
      backward.push_back(n.get());
  for (Node *n : backward)
    for (unsigned i = 0; i < n->numOperands(); ++i) {
      Value *v = n->operand(i);
      Value *narrow = v && (!v->def || v->def->phase == Phase::Forward) ? narrowOf(v) : nullptr;
      if (!narrow || !isFloat16(narrow->type.elem) || n == narrow->def)
        continue;
      Node *kept = Builder(*f, n, n->loc).node(ops::cast, {narrow}, {{"to", "f32"}});
      kept->attrs.set("kept", int64_t(1));
      n->setOperand(i, kept->result());
      changed = true;
    }
  return changed;
}
