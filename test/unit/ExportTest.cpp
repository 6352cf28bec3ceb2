// safetensors, ONNX by pieces, and .npz outputs; files that appear whole or not at all.
#include "runtime/Export.h"
#include "RuntimeTest.h"
#include "runtime/Npy.h"
#include "runtime/Outputs.h"
#include "runtime/Safetensors.h"
#include "runtime/comm/Shm.h"
#include <numeric>
#include <sys/mman.h>

namespace export_test {

using namespace zccrt;
using namespace runtimetest;

namespace {

/// w f32[2x3], transposed in the model's file, n i64[], and a state that is not exported.
struct Model {
  Model() {
    const zccrt_tensor tensors[] = {tensor(0, ZCCRT_F32, {2, 3}), tensor(64, ZCCRT_I64, {}), tensor(128, ZCCRT_F32, {2, 3})};
    const char *names[] = {"a/\"w\"", "n", ""};
    for (int i = 0; i < 3; ++i) {
      globals[i] = {};
      globals[i].name = globals[i].onnx_name = names[i];
      globals[i].t = tensors[i];
      globals[i].export_elem = tensors[i].elem;
      globals[i].shards = 1;
    }
    program.globals = globals;
    program.nglobals = 3;
    program.onnx = pieces;
    program.npieces = 3;
    weights[0] = {"a/\"w\"", 0, tensor(-1, ZCCRT_F32, {3, 2}), {"", 0, 0, 1}};
    weights[1] = {"n", 0, tensor(-1, ZCCRT_I64, {}), {"", 0, 1, 0}};
    weights[2] = {"tied", 1, tensor(-1, ZCCRT_F32, {6}), {"", 0, 0, 1}};
    weights[3] = {"buffer", 0, tensor(-1, ZCCRT_BOOL, {3}), {"\1\0\1", 3, -1, 0}};
    program.weights = weights;
    program.nweights = 4;
    std::iota(reinterpret_cast<float *>(bytes), reinterpret_cast<float *>(bytes) + 6, 0.f);
    *reinterpret_cast<int64_t *>(bytes + 64) = 77;
  }
  zccrt_global globals[3];
  zccrt_piece pieces[3] = {{"head", 4, 0, 1}, {"mid", 3, 1, 0}, {"tail", 4, -1, 0}};
  zccrt_weight weights[4];
  zccrt_program program = {};
  alignas(64) char bytes[256] = {};
  mutable FarArena arena{bytes};
};

const std::vector<float> kTransposed = {0, 3, 1, 4, 2, 5};

std::string exported(const Model &m, ExportForm form) {
  Folder f;
  OutFile file(f / "out");
  ModelFiles files(m.program);
  exportWeights(m.program, form, {{&m.arena}}, *singleRank(), file, files);
  std::string bytes = readFile(f / "out");
  EXPECT_EQ(int64_t(bytes.size()), exportBytes(m.program, form));
  if (form == ExportForm::Safetensors || form == ExportForm::SafetensorsFirst)
    expectOpensElsewhere(f / "out");
  return bytes;
}

} // namespace

/// The header of a safetensors file and its data.
std::pair<std::string, std::string> parts(const std::string &bytes) {
  uint64_t length;
  memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  std::string header = bytes.substr(8, length);
  return {header.substr(0, header.find_last_of('}') + 1), bytes.substr(8 + length)};
}

TEST(Export, Safetensors) {
  auto [header, data] = parts(exported(Model(), ExportForm::Safetensors));
  EXPECT_EQ(header, R"({"__metadata__":{"format":"pt"},"a/\"w\"":{"dtype":"F32","shape":[3,2],)"
                    R"("data_offsets":[0,24]},)"
                    R"("n":{"dtype":"I64","shape":[],"data_offsets":[24,32]},)"
                    R"("tied":{"dtype":"F32","shape":[6],"data_offsets":[32,56]},)"
                    R"("buffer":{"dtype":"BOOL","shape":[3],"data_offsets":[56,59]}})");
  std::string w = bytesOf(kTransposed);
  EXPECT_EQ(data, w + bytesOf(std::vector<int64_t>{77}) + w + std::string("\1\0\1", 3));
}

// What is trained in f32 is exported with the element that the model's file has; matrices in the order that it has, too.
TEST(Export, ElementOfTheModel) {
  Model m;
  m.globals[0].export_elem = ZCCRT_BF16;
  auto [header, data] = parts(exported(m, ExportForm::SafetensorsFirst));
  EXPECT_NE(header.find(R"("dtype":"BF16","shape":[3,2],"data_offsets":[0,12])"), std::string::npos) << header;
  std::vector<Bf16> narrow;
  for (float x : kTransposed)
    narrow.push_back(Bf16(x));
  EXPECT_EQ(data, bytesOf(narrow) + bytesOf(std::vector<int64_t>{77}) + std::string("\1\0\1", 3));
  EXPECT_EQ(exported(m, ExportForm::Onnx), "head" + bytesOf(narrow) + "mid" + bytesOf(std::vector<int64_t>{77}) + "tail");
}

TEST(Export, FirstNameOfTied) {
  auto [header, data] = parts(exported(Model(), ExportForm::SafetensorsFirst));
  EXPECT_EQ(header.find("tied"), std::string::npos);
  EXPECT_EQ(data, bytesOf(kTransposed) + bytesOf(std::vector<int64_t>{77}) + std::string("\1\0\1", 3));
}

// What other readers refuse is never called done.
TEST(Export, SafetensorsIsReadBack) {
  Model m;
  m.weights[2].name = "n";
  EXPECT_FAILURE(exported(m, ExportForm::Safetensors), "two tensors are called 'n'");
  Model other;
  other.weights[1].t.ndim = 1;
  other.weights[1].t.dims[0] = 2; // of one element
  EXPECT_FAILURE(exported(other, ExportForm::Safetensors), "take 67 of 59 bytes");
}

TEST(Safetensors, Reader) {
  auto check = [](const std::string &header, int64_t bytes) { checkEntries(parseSafetensors(header), bytes); };
  auto entry = [](const char *name, const char *dtype, const char *shape, const char *range) {
    return format(R"("%s":{"dtype":"%s","shape":[%s],"data_offsets":[%s]})", name, dtype, shape, range);
  };
  std::string a = entry("a", "F32", "2", "0,8"), b = entry("b", "BF16", "1,3", "8,14");
  check("{}", 0);
  check("{ \"__metadata__\" : {\"k\": \"v\"}, " + b + " ," + a + "}  ", 14);
  check("{" + entry("\\u00e9\\n", "U8", "", "0,1") + "}", 1);
  EXPECT_FAILURE(check("{" + a + "}", 9), "take 8 of 9 bytes");
  EXPECT_FAILURE(check("{" + a + "," + a + "}", 16), "two tensors are called 'a'");
  EXPECT_FAILURE(check("{" + b + "}", 14), "the data of 'b' is not where");
  EXPECT_FAILURE(check("{" + entry("a", "F32", "3", "0,8") + "}", 8), "the data of 'a' is not where");
  check("{" + entry("a", "F8_E4M3", "3", "0,3") + "}", 3);
  EXPECT_FAILURE(check("{" + entry("a", "X", "", "0,1") + "}", 2), "take 1 of 2 bytes");
  EXPECT_FAILURE(check("{" + entry("a", "F32", "999999999999999999,999999999999999999", "0,1") + "}", 1), "too large");
  for (const char *bad : {"", "[]", "{", "{}x", "{\"a\"}", "{\"a\":{}}", "{\"a\":1}", "{\"a", "{\"\\x\":{}}",
                          "{\"a\":{\"shape\":[-1]}}", "{\"a\":{\"shape\":[1,]}}"})
    EXPECT_FAILURE(check(bad, 0), "the header is not that of a safetensors file");
  EXPECT_FAILURE(check(std::string("{\0}", 3), 0), "the header is not that of a safetensors file"); // no blank
}

TEST(Export, OnnxByPieces) {
  EXPECT_EQ(exported(Model(), ExportForm::Onnx),
            "head" + bytesOf(kTransposed) + "mid" + bytesOf(std::vector<int64_t>{77}) + "tail");
}

// head: a byte of the model, one of the graph's header, node "a", which needs "d" and the values of w; "mid" and n; "tail",
// which is kept always.
TEST(Export, PartOfAGraph) {
  const char index[] = {1,
                        1,
                        4,
                        1,
                        ZCCRT_FIELD_NEEDED,
                        1,
                        1,
                        25,
                        ZCCRT_FIELD_NEEDED,
                        0,
                        11,
                        ZCCRT_FIELD_NEEDED,
                        0,
                        4,
                        ZCCRT_FIELD_ALWAYS,
                        0,
                        1,
                        1,
                        'T',
                        1,
                        0,
                        0,
                        0,
                        0,
                        1,
                        'y',
                        1,
                        0,
                        1,
                        1,
                        1,
                        0};
  Model m;
  m.program.onnx_index = index;
  for (const char *name : {"auto", "y", "a"}) {
    GraphPart part = graphPart(m.program, name);
    EXPECT_EQ(part.value, "y");
    Folder f;
    OutFile file(f / "out");
    ModelFiles files(m.program);
    exportWeights(m.program, ExportForm::Onnx, {{&m.arena}}, *singleRank(), file, files, &part);
    std::string bytes = readFile(f / "out");
    EXPECT_EQ(bytes, "h\x3a\x26"
                     "ad" +
                         bytesOf(kTransposed) +
                         "tail"
                         "\x62\x06\x0a\x01y\x12\x01T");
    EXPECT_EQ(int64_t(bytes.size()), exportBytes(m.program, ExportForm::Onnx, &part));
  }
  EXPECT_FAILURE(graphPart(m.program, "x"), "no value, node or module of that name");
}

TEST(Export, GathersPieces) {
  const int ranks = 4;
  int64_t bytes = ShmComm::windowBytes(ranks, 4096);
  void *window = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Folder f;
  inProcesses(ranks, [&](int r) {
    ShmComm comm(r, ranks, window, 4096);
    Model m;
    m.globals[0].shards = ranks;
    float *piece = reinterpret_cast<float *>(m.bytes);
    for (int i = 0; i < 2; ++i)
      piece[i] = r * 2 + i;
    OutFile file;
    if (r == 0)
      file = OutFile(f / "out");
    ModelFiles files(m.program);
    exportWeights(m.program, ExportForm::Onnx, {{&m.arena}}, comm, file, files);
  });
  munmap(window, bytes);
  EXPECT_EQ(readFile(f / "out").substr(0, 28), "head" + bytesOf(kTransposed));
}

// Columns of several images, each longer than what is turned at once; of four ranks the last has less. In memory that is given,
// or too little of it.
TEST(Export, PartsOfColumns) {
  const int ranks = 4;
  const int64_t images = 2, rows = 300001, cols = 3, count = images * rows * cols;
  auto valueAt = [&](int64_t i) { return Bf16(float(i % 1009)); };
  std::vector<Bf16> expected;
  for (int64_t n = 0; n < images; ++n)
    for (int64_t c = 0; c < cols; ++c)
      for (int64_t r = 0; r < rows; ++r)
        expected.push_back(valueAt((n * rows + r) * cols + c));
  for (int64_t given : {int64_t(4) << 20, int64_t(100)}) {
    int64_t bytes = ShmComm::windowBytes(ranks, 4096);
    void *window = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    Folder f;
    inProcesses(ranks, [&](int r) {
      ShmComm comm(r, ranks, window, 4096);
      zccrt_global g = {};
      g.name = g.onnx_name = "w";
      g.t = tensor(0, ZCCRT_F32, {images, rows, cols});
      g.export_elem = ZCCRT_BF16;
      g.shards = ranks;
      const zccrt_piece pieces[] = {{"", 0, 0, 1}};
      zccrt_program p = {};
      p.globals = &g;
      p.nglobals = 1;
      p.onnx = pieces;
      p.npieces = 1;
      const Piece own = pieceOf(g, r);
      std::vector<float> values(own.count);
      for (int64_t i = 0; i < own.count; ++i)
        values[i] = float((own.begin + i) % 1009);
      FarArena arena(reinterpret_cast<char *>(values.data()));
      std::vector<char> scratch(given);
      OutFile file;
      if (r == 0)
        file = OutFile(f / "out");
      ModelFiles files(p);
      exportWeights(p, ExportForm::Onnx, {{&arena}}, comm, file, files, nullptr, {scratch.data(), given});
    });
    munmap(window, bytes);
    EXPECT_TRUE(readFile(f / "out") == bytesOf(expected)) << given << ", of " << count;
  }
}

// The tensor has no place of its own, also where one box is all of it.
TEST(Export, OneBox) {
  Model m;
  const int64_t starts[ZCCRT_MAX_DIMS] = {};
  m.globals[2].t.offset = 128;
  m.globals[2].init = ZCCRT_INIT_BOX;
  m.globals[2].copy_of = 0;
  std::copy(starts, starts + ZCCRT_MAX_DIMS, m.globals[2].start);
  memcpy(m.bytes + 128, m.bytes, 24);
  memset(m.bytes, 1, 24);
  m.globals[0].role = ZCCRT_WHOLE;
  m.globals[0].t.offset = 0;
  HostArena arena(m.bytes);
  Folder f;
  OutFile file(f / "out");
  ModelFiles files(m.program);
  m.pieces[0].transposed = 0;
  exportWeights(m.program, ExportForm::Onnx, {{&arena}}, *singleRank(), file, files);
  std::vector<float> values(6);
  std::iota(values.begin(), values.end(), 0.f);
  EXPECT_EQ(readFile(f / "out").substr(0, 28), "head" + bytesOf(values));
}

TEST(OutFile, WholeOrNotAtAll) {
  Folder f;
  writeFile(f / "a", "old");
  {
    OutFile file(f / "a");
    file.write("new and longer", 14);
    EXPECT_EQ(readFile(f / "a"), "old");
  }
  EXPECT_EQ(readFile(f / "a"), "old");
  OutFile file(f / "a");
  file.write("new", 3);
  file.commit();
  EXPECT_EQ(readFile(f / "a"), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(f.path), {}), 1);
  EXPECT_FAILURE(OutFile(f / "none/a"), "No such file or directory");
  EXPECT_FAILURE(OutFile(f.path), "not a regular file");
  EXPECT_FAILURE(OutFile("/dev/full"), "not a regular file");
  EXPECT_FAILURE(OutFile(f / "b").expectRoom(uint64_t(1) << 60), "its disk has");
  // A link keeps pointing to its file.
  std::filesystem::create_symlink("a", f / "link");
  OutFile linked(f / "link");
  linked.write("by link", 7);
  linked.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(f / "link"));
  EXPECT_EQ(readFile(f / "a"), "by link");
}

