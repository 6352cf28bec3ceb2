// 16-bit floats for parameters, activations and, through differentiation, gradients.
//
//   param %w : f32[64x16] = "mlp.data"[0, 4096] {trained, exported, onnx = "w"}
//   func @micro(%x : f32[8x64], ...) {
//     %y = matmul %x, %w                      : f32[8x16]
//     %p = softmax %y {axis = 1}              : f32[8x16]
// becomes
//   param %w : bf16[64x16] = "mlp.data"[0, 4096] f32 {trained, master = "w.master", onnx = "w"}
//   state %w.master : f32[64x16] = "mlp.data"[0, 4096] {exported, of = "w", onnx = "w"}
//   func @micro(%x : f32[8x64], ...) {
//     %x1 = cast %x {to = "bf16"}             : bf16[8x64]
//     %y = matmul %x1, %w                     : bf16[8x16]
//     %y1 = cast %y {to = "f32"}              : f32[8x16]
//     %p = softmax %y1 {axis = 1}             : f32[8x16]
//     %p1 = cast %p {to = "bf16", !rounds}    : bf16[8x16]
//
// By each operator's policy. Compute: 16-bit operands. F32: computed in f32 and rounded, if 16-bit data went in; sums and losses
// stay f32. Follow: as the operands; where 16 bits meet f32 data or a constant that 16 bits cannot hold, computed in f32 and
// rounded. All parameters are 16 bit and have an f32 master, as in DeepSpeed's 16-bit engines.
#include "ir/Builder.h"
#include "ir/Control.h"
#include "ir/Tensor.h"
#include "ir/Verifier.h"
#include "passes/Pass.h"
#include "passes/Refusal.h"
#include "llvm/ADT/DenseMap.h"
#include <cmath>

using namespace zcc;

namespace {
class Lowering {
public:
  Lowering(Module &m, const Options &o) : m_(m), o_(o), low_(o.dtype) {}
  llvm::Error run();

private:
  void lowerParams();
  llvm::SmallVector<Elem, 4> outputsOf(const Function &f) const;
  llvm::Error lower(Function &f, llvm::ArrayRef<Elem> outputs);
  llvm::Error lower(Node &n);
  llvm::Error lowerBodies(Node &n);
  llvm::Error compute(Node &n, Elem e);
  llvm::Error setTypes(Node &n);
  Value *as(Value *v, Elem e, Node &user);
  void round(Node &n, unsigned result);
  void clampMasks(Node &n);

  bool isLow(const Value *v) const { return v && v->type.elem == low_; }
  static bool isF32(const Value *v) { return v && v->type.elem == Elem::F32; }
  bool isExact(const Value *v) const;

  Module &m_;
  const Options &o_;
  const Elem low_;
  llvm::DenseMap<Value *, Value *> other_; ///< a value in the other precision
};
} // namespace

// ---- parameters

/// Whether a product or a lookup reads `v`, also through views.
static bool isWeight(const Value *v) {
  return llvm::any_of(v->uses, [](auto &u) {
    const Node &n = *u.node;
    return n.op->view ? isWeight(n.result()) : n.op->precision == Precision::Compute || n.is(ops::gather);
  });
}

/// Numbers drawn at random depend on the name: the master draws what the parameter would have.
static Init masterInit(const GlobalValue &param) {
  Init i = param.init;
  if ((i.kind == Init::Uniform || i.kind == Init::Normal) && i.from.empty())
    i.from = param.name;
  return i;
}

void Lowering::lowerParams() {
  std::vector<GlobalValue *> params;
  for (auto &g : m_.globals)
    if (g->role == GlobalValue::Param && isF32(g.get()))
      params.push_back(g.get());
  for (GlobalValue *p : params) {
    // A frozen parameter has no master: it is exported from its file.
    if (!p->trained && (p->init.kind != Init::File || !isWeight(p)))
      continue;
    if (!p->attrs.has("exported_as") && !p->trained && p->exported)
      p->attrs.set("exported_as", elemName(Elem::F32).str());
    if (p->trained) {
      GlobalValue *master = m_.addGlobal(GlobalValue::State, p->name + ".master", p->type, masterInit(*p));
      master->attrs.set("of", p->name);
      if (p->attrs.has("exported_as"))
        master->attrs.set("exported_as", p->attrs.s("exported_as"));
      p->attrs.erase("exported_as");
      master->exported = p->exported;
      master->onnxName = p->onnxName;
      master->loc = p->loc;
      p->exported = false;
      p->attrs.set("master", master->name);
    }
    if (p->init.kind == Init::File && !p->init.elem)
      p->init.elem = Elem::F32;
    p->type.elem = low_;
  }
}

