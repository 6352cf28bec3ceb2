// What a library would lay out anew in each call, because it computes faster on a layout of its own, is packed once for all who
// read it so: weights of convolutions and of thin products.
//
//   body @rnn(%h : f32[20x650], %w : f32[650x650]) -> (...) {    body @rnn(%h, %w.packed : f32[650x650]~AB16b64a) -> (...) {
//     %y = matmul %h, %w                                           %y = matmul %h, %w.packed
//     ...                                                  ->      ...
//   %last = scan %h0, %w {body = "rnn", trips = 35}              %p = pack %w {layout = "AB16b64a"}
//                                                                %last = scan %h0, %p {body = "rnn", trips = 35}
//
// Where the micro-batches of a step are calls of @micro, a weight is packed by the first of them, into a state that the others
// read, too (the note `once`):
//
//   %p = pack %w {layout = "ABcd16b16a2b", !once = 1}
//   assign %w.packed, %p {!once = 1}
//   %y = conv %x, %w.packed
//
// A reader computes the same bits either way: its way of computing was chosen without regard to who packs. How many readers repay
// it is the target's to say. Under a budget nothing is packed: copies take memory.
#include "ir/Builder.h"
#include "ir/Control.h"
#include "passes/Pass.h"
#include "passes/Target.h"
#include "passes/memory/Liveness.h"
#include "passes/offload/LateNodes.h"
#include "passes/zero/Zero.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/FormatVariadic.h"
#include <bit>

using namespace zcc;

namespace {
/// A node that would have its weight packed, and where the weight is from: through views, and through the scans that hand it on
/// unchanged.
struct WeightReader {
  Node *node = nullptr;
  Target::Packing packing;
  llvm::SmallVector<Node *, 2> scans; ///< around it, the outermost first
  llvm::SmallVector<Node *, 2> views; ///< from the source on; each where it is
  View source;                        ///< of what owns memory where the outermost scan is
  double times = 1;                   ///< that it runs each time that function does

  /// The node in the function of the source.
  Node *top() const { return scans.empty() ? node : scans[0]; }
  Function &home() const { return *top()->parent(); }
};

/// Readers that one packed value serves.
struct PackGroup {
  std::vector<const WeightReader *> readers;
  bool isKept = false; ///< for all calls of @micro
  bool serves(const WeightReader &r, bool kept) const;
  const WeightReader &first() const { return *readers[0]; }
};

class Packer {
public:
  Packer(Module &m, PassContext &ctx)
      : m_(m), ctx_(ctx), calls_(m.function("micro") ? double(ctx.options.gradAccum) / double(batchesPerCall(m)) : 1),
        late_(lateNodes(m)) {}
  bool run();

private:
  Node *scanAround(const Value &v, const Function &f) const;
  std::optional<WeightReader> readerOf(Node &n) const;
  void collect(Function &f);
  void askTarget();
  double readsOf(const WeightReader &r, bool kept) const { return r.times * (kept ? calls_ : 1); }
  std::vector<PackGroup> groups() const;
  bool mayKeep(const WeightReader &r) const;
  bool isUnwritten(const PackGroup &g) const;
  void apply(const PackGroup &g);
  Value *packed(const PackGroup &g);
  Value *kept(const PackGroup &g, Node &pack) const;
  void dropUnread() const;

  Module &m_;
  PassContext &ctx_;
  const double calls_; ///< of @micro in a step
  const llvm::DenseSet<const Node *> late_;
  std::vector<WeightReader> readers_;
  llvm::DenseMap<const Function *, Positions> at_;
  llvm::DenseMap<const Function *, std::vector<Node *>> callers_; ///< of bodies
  int64_t bytes_ = 0;
};
} // namespace

static unsigned weightOf(const Node &n) { return unsigned(std::countr_zero(n.op->packs)); }

// ---- who reads what

/// The scan that alone names the body of which `v` is the same argument in all iterations.
Node *Packer::scanAround(const Value &v, const Function &f) const {
  auto callers = callers_.find(&f);
  if (v.kind != Value::Argument || callers == callers_.end() || callers->second.size() != 1)
    return nullptr;
  Node *caller = callers->second[0];
  return caller->op->isScan() && ScanForm(*caller).isInvariant(v.index) ? caller : nullptr;
}

