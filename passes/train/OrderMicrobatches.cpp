// Blocks before micro-batches (--accum-order=blocks): all micro-batches of a step pass through a block of the model before the
// next block, so that its parameters are fetched and gathered once forward and once backward, and its gradient is reduced once
// (GreedySnake, arXiv 2512.17570, calls it vertical). @micro takes the batches of all K micro-batches, stacked; a stretch of its
// nodes becomes the body of a scan over them.
//
//   func @micro(%x : f32[8x4]) -> (f32[]) {        body @micro.0(%x : f32[8x4], %w : f32[4x4]) -> (f32[8x4]) {...}
//     %y = matmul %x, %w                           body @micro.1(%d.w.acc : f32[4x4], %k : i64[], ...) -> (...) {
//     ...                                            %sum = add %d.w.acc, %d.w
//     %d.w = matmul %xt, %d.y                  ->    %next = select %is_first, %d.w, %sum
//     assign %w.grad, %d.w                         func @micro(%x : f32[Kx8x4]) -> (f32[K]) {
//     return %loss                                   %y = scan %x, %w {body = "micro.0", scanned = 1}
//                                                    %d.w.all, ... = scan %none, %ks, %y, ... {body = "micro.1", carried = 1...}
//                                                    assign %w.grad, %d.w.all
//                                                    return %loss.all
//
// A gradient is added up in the order of the micro-batches, from the first one's on: as @micro would accumulate it. What another
// block reads of a micro-batch is kept in a stack of K. What depends on no micro-batch is computed once. The loss and what is
// behind the last block go forward and backward in one scan, so that logits are those of one micro-batch.
#include "ir/Builder.h"
#include "ir/Control.h"
#include "passes/Pass.h"
#include "passes/memory/Activations.h"
#include "passes/memory/ForwardBlocks.h"
#include "passes/train/Optimizer.h"
#include "passes/train/Sweep.h"
#include "passes/zero/Zero.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace zcc;

namespace {
/// A stretch of @micro that becomes a body. Values of other stretches, arguments and globals are `slices`, `states` or `shared`.
struct Stretch {
  std::vector<Node *> nodes;               ///< that make values of their own, in order
  std::vector<Node *> gradients;           ///< assignments that become accumulations
  llvm::SetVector<GlobalValue *> states;   ///< that nodes of it write: carried
  llvm::SetVector<Value *> slices, shared; ///< of one micro-batch each; the same for all
  llvm::SetVector<Value *> rows;           ///< what others read of it
  bool countsBatches = false;              ///< reads the micro-batch's number
  Phase phase = Phase::Forward;
  Node *before = nullptr; ///< where its scan goes: in front of the next one's nodes
};

class Orderer {
public:
  Orderer(Module &m, Function &f, int64_t trips) : m_(m), f_(f), trips_(trips), micro_(m.global("micro")) {}
  void run();

private:
  void findShared();
  std::vector<int> blocksOfForward(int &last);
  std::vector<int> stretchOfNodes();
  void joinWhatSharesStates(std::vector<int> &of) const;
  void part();
  bool isInside(const Value *v, const Stretch &s) const;
  bool isMadeAnew(const Node &n, const Stretch &s) const;
  void need(Value *v, Stretch &s);
  void build(Stretch &s, size_t number);
  Value *inside(Value *v, const Stretch &s, Function &body, llvm::DenseMap<const Value *, Value *> &map);
  Value *stackOf(Value *v);

  Module &m_;
  Function &f_;
  int64_t trips_;
  GlobalValue *micro_;
  llvm::DenseSet<const Node *> shared_;         ///< nodes that no micro-batch changes
  llvm::SmallPtrSet<GlobalValue *, 8> written_; ///< states that a step of @micro writes, but gradients
  std::vector<Stretch> stretches_;
  llvm::DenseMap<const Node *, Stretch *> home_;
  llvm::DenseMap<const Value *, Value *> stacks_; ///< values of one micro-batch to those of all
  Value *numbers_ = nullptr;                      ///< 0, 1, ... K - 1
};
} // namespace

/// A value of all micro-batches.
static llvm::SmallVector<int64_t> stacked(int64_t trips, llvm::ArrayRef<int64_t> dims) {
  llvm::SmallVector<int64_t> out{trips};
  out.append(dims.begin(), dims.end());
  return out;
}

