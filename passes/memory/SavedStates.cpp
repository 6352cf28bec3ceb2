// Looks at what a module's functions assign, and at what it is computed from.
#include "passes/memory/SavedStates.h"
#include "ir/StateNames.h"
#include "passes/memory/Liveness.h"
#include "runtime/zccrt.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Support/MathExtras.h"

using namespace zcc;

/// What the runtime sets in each step, and what is of a step alone.
static bool isOfStep(const GlobalValue &g) {
  return (g.role == GlobalValue::State && (isStepStateName(g.name) || g.attrs.has("late"))) || g.type.isPacked() ||
         (g.attrs.has("of") && isGradientName(g.name, g.attrs.s("of")));
}

static bool isAssigned(const GlobalValue &g) {
  return llvm::any_of(g.uses, [](auto &u) { return u.index == 0 && assigns(*u.node); });
}

/// Whether ranks may compute different values of `g`: of their batches or of their random numbers, with nothing summed or
/// gathered over them on the way.
static bool isOwn(const GlobalValue &g) {
  llvm::SmallVector<const Value *> work;
  llvm::SmallPtrSet<const Value *, 32> seen;
  for (auto &u : g.uses)
    if (u.index == 0 && assigns(*u.node))
      work.push_back(u.node->operand(1));
  while (!work.empty()) {
    const Value *v = work.pop_back_val();
    if (!v || !seen.insert(v).second)
      continue;
    if (v->kind == Value::Argument || (v->isGlobal() && v->name == "seed"))
      return true;
    if (!v->def || performed(*v->def)->collective != Collective::None)
      continue;
    for (Value *o : v->def->operands())
      work.push_back(o);
  }
  return false;
}

SavedAs zcc::savedAs(const Module &m, const GlobalValue &g) {
  if (!g.hasStorage()) { // as its boxes are
    std::vector<GlobalValue *> boxes = m.boxesOf(g);
    return boxes.empty() ? SavedAs() : savedAs(m, *boxes[0]);
  }
  const GlobalValue &whole = m.wholeOf(g);
  bool isTrained = g.role == GlobalValue::Param && g.trained;
  // What is exported and in no file of the model, such as frozen weights that are drawn, is exported from a checkpoint, too.
  bool isOnlyHere = whole.exported && whole.init.kind != Init::File;
  if (isOfStep(g) || (!isTrained && !isAssigned(g) && !isOnlyHere))
    return {};
  SavedAs s{whole.name};
  if (g.role == GlobalValue::Param) {
    const GlobalValue *master = m.global(g.attrs.s("master"));
    s.flags = master ? ZCCRT_SAVED_CAST : 0;
    return s;
  }
  std::string of = g.attrs.s("of");
  if (const GlobalValue *param = m.global(of)) {
    if (param->attrs.s("master") == g.name)
      s.name = m.wholeOf(*param).name;
    return s;
  }
  if (m.ranks > 1 && isOwn(g))
    s.flags |= ZCCRT_SAVED_OWN;
  if (!whole.exported)
    s.flags |= ZCCRT_SAVED_IF_THERE;
  return s;
}

int64_t zcc::saveBytes(const Module &m) {
  // Large writes keep a disk busy; beside a small model a large buffer would be much.
  constexpr int64_t kLeast = 256 << 10, kMost = 8 << 20, kShare = 16, kPage = 4096;
  int64_t bytes = 0;
  for (auto &g : m.globals) {
    SavedAs s = g->hasStorage() ? savedAs(m, *g) : SavedAs();
    if (s && !(s.flags & ZCCRT_SAVED_CAST))
      bytes += g->type.localBytes();
  }
  return llvm::alignTo(std::min(bytes, std::clamp(bytes / kShare, kLeast, kMost)), kPage);
}

// ---- where a step writes

FirstWrites::FirstWrites(const Module &m) {
  for (size_t i = 0; i < m.globals.size(); ++i)
    if (const GlobalValue &g = *m.globals[i]; g.hasStorage() && savedAs(m, g)) {
      int64_t begin = g.attrs.i("offset");
      ranges_.push_back({g.type.space, begin, begin + g.type.localBytes(), int(i)});
      int64_t &end = end_[size_t(g.type.space)];
      end = std::max(end, ranges_.back().end);
    }
  llvm::stable_sort(ranges_,
                    [](const Placed &a, const Placed &b) { return std::pair(a.space, a.begin) < std::pair(b.space, b.begin); });
}

void FirstWrites::add(Space space, int64_t begin, int64_t bytes, std::vector<int> &out) {
  if (begin >= end_[size_t(space)]) // values lie behind globals
    return;
  // Those of a space do not overlap (rule V7): they end in the order in which they begin.
  auto at = llvm::partition_point(ranges_, [&](const Placed &r) { return std::pair(r.space, r.end) <= std::pair(space, begin); });
  for (; at != ranges_.end() && at->space == space && at->begin < begin + bytes; ++at)
    if (written_.insert(at->global).second)
      out.push_back(at->global);
}

std::vector<int> FirstWrites::of(const Function &f, const Node &n) {
  std::vector<int> out;
  if (assigns(n)) {
    Place to = placeOf(f, n.operand(0));
    add(to.space, to.offset, n.operand(0)->type.localBytes(), out);
  }
  if (!ownsMemory(n))
    return out;
  for (auto &r : n.results)
    if (Place to = placeOf(f, r.get()); to.offset >= 0)
      add(to.space, to.offset, r->type.localBytes(), out);
  return out;
}
