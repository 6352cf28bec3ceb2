// Weights in files: runs of elements, names, hostile headers and pickles.
#include "RuntimeTest.h"
#include "runtime/weights/RunReader.h"
#include "runtime/weights/TorchFile.h"
#include "runtime/weights/WeightNames.h"
#include <map>
#include <numeric>

namespace weight_files_test {

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

// ---- names

namespace {

WantedTensor want(std::vector<std::string> names, std::vector<int64_t> dims = {2}) {
  WantedTensor w;
  for (const std::string &n : names)
    w.names.push_back({n, dims});
  return w;
}

GivenFiles give(const std::vector<std::string> &names, const std::vector<int64_t> &dims = {2}) {
  GivenFiles g{"w.safetensors", {"w.safetensors"}, {}};
  for (const std::string &n : names)
    g.tensors.push_back({n, "F32", ZCCRT_F32, dims, 0, 0, 8});
  return g;
}

/// Names of the file that the wanted tensors are.
std::string foundNames(const std::vector<WantedTensor> &wanted, const GivenFiles &given,
                       const std::vector<std::string> &maps = {}, MissingWeights missing = MissingWeights::Refuse) {
  std::string s;
  const FoundWeights found = findWeights(wanted, given, maps, missing);
  for (const FoundTensor &f : found.tensors)
    s += (s.empty() ? "" : " ") + (f.tensor < 0 ? "-" : given.tensors[f.tensor].name);
  for (const std::string &n : found.leftOver)
    s += " +" + n;
  return s;
}

} // namespace

TEST(WeightNames, Prefixes) {
  EXPECT_EQ(foundNames({want({"a.w"}), want({"b"})}, give({"b", "a.w", "x"})), "a.w b +x");
  // What wrappers and classes with a head add, on either side.
  EXPECT_EQ(foundNames({want({"net.a.w"}), want({"net.b"})}, give({"a.w", "b"})), "a.w b");
  EXPECT_EQ(foundNames({want({"a.w"}), want({"b"})}, give({"module.a.w", "module.b"})), "module.a.w module.b");
  EXPECT_EQ(foundNames({want({"net.a"}), want({"net.b"})}, give({"module.a", "module.b"})), "module.a module.b");
  EXPECT_EQ(foundNames({want({"bert.a"}), want({"bert.b"}), want({"cls.c"})}, give({"a", "b", "cls.c"})), "a b cls.c");
  // Another part of a model is no other spelling of this one.
  EXPECT_FAILURE(foundNames({want({"a"}), want({"b"}), want({"encoder.w"})}, give({"a", "b", "decoder.w"})),
                 "lacks 1 of 3 tensors");
  EXPECT_FAILURE(foundNames({want({"a"}), want({"b"}), want({"w"})}, give({"a", "b", "layers.11.w"})),
                 "left over: 'layers.11.w'");
}

TEST(WeightNames, Ties) {
  EXPECT_EQ(foundNames({want({"wte", "head"})}, give({"head"})), "head");
  EXPECT_EQ(foundNames({want({"net.wte", "net.head"})}, give({"wte", "head"})), "wte");
  const FoundWeights found = findWeights({want({"wte", "head"})}, give({"wte", "head"}), {}, MissingWeights::Refuse);
  ASSERT_EQ(found.tensors[0].twins.size(), 1u);
  EXPECT_EQ(found.tensors[0].twins[0].tensor, 1);
}

TEST(WeightNames, AllIsSaidAtOnce) {
  GivenFiles given = give({"a", "b", "c", "x"});
  given.tensors[0].dims = {3};
  given.tensors[1].elem = ZCCRT_I64;
  given.tensors[2].elem = -1;
  given.tensors[2].dtype = "F8_E4M3";
  std::string why =
      runtimetest::failureOf([&] { foundNames({want({"a"}), want({"b"}), want({"c"}), want({"d"}), want({"e"})}, given); });
  EXPECT_EQ(why, "'w.safetensors' does not fit the model; --weights-map=REGEX=REPLACEMENT gives its tensors other names\n"
                 "note: 'a' is (3,), the model's is (2,)\n"
                 "note: 'b' is of type int64, the model's is float32\n"
                 "note: 'c' is of type F8_E4M3, which zcc does not read\n"
                 "note: it lacks 2 of 5 tensors: 'd', 'e'\n"
                 "note: 1 of its tensors are left over: 'x'");
  EXPECT_EQ(foundNames({want({"a"}), want({"d"})}, give({"a"}), {}, MissingWeights::Allow), "a -");
  EXPECT_EQ(foundNames({want({"a"}, {1, 2})}, give({"a"}, {2, 1})), "a"); // axes of one element
}

TEST(WeightNames, Maps) {
  EXPECT_EQ(foundNames({want({"layer.0.w"}), want({"b"})}, give({"h.0.w", "b"}), {"^h\\.([0-9]+)=layer.\\1"}), "h.0.w b");
  EXPECT_EQ(foundNames({want({"a"})}, give({"xa", "b"}), {"^x=", "b=c"}), "xa +b");
  EXPECT_FAILURE(foundNames({want({"a"})}, give({"a"}), {"z=y"}), "--weights-map=z=y: no other map has left a name");
  EXPECT_FAILURE(foundNames({want({"a"})}, give({"a"}), {"a"}), "expected REGEX=REPLACEMENT");
  EXPECT_FAILURE(foundNames({want({"a"})}, give({"a"}), {"(=b"}), "--weights-map=(=b: ");
  EXPECT_FAILURE(foundNames({want({"a"})}, give({"a"}), {"a=\\1"}), "there is no group 1");
  EXPECT_FAILURE(foundNames({want({"a"})}, give({"a", "b"}), {"b=a"}), "both become 'a'");
}

// ---- files

static std::string safetensors(const std::string &header, const std::string &data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char *>(&length), 8) + header + data;
}

