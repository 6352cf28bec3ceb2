// Boxes and runs of elements, manifests, which rank writes what, and a state that is saved by some ranks and read by others.
#include "RuntimeTest.h"
#include "runtime/Hash.h"
#include "runtime/checkpoint/Checkpoints.h"
#include "runtime/checkpoint/DataFile.h"
#include <numeric>
#include <set>

namespace checkpoint_test {

using namespace zccrt;
using namespace runtimetest;

namespace {

// ---- boxes

/// The elements of a run, as numbers of elements of the whole tensor.
std::vector<int64_t> elementsOf(const std::vector<int64_t> &dims, const Run &r) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < r.count; ++i) {
    int64_t rest = r.begin + i, at = 0, stride = 1;
    for (size_t a = dims.size(); a--; stride *= dims[a]) {
      at += (r.box.start[a] + rest % r.box.shape[a]) * stride;
      rest /= r.box.shape[a];
    }
    all.push_back(at);
  }
  return all;
}

void expectCommon(const std::vector<int64_t> &dims, const Run &a, const Run &b) {
  std::vector<int64_t> ofA = elementsOf(dims, a), ofB = elementsOf(dims, b);
  std::set<std::pair<int64_t, int64_t>> expected, found;
  for (size_t i = 0; i < ofA.size(); ++i)
    for (size_t j = 0; j < ofB.size(); ++j)
      if (ofA[i] == ofB[j])
        expected.insert({i, j});
  forEachCommon(dims, a, b, [&](int64_t i, int64_t j, int64_t n) {
    for (int64_t k = 0; k < n; ++k)
      EXPECT_TRUE(found.insert({i + k, j + k}).second);
  });
  EXPECT_EQ(found, expected);
}

TEST(Boxes, CommonElementsOfRuns) {
  const std::vector<int64_t> dims = {4, 3, 5};
  const Box whole = Box::whole(dims), middle = {{1, 0, 0}, {2, 3, 5}}, columns = {{0, 0, 1}, {4, 3, 3}},
            inner = {{1, 1, 2}, {3, 2, 2}};
  for (const Box &a : {whole, middle, columns, inner})
    for (const Box &b : {whole, middle, columns, inner})
      for (int64_t beginA : {0, 3})
        for (int64_t beginB : {0, 7})
          expectCommon(dims, {a, beginA, a.elements() - beginA - 1}, {b, beginB, b.elements() - beginB});
  expectCommon({}, {Box::whole({}), 0, 1}, {Box::whole({}), 0, 1});
  expectCommon({6}, {Box::whole({6}), 0, 2}, {Box::whole({6}), 3, 3});
}

TEST(Boxes, WholeTensorsHaveOneRow) {
  int calls = 0;
  Box whole = Box::whole({4, 3, 5});
  forEachCommon({4, 3, 5}, {whole, 10, 30}, {whole, 0, 60}, [&](int64_t i, int64_t j, int64_t n) {
    ++calls;
    EXPECT_EQ(i, 0);
    EXPECT_EQ(j, 10);
    EXPECT_EQ(n, 30);
  });
  EXPECT_EQ(calls, 1);
}

// ---- manifests

TEST(Manifest, ReadsWhatItWrites) {
  Manifest m;
  m.model = "a \"model\"";
  m.modelHash = 0xfedcba9876543210u;
  m.step = 7;
  m.seed = INT64_MIN;
  m.shuffle = true;
  m.files = {{"rank-0.data", "rank-0.json", 12, 3}, {"rank-1.data", "rank-1.json", 0, 4}};
  const std::string text = toJson(m);
  Manifest r = readManifest(text);
  EXPECT_EQ(toJson(r), text);
  EXPECT_EQ(r.seed, INT64_MIN);
  for (size_t i = 0; i < text.size() - 1; ++i) { // any bit counts
    std::string bad = text;
    bad[i] ^= 1;
    EXPECT_NE(failureOf([&] { readManifest(bad); }), "no failure") << i << ": " << bad;
  }
  EXPECT_FAILURE(readManifest(text.substr(0, text.size() / 2)), "it is no manifest of a checkpoint");
}

