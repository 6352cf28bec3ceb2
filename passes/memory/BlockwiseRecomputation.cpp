// The backward goes through the blocks from the last to the first. At a block it needs what is kept of this one and of those
// before it, what the block computes again, and gradients. Greedily: at the block that needs most and can need less, the value is
// no longer kept that frees most bytes there for the time of computing it again, in its own block and in those that come to need
// it, too.
#include "passes/memory/BlockwiseRecomputation.h"
#include "ir/Op.h"
#include <algorithm>
#include <numeric>

using namespace zcc;

namespace {
class BlockwiseMoves {
public:
  BlockwiseMoves(const ForwardBlocks &b, const Recomputable &allowed, const Machine &machine, int ranks, double share);
  using Set = std::vector<bool>;
  std::vector<Set> run() const;
  std::vector<unsigned> further(const Set &again) const;
  std::optional<Set> with(const Set &again, unsigned i) const;

private:
  struct Result {
    unsigned node;
    int64_t bytes;
    bool isRead; ///< by the backward
  };
  /// What a set of nodes leads to.
  struct State {
    std::vector<int64_t> bytes; ///< that the backward of each block needs
    int64_t ns = 0;             ///< of computing again
    int64_t kept = 0;           ///< bytes
    std::vector<int> keptUntil; ///< of each result the block whose backward is the last to need it; -1: it is not kept
    int64_t most() const { return *llvm::max_element(bytes); }
  };
  struct Move {
    unsigned node;
    Set again;
    State state;
  };
  State stateOf(const Set &again) const;
  std::vector<Move> movesFrom(const Set &again, const State &s) const;
  std::vector<size_t> largestOf(const State &s) const;
  const Move *bestOf(llvm::ArrayRef<Move> moves, const State &s) const;
  int64_t bytesOf(llvm::ArrayRef<unsigned> some) const;
  bool addCone(unsigned i, Set &again) const;

  double share;
  std::vector<unsigned> blockOf, firstOf; ///< of a node its block; of a block its first node
  std::vector<int64_t> ns;                ///< of computing a node again
  Set mayGo;
  std::vector<Result> results;
  std::vector<llvm::SmallVector<unsigned, 2>> resultsOf, sources; ///< numbers of results that a node makes and reads
  std::vector<int64_t> gradients;                                 ///< of a block
};
} // namespace

BlockwiseMoves::BlockwiseMoves(const ForwardBlocks &b, const Recomputable &allowed, const Machine &machine, int ranks,
                               double shareOfNeeds)
    : share(shareOfNeeds) {
  for (const ForwardBlocks::Chain &c : b.chains)
    firstOf.insert(firstOf.end(), c.cuts.begin(), c.cuts.end() - 1);
  llvm::DenseMap<const Value *, unsigned> number;
  std::vector<int64_t> largest(firstOf.size(), 0), weights(firstOf.size(), 0);
  for (unsigned i = 0, block = 0; i < b.nodes.size(); ++i) {
    Node &n = *b.nodes[i];
    while (block + 1 < firstOf.size() && i >= firstOf[block + 1])
      ++block;
    blockOf.push_back(block);
    ns.push_back(1 + int64_t(costOf(n, ranks).seconds(machine) * 1e9));
    mayGo.push_back(!allowed.whyNot(n));
    auto &read = sources.emplace_back();
    for (Value *v : n.operands()) {
      const Value *o = v ? originOf(v) : nullptr;
      if (auto at = number.find(o); at != number.end())
        read.push_back(at->second);
      else if (o && o->isGlobal())
        weights[block] = std::max(weights[block], o->type.localBytes());
    }
    auto &made = resultsOf.emplace_back();
    for (auto &r : n.results) {
      const int64_t bytes = widens(n) ? 0 : r->type.localBytes();
      largest[block] = std::max(largest[block], bytes);
      number[r.get()] = results.size();
      made.push_back(results.size());
      results.push_back({i, bytes, isReadBack(*r)});
    }
  }
  for (size_t k = 0; k < firstOf.size(); ++k) // of a value, as it is got and passed on, and of a weight
    gradients.push_back(2 * largest[k] + weights[k]);
}

int64_t BlockwiseMoves::bytesOf(llvm::ArrayRef<unsigned> some) const {
  int64_t bytes = 0;
  for (unsigned r : some)
    bytes += results[r].bytes;
  return bytes;
}

/// Goes through the blocks as the backward does.
BlockwiseMoves::State BlockwiseMoves::stateOf(const Set &again) const {
  State s;
  s.bytes.assign(firstOf.size(), 0);
  s.keptUntil.assign(results.size(), -1);
  std::vector<int> neededFor(results.size(), -1); // the last block for which it has been found to be
  for (unsigned block = firstOf.size(); block-- > 0;) {
    const unsigned end = block + 1 < firstOf.size() ? firstOf[block + 1] : unsigned(blockOf.size());
    int64_t own = 0, besides = gradients[block]; // all the time; and at some of it, gradients or what is computed on the way
    int open = 0;                                // results of earlier blocks that are still to be computed
    for (unsigned i = end; i-- > 0 && (i >= firstOf[block] || open);) {
      const bool isOwn = i >= firstOf[block];
      bool isNeeded = false;
      for (unsigned r : resultsOf[i]) {
        const bool isAsked = neededFor[r] == int(block);
        open -= isAsked && !isOwn;
        if (!isAsked && !(isOwn && results[r].isRead))
          continue;
        isNeeded = true;
        if (!again[i])
          s.keptUntil[r] = int(block);
        else if (isOwn && results[r].isRead)
          own += results[r].bytes;
      }
      if (!isNeeded || !again[i])
        continue;
      s.ns += ns[i];
      besides = std::max(besides, bytesOf(resultsOf[i]) + bytesOf(sources[i]));
      for (unsigned r : sources[i]) {
        if (neededFor[r] == int(block))
          continue;
        neededFor[r] = int(block);
        const unsigned from = results[r].node;
        open += from < firstOf[block];
        own += isOwn && from < firstOf[block] && again[from] ? results[r].bytes : 0; // stays for the whole block
      }
    }
    s.bytes[block] = int64_t(share * double(own + besides));
  }
  for (size_t r = 0; r < results.size(); ++r) {
    if (s.keptUntil[r] < 0)
      continue;
    s.kept += results[r].bytes;
    for (size_t block = size_t(s.keptUntil[r]); block < firstOf.size(); ++block)
      s.bytes[block] += results[r].bytes;
  }
  return s;
}

