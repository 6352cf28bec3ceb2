// Files that appear together or not at all.
#include "ir/Files.h"
#include "RuntimeTest.h"
#include <filesystem>

namespace files_test {

using namespace zcc;
using runtimetest::Folder;
using runtimetest::readFile;

namespace {

auto writes(const char *bytes) {
  return [bytes](llvm::StringRef path) { return zcc::writeFile(path, bytes); };
}

long entries(const Folder &folder) {
  return std::distance(std::filesystem::directory_iterator(folder.path), std::filesystem::directory_iterator());
}

TEST(NewFiles, OneThatCannotBeWrittenLeavesAllAsItWas) {
  Folder folder;
  ASSERT_FALSE(bool(writeWhole(folder / "a", "old")));
  {
    NewFiles files;
    ASSERT_FALSE(bool(files.add(folder / "a", 0666, writes("new"))));
    ASSERT_FALSE(bool(files.addFolder(folder / "made/within")));
    ASSERT_FALSE(bool(files.add(folder / "made/within/b", 0666, writes("new"))));
    auto full = [](llvm::StringRef) { return std::make_error_code(std::errc::no_space_on_device); };
    EXPECT_EQ(llvm::toString(files.add(folder / "c", 0777, full)),
              "cannot write '" + folder / "c" + "': No space left on device");
  }
  EXPECT_EQ(readFile(folder / "a"), "old");
  EXPECT_EQ(entries(folder), 1);
}

TEST(NewFiles, AllTakeTheirPlaces) {
  Folder folder;
  ASSERT_FALSE(bool(writeWhole(folder / "a", "old")));
  {
    NewFiles files;
    ASSERT_FALSE(bool(files.addFolder(folder / "made")));
    ASSERT_FALSE(bool(files.add(folder / "made/b", 0666, writes("b"))));
    ASSERT_FALSE(bool(files.add(folder / "a", 0666, writes("new"))));
    EXPECT_EQ(readFile(folder / "a"), "old");
    ASSERT_FALSE(bool(files.putInPlace()));
  }
  EXPECT_EQ(readFile(folder / "a"), "new");
  EXPECT_EQ(readFile(folder / "made/b"), "b");
  EXPECT_EQ(entries(folder), 2);
}

} // namespace

} // namespace files_test
