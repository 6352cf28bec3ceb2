// Updates wait for where the disk has time for them, instead of the program for the disk.
//
//   %g = matmul ...                                     %g = matmul ...
//   %m0 = transfer %w.m {to = "device"}                 %y = matmul ...
//   %m1 = fused @k %m0, %g                        ->    %z = matmul ...
//   %m2 = transfer %m1 {to = "nvme"}                    %m0 = transfer %w.m {to = "device"}
//   assign %w.m, %m2                                    %m1 = fused @k %m0, %g
//   %y = matmul ...                                     %m2 = transfer %m1 {to = "nvme"}
//   %z = matmul ...                                     assign %w.m, %m2
//
// The function is walked with a clock of what computes and one of what moves. Transfers that something else needs come first: an
// update begins where it delays none of those behind it, or where those that wait could not all be moved any more before more is
// live than leaves them room. The gradients of those that wait take memory, which is there where less is live than somewhere
// else; where it ends they go on in the order in which they came.
#include "passes/offload/SpreadUpdates.h"
#include "ir/Op.h"
#include "passes/memory/Activations.h"
#include "passes/memory/Liveness.h"
#include "passes/zero/Zero.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <algorithm>
#include <array>
#include <deque>
#include <numeric>

using namespace zcc;

/// Bytes of what is moved that are begun ahead of what computes.
constexpr int64_t kAheadBytes = 16 << 20;
constexpr int64_t kEver = int64_t(1) << 60; ///< ns
/// Transfers to the device that memory is left for.
constexpr size_t kNearest = 3;
/// Nodes behind one that are looked at.
constexpr size_t kMostAhead = 512;

namespace {
/// An update, or a run of one: what it is computed of and what takes that back, in their order.
struct Unit {
  llvm::SmallVector<Node *, 12> nodes;
  llvm::SmallVector<const Value *, 4> held;   ///< on the device, and not transferred for it alone: gradients
  int end = 0;                                ///< where its last node is
  int64_t reads = 0, moves = 0, computes = 0; ///< ns; `reads`: of `moves`, until it can be computed
};

class Spreader {
public:
  Spreader(Function &f, std::vector<int64_t> &own, int64_t most, const Machine &machine, int ranks)
      : f_(f), own_(own), most_(most), machine_(machine), ranks_(ranks), at_(positions(f)) {}
  void run();

private:
  void findReads();
  bool isReadBehind(const Node &assign) const;
  bool findUnit(Node &n, Unit &u) const;
  void findUnits();
  void findNear();
  void findRoom();
  void walk();
  void begin(size_t position);
  void take(const Unit &u);
  int64_t beginOf(const Unit &u) const { return std::max(moved_, computed_ - std::max(ahead_, u.reads)); }
  void pass(const Node &n);
  bool isFree(const Unit &u, size_t position) const;
  bool isUrgent(size_t position) const;
  int64_t behind(size_t position) const { return (position + 1 < own_.size() ? own_[position + 1] : 0) + heldBytes_; }
  int64_t nsOf(const NodeCost &c) const { return int64_t(c.seconds(machine_) * 1e9); }
  int64_t nsOf(const Node &n) const { return ns_[at_.lookup(&n)]; }
  void hold(const Unit &u, int by);
  void keep(size_t position);
  void move();

  Function &f_;
  std::vector<int64_t> &own_; ///< bytes of the device live at each node but for what is transferred
  const int64_t most_;
  const Machine &machine_;
  const int ranks_;
  const Positions at_;
  struct Read {
    Range range;
    int at;
  };
  struct Reads {
    std::vector<Read> all; ///< by where they begin
    int64_t longest = 0;
  };
  llvm::DenseMap<const Value *, Reads> reads_; ///< by global
  std::vector<Node *> order_;
  std::vector<int64_t> ns_;     ///< what each takes
  std::vector<int64_t> begins_; ///< ns of what computes before each, but for units
  std::vector<Unit> units_;
  llvm::DenseMap<const Node *, size_t> unitOf_;                            ///< by any of its nodes
  llvm::DenseMap<size_t, llvm::SmallVector<const Value *, 2>> lastReadAt_; ///< what units hold, by position
  std::vector<int64_t> near_; ///< bytes of some transfers to the device from a node on
  std::vector<int64_t> room_; ///< at each node, ns of transfers that delay none from there on
  int64_t ahead_ = 0;         ///< ns of kAheadBytes

