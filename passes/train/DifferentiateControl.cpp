// Gradients of scan and cond: generated bodies.
//
//   %last, %all = scan %h0, %xs, %w {body = "rnn", carried = 1, scanned = 1}
// becomes, with a body that also returns what the backward reads again,
//   %last, %all, %saved = scan %h0, %xs, %w {body = "rnn.saving", carried = 1, scanned = 1}
// and gains
//   %d.h0, %d.w, %d.xs = scan %d.last, %zero, %d.all, %saved, %w {body = "rnn.grad", carried = 2, scanned = 2, reverse = 1}
//
// The gradient of what is the same in all iterations is a sum over them: carried along, or where it is a product of matrices, one
// product of stacked ones behind the scan; so is a sum over rows of what is stacked anyway. A cond computes its chosen body again
// in the backward.
#include "ir/Control.h"
#include "ir/ops/Rules.h"
#include "passes/train/Sweep.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <map>

using namespace zcc;
using llvm::ArrayRef;

namespace {
/// A copy of a body with its backward behind it.
struct Joint {
  Joint(const Function &body, const std::vector<bool> &wanted, Loc loc);
  /// Gradients of results are new arguments, where `has` says.
  void seed(unsigned result, llvm::StringRef name);
  llvm::Error run();

  Function *fn;
  Sweep sweep;
  Loc loc;
  llvm::SmallVector<Node *, 0> forward;
  std::vector<Value *> args, results;      ///< those of the body
  llvm::DenseMap<unsigned, Value *> seeds; ///< by result
};
} // namespace

static Function *bodyBeside(const Function &body, const char *suffix) {
  llvm::StringRef base = body.name;
  base.consume_back(".saving");
  return body.module->addBody((base + suffix).str());
}

Joint::Joint(const Function &body, const std::vector<bool> &wanted, Loc l)
    : fn(bodyBeside(body, ".grad")), sweep(*fn, l), loc(l) {
  llvm::DenseMap<const Value *, Value *> map;
  for (auto &a : body.args) {
    args.push_back(map[a.get()] = fn->addArg(a->name, a->type));
    if (wanted[a->index])
      sweep.active.insert(args.back());
  }
  copyNodes(nodesOf(body), *fn, map);
  forward = nodesOf(*fn);
  for (Value *r : body.results) {
    auto known = map.find(r);
    results.push_back(known == map.end() ? r : known->second);
  }
  sweep.spread();
}

void Joint::seed(unsigned result, llvm::StringRef name) {
  Value *r = results[result];
  if (sweep.active.count(r))
    seeds[result] = fn->addArg(("d." + name).str(), r->type);
}

llvm::Error Joint::run() {
  for (unsigned i = 0; i < results.size(); ++i)
    if (Value *d = seeds.lookup(i))
      sweep.seed(results[i], d);
  return sweep.run(forward, [](Node &) {});
}

/// Which arguments of a body are wanted: those whose operand is active, and what is carried from them.
static std::vector<bool> wantedArgs(const Function &body, ArrayRef<Value *> operands, unsigned carried,
                                    const llvm::DenseSet<Value *> &active) {
  std::vector<bool> wanted;
  for (Value *v : operands)
    wanted.push_back(isFloat(v->type.elem) && active.count(v));
  for (bool changed = true; changed;) {
    changed = false;
    llvm::SmallPtrSet<const Value *, 32> depends;
    for (auto &a : body.args)
      if (wanted[a->index])
        depends.insert(a.get());
    for (auto &n : body.nodes)
      if (llvm::any_of(n->operands(), [&](Value *v) { return depends.count(v); }))
        for (auto &r : n->results)
          depends.insert(r.get());
    for (unsigned i = 0; i < carried; ++i)
      if (!wanted[i] && isFloat(body.results[i]->type.elem) && depends.count(body.results[i]))
        wanted[i] = changed = true;
  }
  return wanted;
}

// ---- scan

