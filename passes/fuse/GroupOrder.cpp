// Keeps the labels of the order, and walks the trunks.
#include "passes/fuse/GroupOrder.h"
#include "ir/Steps.h"
#include "passes/fuse/FuseGroups.h"
#include <algorithm>
#include <climits>

using namespace zcc;
using llvm::ArrayRef;

// ---- the order

// Labels have 62 bits: room for 2^31 groups that are appended this far apart.
constexpr unsigned kLabelBits = 62;
constexpr uint64_t kApart = uint64_t(1) << 30, kEnd = uint64_t(1) << kLabelBits;

void GroupOrder::append(FuseGroup *g) { insertBehind(last_, g, last_ ? last_->label + kApart : kApart); }

void GroupOrder::insertBehind(FuseGroup *at, FuseGroup *g, uint64_t label) {
  g->label = label;
  g->prev = at;
  g->next = at ? at->next : first_;
  (g->prev ? g->prev->next : first_) = g;
  (g->next ? g->next->prev : last_) = g;
}

void GroupOrder::remove(FuseGroup *g) {
  (g->prev ? g->prev->next : first_) = g->next;
  (g->next ? g->next->prev : last_) = g->prev;
}

/// Spreads the labels around `at`: in the smallest aligned range that is sparse enough for its size, so that each group is
/// given a new label a logarithmic number of times.
void GroupOrder::makeRoom(FuseGroup *at) {
  FuseGroup *from = at, *to = at;
  uint64_t count = 1;
  double most = 1;
  for (unsigned bits = 1; bits <= kLabelBits; ++bits) {
    uint64_t size = uint64_t(1) << bits, begin = at->label / size * size;
    for (; from->prev && from->prev->label >= begin; ++count)
      from = from->prev;
    for (; to->next && to->next->label < begin + size; ++count)
      to = to->next;
    most *= 4. / 3;
    if (count > most || size / count < 4)
      continue;
    steps += count;
    uint64_t step = size / count, label = begin + step / 2;
    for (FuseGroup *g = from;; g = g->next, label += step) {
      g->label = label;
      if (g == to)
        return;
    }
  }
}

void GroupOrder::moveBehind(FuseGroup *at, ArrayRef<FuseGroup *> groups) {
  for (FuseGroup *g : groups)
    remove(g);
  size_t left = groups.size();
  for (FuseGroup *g : groups) {
    FuseGroup *next = at ? at->next : first_;
    auto begin = [&] { return at ? at->label : 0; };
    auto room = [&] { return (next ? next->label : kEnd) - begin(); };
    if (room() < 2)
      makeRoom(at ? at : next);
    insertBehind(at, g, begin() + std::max<uint64_t>(1, std::min(room() / (left + 1), kApart)));
    at = g;
    --left;
  }
}

std::vector<FuseGroup *> GroupOrder::all() const {
  std::vector<FuseGroup *> out;
  for (FuseGroup *g = first_; g; g = g->next)
    out.push_back(g);
  return out;
}

// ---- paths

void Trunks::Contact::merge(const Contact &o) {
  for (unsigned t = 0; t < kCount; ++t) {
    reaches[t] = std::min(reaches[t], o.reaches[t]);
    reachedFrom[t] = std::max(reachedFrom[t], o.reachedFrom[t]);
  }
}

/// The path with the most nodes that no other path has.
static std::vector<unsigned> longestPath(ArrayRef<llvm::SmallVector<unsigned, 3>> before, std::vector<bool> &isTaken) {
  size_t n = before.size();
  std::vector<unsigned> length(n, 0);
  std::vector<int> from(n, -1);
  for (size_t i = 0; i < n; ++i) {
    for (unsigned d : before[i])
      if (from[i] < 0 || length[d] > length[from[i]])
        from[i] = int(d);
    length[i] = (from[i] < 0 ? 0 : length[from[i]]) + !isTaken[i];
  }
  std::vector<unsigned> path;
  auto last = std::max_element(length.begin(), length.end());
  for (int i = n ? int(last - length.begin()) : -1; i >= 0; i = from[i])
    path.push_back(unsigned(i));
  std::reverse(path.begin(), path.end());
  for (unsigned i : path)
    isTaken[i] = true;
  return path;
}

Trunks::Trunks(ArrayRef<llvm::SmallVector<unsigned, 3>> before, const std::vector<bool> &isPassive) {
  size_t n = before.size();
  contacts_.resize(n);
  std::vector<bool> isTaken = isPassive;
  for (unsigned t = 0; t < kCount; ++t) {
    for (Contact &c : contacts_)
      c.reaches[t] = INT_MAX, c.reachedFrom[t] = -1;
    for (unsigned i : longestPath(before, isTaken)) {
      if (isPassive[i])
        continue;
      contacts_[i].reaches[t] = contacts_[i].reachedFrom[t] = int(paths_[t].size());
      paths_[t].push_back(i);
    }
    for (size_t i = 0; i < n; ++i)
      for (unsigned d : before[i])
        contacts_[i].reachedFrom[t] = std::max(contacts_[i].reachedFrom[t], contacts_[d].reachedFrom[t]);
    for (size_t i = n; i-- > 0;)
      for (unsigned d : before[i])
        contacts_[d].reaches[t] = std::min(contacts_[d].reaches[t], contacts_[i].reaches[t]);
  }
}

ArrayRef<unsigned> Trunks::between(unsigned t, const Contact &a, const Contact &b) const {
  if (a.reaches[t] > b.reachedFrom[t])
    return {};
  return ArrayRef(paths_[t]).slice(a.reaches[t], b.reachedFrom[t] - a.reaches[t] + 1);
}
