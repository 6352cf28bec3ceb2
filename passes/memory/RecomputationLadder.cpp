// Orders what can be computed again by what that saves for its time.
//
// In each block a value is either kept or computed again from what is kept. Moves are taken greedily: the value whose cone of
// producers, up to what is kept, saves the most bytes a nanosecond. Equal blocks have one list of moves, which is applied to them
// from the first on, since its values are kept for longest. Behind the last move stand those of blocks that have been joined, as
// long as what they keep is small: between them less is kept, within them more is there at once. Behind those stand whole
// segments, and, of networks that are no chains of equal blocks, ways that go block by block.
#include "passes/memory/RecomputationLadder.h"
#include "ir/Op.h"
#include "passes/CostModel.h"
#include "passes/Target.h"
#include "passes/memory/Activations.h"
#include "passes/memory/BlockwiseRecomputation.h"
#include "passes/memory/ForwardBlocks.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include <algorithm>
#include <map>

using namespace zcc;

namespace {
/// One block: which of its nodes are computed again, and what that costs.
class BlockMoves {
public:
  BlockMoves(const ForwardBlocks &b, unsigned begin, unsigned end, const Machine &m, int ranks, const Recomputable &allowed);

  /// What a move adds, as distances from the block's first node.
  struct Move {
    std::vector<unsigned> added;
    int64_t bytes = 0, ns = 0;
    double rate() const { return double(bytes) / double(ns); }
  };
  std::vector<Move> all() const;

private:
  std::vector<Move> whole() const;
  int64_t keptBytes(const std::vector<bool> &again) const;
  bool addCone(unsigned i, std::vector<bool> &again) const;

  unsigned begin;
  std::vector<Node *> nodes;
  std::vector<bool> mayGo; ///< nothing behind the block reads it
  std::vector<int64_t> ns; ///< of computing it again
  llvm::DenseMap<const Node *, unsigned> index;
  llvm::DenseSet<const Value *> readBack; ///< by the backward
  std::vector<std::vector<const Value *>> sources;
};
} // namespace

BlockMoves::BlockMoves(const ForwardBlocks &b, unsigned first, unsigned end, const Machine &machine, int ranks,
                       const Recomputable &allowed)
    : begin(first) {
  for (unsigned i = begin; i < end; ++i) {
    Node &n = *b.nodes[i];
    index[&n] = nodes.size();
    nodes.push_back(&n);
    mayGo.push_back(b.last[i] < int(end) && !allowed.whyNot(n));
    ns.push_back(1 + int64_t(costOf(n, ranks).seconds(machine) * 1e9));
    auto &read = sources.emplace_back();
    for (Value *v : n.operands())
      if (const Value *o = v ? originOf(v) : nullptr; o && !o->isGlobal() && o->def && !allowed.isFixed(o->def)) {
        read.push_back(o);
        if (isReadBack(*o))
          readBack.insert(o);
      }
    for (auto &r : n.results)
      if (isReadBack(*r))
        readBack.insert(r.get());
  }
}

/// What is kept for the backward of this block, if these nodes are computed again.
int64_t BlockMoves::keptBytes(const std::vector<bool> &again) const {
  llvm::DenseSet<const Value *> needed;
  int64_t bytes = 0;
  for (unsigned i = nodes.size(); i-- > 0;) {
    bool isNeeded = false;
    for (auto &r : nodes[i]->results) {
      bool isRead = readBack.contains(r.get()) || needed.contains(r.get());
      isNeeded |= isRead;
      if (isRead && !again[i] && !widens(*nodes[i]))
        bytes += r->type.localBytes();
    }
    if (isNeeded && again[i])
      for (const Value *v : sources[i])
        if (needed.insert(v).second && !index.count(v->def) && !readBack.contains(v))
          bytes += v->type.localBytes(); // of an earlier block, kept for this one
  }
  return bytes;
}

