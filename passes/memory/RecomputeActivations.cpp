// What is noted on nodes of the forward (`recompute`, by choose-checkpoints or by hand) becomes nodes of the backward: where it
// is first read there, the nodes of one number are computed again, from what is kept (Chen and others, arXiv 1604.06174).
//
//   %a = matmul %x, %w                               %a = matmul %x, %w
//   %h = gelu %a {!recompute = 3}                    %h = gelu %a
//   %y = matmul %h, %v                        ->     %y = matmul %h, %v
//   ...                                              ...
//   %d.h = matmul %d.y, %vt                          %d.h = matmul %d.y, %vt
//   %ht = transpose %h                               %a.1 = after %a, %d.y
//   %d.v = matmul %ht, %d.y                          %h.1 = gelu %a.1
//                                                    %ht = transpose %h.1
//                                                    %d.v = matmul %ht, %d.y
//
// A segment that reads what another one computes again computes that for itself, too: it need not wait until the backward comes
// to the other. What is noted to be shared (`recompute_shared`) is computed again once and kept for those that come later.
//
// A norm over the batch is computed again from its statistics, which are kept.
//
// `after` says that the backward has come so far: without it the two gelus were equal and would stand in one kernel of the
// forward. Parameters, what follows from them alone, and views are read as they are, so that a gather of the backward serves
// both. A draw gets its numbers from its id, the step and the micro-batch: the same again.
#include "ir/Builder.h"
#include "ir/Control.h"
#include "passes/Pass.h"
#include "passes/Refusal.h"
#include "passes/memory/Activations.h"
#include "llvm/ADT/SetVector.h"
#include <map>
#include <optional>

using namespace zcc;

namespace {
class Recomputation {
public:
  explicit Recomputation(Function &f)
      : fn(f), allowed(f), isLow(llvm::any_of(f.module->globals, [](auto &g) { return isFloat16(g->type.elem); })) {}
  llvm::Expected<bool> run();

private:
  /// The nodes of one number, and whether they have been computed again.
  struct Segment {
    std::vector<Node *> nodes;
    bool isDone = false;
  };

  llvm::Error collect();
  std::optional<int64_t> segmentOf(const Value *v) const;
  Value *sourceOf(Value *v) const;
  void measureLateness();
  Value *latest(Node &reader) const;
  Value *behindForward(Node &reader) const;
  void addCone(Node &n, int64_t number, llvm::SmallSetVector<Node *, 16> &cone);
  llvm::DenseMap<int64_t, Value *> readOfOthers(llvm::ArrayRef<Node *> nodes) const;
  void compute(int64_t number, Node &before);
  void clone(Node &n, int64_t number, Node &before);
  Node *cloneWhole(Node &n, llvm::ArrayRef<Value *> operands, Node &before);
  Value *operandFor(Value *v, int64_t number, Node &before);
  Value *kept(Value *v, Node &before);
  Value *viewFor(Value *v, Value *base, Node &before);
  Builder builder(const Value &v, Node &before);
  bool replace(Node &reader, unsigned operand);

  Function &fn;
  Recomputable allowed;
  const bool isLow; ///< there are floats of 16 bits
  std::map<int64_t, Segment> segments;
  llvm::DenseMap<const Node *, int64_t> numberOf;
  llvm::DenseMap<const Node *, int> lateness; ///< the last node of the forward that a node needs
  llvm::DenseMap<const Node *, int> most;     ///< of a node of the backward: the greatest lateness in front of it
  /// What has been computed again, for the segment of a number.
  llvm::DenseMap<std::pair<int64_t, const Value *>, Value *> again;
  llvm::DenseMap<const Node *, std::optional<int64_t>> shared; ///< for which number they were first computed again
  /// Values of other segments that a segment's own nodes read.
  llvm::DenseSet<std::pair<int64_t, const Value *>> inputs;
  int64_t newestSegment = -1;
  llvm::DenseMap<std::pair<const Value *, const Node *>, Value *> awaited;  ///< `after` of a kept value, in front of a node
  llvm::DenseMap<std::pair<const Value *, const Value *>, Value *> viewsOf; ///< a view or a widening cast of another value
  llvm::DenseMap<const Value *, Value *> newest;                            ///< of a kept value, the last `after`
  Value *until = nullptr;                                                   ///< what the segment that is computed waits for
};
} // namespace

