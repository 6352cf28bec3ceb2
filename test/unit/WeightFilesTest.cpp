// Weights in files: runs of elements, transposed or of another type.
#include "RuntimeTest.h"
#include "runtime/weights/RunReader.h"
#include <numeric>

using namespace zccrt;
using runtimetest::writeFile;

namespace {

/// A file with the numbers 0, 1, 2, ... behind `offset` bytes.
struct CountingFile {
  CountingFile(int64_t count, int64_t offset) {
    std::vector<float> numbers(count);
    std::iota(numbers.begin(), numbers.end(), 0.0f);
    std::string bytes(offset, 'x');
    bytes.append(reinterpret_cast<const char *>(numbers.data()), count * 4);
    writeFile(folder / "counting", bytes);
  }
  runtimetest::Folder folder;
};

std::vector<float> readRun(const TensorInFile &t, const Run &run, int64_t count) {
  CountingFile f(count, t.offset);
  RunReader reader;
  std::vector<float> out(run.count);
  reader.read(File(f.folder / "counting"), t, run, ZCCRT_F32, reinterpret_cast<char *>(out.data()));
  return out;
}

} // namespace

// A tensor [2, 3, 4] that the file has as [2, 4, 3]: element (m, r, c) is number m * 12 + c * 3 + r there.
TEST(RunReader, EveryRunOfATransposedBox) {
  const TensorInFile t{7, ZCCRT_F32, {2, 3, 4}, true};
  const Box boxes[] = {Box::whole(t.dims), {{1, 0, 0}, {1, 3, 4}}, {{0, 1, 1}, {2, 2, 3}}, {{0, 2, 3}, {2, 1, 1}}};
  for (const Box &box : boxes) {
    std::vector<float> expected;
    for (int64_t m = 0; m < box.shape[0]; ++m)
      for (int64_t r = 0; r < box.shape[1]; ++r)
        for (int64_t c = 0; c < box.shape[2]; ++c)
          expected.push_back((box.start[0] + m) * 12 + (box.start[2] + c) * 3 + box.start[1] + r);
    for (int64_t begin = 0; begin <= box.elements(); ++begin)
      for (int64_t count = 0; begin + count <= box.elements(); ++count)
        EXPECT_EQ(readRun(t, {box, begin, count}, 24),
                  std::vector<float>(expected.begin() + begin, expected.begin() + begin + count));
  }
}

TEST(RunReader, BoxesAndTypes) {
  const TensorInFile t{0, ZCCRT_F32, {3, 5}, false};
  EXPECT_EQ(readRun(t, {{{1, 2}, {2, 2}}, 1, 3}, 15), (std::vector<float>{8, 12, 13}));
  CountingFile f(6, 4);
  RunReader reader;
  std::vector<uint16_t> halves(4);
  for (bool isTransposed : {false, true}) {
    reader.read(File(f.folder / "counting"), {4, ZCCRT_F32, {2, 3}, isTransposed}, {Box::whole({2, 3}), 1, 4}, ZCCRT_BF16,
                reinterpret_cast<char *>(halves.data()));
    const std::vector<float> numbers = isTransposed ? std::vector<float>{2, 4, 1, 3} : std::vector<float>{1, 2, 3, 4};
    for (size_t i = 0; i < halves.size(); ++i)
      EXPECT_EQ(halves[i], Bf16(numbers[i]).bits);
  }
}