/// Adds what a node is computed from, up to what is kept anyway; false if one of it cannot be computed again.
bool BlockMoves::addCone(unsigned i, std::vector<bool> &again) const {
  if (again[i])
    return true;
  if (!mayGo[i])
    return false;
  again[i] = true;
  for (const Value *v : sources[i]) {
    auto at = index.find(v->def);
    if (at == index.end() || again[at->second] || readBack.contains(v))
      continue; // of an earlier block, or kept
    if (mayGo[at->second] && !addCone(at->second, again))
      return false;
  }
  return true;
}

std::vector<BlockMoves::Move> BlockMoves::whole() const {
  Move m;
  for (unsigned i = 0; i < nodes.size(); ++i)
    if (mayGo[i])
      m.added.push_back(i), m.ns += ns[i];
  m.bytes = keptBytes(std::vector<bool>(nodes.size(), false)) - keptBytes(mayGo);
  return m.bytes > 0 ? std::vector<Move>{m} : std::vector<Move>();
}

std::vector<BlockMoves::Move> BlockMoves::all() const {
  // Every move looks at all others: a block of more nodes is computed again as a whole or not at all.
  constexpr size_t kMostNodes = 256;
  if (nodes.size() > kMostNodes)
    return whole();
  std::vector<Move> moves;
  std::vector<bool> again(nodes.size(), false);
  int64_t kept = keptBytes(again);
  while (true) {
    Move best;
    for (unsigned i = 0; i < nodes.size(); ++i) {
      bool isKept = llvm::any_of(nodes[i]->results, [&](auto &r) { return readBack.contains(r.get()); });
      std::vector<bool> with = again;
      if (again[i] || !isKept || !addCone(i, with))
        continue;
      Move m;
      m.bytes = kept - keptBytes(with);
      for (unsigned k = 0; k < nodes.size(); ++k)
        if (with[k] && !again[k])
          m.added.push_back(k), m.ns += ns[k];
      if (m.bytes > 0 && (best.added.empty() || m.rate() > best.rate()))
        best = std::move(m);
    }
    if (best.added.empty())
      return moves;
    for (unsigned k : best.added)
      again[k] = true;
    kept -= best.bytes;
    moves.push_back(std::move(best));
  }
}

// ---- the ladder

namespace {
/// Equal blocks, and the moves of each of them.
struct BlockGroup {
  std::vector<std::pair<unsigned, unsigned>> blocks; ///< from node, to node
  std::vector<BlockMoves::Move> moves;
};

/// What of what is computed again has one number, and is so where the backward reads the first of it.
enum class Numbers {
  Together, ///< nodes that feed one another
  ByBlock,  ///< of these those of one block, as late as the backward gets there: what it is computed from is for it alone
};

class Ladder {
public:
  Ladder(const Function &f, const Machine &machine, int ranks);
  std::vector<RecomputeNotes> rungs(LadderEnd end);
  std::vector<RecomputeNotes> before(LadderEnd end, unsigned number);
  std::vector<RecomputeNotes> all(size_t most) const;
  std::vector<RecomputeNotes> keepingOneMore(const RecomputeNotes &some) const;
  std::vector<unsigned> keptBeside(const RecomputeNotes &some) const;
  std::optional<RecomputeNotes> keepingOneLess(const RecomputeNotes &some, unsigned number) const;

private:
  void findMoves();
  void findJointMoves(int64_t most);
  std::vector<BlockMoves::Move> movesOf(unsigned begin, unsigned end) const;
  int64_t keptIn(unsigned begin, unsigned end) const;
  void addRungs(int64_t from, int64_t apart, std::vector<RecomputeNotes> &out);
  bool goesBlockwise() const;
  void addBlockwise(std::vector<RecomputeNotes> &out) const;
  void addSegmentRungs(Numbers how, std::vector<RecomputeNotes> &out) const;
  int64_t savedBytes() const;
  struct Step {
    const BlockMoves::Move *move;
    std::pair<unsigned, unsigned> block;
  };
  std::vector<Step> steps() const;
  void take(const Step &s, std::vector<bool> &again) const;
  std::vector<bool> setOf(const RecomputeNotes &notes) const;
  RecomputeNotes notesOf(const std::vector<bool> &again, Numbers how) const;
  bool addSegments(unsigned every, std::vector<bool> &again) const;
  void addSharing(const RecomputeNotes &some, std::vector<RecomputeNotes> &out) const;

