// .npy and .npz files, good and hostile; which samples a micro-batch gets; token files.
#include "runtime/Data.h"
#include "RuntimeTest.h"
#include <numeric>
#include <set>
#include <sys/stat.h>
#include <zip.h>

namespace data_test {

using namespace zccrt;
using namespace runtimetest;

namespace {

template <class T> std::string npy(int elem, const std::vector<int64_t> &dims, const std::vector<T> &values) {
  return npyHeader(elem, dims) + bytesOf(values);
}

std::string iotaNpy(const std::vector<int64_t> &dims) {
  int64_t n = 1;
  for (int64_t d : dims)
    n *= d;
  std::vector<float> v(n);
  std::iota(v.begin(), v.end(), 0.f);
  return npy(ZCCRT_F32, dims, v);
}

void writeNpz(const std::string &path, const std::vector<std::pair<std::string, std::string>> &members, int method) {
  zip_t *zip = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
  for (auto &[name, bytes] : members) {
    zip_int64_t i = zip_file_add(zip, (name + ".npy").c_str(), zip_source_buffer(zip, bytes.data(), bytes.size(), 0), 0);
    zip_set_file_compression(zip, i, method, 6);
  }
  zip_close(zip);
}

std::string header(const std::string &dict) {
  std::string s = "\x93NUMPY\x01";
  s += '\0';
  uint16_t n = dict.size();
  s.append(reinterpret_cast<char *>(&n), 2);
  return s + dict;
}

/// x f32[2x3] at 0, label i64[2] at 64 in [0, 4) or -100.
struct Model {
  Model() {
    inputs[0] = io("x", tensor(0, ZCCRT_F32, {2, 3}));
    inputs[1] = io("label", tensor(64, ZCCRT_I64, {2}));
    inputs[1].lo = 0;
    inputs[1].hi = 4;
    inputs[1].ignore = -100;
    program.inputs = inputs;
    program.ninputs = 2;
  }
  zccrt_io inputs[2];
  zccrt_program program = {};
  alignas(64) char arena[256] = {};
  const float *x() const { return reinterpret_cast<const float *>(arena); }
  const int64_t *label() const { return reinterpret_cast<const int64_t *>(arena + 64); }
};

/// Loads a batch into an arena that the host cannot address, and finds there what one of the host gets.
template <class T, size_t n> void load(DataSet &d, T (&arena)[n], int64_t i) {
  T far[n];
  std::copy_n(arena, n, far);
  FarArena farArena(reinterpret_cast<char *>(far));
  d.load(farArena, i);
  HostArena hostArena(reinterpret_cast<char *>(arena));
  d.load(hostArena, i);
  EXPECT_TRUE(std::equal(arena, arena + n, far));
}

DataFiles npz(const std::string &path) {
  DataFiles f;
  f.npz.push_back(path);
  return f;
}

} // namespace

TEST(Npy, HeaderRoundTrip) {
  for (const std::vector<int64_t> &dims : {std::vector<int64_t>{}, {5}, {2, 0, 7}, {1, 2, 3, 4}}) {
    std::string text = npyHeader(ZCCRT_I64, dims);
    EXPECT_EQ(text.size() % 64, 0u);
    NpyHeader h = parseNpyHeader(text, "a");
    EXPECT_EQ(h.elem, ZCCRT_I64);
    EXPECT_EQ(h.dims, dims);
    EXPECT_EQ(h.headerBytes, static_cast<int64_t>(text.size()));
  }
}

TEST(Npy, HostileHeaders) {
  auto parse = [](const std::string &s) { return failureOf([&] { parseNpyHeader(s, "file"); }); };
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n";
  EXPECT_EQ(parse(header(good)), "no failure");
  // Cut at every length, and every byte changed: an error or a header, never a crash.
  for (size_t n = 0; n < header(good).size(); ++n)
    EXPECT_NE(parse(header(good).substr(0, n)), "no failure");
  for (size_t i = 0; i < header(good).size(); ++i)
    for (int change : {0x01, 0x20, 0x80, 0xff}) {
      std::string s = header(good);
      s[i] ^= change;
      parse(s);
    }
  EXPECT_NE(parse(header("{'descr': '>f4', 'fortran_order': False, 'shape': (3,), }")).find("big-endian"), std::string::npos);
  EXPECT_NE(parse(header("{'descr': '<c8', 'fortran_order': False, 'shape': (3,), }")).find("dtype '<c8'"), std::string::npos);
  EXPECT_NE(parse(header("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }")).find("dtype '|O'"), std::string::npos);
  EXPECT_NE(parse(header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }")).find("structured"),
            std::string::npos);
  EXPECT_NE(parse(header("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }")).find("Fortran"), std::string::npos);
  for (const char *shape : {"(-1,)", "(99999999999999999999,)", "(3", "3", "(3,,)", "('a',)"})
    EXPECT_NE(parse(header(format("{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", shape))), "no failure") << shape;
}

TEST(Npy, Files) {
  Folder f;
  writeFile(f / "a.npy", iotaNpy({4, 3}));
  Array a = openNpy(f / "a.npy");
  EXPECT_EQ(a.dims, (std::vector<int64_t>{4, 3}));
  float row[3];
  a.source->read(a.offset + 2 * 12, 12, row);
  EXPECT_EQ(row[1], 7);
  writeFile(f / "short.npy", iotaNpy({4, 3}).substr(0, 140));
  EXPECT_FAILURE(openNpy(f / "short.npy"), "cut short: shape (4, 3) of float32 takes 48 bytes, there are 12");
  writeFile(f / "huge.npy", header("{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 4), }"));
  EXPECT_FAILURE(openNpy(f / "huge.npy"), "too large");
  EXPECT_FAILURE(openNpy(f / "none.npy"), "No such file");
  EXPECT_FAILURE(openNpy(f.path), "it is a folder, not a regular file");
  EXPECT_FAILURE(openNpy("/dev/zero"), "it is a device, not a regular file");
  ASSERT_EQ(mkfifo((f / "pipe").c_str(), 0600), 0);
  EXPECT_FAILURE(openNpy(f / "pipe"), "it is a pipe, not a regular file"); // at once, though nobody writes to it
}

TEST(Npz, StoredAndDeflated) {
  Folder f;
  for (int method : {0, 8}) {
    writeNpz(f / "a.npz", {{"x", iotaNpy({4, 3})}, {"more", iotaNpy({1})}}, method);
    std::vector<std::string> others;
    std::vector<Array> arrays = openNpz(f / "a.npz", {"x"}, others);
    ASSERT_EQ(arrays.size(), 1u);
    EXPECT_EQ(others, std::vector<std::string>{"more"});
    EXPECT_EQ(arrays[0].inMemory > 0, method == 8);
    float last;
    arrays[0].source->read(arrays[0].offset + 44, 4, &last);
    EXPECT_EQ(last, 11);
  }
}

// Archives cut short, and archives with a byte changed: an error or an array, never a crash.
TEST(Npz, Hostile) {
  Folder f;
  auto open = [&](const std::string &bytes) {
    writeFile(f / "h.npz", bytes);
    return failureOf([&] {
      std::vector<std::string> others;
      for (Array &a : openNpz(f / "h.npz", {"x"}, others)) {
        std::vector<char> all(a.elements() * elemBytes(a.elem));
        a.source->read(a.offset, all.size(), all.data());
      }
    });
  };
  for (int method : {0, 8}) {
    writeNpz(f / "a.npz", {{"x", iotaNpy({4, 3})}}, method);
    std::string good = readFile(f / "a.npz");
    EXPECT_EQ(open(good), "no failure");
    for (size_t n = 0; n < good.size(); n += 7)
      EXPECT_NE(open(good.substr(0, n)), "no failure") << n;
    for (size_t i = 0; i < good.size(); i += 3)
      for (int change : {0x01, 0x80, 0xff}) {
        std::string s = good;
        s[i] ^= change;
        open(s);
      }
  }
  EXPECT_NE(open("not an archive").find("is not an .npz archive"), std::string::npos);
}

// Numbers of 64 bits at the archive's end, true and lying.
TEST(Npz, Zip64) {
  Folder f;
  writeNpz(f / "a.npz", {{"x", iotaNpy({4, 3})}}, 0);
  const std::string good = readFile(f / "a.npz");
  const uint64_t directory = good.find("PK\1\2"), end = good.find("PK\5\6");
  auto numbers = [](std::initializer_list<uint64_t> values) { return bytesOf(std::vector<uint64_t>(values)); };
  auto open = [&](uint64_t count, uint64_t bytes, uint64_t begin, uint64_t at) {
    std::string wide = good.substr(0, end) + "PK\6\6" + numbers({44}) + std::string("\55\0\55\0\0\0\0\0\0\0\0\0", 12) +
                       numbers({count, count, bytes, begin});
    wide += "PK\6\7" + std::string(4, '\0') + numbers({at}) + std::string("\1\0\0\0", 4);
    writeFile(f / "w.npz", wide + "PK\5\6" + std::string(4, '\0') + std::string(12, '\xff') + std::string(2, '\0'));
    std::vector<std::string> others;
    return openNpz(f / "w.npz", {"x"}, others);
  };
  const uint64_t bytes = end - directory;
  float last;
  Array a = open(1, bytes, directory, end).at(0);
  a.source->read(a.offset + 44, 4, &last);
  EXPECT_EQ(last, 11);
  for (uint64_t lie : {uint64_t(1) << 20, uint64_t(1) << 40, uint64_t(1) << 60, UINT64_MAX}) {
    EXPECT_FAILURE(open(lie, bytes, directory, end), "damaged archive");
    EXPECT_FAILURE(open(lie, lie * 46, directory, end), "damaged archive");
    EXPECT_FAILURE(open(1, lie, directory, end), "damaged archive");
    EXPECT_FAILURE(open(1, bytes, lie, end), "damaged archive");
    EXPECT_FAILURE(open(1, bytes, directory, lie), "damaged archive");
  }
}

TEST(Data, Sampling) {
  Folder f;
  writeNpz(f / "d.npz", {{"x", iotaNpy({7, 3})}, {"label", npy<int64_t>(ZCCRT_I64, {7}, {0, 1, 2, 3, 0, 1, -100})}}, 0);
  Model m;
  Options o;
  DataSet d(m.program, npz(f / "d.npz"), o);
  EXPECT_EQ(d.batches(), 3);
  EXPECT_EQ(d.batchRows(), 2);
  EXPECT_EQ(d.notes(), std::vector<std::string>{"the last 1 of 7 samples are left out: 2 make a batch"});
  // Row b of batch i is sample 2 i + b, modulo 6.
  for (int i = 0; i < 7; ++i) {
    load(d, m.arena, i);
    for (int b = 0; b < 2; ++b) {
      int sample = (2 * i + b) % 6;
      EXPECT_EQ(m.x()[b * 3], sample * 3);
      EXPECT_EQ(m.label()[b], sample % 4);
    }
  }
}

TEST(Data, OwnShapeIsTheSameEveryStep) {
  Folder f;
  writeNpz(f / "d.npz", {{"x", iotaNpy({6, 3})}, {"label", npy<int64_t>(ZCCRT_I64, {2}, {3, 1})}}, 0);
  Model m;
  DataSet d(m.program, npz(f / "d.npz"), Options());
  load(d, m.arena, 2);
  EXPECT_EQ(m.x()[0], 12);
  EXPECT_EQ(m.label()[0], 3);
}

TEST(Data, ScalarsAndMatricesWithoutBatchAxis) {
  Folder f;
  zccrt_io inputs[2] = {io("adj", tensor(0, ZCCRT_F32, {3, 3})), io("t", tensor(64, ZCCRT_F32, {}))};
  zccrt_program p = {};
  p.inputs = inputs;
  p.ninputs = 2;
  writeNpz(f / "d.npz", {{"adj", iotaNpy({6, 3})}, {"t", iotaNpy({2})}}, 0);
  DataSet d(p, npz(f / "d.npz"), Options());
  EXPECT_EQ(d.batches(), 2);
  alignas(64) char arena[128] = {};
  load(d, arena, 1);
  EXPECT_EQ(reinterpret_cast<float *>(arena)[0], 9);
  EXPECT_EQ(reinterpret_cast<float *>(arena)[16], 1);
  p.batch = 3; // losses are means over so many rows, whichever input comes first in the file
  writeNpz(f / "two.npz", {{"t", iotaNpy({2})}, {"adj", iotaNpy({6, 3})}}, 0);
  EXPECT_EQ(DataSet(p, npz(f / "two.npz"), Options()).batchRows(), 3);
  writeNpz(f / "one.npz", {{"t", iotaNpy({})}, {"adj", iotaNpy({3, 3})}}, 0);
  EXPECT_EQ(DataSet(p, npz(f / "one.npz"), Options()).batchRows(), 3);
}

TEST(Data, ShufflesWholeEpochs) {
  Folder f;
  Model m;
  Options o;
  o.shuffle = true;
  for (int n : {10, 11}) { // one of 11 fills no batch: another one in each epoch
    writeNpz(f / "d.npz", {{"x", iotaNpy({n, 3})}, {"label", npy<int64_t>(ZCCRT_I64, {n}, std::vector<int64_t>(n, 1))}}, 0);
    DataSet d(m.program, npz(f / "d.npz"), o);
    std::set<float> all;
    std::vector<std::vector<float>> epochs(20);
    for (int i = 0; i < 100; ++i) {
      load(d, m.arena, i);
      epochs[i / 5].insert(epochs[i / 5].end(), {m.x()[0], m.x()[3]});
    }
    for (auto &seen : epochs) {
      EXPECT_EQ(std::set<float>(seen.begin(), seen.end()).size(), 10u);
      all.insert(seen.begin(), seen.end());
    }
    EXPECT_EQ(all.size(), size_t(n));
    EXPECT_NE(epochs[0], epochs[1]);
    EXPECT_NE(epochs[1], epochs[2]);
  }
}

TEST(Data, PermutationIsOne) {
  for (uint64_t n : {1, 2, 3, 5, 64, 1000, 4097})
    for (uint64_t seed : {0, 7}) {
      Permutation p(n, seed, 3);
      std::set<uint64_t> seen;
      for (uint64_t i = 0; i < n; ++i)
        seen.insert(p(i));
      EXPECT_EQ(seen.size(), n);
      EXPECT_LT(*seen.rbegin(), n);
    }
}

TEST(Data, Conversions) {
  Folder f;
  Model m;
  writeNpz(f / "d.npz",
           {{"x", npy<double>(ZCCRT_F64, {2, 3}, {1, 2, 3, 4, 5, 0.1})}, {"label", npy<int32_t>(ZCCRT_I32, {2}, {3, -100})}}, 8);
  DataSet d(m.program, npz(f / "d.npz"), Options());
  load(d, m.arena, 0);
  EXPECT_EQ(m.x()[5], 0.1f);
  EXPECT_EQ(m.label()[1], -100);
  ASSERT_EQ(d.notes().size(), 1u);
  EXPECT_EQ(d.notes()[0], "'x' is rounded from float64 to float32");
}

TEST(Data, BoolsAreZeroOrOne) {
  Folder d;
  writeNpz(d / "d.npz", {{"mask", npy<uint8_t>(ZCCRT_BOOL, {2, 3}, {0, 61, 1, 255, 0, 2})}}, 0);
  zccrt_io input = io("mask", tensor(0, ZCCRT_BOOL, {2, 3}));
  zccrt_program program = {};
  program.inputs = &input;
  program.ninputs = 1;
  alignas(64) char arena[64] = {};
  DataSet data(program, npz(d / "d.npz"), Options());
  load(data, arena, 0);
  EXPECT_EQ(std::string(arena, 6), std::string("\0\1\1\1\0\1", 6));
}

TEST(Data, Refuses) {
  Folder f;
  Model m;
  auto label = npy<int64_t>(ZCCRT_I64, {2}, {0, 1});
  auto open = [&](std::vector<std::pair<std::string, std::string>> members) {
    writeNpz(f / "d.npz", members, 0);
    return failureOf([&] { DataSet(m.program, npz(f / "d.npz"), Options()); });
  };
  EXPECT_EQ(open({{"x", npy<int64_t>(ZCCRT_I64, {2, 3}, {1, 2, 3, 4, 5, 6})}, {"label", label}}),
            "input 'x' is float32 (2, 3), its data are int64 (2, 3); convert them with numpy: "
            "array.astype('float32')");
  EXPECT_NE(open({{"x", iotaNpy({2, 4})}, {"label", label}}).find("its data are float32 (2, 4)"), std::string::npos);
  EXPECT_NE(open({{"x", iotaNpy({6})}, {"label", label}}).find("its data are float32 (6,)"), std::string::npos);
  EXPECT_EQ(open({{"x", iotaNpy({2, 3})}, {"label", iotaNpy({2, 4})}}),
            "input 'label' is int64 (2,), its data are float32 (2, 4); the input takes numbers of classes; of one-hot "
            "rows they are array.argmax(axis=1)");
  EXPECT_EQ(open({{"x", npy<int64_t>(ZCCRT_I64, {2}, {0, 1})}, {"label", label}}),
            "input 'x' is float32 (2, 3), its data are int64 (2,); the input takes one number for each class; of "
            "numbers of classes they are numpy.eye(3, dtype='float32')[array]");
  EXPECT_NE(open({{"x", npy<int64_t>(ZCCRT_I64, {2, 2}, {0, 1, 2, 3})}, {"label", label}})
                .find("the other axes must agree, and so must the type"),
            std::string::npos);
  EXPECT_NE(open({{"x", iotaNpy({1, 3})}, {"label", label}}).find("have only 1 sample; one batch needs 2"), std::string::npos);
  EXPECT_NE(open({{"x", iotaNpy({8, 3})}, {"label", npy<int64_t>(ZCCRT_I64, {6}, {0, 1, 2, 3, 0, 1})}})
                .find("input 'x' has data for 4 batches, input 'label' for 3"),
            std::string::npos);
  EXPECT_EQ(open({{"x", iotaNpy({5, 3})}, {"label", npy<int64_t>(ZCCRT_I64, {4}, {0, 1, 2, 3})}}),
            "input 'x' has data for 5 samples, input 'label' for 4");
  EXPECT_EQ(open({{"x", iotaNpy({2, 3})}, {"labels", label}}),
            "no data for input 'label', which is int64 (2,); give --data=FILE.npz with an array 'label', "
            "or --data=label=FILE.npy; "
            "the archive also has 'labels'");
  EXPECT_EQ(failureOf([&] { DataSet(m.program, DataFiles(), Options()); }),
            "no data for inputs 'x', which is float32 (2, 3) and 'label', which is int64 (2,); give --data=FILE.npz "
            "with arrays 'x' and 'label', or --data=NAME=FILE.npy");
}

TEST(Data, TheLastSamplesMakeAPaddedBatch) {
  Folder f;
  Model m;
  m.program.batch = 2;
  std::vector<std::pair<std::string, std::string>> five = {{"x", iotaNpy({5, 3})},
                                                           {"label", npy<int64_t>(ZCCRT_I64, {5}, {0, 1, 2, 3, 0})}};
  writeNpz(f / "d.npz", five, 0);
  DataSet d(m.program, npz(f / "d.npz"), Options(), Rest::Pad);
  EXPECT_TRUE(d.notes().empty());
  EXPECT_EQ(d.rounds(), 3);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(d.rowsOf(i), std::vector<int64_t>({2, 2, 1, 0})[i]);
  load(d, m.arena, 2);
  EXPECT_EQ(m.x()[0], 12); // sample 4, then the first
  EXPECT_EQ(m.x()[3], 0);
  EXPECT_EQ(m.label()[1], 0);
  // Fewer than a batch; what @eval cannot leave rows out of.
  writeNpz(f / "one.npz", {{"x", iotaNpy({1, 3})}, {"label", npy<int64_t>(ZCCRT_I64, {1}, {3})}}, 0);
  DataSet one(m.program, npz(f / "one.npz"), Options(), Rest::Pad);
  EXPECT_EQ(one.rounds(), 1);
  EXPECT_EQ(one.rowsOf(0), 1);
  load(one, m.arena, 0);
  EXPECT_EQ(m.label()[1], 3);
  DataSet whole(m.program, npz(f / "d.npz"), Options(), Rest::LeaveOut);
  EXPECT_EQ(whole.rounds(), 2);
  EXPECT_EQ(whole.rowsOf(2), 0);
}

TEST(Data, LabelsOutOfRange) {
  Folder f;
  Model m;
  writeNpz(f / "d.npz", {{"x", iotaNpy({4, 3})}, {"label", npy<int64_t>(ZCCRT_I64, {4}, {0, -100, 1, 4})}}, 0);
  DataSet d(m.program, npz(f / "d.npz"), Options());
  load(d, m.arena, 0);
  EXPECT_FAILURE(load(d, m.arena, 1), "input 'label', sample 3: value 4 is not in [0, 4) (or -100), which node '/node' needs");
}

// Several files are one, with the same samples in the same order, shuffled or not.
TEST(Data, SeveralFilesAreOne) {
  Folder f;
  Model m, joined;
  std::vector<int64_t> labels = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2};
  std::vector<float> x(33);
  std::iota(x.begin(), x.end(), 0.f);
  writeNpz(f / "all.npz", {{"x", iotaNpy({11, 3})}, {"label", npy(ZCCRT_I64, {11}, labels)}}, 0);
  DataFiles parts;
  int64_t begin = 0;
  for (int64_t rows : {5, 0, 1, 5}) { // ends within batches; nothing; one row; compressed
    std::string path = f / ("part-" + std::to_string(parts.npz.size()) + ".npz");
    std::vector<float> rowsOfX(x.begin() + begin * 3, x.begin() + (begin + rows) * 3);
    std::vector<int64_t> rowsOfLabel(labels.begin() + begin, labels.begin() + begin + rows);
    writeNpz(path, {{"x", npy(ZCCRT_F32, {rows, 3}, rowsOfX)}, {"label", npy(ZCCRT_I64, {rows}, rowsOfLabel)}},
             begin == 6 ? 8 : 0);
    parts.npz.push_back(path);
    begin += rows;
  }
  for (bool shuffle : {false, true}) {
    Options o;
    o.shuffle = shuffle;
    DataSet one(m.program, npz(f / "all.npz"), o), several(joined.program, parts, o);
    EXPECT_EQ(several.samples(), 11);
    EXPECT_EQ(one.notes(), several.notes());
    for (int i = 0; i < 12; ++i) {
      load(one, m.arena, i);
      load(several, joined.arena, i);
      EXPECT_TRUE(std::equal(m.arena, m.arena + sizeof m.arena, joined.arena));
    }
  }
}

