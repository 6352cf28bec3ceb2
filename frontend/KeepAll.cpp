// Finds factors that are drawn.
//
//   %u = random_uniform ...        %below = lt %u, 0.8
//   %b = cast %below               %factor = div %b, 0.8    ->    1
#include "frontend/KeepAll.h"
#include "ir/Builder.h"
#include <cmath>
#include <limits>

using namespace zcc;

static Value *behindMoves(Value *v) {
  while (v->def && (v->def->op->converts() || v->def->op->view))
    v = v->def->operand(0);
  return v;
}

/// Whether two are the same constant, or constants of the same value everywhere.
static bool areEqual(Value *a, Value *b) {
  a = behindMoves(a), b = behindMoves(b);
  if (a == b)
    return a->isGlobal() || isConstant(a);
  auto numberOf = [](Value *v) {
    auto values = isConstant(v) ? v->def->attrs.floats("value") : std::vector<double>();
    return values.size() == 1 ? values[0] : std::numeric_limits<double>::quiet_NaN();
  };
  return std::fabs(numberOf(a) - numberOf(b)) < 1e-6;
}

/// What a value that is drawn is 1 below, and 0 otherwise; nullptr: it is not drawn.
static Value *probabilityOf(Value *v) {
  v = behindMoves(v);
  if (!v->def || !v->def->is(ops::lt))
    return nullptr;
  Value *drawn = behindMoves(v->def->operand(0));
  return drawn->def && drawn->def->is(ops::random_uniform) ? v->def->operand(1) : nullptr;
}

bool zcc::keepAll(Function &f) {
  bool any = false;
  for (auto &n : f.nodes) {
    Value *p = n->is(ops::div) ? probabilityOf(n->operand(0)) : nullptr;
    if (!p || !areEqual(p, n->operand(1)))
      continue;
    n->result()->replaceAllUsesWith(Builder(f, n.get(), n->loc).splat(1, n->result()->type));
    any = true;
  }
  return any;
}
