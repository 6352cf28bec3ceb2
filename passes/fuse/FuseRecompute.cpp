// Values that are cheap to compute again from what is kept anyway: each kernel that reads one computes it by itself; for some
// targets one that has to be stored is computed again, too, where all that it comes from is read anyway.
#include "ir/Op.h"
#include "ir/Steps.h"
#include "ir/View.h"
#include "passes/fuse/FuseGroups.h"

using namespace zcc;

static bool isGathered(Value *v) {
  std::optional<View> view = viewOf(v);
  return view && view->base->def && view->base->def->op->collective == Collective::Gather;
}

/// The nodes of `v`'s group that it is computed from, in order of definition, and what these read.
struct FuseGroups::Cone {
  Value *value;
  FuseGroup *home;
  bool endsAtKept; ///< members that are kept are read, and not computed again
  unsigned dear;   ///< how many more operators it may have that cost more than a load
  llvm::SetVector<Node *> nodes;
  llvm::SetVector<Value *> leaves;
};

/// Whether something that is no kernel reads it in the backward, so that it is stored until then anyway.
bool FuseGroups::isKept(const Value *v) const {
  return llvm::any_of(v->uses, [&](auto &u) {
    const FuseGroup *g = groupOf(u.node);
    if (g && g->isKernel)
      return false;
    return u.node->op->view ? isKept(u.node->result()) : u.node->phase == Phase::Backward;
  });
}

/// Adds what `x` is computed from; false if that is dear, or too much.
bool FuseGroups::follow(Value *x, Cone &c) const {
  constexpr size_t kMostCone = 6; // beside a path to the leaves, which may be longer: readers' sizes bound that
  Node *d = x->def;
  if (!d || groupOf(d) != c.home || c.home->shape->extents.lookup(d) != Extent::Full || (c.endsAtKept && isKept(x))) {
    c.leaves.insert(x);
    return true;
  }
  if (c.nodes.contains(d))
    return true;
  if (c.nodes.size() >= kMostCone || (!d->op->cheap && !c.dear))
    return false;
  c.dear -= !d->op->cheap;
  for (Value *o : d->operands())
    if (o && !follow(o, c))
      return false;
  c.nodes.insert(d);
  return true;
}

/// Whether `leaf` has been overwritten where `reader` would read it again.
bool FuseGroups::isOverwritten(const Value *leaf, const FuseGroup *reader) const {
  while (leaf->def && leaf->def->op->view)
    leaf = leaf->def->operand(0);
  const FuseGroup *writer = groupOf(firstWrite.lookup(leaf));
  return writer && writer != reader && writer->label < reader->label;
}

/// Of the cone's leaves, the whole tensors that a reader does not read anyway.
size_t FuseGroups::extraReads(const FuseGroup &reader, const Cone &c) const {
  steps += reader.nodes.size();
  std::vector<Value *> in = reader.inputs();
  return llvm::count_if(c.leaves, [&](Value *l) {
    return !isLeaf(l) && l->type.localCount() == c.home->shape->count() && !llvm::is_contained(in, l);
  });
}

/// Whether a reader may take the cone over: it reads little that it does not read anyway, and stays small.
bool FuseGroups::canTake(const FuseGroup &reader, const Cone &c) const {
  for (Value *l : c.leaves) {
    if (isGathered(l))
      return false; // it would have to be kept until then
    if (Value *source = behindReshapes(l);
        source != l && groupOf(source->def) == c.home && source->type.localCount() == c.home->shape->count())
      return false; // an inner reshape: its source would have to be stored in its place
  }
  // A chain that each kernel took over from the one before would make kernels as long as the chain.
  return extraReads(reader, c) <= 1 && reader.nodes.size() + c.nodes.size() <= kMostNodes;
}

/// Clones of the cone right before the reader's first member, with its index: order within a group is by index.
std::vector<Node *> FuseGroups::cloneInto(const FuseGroup &reader, const Cone &c) {
  Node *first = reader.nodes.front();
  unsigned at = index(first);
  llvm::DenseMap<Value *, Value *> map;
  std::vector<Node *> clones;
  for (Node *n : c.nodes) {
    auto made = std::make_unique<Node>(n->op, n->loc);
    made->phase = n->phase;
    made->attrs = n->attrs;
    Node *k = f.insert(std::move(made), first);
    for (Value *o : n->operands()) {
      Value *inner = map.lookup(o);
      k->addOperand(inner ? inner : o);
    }
    k->results.push_back(std::make_unique<Value>(Value::Result, f.unique(n->result()->name), n->result()->type));
    k->results[0]->def = k;
    map[n->result()] = k->result();
    k->number = unsigned(members.size());
    members.push_back({nullptr, at});
    clones.push_back(k);
  }
  return clones;
}