namespace {
/// The sum over all iterations of a value of the backward body, as it is computed behind the scan.
struct SumOverTrips {
  enum Kind { Carried, Product, Reduced, Linear } kind = Carried;
  /// Product: rows[left]^T rows[right]; Reduced: of rows[left]; Carried: left is its number
  unsigned left = 0, right = 0;
  Elem elem = Elem::F32;     ///< Carried: of the value
  const OpDef *op = nullptr; ///< Linear: of the sums of its operands
  Attrs attrs;               ///< Linear, Reduced
  std::vector<SumOverTrips *> parts;
  Value *built = nullptr; ///< behind the scan
};

class ScanGradient {
public:
  ScanGradient(Node &n, Builder &b, ArrayRef<Value *> dy, const llvm::DenseSet<Value *> &active)
      : scan(n), outside(b), dy(dy), form(n), body(*bodiesOf(n)[0]), wanted(wantedArgs(body, n.operands(), form.carried, active)),
        joint(body, wanted, n.loc) {}
  llvm::Expected<Gradients> run();

private:
  Node &scan;
  Builder &outside;
  ArrayRef<Value *> dy; ///< of the results
  ScanForm form;
  const Function &body;
  std::vector<bool> wanted;
  Joint joint;

  // The backward scan as it grows: values of the joint function, and what they are outside.
  std::vector<Value *> carryArgs, carryNext, carryInit;
  std::vector<Value *> rows;               ///< to be stacked
  llvm::DenseMap<Value *, Value *> slices; ///< arguments that are slices
  llvm::DenseMap<Value *, unsigned> rowOf;
  llvm::DenseMap<unsigned, SumOverTrips *> sums; ///< by argument of the body
  std::map<Value *, SumOverTrips> sumOf_;        ///< each once, wherever it is shared
  mutable llvm::DenseMap<const Value *, bool> leaves_;
  llvm::DenseMap<unsigned, unsigned> gradientRow; ///< of scanned arguments
  std::vector<Value *> saved;                     ///< forward values, in the order of their slices
  llvm::SmallPtrSet<const Node *, 32> isForward;
  llvm::SmallPtrSet<const Value *, 8> fixed; ///< forward values that are the same in all iterations
  llvm::DenseMap<Value *, Value *> resolved;
  Function *saving = nullptr; ///< the forward body that saves
  llvm::DenseMap<const Value *, Value *> inSaving;

  void seed();
  void collect();
  unsigned row(Value *v);
  bool isProduct(const Value *v) const;
  bool isReduced(const Value *v) const;
  bool leaves(const Value *v) const;
  SumOverTrips &sumOf(Value *v);
  void copyForward();
  void findFixed();
  Value *resolve(Value *v);
  Value *save(Value *v);
  void cut();
  void addSaved();
  Node *makeBackward();
  Value *stackOf(Node *backward, unsigned row);
  Value *reducedOf(const SumOverTrips &s, Value *stack);
  Value *build(SumOverTrips &s, Node *backward);
  Value *made(const SumOverTrips &s, Node *backward);
};
} // namespace

/// Gradients of carried values are carried back; those of stacked results come as slices.
void ScanGradient::seed() {
  for (unsigned i = 0; i < form.carried; ++i) {
    if (!wanted[i])
      continue;
    joint.seed(i, body.args[i]->name);
    Value *d = joint.seeds.lookup(i);
    if (!d) // the value does not depend on what is wanted, but where it starts may
      d = joint.fn->addArg("d." + body.args[i]->name, body.args[i]->type);
    carryArgs.push_back(d);
    carryInit.push_back(dy[i] ? dy[i] : outside.splat(0, d->type));
  }
  for (unsigned r = form.carried; r < joint.results.size(); ++r)
    if (dy[r]) {
      joint.seed(r, joint.results[r]->name);
      if (Value *d = joint.seeds.lookup(r))
        slices[d] = dy[r];
    }
}

/// The number of a value among those that are stacked.
unsigned ScanGradient::row(Value *v) {
  auto [at, isNew] = rowOf.try_emplace(v, rows.size());
  if (isNew) {
    rows.push_back(v);
    leaves_.clear(); // more is stacked
  }
  return at->second;
}

bool ScanGradient::isProduct(const Value *v) const {
  const Node *n = v->def;
  return n && n->is(ops::matmul) && !isForward.count(n) && v->type.ndim() == 2 && n->operand(0)->type.ndim() == 2 &&
         n->operand(1)->type.ndim() == 2;
}

/// Operators that are linear in all their operands: they may follow the sum.
static bool isLinear(const Node &n) {
  bool padsZeros = n.is(ops::pad) && n.attrs.f("value") == 0 && n.attrs.s("mode", "constant") == "constant";
  bool rounds = n.result()->type.elem != n.operand(0)->type.elem; // better before the sum
  return padsZeros || (n.op->linear == kAllOperands && !n.op->bilinear && !rounds);
}

/// A sum of what is stacked anyway, so that it costs no memory to take it behind the scan.
bool ScanGradient::isReduced(const Value *v) const {
  const Node *n = v->def;
  return n && n->is(ops::reduce_sum) && !isForward.count(n) && rowOf.count(n->operand(0));
}