static bool isGradient(const Node &n) { return paramOfGradient(n) != nullptr; }

void Orderer::findShared() {
  llvm::DenseSet<const Value *> changing;
  if (micro_)
    changing.insert(micro_);
  for (auto &n : f_.nodes)
    if (assigns(*n) && !isGradient(*n)) {
      written_.insert(static_cast<GlobalValue *>(n->operand(0)));
      changing.insert(n->operand(0));
    }
  shared_ = fixedNodes(f_, changing);
}

// ---- where one stretch ends and the next begins

/// More blocks than this are taken together, so that no step is made of tiny scans.
static constexpr size_t kMostBlocks = 64;

/// The first nodes of all blocks but the first, and what is behind the last one.
static llvm::DenseSet<const Node *> beginnings(const Function &f) {
  ForwardBlocks blocks = findBlocks(f);
  std::vector<const Node *> all;
  for (const ForwardBlocks::Chain &chain : blocks.chains)
    for (unsigned cut : chain.cuts)
      if (cut > 0 && cut < blocks.nodes.size() && (all.empty() || all.back() != blocks.nodes[cut]))
        all.push_back(blocks.nodes[cut]);
  size_t every = (all.size() + kMostBlocks - 1) / kMostBlocks;
  llvm::DenseSet<const Node *> out;
  for (size_t i = 0; i < all.size(); ++i)
    if ((all.size() - 1 - i) % every == 0) // the last one always: the loss is behind it
      out.insert(all[i]);
  return out;
}

/// Of each node of the backward the block that its gradient rule's node is in, or -1; the backward is then cut where most nodes
/// of later blocks are in front, and most of earlier ones behind.
static std::vector<size_t> cutBackward(llvm::ArrayRef<int> labels, int last) {
  std::vector<size_t> cuts; // before blocks last - 1, last - 2, ... 0
  size_t from = 0;
  for (int block = last; block > 0; --block) {
    int score = 0, best = 0;
    size_t at = from;
    for (size_t i = from; i < labels.size(); ++i) {
      score += labels[i] < 0 ? 0 : labels[i] >= block ? 1 : -1;
      if (score > best)
        best = score, at = i + 1;
    }
    cuts.push_back(from = at);
  }
  return cuts;
}

/// Numbers the stretches: blocks of the forward, the last of which is that of the loss, and the others again in the backward.
std::vector<int> Orderer::stretchOfNodes() {
  llvm::DenseSet<const Node *> begins = beginnings(f_);
  std::vector<int> of;
  llvm::DenseMap<const LocInfo *, int> blockOf;
  std::vector<int> labels;
  int last = 0;
  for (auto &n : f_.nodes) {
    if (n->phase == Phase::Forward) {
      last += begins.contains(n.get());
      blockOf.try_emplace(n->loc.get(), last);
      of.push_back(last);
    } else {
      auto known = blockOf.find(n->loc.get());
      labels.push_back(known == blockOf.end() || !n->loc ? -1 : known->second);
    }
  }
  std::vector<size_t> cuts = cutBackward(labels, last);
  std::vector<int> out;
  size_t forward = 0, backward = 0;
  for (auto &n : f_.nodes) {
    if (n->phase == Phase::Forward)
      out.push_back(of[forward++]);
    else
      out.push_back(last + int(llvm::count_if(cuts, [&](size_t c) { return c <= backward; }))), ++backward;
    // A value is never read before it is made: a node of the forward behind the first of the backward is of the loss.
    if (out.size() > 1)
      out.back() = std::max(out.back(), out[out.size() - 2]);
  }
  return out;
}

/// What reads a state and what writes it are in one stretch.
void Orderer::joinWhatSharesStates(std::vector<int> &of) const {
  auto at = positions(f_);
  std::vector<std::pair<int, int>> spans;
  for (GlobalValue *g : written_) {
    int first = INT_MAX, last = 0;
    for (auto &u : g->uses)
      if (u.node->parent() == &f_) {
        first = std::min(first, of[at.lookup(u.node)]);
        last = std::max(last, of[at.lookup(u.node)]);
      }
    spans.push_back({first, last});
  }
  for (int &stretch : of)
    for (bool again = true; again;) {
      again = false;
      for (auto [first, last] : spans)
        if (stretch > first && stretch <= last)
          stretch = first, again = true;
    }
}

