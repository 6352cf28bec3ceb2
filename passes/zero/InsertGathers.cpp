// A partitioned parameter is gathered for each cluster of its uses: those in the forward, those in the backward, or both where
// they lie close together (ZeRO-Infinity, arXiv 2104.07857, section 5.1; "reuse distance" is DeepSpeed's).
//
//   %w.whole = all_gather %w                    %w.whole = all_gather %w
//   ...                                         %y = matmul %x, %w.whole
//   %y = matmul %x, %w.whole             ->     ...
//   ...                                         %w.whole.1 = all_gather %w
//   %dx = matmul %dy, %w.whole                  %dx = matmul %dy, %w.whole.1
//
// Views of a gathered tensor are made anew for each cluster, in front of their readers.
#include "ir/Builder.h"
#include "passes/Refusal.h"
#include "passes/memory/Activations.h"
#include "passes/zero/Zero.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Support/FormatVariadic.h"

using namespace zcc;

namespace {
/// A node that reads the gathered tensor through the chain of views that ends in this operand.
struct Reader {
  Node *node;
  unsigned operand;
  int at;
};
using Cluster = std::vector<Reader>;

struct Gather {
  Node *node; ///< the one at the function's head
  std::vector<Cluster> clusters;
  int64_t count() const { return node->result()->type.count(); }
};

class Inserter {
public:
  Inserter(Function &f, const ZeroLimits &l, PassContext &ctx) : f_(f), limits_(l), ctx_(ctx) {}
  /// An error if the limit that the user set is too low for some operator.
  llvm::Expected<bool> run();

private:
  void collect();
  bool isFar(int from, int to, const Gather &own, int64_t limit) const;
  void cut(Gather &g, int64_t maxReuse);
  int64_t mostLive() const;
  void insert(Gather &g);

  Function &f_;
  const ZeroLimits &limits_;
  PassContext &ctx_;
  std::vector<Gather> gathers_;
  std::vector<std::pair<int, size_t>> reads_; ///< position and gather, by position
};
} // namespace

/// A gather, or a transfer to the device, of a parameter.
static bool isAtHead(const Node &n) {
  bool brings = n.op->collective == Collective::Gather || (isTransfer(n) && n.result()->type.space == Space::Device);
  return brings && n.numOperands() == 1 && n.operand(0)->isGlobal() &&
         static_cast<GlobalValue *>(n.operand(0))->role == GlobalValue::Param;
}

static void addReaders(Value &v, const llvm::DenseMap<const Node *, int> &at, Cluster &out) {
  for (auto &u : v.uses)
    if (u.node->op->view)
      addReaders(*u.node->result(), at, out);
    else
      out.push_back({u.node, u.index, at.lookup(u.node)});
}

void Inserter::collect() {
  auto at = positions(f_);
  for (auto &n : f_.nodes) {
    if (!isAtHead(*n))
      continue;
    Gather g{n.get(), {{}}};
    addReaders(*n->result(), at, g.clusters[0]);
    llvm::stable_sort(g.clusters[0], [](const Reader &a, const Reader &b) { return a.at < b.at; });
    for (const Reader &r : g.clusters[0])
      reads_.push_back({r.at, gathers_.size()});
    gathers_.push_back(std::move(g));
  }
  llvm::sort(reads_);
}

/// Whether more than `limit` elements of other gathered parameters are read between two positions.
bool Inserter::isFar(int from, int to, const Gather &own, int64_t limit) const {
  llvm::SmallPtrSet<const Gather *, 8> seen;
  int64_t elements = 0;
  auto r = llvm::upper_bound(reads_, from, [](int v, auto &read) { return v < read.first; });
  for (; r != reads_.end() && r->first < to && elements <= limit; ++r) {
    const Gather *g = &gathers_[r->second];
    if (g != &own && seen.insert(g).second)
      elements += g->count();
  }
  return elements > limit;
}

void Inserter::cut(Gather &g, int64_t maxReuse) {
  std::vector<Cluster> out;
  for (Cluster &c : g.clusters) {
    out.emplace_back();
    for (Reader &r : c) {
      if (!out.back().empty() && isFar(out.back().back().at, r.at, g, maxReuse))
        out.emplace_back();
      out.back().push_back(r);
    }
  }
  g.clusters = std::move(out);
}

/// Gathered elements at the fullest node.
int64_t Inserter::mostLive() const {
  std::vector<int64_t> change(f_.nodes.size() + 1, 0);
  for (const Gather &g : gathers_)
    for (const Cluster &c : g.clusters)
      if (!c.empty()) {
        change[c.front().at] += g.count();
        change[c.back().at + 1] -= g.count();
      }
  int64_t live = 0, most = 0;
  for (int64_t c : change)
    most = std::max(most, live += c);
  return most;
}

static void eraseViews(Value &v) {
  for (auto &u : Value::Uses(v.uses)) {
    eraseViews(*u.node->result());
    u.node->erase();
  }
}

void Inserter::insert(Gather &g) {
  Value *whole = g.node->result();
  for (Cluster &c : g.clusters) {
    if (c.empty())
      continue;
    Node *first = c.front().node;
    Value *again = Builder(f_, first, first->loc).make(*g.node->op, {g.node->operand(0)}, g.node->attrs, whole->name);
    llvm::DenseMap<Value *, Value *> views;
    for (Reader &r : c)
      r.node->setOperand(r.operand, viewsAgain(r.node->operand(r.operand), whole, again, first, views));
  }
  if (g.clusters.size() > 2)
    ctx_.remarks.push_back(llvm::formatv("@{0} {1} '%{2}' {3} times: its uses lie too far apart", f_.name,
                                         isTransfer(*g.node) ? "fetches" : "gathers", g.node->operand(0)->name,
                                         g.clusters.size()));
  if (llvm::is_contained(f_.results, whole))
    return;
  eraseViews(*whole);
  g.node->erase();
}

/// A function's result that is a view of a gathered parameter has memory of its own: results are no uses.
static void copyResults(Function &f) {
  for (Value *&r : f.results)
    if (Value *base = behindViews(r); base != r && base->def && isAtHead(*base->def))
      r = Builder(f, nullptr, r->def->loc).make(ops::copy, {r}, {}, r->name);
}

llvm::Expected<bool> Inserter::run() {
  copyResults(f_);
  collect();
  if (gathers_.empty())
    return false;
  int64_t maxReuse = limits_.maxReuse;
  for (;; maxReuse /= 2) {
    for (Gather &g : gathers_)
      cut(g, maxReuse);
    if (mostLive() <= limits_.maxLive || maxReuse == 0)
      break;
  }
  if (ctx_.options.maxLive > 0 && mostLive() > limits_.maxLive)
    return refuse(
        llvm::formatv("--max-live-parameters={0}: @{1} needs {2} elements gathered at once", limits_.maxLive, f_.name, mostLive())
            .str());
  for (Gather &g : gathers_)
    insert(g);
  return true;
}

llvm::Expected<bool> zcc::clusterUses(Function &f, const ZeroLimits &limits, PassContext &ctx) {
  return Inserter(f, limits, ctx).run();
}

llvm::Expected<bool> zcc::insertGathers(Module &m, PassContext &ctx) {
  ZeroLimits limits = zeroLimits(m, ctx.options);
  bool changed = false;
  for (auto &f : m.functions) {
    if (f->isKernel)
      continue;
    auto inserted = clusterUses(*f, limits, ctx);
    if (!inserted)
      return inserted.takeError();
    changed |= *inserted;
  }
  return changed;
}