/// Whether the sum over all iterations is taken behind the scan, at least of a part.
bool ScanGradient::leaves(const Value *v) const {
  if (isProduct(v) || isReduced(v))
    return true;
  if (auto known = leaves_.find(v); known != leaves_.end())
    return known->second;
  const bool is = v->def && !isForward.count(v->def) && isLinear(*v->def) &&
                  llvm::any_of(v->def->operands(), [&](Value *o) { return leaves(o); });
  leaves_[v] = is;
  return is;
}

SumOverTrips &ScanGradient::sumOf(Value *v) {
  auto [known, isNew] = sumOf_.try_emplace(v);
  SumOverTrips &s = known->second;
  if (!isNew)
    return s;
  if (isProduct(v)) {
    Builder b(*joint.fn, v->def, v->def->loc);
    s.kind = SumOverTrips::Product;
    s.left = row(rules::swapped(b, v->def->operand(0)));
    s.right = row(v->def->operand(1));
  } else if (isReduced(v)) {
    s.kind = SumOverTrips::Reduced;
    s.left = row(v->def->operand(0));
    s.attrs = v->def->attrs;
  } else if (leaves(v)) {
    s.kind = SumOverTrips::Linear;
    s.op = v->def->op;
    s.attrs = v->def->attrs;
    for (Value *o : v->def->operands())
      s.parts.push_back(&sumOf(o));
  } else {
    s.left = carryArgs.size();
    s.elem = v->type.elem;
    // In f32 at least: of many iterations 16 bits would lose what is small.
    const Type wide = isFloat16(v->type.elem) ? v->type.withElem(Elem::F32) : v->type;
    Value *sum = joint.fn->addArg("sum", wide);
    Builder b(*joint.fn, nullptr, joint.loc);
    carryArgs.push_back(sum);
    carryNext.push_back(b.make(ops::add, {sum, b.cast(v, wide.elem)}));
    carryInit.push_back(outside.splat(0, wide));
  }
  return s;
}

/// What the backward body returns.
void ScanGradient::collect() {
  for (unsigned i = 0; i < form.carried; ++i) {
    if (!wanted[i])
      continue;
    Value *next = joint.sweep.whole(joint.args[i]);
    Builder b(*joint.fn, nullptr, joint.loc);
    carryNext.push_back(next ? next : b.splat(0, joint.args[i]->type));
  }
  std::vector<std::pair<unsigned, Value *>> reduced; // behind all that is stacked for products and slices
  for (unsigned i = form.carried; i < joint.args.size(); ++i) {
    Value *g = wanted[i] ? joint.sweep.whole(joint.args[i]) : nullptr;
    if (!g)
      continue;
    if (form.isSlice(i))
      gradientRow[i] = row(g);
    else if (leaves(g))
      sums[i] = &sumOf(g);
    else
      reduced.push_back({i, g});
  }
  for (auto [i, g] : reduced)
    sums[i] = &sumOf(g);
}

/// The forward body that saves starts as the joint one's first part.
void ScanGradient::copyForward() {
  saving = bodyBeside(body, ".saving");
  for (Value *a : joint.args)
    inSaving[a] = saving->addArg(a->name, a->type);
  copyNodes(joint.forward, *saving, inSaving);
  for (Value *r : joint.results) {
    auto known = inSaving.find(r);
    saving->results.push_back(known == inSaving.end() ? r : known->second);
  }
}

/// Gives the scan a stacked result for each saved value that it does not stack anyway.
void ScanGradient::addSaved() {
  scan.attrs.set("body", saving->name);
  std::vector<Value *> &results = saving->results;
  for (Value *v : saved) {
    Value *row = inSaving.lookup(v);
    auto known = std::find(results.begin() + form.carried, results.end(), row);
    if (known == results.end()) {
      Type t = row->type;
      t.dims.insert(t.dims.begin(), form.trips);
      scan.results.push_back(std::make_unique<Value>(Value::Result, scan.parent()->unique(row->name), std::move(t)));
      scan.results.back()->def = &scan;
      scan.results.back()->index = scan.results.size() - 1;
      results.push_back(row);
      known = results.end() - 1;
    }
    slices[resolved.lookup(v)] = scan.result(unsigned(known - results.begin()));
  }
}

