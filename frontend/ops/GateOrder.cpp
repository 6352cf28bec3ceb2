// Sees through the slices and the concatenation by which exporters reorder gates.
#include "frontend/ops/GateOrder.h"

using namespace zcc;

namespace {
/// Rows [begin, end) of a value.
struct RowsOf {
  Value *whole;
  int64_t begin, end;
};
} // namespace

/// What a slice along the first axis takes.
static std::optional<RowsOf> rowsOf(Value *v) {
  Node *n = v->def;
  if (!n || !n->is(ops::slice))
    return std::nullopt;
  auto starts = n->attrs.ints("starts"), ends = n->attrs.ints("ends"), steps = n->attrs.ints("steps");
  const Type &from = n->operand(0)->type, &to = v->type;
  for (size_t i = 0; i < starts.size(); ++i)
    if (steps[i] != 1 || (i && from.dims[i] != to.dims[i]))
      return std::nullopt;
  return RowsOf{n->operand(0), starts[0], ends[0]};
}

std::optional<KeptGates> zcc::keptGates(const Val &weights, int64_t hidden) {
  Value *v = weights.value;
  while (v && v->def && v->def->op->reshapes) // a direction's axis
    v = v->def->operand(0);
  if (!v || !v->def || !v->def->is(ops::concat) || v->def->attrs.i("axis") != 0 || v->type.dims != weights.type.dims)
    return std::nullopt;
  KeptGates kept;
  Value *whole = nullptr;
  for (Value *part : v->def->operands()) {
    auto rows = rowsOf(part);
    if (!rows || (whole && rows->whole != whole) || rows->begin % hidden || rows->end % hidden)
      return std::nullopt;
    whole = rows->whole;
    for (int64_t at = rows->begin; at < rows->end; at += hidden)
      kept.block.push_back(at / hidden);
  }
  std::vector<int64_t> sorted = kept.block;
  llvm::sort(sorted);
  for (size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != int64_t(i))
      return std::nullopt;
  if (!whole || whole->type.dims != weights.type.dims)
    return std::nullopt;
  kept.weights = Emitter::of(whole);
  return kept;
}

Val zcc::asKept(Emitter &e, const Val &bias, llvm::ArrayRef<int64_t> block, int64_t hidden) {
  if (llvm::is_sorted(block))
    return bias;
  Vals parts(block.size());
  for (size_t gate = 0; gate < block.size(); ++gate)
    parts[block[gate]] = e.slice(bias, 0, int64_t(gate) * hidden, int64_t(gate + 1) * hidden);
  return e.concat(parts, 0);
}