TEST(Data, FilesThatDoNotFitAreNamedAtOnce) {
  Folder f;
  Model m;
  std::string label = npy<int64_t>(ZCCRT_I64, {4}, {0, 1, 2, 3});
  writeNpz(f / "a.npz", {{"x", iotaNpy({4, 3})}, {"label", label}}, 0);
  writeNpz(f / "b.npz", {{"x", iotaNpy({4, 2})}, {"label", npy<int32_t>(ZCCRT_I32, {4}, {0, 1, 2, 3})}}, 0);
  writeNpz(f / "c.npz", {{"x", iotaNpy({4, 3})}}, 0);
  writeNpz(f / "d.npz", {{"x", iotaNpy({5, 3})}, {"label", label}}, 0);
  auto wrong = [&](std::vector<const char *> names) {
    DataFiles files;
    for (const char *n : names)
      files.npz.push_back(f / n);
    return failureOf([&] { DataSet(m.program, files, Options()); });
  };
  EXPECT_EQ(wrong({"a.npz", "b.npz"}), "the data files do not fit together\nnote: 'x' is float32 (4, 3) in '" + (f / "a.npz") +
                                           "', and float32 (4, 2) in '" + (f / "b.npz") + "'\nnote: 'label' is int64 (4,) in '" +
                                           (f / "a.npz") + "', and int32 (4,) in '" + (f / "b.npz") + "'");
  EXPECT_EQ(wrong({"a.npz", "c.npz", "a.npz", "d.npz"}), "the data files do not fit together\nnote: '" + (f / "c.npz") +
                                                             "' has no 'label', which '" + (f / "a.npz") + "' has\nnote: '" +
                                                             (f / "d.npz") + "' has 5 rows of 'x', and 4 of 'label'");
  writeFile(f / "d.npz", readFile(f / "a.npz").substr(0, 100));
  EXPECT_NE(wrong({"a.npz", "d.npz"}).find("'" + (f / "d.npz") + "' is not an .npz archive"), std::string::npos);
  writeFile(f / "d.npz", "");
  EXPECT_NE(wrong({"a.npz", "d.npz"}).find("'" + (f / "d.npz") + "' is not an .npz archive"), std::string::npos);
  EXPECT_NE(wrong({"a.npz", "none.npz"}).find("none.npz': No such file"), std::string::npos);
}