/// What depends on nothing that changes.
void ScanGradient::findFixed() {
  for (unsigned i = form.carried + form.scanned; i < joint.args.size(); ++i)
    fixed.insert(joint.args[i]);
  for (Node *n : joint.forward)
    if (!n->op->random && !callsBodies(*n->op) &&
        llvm::all_of(n->operands(), [&](Value *v) { return !v || v->isGlobal() || fixed.count(v); }))
      for (auto &r : n->results)
        fixed.insert(r.get());
}

Value *ScanGradient::save(Value *v) {
  saved.push_back(v);
  return joint.fn->addArg(v->name, v->type);
}

/// The value by which the backward body reads `v`: computed again if that costs nothing or is the same in all iterations,
/// else a slice of what is there or of what the forward saves.
Value *ScanGradient::resolve(Value *v) {
  if (v->isGlobal() || (v->def && !isForward.count(v->def)))
    return v;
  if (auto known = resolved.find(v); known != resolved.end())
    return known->second;
  Value *out = v;
  if (v->def && (v->def->op->view || fixed.count(v))) {
    Node *n = v->def;
    for (unsigned i = 0; i < n->numOperands(); ++i)
      if (n->operand(i))
        n->setOperand(i, resolve(n->operand(i)));
  } else {
    auto arg = llvm::find(joint.args, v);
    unsigned i = unsigned(arg - joint.args.begin());
    if (v->def || i < form.carried)
      out = save(v);
    else if (arg != joint.args.end() && form.isSlice(i))
      slices[v] = scan.operand(i);
  }
  resolved[v] = out;
  return out;
}

/// Parts the joint function: what the backward reads of the forward becomes slices.
void ScanGradient::cut() {
  Function &f = *joint.fn;
  f.results = carryNext;
  f.results.insert(f.results.end(), rows.begin(), rows.end());
  eraseDeadNodes(f, joint.forward.empty() ? nullptr : joint.forward.back());
  for (Node *n : nodesOf(f))
    for (unsigned i = 0; i < n->numOperands() && !isForward.count(n); ++i)
      if (n->operand(i))
        n->setOperand(i, resolve(n->operand(i)));
  for (Value *&v : carryNext)
    v = resolve(v);
  for (Value *&v : rows)
    v = resolve(v);
}

static void setArgs(Function &f, ArrayRef<Value *> order) {
  std::vector<std::unique_ptr<Value>> old = std::move(f.args);
  f.args.clear();
  for (Value *v : order)
    for (auto &a : old)
      if (a.get() == v)
        f.args.push_back(std::move(a));
  for (unsigned i = 0; i < f.args.size(); ++i)
    f.args[i]->index = i;
}

Node *ScanGradient::makeBackward() {
  Function &f = *joint.fn;
  f.results = carryNext;
  for (Value *v : rows)
    if (!slices.count(v))
      f.results.push_back(v);
  eraseDeadNodes(f, nullptr);
  auto isUsed = [&](Value *v) { return v->hasUses() || llvm::is_contained(f.results, v); };
  std::vector<Value *> args = carryArgs, operands = carryInit;
  int64_t scanned = 0;
  for (auto &a : f.args)
    if (slices.count(a.get()) && isUsed(a.get())) {
      args.push_back(a.get());
      operands.push_back(slices.lookup(a.get()));
      ++scanned;
    }
  for (unsigned i = 0; i < joint.args.size(); ++i)
    if (form.isInvariant(i) && isUsed(joint.args[i])) {
      args.push_back(joint.args[i]);
      operands.push_back(scan.operand(i));
    }
  setArgs(f, args);
  Attrs attrs{
      {"body", f.name}, {"carried", int64_t(carryArgs.size())}, {"scanned", scanned}, {"reverse", int64_t(!form.reverse)}};
  if (!scanned)
    attrs.set("trips", form.trips);
  return outside.node(ops::scan, operands, attrs);
}

Value *ScanGradient::stackOf(Node *backward, unsigned row) {
  if (Value *known = slices.lookup(rows[row]))
    return known;
  unsigned r = carryArgs.size();
  for (unsigned i = 0; i < row; ++i)
    r += !slices.count(rows[i]);
  return backward->result(r);
}

/// A sum over rows that was taken in each iteration, over those of all.
Value *ScanGradient::reducedOf(const SumOverTrips &s, Value *stack) {
  std::vector<int64_t> axes{0};
  for (int64_t a : s.attrs.ints("axes"))
    axes.push_back(a + 1);
  Value *sum = outside.reduceSum(stack, axes);
  return outside.reshape(sum, llvm::ArrayRef(sum->type.dims).drop_front());
}

