// Of two neighbours of which neither reads the other, such as the gradients of a convolution, the one goes first with which less
// is there at once: a workspace that is larger than what its node leaves should not stand beside the other's result.
//
//   %d.w = conv_grad_weight %x, %d.y   // 9 MiB               %d.x = conv_grad_input %d.y, %w
//   %d.x = conv_grad_input %d.y, %w    // workspace 9 MiB  -> %d.w = conv_grad_weight %x, %d.y
//
// Updates, transfers and views may lie between the two: what the second one needs of these goes with it, before the first. So
// what was fetched for a gradient is gone where a large gradient of a parameter is there, which is then taken away. Nothing else
// of the order changes.
#include "ir/Op.h"
#include "passes/Pass.h"
#include "passes/Target.h"
#include "passes/memory/Activations.h"
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
  bool areReadBefore(const Value &v, int end, const Node *except) const;

  const Liveness &live;
  const Extents &extents;
  const Target &target;
};
} // namespace

/// Whether nodes before `end` are all that read it, and `except` is none of them.
bool Neighbours::areReadBefore(const Value &v, int end, const Node *except) const {
  auto reads = live.reads.find(&v);
  return reads != live.reads.end() &&
         llvm::all_of(reads->second, [&](auto &read) { return read.first && read.first != except && read.second < end; });
}

/// Of two that could be either way round, with the other one not there yet.
Neighbours::Demand Neighbours::demandOf(const Node &n, const Node &other) const {
  Demand d;
  const int at = live.number.lookup(&n), there = live.number.lookup(&other);
  for (auto &r : n.results) {
    d.during += extents.bytes(*r);
    d.behind += areReadBefore(*r, there, nullptr) ? 0 : extents.bytes(*r);
  }
  d.during += target.of(computeSpace(n)).workspaceBytes(n);
  llvm::SmallVector<const Value *, 4> seen;
  for (Value *v : n.operands()) {
    const Value *base = v ? baseOf(v) : nullptr;
    if (!base || !base->def || llvm::is_contained(seen, base))
      continue;
    seen.push_back(base);
    d.behind -= areReadBefore(*base, std::max(at, there) + 1, &other) ? extents.bytes(*base) : 0;
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

/// Whether a node that lies between two neighbours may go behind both of them.
static bool mayLieBetween(const Node &n) {
  return (n.phase == Phase::Update || n.op->view || isTransfer(n)) && n.op->collective == Collective::None && !n.op->random;
}

/// What has to go before `first` with `n`, itself included, in their order; none: that cannot be.
static llvm::SmallVector<Node *, 4> goingWith(Node &n, const Node &first) {
  llvm::SmallVector<Node *, 4> going = {&n};
  auto reads = [&](const Node &by, auto &&is) { return llvm::any_of(by.operands(), [&](Value *v) { return v && is(*v); }); };
  for (Node *at = n.prev();; at = at->prev()) {
    bool isNeeded = llvm::any_of(going, [&](Node *g) { return reads(*g, [&](Value &v) { return v.def == at; }); });
    bool isWritten = assigns(*at) && llvm::any_of(going, [&](Node *g) {
                       return reads(*g, [&](Value &v) { return behindViews(&v) == behindViews(at->operand(0)); });
                     });
    if (isWritten || (isNeeded && !at->op->view && !isTransfer(*at)))
      return {};
    if (at == &first)
      return llvm::SmallVector<Node *, 4>(llvm::reverse(going));
    if (isNeeded)
      going.push_back(at);
  }
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
    std::vector<std::pair<Node *, llvm::SmallVector<Node *, 4>>> swaps;
    Node *first = nullptr; // of what may be neighbours, if there is one
    for (auto &n : f->nodes) {
      if (!isPlain(*n)) {
        first = mayLieBetween(*n) ? first : nullptr;
        continue;
      }
      Node *before = std::exchange(first, n.get());
      if (!before || before->phase != n->phase || !neighbours.areBetterSwapped(*before, *n))
        continue;
      if (auto going = goingWith(*n, *before); !going.empty()) {
        swaps.push_back({before, std::move(going)});
        first = nullptr;
      }
    }
    for (auto &[before, going] : swaps)
      for (Node *n : going)
        n->moveBefore(before);
    changed |= !swaps.empty();
  }
  return changed;
}
