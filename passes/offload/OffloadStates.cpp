// Optimizer state, master weights, and gradients that wait live in another space (ZeRO-Offload, arXiv 2101.06840; ZeRO-Infinity,
// arXiv 2104.07857, section 5): what reads them reads a transfer, and what they become is transferred back.
//
//   state %w.m : f32[64]                 state %w.m : f32[64]@nvme
//                                        %m0, %v0 = transfer %w.m, %w.v {to = "device"}
//   %m1 = add %w.m, %g            ->     %m1 = add %m0, %g
//   assign %w.m, %m1                     %m2, %v2 = transfer %m1, %v1 {to = "nvme"}
//   assign %w.v, %v1                     assign %w.m, %m2
//                                        assign %w.v, %v2
//
// A large update is first cut into runs of elements (--sub-group-size), each with transfers of its own. A gradient that waits for
// something that follows from all gradients, such as their norm, goes the same way: it is transferred as soon as it is there and
// its share of the norm is taken, and comes back with the states. schedule-transfers starts and waits.
#include "ir/Builder.h"
#include "passes/Pass.h"
#include "passes/offload/Updates.h"
#include "passes/zero/Zero.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <map>

using namespace zcc;

/// Elements of a sub-group: some transfers of 8 MiB keep a disk busy, and a few of them are small beside a model that needs this.
constexpr int64_t kSubGroup = 2 << 20;
/// A run of elements of at least two bytes begins at a whole block of a disk.
constexpr int64_t kRunAlign = 2048;

namespace {
/// What is transferred together: values that live elsewhere, and the assignments to those that do.
struct Group {
  llvm::SmallVector<Value *, 4> in;
  llvm::SmallVector<Node *, 4> assigns;
};
/// By parameter, and by where a run begins, or one of these.
constexpr int64_t kAll = -1, kForOthers = -2;
using Groups = llvm::MapVector<std::pair<GlobalValue *, int64_t>, Group>;

class Offloader {
public:
  Offloader(Module &m, PassContext &ctx) : m_(m), ctx_(ctx), space_(ctx.options.offloadOptimizer) {}
  bool run();

private:
  void cut(Function &f, llvm::ArrayRef<GlobalValue *> states);
  void offload(Function &f, llvm::ArrayRef<GlobalValue *> states);
  std::vector<Value *> waiting(const Update &u) const;
  Value *spill(Function &f, Value *v, llvm::ArrayRef<Value::Use> updates);
  void transfer(Function &f, Group &g);
  int64_t lengthOf(const Update &u) const;

  Module &m_;
  PassContext &ctx_;
  Space space_;
  llvm::SmallPtrSet<Node *, 32> members_; ///< of updates that are not cut
  /// What gradients that wait are read by, of each function and parameter.
  std::map<std::pair<Function *, GlobalValue *>, llvm::MapVector<Value *, std::vector<Value::Use>>> waiting_;
};
} // namespace

static bool isAssigned(const Value::Use &u) { return assigns(*u.node) && u.index == 0; }

// ---- gradients that wait

/// The reductions to one number that follow from `v` and from nothing else but numbers, and all that they need, in order.
static std::vector<Node *> summaries(Value &v) {
  std::vector<Node *> chain, out;
  llvm::SmallPtrSet<Node *, 8> needed;
  llvm::SmallPtrSet<const Value *, 8> known = {&v};
  for (Node *n = v.def->next(); n; n = n->next()) { // what follows from v alone
    bool reads = llvm::any_of(n->operands(), [&](Value *o) { return o && known.contains(o); });
    bool isOwn = reads && n->op->isPure() && n->phase == Phase::Update && n->results.size() == 1 &&
                 llvm::all_of(n->operands(), [&](Value *o) { return o && (known.contains(o) || isConstant(o)); });
    if (!isOwn)
      continue;
    known.insert(n->result());
    chain.push_back(n);
  }
  for (Node *n : llvm::reverse(chain)) { // what reductions need, and the views of their results
    bool isNumber = n->result()->type.count() == 1;
    bool isUsed = llvm::any_of(n->result()->uses, [&](auto &u) { return needed.contains(u.node); });
    if (isUsed || (isNumber && (n->op->reduction || n->op->view)))
      needed.insert(n);
  }
  for (Node *n : chain)
    if (needed.contains(n))
      out.push_back(n);
  return out;
}

