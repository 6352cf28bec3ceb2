// The pools of small objects: what is given back is used again, also by other threads than the one that had it.
#include "ir/Pool.h"
#include "llvm/ADT/DenseSet.h"
#include "gtest/gtest.h"
#include <algorithm>
#include <thread>
#include <vector>

namespace pool_test {

using namespace zcc;

namespace {

constexpr size_t kBytes = 976; // of no class of ours

std::vector<void *> take(size_t count) {
  std::vector<void *> out;
  for (size_t i = 0; i < count; ++i)
    out.push_back(FreePieces<kBytes>::get());
  return out;
}

TEST(FreePieces, ThePieceGivenBackLastComesFirst) {
  auto pieces = take(2);
  for (void *p : pieces)
    FreePieces<kBytes>::put(p);
  EXPECT_EQ(FreePieces<kBytes>::get(), pieces[1]);
  EXPECT_EQ(FreePieces<kBytes>::get(), pieces[0]);
}

TEST(FreePieces, PiecesAreApart) {
  auto pieces = take(1000);
  llvm::DenseSet<uintptr_t> starts;
  for (void *p : pieces) {
    EXPECT_EQ(uintptr_t(p) % alignof(std::max_align_t), 0u);
    for (size_t at = 0; at < kBytes; at += alignof(std::max_align_t))
      EXPECT_TRUE(starts.insert(uintptr_t(p) + at).second);
  }
}

TEST(FreePieces, SortedOnesComeSideBySide) {
  auto pieces = take(600);
  for (size_t i = 0; i < pieces.size(); ++i)
    FreePieces<kBytes>::put(pieces[i * 7 % pieces.size()]);
  sortFreePieces();
  auto again = take(600);
  EXPECT_TRUE(std::is_sorted(again.begin(), again.end()));
}

TEST(FreePieces, WhatThreadsLeaveOthersTake) {
  llvm::DenseSet<void *> left;
  for (int i = 0; i < 2; ++i) {
    std::vector<void *> pieces;
    std::thread([&] {
      pieces = take(300);
      for (void *p : pieces)
        FreePieces<kBytes>::put(p);
    }).join();
    if (i == 0)
      left.insert(pieces.begin(), pieces.end());
    else
      for (void *p : pieces)
        EXPECT_TRUE(left.contains(p));
  }
}

struct Base : Pooled<Base> {
  virtual ~Base() = default;
  char bytes[200] = {};
};
struct Derived : Base {
  char more[200] = {};
};

TEST(FreePieces, ADerivedClassIsOfTheHeap) {
  auto base = std::make_unique<Base>();
  void *at = base.get();
  base.reset();
  std::unique_ptr<Base> derived = std::make_unique<Derived>();
  EXPECT_NE(static_cast<void *>(derived.get()), at);
  derived.reset();
  base = std::make_unique<Base>();
  EXPECT_EQ(static_cast<void *>(base.get()) == at, kUsesPools);
}

} // namespace

} // namespace pool_test
