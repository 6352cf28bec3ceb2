// What does not depend on carried values leaves a scan: what is the same in all iterations is computed once, products of slices
// become one product of the rows of all iterations, in front of it, and so do products that nothing carried depends on, behind
// it.
//
//   body @rnn(%h : f32[2x4], %x : f32[2x4], %u : f32[4x4], %w : f32[4x4], %v : f32[4x9]) -> (f32[2x4], f32[2x9]) {
//     %a = matmul %h, %u ...  %b = matmul %x, %w ...  %c = add %a, %b ...  %n = tanh %c ...  %y = matmul %n, %v
//     return %n, %y
// becomes
//   %xs2 = reshape %xs {dims = [10, 4]} ...  %bs = matmul %xs2, %w ...
//   %last, %ns = scan %h0, %bs, %u {body = "rnn", carried = 1, scanned = 1}        // add, tanh and one product are left
//   %ns2 = reshape %ns {dims = [10, 4]} ...  %ys = matmul %ns2, %v ...
//
// It runs on the model's own scans, before the gradients are taken: those of what has left are outside, too. The scans in which
// order-microbatches later takes one micro-batch after the other to save memory are not the model's, and stay as they are.
#include "ir/Control.h"
#include "passes/Pass.h"
#include "passes/simplify/StackedNode.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace zcc;
using llvm::ArrayRef;

/// A product of more rows gains nothing from those of other iterations (Zen 5, 2600 columns of 650: 20 rows at 285 to 360
/// GFLOP/s, 256 at 430 to 460, 700 at 450), and what is stacked takes memory.
constexpr int64_t kFewRows = 256;
/// Nor may the stacked result be more than so many times as large as what it is made of; the gates of an LSTM are four.
constexpr int64_t kMostGrowth = 8;

namespace {
class Thinner {
public:
  explicit Thinner(Node &n) : scan(n), body(*bodiesOf(n)[0]), form(n) {}
  bool run() {
    bool changed = hoist();
    return sink() || changed;
  }

private:
  enum Kind { Same, Sliced, Varying }; ///< in all iterations; of slices alone; of what is carried or drawn

  Node &scan;
  Function &body;
  ScanForm form;
  llvm::DenseMap<const Value *, Kind> kinds;
  llvm::DenseMap<const Value *, Outside> outside;
  llvm::SetVector<Node *> leaving; ///< in the body's order

  bool hoist();
  bool sink();
  void classify();
  Kind kindOf(const Value *v) const { return v->isGlobal() ? Same : kinds.lookup(v); }
  bool canLeave(const Node &n) const;
  bool gathersRows(const Node &n) const;
  bool leaveWith(Node &n);
  void follow();
  Outside outsideOf(Value *v, Builder &b);
  void compute(Node &n, Builder &b);
  bool isReadInside(const Value *v) const;
  void replace(Node &n);
  Value *addOperand(const Outside &o, const Value &inside);
  llvm::SmallPtrSet<const Node *, 32> feedingCarried() const;
  bool coneOf(Node &root, const llvm::SmallPtrSetImpl<const Node *> &feeding, llvm::SetVector<Node *> &cone) const;
  bool isRow(const Value *v, const llvm::SetVector<Node *> &cone) const;
  bool paysRows(const llvm::SetVector<Node *> &cone) const;
  Outside stackOf(Value *v);
};
} // namespace

static bool isProduct(const Node &n) { return n.op->library == Library::Product; }
static bool isFree(const Node &n) { return n.op->view || n.op->leaf; }

void Thinner::classify() {
  for (auto &a : body.args)
    kinds[a.get()] = a->index < form.carried ? Varying : form.isSlice(a->index) ? Sliced : Same;
  for (auto &n : body.nodes) {
    Kind k = !n->op->isPure() || n->op->random || callsBodies(*n->op) ? Varying : Same;
    for (Value *v : n->operands())
      if (v)
        k = std::max(k, kindOf(v));
    for (auto &r : n->results)
      kinds[r.get()] = k;
  }
}

/// Whether a node that depends on nothing carried can be computed outside, its operands being there.
bool Thinner::canLeave(const Node &n) const {
  if (kindOf(n.result()) == Same)
    return true;
  llvm::SmallVector<bool, 4> isStacked;
  for (Value *v : n.operands())
    isStacked.push_back(v && kindOf(v) != Same);
  return canStack(n, isStacked);
}

/// Whether a product of few rows becomes one of many.
bool Thinner::gathersRows(const Node &n) const {
  if (!isProduct(n) || n.numOperands() != 2 || n.operand(0)->type.ndim() < 2 || form.trips < 2)
    return false;
  const Type &a = n.operand(0)->type, &y = n.result()->type;
  return elementCount(ArrayRef(a.dims).drop_back()) <= kFewRows && y.count() <= kMostGrowth * a.count();
}

