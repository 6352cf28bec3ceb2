#include "passes/fuse/Operands.h"
#include "ir/Builder.h"
#include "ir/Control.h"
#include "ir/Op.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

using namespace zcc;

Node *zcc::splatConstant(Value *v) {
  while (v->def && (v->def->op == &ops::broadcast || v->def->op == &ops::reshape || v->def->op == &ops::transpose))
    v = v->def->operand(0);
  if (!v->def || v->def->op != &ops::constant)
    return nullptr;
  const Attr *a = v->def->attrs.find("value");
  if (!a)
    return nullptr;
  if (auto *i = std::get_if<std::vector<int64_t>>(a))
    return i->size() == 1 ? v->def : nullptr;
  if (auto *d = std::get_if<std::vector<double>>(a))
    return d->size() == 1 ? v->def : nullptr;
  return v->def; // a single number
}

Value *zcc::copyOf(Function &f, Node *before, Value *v) {
  Loc loc = before          ? before->loc
            : v->def        ? v->def->loc
            : v->isGlobal() ? static_cast<GlobalValue *>(v)->loc
            : f.isBody      ? callersOf(f)[0]->loc
                            : makeLoc(v->name);
  Builder b(f, before, loc ? loc : makeLoc(v->name));
  return b.make(ops::copy, {v}, {}, v->name);
}

void zcc::eraseDead(Function &f) {
  llvm::DenseSet<const Value *> results(f.results.begin(), f.results.end());
  llvm::SetVector<Node *> work;
  for (auto &n : f.nodes)
    work.insert(n.get());
  while (!work.empty()) {
    Node *n = work.pop_back_val();
    bool isResult = llvm::any_of(n->results, [&](auto &r) { return results.contains(r.get()); });
    if (!n->op->isPure() || n->hasUses() || isResult)
      continue;
    for (Value *v : n->operands())
      if (v && v->def)
        work.insert(v->def);
    n->erase();
  }
}
