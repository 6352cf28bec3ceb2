// Finds the nodes of an update, parts them between host and device by a minimal cut, and transfers what crosses it.
#include "passes/offload/HostUpdate.h"
#include "ir/Builder.h"
#include "passes/offload/MinCut.h"
#include "llvm/ADT/SetVector.h"

using namespace zcc;

static bool isElsewhere(const Value &v) { return v.type.space != Space::Device; }
/// Whether it takes its operands wherever they lie, and does not compute.
static bool takesAnywhere(const Node &n) { return isTransfer(n) || n.op == &ops::run; }

// ---- which nodes

bool HostUpdates::isLike(const Value &v) const {
  return v.type.localCount() == like_.localCount() && v.type.shards == like_.shards && !v.type.isScalar();
}

bool HostUpdates::isMember(const Node &n) const {
  return n.parent() == &f_ && !placed_.contains(&n) && n.phase == Phase::Update && n.op->mayBeOnHost() && n.results.size() == 1;
}

/// What follows from the states element by element, reductions of that, and what else these read element by element.
void HostUpdates::collect(llvm::ArrayRef<Value *> states) {
  members_.clear();
  like_ = states[0]->type;
  llvm::SmallVector<Value *> work(states.begin(), states.end());
  while (!work.empty()) {
    Value *v = work.pop_back_val();
    for (auto &u : v->uses)
      if (isMember(*u.node) && members_.insert({u.node, false}).second && isLike(*u.node->result()))
        work.push_back(u.node->result());
  }
  for (auto &[n, isOnHost] : members_)
    work.push_back(n->result());
  while (!work.empty())
    for (Value *v : work.pop_back_val()->def->operands())
      if (v && v->def && v->def->op->isElementwise() && isLike(*v) && isMember(*v->def) &&
          members_.insert({v->def, false}).second)
        work.push_back(v);
}

// ---- where

/// Where a use reads a value, or wants it.
Space HostUpdates::readIn(const Value::Use &u) const {
  if (assigns(*u.node))
    return u.node->operand(0)->type.space;
  return placed_.contains(u.node) ? u.node->result()->type.space : Space::Device;
}

void HostUpdates::choose() {
  MinCut cut;
  llvm::DenseMap<const Node *, int> number;
  for (auto &[n, isOnHost] : members_)
    number[n] = cut.addNode();
  llvm::SetVector<Value *> values;
  for (auto &[n, isOnHost] : members_) {
    values.insert(n->result());
    for (Value *v : n->operands())
      if (v && !isLeaf(v) && !v->type.isScalar())
        values.insert(v);
  }
  auto sideOf = [](Space s) { return s == Space::Device ? MinCut::kTarget : MinCut::kSource; };
  for (Value *v : values) {
    bool isInside = v->def && number.count(v->def);
    int from = isInside ? number.lookup(v->def) : sideOf(v->type.space);
    std::vector<int> to;
    for (auto &u : v->uses)
      if (u.node->parent() == &f_ && !isWrite(u) && !takesAnywhere(*u.node))
        to.push_back(number.count(u.node) ? number.lookup(u.node) : sideOf(readIn(u)));
    cut.addValue(from, to, v->type.localBytes());
  }
  std::vector<bool> isOnHost = cut.sourceSide();
  for (auto &[n, host] : members_)
    host = isOnHost[number.lookup(n)];
}

// ---- what crosses

/// Where a value is there; -1: before this function.
int HostUpdates::madeAt(const Value &v) const {
  if (!v.def)
    return -1;
  if (auto known = at_.find(v.def); known != at_.end())
    return known->second;
  int made = -1; // of a transfer that was added
  for (const Value *o : v.def->operands())
    made = std::max(made, madeAt(*o));
  return made;
}

/// Transfers values to where they are read in another space than theirs: together, in front of the first node that reads one, as
/// far as they are there by then.
void HostUpdates::bring(llvm::ArrayRef<Value *> values, Space to) {
  for (bool isLate : {true, false})
    bring(values, to, isLate);
}