// A table that is the same in every file is the same for every batch; that it comes first hides nothing of the others.
TEST(Data, RepeatedInEveryFile) {
  Folder f;
  zccrt_io inputs[3] = {io("table", tensor(0, ZCCRT_F32, {3})), io("x", tensor(64, ZCCRT_F32, {2, 3})),
                        io("y", tensor(128, ZCCRT_F32, {2}))};
  zccrt_program p = {.inputs = inputs, .ninputs = 3};
  auto batches = [&](int64_t x, int64_t y) { // rows of the first file; both have 8
    DataFiles files;
    for (bool first : {true, false}) {
      files.npz.push_back(f / (first ? "a.npz" : "b.npz"));
      writeNpz(files.npz.back(),
               {{"table", iotaNpy({3})}, {"x", iotaNpy({first ? x : 8 - x, 3})}, {"y", iotaNpy({first ? y : 8 - y})}}, 0);
    }
    return DataSet(p, files, Options()).batches();
  };
  EXPECT_EQ(batches(4, 4), 4);
  EXPECT_FAILURE(batches(6, 2), "a.npz' has 6 rows of 'x', and 2 of 'y'");
}

TEST(Data, FileCutWhileRunning) {
  Folder f;
  Model m;
  writeNpz(f / "d.npz", {{"label", npy<int64_t>(ZCCRT_I64, {4}, {0, 1, 2, 3})}}, 0);
  writeFile(f / "x.npy", iotaNpy({4, 3}));
  DataFiles files = npz(f / "d.npz");
  files.npy.push_back({"x", f / "x.npy"});
  DataSet d(m.program, files, Options());
  std::filesystem::resize_file(f / "x.npy", 140);
  EXPECT_FAILURE(load(d, m.arena, 1), "changed while the program ran");
}