void Orderer::part() {
  std::vector<int> of = stretchOfNodes();
  joinWhatSharesStates(of);
  std::vector<int> numbers(of);
  llvm::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  stretches_.resize(numbers.size());
  size_t i = 0;
  for (auto &n : f_.nodes) {
    size_t number = llvm::lower_bound(numbers, of[i++]) - numbers.begin();
    Stretch &s = stretches_[number];
    if (number > 0 && !stretches_[number - 1].before)
      stretches_[number - 1].before = n.get();
    if (shared_.contains(n.get()))
      continue;
    home_[n.get()] = &s;
    if (n->phase == Phase::Backward)
      s.phase = Phase::Backward;
    if (isGradient(*n))
      s.gradients.push_back(n.get());
    else
      s.nodes.push_back(n.get());
  }
}

// ---- what a stretch reads

/// Views, constants and casts that widen cost nothing: every stretch has its own. Once forward and backward are functions of
/// their own, nothing has to say that the backward is later.
bool Orderer::isMadeAnew(const Node &n, const Stretch &s) const {
  if (n.op->leaf != Leaf::None || n.op->view || widens(n))
    return shared_.contains(&n) || home_.lookup(&n) != &s;
  return n.op->structural == Structural::After && home_.lookup(n.operand(1)->def) != &s;
}

/// Notes what has to come from outside for `v` to be read.
void Orderer::need(Value *v, Stretch &s) {
  if (!v || (v->def && home_.lookup(v->def) == &s && !isMadeAnew(*v->def, s)))
    return;
  if (v == micro_)
    s.countsBatches = true;
  else if (v->isGlobal() && written_.contains(static_cast<GlobalValue *>(v)))
    s.states.insert(static_cast<GlobalValue *>(v));
  else if (v->isGlobal())
    s.shared.insert(v);
  else if (v->kind == Value::Argument)
    s.slices.insert(v);
  else if (isMadeAnew(*v->def, s))
    for (Value *o : v->def->operands().take_front(v->def->op->structural == Structural::After ? 1 : ~0u))
      need(o, s);
  else if (shared_.contains(v->def))
    s.shared.insert(v);
  else {
    s.slices.insert(v);
    home_.lookup(v->def)->rows.insert(v);
  }
}

/// What stands for `v` in the body of `s`.
Value *Orderer::inside(Value *v, const Stretch &s, Function &body, llvm::DenseMap<const Value *, Value *> &map) {
  if (!v)
    return nullptr;
  if (Value *known = map.lookup(v))
    return known;
  assert(v->def && isMadeAnew(*v->def, s) && "what a body reads is noted");
  if (v->def->op->structural == Structural::After)
    return map[v] = inside(v->def->operand(0), s, body, map);
  for (Value *o : v->def->operands())
    inside(o, s, body, map);
  copyNodes({v->def}, body, map);
  return map.lookup(v);
}

// ---- scans

/// What no micro-batch changes is that of all.
Value *Orderer::stackOf(Value *v) {
  if (v->kind == Value::Argument)
    return v;
  if (Value *known = stacks_.lookup(v))
    return known;
  Builder b(f_, nullptr, v->def ? v->def->loc : makeLoc(v->name));
  return b.expand(b.reshape(v, stacked(1, v->type.dims)), stacked(trips_, v->type.dims));
}

/// A tensor of which nothing has a value yet.
static Value *nothing(Builder &b, const Type &t) {
  int64_t count = t.count();
  Value *none =
      b.make(ops::insert, {nullptr, b.splat(0, t.withDims({1}))}, {{"begin", int64_t(0)}, {"dims", std::vector<int64_t>{count}}});
  return b.reshape(none, t.dims);
}

