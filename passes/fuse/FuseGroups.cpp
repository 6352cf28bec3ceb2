// Grows groups, joins siblings, and computes again what is cheap.
#include "passes/fuse/FuseGroups.h"
#include "ir/Op.h"
#include "ir/Scalar.h"
#include "ir/Steps.h"
#include "ir/View.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <algorithm>

using namespace zcc;

// A kernel's code should stay within the instruction cache, and its pointers within reason.
constexpr size_t kMostNodes = 128, kMostInputs = 32;

Value *zcc::behindReshapes(Value *v) {
  while (v->def && v->def->op == &ops::reshape)
    v = v->def->operand(0);
  return v;
}

// ---- one group

bool FuseGroup::contains(const Node *n) const { return llvm::is_contained(nodes, n); }

/// Reshapes that lead from members to members, without order.
static llvm::SmallPtrSet<Node *, 8> innerReshapes(const std::vector<Node *> &nodes) {
  llvm::SmallPtrSet<const Node *, 32> members(nodes.begin(), nodes.end());
  llvm::SmallPtrSet<Node *, 8> out;
  for (Node *n : nodes)
    for (Value *v : n->operands()) {
      if (!v || !v->def || v->def->op != &ops::reshape)
        continue;
      Value *root = behindReshapes(v);
      if (!root->def || !members.count(root->def))
        continue;
      for (Value *w = v; w != root; w = w->def->operand(0))
        out.insert(w->def);
    }
  return out;
}

/// Members and inner reshapes, each after what it reads.
static std::vector<Node *> withInner(const std::vector<Node *> &nodes) {
  auto inner = innerReshapes(nodes);
  if (inner.empty())
    return nodes;
  std::vector<Node *> out;
  llvm::SmallPtrSet<Node *, 8> placed;
  for (Node *n : nodes) {
    for (Value *v : n->operands()) {
      std::vector<Node *> chain;
      for (; v && v->def && inner.count(v->def); v = v->def->operand(0))
        chain.push_back(v->def);
      for (Node *r : llvm::reverse(chain))
        if (placed.insert(r).second)
          out.push_back(r);
    }
    out.push_back(n);
  }
  return out;
}

std::vector<Node *> FuseGroup::withReshapes() const { return withInner(nodes); }

std::vector<Value *> FuseGroup::outputs() const {
  auto inner = innerReshapes(nodes);
  llvm::SmallPtrSet<const Node *, 32> members(nodes.begin(), nodes.end());
  // A value is read outside if a chain of reshapes from it ends outside.
  std::function<bool(const Value *)> readOutside = [&](const Value *v) {
    for (auto &u : v->uses) {
      if (members.count(u.node))
        continue;
      if (!inner.count(u.node) || readOutside(u.node->result()))
        return true;
    }
    return llvm::is_contained(nodes[0]->parent()->results, v);
  };
  std::vector<Value *> out;
  for (Node *n : nodes)
    if (readOutside(n->result()))
      out.push_back(n->result());
  return out;
}

std::vector<Value *> FuseGroup::inputs() const {
  auto inner = innerReshapes(nodes);
  llvm::SmallPtrSet<const Node *, 32> members(nodes.begin(), nodes.end());
  llvm::SetVector<Value *, std::vector<Value *>> out;
  for (Node *n : nodes)
    for (Value *v : n->operands())
      if (v && !(v->def && (members.count(v->def) || inner.count(v->def))))
        out.insert(v);
  return out.takeVector();
}

// ---- all groups

FuseGroups::FuseGroups(Function &fn) : f(fn), results(fn.results.begin(), fn.results.end()) {
  unsigned i = 0;
  for (auto &n : f.nodes) {
    index[n.get()] = i++;
    byIndex.push_back(n.get());
    single(n.get());
  }
  addMemoryDependences();
  findTrunks();
}

FuseGroup *FuseGroups::single(Node *n) {
  groups.push_back(std::make_unique<FuseGroup>());
  FuseGroup *g = groups.back().get();
  g->nodes = {n};
  g->isKernel = isGenerated(*n) && n->op != &ops::reshape;
  if (g->isKernel)
    g->shape = kernelShape(g->nodes);
  g->readsKept = n->op == &ops::cast && n->attrs.i("kept");
  sequence.append(g);
  groupOf[n] = g;
  return g;
}