// ---- in front of the scan

/// Notes a node and all that it is computed from, unless something of that cannot leave.
bool Thinner::leaveWith(Node &n) {
  llvm::SetVector<Node *> all;
  all.insert(&n);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!canLeave(*all[i]))
      return false;
    for (Value *v : all[i]->operands())
      if (v && v->def && !leaving.contains(v->def))
        all.insert(v->def);
  }
  leaving.insert(all.begin(), all.end());
  return true;
}

/// What follows a product leaves with it where the stack of its result replaces that of the product: a bias.
void Thinner::follow() {
  for (auto &n : body.nodes) {
    if (leaving.contains(n.get()) || !n->op->isElementwise() || kindOf(n->result()) != Sliced || !canLeave(*n))
      continue;
    auto isOutside = [&](Value *v) { return !v->def || v->isGlobal() || leaving.contains(v->def) || isFree(*v->def); };
    auto isReplaced = [&](Value *v) {
      return v->def && leaving.contains(v->def) && kindOf(v) == Sliced && v->uses.size() == 1 && !v->isReturned() &&
             v->type.localBytes() >= n->result()->type.localBytes();
    };
    if (llvm::all_of(n->operands(), isOutside) && llvm::any_of(n->operands(), isReplaced))
      leaveWith(*n);
  }
}

Outside Thinner::outsideOf(Value *v, Builder &b) {
  if (v->isGlobal())
    return {v, false};
  if (auto known = outside.find(v); known != outside.end())
    return known->second;
  if (v->kind == Value::Argument)
    return {scan.operand(v->index), form.isSlice(v->index)};
  compute(*v->def, b); // a view or a constant
  return outside.lookup(v);
}

void Thinner::compute(Node &n, Builder &b) {
  llvm::SmallVector<Outside, 4> operands;
  for (Value *v : n.operands())
    operands.push_back(v ? outsideOf(v, b) : Outside());
  b.loc = n.loc;
  if (llvm::any_of(operands, [](const Outside &o) { return o.isStacked; })) {
    outside[n.result()] = {stacked(b, n, operands, form.trips), true};
    return;
  }
  llvm::SmallVector<Value *, 4> values;
  for (const Outside &o : operands)
    values.push_back(o.value);
  Node *copy = b.node(*n.op, values, n.attrs);
  for (unsigned i = 0; i < n.results.size(); ++i)
    outside[n.result(i)] = {copy->result(i), false};
}

/// Gives the scan one more operand, and the body an argument of that.
Value *Thinner::addOperand(const Outside &o, const Value &inside) {
  Value *arg = body.addArg(inside.name, inside.type);
  scan.addOperand(o.value);
  if (!o.isStacked)
    return arg;
  unsigned to = form.carried + form.scanned;
  std::rotate(body.args.begin() + to, body.args.end() - 1, body.args.end());
  for (unsigned i = to; i < body.args.size(); ++i)
    body.args[i]->index = i;
  std::vector<Value *> operands(scan.operands().begin(), scan.operands().end());
  std::rotate(operands.begin() + to, operands.end() - 1, operands.end());
  for (unsigned i = to; i < operands.size(); ++i)
    scan.setOperand(i, operands[i]);
  scan.attrs.set("scanned", int64_t(++form.scanned));
  return arg;
}

/// Whether what stays reads a value, maybe through views.
bool Thinner::isReadInside(const Value *v) const {
  return v->isReturned() || llvm::any_of(v->uses, [&](const Value::Use &u) {
           return !leaving.contains(u.node) || (isFree(*u.node) && isReadInside(u.node->result()));
         });
}

/// What stays reads arguments; what the scan stacked is there already.
void Thinner::replace(Node &n) {
  for (auto &r : n.results) {
    Outside o = outside.lookup(r.get());
    if (!o.value)
      continue;
    for (unsigned i = form.carried; i < body.results.size() && o.isStacked; ++i)
      if (body.results[i] == r.get())
        scan.result(i)->replaceAllUsesWith(o.value);
    if (!isFree(n) && isReadInside(r.get()))
      r->replaceAllUsesWith(addOperand(o, *r));
  }
}

bool Thinner::hoist() {
  classify();
  for (auto &n : body.nodes) {
    Kind k = n->results.empty() ? Varying : kindOf(n->result());
    if ((k == Same && !isFree(*n) && !n->op->cheap) || (k == Sliced && gathersRows(*n)))
      leaveWith(*n);
  }
  if (leaving.empty())
    return false;
  follow();
  Builder b(*scan.parent(), &scan, scan.loc);
  std::vector<Node *> order;
  for (auto &n : body.nodes)
    if (leaving.contains(n.get()))
      order.push_back(n.get());
  for (Node *n : order)
    if (!outside.count(n->result()))
      compute(*n, b);
  for (Node *n : llvm::reverse(order))
    replace(*n);
  eraseDeadNodes(body);
  return true;
}