Value *ScanGradient::build(SumOverTrips &s, Node *backward) {
  if (!s.built)
    s.built = made(s, backward);
  return s.built;
}

Value *ScanGradient::made(const SumOverTrips &s, Node *backward) {
  if (s.kind == SumOverTrips::Carried)
    return outside.cast(backward->result(s.left), s.elem);
  if (s.kind == SumOverTrips::Linear) {
    std::vector<Value *> parts;
    for (SumOverTrips *p : s.parts)
      parts.push_back(build(*p, backward));
    return outside.make(*s.op, parts, s.attrs);
  }
  if (s.kind == SumOverTrips::Reduced)
    return reducedOf(s, stackOf(backward, s.left));
  auto tall = [&](unsigned row) { // [trips, k, m] as [trips * k, m]
    Value *v = stackOf(backward, row);
    return outside.reshape(v, {v->type.dims[0] * v->type.dims[1], v->type.dims[2]});
  };
  Value *left = outside.swapLast(tall(s.left));
  return outside.make(ops::matmul, {left, tall(s.right)});
}

llvm::Expected<Gradients> ScanGradient::run() {
  for (Node *n : joint.forward)
    isForward.insert(n);
  seed();
  if (auto e = joint.run())
    return e;
  collect();
  Gradients out(scan.numOperands(), nullptr);
  if (carryNext.empty() && rows.empty())
    return out;
  copyForward();
  findFixed();
  cut();
  addSaved();
  Node *backward = makeBackward();
  for (unsigned i = 0, k = 0; i < form.carried; ++i)
    if (wanted[i])
      out[i] = backward->result(k++);
  for (auto &[arg, row] : gradientRow)
    out[arg] = stackOf(backward, row);
  for (unsigned i = form.carried; i < scan.numOperands(); ++i)
    if (auto s = sums.find(i); s != sums.end())
      out[i] = build(*s->second, backward);
  return out;
}

// ---- cond

static llvm::Expected<Gradients> gradientsOfCond(Node &n, Builder &b, ArrayRef<Value *> dy,
                                                 const llvm::DenseSet<Value *> &active) {
  auto bodies = bodiesOf(n);
  ArrayRef<Value *> operands = n.operands().drop_front();
  std::vector<std::vector<Value *>> gradients; // of each body
  std::vector<std::unique_ptr<Joint>> joints;
  for (const Function *body : bodies) {
    joints.push_back(std::make_unique<Joint>(*body, wantedArgs(*body, operands, /*carried=*/0, active), n.loc));
    Joint &j = *joints.back();
    for (unsigned r = 0; r < dy.size(); ++r)
      if (dy[r]) { // both bodies take it, whether or not they need it
        j.seed(r, j.results[r]->name);
        if (!j.seeds.lookup(r))
          j.fn->addArg("d." + j.results[r]->name, j.results[r]->type);
      }
    if (auto e = j.run())
      return e;
    gradients.emplace_back();
    for (Value *a : j.args)
      gradients.back().push_back(j.sweep.active.count(a) ? j.sweep.whole(a) : nullptr);
  }
  std::vector<unsigned> given; // operands that get a gradient from one of the bodies
  for (unsigned i = 0; i < operands.size(); ++i)
    if (gradients[0][i] || gradients[1][i])
      given.push_back(i);
  Gradients out(n.numOperands(), nullptr);
  for (unsigned k = 0; k < 2; ++k) {
    Builder inside(*joints[k]->fn, nullptr, n.loc);
    for (unsigned i : given)
      joints[k]->fn->results.push_back(gradients[k][i] ? gradients[k][i] : inside.splat(0, operands[i]->type));
    eraseDeadNodes(*joints[k]->fn, nullptr);
  }
  if (given.empty())
    return out;
  std::vector<Value *> taken(n.operands().begin(), n.operands().end());
  for (Value *d : dy)
    if (d)
      taken.push_back(d);
  Node *backward = b.node(ops::cond, taken, {{"then", joints[0]->fn->name}, {"else", joints[1]->fn->name}});
  for (unsigned k = 0; k < given.size(); ++k)
    out[given[k] + 1] = backward->result(k);
  return out;
}

llvm::Expected<Gradients> zcc::gradientsThroughBodies(Node &n, Builder &b, ArrayRef<Value *> dy,
                                                      const llvm::DenseSet<Value *> &active) {
  if (n.op->structural == Structural::Cond)
    return gradientsOfCond(n, b, dy, active);
  return ScanGradient(n, b, dy, active).run();
}