// ---- values

bool Lowering::isExact(const Value *v) const {
  if (!isConstant(v))
    return false;
  return llvm::all_of(v->def->attrs.floats("value"), [&](double x) { return x != x || roundTo(low_, x) == x; });
}

/// A conversion within a tile is of that tile.
static void noteTile(Node &cast, const Node *from, const Node &user) {
  if (!from || !from->attrs.has("tile") || from->attrs.ints("tile") != user.attrs.ints("tile"))
    return;
  cast.attrs.set("tile", from->attrs.ints("tile"));
}

/// `v` in another precision, converted once, before the first that wants it.
Value *Lowering::as(Value *v, Elem e, Node &user) {
  if (v->type.elem == e)
    return v;
  if (Value *known = other_.lookup(v))
    return known;
  Value *other = Builder(*user.parent(), &user, v->def ? v->def->loc : user.loc).cast(v, e);
  noteTile(*other->def, v->def, user);
  other_[v] = other;
  other_[other] = v; // never converted there and back
  return other;
}

/// What reads result i later reads it in 16 bits.
void Lowering::round(Node &n, unsigned i) {
  Value *v = n.result(i);
  Node *rounded = Builder(*n.parent(), n.next(), n.loc).node(ops::cast, {v}, {{"to", elemName(low_).str()}});
  rounded->attrs.set("rounds", int64_t(1));
  for (auto &u : v->uses)
    noteTile(*rounded, &n, *u.node);
  v->replaceAllUsesWith(rounded->result());
  rounded->setOperand(0, v);
}

/// Result types from the operands' new types.
llvm::Error Lowering::setTypes(Node &n) {
  if (auto e = retype(n, m_))
    return errorAt(n.loc, "'" + llvm::Twine(n.op->name) + "' in " + elemName(low_) + ": " + llvm::toString(std::move(e)));
  return llvm::Error::success();
}

/// Makes all operands `e` that are f32 or 16 bit.
llvm::Error Lowering::compute(Node &n, Elem e) {
  for (unsigned i = 0; i < n.numOperands(); ++i)
    if (isF32(n.operand(i)) || isLow(n.operand(i)))
      n.setOperand(i, as(n.operand(i), e, n));
  return setTypes(n);
}

/// Operators whose large constants are masks; what others compute with one is a number that counts, in f32.
static bool mayMask(const Node &n) {
  return !n.op->isElementwise() || n.is(ops::add) || n.is(ops::sub) || n.is(ops::select) || n.is(ops::max) || n.is(ops::min);
}

/// What stands for minus infinity in f32 masks becomes the least number of 16 bits, not minus infinity: a row that is masked
/// as a whole stays finite.
void Lowering::clampMasks(Node &n) {
  constexpr double kMaskLike = 1e30;
  const double most = low_ == Elem::BF16 ? 0x1.fep127 : 65504;
  bool meetsLow = mayMask(n) && llvm::any_of(n.operands(), [&](Value *v) { return isLow(v); });
  for (unsigned i = 0; i < n.numOperands(); ++i) {
    Value *v = n.operand(i);
    if (!isF32(v) || !isConstant(v))
      continue;
    std::vector<double> values = v->def->attrs.floats("value");
    bool changed = false;
    for (double &x : values)
      if (std::isfinite(x) && std::fabs(x) > most && (meetsLow || std::fabs(x) > kMaskLike)) {
        x = std::copysign(most, x);
        changed = true;
      }
    if (!changed)
      continue;
    Attrs attrs = v->def->attrs;
    attrs.set("value", values);
    n.setOperand(i, Builder(*n.parent(), &n, v->def->loc).make(ops::constant, {}, attrs, v->name));
  }
}

// ---- nodes

