// The arena, and how globals get their first values on any number of ranks.
#include "runtime/Arena.h"
#include "RuntimeTest.h"
#include "runtime/Environment.h"
#include "runtime/Hash.h"
#include "runtime/Memory.h"
#include "runtime/Weights.h"
#include <array>
#include <numeric>

namespace arena_test {

using namespace zccrt;
using namespace runtimetest;

namespace {

/// Stands for one rank of several where nothing is exchanged.
class LoneRank : public Comm {
public:
  using Comm::Comm;
  void allReduce(Parts, int, bool) override {}
  void allGather(Parts, int) override {}
  void reduceScatter(Parts, int, bool) override {}
  void bring(int, const void *, void *, int64_t) override {}
  void abort() override {}
  void barrier() override {}
};

zccrt_global global(const char *name, const zccrt_tensor &t, zccrt_init init) {
  zccrt_global g = {};
  g.name = name;
  g.onnx_name = name;
  g.t = t;
  g.shards = 1;
  g.init = init;
  g.file_elem = t.elem;
  return g;
}

struct Model {
  explicit Model(std::vector<zccrt_global> list, std::vector<const char *> names = {})
      : globals(std::move(list)), files(std::move(names)) {
    program.globals = globals.data();
    program.nglobals = static_cast<int32_t>(globals.size());
    program.files = files.data();
    program.nfiles = static_cast<int32_t>(files.size());
    program.compile_line = "zcc m.onnx -o m";
  }
  std::vector<uint64_t> load(const Comm &comm, const std::string &dir, int64_t seed = 0) {
    arena.resize(1 << 16);
    std::vector<char> far(arena.size());
    FarArena farArena(far.data());
    ModelFiles files(program, dir);
    loadWeights(program, {{&farArena}}, comm, files, seed);
    arena.assign(arena.size(), 0);
    HostArena hostArena(arena.data());
    std::vector<uint64_t> hashes = loadWeights(program, {{&hostArena}}, comm, files, seed);
    EXPECT_EQ(arena, far);
    return hashes;
  }
  template <class T> const T *at(int i) const { return reinterpret_cast<const T *>(arena.data() + globals[i].t.offset); }

  std::vector<zccrt_global> globals;
  std::vector<const char *> files;
  zccrt_program program = {};
  std::vector<char> arena;
};

} // namespace

TEST(Arena, ZeroAndAligned) {
  for (int64_t bytes : {0, 64, 100000, 40 << 20}) {
    MappedArena a(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.base()) % 64, 0u);
    for (int64_t i = 0; i < bytes; i += 4093)
      ASSERT_EQ(a.base()[i], 0);
    if (bytes)
      a.base()[bytes - 1] = 1;
  }
}

TEST(Arena, MemoryIsChecked) {
  const int64_t left = memoryLeft(1);
  EXPECT_GT(left, 0);
  setAside(int64_t(1) << 50);
  EXPECT_EQ(memoryLeft(1), 0);
  setAside(1 << 30, (1 << 30) + (8 << 20)); // by a budget
  EXPECT_EQ(memoryLeft(1), 8 << 20);
  takeMemory(3 << 20);
  EXPECT_EQ(memoryLeft(1), 5 << 20);
  setAside(0);
  checkMemory(1 << 20, 0, 4);
  if (groupLimit() == INT64_MAX) // what is held is no more taken from what is left
    checkMemory(1 << 20, int64_t(1) << 40, 2);
  EXPECT_FAILURE(checkMemory(int64_t(1) << 50, 0, 2), "(2 ranks of 1048576.00 GiB)");
}

TEST(Arena, CpuFeatures) {
  EXPECT_EQ(failureOf([] { checkCpu(""); }), "no failure");
  EXPECT_FAILURE(checkCpu("avx9000"), "this CPU lacks avx9000");
  EXPECT_EQ(cpuHas("avx512_bf16"), cpuHas("avx512bf16"));
}