TEST(Manifest, Index) {
  SavedRun whole{"w", -1, ZCCRT_BF16, {4, 3}, {Box::whole({4, 3}), 5, 7}, 64, 9};
  SavedRun box{"w", 2, ZCCRT_F32, {4, 3}, {{{1, 0}, {2, 3}}, 0, 6}, 128, 10};
  std::string text = toJson(std::vector<SavedRun>{whole, box});
  std::vector<SavedRun> r = readIndex(text);
  EXPECT_EQ(toJson(r), text);
  EXPECT_EQ(r[1].run.box, box.run.box);
  box.run.count = 7; // more than its box has
  EXPECT_FAILURE(readIndex(toJson({box})), "it is no index of a checkpoint");
  box.run = {{{1, 0}, {INT64_MAX, 3}}, 0, 6}; // ends beyond every number
  EXPECT_FAILURE(readIndex(toJson({box})), "it is no index of a checkpoint");
  box.run = {{{1, 0}, {2, 3}}, INT64_MAX, 6};
  EXPECT_FAILURE(readIndex(toJson({box})), "it is no index of a checkpoint");
}

// ---- a program's state

/// w and its moment in pieces over the ranks (or whole), a large b that every rank has, a statistic of each rank's own, a loss
/// scale, and the 16-bit parameter of w.
struct Model {
  enum { W, M, B, Own, Scale, Cast, kGlobals };

  Model(int ranks, int shards) {
    add(W, "w", "w", ZCCRT_F32, {5, 7}, shards, 0);
    add(M, "w.m", "w.m", ZCCRT_F32, {5, 7}, shards, 0);
    add(B, "b", "b", ZCCRT_F32, {300, 100}, 1, 0);
    add(Own, "running", "running", ZCCRT_F32, {3}, 1, ZCCRT_SAVED_OWN);
    add(Scale, "loss_scale", "loss_scale", ZCCRT_F32, {}, 1, ZCCRT_SAVED_IF_THERE);
    add(Cast, "w16", "w", ZCCRT_BF16, {5, 7}, 1, ZCCRT_SAVED_CAST);
    globals[W].role = globals[B].role = 0;
    p.model = "tiny";
    p.ranks = ranks;
    p.globals = globals;
    p.nglobals = kGlobals;
    p.written = written;
    p.nwritten = 2;
    p.save_bytes = 80 << 10; // less than b
  }

  void add(int i, const char *name, const char *saved, int elem, const std::vector<int64_t> &dims, int shards, int flags) {
    zccrt_global &g = globals[i];
    g = {};
    g.name = name;
    g.saved = saved;
    g.saved_flags = flags;
    g.t = tensor(bytes, elem, dims);
    g.shards = shards;
    g.role = 1;
    bytes += (elementCount(g.t) * elemBytes(elem) + 63) / 64 * 64;
  }

  zccrt_global globals[kGlobals];
  const int32_t written[2] = {M, W};
  zccrt_program p = {};
  int64_t bytes = 0;
};

/// The memory of a rank.
struct Memory {
  explicit Memory(int64_t bytes) : data(bytes), arena(data.data()), arenas{{&arena, nullptr, nullptr}} {}
  float *floats(const zccrt_global &g) { return reinterpret_cast<float *>(data.data() + g.t.offset); }
  std::vector<char> data;
  HostArena arena;
  Arenas arenas;
};

float valueOf(const HeldRun &h, int64_t element, int rank) {
  return 1000.f * h.global + 0.5f * float(element) + (h.saved.rank >= 0 ? 100.f * rank : 0);
}

