// Where the arguments and results of bodies lie: in memory of the nodes that name them.
#include "ir/Control.h"
#include "ir/Op.h"
#include "passes/memory/Liveness.h"

using namespace zcc;

Place zcc::argPlace(const Node &caller, unsigned arg) {
  const Function &f = *caller.parent();
  if (!caller.op->isScan())
    return placeOf(f, caller.operand(arg + 1));
  ScanForm form(caller);
  if (arg < form.carried)
    return placeOf(f, caller.result(arg));
  Place p = placeOf(f, caller.operand(arg));
  if (form.isSlice(arg))
    p.step = caller.operand(arg)->type.localBytes() / form.trips;
  return p;
}

Place zcc::resultPlace(const Node &caller, unsigned result) {
  Place p = placeOf(*caller.parent(), caller.result(result));
  if (caller.op->isScan() && result >= ScanForm(caller).carried)
    p.step = caller.result(result)->type.localBytes() / ScanForm(caller).trips;
  return p;
}

/// Whether nobody reads argument `arg` once `v` is written over it.
static bool mayOverwrite(const Liveness &l, const Value *v, const Value *arg) {
  if (!readsInPlaceOnly(*v->def, v->index, arg))
    return false;
  auto reads = l.reads.find(arg);
  int from = l.number.lookup(v->def);
  return reads == l.reads.end() ||
         llvm::all_of(reads->second, [&](auto &r) { return r.first && (r.first == v->def || r.second < from); });
}

static bool isReadByBodies(const Liveness &l, const Value *v) {
  auto reads = l.reads.find(v);
  return reads != l.reads.end() && llvm::any_of(reads->second, [](auto &r) { return r.first && callsBodies(*r.first->op); });
}

llvm::MapVector<Value *, unsigned> zcc::producedInPlace(const Function &body, const Node &caller, const Liveness &l) {
  llvm::MapVector<Value *, unsigned> out;
  unsigned carried = carriedBy(caller);
  for (unsigned r = 0; r < body.results.size(); ++r) {
    auto s = storageOf(body.results[r]);
    if (!s || !s->isDense() || !s->base->def || !ownsMemory(*s->base->def) || out.count(s->base))
      continue;
    Value *v = s->base;
    bool isRow = caller.op->isScan() && r >= carried;
    if (r < carried && !mayOverwrite(l, v, body.args[r].get()))
      continue;
    if (isRow && (callsBodies(*v->def->op) || isReadByBodies(l, v)))
      continue;
    out[v] = r;
  }
  return out;
}