  ForwardBlocks blocks;
  Recomputable allowed;
  const Machine &machine;
  int ranks;
  std::vector<BlockGroup> groups;
  llvm::DenseMap<const Node *, unsigned> place;             ///< in the function
  llvm::DenseMap<const Node *, unsigned> index;             ///< in blocks.nodes
  std::vector<unsigned> blockOf;                            ///< each of blocks.nodes; 0: in none
  std::map<size_t, std::vector<std::vector<bool>>> before_; ///< by a rung, what was left out
};
} // namespace

Ladder::Ladder(const Function &f, const Machine &m, int r) : blocks(findBlocks(f)), allowed(f), machine(m), ranks(r) {
  unsigned at = 0;
  for (auto &n : f.nodes)
    place[n.get()] = at++;
  for (unsigned i = 0; i < blocks.nodes.size(); ++i)
    index[blocks.nodes[i]] = i;
  blockOf.assign(blocks.nodes.size(), 0);
  unsigned number = 0;
  for (const ForwardBlocks::Chain &c : blocks.chains)
    for (size_t b = 0; b + 1 < c.cuts.size(); ++b)
      std::fill(blockOf.begin() + c.cuts[b], blockOf.begin() + c.cuts[b + 1], ++number);
}

std::vector<BlockMoves::Move> Ladder::movesOf(unsigned begin, unsigned end) const {
  return BlockMoves(blocks, begin, end, machine, ranks, allowed).all();
}

void Ladder::findMoves() {
  for (const ForwardBlocks::Chain &c : blocks.chains) {
    size_t count = c.cuts.size() - 1;
    for (size_t i = 0; i < count; ++i) {
      if (i == 0 || !c.isRepeated)
        groups.emplace_back();
      groups.back().blocks.push_back({c.cuts[i], c.cuts[i + 1]});
      if (!c.isRepeated || i == count / 2) // the ends of a repeated chain may differ: one from the middle stands for all
        groups.back().moves = movesOf(c.cuts[i], c.cuts[i + 1]);
    }
  }
}

/// What the backward reads of these nodes.
int64_t Ladder::keptIn(unsigned begin, unsigned end) const {
  int64_t bytes = 0;
  for (unsigned i = begin; i < end; ++i)
    for (auto &r : blocks.nodes[i]->results)
      bytes += isReadBack(*r) && !widens(*blocks.nodes[i]) ? r->type.localBytes() : 0;
  return bytes;
}

/// The same of blocks that follow one another, joined as long as they keep no more than `most`.
void Ladder::findJointMoves(int64_t most) {
  struct Joint {
    unsigned begin, end;
    int64_t bytes;
    int chain; ///< a repeated one that all are of, or -1
    size_t count;
  };
  std::vector<Joint> joints;
  for (size_t c = 0; c < blocks.chains.size(); ++c)
    for (size_t i = 0; i + 1 < blocks.chains[c].cuts.size(); ++i) {
      unsigned begin = blocks.chains[c].cuts[i], end = blocks.chains[c].cuts[i + 1];
      int64_t bytes = keptIn(begin, end);
      int chain = blocks.chains[c].isRepeated ? int(c) : -1;
      if (joints.empty() || joints.back().end != begin || joints.back().bytes + bytes > most) {
        joints.push_back({begin, end, bytes, chain, 1});
        continue;
      }
      Joint &j = joints.back();
      j = {j.begin, end, j.bytes + bytes, j.chain == chain ? chain : -1, j.count + 1};
    }
  groups.clear();
  std::map<std::pair<int, size_t>, size_t> known; // equal ones, by chain and count
  for (const Joint &j : joints) {
    auto [at, isNew] = known.try_emplace({j.chain, j.count}, groups.size());
    if (j.chain >= 0 && !isNew) {
      groups[at->second].blocks.push_back({j.begin, j.end});
      continue;
    }
    groups.push_back({{{j.begin, j.end}}, movesOf(j.begin, j.end)});
  }
}