void fill(const Model &m, Memory &memory, int rank) {
  for (const HeldRun &h : heldRuns(m.p, rank))
    for (int64_t i = 0; h.global != Model::Cast && i < h.saved.run.count; ++i)
      memory.floats(m.globals[h.global])[i] = valueOf(h, h.saved.run.begin + i, rank);
}

/// Saves as that many ranks do, one after the other.
void save(Model &m, const std::string &folder) {
  Manifest manifest;
  manifest.model = m.p.model;
  manifest.modelHash = modelHash(m.p);
  manifest.ranks = m.p.ranks;
  for (int r = 0; r < m.p.ranks; ++r) {
    Memory memory(m.bytes);
    fill(m, memory, r);
    Saver saver(m.p, memory.arenas, r);
    saver.start(folder);
    saver.willWrite(0); // returns once w.m is read
    saver.wait();
    EXPECT_EQ(saver.error(), "");
    manifest.files.push_back(saver.file());
  }
  writeDurably(folder + "/" + kManifestName, toJson(manifest));
}

TEST(Checkpoint, EveryElementIsWrittenOnce) {
  for (int ranks : {1, 2, 3})
    for (int shards : {1, ranks}) {
      Model m(ranks, shards);
      std::vector<int64_t> count(Model::kGlobals);
      for (int r = 0; r < ranks; ++r) {
        std::vector<HeldRun> runs = runsToWrite(m.p, r);
        for (const HeldRun &h : runs)
          count[h.global] += h.saved.run.count;
        EXPECT_TRUE(runs.empty() || runs.size() < 2 || runs[0].global == Model::M || shards == 1);
      }
      EXPECT_EQ(count, (std::vector<int64_t>{35, 35, 30000, 3 * ranks, 1, 0})) << ranks << " ranks, " << shards << " shards";
    }
}

TEST(Checkpoint, OtherRanksReadWhatSomeSaved) {
  for (int from : {1, 2, 3})
    for (int to : {1, 2, 4})
      for (int shards : {1, to}) {
        Folder f;
        Model saved(from, from), wanted(to, shards);
        save(saved, f / "step-1");
        Checkpoint c = openCheckpoint(f / "step-1");
        for (int share = 0; share < 3; ++share)
          verifyData(c, share, 3);
        for (int r = 0; r < to; ++r) {
          Memory memory(wanted.bytes);
          loadCheckpoint(wanted.p, c, memory.arenas, r);
          for (const HeldRun &h : heldRuns(wanted.p, r))
            for (int64_t i = 0; i < h.saved.run.count; ++i) {
              float value = valueOf(h, h.saved.run.begin + i, r % from);
              if (h.global != Model::Cast)
                ASSERT_EQ(memory.floats(wanted.globals[h.global])[i], value) << wanted.globals[h.global].name << " " << i;
              else
                ASSERT_EQ(memory.arena.floatAt(h.offset, ZCCRT_BF16, i), float(Bf16(0.5f * float(i))));
            }
        }
      }
}

TEST(Checkpoint, NamesWhatIsWrong) {
  Folder f;
  Model m(2, 2);
  const std::string folder = f / "step-1";
  save(m, folder);
  auto verify = [&] { verifyData(openCheckpoint(folder), 0, 1); };
  EXPECT_EQ(failureOf(verify), "no failure");
  std::string data = readFile(folder + "/rank-1.data"), bad = data;
  bad[bad.size() / 2] ^= 4;
  writeFile(folder + "/rank-1.data", bad);
  EXPECT_FAILURE(verify(),
                 "checkpoint '" + folder + "' is damaged: 'rank-1.data': the bytes of tensor 'b' are not those that were");
  writeFile(folder + "/rank-1.data", data.substr(1));
  EXPECT_FAILURE(verify(), "'rank-1.data': it has");
  std::filesystem::remove(folder + "/rank-1.data");
  EXPECT_FAILURE(verify(), "No such file");
  writeFile(folder + "/rank-1.data", data);
  writeFile(folder + "/rank-0.json", "{\"runs\":[]}");
  EXPECT_FAILURE(verify(), "'rank-0.json': its bytes are not those that were written");
  std::filesystem::remove(folder + "/manifest.json");
  EXPECT_FAILURE(verify(), "manifest.json");
}