namespace {

struct LanguageModel {
  LanguageModel() {
    inputs[0] = io("input_ids", tensor(0, ZCCRT_I64, {2, 3}));
    inputs[1] = io("labels", tensor(64, ZCCRT_I64, {2, 3}));
    for (zccrt_io &i : inputs)
      i.hi = 50;
    program.inputs = inputs;
    program.ninputs = 2;
  }
  zccrt_io inputs[2];
  zccrt_program program = {};
  alignas(64) int64_t arena[16] = {};
};

} // namespace

TEST(Tokens, InputsAndShiftedLabels) {
  Folder f;
  LanguageModel m;
  for (int elem : {ZCCRT_U16, ZCCRT_U32}) {
    std::vector<uint16_t> shorts(14);
    std::iota(shorts.begin(), shorts.end(), 1);
    std::vector<uint32_t> words(shorts.begin(), shorts.end());
    writeFile(f / "t.bin", elem == ZCCRT_U16 ? bytesOf(shorts) : bytesOf(words));
    DataFiles files;
    files.tokens = {f / "t.bin"};
    DataSet d(m.program, files, Options());
    EXPECT_EQ(d.batches(), 2); // 4 samples of 3 tokens, and one token more for the last label
    load(d, m.arena, 1);
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(m.arena[i], 7 + i);
      EXPECT_EQ(m.arena[8 + i], 8 + i);
    }
    Options same;
    same.tokenLabels = TokenLabels::Same;
    DataSet unshifted(m.program, files, same);
    load(unshifted, m.arena, 0);
    EXPECT_EQ(m.arena[8], 1);
  }
}

