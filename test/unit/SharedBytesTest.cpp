// Constant data, which copies of a module share until it is written.
#include "ir/Graph.h"
#include <gtest/gtest.h>

namespace shared_bytes_test {

using namespace zcc;

static const void *placeOf(llvm::StringRef bytes) { return bytes.data(); }

TEST(SharedBytes, CopiesOfAModuleShareUntilOneWrites) {
  Module m;
  m.addConst("a", Type(Elem::I8, {4}), "abcd");
  std::unique_ptr<Module> copy = m.clone(), other = m.clone();
  EXPECT_EQ(placeOf(copy->constData), placeOf(m.constData));
  GlobalValue *b = copy->addConst("b", Type(Elem::I8, {2}), "ef");
  EXPECT_EQ(placeOf(other->constData), placeOf(m.constData));
  EXPECT_EQ(m.constData.size(), 4u);
  EXPECT_EQ(llvm::cantFail(m.bytesOf(*m.global("a"))), "abcd");
  EXPECT_EQ(llvm::cantFail(copy->bytesOf(*copy->global("a"))), "abcd");
  EXPECT_EQ(llvm::cantFail(copy->bytesOf(*b)), "ef");
  EXPECT_FALSE(copy->constData == m.constData);
  EXPECT_TRUE(other->constData == m.constData);
}

TEST(SharedBytes, WhatNobodyHasCopiedIsWrittenInPlace) {
  SharedBytes bytes(std::string(1000, 'x'));
  const void *before = placeOf(bytes);
  bytes.resize(900);
  EXPECT_EQ(placeOf(bytes), before);
  const SharedBytes copy = bytes;
  bytes += "y";
  EXPECT_EQ(placeOf(copy), before);
  EXPECT_NE(placeOf(bytes), before);
  EXPECT_EQ(bytes.size(), copy.size() + 1);
}

} // namespace shared_bytes_test
