// Gathers whose indices are known: a run of consecutive rows is a slice, whose gradient is no scatter.
#include "passes/simplify/Simplify.h"

using namespace zcc;

/// gather(x, [3, 4, 5]) along an axis -> reshape(slice(x, 3:6))
static bool gatherOfRun(Node &n, Rewriter &r) {
  Value *x = n.operand(0), *idx = n.operand(1);
  int64_t axis = n.attrs.i("axis"), extent = x->type.dims[axis];
  if (idx->type.count() == 0 || idx->type.count() > extent)
    return false;
  const Tensor *t = r.constants.value(idx);
  if (!t)
    return false;
  int64_t start = t->i[0] < 0 ? t->i[0] + extent : t->i[0];
  for (int64_t k = 0; k < t->count(); ++k)
    if ((t->i[k] < 0 ? t->i[k] + extent : t->i[k]) != start + k)
      return false;
  if (start < 0 || start + t->count() > extent)
    return false;
  Builder b = r.before(n);
  Value *rows = b.slice(x, axis, start, start + t->count());
  r.replace(n.result(), b.reshape(rows, n.result()->type.dims));
  return true;
}

llvm::ArrayRef<Rule> zcc::indexRules() {
  static const Rule rules[] = {{&ops::gather, gatherOfRun}};
  return rules;
}
