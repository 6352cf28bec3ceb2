// Puts the backward of a tile right behind its forward, so that what is wide is there for one tile after the other.
//
//   %l0 = matmul %h0, %w {!tile = [0, 0]}           %l1 = matmul %h1, %w
//   %c0 = cross_entropy %l0, ...                    %c1 = cross_entropy %l1, ...
//   %l1 = matmul %h1, %w {!tile = [0, 1]}           %d.l1 = ...
//   %c1 = cross_entropy %l1, ...                    %d.w1 = matmul %d.l1t, %h1
//   %loss = ...                              ->     %l0 = matmul %h0, %w
//   %d.l1 = ...                                     %c0 = cross_entropy %l0, ...
//   %d.w1 = matmul %d.l1t, %h1                      %loss = ...
//   %d.l0 = ...                                     %d.l0 = ...
//   %d.w0 = matmul %d.l0t, %h0                      %d.w = add_matmul %d.w1, %d.l0t, %h0
//   %d.w = add %d.w1, %d.w0
//
// That is possible where the gradient of what a tile gives is known before the other tiles: of a mean of cross-entropies, whose
// divisor depends on labels alone. Else a tile is noted to be computed again in the backward (`recompute`). Sums of the tiles'
// gradients of a parameter are taken in place.
#include "ir/Builder.h"
#include "ir/Control.h"
#include "passes/Pass.h"
#include "passes/memory/Activations.h"
#include "passes/tile/TileOrder.h"
#include "llvm/ADT/DenseMap.h"
#include <map>

using namespace zcc;

namespace {
class Interleaving {
public:
  explicit Interleaving(Function &f) : fn(f), fixed(fixedNodes(f)) {}
  bool run();

private:
  using Nodes = std::vector<Node *>;
  void collect();
  bool sink(const Nodes &split);
  bool delay(const Nodes &split, Nodes &delayed) const;
  bool isDelayable(const Node &n) const;
  void recompute(const Nodes &split);
  bool addInPlace();

  Function &fn;
  llvm::DenseSet<const Node *> fixed; ///< of parameters and constants only: never computed again
  std::map<int64_t, Nodes> splits;
  llvm::DenseMap<const Node *, int64_t> tileOf;
  int64_t numbers = 0; ///< of what is computed again
};
} // namespace

void Interleaving::collect() {
  for (auto &n : fn.nodes) {
    std::vector<int64_t> tile = n->attrs.ints("tile");
    if (tile.size() != 2)
      continue;
    n->attrs.erase("tile");
    if (n->phase == Phase::Forward) {
      splits[tile[0]].push_back(n.get());
      tileOf[n.get()] = tile[1];
    }
  }
}

/// Whether a node of the forward that follows from tiles may wait for the backward: what only leads to the loss.
bool Interleaving::isDelayable(const Node &n) const { return n.op->library == Library::None && n.op->isPure() && !n.op->random; }

/// The tiles and what of the forward follows from them, in order; false if that is more than their way to the loss.
bool Interleaving::delay(const Nodes &split, Nodes &delayed) const {
  llvm::DenseSet<const Node *> tiles(split.begin(), split.end()), found;
  for (auto &n : fn.nodes) {
    bool isTile = tiles.contains(n.get());
    bool follows = llvm::any_of(n->operands(), [&](Value *v) { return v && v->def && found.contains(v->def); });
    if (n->phase != Phase::Forward || (!isTile && !follows))
      continue;
    if (!isTile && !isDelayable(*n))
      return false;
    found.insert(n.get());
    delayed.push_back(n.get());
  }
  return true;
}

/// Moves each tile to where the backward first reads it, and the loss behind the last; nothing is changed where the backward
/// needs two tiles at once.
bool Interleaving::sink(const Nodes &split) {
  Nodes delayed, before;
  if (!delay(split, delayed))
    return false;
  llvm::DenseSet<const Node *> waiting(delayed.begin(), delayed.end()), done;
  for (auto &n : fn.nodes) {
    before.push_back(n.get());
    if (!waiting.contains(n.get()))
      done.insert(n.get());
  }
  size_t left = split.size();
  bool isApart = true;
  for (Node *n : before) {
    if (waiting.contains(n) || !isApart)
      continue;
    int64_t tile = -1;
    for (Value *v : n->operands())
      if (v && v->def)
        moveNeeded(*v->def, *n, done, [&](Node &moved) {
          if (auto at = tileOf.find(&moved); at != tileOf.end() && waiting.contains(&moved)) {
            isApart &= tile < 0 || tile == at->second;
            tile = at->second;
            --left;
          }
        });
    if (left == 0 && tile >= 0)
      for (Node *d : delayed)
        moveNeeded(*d, *n, done, [](Node &) {});
  }
  isApart &= left == 0;
  for (Node *n : before)
    if (!isApart)
      n->moveBefore(nullptr);
  return isApart;
}

void Interleaving::recompute(const Nodes &split) {
  int64_t first = numbers;
  for (Node *n : split) {
    if (n->op->view || n->op->leaf != Leaf::None || fixed.contains(n))
      continue;
    n->attrs.set("recompute", first + tileOf.lookup(n));
    numbers = std::max(numbers, first + tileOf.lookup(n) + 1);
  }
}

/// A product that is added to others and read by nothing else.
static Node *ownProduct(Value *v) {
  return v->def && v->def->is(ops::matmul) && v->uses.size() == 1 && v->type.ndim() == 2 ? v->def : nullptr;
}

static bool isSum(const Value &v) { return v.def && v.def->is(ops::add_matmul) && v.uses.size() == 1; }

/// Whether it is a product with a tile of a parameter.
static bool readsBox(const Node &n) {
  Value *base = n.is(ops::matmul) ? behindViews(n.operand(1)) : nullptr;
  return base && base->isGlobal() && static_cast<GlobalValue *>(base)->isBox();
}

bool Interleaving::addInPlace() {
  bool changed = false;
  llvm::DenseSet<const Node *> ofTiles;
  for (Node *n = fn.first(), *next; n; n = next) {
    next = n->next();
    bool follows = llvm::any_of(n->operands(), [&](Value *v) { return v && v->def && ofTiles.contains(v->def); });
    if (tileOf.count(n) || follows || readsBox(*n))
      ofTiles.insert(n);
    if (!n->is(ops::add) || n->phase != Phase::Backward || n->operand(0)->type != n->operand(1)->type)
      continue;
    Value *sum = n->operand(0);
    Node *product = ownProduct(n->operand(1));
    if (!product || !ofTiles.contains(product) || (!isSum(*sum) && !ownProduct(sum)))
      continue;
    Builder b(fn, n, n->loc);
    Value *total = b.make(ops::add_matmul, {sum, product->operand(0), product->operand(1)}, {}, n->result()->name);
    ofTiles.insert(total->def);
    n->result()->replaceAllUsesWith(total);
    ofTiles.erase(n);
    n->erase();
    changed = true;
  }
  return eraseDeadNodes(fn) || changed;
}

bool Interleaving::run() {
  collect();
  for (auto &n : fn.nodes)
    if (n->attrs.has("recompute"))
      numbers = std::max(numbers, n->attrs.i("recompute") + 1);
  for (auto &[number, split] : splits)
    if (!sink(split))
      recompute(split);
  bool hasBoxes = llvm::any_of(fn.module->globals, [](auto &g) { return g->isBox(); });
  bool changed = (!splits.empty() || hasBoxes) && addInPlace();
  return changed || !splits.empty();
}

llvm::Expected<bool> zcc::interleaveTiles(Module &m, PassContext &) {
  Function *f = m.function("micro");
  return f && Interleaving(*f).run();
}
