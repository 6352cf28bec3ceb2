#include "passes/fuse/Operands.h"
#include "ir/Builder.h"
#include "ir/Control.h"
#include "ir/Op.h"

using namespace zcc;

Node *zcc::splatConstant(Value *v) {
  while (v && v->def && v->def->op->view && !v->def->is(ops::slice))
    v = v->def->operand(0);
  if (!isConstant(v))
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