void Orderer::build(Stretch &s, size_t number) {
  Loc loc = s.nodes.empty() ? s.gradients[0]->loc : s.nodes[0]->loc;
  Function &body = *m_.addBody(f_.name + "." + std::to_string(number));
  Builder outside(f_, s.before, loc);
  outside.phase = s.phase;
  llvm::DenseMap<const Value *, Value *> map;
  llvm::SmallVector<Value *> operands, sums;

  for (Node *n : s.gradients) {
    Type t = n->operand(1)->type;
    t.elem = elemOfSums(t.elem);
    operands.push_back(nothing(outside, t));
    sums.push_back(body.addArg(n->operand(0)->name, t));
  }
  for (GlobalValue *g : s.states) {
    operands.push_back(g);
    map[g] = body.addArg(g->name, g->type);
  }
  int64_t carried = int64_t(operands.size());
  Value *number0 = nullptr;
  if (s.countsBatches || !s.gradients.empty()) {
    operands.push_back(numbers_);
    number0 = body.addArg("k", Type(Elem::I64, {}));
    if (micro_)
      map[micro_] = number0;
  }
  for (Value *v : s.slices) {
    operands.push_back(stackOf(v));
    bool isStacked = v->kind == Value::Argument;
    llvm::ArrayRef<int64_t> dims = v->type.dims;
    map[v] = body.addArg(v->name, v->type.withDims(isStacked ? dims.drop_front() : dims));
  }
  int64_t scanned = int64_t(operands.size()) - carried;
  for (Value *v : s.shared) {
    operands.push_back(v);
    map[v] = body.addArg(v->name, v->type);
  }

  for (Node *n : s.nodes) {
    if (isMadeAnew(*n, s))
      continue;
    for (Value *o : n->operands())
      inside(o, s, body, map);
    if (assigns(*n))
      map[n->operand(0)] = map.lookup(n->operand(1));
    else
      copyNodes({n}, body, map);
  }
  Builder b(body, nullptr, loc);
  Value *isFirst = s.gradients.empty() ? nullptr : b.make(ops::eq, {number0, b.scalar(0, Elem::I64)}, {}, "is_first");
  for (size_t i = 0; i < s.gradients.size(); ++i) {
    Value *d = inside(s.gradients[i]->operand(1), s, body, map);
    body.results.push_back(addUp(b, sums[i], d, isFirst, sums[i]->name + ".sum"));
  }
  for (GlobalValue *g : s.states)
    body.results.push_back(map.lookup(g));
  for (Value *v : s.rows)
    body.results.push_back(inside(v, s, body, map));

  Attrs attrs{{"body", body.name}, {"carried", carried}, {"scanned", scanned}};
  if (!scanned)
    attrs.set("trips", trips_);
  Node *scan = outside.node(ops::scan, operands, attrs);
  unsigned r = 0;
  for (Node *n : s.gradients) {
    n->operand(0)->type.elem = scan->result(r)->type.elem;
    Builder(f_, s.before, n->loc).node(ops::assign, {n->operand(0), scan->result(r++)})->phase = Phase::Backward;
  }
  for (GlobalValue *g : s.states)
    outside.node(ops::assign, {g, scan->result(r++)});
  for (Value *v : s.rows)
    stacks_[v] = scan->result(r++);
}

void Orderer::run() {
  findShared();
  part();
  for (Stretch &s : stretches_) {
    for (Node *n : s.nodes)
      if (!isMadeAnew(*n, s))
        for (Value *v : n->operands())
          need(v, s);
    for (Node *n : s.gradients)
      need(n->operand(1), s);
  }
  Value *loss = f_.results[0];
  for (Value *v : f_.results)
    if (Stretch *s = v->def ? home_.lookup(v->def) : nullptr)
      s->rows.insert(v);
  for (auto &a : f_.args)
    a->type = a->type.withDims(stacked(trips_, a->type.dims));
  Builder top(f_, f_.first(), stretches_[0].before ? stretches_[0].before->loc : loss->def->loc);
  numbers_ = top.make(ops::iota, {}, {{"dims", std::vector<int64_t>{trips_}}, {"axis", int64_t(0)}});
  for (size_t i = 0; i < stretches_.size(); ++i)
    build(stretches_[i], i);
  for (Value *&v : f_.results)
    v = stackOf(v);
  for (Stretch &s : llvm::reverse(stretches_)) {
    for (Node *n : s.gradients)
      n->erase();
    for (Node *n : llvm::reverse(s.nodes))
      n->erase();
  }
  eraseDeadNodes(f_); // what every stretch has made anew
}

llvm::Expected<bool> zcc::orderMicrobatches(Module &m, PassContext &ctx) {
  Function *micro = m.function("micro");
  bool isNoted = m.attrs.s("accum_order") == "blocks"; // by choose-plan
  m.attrs.erase("accum_order");
  if (!micro || !(isNoted || ctx.options.ordersBlocks()))
    return isNoted;
  Orderer(m, *micro, ctx.options.gradAccum).run();
  m.attrs.set("batches_per_call", int64_t(ctx.options.gradAccum));
  return true;
}