/// Whether `v` is computed from a result of one of the nodes.
static bool followsFrom(const Value &v, llvm::ArrayRef<Node *> nodes) {
  llvm::SmallVector<const Value *> work = {&v};
  llvm::SmallPtrSet<const Value *, 16> seen;
  while (!work.empty()) {
    const Value *at = work.pop_back_val();
    if (!at || !at->def || at->def->phase != Phase::Update || !seen.insert(at).second)
      continue;
    if (llvm::is_contained(nodes, at->def))
      return true;
    work.append(at->def->operands().begin(), at->def->operands().end());
  }
  return false;
}

/// Gradients whose update reads a number that is computed behind them, such as what clips them all; not one that follows from
/// the update itself, as a ratio of norms does.
std::vector<Value *> Offloader::waiting(const Update &u) const {
  auto at = positions(*u.f);
  int lastNumber = -1;
  for (Node *n : u.nodes)
    for (Value *v : n->operands())
      if (v->type.isScalar() && v->def && !isConstant(v) && !followsFrom(*v, u.nodes))
        lastNumber = std::max(lastNumber, at.lookup(v->def));
  std::vector<Value *> out;
  for (Value *v : u.leaves)
    if (v->kind == Value::Result && at.lookup(v->def) < lastNumber)
      out.push_back(v);
  return out;
}

/// Transfers a gradient away as soon as its share of the norm is taken. Returns what its update reads instead.
Value *Offloader::spill(Function &f, Value *v, llvm::ArrayRef<Value::Use> updates) {
  Node *last = v->def;
  for (Node *n : summaries(*v)) {
    for (Value *o : n->operands())
      if (isConstant(o))
        o->def->moveBefore(v->def);
    if (n != last->next())
      n->moveBefore(last->next());
    last = n;
  }
  Node *out = Builder(f, last->next(), v->def->loc).node(ops::transfer, {v}, {{"to", spaceName(space_).str()}});
  out->phase = Phase::Update;
  for (auto &u : updates)
    u.node->setOperand(u.index, out->result());
  return out->result();
}

// ---- transfers

/// In front of the first node that reads any of them, and behind the last that makes what is assigned.
void Offloader::transfer(Function &f, Group &g) {
  auto at = positions(f);
  Node *first = nullptr, *last = nullptr;
  llvm::SmallVector<Value *, 4> read, written;
  auto readers = [&](Value *v) {
    llvm::SmallVector<Value::Use, 4> uses;
    for (auto &u : v->uses)
      if (u.node->parent() == &f && !isAssigned(u) && !u.node->is(ops::run))
        uses.push_back(u);
    return uses;
  };
  for (Value *v : g.in) {
    auto uses = readers(v);
    for (auto &u : uses)
      if (!first || at.lookup(u.node) < at.lookup(first))
        first = u.node;
    if (!uses.empty())
      read.push_back(v);
  }
  if (first) {
    Builder b(f, first, first->loc);
    Node *in = b.node(ops::transfer, read, {{"to", spaceName(Space::Device).str()}});
    for (unsigned i = 0; i < read.size(); ++i)
      for (auto &u : readers(read[i]))
        if (u.node != in)
          u.node->setOperand(u.index, in->result(i));
  }
  for (Node *a : g.assigns) {
    written.push_back(a->operand(1));
    if (!last || at.lookup(a) > at.lookup(last))
      last = a;
  }
  if (!last)
    return;
  Node *out = Builder(f, last, last->loc).node(ops::transfer, written, {{"to", spaceName(space_).str()}});
  for (unsigned i = 0; i < g.assigns.size(); ++i) {
    g.assigns[i]->setOperand(1, out->result(i));
    if (g.assigns[i] != last)
      g.assigns[i]->moveBefore(last);
  }
}

// ---- all