// Samples are those of each file, one file after the other; labels come from the same file.
TEST(Tokens, SeveralFiles) {
  Folder f;
  LanguageModel m;
  DataFiles files;
  int next = 1;
  for (int tokens : {8, 2, 5}) { // 2 samples of 3 and a rest, too few, 1 sample
    std::vector<uint16_t> t(tokens);
    std::iota(t.begin(), t.end(), next);
    next += tokens;
    files.tokens.push_back(f / (std::to_string(tokens) + ".bin"));
    writeFile(files.tokens.back(), bytesOf(t));
  }
  m.inputs[0].t.dims[0] = m.inputs[1].t.dims[0] = 1;
  DataSet d(m.program, files, Options());
  EXPECT_EQ(d.notes(), (std::vector<std::string>{"'" + files.tokens[1] + "' is left out: it has 2 tokens, a sample takes 4",
                                                 "3 files of tokens: 15 uint16 tokens, 3 samples of 3"}));
  for (int i = 0; i < 3; ++i) {
    load(d, m.arena, i);
    for (int k = 0; k < 3; ++k) {
      EXPECT_EQ(m.arena[k], (i < 2 ? 3 * i : 10) + k + 1);
      EXPECT_EQ(m.arena[8 + k], m.arena[k] + 1);
    }
  }
  writeFile(files.tokens[2], bytesOf(std::vector<uint16_t>{1, 2, 3, 60, 1}));
  EXPECT_NE(failureOf([&] { DataSet(m.program, files, Options()); }).find("bytes of '" + files.tokens[2] + "' are no tokens"),
            std::string::npos);
  m.inputs[0].hi = m.inputs[1].hi = 0;
  DataSet any(m.program, files, Options());
  m.inputs[1].hi = 50;
  EXPECT_FAILURE(load(any, m.arena, 2), "input 'labels', sample 2 of '" + files.tokens[2] + "': value 60");
  writeFile(files.tokens[2], "");
  EXPECT_FAILURE(DataSet(m.program, files, Options()), "'" + files.tokens[2] + "' is empty");
}

