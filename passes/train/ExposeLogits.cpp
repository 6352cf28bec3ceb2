// A token model's logits become a further result of @eval, from which --generate draws the next token.
//
//   func @eval(%tokens : i64[2x6], %labels : i64[2x6]) -> (f32[]) {
//     %e = gather %embedding, %tokens           : f32[2x6x8]
//     ...
//     %l = matmul %h, %head                     : f32[12x50]
//     %c, %lse = cross_entropy %l, %t           : f32[12], f32[12x1]
//     ...
//     return %loss
// returns %l, too. Module attributes: `unnamed_results` gains it; `tokens`, the input whose numbers are the tokens;
// `logits_result`, the result; `generate_why`, why there is none.
#include "ir/Op.h"
#include "passes/Pass.h"
#include "passes/tile/RowRegion.h"
#include "passes/train/BatchRows.h"
#include "llvm/ADT/DenseSet.h"

using namespace zcc;
using llvm::StringRef;

namespace {
struct TokenModel {
  const Value *tokens = nullptr; ///< an argument, i64[B x T] or i64[T]
  int64_t vocabulary = 0;        ///< rows of its embedding
};
} // namespace

/// The runtime fills these itself: masks with ones, positions with their numbers, types with zeros.
static bool isAside(StringRef name) { return name.contains("mask") || name.contains("position") || name.contains("type"); }

/// The argument that a value is, seen through what only moves or widens elements.
static const Value *argumentOf(const Value *v) {
  while (v && v->def) {
    const OpDef *op = v->def->op;
    if (!op->reshapes && !op->converts() && !op->isIdentity() && !v->def->is(ops::broadcast))
      return nullptr;
    v = v->def->operand(0);
  }
  return v && v->kind == Value::Argument ? v : nullptr;
}

/// The integers that are looked up in a table of rows.
static TokenModel tokensOf(const Function &f) {
  for (auto &n : f.nodes) {
    if (!n->is(ops::gather) || n->attrs.i("axis") != 0 || n->operand(0)->type.ndim() != 2)
      continue;
    const Value *arg = argumentOf(n->operand(1));
    if (arg && isInteger(arg->type.elem) && arg->type.ndim() >= 1 && arg->type.ndim() <= 2 && !isAside(arg->name))
      return {arg, n->operand(0)->type.dims[0]};
  }
  return {};
}

/// Whether a value has a row of scores for each token, in the tokens' order.
static bool isByToken(const Value *v, const TokenModel &m, const BatchRows &rows) {
  if (!v->def || !isFloat(v->type.elem) || v->type.ndim() < 2)
    return false;
  int64_t classes = v->type.dims.back();
  bool inOrder = m.tokens->type.ndim() == 1 || rows.batch() < 2 || (rows.of(v).kind == RowKind::Rows && rows.of(v).outer == 1);
  return classes > 1 && v->type.count() == m.tokens->type.count() * classes && inOrder;
}

/// What the last cross-entropy scores, or a result as wide as the vocabulary.
static Value *logitsOf(const Function &f, const TokenModel &m, const BatchRows &rows) {
  Value *found = nullptr;
  for (auto &n : f.nodes) {
    if (!n->is(ops::cross_entropy))
      continue;
    Value *v = n->operand(0);
    auto movesOnly = [](const Node *d) {
      return d->op->reshapes || d->op->converts() || d->op->isIdentity() || d->is(ops::slice);
    };
    while (v && v->def && !isByToken(v, m, rows) && movesOnly(v->def))
      v = v->def->operand(0);
    if (v && isByToken(v, m, rows))
      found = v;
  }
  for (Value *r : f.results)
    if (!found && isByToken(r, m, rows) && r->type.dims.back() == m.vocabulary)
      found = r;
  return found;
}

/// An input besides the tokens on which the logits depend, and that the runtime cannot fill.
static const Value *otherInput(const Value *logits, const TokenModel &m) {
  llvm::SmallVector<const Value *, 16> work{logits};
  llvm::DenseSet<const Value *> seen{logits};
  while (!work.empty()) {
    const Value *v = work.pop_back_val();
    if (v->kind == Value::Argument && v != m.tokens && !isAside(v->name))
      return v;
    for (const Value *o : v->def ? v->def->operands() : llvm::ArrayRef<Value *>())
      if (o && seen.insert(o).second)
        work.push_back(o);
  }
  return nullptr;
}

/// Whether a value belongs to what a node with such a note begins, and so is never whole.
static bool isIn(StringRef note, const Value &v, const Function &f) {
  NodeOrder order = orderOf(f);
  return llvm::any_of(f.nodes, [&](auto &n) { return n->attrs.has(note) && RowRegion(*n, order).holds(v); });
}

llvm::Expected<bool> zcc::exposeLogits(Module &m, PassContext &) {
  Function *f = m.function("eval");
  if (!f || m.attrs.has("tokens") || m.attrs.has("generate_why"))
    return false;
  TokenModel model = tokensOf(*f);
  if (!model.tokens)
    return false;
  auto refuse = [&](const std::string &why) {
    m.attrs.set("generate_why", why);
    return true;
  };
  Value *logits = logitsOf(*f, model, BatchRows(*f));
  if (!logits)
    return refuse("it computes no logits for each token of input '" + model.tokens->name + "'");
  if (isIn("tiles", *logits, *f))
    return refuse("its logits are computed in tiles (--tile) and never whole");
  if (isIn("labelled", *logits, *f))
    return refuse("its logits are computed for rows with a label alone (--labelled-rows)");
  if (const Value *other = otherInput(logits, model))
    return refuse("its logits depend on input '" + other->name + "', too");
  auto at = llvm::find(f->results, logits);
  m.attrs.set("tokens", model.tokens->name);
  m.attrs.set("logits_result", int64_t(at - f->results.begin()));
  if (at == f->results.end()) {
    auto unnamed = m.attrs.ints("unnamed_results");
    unnamed.push_back(int64_t(f->results.size()));
    m.attrs.set("unnamed_results", unnamed);
    f->results.push_back(logits);
  }
  return true;
}