TEST(WeightFiles, IndexesAndFolders) {
  runtimetest::Folder f;
  const std::string a = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                    b = R"({"b":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})";
  writeFile(f / "a.safetensors", safetensors(a, "01234567"));
  writeFile(f / "b.safetensors", safetensors(b, "01"));
  GivenFiles given = openGiven(f.path);
  ASSERT_EQ(given.tensors.size(), 2u);
  EXPECT_EQ(given.tensors[1].offset, int64_t(8 + b.size()));
  writeFile(f / "x.safetensors.index.json",
            R"({"metadata": {"total_size": 1.5e3, "x": [true, {"y": null}]}, "weight_map": {"b": "b.safetensors"}})");
  given = openGiven(f.path);
  ASSERT_EQ(given.tensors.size(), 1u);
  EXPECT_EQ(given.tensors[0].name, "b");
  for (auto &[text, why] : std::vector<std::pair<std::string, std::string>>{
           {R"({"weight_map": {"c": "b.safetensors"}})", "says that 'b.safetensors' has 'c', and it has not"},
           {R"({"weight_map": {"b": "../b.safetensors"}})", "names '../b.safetensors', which is no file beside it"},
           {R"({"weight_map": {"b": "none.safetensors"}})", "cannot read"},
           {R"({"weight_map": {"b": 1}})", "is no index of safetensors files"},
           {R"({"metadata": {}})", "has no 'weight_map'"},
           {std::string(200, '['), "is no index"},
           {"{\"a\":" + std::string(100000, '['), "is no index"}}) {
    writeFile(f / "x.safetensors.index.json", text);
    EXPECT_FAILURE(openGiven(f.path), why);
  }
  std::filesystem::remove(f / "x.safetensors.index.json");
  writeFile(f / "c.safetensors", safetensors(a, "01234567"));
  EXPECT_FAILURE(openGiven(f.path), "have a tensor 'a'");
  EXPECT_FAILURE(openGiven(f / "w.npz"), "expected FILE.safetensors");
}