TEST(Tokens, ATextIsItsOwnTokens) {
  Folder f;
  LanguageModel m;
  m.inputs[0].hi = m.inputs[1].hi = 256;
  writeFile(f / "t.txt", "a small text");
  DataFiles files;
  files.tokens = {f / "t.txt"};
  DataSet d(m.program, files, Options()); // of 16 bits they would be no tokens of 256
  load(d, m.arena, 0);
  EXPECT_EQ(m.arena[2], 's');
  EXPECT_EQ(m.arena[10], 'm');
}

TEST(Tokens, Refuses) {
  Folder f;
  LanguageModel m;
  DataFiles files;
  files.tokens = {f / "t.bin"};
  writeFile(f / "t.bin", bytesOf(std::vector<uint16_t>{1, 2, 3}));
  EXPECT_FAILURE(DataSet(m.program, files, Options()), "too few for one batch");
  writeFile(f / "t.bin", bytesOf(std::vector<uint16_t>(20, 60)));
  Options asked;
  asked.tokenType = TokenType::U16;
  DataSet d(m.program, files, asked);
  EXPECT_FAILURE(load(d, m.arena, 0), "value 60 is not in [0, 50), which node '/node' needs; '" + files.tokens[0] +
                                          "' is read as uint16 tokens, --tokens-dtype=uint16|uint32|uint8 says otherwise");
  EXPECT_FAILURE(DataSet(m.program, files, Options()),
                 "are no tokens of this model, whose input 'input_ids' takes 0 to 49; as uint16 there is 60 among them; as "
                 "uint32 there is 3932220 among them; as uint8 there is 60 among them; tokenize the text for this "
                 "model, or name the type with --tokens-dtype");
  writeFile(f / "t.bin", "abc");
  EXPECT_FAILURE(DataSet(m.program, files, asked), "no whole number of uint16 tokens");
  m.inputs[1].name = "attention_mask";
  EXPECT_FAILURE(DataSet(m.program, files, Options()), "input 'attention_mask' is not cut from --tokens");
}

} // namespace data_test
