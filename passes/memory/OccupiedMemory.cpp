// A tree over time: each segment knows the bytes that are taken at some time in it, and those taken all through it.
#include "passes/memory/OccupiedMemory.h"
#include "ir/Steps.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace zcc;

static unsigned treeSize(int times) {
  unsigned leaves = 1;
  while (leaves < unsigned(std::max(times, 1)))
    leaves *= 2;
  return 2 * leaves;
}

OccupiedMemory::OccupiedMemory(int times) : times_(std::max(times, 1)), segments_(treeSize(times)) {}

void OccupiedMemory::insert(Intervals &set, int64_t begin, int64_t end) {
  auto first = llvm::partition_point(set, [&](auto &i) { return i.second < begin; }), next = first;
  for (; next != set.end() && next->first <= end; ++next) {
    begin = std::min(begin, next->first);
    end = std::max(end, next->second);
  }
  if (first == next) {
    set.insert(first, {begin, end});
    return;
  }
  *first = {begin, end};
  set.erase(first + 1, next);
}

void OccupiedMemory::add(unsigned segment, int from, int to, int first, int last, int64_t begin, int64_t end) {
  ++steps;
  if (last < from || to < first)
    return;
  Segment &s = segments_[segment];
  insert(s.ever, begin, end);
  if (first <= from && to <= last) {
    insert(s.always, begin, end);
    return;
  }
  int middle = from + (to - from) / 2;
  add(2 * segment, from, middle, first, last, begin, end);
  add(2 * segment + 1, middle + 1, to, first, last, begin, end);
}

void OccupiedMemory::add(int first, int last, int64_t begin, int64_t end) {
  if (begin >= end)
    return;
  add(1, 0, times_ - 1, first, last, begin, end);
  fill(1, 0, times_ - 1, first, last, begin, end);
}

void OccupiedMemory::tellHalves(unsigned segment) {
  Segment &a = segments_[2 * segment], &b = segments_[2 * segment + 1];
  int64_t before = std::max(a.filled, b.filled), now = segments_[segment].filled;
  for (Segment *half : {&a, &b})
    if (half->filled == before)
      half->filled = now;
}

/// The times that are filled up to `begin` or beyond are now to `end` at least.
void OccupiedMemory::fill(unsigned segment, int from, int to, int first, int last, int64_t begin, int64_t end) {
  Segment &s = segments_[segment];
  if (last < from || to < first || s.filled < begin)
    return;
  ++steps;
  if (first <= from && to <= last) {
    s.filled = std::max(s.filled, end);
    return;
  }
  tellHalves(segment);
  int middle = from + (to - from) / 2;
  fill(2 * segment, from, middle, first, last, begin, end);
  fill(2 * segment + 1, middle + 1, to, first, last, begin, end);
  s.filled = std::max(segments_[2 * segment].filled, segments_[2 * segment + 1].filled);
}

/// The lowest byte that can be free all the time.
int64_t OccupiedMemory::filled(unsigned segment, int from, int to, int first, int last) {
  if (last < from || to < first)
    return 0;
  ++steps;
  if (first <= from && to <= last)
    return segments_[segment].filled;
  tellHalves(segment);
  int middle = from + (to - from) / 2;
  return std::max(filled(2 * segment, from, middle, first, last), filled(2 * segment + 1, middle + 1, to, first, last));
}

/// The sets that hold, together, what is taken at some time from `first` to `last`.
void OccupiedMemory::collect(unsigned segment, int from, int to, int first, int last, std::vector<const Intervals *> &out) const {
  const Segment &s = segments_[segment];
  if (last < from || to < first || s.ever.empty())
    return;
  if (first <= from && to <= last) {
    out.push_back(&s.ever);
    return;
  }
  if (!s.always.empty())
    out.push_back(&s.always);
  int middle = from + (to - from) / 2;
  collect(2 * segment, from, middle, first, last, out);
  collect(2 * segment + 1, middle + 1, to, first, last, out);
}

int64_t OccupiedMemory::lowestFree(int first, int last, int64_t bytes) {
  std::vector<const Intervals *> sets;
  collect(1, 0, times_ - 1, first, last, sets);
  int64_t at = filled(1, 0, times_ - 1, first, last);
  for (bool moved = true; moved;) {
    moved = false;
    for (const Intervals *set : sets)
      for (auto i = llvm::partition_point(*set, [&](auto &t) { return t.second <= at; });; ++i) {
        ++steps;
        if (i == set->end() || i->first >= at + bytes)
          break;
        at = i->second;
        moved = true;
      }
  }
  return at;
}