/// All moves of all blocks: a group's in their order, of different groups the better ones first.
std::vector<Ladder::Step> Ladder::steps() const {
  std::vector<Step> out;
  std::vector<size_t> next(groups.size(), 0);
  while (true) {
    int best = -1;
    for (size_t g = 0; g < groups.size(); ++g)
      if (next[g] < groups[g].moves.size() &&
          (best < 0 || groups[g].moves[next[g]].rate() > groups[best].moves[next[best]].rate()))
        best = int(g);
    if (best < 0)
      return out;
    const BlockMoves::Move &m = groups[best].moves[next[best]++];
    for (auto block : groups[best].blocks)
      out.push_back({&m, block});
  }
}

/// By block, nodes that read the same of another block have one number, too: it is computed for them once.
RecomputeNotes Ladder::notesOf(const std::vector<bool> &again, Numbers how) const {
  llvm::EquivalenceClasses<unsigned> together;
  std::map<std::pair<unsigned, unsigned>, unsigned> readers; // by block and what they read
  for (unsigned i = 0; i < again.size(); ++i) {
    if (!again[i])
      continue;
    together.insert(i);
    for (Value *v : blocks.nodes[i]->operands()) {
      const Value *o = v ? originOf(v) : nullptr;
      auto at = o && o->def ? index.find(o->def) : index.end();
      if (at == index.end() || !again[at->second])
        continue;
      bool isWithin = how == Numbers::Together || blockOf[at->second] == blockOf[i];
      together.unionSets(isWithin ? at->second : readers.try_emplace({blockOf[i], at->second}, i).first->second, i);
    }
  }
  RecomputeNotes notes;
  std::map<unsigned, int64_t> numbers;
  for (unsigned i = 0; i < again.size(); ++i)
    if (again[i])
      notes[place.lookup(blocks.nodes[i])].number =
          numbers.try_emplace(together.getLeaderValue(i), int64_t(numbers.size())).first->second;
  return notes;
}

void Ladder::take(const Step &s, std::vector<bool> &again) const {
  for (unsigned k : s.move->added) {
    unsigned i = s.block.first + k;
    again[i] = blocks.last[i] < int(s.block.second) && !allowed.whyNot(*blocks.nodes[i]);
  }
}

/// All of segments of several equal blocks but what crosses between them; false if there are no such segments.
bool Ladder::addSegments(unsigned every, std::vector<bool> &again) const {
  bool any = false;
  for (const ForwardBlocks::Chain &c : blocks.chains) {
    size_t count = c.cuts.size() - 1;
    any |= every < count;
    for (size_t b = 0; b < count; b += every) {
      unsigned end = c.cuts[std::min(b + every, count)];
      for (unsigned i : neededInside(blocks, c.cuts[b], end, allowed))
        again[i] = true;
    }
  }
  return any;
}

/// Bytes that all moves of all blocks save.
int64_t Ladder::savedBytes() const {
  int64_t bytes = 0;
  for (const BlockGroup &g : groups)
    for (const BlockMoves::Move &m : g.moves)
      bytes += m.bytes * int64_t(g.blocks.size());
  return bytes;
}

/// Ways that save more than `from` bytes, so many apart, and the last.
void Ladder::addRungs(int64_t from, int64_t apart, std::vector<RecomputeNotes> &out) {
  std::vector<Step> all = steps();
  int64_t saved = 0, next = from;
  std::vector<bool> again(blocks.nodes.size(), false);
  for (size_t i = 0; i < all.size(); ++i) {
    take(all[i], again);
    saved += all[i].move->bytes;
    if (saved < next && i + 1 < all.size()) {
      if (saved > next - apart)
        before_[out.size()].push_back(again);
      continue;
    }
    out.push_back(notesOf(again, Numbers::Together));
    next = std::max(next, (saved / apart + 1) * apart);
  }
}