/// Makes the reader compute the cone's value by itself; false if it has no loops for that, and all is as before.
bool FuseGroups::recomputeIn(FuseGroup &reader, const Cone &c) {
  std::vector<Node *> clones = cloneInto(reader, c);
  std::vector<std::pair<Node *, unsigned>> changed;
  for (Node *n : reader.nodes)
    for (unsigned i = 0; i < n->numOperands(); ++i)
      if (n->operand(i) == c.value) {
        n->setOperand(i, clones.back()->result());
        changed.push_back({n, i});
      }
  FuseGroup trial;
  trial.nodes = clones;
  trial.nodes.insert(trial.nodes.end(), reader.nodes.begin(), reader.nodes.end());
  auto shape = kernelShape(trial.withReshapes());
  if (!shape || !fits(*shape)) {
    for (auto [n, i] : changed)
      n->setOperand(i, c.value);
    for (Node *n : llvm::reverse(clones))
      n->erase();
    return false;
  }
  for (auto [n, clone] : llvm::zip(c.nodes, clones)) { // what writes what it reads comes behind it, too
    for (Node *w : std::vector<Node *>(of(n).followers))
      dependOn(w, clone);
    for (Node *w : std::vector<Node *>(of(n).after))
      dependOn(clone, w);
    of(clone).group = &reader;
  }
  reader.nodes = std::move(trial.nodes);
  reader.shape = std::move(shape);
  return true;
}

/// Whether something reads a value where `reader` stands, or behind it.
bool FuseGroups::isReadFrom(const Value *v, const FuseGroup &reader) const {
  size_t looks = kMostLooks;
  for (auto u = v->uses.rbegin(); u != v->uses.rend() && looks; ++u, --looks) { // the last first
    const FuseGroup *g = groupOf(u->node);
    if (u->node->op->view ? isReadFrom(u->node->result(), reader) : g && g->label >= reader.label)
      return true;
  }
  return false;
}

/// Follows the cone's value for its only reader, in the backward, over one operator that is dear, as far as what it is computed
/// from is there until then anyway: its bytes, written and read, take longer.
bool FuseGroups::followDear(Cone &c, llvm::ArrayRef<FuseGroup *> readers) const {
  if (readers.size() != 1 || readers[0]->nodes.back()->phase != Phase::Backward)
    return false;
  c = {c.value, c.home, false, 1, {}, {}};
  return follow(c.value, c) && llvm::all_of(c.leaves, [&](Value *l) {
           return !l->def || l->type.localCount() < c.home->shape->count() || isReadFrom(behindReshapes(l), *readers[0]);
         });
}

/// Clones the cone of `v` within its group into each reader, if all of them can take it.
void FuseGroups::recomputeInto(Value *v, llvm::ArrayRef<FuseGroup *> readers) {
  FuseGroup *home = groupOf(v->def);
  Cone c{v, home, false, 0, {}, {}}, fromKept{v, home, true, 0, {}, {}};
  const bool startsAtKept = follow(v, fromKept), isCheap = follow(v, c);
  auto isNoLarger = [&](Value *l) { return l->type.localBytes() <= v->type.localBytes(); };
  auto readsMore = [&](FuseGroup *r) {
    size_t extra = extraReads(*r, c);
    return extra && extraReads(*r, fromKept) <= extra;
  };
  // What a reader must read in addition should be what is there anyway: the result of a rectifier and not what it was given, or
  // that of a dear function, tanh for 1 - tanh^2.
  if (startsAtKept && (isCheap ? fromKept.nodes.size() < c.nodes.size() && llvm::all_of(readers, readsMore)
                               : llvm::all_of(fromKept.leaves, isNoLarger)))
    c = std::move(fromKept);
  else if (!isCheap && !followDear(c, readers))
    return;
  for (FuseGroup *r : readers)
    if (llvm::any_of(c.leaves, [&](Value *l) { return isOverwritten(l, r); }))
      return;
  if (!llvm::all_of(readers, [&](FuseGroup *r) { return canTake(*r, c); }))
    return;
  for (FuseGroup *r : readers)
    if (!recomputeIn(*r, c))
      return;
}

/// Clones the cone of `v`, which others read stored, into a reader that has no whole tensor more to read then, but `v` less: the
/// gradient of a batch norm reads what the norm was given, and from that follows what its rectifier let through.
void FuseGroups::recomputeFromRead(Value *v, FuseGroup &reader) {
  Cone c{v, groupOf(v->def), false, 0, {}, {}};
  if (follow(v, c) && extraReads(reader, c) == 0 && canTake(reader, c) &&
      llvm::none_of(c.leaves, [&](Value *l) { return isOverwritten(l, &reader); }))
    recomputeIn(reader, c);
}

/// The groups outside that read a member's value; whether it is stored anyway: something reads it that is no kernel.
FuseGroups::Readers FuseGroups::kernelsThatRead(const Value *v) const {
  Readers out{{}, results.contains(v)};
  for (auto &u : v->uses) {
    FuseGroup *r = groupOf(u.node);
    out.isStored |= !r || !r->isKernel;
    if (r && r->isKernel && r != groupOf(v->def))
      out.kernels.insert(r);
  }
  return out;
}

void FuseGroups::recomputeCheap(bool insteadOfReads) {
  for (FuseGroup *g : sequence.all()) {
    if (!g->isKernel)
      continue;
    std::vector<Value *> whole;
    for (Value *v : g->outputs())
      if (g->shape->extents.lookup(v->def) == Extent::Full)
        whole.push_back(v);
    for (Value *v : whole)
      if (const Readers r = kernelsThatRead(v); !r.isStored && !r.kernels.empty())
        recomputeInto(v, r.kernels.getArrayRef());
    if (!insteadOfReads)
      continue;
    for (Value *v : whole) // readers have what they read now
      if (const Readers r = kernelsThatRead(v); r.isStored)
        for (FuseGroup *k : r.kernels)
          recomputeFromRead(v, *k);
  }
}