void FuseGroups::dependOn(Node *n, Node *earlier) {
  after[n].push_back(earlier);
  followers[earlier].push_back(n);
}

/// What is written in place comes after its earlier readers and before its later ones. Collectives may move, as their
/// values say: every rank runs the same program. The producer of what is assigned is kept behind the readers too, so that it may
/// write in place.
void FuseGroups::addMemoryDependences() {
  llvm::DenseMap<const Value *, std::vector<Node *>> readers;
  llvm::DenseMap<const Value *, Node *> writer;
  for (auto &p : f.nodes) {
    Node *n = p.get();
    for (unsigned i = 0; i < n->numOperands(); ++i) {
      // What reads a view reads the memory under it.
      Value *v = n->operand(i);
      while (v && v->def && v->def->op->view)
        v = v->def->operand(0);
      if (!v)
        continue;
      if (Node *w = writer.lookup(v))
        dependOn(n, w);
      if (!(n->op->writes >> i & 1)) {
        if (v->isGlobal())
          readers[v].push_back(n);
        continue;
      }
      Value *source = n->op == &ops::assign ? behindReshapes(n->operand(1)) : nullptr;
      firstWrite.try_emplace(v, source && source->def ? source->def : n);
      for (Node *r : readers[v]) {
        if (r != n)
          dependOn(n, r);
        if (source && source->def && r != source->def && index[r] < index[source->def])
          dependOn(source->def, r);
      }
      readers[v].clear();
      writer[v] = n;
    }
  }
}

bool FuseGroups::hasForward(const FuseGroup &g) const {
  const Node *loss = f.results.empty() ? nullptr : f.results[0]->def;
  return llvm::any_of(g.nodes, [&](Node *n) { return loss && index.lookup(n) <= index.lookup(loss); });
}

/// `b` has become part of `a`.
void FuseGroups::settleJoined(FuseGroup *a, FuseGroup *b) {
  a->contact.merge(b->contact);
  a->readsKept |= b->readsKept;
  for (Node *n : b->nodes)
    groupOf[n] = a;
  b->nodes.clear();
  b->isKernel = false;
  FuseGroup *place = b->place ? b->place : b;
  if (!a->place || a->place->label < place->label)
    a->place = place;
}

/// Joins a single node with a group that it stands behind, in steps that do not grow with the group; nullopt if that takes a
/// closer look. A chain of operators is joined in this way.
std::optional<bool> FuseGroups::append(FuseGroup *a, FuseGroup *b) {
  Node *n = b->nodes.front();
  auto isReshaped = [](Value *v) { return v && v->def && v->def->op == &ops::reshape; };
  if (b->nodes.size() > 1 || index[a->nodes.back()] >= index[n] || llvm::any_of(n->operands(), isReshaped))
    return std::nullopt;
  if (a->reads.empty())
    a->reads = a->inputs();
  size_t known = a->reads.size();
  for (Value *v : n->operands())
    if (v && !(v->def && groupOf.lookup(v->def) == a) && !llvm::is_contained(a->reads, v))
      a->reads.push_back(v);
  bool joined = a->reads.size() <= kMostInputs && extend(*a->shape, *n);
  std::optional<bool> answer = joined;
  if (!joined && a->reads.size() <= kMostInputs)
    answer = std::nullopt;
  if (joined && !bringTogether(a, b)) {
    withdraw(*a->shape, *n);
    answer = joined = false;
  }
  if (!joined) {
    a->reads.resize(known);
    return answer;
  }
  ++steps;
  a->nodes.push_back(n);
  settleJoined(a, b);
  return true;
}

