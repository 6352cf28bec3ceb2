// Derives the limits that no option sets, and finds where values are read.
#include "passes/zero/Zero.h"
#include "ir/Builder.h"
#include "ir/Steps.h"
#include "passes/Target.h"
#include "passes/memory/Activations.h"
#include "passes/memory/Liveness.h"
#include <algorithm>

using namespace zcc;

// Below this a collective costs its two barriers more than its bytes; a chunk of the shared-memory window holds two.
constexpr int64_t kSmallBucket = 1 << 18;
// DeepSpeed's stage3_param_persistence_threshold.
constexpr int64_t kPersistence = 100'000;
// What persists is held N times over: at most this part of all parameters.
constexpr int64_t kPersistingPart = 50;
constexpr int64_t kReusePart = 32, kLivePart = 4;

/// The largest size such that all parameters up to it are a small part of the whole.
static int64_t persistenceOf(std::vector<int64_t> sizes, int64_t total) {
  std::sort(sizes.begin(), sizes.end());
  int64_t sum = 0, limit = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    sum += sizes[i];
    bool isLastOfSize = i + 1 == sizes.size() || sizes[i + 1] != sizes[i];
    if (sizes[i] > kPersistence || sum > total / kPersistingPart)
      break;
    if (isLastOfSize)
      limit = sizes[i];
  }
  return limit;
}

ZeroLimits zcc::zeroLimits(const Module &m, const Options &o) {
  std::vector<int64_t> sizes;
  int64_t total = 0, largest = 0;
  for (auto &g : m.globals)
    if (g->role == GlobalValue::Param) {
      sizes.push_back(g->type.count());
      total += sizes.back();
      largest = std::max(largest, sizes.back());
    }
  auto given = [](int64_t option, int64_t derived) { return option >= 0 ? option : derived; };
  ZeroLimits l;
  l.persistence = given(o.persistence, persistenceOf(sizes, total));
  l.maxLive = given(o.maxLive, std::max(total / kLivePart, 2 * largest));
  l.maxReuse = given(o.maxReuse, m.attrs.i("max_reuse", total / kReusePart));
  l.reduceBucket = given(o.reduceBucket, kSmallBucket);
  l.gatherBucket = given(o.gatherBucket, kSmallBucket);
  return l;
}

bool zcc::runsBeside(Options::Beside told, const Target *target) {
  return told == Options::Beside::Derived ? !machineOf(target).collectivesCompute : told == Options::Beside::On;
}

bool zcc::isSplittable(const GlobalValue &g) { return !g.type.isScalar(); }

Positions zcc::positions(const Function &f) {
  Positions at;
  for (auto &n : f.nodes)
    at.insert({n.get(), int(at.size())});
  steps += at.size();
  return at;
}

int zcc::lastWrite(Value &v, const Node &before, const Positions &at) {
  int last = -1;
  auto view = storageOf(&v);
  for (auto &u : behindViews(&v)->uses)
    if (u.node->parent() == before.parent() && isWrite(u) && at.lookup(u.node) < at.lookup(&before) &&
        (!view || rangeOf(*view).overlaps(assigned(*u.node))))
      last = std::max(last, at.lookup(u.node));
  return last;
}

Value *zcc::viewsAgain(Value *v, Value *from, Value *to, Node *before, llvm::DenseMap<Value *, Value *> &known) {
  if (v == from)
    return to;
  if (Value *copy = known.lookup(v))
    return copy;
  Node &view = *v->def;
  llvm::SmallVector<Value *, 2> operands(view.operands().begin(), view.operands().end());
  operands[0] = viewsAgain(operands[0], from, to, before, known);
  return known[v] = Builder(*before->parent(), before, view.loc).make(*view.op, operands, view.attrs, v->name);
}

bool zcc::gathersParam(const Node &n) {
  const OpDef *op = performed(n);
  if (!op || op->collective != Collective::Gather)
    return false;
  const Value *v = n.operand(0);
  while (v->def && performed(*v->def) && (performed(*v->def)->structural == Structural::Transfer || v->def->op->forwards))
    v = v->def->operand(0);
  return v->isGlobal();
}

Node *zcc::firstUser(const Value &v, const llvm::DenseMap<const Node *, int> &at,
                     llvm::function_ref<bool(const Value::Use &)> counts) {
  Node *first = nullptr;
  for (auto &u : v.uses)
    if (counts(u) && (!first || at.lookup(u.node) < at.lookup(first)))
      first = u.node;
  return first;
}

Node *zcc::beginAt(Function &f, const Node &n, Node *before) {
  Node *start = f.insert(std::make_unique<Node>(&ops::start, n.loc), before);
  start->attrs = n.attrs;
  start->attrs.set("op", std::string(n.op->name));
  start->phase = n.phase;
  for (Value *v : n.operands())
    start->addOperand(v);
  for (auto &r : n.results) {
    Type t = r->type;
    t.isFuture = true;
    start->results.push_back(std::make_unique<Value>(Value::Result, f.unique(ops::start.name), t));
    start->results.back()->def = start;
    start->results.back()->index = start->results.size() - 1;
  }
  return start;
}

void zcc::waitFor(Function &f, Node &n, Node &start, llvm::function_ref<Node *(Value &)> waitAt) {
  for (unsigned i = 0; i < n.results.size(); ++i) {
    Node *user = waitAt(*n.result(i));
    Value *there = Builder(f, user, n.loc).make(ops::wait, {start.result(i)});
    std::swap(there->name, n.result(i)->name);
    n.result(i)->replaceAllUsesWith(there);
  }
  n.erase();
}

Node *zcc::startAt(Function &f, Node &n, Node *before, llvm::function_ref<Node *(Value &)> waitAt) {
  Node *start = beginAt(f, n, before);
  waitFor(f, n, *start, waitAt);
  return start;
}

llvm::SmallVector<Node *, 4> zcc::readersOf(const Value &v) {
  llvm::SmallVector<Node *, 4> out;
  for (auto &u : v.uses) {
    if (u.node->op->structural == Structural::Release)
      continue;
    if (!u.node->op->view) {
      out.push_back(u.node);
      continue;
    }
    auto behind = readersOf(*u.node->result());
    out.append(behind.begin(), behind.end());
  }
  return out;
}

Node *zcc::lastReader(const Value &v, const Positions &at) {
  Node *last = nullptr;
  for (Node *n : readersOf(v))
    if (!last || at.lookup(n) > at.lookup(last))
      last = n;
  return last;
}