/// Whether it is small beside its node's first result, which is computed again from it.
static bool isKeptBeside(const Value &v) { return v.def && v.def->op->again && v.index > 0; }

/// The segment that computes a value (no view) again; nothing if it is read as it is.
std::optional<int64_t> Recomputation::segmentOf(const Value *v) const {
  auto number = v && v->def && !isKeptBeside(*v) ? numberOf.find(v->def) : numberOf.end();
  return number != numberOf.end() ? std::optional(number->second) : std::nullopt;
}

/// What stands behind the views and the widening casts through which `v` is read, which are made anew where it is computed again.
Value *Recomputation::sourceOf(Value *v) const {
  Value *base = behindViews(v);
  while (base && base->def && !segmentOf(base) && widens(*base->def))
    base = behindViews(base->def->operand(0));
  return base;
}

/// Finds and erases the notes.
llvm::Error Recomputation::collect() {
  for (auto &n : fn.nodes) {
    if (!n->attrs.has("recompute"))
      continue;
    if (const char *why = allowed.whyNot(*n))
      return refuseAt(n->loc, "'" + llvm::Twine(n->op->name) + "' cannot be computed again in the backward: " + why);
    int64_t number = n->attrs.i("recompute");
    segments[number].nodes.push_back(n.get());
    numberOf[n.get()] = number;
    n->attrs.erase("recompute");
    if (n->attrs.has("recompute_shared"))
      shared[n.get()] = std::nullopt;
    n->attrs.erase("recompute_shared");
  }
  return llvm::Error::success();
}

void Recomputation::measureLateness() {
  int at = 0, greatest = 0;
  for (auto &n : fn.nodes) {
    int &late = lateness[n.get()] = n->phase == Phase::Forward ? at++ : 0;
    if (n->phase == Phase::Forward)
      continue;
    most[n.get()] = greatest;
    for (Value *v : n->operands())
      if (v && v->def)
        late = std::max(late, lateness.lookup(v->def));
    greatest = std::max(greatest, late);
  }
}

/// A value of the backward in front of `reader` that needs as much of the forward as any: when it is there, the backward has come
/// to the reader. One that the reader itself reads has to be stored anyway. Beside floats of 16 bits those of 32 are what kernels
/// compute inside: to wait for one would store it.
Value *Recomputation::latest(Node &reader) const {
  const int late = most.lookup(&reader);
  auto find = [&](bool isNarrow) -> Value * {
    auto isLate = [&](Value *v) {
      return v && v->def && v->def->phase != Phase::Forward && holdsActivation(*v->def) && lateness.lookup(v->def) == late &&
             (!isNarrow || isFloat16(v->type.elem));
    };
    for (Value *v : reader.operands())
      if (Value *base = isNarrow ? sourceOf(v) : behindViews(v); isLate(base))
        return base;
    for (Node *n = reader.prev(); n && n->phase != Phase::Forward; n = n->prev())
      if (!n->results.empty() && isLate(n->result()))
        return n->result();
    return nullptr;
  };
  Value *narrow = isLow ? find(true) : nullptr, *found = narrow ? narrow : find(false);
  return found ? found : behindForward(reader);
}

/// The loss, or where that stands behind `reader`, as of tiles, of which the backward begins before the last one's forward is
/// computed, the last value in front of it.
Value *Recomputation::behindForward(Node &reader) const {
  Value *loss = behindViews(fn.results[0]), *last = nullptr;
  for (Node *n = reader.prev(); n; n = n->prev()) {
    if (n == loss->def)
      return fn.results[0];
    if (!last && !n->results.empty() && holdsActivation(*n))
      last = n->result();
  }
  return last ? last : fn.results[0];
}