/// Joins two kernels if they share loops and nothing between them needs one and feeds the other.
bool FuseGroups::join(FuseGroup *a, FuseGroup *b) {
  if ((a->readsKept && hasForward(*b)) || (b->readsKept && hasForward(*a)))
    return false;
  if (a == b || !a->isKernel || !b->isKernel || a->nodes.size() + b->nodes.size() > kMostNodes)
    return false;
  if (a->label > b->label)
    std::swap(a, b);
  if (isSeenBetween(*a, *b))
    return false;
  if (auto joined = append(a, b))
    return *joined;
  steps += a->nodes.size() + b->nodes.size();
  FuseGroup both;
  both.isKernel = true;
  std::merge(a->nodes.begin(), a->nodes.end(), b->nodes.begin(), b->nodes.end(), std::back_inserter(both.nodes),
             [&](Node *x, Node *y) { return index[x] < index[y]; });
  both.shape = kernelShape(both.withReshapes());
  if (!both.shape)
    return false;
  both.reads = both.inputs();
  if (both.reads.size() > kMostInputs || !bringTogether(a, b))
    return false;
  a->nodes = std::move(both.nodes);
  a->shape = std::move(both.shape);
  a->reads = std::move(both.reads);
  settleJoined(a, b);
  return true;
}

void FuseGroups::grow() {
  std::vector<Node *> all;
  for (auto &n : f.nodes)
    all.push_back(n.get());
  for (Node *n : all) {
    if (!groupOf[n]->isKernel)
      continue;
    // Larger producers first: joining them saves the most.
    std::vector<FuseGroup *> producers;
    for (Value *v : n->operands()) {
      Value *root = v ? behindReshapes(v) : nullptr;
      if (root && root->def && groupOf[root->def]->isKernel)
        producers.push_back(groupOf[root->def]);
    }
    llvm::stable_sort(producers, [](FuseGroup *x, FuseGroup *y) { return x->shape->count() > y->shape->count(); });
    for (FuseGroup *p : producers)
      if (p->isKernel)
        join(p, groupOf[n]);
  }
  settle();
}

/// Joins `g` with a reduction that reads what it reads; the joint group, or nullptr. `looks`: how many more readers to try.
FuseGroup *FuseGroups::joinSibling(FuseGroup *g, size_t &looks) {
  for (Value *v : g->inputs()) {
    if (v->type.localCount() != g->shape->count())
      continue;
    for (auto &u : v->uses) {
      if (looks-- == 0)
        return nullptr;
      ++steps;
      FuseGroup *o = u.node->parent() == &f ? groupOf.lookup(u.node) : nullptr;
      if (!o || o == g || !o->isKernel || o->shape->form != g->shape->form || o->shape->count() != g->shape->count())
        continue;
      if (join(o, g))
        return groupOf.lookup(u.node);
    }
  }
  return nullptr;
}

void FuseGroups::joinSiblings() {
  constexpr size_t kMostLooks = 256; // many readers of one tensor: those nearest its definition
  for (FuseGroup *g : sequence.all()) {
    size_t looks = kMostLooks;
    if (g->isKernel && g->shape->form != KernelShape::Pointwise)
      while (g && looks)
        g = joinSibling(g, looks);
  }
  settle();
}

// ---- recomputation

/// Operators whose cost is that of a load.
static bool isCheap(const Node &n) {
  static const OpDef *const kCheap[] = {&ops::add, &ops::sub,  &ops::mul,  &ops::neg,    &ops::max,
                                        &ops::min, &ops::relu, &ops::cast, &ops::select, &ops::gt,
                                        &ops::ge,  &ops::lt,   &ops::le,   &ops::eq,     &ops::ne};
  return llvm::is_contained(kCheap, n.op);
}

static bool isGathered(Value *v) {
  std::optional<View> view = viewOf(v);
  return view && view->base->def && view->base->def->op == &ops::all_gather;
}

