// What depends on what among groups, and their order while they are joined.
#include "ir/Op.h"
#include "ir/Steps.h"
#include "passes/fuse/FuseGroups.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <algorithm>
#include <queue>

using namespace zcc;

void FuseGroups::findTrunks() {
  std::vector<llvm::SmallVector<unsigned, 3>> before;
  std::vector<bool> isReshape;
  for (auto &n : f.nodes) {
    isReshape.push_back(n->op->reshapes);
    auto &list = before.emplace_back();
    for (Value *v : n->operands())
      if (v && v->def)
        list.push_back(index(v->def));
    for (Node *d : of(n.get()).after)
      list.push_back(index(d));
  }
  trunks = std::make_unique<Trunks>(before, isReshape);
  for (auto &n : f.nodes)
    groupOf(n.get())->contact = trunks->contact(index(n.get()));
}

// ---- dependences

/// The group of what a value is a reshape of.
const FuseGroup *FuseGroups::rootOf(Value *v) const { return groupOf(behindReshapes(v)->def); }

/// Visits the groups that must come after `g`, for each dependence with the group of what is read behind reshapes. A reshape
/// between members of a group is inside, also when others read it.
void FuseGroups::forReaders(const FuseGroup &g, llvm::function_ref<void(FuseGroup *reader, const FuseGroup *root)> visit) const {
  for (const Node *n : g.nodes) {
    for (auto &r : n->results) {
      if (r->uses.empty())
        continue;
      const FuseGroup *root = n->op->reshapes ? rootOf(r.get()) : &g;
      steps += r->uses.size();
      for (auto &u : r->uses) {
        FuseGroup *reader = groupOf(u.node);
        if (reader != &g && !(reader->isKernel && root == reader))
          visit(reader, root);
      }
    }
    for (const Node *by : of(n).followers)
      if (FuseGroup *reader = groupOf(by); reader != &g)
        visit(reader, nullptr);
  }
}

/// Visits the groups that must come before `g`, in the same manner.
void FuseGroups::forSources(const FuseGroup &g, llvm::function_ref<void(FuseGroup *source, const FuseGroup *root)> visit) const {
  for (const Node *n : g.nodes) {
    steps += n->numOperands();
    for (Value *v : n->operands()) {
      if (!v || !v->def)
        continue;
      FuseGroup *source = groupOf(v->def);
      const FuseGroup *root = v->def->op->reshapes ? rootOf(v) : source;
      if (source != &g && !(g.isKernel && root == &g))
        visit(source, root);
    }
    for (const Node *d : of(n).after)
      if (FuseGroup *source = groupOf(d); source != &g)
        visit(source, nullptr);
  }
}

// ---- joining

/// Whether a trunk shows something that needs `a` and feeds `b`, and is in neither.
bool FuseGroups::isSeenBetween(const FuseGroup &a, const FuseGroup &b) const {
  constexpr size_t kSteps = 64; // past members, that lie on the trunk themselves
  for (unsigned t = 0; t < Trunks::kCount; ++t)
    for (unsigned n : trunks->between(t, a.contact, b.contact).take_front(kSteps)) {
      const FuseGroup *g = groupOf(byIndex[n]);
      if (g != &a && g != &b)
        return true;
    }
  return false;
}

namespace {
/// One end of a search between two groups: what has been met, from the end itself on, and of it what has been looked behind.
struct Front {
  explicit Front(FuseGroup *g) { meet(g); }
  llvm::SmallPtrSet<FuseGroup *, 16> seen;
  std::vector<FuseGroup *> met;
  size_t looked = 0, edges = 0;
  void meet(FuseGroup *g) {
    if (seen.insert(g).second)
      met.push_back(g);
  }
  bool isDone() const { return looked == met.size(); }
  const FuseGroup &next() const { return *met[looked]; }
  void go(size_t count) {
    ++looked;
    edges += count;
  }
};
} // namespace

static size_t readersOf(const FuseGroup &g) {
  size_t count = 1;
  for (const Node *n : g.nodes)
    for (auto &r : n->results)
      count += r->uses.size();
  return count;
}

static size_t sourcesOf(const FuseGroup &g) {
  size_t count = 1;
  for (const Node *n : g.nodes)
    count += n->numOperands();
  return count;
}

/// Makes `a` and `b`, which follows, neighbours in the order, unless all that `b` needs stands at `a` or before it: it may be
/// part of `a` then. False if what lies between needs `a` and feeds `b`. From both ends at once, as Pearce and Kelly, "A dynamic
/// topological sort algorithm", 2006: either all that needs `a` moves behind `b`, or all that feeds `b` moves before `a`,
/// whichever is found first.
bool FuseGroups::bringTogether(FuseGroup *a, FuseGroup *b) {
  // Moving what needs `a` is preferred: it leaves the rest in its order. A search that takes too long is given up.
  constexpr size_t kFew = 512, kMost = 1 << 15;
  Front later(a), earlier(b);
  bool feeds = false;
  auto forward = [&](const FuseGroup &from) {
    forReaders(from, [&](FuseGroup *reader, const FuseGroup *root) {
      if (reader == b)
        feeds |= &from != a && root != a;
      else if (reader->label < b->label)
        later.meet(reader);
    });
  };
  auto backward = [&](const FuseGroup &from) {
    forSources(from, [&](FuseGroup *source, const FuseGroup *root) {
      if (&from == b && root == a)
        return;
      if (source == a)
        feeds |= &from != b;
      else if (source->label > a->label)
        earlier.meet(source);
    });
  };
  backward(*b);
  earlier.go(0);
  if (earlier.isDone())
    return true;
  while (!feeds && !later.isDone() && !earlier.isDone()) {
    size_t readers = readersOf(later.next()), sources = sourcesOf(earlier.next());
    if (later.edges + readers <= std::max(kFew, earlier.edges + sources)) {
      forward(later.next());
      later.go(readers);
    } else {
      backward(earlier.next());
      earlier.go(sources);
    }
    if (later.edges > kMost)
      return false;
  }
  if (feeds)
    return false;
  bool moveLater = later.isDone();
  auto &moved = moveLater ? later.met : earlier.met;
  llvm::sort(moved, [](FuseGroup *x, FuseGroup *y) { return x->label < y->label; });
  if (!moveLater)
    moved.pop_back(); // `b` itself
  sequence.moveBehind(moveLater ? b : a->prev, moved);
  return true;
}

/// Orders the groups anew: each stands at its place, or as soon behind that as what it depends on.
void FuseGroups::settle() {
  if (std::exchange(isSettled, true))
    return;
  std::vector<FuseGroup *> all = sequence.all();
  auto labelOf = [](FuseGroup *g) { return std::max(g->label, g->place ? g->place->label : 0); };
  auto isLater = [&](FuseGroup *x, FuseGroup *y) { return labelOf(x) > labelOf(y); };
  std::priority_queue<FuseGroup *, std::vector<FuseGroup *>, decltype(isLater)> ready(isLater);
  for (FuseGroup *g : all) {
    g->waits = 0;
    forSources(*g, [&](FuseGroup *, const FuseGroup *) { ++g->waits; });
    if (!g->waits && !g->nodes.empty())
      ready.push(g);
  }
  std::vector<FuseGroup *> order;
  while (!ready.empty()) {
    FuseGroup *g = ready.top();
    ready.pop();
    order.push_back(g);
    forReaders(*g, [&](FuseGroup *reader, const FuseGroup *) {
      if (--reader->waits == 0)
        ready.push(reader);
    });
  }
  sequence = GroupOrder();
  for (FuseGroup *g : order) {
    g->place = nullptr;
    sequence.append(g);
  }
}