  // While it walks.
  int64_t computed_ = 0, moved_ = 0; ///< clocks, ns
  int lastOther_ = -1;               ///< position of the last node that is no unit's
  std::deque<size_t> waiting_;
  llvm::DenseMap<const Value *, int> holders_; ///< units that wait, by what they hold
  llvm::DenseSet<const Value *> held_;         ///< of that, what nothing else reads any more
  int64_t heldBytes_ = 0;
  int64_t waitingMoves_ = 0; ///< ns, of units that wait
  struct Move {
    size_t unit;
    Node *before;
    int64_t own; ///< own_ there
  };
  std::vector<Move> moves_;
  std::vector<int64_t> heldAt_;
};
} // namespace

static bool isOnlyFor(const Value &v, const Node &n) {
  return llvm::all_of(v.uses, [&](auto &u) { return u.node == &n; });
}

/// Where the function reads globals: most are read in runs that do not overlap.
void Spreader::findReads() {
  for (auto &n : f_.nodes)
    for (unsigned i = 0; i < n->numOperands(); ++i) {
      Value *v = n->operand(i);
      if (!v || !v->isGlobal() || isWrite({n.get(), i}))
        continue;
      auto view = n->op->view ? storageOf(n->result()) : std::nullopt;
      Reads &reads = reads_[v];
      reads.all.push_back({view ? rangeOf(*view) : Range{0, v->type.localCount()}, at_.lookup(n.get())});
      reads.longest = std::max(reads.longest, reads.all.back().range.end - reads.all.back().range.begin);
    }
  for (auto &[global, reads] : reads_)
    llvm::stable_sort(reads.all, [](auto &a, auto &b) { return a.range.begin < b.range.begin; });
}

/// Whether what it writes is read behind it.
bool Spreader::isReadBehind(const Node &assign) const {
  auto found = reads_.find(assign.operand(0));
  if (found == reads_.end())
    return false;
  const Range range = assigned(assign);
  const Reads &reads = found->second;
  auto first = llvm::partition_point(reads.all, [&](auto &r) { return r.range.begin + reads.longest <= range.begin; });
  for (auto r = first; r != reads.all.end() && r->range.begin < range.end; ++r)
    if (r->at > at_.lookup(&assign) && r->range.overlaps(range))
      return true;
  return false;
}

