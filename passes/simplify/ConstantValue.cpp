// Evaluates constant nodes with the interpreter and remembers the results.
#include "passes/simplify/ConstantValue.h"
#include "ir/Builder.h"
#include "ir/Interpreter.h"
#include "ir/Steps.h"
#include <cstring>

using namespace zcc;

bool zcc::isFoldable(const Node &n) {
  if (!n.op->isPure() || n.op->random || n.op->structural || n.results.empty())
    return false;
  return llvm::all_of(n.results, [](auto &r) {
    const Type &t = r->type;
    return t.shards == 1 && t.addends == 1 && !t.isFuture && t.space == Space::Device;
  });
}

bool zcc::isConstantLeaf(const Value *v) {
  if (v->isGlobal())
    return static_cast<const GlobalValue *>(v)->role == GlobalValue::Const;
  return v->def && v->def->numOperands() == 0 && isFoldable(*v->def);
}

static const Tensor *remember(std::unordered_map<const Value *, Tensor> &known, Value *v, Tensor t) {
  return &(known[v] = std::move(t));
}

const Tensor *ConstantValues::value(Value *v, int depth) {
  ++steps;
  auto i = known_.find(v);
  if (i != known_.end())
    return &i->second;
  if (v->type.count() > kMaxElements)
    return nullptr;
  if (v->isGlobal()) {
    auto *g = static_cast<GlobalValue *>(v);
    if (g->role != GlobalValue::Const)
      return nullptr;
    auto bytes = module_.bytesOf(*g);
    if (!bytes) {
      llvm::consumeError(bytes.takeError()); // a random or missing initializer is no constant
      return nullptr;
    }
    return remember(known_, v, tensorFromBytes(v->type, *bytes));
  }
  if (!v->def || depth == 0 || !isFoldable(*v->def))
    return nullptr;
  std::vector<const Tensor *> in;
  for (Value *o : v->def->operands()) {
    in.push_back(o ? value(o, depth - 1) : nullptr);
    if (o && !in.back())
      return nullptr;
  }
  Compute c = v->type.elem == Elem::F64 ? Compute::F64 : Compute::F32;
  auto out = evalNode(*v->def, in, c);
  if (!out) {
    llvm::consumeError(out.takeError()); // what cannot be computed stays, and fails where it is run
    return nullptr;
  }
  for (auto [r, t] : llvm::zip(v->def->results, *out))
    remember(known_, r.get(), std::move(t));
  return &known_[v];
}

std::optional<double> ConstantValues::splat(Value *v) const {
  while (v && v->def && (v->def->op->view || v->def->op->isIdentity()))
    v = v->def->operand(0);
  if (!v)
    return std::nullopt;
  if (v->isGlobal()) {
    auto *g = static_cast<GlobalValue *>(v);
    if (g->role != GlobalValue::Const)
      return std::nullopt;
    if (g->init.kind == Init::Zero)
      return 0;
    if (g->init.kind == Init::Splat)
      return g->init.a;
    return std::nullopt;
  }
  if (!isConstant(v))
    return std::nullopt;
  std::vector<double> values = v->def->attrs.floats("value");
  if (values.size() != 1)
    return std::nullopt;
  return values[0];
}