/// For what stands for `v` in front of `before`.
Builder Recomputation::builder(const Value &v, Node &before) {
  Builder b(fn, &before, v.def ? v.def->loc : before.loc);
  b.phase = Phase::Backward;
  return b;
}

/// `v`, which the forward keeps, in front of `before`.
Value *Recomputation::kept(Value *v, Node &before) {
  Value *&to = awaited[{v, &before}];
  if (!to)
    to = builder(*v, before).make(ops::after, {v, until}, {}, v->name);
  newest[v] = to;
  return to;
}

/// The views that lead from the base of `v` to it, made of `base`.
Value *Recomputation::viewFor(Value *v, Value *base, Node &before) {
  if (!v->def || !v->def->op->view)
    return base;
  if (Value *known = viewsOf.lookup({v, base}))
    return known;
  llvm::SmallVector<Value *, 2> operands(v->def->operands().begin(), v->def->operands().end());
  operands[0] = viewFor(operands[0], base, before);
  return viewsOf[{v, base}] = builder(*v, before).make(*v->def->op, operands, v->def->attrs, v->name);
}

/// What a node of segment `number`, computed again in front of `before`, reads instead of `v`.
Value *Recomputation::operandFor(Value *v, int64_t number, Node &before) {
  Value *base = behindViews(v);
  Node *def = base ? base->def : nullptr;
  if (!base || base->isGlobal() || (def && (allowed.isFixed(def) || def->op->leaf == Leaf::Constant)))
    return v;
  if (segmentOf(base))
    return viewFor(v, again.lookup({number, base}), before);
  if (!def || !widens(*def))
    return viewFor(v, kept(base, before), before);
  // Free where it is read, dear where it is stored.
  Value *narrow = operandFor(def->operand(0), number, before);
  Value *&wide = viewsOf[{base, narrow}];
  if (!wide)
    wide = builder(*base, before).make(ops::cast, {narrow}, def->attrs, base->name);
  return viewFor(v, wide, before);
}

/// A node like `n`, with results of their own.
Node *Recomputation::cloneWhole(Node &n, llvm::ArrayRef<Value *> operands, Node &before) {
  auto made = std::make_unique<Node>(n.op, n.loc);
  made->attrs = n.attrs;
  made->phase = Phase::Backward;
  for (Value *v : operands)
    made->addOperand(v);
  if (n.op->random)
    made->setOperand(0, kept(n.operand(0), before));
  Node *c = fn.insert(std::move(made), &before);
  for (auto &r : n.results) {
    c->results.push_back(std::make_unique<Value>(Value::Result, fn.unique(r->name), r->type));
    c->results.back()->def = c;
    c->results.back()->index = r->index;
  }
  return c;
}

/// Computes a node again for segment `number`, which need not be its own.
void Recomputation::clone(Node &n, int64_t number, Node &before) {
  llvm::SmallVector<Value *, 4> operands, rest;
  for (Value *v : n.operands()) {
    operands.push_back(v ? operandFor(v, number, before) : nullptr);
    if (Value *base = sourceOf(v); base && numberOf.lookup(&n) == number)
      inputs.insert({number, base});
  }
  if (n.op->again) {
    for (auto &r : llvm::ArrayRef(n.results).drop_front())
      rest.push_back(kept(r.get(), before));
    Builder b = builder(*n.result(), before);
    again[{number, n.result()}] = n.op->again(b, operands, rest);
    return;
  }
  Node *c = cloneWhole(n, operands, before);
  for (auto &r : n.results)
    again[{number, r.get()}] = c->result(r->index);
}