// ---- behind the scan

/// The nodes that a carried value is computed from.
llvm::SmallPtrSet<const Node *, 32> Thinner::feedingCarried() const {
  llvm::SmallPtrSet<const Node *, 32> feeding;
  std::vector<const Node *> work;
  for (unsigned i = 0; i < form.carried; ++i)
    if (body.results[i]->def)
      work.push_back(body.results[i]->def);
  while (!work.empty()) {
    const Node *n = work.back();
    work.pop_back();
    if (!feeding.insert(n).second)
      continue;
    for (Value *v : n->operands())
      if (v && v->def)
        work.push_back(v->def);
  }
  return feeding;
}

/// A node and all that is computed from it; whether all of that can leave.
bool Thinner::coneOf(Node &root, const llvm::SmallPtrSetImpl<const Node *> &feeding, llvm::SetVector<Node *> &cone) const {
  cone.insert(&root);
  for (size_t i = 0; i < cone.size(); ++i) {
    if (feeding.contains(cone[i]) || !canLeave(*cone[i]))
      return false;
    for (auto &r : cone[i]->results)
      for (const Value::Use &u : r->uses)
        cone.insert(u.node);
  }
  return true;
}

/// Whether those behind the scan read all rows of a value that stays.
bool Thinner::isRow(const Value *v, const llvm::SetVector<Node *> &cone) const {
  bool isSlice = v->kind == Value::Argument && form.isSlice(v->index);
  return kindOf(v) != Same && !isSlice && !(v->def && cone.contains(v->def));
}

/// Whether what is to be stacked so that these nodes can leave is no more than what they made.
bool Thinner::paysRows(const llvm::SetVector<Node *> &cone) const {
  auto stackedNow = ArrayRef(body.results).drop_front(form.carried);
  int64_t made = 0, wanted = 0;
  llvm::SmallPtrSet<const Value *, 8> seen;
  for (Node *n : cone) {
    made += n->result()->isReturned() ? n->result()->type.localBytes() : 0;
    for (Value *v : n->operands())
      if (isRow(v, cone) && seen.insert(v).second && !llvm::is_contained(stackedNow, v))
        wanted += v->type.localBytes();
  }
  return wanted <= made;
}

/// All rows of a value that stays.
Outside Thinner::stackOf(Value *v) {
  auto known = std::find(body.results.begin() + form.carried, body.results.end(), v);
  if (known == body.results.end()) {
    Type t = v->type;
    t.dims.insert(t.dims.begin(), form.trips);
    scan.results.push_back(std::make_unique<Value>(Value::Result, scan.parent()->unique(v->name), std::move(t)));
    scan.results.back()->def = &scan;
    scan.results.back()->index = scan.results.size() - 1;
    body.results.push_back(v);
    known = body.results.end() - 1;
  }
  return {scan.result(unsigned(known - body.results.begin())), true};
}

bool Thinner::sink() {
  kinds.clear();
  classify();
  auto feeding = feedingCarried();
  llvm::SetVector<Node *> all;
  for (auto &n : body.nodes) {
    llvm::SetVector<Node *> cone;
    bool isRoot = n->results.size() == 1 && kindOf(n->result()) == Varying && gathersRows(*n);
    if (isRoot && !all.contains(n.get()) && coneOf(*n, feeding, cone) && paysRows(cone))
      all.insert(cone.begin(), cone.end());
  }
  if (all.empty())
    return false;
  outside.clear();
  Builder b(*scan.parent(), scan.next(), scan.loc);
  b.phase = scan.phase;
  for (auto &n : body.nodes) {
    if (!all.contains(n.get()))
      continue;
    for (Value *v : n->operands())
      if (isRow(v, all))
        outside[v] = stackOf(v);
    compute(*n, b);
    for (unsigned i = form.carried; i < scan.results.size(); ++i)
      if (body.results[i] == n->result())
        scan.result(i)->replaceAllUsesWith(outside.lookup(n->result()).value);
  }
  return true; // eliminate-dead drops what nobody reads any more
}

llvm::Expected<bool> zcc::thinScans(Module &m, PassContext &) {
  bool changed = false;
  for (Function *f : calleesFirst(m)) { // what leaves an inner scan may leave the outer one, too
    std::vector<Node *> scans;
    for (auto &n : f->nodes)
      if (n->op->isScan() && callersOf(*bodiesOf(*n)[0]).size() == 1)
        scans.push_back(n.get());
    for (Node *n : scans)
      changed |= Thinner(*n).run();
  }
  return changed;
}
