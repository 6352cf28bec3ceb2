// Finds equal stretches by the distances at which nodes with equal hashes come again; a stretch is then compared node by node.
#include "passes/memory/ForwardBlocks.h"
#include "ir/Control.h"
#include "ir/Equal.h"
#include "ir/Op.h"
#include "ir/Steps.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/Hashing.h"
#include <algorithm>
#include <map>

using namespace zcc;

namespace {
class BlockFinder {
public:
  explicit BlockFinder(const Function &f);
  ForwardBlocks run();

private:
  struct Run {
    unsigned begin = 0, period = 0, blocks = 0;
    unsigned length() const { return blocks * period; }
    unsigned end() const { return begin + length(); }
    bool isLonger(const Run &o) const { return length() > o.length() || (length() == o.length() && period < o.period); }
  };

  void collect();
  void measure();
  void label();
  int indexOf(Value *v) const;
  bool isAlike(unsigned i, unsigned j) const;
  std::vector<unsigned> periods(unsigned begin, unsigned end) const;
  Run longestRun(unsigned begin, unsigned end) const;
  Run placed(unsigned begin, unsigned length, unsigned period) const;
  void findRuns(unsigned begin, unsigned end);
  void cutBetween(unsigned begin, unsigned end, bool isLast);

  const Function &f;
  llvm::DenseSet<const Node *> fixed;
  ForwardBlocks out;
  std::vector<unsigned> values; ///< how many values cross in front of node i
  llvm::DenseMap<const Node *, int> index;
  std::vector<size_t> own;               ///< hashes of nodes
  std::vector<std::vector<size_t>> wide; ///< of them with what they are computed from, from near to far
  std::vector<Run> runs;
};
} // namespace

BlockFinder::BlockFinder(const Function &fn) : f(fn), fixed(fixedNodes(fn)) {}

/// Products, convolutions, attention, loops: what a block is worth being one for.
static bool isDear(const Node &n) { return n.op->library != Library::None || callsBodies(*n.op); }

void BlockFinder::collect() {
  llvm::DenseSet<const Node *> needed;
  llvm::SmallVector<const Value *> work;
  if (!f.results.empty())
    work.push_back(f.results[0]);
  while (!work.empty()) {
    const Value *v = work.pop_back_val();
    if (v && v->def && needed.insert(v->def).second)
      work.append(v->def->operands().begin(), v->def->operands().end());
  }
  for (auto &n : f.nodes)
    if (needed.contains(n.get()) && holdsActivation(*n) && !fixed.contains(n.get())) {
      index[n.get()] = out.nodes.size();
      out.nodes.push_back(n.get());
    }
}

/// Of what is behind views, or -1.
int BlockFinder::indexOf(Value *v) const {
  Value *base = behindViews(v);
  auto at = base && base->def ? index.find(base->def) : index.end();
  return at == index.end() ? -1 : at->second;
}

/// What crosses from node to node.
void BlockFinder::measure() {
  size_t count = out.nodes.size();
  llvm::DenseMap<const Value *, int> lastOf;
  for (size_t i = 0; i < count; ++i)
    for (Value *v : out.nodes[i]->operands())
      if (indexOf(v) >= 0)
        lastOf[behindViews(v)] = int(i);
  std::vector<int64_t> bytes(count + 1);
  std::vector<int> number(count + 1);
  for (size_t i = 0; i < count; ++i) {
    out.last.push_back(int(i));
    for (auto &r : out.nodes[i]->results) {
      int last = lastOf.count(r.get()) ? lastOf[r.get()] : int(i);
      out.last[i] = std::max(out.last[i], last);
      if (last == int(i))
        continue;
      bytes[i + 1] += r->type.localBytes(), bytes[last + 1] -= r->type.localBytes();
      ++number[i + 1], --number[last + 1];
    }
  }
  int64_t b = 0;
  int n = 0;
  for (size_t i = 0; i <= count; ++i) {
    out.crossing.push_back(b += bytes[i]);
    values.push_back(n += number[i]);
  }
}

// ---- repeated stretches

/// Of what a node does, whatever it reads: draws and bodies of equal nodes have other names.
static size_t ownHash(const Node &n) {
  llvm::hash_code h = llvm::hash_value(n.op);
  for (auto &[name, a] : n.attrs)
    if (!(n.op->random && name == "id") && !callsBodies(*n.op))
      h = llvm::hash_combine(h, name, hashOf(a));
  for (auto &r : n.results)
    h = llvm::hash_combine(h, hashOf(r->type));
  for (Value *v : n.operands())
    h = llvm::hash_combine(h, v ? hashOf(v->type) : 0);
  return h;
}

void BlockFinder::label() {
  for (Node *n : out.nodes)
    own.push_back(ownHash(*n));
  // Near: a short chain of blocks is soon at its end; far: a node of a block is like no other of it.
  constexpr int kRounds = 6;
  wide = {own};
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<size_t> &nearer = wide.back();
    std::vector<size_t> next;
    for (size_t i = 0; i < own.size(); ++i) {
      llvm::hash_code h = llvm::hash_value(own[i]);
      for (Value *v : out.nodes[i]->operands())
        h = llvm::hash_combine(h, indexOf(v) < 0 ? size_t(0) : nearer[indexOf(v)]);
      next.push_back(h);
    }
    wide.push_back(std::move(next));
  }
}

/// Whether two nodes do the same to values that lie alike: as far before them, or the same.
bool BlockFinder::isAlike(unsigned i, unsigned j) const {
  ++steps;
  const Node &a = *out.nodes[i], &b = *out.nodes[j];
  if (own[i] != own[j] || a.op != b.op || a.numOperands() != b.numOperands())
    return false;
  for (unsigned k = 0; k < a.numOperands(); ++k) {
    int x = indexOf(a.operand(k)), y = indexOf(b.operand(k));
    if (x != y && (x < 0 || y < 0 || int(i) - x != int(j) - y))
      return false;
  }
  return true;
}