TEST(Hash, SensitiveAndAdditive) {
  std::string bytes(3 * kHashBlockBytes + 100, 'x');
  uint64_t whole = hashBytes(bytes.data(), bytes.size());
  uint64_t sum = 0;
  for (int b : {2, 0, 3, 1})
    sum += hashBlock(bytes.data() + b * kHashBlockBytes, b == 3 ? 100 : kHashBlockBytes, b);
  EXPECT_EQ(hashFinish(sum, bytes.size()), whole);
  for (size_t at : {size_t(0), size_t(31), kHashBlockBytes, bytes.size() - 1}) {
    std::string other = bytes;
    other[at] ^= 1;
    EXPECT_NE(hashBytes(other.data(), other.size()), whole);
  }
  // Swapped blocks and trailing zeros count too.
  std::string swapped = bytes;
  swapped[5] = 'a';
  std::string moved = bytes;
  moved[kHashBlockBytes + 5] = 'a';
  EXPECT_NE(hashBytes(swapped.data(), swapped.size()), hashBytes(moved.data(), moved.size()));
  EXPECT_NE(hashBytes("\0", 1), hashBytes("\0\0", 2));
  EXPECT_NE(hashBytes(nullptr, 0), 0u);
}

TEST(Weights, SetValues) {
  Model m({global("zero", tensor(0, ZCCRT_F32, {4}), ZCCRT_INIT_ZERO),
           global("one", tensor(64, ZCCRT_F32, {4}), ZCCRT_INIT_SPLAT),
           global("copy", tensor(128, ZCCRT_BF16, {4}), ZCCRT_INIT_COPY),
           global("seven", tensor(192, ZCCRT_I64, {}), ZCCRT_INIT_SPLAT)});
  m.globals[1].a = 1;
  m.globals[2].copy_of = 1;
  m.globals[3].a = 7;
  m.load(*singleRank(), "");
  EXPECT_EQ(m.at<float>(0)[3], 0);
  EXPECT_EQ(m.at<float>(1)[3], 1);
  EXPECT_EQ(float(m.at<Bf16>(2)[3]), 1);
  EXPECT_EQ(m.at<int64_t>(3)[0], 7);
}

// Every split over ranks reads the same tensor, transposed or not.
TEST(Weights, FilesByShards) {
  Folder f;
  const int64_t batch = 2, rows = 5, cols = 7, total = batch * rows * cols, at = 12;
  std::vector<float> file(total);
  std::iota(file.begin(), file.end(), 1.f);
  writeFile(f / "w.data", std::string(at, '?') + bytesOf(file));
  for (bool transposed : {false, true})
    for (int ranks : {1, 2, 3, 8, 70}) {
      std::vector<float> whole;
      for (int r = 0; r < ranks; ++r) {
        Model m({global("w", tensor(0, ZCCRT_F32, {batch, rows, cols}), ZCCRT_INIT_FILE)}, {"w.data"});
        zccrt_global &g = m.globals[0];
        g.file_offset = at;
        g.file_bytes = total * 4;
        g.shards = ranks;
        g.transposed = transposed;
        m.load(LoneRank(r, ranks), f.path);
        Piece p = pieceOf(g, r);
        whole.insert(whole.end(), m.at<float>(0), m.at<float>(0) + p.count);
      }
      ASSERT_EQ(whole.size(), size_t(total));
      for (int64_t i = 0; i < total; ++i) {
        int64_t b = i / (rows * cols), r = i / cols % rows, c = i % cols;
        ASSERT_EQ(whole[i], transposed ? file[(b * cols + c) * rows + r] : file[i]) << ranks << " " << i;
      }
    }
}