void HostUpdates::bring(llvm::ArrayRef<Value *> values, Space to, bool isLate) {
  auto isRead = [&](const Value::Use &u) {
    return late_.contains(u.node) == isLate && u.node->parent() == &f_ && !isWrite(u) && !takesAnywhere(*u.node) &&
           readIn(u) == to;
  };
  llvm::SmallVector<Value *, 4> read;
  Node *first = nullptr;
  for (Value *v : values) {
    if (v->type.space == to)
      continue;
    bool isAny = false;
    Value *from = v->def && isTransfer(*v->def) ? v->def->operand(v->index) : nullptr;
    if (from && from->def && from->type.space == to) { // it has just come from there: a sum that the next run adds to
      for (auto &u : Value::Uses(v->uses))
        if (isRead(u))
          u.node->setOperand(u.index, from);
      continue;
    }
    for (auto &u : v->uses)
      if (isRead(u)) {
        isAny = true;
        if (!first || at_.lookup(u.node) < at_.lookup(first))
          first = u.node;
      }
    if (isAny)
      read.push_back(v);
  }
  if (!first)
    return;
  llvm::SmallVector<Value *, 4> later;
  for (Value *v : read)
    if (values.size() > 1 && madeAt(*v) >= at_.lookup(first))
      later.push_back(v);
  llvm::erase_if(read, [&](Value *v) { return llvm::is_contained(later, v); });
  for (Value *v : later)
    bring(v, to, isLate);
  if (read.empty())
    return;
  Builder b(f_, first, first->loc);
  b.phase = Phase::Update;
  Node *moved = b.node(ops::transfer, read, {{"to", spaceName(to).str()}});
  for (unsigned i = 0; i < read.size(); ++i) {
    llvm::SmallVector<Value::Use, 4> uses(read[i]->uses.begin(), read[i]->uses.end());
    for (auto &u : uses)
      if (isRead(u))
        u.node->setOperand(u.index, moved->result(i));
  }
}

/// A number that the device has computed is transferred once, where it is there or was last written.
void HostUpdates::bringScalar(Value &v, Node &reader) {
  Node *made = v.def;
  if (v.isGlobal())
    for (auto &u : v.uses)
      if (u.node->parent() == &f_ && isWrite(u) && at_.lookup(u.node) < at_.lookup(&reader) &&
          (!made || at_.lookup(u.node) > at_.lookup(made)))
        made = u.node;
  Value *&there = scalars_[{&v, made}];
  if (!there) {
    Builder b(f_, made ? made->next() : f_.first(), reader.loc);
    b.phase = Phase::Update;
    there = b.make(ops::transfer, {&v}, {{"to", spaceName(Space::Host).str()}});
  }
  for (unsigned i = 0; i < reader.numOperands(); ++i)
    if (reader.operand(i) == &v)
      reader.setOperand(i, there);
}

/// A value lies on the host, and its runs with it.
static void putOnHost(Value &v) {
  v.type.space = Space::Host;
  for (auto &u : v.uses)
    if (u.node->op == &ops::run)
      putOnHost(*u.node->result());
}

void HostUpdates::place(llvm::ArrayRef<Value *> states) {
  std::vector<llvm::SmallVector<Value *, 4>> alike;
  for (Value *v : states) {
    like_ = v->type;
    auto same = llvm::find_if(alike, [&](auto &group) { return isLike(*group[0]); });
    (same == alike.end() ? alike.emplace_back() : *same).push_back(v);
  }
  for (auto &group : alike)
    placeAlike(group);
}

/// Of values with an element for each of each other's.
void HostUpdates::placeAlike(llvm::ArrayRef<Value *> states) {
  collect(states);
  choose();
  llvm::SetVector<Value *> values;
  for (auto &[n, isOnHost] : members_) {
    placed_.insert(n);
    if (isOnHost)
      putOnHost(*n->result());
    values.insert(n->result());
    for (Value *v : n->operands())
      if (v && !isLeaf(v) && !llvm::is_contained(states, v))
        values.insert(v);
  }
  for (Space to : {Space::Host, Space::Device}) {
    bring(states, to);
    for (Value *v : values)
      if (!v->type.isScalar() || isElsewhere(*v))
        bring(v, to);
  }
  for (auto &[n, isOnHost] : members_)
    for (unsigned i = 0; isOnHost && i < n->numOperands(); ++i)
      if (Value *v = n->operand(i); v && !isLeaf(v) && !isElsewhere(*v))
        bringScalar(*v, *n);
}