/// Whether `n` updates states with a gradient: it alone reads what is transferred for it, and all that it makes is taken back and
/// assigned to what nothing reads behind it.
bool Spreader::findUnit(Node &n, Unit &u) const {
  if (n.phase != Phase::Update || n.op->view || transfers(n) || assigns(n) || n.op->collective != Collective::None ||
      computeSpace(n) != Space::Device)
    return false;
  auto add = [&](Node *member) {
    if (!llvm::is_contained(u.nodes, member))
      u.nodes.push_back(member);
  };
  bool readsMoved = false;
  for (Value *v : n.operands()) {
    if (!v || v->type.isScalar())
      continue;
    Node *by = v->def;
    if (by && by->op->view && isOnlyFor(*v, n))
      add(by);
    Value *base = behindViews(v);
    if (base->def && isTransfer(*base->def) && llvm::all_of(base->def->results, [&](auto &r) {
          return llvm::all_of(readersOf(*r), [&](Node *x) { return x == &n; });
        })) {
      readsMoved = true;
      add(base->def);
      for (Value *from : base->def->operands())
        if (from->def && from->def->op->view && isOnlyFor(*from, *base->def))
          add(from->def);
    } else if (base->def) {
      u.held.push_back(base);
    }
  }
  if (!readsMoved || u.held.empty())
    return false;
  add(&n);
  for (auto &r : n.results)
    for (auto &use : r->uses) {
      if (!isTransfer(*use.node))
        return false;
      add(use.node);
      for (auto &taken : use.node->results)
        for (auto &write : taken->uses) {
          if (!assigns(*write.node))
            return false;
          add(write.node);
        }
    }
  if (llvm::any_of(u.nodes, [&](Node *member) { return assigns(*member) && isReadBehind(*member); }))
    return false;
  llvm::sort(u.nodes, [&](Node *a, Node *b) { return at_.lookup(a) < at_.lookup(b); });
  u.end = at_.lookup(u.nodes.back());
  u.computes = nsOf(n);
  for (Node *member : u.nodes)
    if (isTransfer(*member)) {
      u.moves += nsOf(*member);
      u.reads += member->result()->type.space == Space::Device ? nsOf(*member) : 0;
    }
  return true;
}

void Spreader::findUnits() {
  for (Node *n : order_) {
    Unit u;
    if (findUnit(*n, u) && llvm::none_of(u.nodes, [&](Node *m) { return unitOf_.count(m); })) {
      for (Node *member : u.nodes)
        unitOf_[member] = units_.size();
      units_.push_back(std::move(u));
    }
  }
  llvm::DenseSet<const Value *> seen;
  for (const Unit &u : units_)
    for (const Value *v : u.held)
      if (seen.insert(v).second) {
        int last = 0;
        for (Node *n : readersOf(*v)) {
          auto unit = unitOf_.find(n);
          last = std::max(last, unit == unitOf_.end() ? at_.lookup(n) : units_[unit->second].end);
        }
        lastReadAt_[last].push_back(v);
      }
}

/// What is begun ahead at a node, and so on the device.
void Spreader::findNear() {
  near_.assign(order_.size() + 1, 0);
  std::array<int64_t, kNearest> next{};
  for (size_t i = order_.size(); i-- > 0;) {
    const Node &n = *order_[i];
    if (isTransfer(n) && n.result()->type.space == Space::Device && !unitOf_.count(&n)) {
      std::rotate(next.begin(), next.end() - 1, next.end());
      next[0] = resultBytes(n);
    }
    near_[i] = std::accumulate(next.begin(), next.end(), int64_t(0));
  }
}

/// From the end: what computes gives room, what is moved takes it. As no more than some is begun ahead, a stretch where too much
/// is moved takes no room from what is long before it.
void Spreader::findRoom() {
  room_.assign(order_.size() + 1, kEver);
  for (size_t i = order_.size(); i-- > 0;) {
    room_[i] = room_[i + 1];
    if (unitOf_.count(order_[i]))
      continue;
    if (!transfers(*order_[i]))
      room_[i] += nsOf(*order_[i]);
    else if (order_[i]->result()->type.space == Space::Device)
      room_[i] = std::max(std::min(room_[i], ahead_) - nsOf(*order_[i]), -ahead_);
    else
      room_[i] = std::max(room_[i] - nsOf(*order_[i]), -ahead_);
  }
}

/// `by` more units wait that read these values: they take memory from their last reader of before on.
void Spreader::hold(const Unit &u, int by) {
  waitingMoves_ += by * u.moves;
  for (const Value *v : u.held) {
    holders_[v] += by;
    if (!holders_[v] && held_.erase(v))
      heldBytes_ -= v->type.localBytes();
  }
}

/// What is held from behind a node on.
void Spreader::keep(size_t position) {
  auto read = lastReadAt_.find(position);
  if (read == lastReadAt_.end())
    return;
  for (const Value *v : read->second)
    if (holders_.lookup(v) > 0 && held_.insert(v).second)
      heldBytes_ += v->type.localBytes();
}

