// Of two neighbours of which neither reads the other, such as the gradients of a convolution, the one goes first with which less
// is there at once: a workspace that is larger than what its node leaves should not stand beside the other's result.
//
//   %d.w = conv_grad_weight %x, %d.y   // 9 MiB               %d.x = conv_grad_input %d.y, %w
//   %d.x = conv_grad_input %d.y, %w    // workspace 9 MiB  -> %d.w = conv_grad_weight %x, %d.y
//
// Nothing else of the order changes: outside of the two the same values live.
#include "ir/Op.h"
#include "passes/Pass.h"
#include "passes/Target.h"
#include "passes/memory/Liveness.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace zcc;

namespace {
class Neighbours {
public:
  Neighbours(const Liveness &l, const Extents &e, const Target &t) : live(l), extents(e), target(t) {}
  bool areBetterSwapped(const Node &a, const Node &b) const;

private:
  /// What a node adds to what lives: while it runs, and behind it, where what only it reads is gone.
  struct Demand {
    int64_t during = 0, behind = 0;
  };
  Demand demandOf(const Node &n, const Node &other) const;

  const Liveness &live;
  const Extents &extents;
  const Target &target;
};
} // namespace

/// Of two that could be either way round, with the other one not there yet.
Neighbours::Demand Neighbours::demandOf(const Node &n, const Node &other) const {
  Demand d;
  for (auto &r : n.results)
    d.behind += extents.bytes(*r);
  d.during = d.behind + target.of(computeSpace(n)).workspaceBytes(n);
  llvm::SmallVector<const Value *, 4> seen;
  for (Value *v : n.operands()) {
    auto s = v ? storageOf(v) : std::nullopt;
    if (!s || !s->base->def || llvm::is_contained(seen, s->base))
      continue;
    seen.push_back(s->base);
    auto reads = live.reads.find(s->base);
    int last = std::max(live.number.lookup(&n), live.number.lookup(&other));
    bool isGone = reads != live.reads.end() && llvm::all_of(reads->second, [&](auto &read) {
                    return read.first && read.first != &other && read.second <= last;
                  });
    d.behind -= isGone ? extents.bytes(*s->base) : 0;
  }
  return d;
}

bool Neighbours::areBetterSwapped(const Node &a, const Node &b) const {
  const Demand first = demandOf(a, b), second = demandOf(b, a);
  return std::max(second.during, second.behind + first.during) < std::max(first.during, first.behind + second.during);
}

/// A node of a library that leaves values and is neither begun before nor awaited behind its place.
static bool isPlain(const Node &n) {
  return n.op->library != Library::None && !n.results.empty() && ownsMemory(n) && !n.op->random;
}

static bool reads(const Node &n, const Node &other) {
  return llvm::any_of(n.operands(), [&](Value *v) {
    auto s = v ? storageOf(v) : std::nullopt;
    return s && s->base->def == &other;
  });
}

llvm::Expected<bool> zcc::orderNeighbours(Module &m, PassContext &ctx) {
  bool changed = false;
  if (!ctx.target)
    return changed;
  Extents extents(m);
  for (auto &f : m.functions) {
    if (f->isKernel)
      continue;
    auto live = computeLiveness(*f);
    if (!live)
      return live.takeError();
    Neighbours neighbours(*live, extents, *ctx.target);
    std::vector<std::pair<Node *, Node *>> swaps;
    const Node *taken = nullptr;
    for (auto &n : f->nodes) {
      Node *before = n->prev();
      if (!before || before == taken || !isPlain(*before) || !isPlain(*n) || reads(*n, *before) || before->phase != n->phase ||
          !neighbours.areBetterSwapped(*before, *n))
        continue;
      swaps.push_back({before, n.get()});
      taken = n.get();
    }
    for (auto [first, second] : swaps)
      second->moveBefore(first);
    changed |= !swaps.empty();
  }
  return changed;
}