TEST(Outputs, JoinsBatches) {
  Folder f;
  zccrt_io outputs[2] = {io("loss", tensor(0, ZCCRT_F32, {})), io("scores/0", tensor(64, ZCCRT_I64, {2, 2}))};
  zccrt_program p = {};
  p.outputs = outputs;
  p.noutputs = 2;
  alignas(64) char bytes[128];
  FarArena arena(bytes);
  for (int batches : {1, 3}) {
    auto comm = singleRank();
    Outputs out(p, f / "o.npz", *comm);
    for (int i = 0; i < batches; ++i) {
      *reinterpret_cast<float *>(bytes) = i;
      for (int k = 0; k < 4; ++k)
        reinterpret_cast<int64_t *>(bytes + 64)[k] = 4 * i + k;
      out.add(arena, 1, 2, 2);
    }
    out.finish();
    std::vector<std::string> others;
    std::vector<Array> arrays = openNpz(f / "o.npz", {"loss", "scores/0"}, others);
    ASSERT_EQ(arrays.size(), 2u);
    EXPECT_EQ(arrays[0].dims, batches == 1 ? std::vector<int64_t>{} : std::vector<int64_t>{3});
    EXPECT_EQ(arrays[1].dims, (std::vector<int64_t>{2 * batches, 2}));
    int64_t last;
    arrays[1].source->read(arrays[1].offset + (4 * batches - 1) * 8, 8, &last);
    EXPECT_EQ(last, 4 * batches - 1);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(f.path), {}), 1);
  }
  // Of the last batch one row counts: of outputs by row it is all that is kept.
  outputs[1].by_rows = 1;
  auto comm = singleRank();
  Outputs out(p, f / "o.npz", *comm);
  out.add(arena, 1, 2, 2);
  out.add(arena, 1, 1, 2);
  out.finish();
  std::vector<std::string> others;
  std::vector<Array> arrays = openNpz(f / "o.npz", {"loss", "scores/0"}, others);
  ASSERT_EQ(arrays.size(), 2u);
  EXPECT_EQ(arrays[0].dims, (std::vector<int64_t>{2}));
  EXPECT_EQ(arrays[1].dims, (std::vector<int64_t>{3, 2}));
}

} // namespace export_test
