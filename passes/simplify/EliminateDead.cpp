// Drops what nobody uses: pure nodes, kernels and bodies that no node names, what scans and conds take, carry and return for
// nobody, globals that no node reads and that are not exported; and the constant data that no constant names any more.
#include "ir/Control.h"
#include "ir/Op.h"
#include "passes/Pass.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MathExtras.h"

using namespace zcc;

/// Kernels and bodies that no node names.
static bool dropFunctions(Module &m) {
  bool changed = false;
  while (true) { // a body that goes may have been the last to name another
    llvm::StringSet<> kernels;
    llvm::SmallPtrSet<const Function *, 8> bodies;
    for (auto &f : m.functions)
      for (auto &n : f->nodes) {
        kernels.insert(n->attrs.s("kernel"));
        for (const Function *body : bodiesOf(*n))
          bodies.insert(body);
      }
    std::vector<Function *> unused;
    for (auto &f : m.functions)
      if ((f->isKernel && !kernels.contains(f->name)) || (f->isBody && !bodies.contains(f.get())))
        unused.push_back(f.get());
    if (unused.empty())
      return changed;
    for (Function *f : unused)
      m.eraseFunction(f);
    changed = true;
  }
}

// ---- what scans and conds carry for nobody

static bool isRead(const Value *v) { return v->hasUses() || v->isReturned(); }

/// Whether argument `i` of a scan's body matters for nothing but the value that it carries.
static bool onlyFeedsItself(const Function &body, unsigned i) {
  llvm::SmallVector<const Value *> work = {body.args[i].get()};
  llvm::SmallPtrSet<const Value *, 8> seen(work.begin(), work.end());
  while (!work.empty()) {
    const Value *v = work.pop_back_val();
    for (unsigned r = 0; r < body.results.size(); ++r)
      if (body.results[r] == v && r != i)
        return false;
    for (const Value::Use &u : v->uses)
      for (auto &r : u.node->results)
        if (seen.insert(r.get()).second)
          work.push_back(r.get());
  }
  return true;
}

static bool pruneScan(Function &body, llvm::ArrayRef<Node *> callers) {
  bool changed = false;
  for (unsigned r = body.results.size(); r-- > 0;) {
    unsigned carried = ScanForm(*callers[0]).carried;
    if (llvm::any_of(callers, [&](Node *n) { return isRead(n->result(r)); }) || (r < carried && !onlyFeedsItself(body, r)))
      continue;
    body.eraseResult(r);
    for (Node *n : callers) {
      n->eraseResult(r);
      if (r < carried)
        n->attrs.set("carried", int64_t(carried - 1));
    }
    if (r < carried) { // its argument is an invariant now, and goes below with its readers
      auto arg = std::move(body.args[r]);
      body.args.erase(body.args.begin() + r);
      body.args.push_back(std::move(arg));
      for (unsigned i = 0; i < body.args.size(); ++i)
        body.args[i]->index = i;
      for (Node *n : callers) {
        Value *v = n->operand(r);
        n->eraseOperand(r);
        n->addOperand(v);
      }
    }
    changed = true;
  }
  return changed;
}

/// Arguments from `first` on that a body does not read.
static bool pruneArgs(llvm::ArrayRef<Function *> bodies, llvm::ArrayRef<Node *> callers) {
  bool changed = false;
  bool isScan = callers[0]->op->isScan();
  for (unsigned i = bodies[0]->args.size(); i-- > 0;) {
    unsigned carried = isScan ? ScanForm(*callers[0]).carried : 0;
    unsigned scanned = isScan ? ScanForm(*callers[0]).scanned : 0;
    bool isSlice = i >= carried && i < carried + scanned;
    bool isUsed = llvm::any_of(
        bodies, [&](Function *b) { return b->args[i]->hasUses() || llvm::is_contained(b->results, b->args[i].get()); });
    if (i < carried || isUsed)
      continue;
    for (Node *n : callers) {
      int64_t trips = isScan ? ScanForm(*n).trips : 0;
      n->eraseOperand(i + !isScan);
      if (isSlice)
        n->attrs.set("scanned", int64_t(scanned - 1));
      if (isSlice && scanned == 1)
        n->attrs.set("trips", trips);
    }
    for (Function *b : bodies)
      b->eraseArg(i);
    changed = true;
  }
  return changed;
}