/// Where the weight of `n` is from; nullopt: it has no strides there.
std::optional<WeightReader> Packer::readerOf(Node &n) const {
  WeightReader r{&n, {}};
  Value *v = n.operand(weightOf(n));
  for (const Function *f = n.parent();;) {
    for (; v->def && v->def->op->view; v = v->def->operand(0))
      r.views.insert(r.views.begin(), v->def);
    Node *scan = scanAround(*v, *f);
    if (!scan)
      break;
    r.scans.insert(r.scans.begin(), scan);
    r.times *= double(ScanForm(*scan).trips);
    v = scan->operand(v->index);
    f = scan->parent();
  }
  std::optional<View> at = viewOf(v);
  for (Node *view : r.views)
    at = at ? viewThrough(*view, *at) : at;
  if (!at || v->type.isPartitioned() || v->type.space != Space::Device)
    return std::nullopt;
  r.source = *at;
  return r;
}

void Packer::collect(Function &f) {
  for (auto &n : f.nodes) {
    if (!n->op->packs || n->operand(weightOf(*n))->type.isPacked())
      continue;
    if (auto r = readerOf(*n))
      readers_.push_back(std::move(*r));
  }
  at_[&f] = positions(f);
}

/// Keeps those that are not alone with their weight, and would have it packed: a library takes its time to tell.
void Packer::askTarget() {
  llvm::DenseMap<std::pair<const Value *, unsigned>, double> reads; // by source and phase
  constexpr unsigned kAllPhases = 3;
  auto keyOf = [&](const WeightReader &r) {
    return std::pair(static_cast<const Value *>(r.source.base), mayKeep(r) ? kAllPhases : unsigned(r.top()->phase));
  };
  for (const WeightReader &r : readers_)
    reads[keyOf(r)] += readsOf(r, mayKeep(r));
  llvm::erase_if(readers_, [&](WeightReader &r) {
    auto packing = ctx_.target->packingOf(*r.node, reads.lookup(keyOf(r)));
    if (packing)
      r.packing = *packing;
    return !packing;
  });
}

// ---- what is packed

bool PackGroup::serves(const WeightReader &r, bool kept) const {
  const WeightReader &f = first();
  const View &a = f.source, &b = r.source;
  return kept == isKept && &f.home() == &r.home() && (kept || f.top()->phase == r.top()->phase) &&
         f.packing.layout == r.packing.layout && a.base == b.base && a.offset == b.offset && a.dims == b.dims &&
         a.strides == b.strides;
}

/// Whether all calls of @micro in a step read the same weight: what may change it there is done by the first one, before.
bool Packer::mayKeep(const WeightReader &r) const {
  const Value *v = r.source.base;
  if (calls_ <= 1 || r.home().name != "micro" || !v->isGlobal())
    return false;
  const Positions &at = at_.find(&r.home())->second;
  return llvm::all_of(v->uses, [&](const Value::Use &u) {
    const bool isWrite = assigns(*u.node) && u.index == 0 && u.node->parent() == &r.home();
    return !isWrite || (late_.contains(u.node) && at.lookup(u.node) < at.lookup(r.top()));
  });
}

/// Whether nothing writes a global between its first reader and its last.
bool Packer::isUnwritten(const PackGroup &g) const {
  const Positions &at = at_.find(&g.first().home())->second;
  const int from = at.lookup(g.first().top()), to = at.lookup(g.readers.back()->top());
  return llvm::none_of(g.first().source.base->uses, [&](const Value::Use &u) {
    return assigns(*u.node) && u.index == 0 && u.node->parent() == &g.first().home() && from < at.lookup(u.node) &&
           at.lookup(u.node) < to;
  });
}

/// The value of the first reader, packed right in front of it.
Value *Packer::packed(const PackGroup &g) {
  const WeightReader &r = g.first();
  Builder b(r.home(), r.top(), r.node->loc);
  Value *v = r.node->operand(weightOf(*r.node));
  if (!r.scans.empty()) { // the views again, outside
    v = r.source.base;
    for (const Node *view : r.views)
      v = b.make(*view->op, {v}, view->attrs);
  }
  Node *pack = b.node(ops::pack, {v}, {{"layout", r.packing.layout.str()}}, r.source.base->name + ".packed");
  bytes_ += pack->result()->type.localBytes();
  return g.isKept ? kept(g, *pack) : pack->result();
}

