// Drops what nobody uses: pure nodes, kernels that no node names, globals that no node reads and
// that are not exported; and the constant data that no constant names any more.
#include "ir/Op.h"
#include "passes/Pass.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringSet.h"

using namespace zcc;

static bool dropNodes(Function &f) {
  bool changed = false;
  for (Node *n = f.last(); n;) {
    Node *before = n->prev();
    bool returned =
        llvm::any_of(n->results, [&](auto &r) { return llvm::is_contained(f.results, r.get()); });
    if (n->op->isPure() && !n->results.empty() && !n->hasUses() && !returned) {
      n->erase();
      changed = true;
    }
    n = before;
  }
  return changed;
}

static bool dropKernels(Module &m) {
  llvm::StringSet<> named;
  for (auto &f : m.functions)
    for (auto &n : f->nodes)
      named.insert(n->attrs.s("kernel"));
  std::vector<Function *> unused;
  for (auto &f : m.functions)
    if (f->isKernel && !named.contains(f->name))
      unused.push_back(f.get());
  for (Function *f : unused)
    m.eraseFunction(f);
  return !unused.empty();
}

static bool dropGlobals(Module &m) {
  llvm::StringSet<> sources; // of copies, and masters that no update writes yet
  llvm::DenseSet<const Value *> returned;
  for (auto &g : m.globals) {
    sources.insert(g->init.from);
    sources.insert(g->attrs.s("master"));
  }
  for (auto &f : m.functions)
    returned.insert(f->results.begin(), f->results.end());
  std::vector<GlobalValue *> unused;
  for (auto &g : m.globals)
    if (!g->hasUses() && !g->exported && !returned.count(g.get()) && !sources.contains(g->name))
      unused.push_back(g.get());
  for (GlobalValue *g : unused)
    m.eraseGlobal(g);
  return !unused.empty();
}

/// Constants in order of definition, each aligned to 64 bytes so that it can be mapped.
static bool compactData(Module &m) {
  std::string data;
  std::vector<std::pair<GlobalValue *, int64_t>> moved;
  for (auto &g : m.globals) {
    if (g->init.kind != Init::File || !g->init.file.empty())
      continue;
    data.resize((data.size() + 63) / 64 * 64);
    moved.push_back({g.get(), int64_t(data.size())});
    data += m.constData.substr(g->init.offset, g->init.bytes);
  }
  if (data.size() == m.constData.size())
    return false;
  for (auto &[g, offset] : moved)
    g->init.offset = offset;
  m.constData = std::move(data);
  return true;
}

llvm::Expected<bool> zcc::eliminateDead(Module &m, PassContext &) {
  bool changed = false;
  for (auto &f : m.functions)
    changed |= dropNodes(*f);
  changed |= dropKernels(m);
  changed |= dropGlobals(m);
  changed |= compactData(m);
  return changed;
}
