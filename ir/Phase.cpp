#include "ir/Phase.h"
#include "ir/Op.h"
#include "llvm/ADT/DenseSet.h"

using namespace zcc;
using llvm::StringRef;

static constexpr StringRef kNames[] = {"forward", "backward", "update"};

StringRef zcc::phaseName(Phase p) { return kNames[unsigned(p)]; }

std::optional<Phase> zcc::phaseFromName(StringRef name) {
  const StringRef *at = llvm::find(kNames, name);
  return at == std::end(kNames) ? std::nullopt : std::optional(Phase(at - kNames));
}

/// The loss is scaled before it is differentiated, weights are packed where they are read first; other states are the
/// optimizer's.
static bool isOptimizers(const Value &v) {
  return v.isGlobal() && static_cast<const GlobalValue &>(v).role == GlobalValue::State && v.name != "loss_scale" &&
         !v.type.isPacked();
}

static bool updates(const Node &n, const llvm::DenseMap<const Node *, Phase> &phases) {
  const OpDef *op = performed(n);
  if (assigns(n))
    return !n.operand(0)->type.isPacked();
  if ((op && op->sumsRanks()) || n.op->isOfRank())
    return true;
  return llvm::any_of(n.operands(), [&](const Value *v) {
    return v && (isOptimizers(*v) || (v->def && phases.lookup(v->def) == Phase::Update));
  });
}

static llvm::DenseSet<const Node *> neededBy(const Node *last) {
  llvm::DenseSet<const Node *> needed;
  llvm::SmallVector<const Node *> work;
  if (last)
    work.push_back(last);
  while (!work.empty()) {
    const Node *n = work.pop_back_val();
    if (!needed.insert(n).second)
      continue;
    for (const Value *v : n->operands())
      if (v && v->def)
        work.push_back(v->def);
  }
  return needed;
}

llvm::DenseMap<const Node *, Phase> zcc::usualPhases(const Function &f) {
  llvm::DenseMap<const Node *, Phase> phases;
  bool hasBackward = f.name == "micro" && f.isEntry() && f.module->has(Property::Differentiated) && !f.results.empty();
  const Node *loss = hasBackward ? f.results[0]->def : nullptr;
  bool isBehind = hasBackward && !loss;
  llvm::DenseSet<const Node *> forward = neededBy(loss);
  for (auto &n : f.nodes) {
    Phase p = f.isEntry() && (f.name == "update" || f.name == "flush") ? Phase::Update : Phase::Forward;
    if (hasBackward && !forward.contains(n.get()))
      p = updates(*n, phases) ? Phase::Update : isBehind ? Phase::Backward : Phase::Forward;
    phases[n.get()] = p;
    isBehind |= n.get() == loss;
  }
  return phases;
}
