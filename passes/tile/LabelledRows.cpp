// Whether what leaves a RowRegion is needed in rows with a label alone: losses, which are 0 in the others, and what is masked by
// the labels before rows are mixed, as metrics are.
#include "passes/simplify/ConstantValue.h"
#include "passes/tile/RowRegion.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

using namespace zcc;

namespace {
class LabelledRows {
public:
  LabelledRows(const Module &m, const RowRegion &r, const Node &losses)
      : constants(m), region(r), labels(elementsOf(losses.operand(1))), ignore(ignoredBy(losses)) {}
  bool areLosses(const Value &v) const;
  bool areAllRead(const Value &v);

private:
  static const Value *elementsOf(const Value *v);
  bool isMask(const Value *v, const Value &of) const;
  bool masks(const Value::Use &u) const;

  ConstantValues constants;
  const RowRegion &region;
  const Value *labels;
  int64_t ignore;
  llvm::DenseSet<const Value *> seen;
};
} // namespace

int64_t zcc::ignoredBy(const Node &losses) { return losses.attrs.i("ignore", -100); }

/// Whether a value is losses of rows, 0 where a label is ignored.
static bool isLoss(const Value *v) { return v->def->is(ops::cross_entropy) && v->index == 0 && v->def->attrs.i("has_ignore", 1); }

/// What a value has the elements of, one by one.
const Value *LabelledRows::elementsOf(const Value *v) {
  while (v->def && (v->def->op->reshapes || v->def->op->converts()))
    v = v->def->operand(0);
  return v;
}

bool LabelledRows::areLosses(const Value &v) const {
  return isLoss(&v) && ignoredBy(*v.def) == ignore && elementsOf(v.def->operand(1)) == labels;
}

/// Whether it says of each row of a value whether it has a label.
bool LabelledRows::isMask(const Value *v, const Value &of) const {
  const Node *n = elementsOf(v)->def;
  if (!n || !n->is(ops::ne) || v->type.dims != of.type.dims)
    return false;
  auto compares = [&](unsigned i) {
    return elementsOf(n->operand(i)) == labels && constants.splat(n->operand(1 - i)) == double(ignore);
  };
  return compares(0) || compares(1);
}

/// Whether a reader leaves rows without a label out.
bool LabelledRows::masks(const Value::Use &u) const {
  const Node &n = *u.node;
  const Value &v = *n.operand(u.index);
  if (n.is(ops::and_))
    return isMask(n.operand(1 - u.index), v);
  return n.is(ops::select) && u.index == 1 && isMask(n.operand(0), v) && constants.splat(n.operand(2)) == 0.0;
}

/// Whether some reader takes rows without a label for what they are.
bool LabelledRows::areAllRead(const Value &v) {
  if (!seen.insert(&v).second)
    return false;
  if (v.isReturned())
    return true;
  return llvm::any_of(v.uses, [&](const Value::Use &u) {
    if (region.contains(*u.node) || masks(u))
      return false;
    const bool keepsRows = u.node->op->reshapes || (u.node->op->isElementwise() && u.node->op->isPure());
    return !keepsRows || llvm::any_of(u.node->results, [&](auto &r) { return areAllRead(*r); });
  });
}

const Node *RowRegion::rowLosses(const Module &m) const {
  auto loss = llvm::find_if(outputs, isLoss);
  if (loss == outputs.end())
    return nullptr;
  LabelledRows labelled(m, *this, *(*loss)->def);
  auto isKept = [&](const Value *v) {
    return labelled.areLosses(*v) || (v->type.elem != Elem::Bool && !labelled.areAllRead(*v));
  };
  return llvm::all_of(outputs, isKept) ? (*loss)->def : nullptr;
}