/// Distances at which nodes come again, the most frequent first.
std::vector<unsigned> BlockFinder::periods(unsigned begin, unsigned end) const {
  constexpr size_t kMost = 8;
  std::vector<unsigned> out;
  for (size_t round : {wide.size() - 1, wide.size() / 2, size_t(0)}) {
    const std::vector<size_t> &hashes = wide[round];
    llvm::DenseMap<size_t, unsigned> before;
    std::map<unsigned, unsigned> count;
    for (unsigned i = begin; i < end; ++i) {
      auto [at, isNew] = before.try_emplace(hashes[i] >> 1, i);
      if (!isNew)
        ++count[i - at->second], at->second = i;
    }
    std::vector<std::pair<unsigned, unsigned>> byCount;
    for (auto [period, n] : count)
      byCount.push_back({n, period});
    llvm::stable_sort(byCount, [](auto &a, auto &b) { return a.first > b.first; });
    for (auto &[n, period] : llvm::ArrayRef(byCount).take_front(kMost))
      if (!llvm::is_contained(out, period))
        out.push_back(period);
  }
  return out;
}

/// Where in a stretch of equal blocks they begin and end: where the least crosses.
BlockFinder::Run BlockFinder::placed(unsigned begin, unsigned length, unsigned period) const {
  Run best;
  int64_t least = 0;
  for (unsigned o = 0; o < period; ++o) {
    Run r{begin + o, period, (length - o) / period};
    int64_t bytes = out.crossing[r.begin + r.blocks / 2 * period];
    if (r.blocks < 2 ||
        (best.blocks && std::make_pair(bytes, -int64_t(r.blocks)) >= std::make_pair(least, -int64_t(best.blocks))))
      continue;
    best = r;
    least = bytes;
  }
  return best;
}

BlockFinder::Run BlockFinder::longestRun(unsigned begin, unsigned end) const {
  Run best;
  for (unsigned p : periods(begin, end))
    for (unsigned i = begin; i + p < end;) {
      unsigned from = i;
      while (i + p < end && isAlike(i, i + p))
        ++i;
      if (i - from >= p)
        if (Run r = placed(from, i - from + p, p); r.isLonger(best))
          best = r;
      i += i == from;
    }
  return best;
}

/// The longest run between two nodes, and others before and behind it.
void BlockFinder::findRuns(unsigned begin, unsigned end) {
  Run r = longestRun(begin, end);
  if (!r.blocks || llvm::none_of(llvm::make_range(out.nodes.begin() + r.begin, out.nodes.begin() + r.begin + r.period),
                                 [](Node *n) { return isDear(*n); }))
    return;
  findRuns(begin, r.begin);
  runs.push_back(r);
  findRuns(r.end(), end);
}

// ---- single values

/// Blocks with something dear in them, each up to the last of the smallest single values before the next dear node. Between runs
/// the rest is a block too; behind the last cut stands the loss.
void BlockFinder::cutBetween(unsigned begin, unsigned end, bool isLast) {
  ForwardBlocks::Chain chain{{begin}, false};
  unsigned cut = 0;
  bool hasDear = false;
  for (unsigned i = begin; i < end; ++i) {
    if (isDear(*out.nodes[i])) {
      if (hasDear && cut) {
        chain.cuts.push_back(cut);
        cut = 0;
      }
      hasDear = true;
    }
    bool isSingle = hasDear && values[i + 1] <= 1 && i + 1 < end;
    if (isSingle && (!cut || out.crossing[i + 1] <= out.crossing[cut]))
      cut = i + 1;
  }
  if (!isLast && chain.cuts.back() != end)
    chain.cuts.push_back(end);
  if (chain.cuts.size() > 1)
    out.chains.push_back(std::move(chain));
}

ForwardBlocks BlockFinder::run() {
  collect();
  measure();
  label();
  findRuns(0, out.nodes.size());
  unsigned at = 0;
  for (const Run &r : runs) {
    cutBetween(at, r.begin, /*isLast=*/false);
    ForwardBlocks::Chain chain{{}, true};
    for (unsigned i = 0; i <= r.blocks; ++i)
      chain.cuts.push_back(r.begin + i * r.period);
    out.chains.push_back(std::move(chain));
    at = r.end();
  }
  cutBetween(at, out.nodes.size(), /*isLast=*/true);
  return std::move(out);
}

ForwardBlocks zcc::findBlocks(const Function &f) { return BlockFinder(f).run(); }

/// Whether the backward, or a node of `again`, reads a value, or a view of it.
static bool isReadAgain(const Value &v, const llvm::DenseSet<const Node *> &again) {
  return llvm::any_of(v.uses, [&](const Value::Use &u) {
    return u.node->op->view ? isReadAgain(*u.node->result(), again) : u.node->phase != Phase::Forward || again.contains(u.node);
  });
}

std::vector<unsigned> zcc::neededInside(const ForwardBlocks &b, unsigned begin, unsigned end, const Recomputable &allowed) {
  llvm::DenseSet<const Node *> again;
  std::vector<unsigned> inside;
  for (unsigned i = end; i-- > begin;) {
    const Node &n = *b.nodes[i];
    if (b.last[i] >= int(end) || allowed.whyNot(n) || llvm::none_of(n.results, [&](auto &r) { return isReadAgain(*r, again); }))
      continue;
    again.insert(&n);
    inside.push_back(i);
  }
  std::reverse(inside.begin(), inside.end());
  return inside;
}