// Boxes of a tensor, and shards of boxes, read what is theirs of its file, transposed or not; drawn numbers are the whole's.
TEST(Weights, Boxes) {
  Folder f;
  const int64_t batch = 3, rows = 5, cols = 7, total = batch * rows * cols, at = 12;
  std::vector<float> file(total), drawn(total);
  std::iota(file.begin(), file.end(), 1.f);
  writeFile(f / "w.data", std::string(at, '?') + bytesOf(file));
  auto check = [&](bool transposed, bool isDrawn, int ranks, int rank) {
    Model m({global("w", tensor(0, ZCCRT_F32, {batch, rows, cols}), isDrawn ? ZCCRT_INIT_NORMAL : ZCCRT_INIT_FILE),
             global("box", tensor(0, ZCCRT_F32, {2, 3, 4}), ZCCRT_INIT_BOX)},
            {"w.data"});
    zccrt_global &w = m.globals[0], &box = m.globals[1];
    w.role = ZCCRT_WHOLE;
    w.file_offset = at;
    w.file_bytes = total * 4;
    w.transposed = transposed;
    w.b = 1;
    drawRandom(w, 0, 0, total, drawn.data());
    box.shards = ranks;
    box.copy_of = 0;
    std::copy_n(std::array<int64_t, 3>{1, 2, 3}.begin(), 3, box.start);
    m.load(LoneRank(rank, ranks), f.path);
    const Piece p = pieceOf(box, rank);
    for (int64_t i = 0; i < p.count; ++i) {
      const int64_t e = p.begin + i, b = 1 + e / 12, r = 2 + e / 4 % 3, c = 3 + e % 4, inOrder = (b * rows + r) * cols + c;
      ASSERT_EQ(m.at<float>(1)[i], isDrawn ? drawn[inOrder] : file[transposed ? (b * cols + c) * rows + r : inOrder]);
    }
  };
  for (int ranks : {1, 2, 5, 24})
    for (int rank = 0; rank < ranks; ++rank) {
      check(false, false, ranks, rank);
      check(true, false, ranks, rank);
      check(false, true, ranks, rank);
    }
}

TEST(Weights, LargeTransposed) {
  Folder f;
  const int64_t rows = 700, cols = 2100;
  std::vector<float> file(rows * cols);
  std::iota(file.begin(), file.end(), 0.f);
  writeFile(f / "w.data", bytesOf(file));
  Model m({global("w", tensor(0, ZCCRT_F32, {rows, cols}), ZCCRT_INIT_FILE)}, {"w.data"});
  m.globals[0].file_bytes = rows * cols * 4;
  m.globals[0].transposed = 1;
  m.arena.assign(rows * cols * 4, 0);
  HostArena arena(m.arena.data());
  ModelFiles files(m.program, f.path);
  loadWeights(m.program, {{&arena}}, *singleRank(), files, 0);
  for (int64_t i = 0; i < rows * cols; i += 101)
    ASSERT_EQ(m.at<float>(0)[i], file[i % cols * rows + i / cols]);
}

TEST(Weights, ChangedFilesAreRefused) {
  Folder f;
  std::vector<float> file(40000, 1.f);
  writeFile(f / "w.data", bytesOf(file));
  Model m({global("w", tensor(0, ZCCRT_F32, {200}), ZCCRT_INIT_FILE)}, {"sub/w.data"});
  m.globals[0].file_bytes = 800;
  m.globals[0].hash = hashBytes(file.data(), 800);
  auto comm = singleRank();
  checkHashes(m.program, m.load(*comm, f.path), *comm, ModelFiles(m.program, f.path));
  file[100] = 2;
  writeFile(f / "w.data", bytesOf(file));
  EXPECT_FAILURE(checkHashes(m.program, m.load(*comm, f.path), *comm, ModelFiles(m.program, f.path)),
                 "w.data' has changed since the program was compiled (tensor 'w')");
  writeFile(f / "w.data", "short");
  EXPECT_FAILURE(m.load(*comm, f.path), "too short for tensor 'w'");
  std::filesystem::remove(f / "w.data");
  EXPECT_FAILURE(m.load(*comm, f.path), "give --weights=DIR");
}

TEST(Weights, DrawsDoNotDependOnTheSplit) {
  for (zccrt_init init : {ZCCRT_INIT_UNIFORM, ZCCRT_INIT_NORMAL}) {
    zccrt_global g = global("w", tensor(0, ZCCRT_F32, {1000}), init);
    g.a = 1;
    g.b = 3;
    std::vector<float> whole(1000), part(300), other(1000);
    drawRandom(g, 42, 0, 1000, whole.data());
    drawRandom(g, 42, 301, 300, part.data());
    for (int i = 0; i < 300; ++i)
      ASSERT_EQ(part[i], whole[301 + i]);
    drawRandom(g, 43, 0, 1000, other.data());
    EXPECT_NE(whole, other);
    double mean = std::accumulate(whole.begin(), whole.end(), 0.0) / 1000;
    EXPECT_NEAR(mean, init == ZCCRT_INIT_UNIFORM ? 2 : 1, 0.3);
  }
}

} // namespace arena_test