/// Clones the cone of `v` within its group into each reader, if all of them can take it.
bool FuseGroups::recomputeInto(Value *v, const std::vector<FuseGroup *> &readers) {
  constexpr size_t kMostCone = 6;
  FuseGroup *home = groupOf.lookup(v->def);
  llvm::SetVector<Node *> cone;
  llvm::SetVector<Value *> leaves;
  std::function<bool(Value *)> visit = [&](Value *x) {
    Node *d = x->def;
    if (!d || groupOf.lookup(d) != home || home->shape->extents.lookup(d) != Extent::Full) {
      leaves.insert(x);
      return true;
    }
    if (!isCheap(*d) || cone.size() >= kMostCone)
      return false;
    if (cone.contains(d))
      return true;
    for (Value *o : d->operands())
      if (o && !visit(o))
        return false;
    cone.insert(d);
    return true;
  };
  if (!visit(v))
    return false;
  // What has been overwritten by then cannot be read again.
  auto isOverwritten = [&](Value *leaf, FuseGroup *reader) {
    while (leaf->def && leaf->def->op->view)
      leaf = leaf->def->operand(0);
    FuseGroup *writer = groupOf.lookup(firstWrite.lookup(leaf));
    return writer && writer != reader && writer->label < reader->label;
  };
  for (FuseGroup *r : readers)
    if (llvm::any_of(leaves, [&](Value *l) { return isOverwritten(l, r); }))
      return false;
  for (FuseGroup *r : readers) {
    steps += r->nodes.size();
    std::vector<Value *> in = r->inputs();
    int extra = 0;
    for (Value *l : leaves) {
      if (isGathered(l))
        return false; // it would have to be kept until then
      if (l->def && l->def->op == &ops::reshape && groupOf.lookup(behindReshapes(l)->def) == home)
        return false; // an inner reshape: its source would have to be stored in its place
      if (l->type.localCount() == home->shape->count() && !llvm::is_contained(in, l))
        ++extra;
    }
    if (extra > 1)
      return false;
    // A chain that each kernel took over from the one before would make kernels as long as the chain.
    if (r->nodes.size() + cone.size() > kMostNodes)
      return false;
  }
  // The clones stand right before the first reader's first member, with its index: order within a group is by index.
  for (FuseGroup *r : readers) {
    Node *first = r->nodes.front();
    llvm::DenseMap<Value *, Value *> map;
    std::vector<Node *> clones;
    for (Node *c : cone) {
      auto k = std::make_unique<Node>(c->op, c->loc);
      k->attrs = c->attrs;
      Node *n = f.insert(std::move(k), first);
      for (Value *o : c->operands())
        n->addOperand(o ? (map.count(o) ? map[o] : o) : nullptr);
      n->results.push_back(std::make_unique<Value>(Value::Result, f.unique(c->result()->name), c->result()->type));
      n->results[0]->def = n;
      map[c->result()] = n->result();
      index[n] = index[first];
      clones.push_back(n);
    }
    std::vector<Node *> members = clones;
    members.insert(members.end(), r->nodes.begin(), r->nodes.end());
    std::vector<std::pair<Node *, unsigned>> changed;
    for (Node *n : r->nodes)
      for (unsigned i = 0; i < n->numOperands(); ++i)
        if (n->operand(i) == v) {
          n->setOperand(i, map[v]);
          changed.push_back({n, i});
        }
    FuseGroup trial;
    trial.nodes = members;
    auto shape = kernelShape(trial.withReshapes());
    if (!shape) {
      for (auto [n, i] : changed)
        n->setOperand(i, v);
      for (Node *n : llvm::reverse(clones))
        n->erase();
      return false;
    }
    for (Node *n : clones)
      groupOf[n] = r;
    r->nodes = members;
    r->shape = shape;
  }
  return true;
}

void FuseGroups::recomputeCheap() {
  for (FuseGroup *g : sequence.all()) {
    if (!g->isKernel)
      continue;
    for (Value *v : g->outputs()) {
      if (g->shape->extents.lookup(v->def) != Extent::Full)
        continue;
      // Only where every reader outside is a kernel: otherwise it is stored anyway.
      llvm::SetVector<FuseGroup *, std::vector<FuseGroup *>> readers;
      bool all = !results.contains(v);
      for (auto &u : v->uses) {
        FuseGroup *r = u.node->parent() == &f ? groupOf.lookup(u.node) : nullptr;
        all &= r && r->isKernel;
        if (r && r != g)
          readers.insert(r);
      }
      if (all && !readers.empty())
        recomputeInto(v, readers.takeVector());
    }
  }
}

std::vector<FuseGroup *> FuseGroups::order() {
  std::vector<FuseGroup *> out;
  for (FuseGroup *g : sequence.all()) {
    for (Node *n : g->nodes)
      n->moveBefore(nullptr);
    out.push_back(g);
  }
  return out;
}