TEST(Checkpoint, OtherModelsAndOptimizersAreRefused) {
  Folder f;
  Model m(1, 1), other(1, 1), more(1, 1), withoutScale(1, 1);
  withoutScale.globals[Model::Scale].saved = nullptr;
  save(withoutScale, f / "step-1");
  Checkpoint c = openCheckpoint(f / "step-1");
  std::vector<bool> resumed = resumedGlobals(m.p, c);
  EXPECT_FALSE(resumed[Model::Scale]); // starts as in a new run
  EXPECT_TRUE(resumed[Model::W]);
  other.globals[Model::B].t.dims[0] = 200;
  EXPECT_FAILURE(resumedGlobals(other.p, c), "is of another model ('tiny')");
  more.globals[Model::M].saved = "w.v";
  EXPECT_FAILURE(resumedGlobals(more.p, c), "lacks 'w.v'");
}

// ---- folders

TEST(Checkpoint, FoldersNewestFirst) {
  Folder f;
  for (const char *name : {"step-2", "step-10", "step-9", "step-x", ".step-11.0.tmp", "other"})
    makeFolder(f / name);
  EXPECT_EQ(stepsIn(f.path), (std::vector<int64_t>{2, 9, 10}));
  EXPECT_EQ(checkpointsFrom(f.path), (std::vector<std::string>{f / "step-10", f / "step-9", f / "step-2"}));
  EXPECT_EQ(checkpointsFrom(f / "step-9/"), (std::vector<std::string>{f / "step-9", f / "step-2"}));
  EXPECT_EQ(checkpointsFrom(f / "missing"), std::vector<std::string>());
  const std::string whole = std::filesystem::canonical(f.path), before = std::filesystem::current_path();
  std::filesystem::current_path(f / "step-9");
  for (const char *here : {".", "./", "../step-9/."})
    EXPECT_EQ(checkpointsFrom(here).size(), 2u) << here;
  EXPECT_EQ(checkpointsFrom(".")[0], whole + "/step-9");
  for (const char *above : {"..", "../", "./.."})
    EXPECT_EQ(checkpointsFrom(above), (std::vector<std::string>{whole + "/step-10", whole + "/step-9", whole + "/step-2"}))
        << above;
  std::filesystem::current_path(before);
  removeOlder(f.path, {2, 9}, 1); // what is later is another history's
  EXPECT_EQ(stepsIn(f.path), (std::vector<int64_t>{9, 10}));
  removeUnfinished(f.path);
  EXPECT_FALSE(std::filesystem::exists(f / ".step-11.0.tmp"));
}

TEST(Checkpoint, ANameIsGivenAgain) {
  Folder f;
  makeFolder(f / "step-1");
  writeFile(f / "step-1/old", "");
  makeFolder(f / ".new");
  writeFile(f / ".new/new", "");
  nameCheckpoint(f / ".new", f / "step-1");
  EXPECT_TRUE(std::filesystem::exists(f / "step-1/new"));
  EXPECT_FALSE(std::filesystem::exists(f / "step-1/old"));
  EXPECT_FALSE(std::filesystem::exists(f / ".new"));
}