/// The state that keeps it for the other calls.
Value *Packer::kept(const PackGroup &g, Node &pack) const {
  const WeightReader &r = g.first();
  GlobalValue *state = m_.addGlobal(GlobalValue::State, pack.result()->name, pack.result()->type, Init());
  Node *assign = Builder(r.home(), r.top(), r.node->loc).node(ops::assign, {state, pack.result()});
  for (Node *n : {&pack, assign})
    n->attrs.set("once", int64_t(1));
  return state;
}

/// `v`, handed into the body of a scan.
static Value *into(Node &scan, Value *v) {
  Function &body = *bodiesOf(scan)[0];
  for (unsigned i = 0; i < scan.numOperands(); ++i)
    if (scan.operand(i) == v)
      return body.args[i].get();
  scan.addOperand(v);
  return body.addArg(v->name, v->type);
}

void Packer::apply(const PackGroup &g) {
  Value *all = packed(g);
  for (const WeightReader *r : g.readers) {
    Value *v = all;
    for (Node *scan : r->scans)
      v = into(*scan, v);
    r->node->setOperand(weightOf(*r->node), v);
  }
}

/// Drops an argument that the body of a scan does not read.
static bool dropArgument(Node &scan) {
  Function &body = *bodiesOf(scan)[0];
  for (unsigned i = scan.numOperands(); i-- > 0;)
    if (Value *arg = body.args[i].get();
        ScanForm(scan).isInvariant(i) && !arg->hasUses() && !llvm::is_contained(body.results, arg)) {
      body.eraseArg(i);
      scan.eraseOperand(i);
      return true;
    }
  return false;
}

/// Drops views that nobody reads any more, and arguments of bodies.
void Packer::dropUnread() const {
  llvm::SetVector<Node *> scans, views;
  for (const WeightReader &r : readers_) {
    scans.insert(r.scans.begin(), r.scans.end());
    views.insert(r.views.begin(), r.views.end());
  }
  for (bool again = true; again;) {
    again = llvm::any_of(scans, [](Node *scan) { return dropArgument(*scan); });
    again |= views.remove_if([](Node *view) {
      if (view->hasUses() || llvm::is_contained(view->parent()->results, view->result()))
        return false;
      view->erase();
      return true;
    });
  }
}

/// In the order of their first readers.
std::vector<PackGroup> Packer::groups() const {
  std::vector<PackGroup> all;
  llvm::DenseMap<const Value *, std::vector<size_t>> of; ///< by source
  for (const WeightReader &r : readers_) {
    const bool keep = mayKeep(r);
    std::vector<size_t> &some = of[r.source.base];
    auto known = llvm::find_if(some, [&](size_t i) { return all[i].serves(r, keep); });
    if (known == some.end()) {
      some.push_back(all.size());
      all.push_back({{}, keep});
      known = some.end() - 1;
    }
    all[*known].readers.push_back(&r);
  }
  for (PackGroup &g : all) {
    const Positions &at = at_.find(&g.first().home())->second;
    llvm::stable_sort(g.readers, [&](auto *a, auto *b) { return at.lookup(a->top()) < at.lookup(b->top()); });
  }
  return all;
}

bool Packer::run() {
  for (auto &f : m_.functions)
    for (auto &n : f->nodes)
      for (const Function *body : callsBodies(*n->op) ? bodiesOf(*n) : llvm::SmallVector<Function *, 2>())
        callers_[body].push_back(n.get());
  for (auto &f : m_.functions)
    if (!f->isKernel)
      collect(*f);
  askTarget();
  size_t count = 0;
  for (const PackGroup &g : groups()) {
    double reads = 0;
    for (const WeightReader *r : g.readers)
      reads += readsOf(*r, g.isKept);
    if (reads < double(g.first().packing.leastReads) || !isUnwritten(g))
      continue;
    apply(g);
    ++count;
  }
  if (!count)
    return false;
  dropUnread();
  ctx_.remarks.push_back(
      llvm::formatv("{0} weights are packed once for all who read them so ({1:f2} MiB)", count, double(bytes_) / (1 << 20))
          .str());
  return true;
}

llvm::Expected<bool> zcc::packWeights(Module &m, PassContext &ctx) {
  if (!ctx.target || ctx.options.hasBudget())
    return false;
  return Packer(m, ctx).run();
}