/// Not where much of the network, a third, is equal blocks: these need the same each, so that segments of them do.
bool Ladder::goesBlockwise() const {
  constexpr size_t kMostNodes = 256; // each move looks at all others, and at all blocks
  return !blocks.chains.empty() && blocks.nodes.size() <= kMostNodes &&
         llvm::none_of(blocks.chains, [&](const ForwardBlocks::Chain &c) {
           return c.isRepeated && 3 * (c.cuts.back() - c.cuts.front()) > blocks.nodes.size();
         });
}

/// Block by block: some of the sets, for several guesses at what a block takes, and segments.
void Ladder::addBlockwise(std::vector<RecomputeNotes> &out) const {
  constexpr size_t kBlockwiseRungs = 12;
  for (double share : {0.5, 0.75, 1.0}) {
    const auto sets = blockwiseRecomputations(blocks, allowed, machine, ranks, share);
    for (size_t i = 0, count = std::min(sets.size(), kBlockwiseRungs); i < count; ++i)
      out.push_back(notesOf(sets[(i + 1) * sets.size() / count - 1], Numbers::ByBlock));
  }
  addSegmentRungs(Numbers::ByBlock, out);
}

void Ladder::addSegmentRungs(Numbers how, std::vector<RecomputeNotes> &out) const {
  for (unsigned every : {1, 2, 3, 4, 6, 8}) {
    std::vector<bool> again(blocks.nodes.size(), false);
    if (addSegments(every, again) && (how == Numbers::Together || every > 1))
      out.push_back(notesOf(again, how));
  }
}

std::vector<RecomputeNotes> Ladder::rungs(LadderEnd end) {
  constexpr int64_t kRungs = 40, kJointRungs = 24; // each is a run of the pipeline
  std::vector<RecomputeNotes> out(1);
  findMoves();
  const int64_t total = savedBytes();
  addRungs(total / kRungs, std::max<int64_t>(total / kRungs, 1), out);
  const int64_t kept = keptIn(0, blocks.nodes.size());
  for (int64_t part : {16, 8, 4}) {
    findJointMoves(kept / part);
    addRungs(total / 2, std::max<int64_t>(total / kJointRungs, 1), out);
  }
  addSegmentRungs(Numbers::Together, out);
  if (end == LadderEnd::Blocks && goesBlockwise())
    addBlockwise(out);
  return out;
}

std::vector<RecomputeNotes> Ladder::before(LadderEnd end, unsigned number) {
  rungs(end);
  std::vector<RecomputeNotes> out;
  for (const std::vector<bool> &again : before_[number])
    out.push_back(notesOf(again, Numbers::Together));
  return out;
}

std::vector<RecomputeNotes> Ladder::keepingOneMore(const RecomputeNotes &some) const {
  constexpr size_t kMostWays = 8; // each is a run of the pipeline
  if (!goesBlockwise())
    return {};
  struct Way {
    unsigned place;
    double rate;
  };
  std::vector<Way> ways;
  for (Node *n : blocks.nodes) {
    const unsigned at = place.lookup(n);
    if (!some.count(at))
      continue;
    int64_t bytes = 1;
    for (auto &r : n->results)
      bytes += widens(*n) ? 0 : r->type.localBytes();
    ways.push_back({at, costOf(*n, ranks).seconds(machine) / double(bytes)});
  }
  llvm::stable_sort(ways, [](const Way &a, const Way &b) { return a.rate > b.rate; });
  ways.resize(std::min(ways.size(), kMostWays));
  std::vector<RecomputeNotes> out;
  for (const Way &w : ways) {
    out.push_back(some);
    out.back().erase(w.place);
  }
  addSharing(some, out);
  return out;
}