/// Adds nodes of segments that `n`, for segment `number`, is computed from and that are not computed for that yet.
void Recomputation::addCone(Node &n, int64_t number, llvm::SmallSetVector<Node *, 16> &cone) {
  if (again.count({number, n.result()}) || cone.contains(&n))
    return;
  if (std::optional<int64_t> first = shared.lookup(&n)) {
    for (auto &r : n.results)
      again[{number, r.get()}] = again.lookup({*first, r.get()});
    return;
  }
  cone.insert(&n);
  for (Value *v : n.operands())
    if (Value *base = sourceOf(v); segmentOf(base))
      addCone(*base->def, number, cone);
}

/// Of what the nodes of each number read of others, what the forward makes last.
llvm::DenseMap<int64_t, Value *> Recomputation::readOfOthers(llvm::ArrayRef<Node *> nodes) const {
  llvm::DenseMap<int64_t, Value *> last;
  for (Node *n : nodes)
    for (Value *v : n->operands()) {
      Value *base = sourceOf(v);
      const std::optional<int64_t> number = segmentOf(base);
      if (!number || *number == numberOf.lookup(n))
        continue;
      Value *&known = last[numberOf.lookup(n)];
      if (!known || lateness.lookup(known->def) < lateness.lookup(base->def))
        known = base;
    }
  return last;
}

/// Computes a segment again in front of `before`: in the forward's order, with what it reads of other segments. One waits for
/// what it reads of those: the branches of several blocks would be there at once, to be added in one kernel.
void Recomputation::compute(int64_t number, Node &before) {
  Segment &s = segments[number];
  s.isDone = true;
  newestSegment = number;
  llvm::SmallSetVector<Node *, 16> cone;
  for (Node *n : s.nodes)
    addCone(*n, number, cone);
  llvm::SmallVector<Node *, 16> nodes(cone.begin(), cone.end());
  llvm::sort(nodes, [&](Node *a, Node *b) { return lateness.lookup(a) < lateness.lookup(b); });
  const auto last = readOfOthers(nodes);
  Value *const first = latest(before);
  for (Node *n : nodes) {
    Value *read = last.lookup(numberOf.lookup(n)), *other = again.lookup({number, read});
    until = other && cone.contains(read->def) ? other : first;
    clone(*n, number, before);
    if (auto first = shared.find(n); first != shared.end())
      first->second = number;
  }
}

/// A node of the backward reads what is computed again; and of what is kept for that what segments wait for: a derivative that
/// follows from it alone would otherwise be computed in the forward, and kept as well.
bool Recomputation::replace(Node &reader, unsigned operand) {
  Value *v = reader.operand(operand), *base = behindViews(v);
  const std::optional<int64_t> number = segmentOf(base);
  if (!number) {
    if (Value *awaited = newest.lookup(base))
      reader.setOperand(operand, viewFor(v, awaited, reader));
    return false;
  }
  int64_t of = *number;
  if (!segments[of].isDone && inputs.contains({newestSegment, base}))
    of = newestSegment; // the one behind: its own is not computed yet
  if (!segments[of].isDone)
    compute(of, reader);
  reader.setOperand(operand, viewFor(v, again.lookup({of, base}), reader));
  return true;
}

llvm::Expected<bool> Recomputation::run() {
  if (auto e = collect())
    return e;
  if (segments.empty())
    return false;
  measureLateness();
  std::vector<Node *> readers;
  for (auto &n : fn.nodes)
    if (n->phase != Phase::Forward && !n->op->view)
      readers.push_back(n.get());
  bool callsAgain = false;
  for (Node *n : readers)
    for (unsigned i = 0; i < n->numOperands(); ++i)
      if (replace(*n, i))
        callsAgain = true;
  eraseDeadNodes(fn); // of a segment, what the backward does not need
  if (callsAgain)
    unshareBodies(*fn.module); // the forward need not make what only the backward reads
  return true;
}

llvm::Expected<bool> zcc::recomputeActivations(Module &m, PassContext &) {
  Function *f = m.function("micro");
  if (!f || f->results.empty())
    return false;
  return Recomputation(*f).run();
}
