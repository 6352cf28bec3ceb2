// Notes, by --labelled-rows, what is computed only for the rows whose label counts: a product whose rows lead to cross-entropies,
// the head of a language model whose loss is that of some tokens. keep-labelled does it. Masked tokens of BERT (arXiv 1810.04805,
// appendix A.2: `max_predictions_per_seq`), or the answers behind a prompt, are a part of all tokens; the rest of the logits, of
// their gradient and of the head's three products is work for nothing.
//
//   %l = matmul %h, %w            : f32[1024x30522]
//   %c, %s = cross_entropy %l, %t : f32[1024], f32[1024x1]
// becomes, with --labelled-rows=0.2
//   %l = matmul %h, %w {!labelled = 205} : f32[1024x30522]
//
// Module attributes: `labelled.INPUT` = [ignore, rows], which the program checks batch by batch. What has such rows only is no
// result of @eval. Notes that are there already hold.
#include "passes/Pass.h"
#include "passes/Refusal.h"
#include "passes/tile/RowRegion.h"
#include <cmath>

using namespace zcc;

/// The input whose elements labels are, each at most once, moved or widened, beside some that are ignored; else nullptr.
static const Value *inputBehind(const Value *labels, int64_t ignore) {
  const Value *v = labels;
  auto movesEach = [&](const Node &n) {
    if (n.is(ops::pad))
      return n.attrs.s("mode", "constant") == "constant" && n.attrs.f("value") == double(ignore);
    return n.is(ops::reshape) || n.is(ops::transpose) || n.is(ops::slice) || n.op->converts() || n.op->isIdentity();
  };
  while (v->def && movesEach(*v->def))
    v = v->def->operand(0);
  return v->kind == Value::Argument && isInteger(v->type.elem) ? v : nullptr;
}

static const Value *labelsOf(const Node &losses) { return inputBehind(losses.operand(1), ignoredBy(losses)); }

namespace {
struct Obstacle {
  Loc at;
  std::string why; ///< "": none
};
} // namespace

/// Why the rows of a region cannot be left out, or "".
static std::string whyNot(const RowRegion &region, const Node *losses, bool mayDropResults) {
  if (!region.whyNot().empty())
    return region.whyNot();
  if (!losses)
    return "what follows from its rows is read of all of them, and not of those with a label alone";
  if (!labelsOf(*losses))
    return "the labels are no input of the model";
  return mayDropResults || region.returned().empty() ? "" : "it is a result";
}

/// Notes the first product of a function that leads to losses of rows, or says why none does.
static Obstacle note(Module &m, Function &f, PassContext &ctx) {
  Obstacle obstacle{nullptr, "no matrix product leads row by row to a cross-entropy"};
  NodeOrder order = orderOf(f);
  for (auto &n : f.nodes) {
    if (!n->is(ops::matmul))
      continue;
    RowRegion region(*n, order);
    if (llvm::none_of(f.nodes, [&](auto &other) { return other->is(ops::cross_entropy) && region.contains(*other); }))
      continue;
    const Node *losses = region.whyNot().empty() ? region.rowLosses(m) : nullptr;
    if (std::string why = whyNot(region, losses, /*mayDropResults=*/f.name == "eval"); !why.empty()) {
      obstacle = {n->loc, why};
      continue;
    }
    const Value &labels = *labelsOf(*losses);
    const double share = ctx.options.labelledRows;
    const int64_t all = region.rows(), rows = share < 1 ? int64_t(std::ceil(share * double(all))) : int64_t(share);
    if (rows >= all)
      return {};
    dropResults(f, region.returned(), "for labelled rows only", ctx);
    n->attrs.set("labelled", rows);
    m.attrs.set("labelled." + labels.name, std::vector<int64_t>{ignoredBy(*losses), rows});
    return {};
  }
  return obstacle;
}

llvm::Expected<bool> zcc::chooseLabelled(Module &m, PassContext &ctx) {
  auto isNoted = [](auto &n) { return n->attrs.has("labelled"); };
  if (llvm::any_of(m.functions, [&](auto &f) { return llvm::any_of(f->nodes, isNoted); }))
    return false;
  bool changed = false;
  for (const char *name : {"micro", "eval"})
    if (Function *f = m.function(name)) {
      Obstacle o = note(m, *f, ctx);
      if (!o.why.empty() && f->name == "micro")
        return refuseAt(o.at, "--labelled-rows: " + o.why);
      changed |= llvm::any_of(f->nodes, isNoted);
    }
  return changed;
}