/// What the forward makes first is computed most often.
void Ladder::addSharing(const RecomputeNotes &some, std::vector<RecomputeNotes> &out) const {
  constexpr size_t kMostWays = 8;
  const size_t most = out.size() + kMostWays;
  for (Node *n : blocks.nodes) {
    if (out.size() == most)
      return;
    auto note = some.find(place.lookup(n));
    if (note == some.end() || note->second.isShared)
      continue;
    const bool isReadElsewhere = llvm::any_of(n->result()->uses, [&](const Value::Use &u) {
      auto other = some.find(place.lookup(u.node));
      return u.node->phase == Phase::Forward && other != some.end() && other->second.number != note->second.number;
    });
    if (!isReadElsewhere)
      continue;
    out.push_back(some);
    out.back()[note->first].isShared = true;
  }
}

std::vector<bool> Ladder::setOf(const RecomputeNotes &notes) const {
  std::vector<bool> again;
  for (Node *n : blocks.nodes)
    again.push_back(notes.count(place.lookup(n)));
  return again;
}

std::vector<unsigned> Ladder::keptBeside(const RecomputeNotes &some) const {
  return goesBlockwise() ? furtherRecomputations(blocks, allowed, machine, ranks, setOf(some)) : std::vector<unsigned>();
}

std::optional<RecomputeNotes> Ladder::keepingOneLess(const RecomputeNotes &some, unsigned number) const {
  auto again = withRecomputed(blocks, allowed, machine, ranks, setOf(some), number);
  if (!again)
    return std::nullopt;
  RecomputeNotes notes = notesOf(*again, Numbers::ByBlock);
  for (auto &[at, note] : some)
    notes[at].isShared = note.isShared;
  return notes;
}

std::vector<RecomputeNotes> Ladder::all(size_t most) const {
  std::vector<unsigned> open;
  for (unsigned i = 0; i < blocks.nodes.size(); ++i)
    if (!allowed.whyNot(*blocks.nodes[i]))
      open.push_back(i);
  std::vector<RecomputeNotes> out;
  if (open.size() >= 32 || (size_t(1) << open.size()) > most)
    return out;
  for (size_t set = 0; set < size_t(1) << open.size(); ++set) {
    std::vector<bool> again(blocks.nodes.size(), false);
    for (size_t k = 0; k < open.size(); ++k)
      again[open[k]] = set >> k & 1;
    out.push_back(notesOf(again, Numbers::Together));
  }
  return out;
}

void zcc::note(Function &f, const RecomputeNotes &notes) {
  unsigned at = 0;
  for (auto &n : f.nodes)
    if (auto note = notes.find(at++); note != notes.end()) {
      n->attrs.set("recompute", note->second.number);
      if (note->second.isShared)
        n->attrs.set("recompute_shared", int64_t(1));
    }
}

std::vector<RecomputeNotes> zcc::allRecomputations(const Function &f, size_t most) {
  const Machine machine = machineOf(nullptr);
  return Ladder(f, machine, f.module->ranks).all(most);
}

std::vector<RecomputeNotes> zcc::keepingOneMore(const Function &f, const RecomputeNotes &some, const Machine &machine) {
  return Ladder(f, machine, f.module->ranks).keepingOneMore(some);
}

std::vector<unsigned> zcc::keptBeside(const Function &f, const RecomputeNotes &some, const Machine &machine) {
  return Ladder(f, machine, f.module->ranks).keptBeside(some);
}

std::optional<RecomputeNotes> zcc::keepingOneLess(const Function &f, const RecomputeNotes &some, unsigned number,
                                                  const Machine &machine) {
  return Ladder(f, machine, f.module->ranks).keepingOneLess(some, number);
}

std::vector<RecomputeNotes> zcc::recomputationLadder(const Function &f, const Machine &machine, LadderEnd end) {
  return Ladder(f, machine, f.module->ranks).rungs(end);
}

std::vector<RecomputeNotes> zcc::recomputationsBefore(const Function &f, const Machine &machine, LadderEnd end, unsigned number) {
  return Ladder(f, machine, f.module->ranks).before(end, number);
}