/// Elements updated at once; 0: all.
int64_t Offloader::lengthOf(const Update &u) const {
  int64_t most = ctx_.options.subGroup > 0 ? ctx_.options.subGroup : kSubGroup, count = u.type.localCount();
  if (count <= most || u.nodes.empty())
    return 0;
  int64_t runs = (count + most - 1) / most;
  return std::max<int64_t>((count + runs - 1) / runs / kRunAlign, 1) * kRunAlign;
}

/// While all is still on the device: cuts a large update into runs, and notes which gradients wait.
void Offloader::cut(Function &f, llvm::ArrayRef<GlobalValue *> states) {
  GlobalValue *param = m_.global(states[0]->attrs.s("of"));
  Update u = findUpdate(f, param, states);
  std::vector<Value *> gradients = waiting(u);
  int64_t length = lengthOf(u);
  if (length && u.isElementwise)
    splitUpdate(u, length);
  else
    members_.insert(u.nodes.begin(), u.nodes.end());
  if (length && !u.isElementwise)
    ctx_.remarks.push_back("the update of '%" + states[0]->attrs.s("of") +
                           "' needs all of its elements at once: --sub-group-size does not cut it");
  for (Value *v : gradients)
    for (auto &use : v->uses)
      if (use.node->is(ops::run) || members_.contains(use.node))
        waiting_[{&f, param}][v].push_back(use);
}

void Offloader::offload(Function &f, llvm::ArrayRef<GlobalValue *> states) {
  GlobalValue *param = m_.global(states[0]->attrs.s("of"));
  llvm::SmallVector<Value *, 8> away(states.begin(), states.end());
  if (auto i = waiting_.find({&f, param}); i != waiting_.end())
    for (auto &[v, updates] : i->second)
      away.push_back(spill(f, v, updates));
  waiting_.erase({&f, param});
  Groups groups;
  for (Value *v : away) {
    // What a collective gets of them, it gets long before the update.
    bool isForUpdate = llvm::all_of(v->uses, [&](auto &u) {
      return u.node->parent() != &f || isAssigned(u) || u.node->is(ops::run) || members_.contains(u.node);
    });
    groups[{param, isForUpdate ? kAll : kForOthers}].in.push_back(v);
    for (auto &use : v->uses) {
      if (use.node->parent() != &f)
        continue;
      if (isAssigned(use)) {
        bool isRun = use.node->operand(1)->type.dims != v->type.dims;
        groups[{param, isRun ? use.node->attrs.i("begin") : kAll}].assigns.push_back(use.node);
      } else if (use.node->is(ops::run)) {
        use.node->result()->type.space = space_;
        groups[{param, use.node->attrs.i("begin")}].in.push_back(use.node->result());
      }
    }
  }
  for (auto &[key, group] : groups)
    transfer(f, group);
}

bool Offloader::run() {
  // By parameter, and by the shards of the type: accumulated gradients may be whole where moments are not.
  llvm::MapVector<std::pair<GlobalValue *, int>, llvm::SmallVector<GlobalValue *, 4>> states;
  for (auto &g : m_.globals)
    if (g->role == GlobalValue::State && g->attrs.has("of") && !g->type.isScalar())
      states[{m_.global(g->attrs.s("of")), g->type.shards}].push_back(g.get());
  llvm::SmallVector<Function *, 4> entries;
  for (auto &f : m_.functions)
    if (f->isEntry())
      entries.push_back(f.get());
  for (auto &[key, group] : states)
    for (Function *f : entries)
      cut(*f, group);
  for (auto &[key, group] : states)
    for (GlobalValue *g : group)
      g->type.space = space_;
  for (auto &[key, group] : states)
    for (Function *f : entries)
      offload(*f, group);
  return !states.empty();
}

llvm::Expected<bool> zcc::offloadStates(Module &m, PassContext &ctx) {
  const Options &o = ctx.options;
  if (o.offloadOptimizer != Space::Device && !o.offloads())
    ctx.remarks.push_back("host memory is the device's own on this target: --offload-optimizer=cpu moves nothing");
  return o.offloads() && Offloader(m, ctx).run();
}