/// Sums keep their precision for what follows.
static bool staysWide(const Node &n) {
  return n.op->staysWide || llvm::all_of(n.results, [](auto &r) {
           return llvm::all_of(r->uses, [](auto &u) { return u.node->op->precision == Precision::F32; });
         });
}

/// The elements of results, which they keep.
llvm::SmallVector<Elem, 4> Lowering::outputsOf(const Function &f) const {
  llvm::SmallVector<Elem, 4> outputs;
  for (const Value *v : f.results)
    outputs.push_back(v->isGlobal() && isLow(v) ? Elem::F32 : v->type.elem);
  return outputs;
}

/// Bodies get their operands as they are now, but return what they did and carry f32, so that sums over many iterations
/// lose nothing.
llvm::Error Lowering::lowerBodies(Node &n) {
  for (unsigned i = 0; i < carriedBy(n); ++i)
    if (isLow(n.operand(i)))
      n.setOperand(i, as(n.operand(i), n.result(i)->type.elem, n));
  auto outside = std::move(other_);
  for (Function *body : bodiesOf(n)) {
    const llvm::SmallVector<Elem, 4> outputs = outputsOf(*body);
    unsigned first = n.numOperands() - unsigned(body->args.size()); // behind a condition
    for (auto &a : body->args)
      a->type.elem = n.operand(first + a->index)->type.elem;
    if (auto e = lower(*body, outputs))
      return e;
  }
  other_ = std::move(outside);
  return llvm::Error::success();
}

llvm::Error Lowering::lower(Node &n) {
  if (callsBodies(*n.op))
    return lowerBodies(n);
  if (assigns(n)) {
    n.setOperand(1, as(n.operand(1), n.operand(0)->type.elem, n));
    return llvm::Error::success();
  }
  clampMasks(n);
  bool low = false, wide = false, inexact = false;
  for (Value *v : n.operands()) {
    low |= isLow(v);
    wide |= isF32(v) && !isConstant(v);
    inexact |= isF32(v) && isConstant(v) && !isExact(v);
  }
  if ((!low && !wide && !inexact) || n.op->converts() || n.op->leaf)
    return llvm::Error::success();
  if (n.op->precision == Precision::Compute)
    return compute(n, low_);
  if (!low)
    return llvm::Error::success();
  if (n.op->precision == Precision::Follow && !(n.op->isElementwise() && (wide || inexact)))
    return compute(n, low_);
  if (auto e = compute(n, Elem::F32))
    return e;
  // A mask in f32 leaves scores as they are for a softmax, as under torch.autocast: rounded, a row that is masked whole would be
  // minus infinity everywhere.
  if (isF32(n.result()) && !((n.op->precision == Precision::F32 || (wide && mayMask(n))) && staysWide(n)))
    round(n, 0);
  return llvm::Error::success();
}

llvm::Error Lowering::lower(Function &f, llvm::ArrayRef<Elem> outputs) {
  other_.clear();
  std::vector<Node *> nodes;
  for (auto &n : f.nodes)
    nodes.push_back(n.get());
  for (Node *n : nodes)
    if (auto e = lower(*n))
      return e;
  for (auto [v, elem] : llvm::zip(f.results, outputs))
    if (v->type.elem != elem)
      v = Builder(f, nullptr, v->def ? v->def->loc : makeLoc("output")).cast(v, elem);
  return llvm::Error::success();
}

llvm::Error Lowering::run() {
  if (m_.has(Property::Differentiated))
    return refuse("lower-precision must come before differentiate");
  lowerParams();
  unshareBodies(m_);
  for (auto &f : m_.functions)
    if (f->name == "micro" || f->name == "eval")
      if (auto e = lower(*f, outputsOf(*f)))
        return e;
  if (low_ == Elem::F16 && m_.function("micro")) {
    Init scale;
    scale.kind = Init::Splat;
    scale.a = o_.lossScale > 0 ? o_.lossScale : std::ldexp(1.0, o_.initialScalePower);
    m_.addGlobal(GlobalValue::State, "loss_scale", Type(Elem::F32, {}), scale)->loc = makeLoc("loss scale");
  }
  return llvm::Error::success();
}

llvm::Expected<bool> zcc::lowerPrecision(Module &m, PassContext &ctx) {
  if (!ctx.options.isLow())
    return false;
  if (auto e = Lowering(m, ctx.options).run())
    return e;
  return true;
}