/// The first of those that wait goes behind the last node before a position that is no unit's, unless it stands there.
void Spreader::begin(size_t position) {
  const Unit &u = units_[waiting_.front()];
  if (u.end < lastOther_)
    moves_.push_back({waiting_.front(), order_[lastOther_]->next(), behind(position)});
  waiting_.pop_front();
  hold(u, -1);
  take(u);
}

void Spreader::take(const Unit &u) {
  moved_ = beginOf(u) + u.moves;
  computed_ += u.computes;
}

/// A node that is no unit's.
void Spreader::pass(const Node &n) {
  if (!transfers(n)) {
    computed_ += nsOf(n);
    return;
  }
  moved_ = std::max(moved_, computed_ - ahead_) + nsOf(n);
  if (n.result()->type.space == Space::Device)
    computed_ = std::max(computed_, moved_);
}

/// Whether more is live soon than leaves what waits its room, and sooner than all of that is moved.
bool Spreader::isUrgent(size_t position) const {
  const int64_t until = begins_[position] + waitingMoves_;
  for (size_t i = position; i < std::min(position + kMostAhead, order_.size()) && begins_[i] <= until; ++i)
    if (behind(i) + near_[i + 1] > most_)
      return true;
  return false;
}

/// Whether what it reads is there in front of a node, and none of what is behind that is delayed, or must be.
bool Spreader::isFree(const Unit &u, size_t position) const {
  return beginOf(u) + u.reads <= computed_ && (u.moves <= room_[position] || isUrgent(position));
}

void Spreader::walk() {
  heldAt_.assign(order_.size(), 0);
  for (size_t i = 0; i < order_.size(); ++i) {
    const Node *n = order_[i];
    heldAt_[i] = heldBytes_;
    auto member = unitOf_.find(n);
    if (member == unitOf_.end()) {
      lastOther_ = int(i);
      pass(*n);
    } else if (const Unit &u = units_[member->second]; int(i) == u.end) {
      if (waiting_.empty() && isFree(u, i)) {
        take(u);
      } else {
        waiting_.push_back(member->second);
        hold(u, 1);
      }
    }
    keep(i);
    const bool isBetween = n->next() && !unitOf_.count(n->next());
    while (isBetween && !waiting_.empty() && (isFree(units_[waiting_.front()], i + 1) || behind(i) + near_[i + 1] > most_))
      begin(i);
  }
  while (!waiting_.empty())
    begin(order_.size() - 1);
}

void Spreader::move() {
  llvm::DenseMap<const Node *, int64_t> own; // at each node
  for (size_t i = 0; i < order_.size(); ++i)
    own[order_[i]] = own_[i] + heldAt_[i];
  for (const Move &m : moves_)
    for (Node *n : units_[m.unit].nodes) {
      n->moveBefore(m.before);
      own[n] = m.own;
    }
  size_t i = 0;
  for (auto &n : f_.nodes)
    own_[i++] = own.lookup(n.get());
}

void Spreader::run() {
  for (auto &n : f_.nodes) {
    order_.push_back(n.get());
    ns_.push_back(nsOf(costOf(*n, ranks_)));
  }
  findReads();
  findUnits();
  if (units_.empty())
    return;
  NodeCost some;
  some[Rate::Disk] = double(kAheadBytes);
  ahead_ = nsOf(some);
  int64_t now = 0;
  for (size_t i = 0; i < order_.size(); ++i) {
    begins_.push_back(now);
    now += unitOf_.count(order_[i]) || transfers(*order_[i]) ? 0 : ns_[i];
  }
  findNear();
  findRoom();
  walk();
  move();
}

void zcc::spreadUpdates(Function &f, std::vector<int64_t> &own, int64_t most, const Machine &machine, int ranks) {
  Spreader(f, own, most, machine, ranks).run();
}