/// A run of one rank: what it begins is there once it is finished, and only so many stay.
// Whatever lies before them, and wherever in a page they begin and end: written from where they lie, or through a buffer.
TEST(DataFile, RunsOfAnyPlaceAndLength) {
  constexpr int64_t kMiB = 1 << 20, kHash = kHashBlockBytes;
  std::vector<uint32_t> words(6 * kMiB / 4);
  std::iota(words.begin(), words.end(), 1u);
  auto *bytes = reinterpret_cast<char *>(words.data());
  HostArena host(bytes);
  FarArena elsewhere(bytes);
  const std::pair<int64_t, int64_t> runs[] = {{0, 100},
                                              {64, kMiB},
                                              {4096, 2 * kMiB},
                                              {kMiB - 4, kMiB + 4},
                                              {192, kMiB + 4092},
                                              {8, kHash},
                                              {4032, kMiB + kHash + 64},
                                              {kMiB, 4 * kMiB},
                                              {320, 3 * kMiB - 1},
                                              {4000, kMiB - 1},
                                              {12, 4}};
  for (const Arena *arena : std::initializer_list<const Arena *>{&host, &elsewhere}) {
    Folder f;
    const int64_t room = 128 << 10;
    std::unique_ptr<char, decltype(&std::free)> buffer(static_cast<char *>(std::aligned_alloc(4096, room)), std::free);
    std::vector<DataFile::Place> places;
    DataFile file(f / "data", {buffer.get(), size_t(room)});
    for (auto [offset, length] : runs)
      places.push_back(file.append(*arena, offset, length));
    const int64_t length = file.bytes();
    file.finish();
    const std::string text = readFile(f / "data");
    ASSERT_EQ(int64_t(text.size()), length);
    int64_t end = 0;
    for (size_t i = 0; i < std::size(runs); ++i) {
      auto [offset, n] = runs[i];
      EXPECT_GE(places[i].offset, end);
      EXPECT_LT(places[i].offset, end + 4096);
      end = places[i].offset + n;
      EXPECT_TRUE(text.compare(places[i].offset, n, bytes + offset, n) == 0) << "run " << i;
      EXPECT_EQ(places[i].hash, hashBytes(bytes + offset, n)) << "run " << i;
    }
    EXPECT_EQ(end, length);
  }
}

void saveSteps(Checkpoints &c, std::initializer_list<int64_t> steps) {
  for (int64_t step : steps) {
    Manifest manifest;
    manifest.step = step;
    c.begin(manifest);
  }
  c.finish();
}

TEST(Checkpoint, SavesInTheBackground) {
  Folder f;
  Model m(1, 1);
  Memory memory(m.bytes);
  fill(m, memory, 0);
  Options o;
  o.save = f / "run";
  o.keep = 2;
  auto comm = singleRank();
  std::vector<std::string> said;
  Checkpoints c(m.p, o, *comm, memory.arenas, {}, [&](const std::string &text) { said.push_back(text); });
  saveSteps(c, {1, 2, 3});
  EXPECT_EQ(stepsIn(o.save), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(said, std::vector<std::string>());
  verifyData(openCheckpoint(c.lastFolder()), 0, 1);
  EXPECT_EQ(openCheckpoint(c.lastFolder()).manifest.files.size(), 1u);

  EXPECT_FAILURE(Checkpoints(m.p, o, *comm, memory.arenas, {}, [](const std::string &) {}), "has checkpoints");
}

// A run that begins from an earlier checkpoint goes past what another has made of it, which it keeps no longer than its own.
TEST(Checkpoint, KeepsItsOwnCourse) {
  Folder f;
  Model m(1, 1);
  Memory memory(m.bytes);
  fill(m, memory, 0);
  Options o;
  o.save = f / "run";
  auto comm = singleRank();
  auto save = [&](const std::optional<Checkpoint> &resumed, std::initializer_list<int64_t> steps) {
    Checkpoints c(m.p, o, *comm, memory.arenas, resumed, [](const std::string &) {});
    saveSteps(c, steps);
  };
  save({}, {1, 2, 4, 9});
  o.keep = 2;
  save(openCheckpoint(o.save + "/step-1"), {3});
  EXPECT_EQ(stepsIn(o.save), (std::vector<int64_t>{1, 3, 4, 9}));
  save(openCheckpoint(o.save + "/step-3"), {5, 6});
  EXPECT_EQ(stepsIn(o.save), (std::vector<int64_t>{5, 6, 9}));
}

} // namespace

} // namespace checkpoint_test
