// A model whose weights are 16-bit floats trains as if it had been exported in f32.
//
//   param %w : bf16[64x16] = "mlp.data"[0, 2048] {trained, exported, onnx = "w"}
//   func @micro(%x : bf16[8x64]) -> loss {
//     %y = matmul %x, %w                      : bf16[8x16]
//     %f = cast %y {to = "f32"}               : f32[8x16]
// becomes
//   param %w : f32[64x16] = "mlp.data"[0, 2048] bf16 {trained, exported, exported_as = "bf16", onnx = "w"}
//   func @micro(%x : bf16[8x64]) -> loss {
//     %x1 = cast %x {to = "f32"}              : f32[8x64]
//     %y = matmul %x1, %w                     : f32[8x16]
//
// Optimizers' small steps would be lost in 16-bit weights. What computes in 16 bits is for `lower-precision` to say, as of any
// other model. Inputs and outputs stay as the model has them, but the loss.
#include "passes/train/RaisePrecision.h"
#include "ir/Builder.h"
#include "ir/Control.h"
#include "ir/Verifier.h"
#include "passes/Pass.h"
#include "passes/Refusal.h"
#include "llvm/ADT/DenseMap.h"

using namespace zcc;

namespace {
class Raising {
public:
  explicit Raising(Module &m) : m_(m) {}
  llvm::Error run();

private:
  void raiseGlobals();
  llvm::Error raise(Function &f);
  llvm::Error raise(Node &n);
  llvm::Error raiseBodies(Node &n);
  Value *wide(Value *v, Function &f, Node *before);

  Module &m_;
  llvm::DenseMap<Value *, Value *> wide_; ///< what stays narrow (inputs, constants, draws), in f32
};
} // namespace

/// All of them: 16 bits of a frozen weight would have to be widened for each use.
void Raising::raiseGlobals() {
  for (auto &g : m_.globals) {
    const Elem e = g->type.elem;
    if (!isFloat16(e))
      continue;
    g->type.elem = Elem::F32;
    if (g->init.kind == Init::File && !g->init.elem)
      g->init.elem = e;
    if (g->exported)
      g->attrs.set("exported_as", elemName(e).str());
  }
}

Value *Raising::wide(Value *v, Function &f, Node *before) {
  if (!v || !isFloat16(v->type.elem))
    return v;
  Value *&known = wide_[v];
  if (!known)
    known = Builder(f, before, v->def ? v->def->loc : makeLoc(v->name)).cast(v, Elem::F32);
  return known;
}

llvm::Error Raising::raiseBodies(Node &n) {
  if (!callsBodies(*n.op))
    return llvm::Error::success();
  auto outside = std::move(wide_);
  for (Function *body : bodiesOf(n)) {
    if (!body)
      continue;
    for (auto &a : body->args)
      if (isFloat16(a->type.elem))
        a->type.elem = Elem::F32;
    if (auto e = raise(*body))
      return e;
    for (Value *&v : body->results)
      v = wide(v, *body, nullptr);
  }
  wide_ = std::move(outside);
  return llvm::Error::success();
}

llvm::Error Raising::raise(Node &n) {
  if (n.op->leaf)
    return llvm::Error::success();
  for (unsigned i = 0; i < n.numOperands(); ++i)
    n.setOperand(i, wide(n.operand(i), *n.parent(), &n));
  if (auto e = raiseBodies(n))
    return e;
  if (n.is(ops::cast) && isFloat16(n.result()->type.elem))
    n.attrs.set("to", elemName(Elem::F32).str());
  if (n.is(ops::cast) && n.attrs.s("to") == elemName(n.operand(0)->type.elem)) {
    n.result()->replaceAllUsesWith(n.operand(0));
    n.erase();
    return llvm::Error::success();
  }
  if (auto e = retype(n, m_))
    return errorAt(n.loc, "'" + llvm::Twine(n.op->name) + "' in f32: " + llvm::toString(std::move(e)));
  return llvm::Error::success();
}

llvm::Error Raising::raise(Function &f) {
  std::vector<Node *> nodes;
  for (auto &n : f.nodes)
    nodes.push_back(n.get());
  for (Node *n : nodes)
    if (auto e = raise(*n))
      return e;
  return llvm::Error::success();
}

llvm::Error Raising::run() {
  if (m_.has(Property::Differentiated))
    return refuse("raise-precision must come before differentiate");
  raiseGlobals();
  unshareBodies(m_);
  const std::string loss = m_.attrs.s("loss");
  for (auto &f : m_.functions) {
    if (f->isBody)
      continue;
    llvm::SmallVector<Elem, 4> outputs;
    for (Value *v : f->results)
      outputs.push_back(v->type.elem);
    wide_.clear();
    if (auto e = raise(*f))
      return e;
    for (size_t i = 0; i < outputs.size(); ++i) {
      Value *&v = f->results[i];
      if (i < f->resultNames.size() && f->resultNames[i] == loss)
        v = wide(v, *f, nullptr);
      else if (v->type.elem != outputs[i])
        v = Builder(*f, nullptr, v->def ? v->def->loc : makeLoc("output")).cast(v, outputs[i]);
    }
  }
  return llvm::Error::success();
}

const GlobalValue *zcc::narrowWeight(const Module &m) {
  if (!m.function("micro") || m.function("algorithm"))
    return nullptr;
  for (auto &g : m.globals)
    if (g->trained && isFloat16(g->type.elem))
      return g.get();
  return nullptr;
}

llvm::Expected<bool> zcc::raisePrecision(Module &m, PassContext &ctx) {
  const GlobalValue *weight = narrowWeight(m);
  if (!weight)
    return false;
  std::string elem = elemName(weight->type.elem).str();
  ctx.remarks.push_back("weights that are " + elem + " in the file are trained in f32, and exported as " + elem);
  if (auto e = Raising(m).run())
    return e;
  return true;
}