TEST(WeightFiles, HostileHeaders) {
  runtimetest::Folder f;
  auto open = [&](const std::string &bytes) {
    writeFile(f / "w.safetensors", bytes);
    openGiven(f / "w.safetensors");
  };
  auto entry = [](const char *name, const char *range) {
    return zccrt::format(R"("%s":{"dtype":"F32","shape":[2],"data_offsets":[%s]})", name, range);
  };
  const std::string a = entry("a", "0,8"), good = safetensors("{" + a + "," + entry("b", "8,16") + "}", std::string(16, 'x'));
  open(good);
  for (size_t n = 0; n < good.size(); ++n)
    EXPECT_FAILURE(open(good.substr(0, n)), "is no safetensors file, or it is cut short or damaged");
  for (const std::string &b : {entry("b", "4,12"), entry("b", "8,24"), entry("b", "-8,0"), entry("b", "16,8"), entry("a", "8,16"),
                               entry("b", "9223372036854775807,9223372036854775807")})
    EXPECT_FAILURE(open(safetensors("{" + a + "," + b + "}", std::string(16, 'x'))), "cut short or damaged");
  for (uint64_t length : {UINT64_MAX, uint64_t(1) << 63, uint64_t(1) << 40, uint64_t(17)})
    EXPECT_FAILURE(open(std::string(reinterpret_cast<const char *>(&length), 8) + "{}"), "its header is said to have");
  for (size_t at = 0; at < good.size(); ++at) // whatever a byte becomes, it is read or refused
    for (char c : {'\0', '"', '{', '9', '\xff'}) {
      std::string bytes = good;
      bytes[at] = c;
      try {
        open(bytes);
      } catch (const Failure &) {
      }
    }
}

// ---- torch.save

static const std::string kStateDict = ZCC_SOURCE_DIR "/test/models/state_dict.pt";

TEST(TorchFile, StateDict) {
  const TorchFile file(kStateDict);
  std::map<std::string, GivenTensor> tensors;
  for (const GivenTensor &t : file.stateDict())
    tensors[t.name] = t;
  ASSERT_EQ(tensors.size(), 6u);
  EXPECT_EQ(tensors["a.weight"].dims, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(tensors["a.weight"].offset, tensors["tied.weight"].offset);
  EXPECT_EQ(tensors["row"].offset, tensors["a.weight"].offset + 16);
  EXPECT_EQ(tensors["count"].elem, ZCCRT_I64);
  std::vector<float> bias(3);
  RunReader().read(File(kStateDict), {tensors["a.bias"].offset, tensors["a.bias"].elem, {3}, false}, {Box::whole({3}), 0, 3},
                   ZCCRT_F32, reinterpret_cast<char *>(bias.data()));
  EXPECT_EQ(bias, (std::vector<float>{0.5f, -2.0f, 3.0f}));
}

TEST(TorchFile, DamagedFilesAreRefusedOrRead) {
  runtimetest::Folder f;
  const std::string good = runtimetest::readFile(kStateDict);
  auto open = [&](const std::string &bytes) {
    writeFile(f / "w.pt", bytes);
    try {
      TorchFile(f / "w.pt").stateDict();
    } catch (const Failure &e) {
      EXPECT_NE(std::string(e.what()).find("w.pt"), std::string::npos) << e.what();
    }
  };
  for (size_t n = 0; n < good.size(); n += 7)
    open(good.substr(0, n));
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ (at % 2 ? 0xff : 0x04));
    open(bytes);
  }
}

TEST(Pickle, NothingIsRun) {
  auto read = [](const std::string &bytes) { Pickle p(bytes, "x"); };
  const std::string ls("X\x02\0\0\0ls", 7);
  EXPECT_FAILURE(read("cos\nsystem\n(" + ls + "tR."), "has a 'os.system', which zcc does not make");
  EXPECT_FAILURE(read("cdeepspeed.x\nLossScaler\n)\x81."), "has a 'deepspeed.x.LossScaler'");
  EXPECT_FAILURE(read("(cos\nsystem\n" + ls + "o."), "opcode 0x6f");
  EXPECT_FAILURE(read("i"), "opcode 0x69");
  EXPECT_FAILURE(read("h\x05."), "is damaged");
  EXPECT_FAILURE(read(")R."), "is damaged");
  EXPECT_FAILURE(read("}(K\x01u."), "is damaged"); // a key without a value
  EXPECT_FAILURE(read(""), "is damaged");
  EXPECT_FAILURE(read("."), "is damaged");
  EXPECT_FAILURE(read("X\xff\xff\xff\xff."), "is damaged");
  EXPECT_FAILURE(read(std::string(3 << 20, 'N')), "more than");
  EXPECT_FAILURE(read(std::string(3 << 20, '(')), "is damaged");
  // A list that is put into itself again and again.
  std::string doubling = "]q";
  doubling += '\0';
  for (int i = 0; i <= 1 << 20; ++i)
    doubling += std::string("h\0a", 3);
  EXPECT_FAILURE(read(doubling + "."), "is damaged");
}

} // namespace weight_files_test