/// Adds a node, and what it is computed from and nothing else needs; false where one of these cannot be computed again.
bool BlockwiseMoves::addCone(unsigned i, Set &again) const {
  if (!mayGo[i])
    return false;
  again[i] = true;
  for (unsigned r : sources[i]) {
    const unsigned from = results[r].node;
    if (!again[from] && mayGo[from] && !results[r].isRead && !addCone(from, again))
      return false;
  }
  return true;
}

std::optional<BlockwiseMoves::Set> BlockwiseMoves::with(const Set &again, unsigned i) const {
  Set more = again;
  return !again[i] && addCone(i, more) ? std::optional(std::move(more)) : std::nullopt;
}

/// All moves from a set, with what they lead to.
std::vector<BlockwiseMoves::Move> BlockwiseMoves::movesFrom(const Set &again, const State &s) const {
  std::vector<Move> out;
  for (unsigned i = 0; i < again.size(); ++i) {
    const bool isKept = llvm::any_of(resultsOf[i], [&](unsigned r) { return s.keptUntil[r] >= 0; });
    std::optional<Set> more = isKept ? with(again, i) : std::nullopt;
    if (!more)
      continue;
    State then = stateOf(*more);
    if (then.most() <= s.most())
      out.push_back({i, std::move(*more), std::move(then)});
  }
  return out;
}

/// Blocks, those that need most first.
std::vector<size_t> BlockwiseMoves::largestOf(const State &s) const {
  std::vector<size_t> blocks(s.bytes.size());
  std::iota(blocks.begin(), blocks.end(), size_t(0));
  llvm::stable_sort(blocks, [&](size_t x, size_t y) { return s.bytes[x] > s.bytes[y]; });
  return blocks;
}

/// The best at the block that needs most of those for which there is one.
const BlockwiseMoves::Move *BlockwiseMoves::bestOf(llvm::ArrayRef<Move> moves, const State &s) const {
  for (size_t block : largestOf(s)) {
    const Move *best = nullptr;
    double bestRate = 0;
    for (const Move &m : moves) {
      const int64_t freed = s.bytes[block] - m.state.bytes[block];
      const double rate = double(freed) / double(std::max<int64_t>(m.state.ns - s.ns, 1));
      if (freed > 0 && rate > bestRate)
        best = &m, bestRate = rate;
    }
    if (best)
      return best;
  }
  return nullptr;
}

std::vector<BlockwiseMoves::Set> BlockwiseMoves::run() const {
  std::vector<Set> out;
  if (firstOf.empty())
    return out;
  Move at{0, Set(blockOf.size(), false), {}};
  at.state = stateOf(at.again);
  const int64_t half = at.state.kept / 2;
  while (true) {
    const std::vector<Move> moves = movesFrom(at.again, at.state);
    const Move *best = bestOf(moves, at.state);
    if (!best)
      return out;
    at = *best;
    if (at.state.kept <= half)
      out.push_back(at.again);
  }
}

std::vector<unsigned> BlockwiseMoves::further(const Set &again) const {
  constexpr size_t kBlocks = 4; // what blocks need is an estimate: any of these may need most in the end
  const State now = stateOf(again);
  std::vector<size_t> largest = largestOf(now);
  largest.resize(std::min(largest.size(), kBlocks));
  std::vector<std::pair<double, unsigned>> found;
  for (const Move &m : movesFrom(again, now)) {
    int64_t freed = 0;
    for (size_t block : largest)
      freed = std::max(freed, now.bytes[block] - m.state.bytes[block]);
    if (freed > 0)
      found.push_back({double(freed) / double(std::max<int64_t>(m.state.ns - now.ns, 1)), m.node});
  }
  llvm::stable_sort(found, [](auto &a, auto &b) { return a.first > b.first; });
  std::vector<unsigned> nodes;
  for (auto &[rate, node] : found)
    nodes.push_back(node);
  return nodes;
}

std::vector<unsigned> zcc::furtherRecomputations(const ForwardBlocks &blocks, const Recomputable &allowed, const Machine &machine,
                                                 int ranks, const std::vector<bool> &again) {
  return BlockwiseMoves(blocks, allowed, machine, ranks, 1).further(again);
}

std::optional<std::vector<bool>> zcc::withRecomputed(const ForwardBlocks &blocks, const Recomputable &allowed,
                                                     const Machine &machine, int ranks, const std::vector<bool> &again,
                                                     unsigned node) {
  return BlockwiseMoves(blocks, allowed, machine, ranks, 1).with(again, node);
}

std::vector<std::vector<bool>> zcc::blockwiseRecomputations(const ForwardBlocks &blocks, const Recomputable &allowed,
                                                            const Machine &machine, int ranks, double share) {
  return BlockwiseMoves(blocks, allowed, machine, ranks, share).run();
}