static bool pruneCond(Node &n, llvm::ArrayRef<Function *> bodies) {
  bool changed = false;
  for (unsigned r = n.results.size(); r-- > 0;) {
    if (isRead(n.result(r)))
      continue;
    n.eraseResult(r);
    for (Function *b : bodies)
      b->eraseResult(r);
    changed = true;
  }
  return changed;
}

/// Drops results, carried values and operands that nobody reads, with what computes them.
static bool pruneBodies(Module &m) {
  bool changed = false;
  std::vector<Function *> order = calleesFirst(m);
  for (Function *f : llvm::reverse(order)) { // what a caller does not read comes first
    if (!f->isBody)
      continue;
    std::vector<Node *> callers = callersOf(*f);
    if (callers.empty())
      continue;
    Node &n = *callers[0];
    auto bodies = bodiesOf(n);
    bool isShared = n.op->structural == Structural::Cond &&
                    (callers.size() > 1 || bodies[0] == bodies[1] || callersOf(*bodies[bodies[0] == f]).size() > 1);
    bool isAlike = llvm::all_of(callers, [&](Node *c) {
      return c->op == n.op && c->attrs.i("carried") == n.attrs.i("carried") && c->attrs.i("scanned") == n.attrs.i("scanned");
    });
    if (isShared || !isAlike)
      continue;
    changed |= n.op->isScan() ? pruneScan(*f, callers) : pruneCond(n, bodies);
    changed |= eraseDeadNodes(*f);
    changed |= pruneArgs(n.op->isScan() ? llvm::ArrayRef<Function *>(f) : bodies, callers);
  }
  return changed;
}

static std::vector<GlobalValue *> unusedGlobals(Module &m) {
  llvm::StringSet<> sources; // of copies and boxes, and masters that no update writes yet
  llvm::DenseSet<const Value *> returned;
  for (auto &g : m.globals) {
    sources.insert(g->init.from);
    sources.insert(g->attrs.s("master"));
  }
  for (auto &f : m.functions)
    returned.insert(f->results.begin(), f->results.end());
  std::vector<GlobalValue *> unused;
  for (auto &g : m.globals)
    if (!g->hasUses() && !m.wholeOf(*g).exported && !returned.count(g.get()) && !sources.contains(g->name))
      unused.push_back(g.get());
  return unused;
}

/// The boxes of a tensor go together: what is left would not be all of it.
static bool dropGlobals(Module &m) {
  bool changed = false;
  while (true) { // a box that goes may have been the last of its tensor
    llvm::DenseSet<const GlobalValue *> unused, used;
    for (GlobalValue *g : unusedGlobals(m))
      unused.insert(g);
    for (auto &g : m.globals)
      if (g->isBox() && !unused.contains(g.get()))
        used.insert(&m.wholeOf(*g));
    std::vector<GlobalValue *> gone;
    for (auto &g : m.globals)
      if (unused.contains(g.get()) && !used.contains(&m.wholeOf(*g)))
        gone.push_back(g.get());
    if (gone.empty())
      return changed;
    m.eraseGlobals(gone);
    changed = true;
  }
}

/// Constants in order of definition, each aligned so that it can be mapped.
static bool compactData(Module &m) {
  const llvm::StringRef before = m.constData;
  std::vector<std::pair<GlobalValue *, llvm::StringRef>> kept;
  size_t size = 0;
  for (auto &g : m.globals) {
    if (g->init.kind != Init::File || !g->init.file.empty())
      continue;
    kept.push_back({g.get(), before.substr(g->init.offset, g->init.bytes)});
    size = llvm::alignTo(size, kDataAlign) + kept.back().second.size();
  }
  if (size == before.size()) // before anything is copied: this may be all of a model's weights
    return false;
  std::string data;
  data.reserve(size);
  for (auto &[g, bytes] : kept) {
    data.resize(llvm::alignTo(data.size(), kDataAlign));
    g->init.offset = int64_t(data.size());
    data += bytes;
  }
  m.constData = std::move(data);
  return true;
}

llvm::Expected<bool> zcc::eliminateDead(Module &m, PassContext &) {
  bool changed = false;
  for (auto &f : m.functions)
    changed |= eraseDeadNodes(*f);
  while (pruneBodies(m)) { // operands that go leave their makers without readers
    changed = true;
    for (auto &f : m.functions)
      eraseDeadNodes(*f);
  }
  changed |= dropFunctions(m);
  changed |= dropGlobals(m);
  changed |= compactData(m);
  return changed;
}
