// Files that appear together or not at all.
#include "ir/Files.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include <gtest/gtest.h>

using namespace zcc;
namespace fs = llvm::sys::fs;

namespace {

class NewFilesTest : public testing::Test {
protected:
  void SetUp() override { ASSERT_FALSE(fs::createUniqueDirectory("zcc-files", folder)); }
  void TearDown() override { fs::remove_directories(folder); }

  std::string in(llvm::StringRef name) const {
    llvm::SmallString<128> p(folder);
    llvm::sys::path::append(p, name);
    return p.str().str();
  }
  std::string text(llvm::StringRef name) const {
    auto buffer = llvm::MemoryBuffer::getFile(in(name));
    return buffer ? (*buffer)->getBuffer().str() : "none";
  }
  unsigned entries() const {
    unsigned count = 0;
    std::error_code ec;
    for (fs::directory_iterator i(folder, ec), end; i != end && !ec; i.increment(ec))
      ++count;
    return count;
  }
  static auto writes(const char *bytes) {
    return [bytes](llvm::StringRef path) { return writeFile(path, bytes); };
  }

  llvm::SmallString<128> folder;
};

TEST_F(NewFilesTest, OneThatCannotBeWrittenLeavesAllAsItWas) {
  ASSERT_FALSE(bool(writeWhole(in("a"), "old")));
  {
    NewFiles files;
    ASSERT_FALSE(bool(files.add(in("a"), 0666, writes("new"))));
    ASSERT_FALSE(bool(files.addFolder(in("made/within"))));
    ASSERT_FALSE(bool(files.add(in("made/within/b"), 0666, writes("new"))));
    auto full = [](llvm::StringRef) { return std::make_error_code(std::errc::no_space_on_device); };
    EXPECT_EQ(llvm::toString(files.add(in("c"), 0777, full)), "cannot write '" + in("c") + "': No space left on device");
  }
  EXPECT_EQ(text("a"), "old");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(NewFilesTest, AllTakeTheirPlaces) {
  ASSERT_FALSE(bool(writeWhole(in("a"), "old")));
  {
    NewFiles files;
    ASSERT_FALSE(bool(files.addFolder(in("made"))));
    ASSERT_FALSE(bool(files.add(in("made/b"), 0666, writes("b"))));
    ASSERT_FALSE(bool(files.add(in("a"), 0666, writes("new"))));
    EXPECT_EQ(text("a"), "old");
    ASSERT_FALSE(bool(files.putInPlace()));
  }
  EXPECT_EQ(text("a"), "new");
  EXPECT_EQ(text("made/b"), "b");
  EXPECT_EQ(entries(), 2u);
}

} // namespace
