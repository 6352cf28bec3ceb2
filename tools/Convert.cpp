// Writes a checkpoint as a program of one rank would, of bytes that lie in other people's files.
#include "tools/Convert.h"
#include "runtime/Arena.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/Hash.h"
#include "runtime/checkpoint/Folder.h"
#include "runtime/checkpoint/RankFiles.h"
#include "runtime/checkpoint/Recipe.h"
#include "runtime/checkpoint/SavedTensors.h"
#include "runtime/weights/GivenWeights.h"
#include "runtime/weights/RunReader.h"
#include "tools/Origin.h"
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace zccrt;
namespace fs = std::filesystem;

/// Has the program write what it is, and reads that.
static std::string describe(const std::string &program, const std::string &file) {
  const std::string option = "--describe=" + file, path = program.find('/') == std::string::npos ? "./" + program : program;
  if (access(path.c_str(), X_OK) != 0)
    failErrno("cannot run '%s'", path.c_str());
  std::string words[] = {path, option};
  char *arguments[] = {words[0].data(), words[1].data(), nullptr};
  pid_t child;
  int status = 0;
  if (int code = posix_spawn(&child, path.c_str(), nullptr, nullptr, arguments, environ); code != 0) {
    errno = code;
    failErrno("cannot run '%s'", path.c_str());
  }
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0 || access(file.c_str(), R_OK) != 0)
    fail("'%s %s' did not say what the program is; is it a program that this zcc has compiled?", path.c_str(), option.c_str());
  const File written(file);
  std::string text(written.bytes(), ' ');
  written.read(0, text.size(), text.data());
  return text;
}

namespace {

/// Where the values of a program's global are; nowhere: they are zeros.
struct Source {
  std::string file;
  TensorInFile tensor;
};

/// The program's globals, read from others' files as they are asked for.
class OriginArena : public Arena {
public:
  OriginArena(const zccrt_program &p, std::map<int, Source> sources) : program(p), sources(std::move(sources)) {
    for (int i = 0; i < p.nglobals; ++i)
      if (p.globals[i].t.offset >= 0)
        byOffset[p.globals[i].t.offset] = i;
  }

  char *base() const override { return nullptr; }
  char *onHost(int64_t) const override { return nullptr; }
  void copyTo(int64_t, const void *, int64_t) override { fail("internal: what is converted is not written to"); }

  void copyFrom(void *to, int64_t offset, int64_t bytes) const override {
    const auto [begin, index] = *std::prev(byOffset.upper_bound(offset));
    const zccrt_global &g = program.globals[index];
    auto source = sources.find(index);
    if (source == sources.end())
      return void(std::memset(to, 0, bytes));
    if (!file || file->path() != source->second.file)
      file = std::make_unique<File>(source->second.file);
    const int64_t size = elemBytes(g.t.elem);
    reader.read(*file, source->second.tensor, {Box::whole(source->second.tensor.dims), (offset - begin) / size, bytes / size},
                g.t.elem, static_cast<char *>(to));
  }

private:
  const zccrt_program &program;
  const std::map<int, Source> sources; ///< by global
  std::map<int64_t, int> byOffset;
  mutable std::unique_ptr<File> file;
  mutable RunReader reader;
};

/// Finds what the program's globals are in the origin.
class Matching {
public:
  Matching(const zccrt_program &p, const Origin &o, const std::vector<std::string> &maps) : program(p), origin(o), state(p) {
    for (size_t i = 0; i < state.wanted.size(); ++i) // what no checkpoint holds need not come
      state.wanted[i].mayLack |= state.globalOf[i] < 0 || !p.globals[state.globalOf[i]].saved;
    found = findWeights(state.wanted, o.weights, maps, MissingWeights::Refuse);
    expectTwinsEqual(state.wanted, found, o.weights);
  }

  std::map<int, Source> sources() {
    std::map<int, Source> all;
    for (size_t i = 0; i < state.wanted.size(); ++i) {
      const FoundTensor &f = found.tensors[i];
      const int global = state.globalOf[i];
      if (f.tensor < 0 || global < 0 || !program.globals[global].saved)
        continue;
      const bool isTransposed = state.wanted[i].names[f.name].isTransposed;
      const GivenTensor &t = origin.weights.tensors[f.tensor];
      all[global] = sourceOf(global, t, isTransposed);
      addStates(all, global, t.name, isTransposed);
      for (const FoundTensor::Twin &twin : f.twins) // one name of a tied parameter has them
        addStates(all, global, origin.weights.tensors[twin.tensor].name, state.wanted[i].names[twin.name].isTransposed);
      if (origin.hasStates && lacksState(program.globals[global].saved, all))
        withoutState.push_back(t.name);
    }
    return all;
  }

  /// Of sources(): a part of another optimizer's state would be taken for this one's.
  void expectStates() const {
    if (!withoutState.empty())
      fail("'%s' has no state of the program's optimizer for %zu parameters: %s; was it saved by another optimizer?",
           origin.weights.path.c_str(), withoutState.size(), listedNames(withoutState).c_str());
    for (auto &[key, tensor] : origin.states)
      if (auto states = taken.find(key.first); states != taken.end() && !states->second.count(key.second))
        fail("'%s' has '%s' of '%s', which the program's optimizer has not; was it saved by another optimizer?",
             origin.weights.path.c_str(), key.second.c_str(), key.first.c_str());
  }

  FoundWeights found;

private:
  using States = decltype(Origin::states);

  Source sourceOf(int global, const GivenTensor &t, bool isTransposed) const {
    const zccrt_tensor &like = program.globals[global].t;
    return {origin.weights.files[t.file], {t.offset, t.elem, {like.dims, like.dims + like.ndim}, isTransposed}};
  }

  /// A state has an element for each of its parameter's.
  void expectLike(const zccrt_global &g, const GivenTensor &t, const std::string &state) const {
    int64_t count = 1;
    const bool isCounted =
        std::none_of(t.dims.begin(), t.dims.end(), [&](int64_t d) { return __builtin_mul_overflow(count, d, &count); });
    if (!isCounted || count != elementCount(g.t) || t.elem < 0 || !isFloat(t.elem))
      fail("'%s': '%s' of '%s' is %s%s, where the parameter is %s", origin.weights.files[t.file].c_str(), state.c_str(),
           t.name.c_str(), t.dtype.c_str(), shapeText(t.dims.data(), int(t.dims.size())).c_str(),
           shapeText(g.t.dims, g.t.ndim).c_str());
  }

  void addStates(std::map<int, Source> &all, int parameter, const std::string &name, bool isTransposed) {
    for (int k = 0; k < program.nglobals; ++k)
      if (auto s = stateFor(name, program.globals[parameter].saved, program.globals[k]); s != origin.states.end()) {
        expectLike(program.globals[k], s->second, s->first.second);
        all[k] = sourceOf(k, s->second, isTransposed);
        taken[name].insert(s->first.second);
      }
  }

  /// What DeepSpeed calls a state of an optimizer.
  States::const_iterator stateFor(const std::string &name, const std::string &parameter, const zccrt_global &g) const {
    constexpr std::pair<const char *, const char *> kStates[] = {{".m", "exp_avg"},
                                                                 {".v", "exp_avg_sq"},
                                                                 {".m", "momentum_buffer"},
                                                                 {".sum", "sum"},
                                                                 {".sum", "exp_avg_sq"}}; // the last of DeepSpeedCPUAdagrad
    for (auto &[suffix, theirs] : kStates)
      if (g.saved && g.saved == parameter + suffix)
        if (auto s = origin.states.find({name, theirs}); s != origin.states.end())
          return s;
    return origin.states.end();
  }

  bool lacksState(const std::string &parameter, const std::map<int, Source> &all) const {
    for (int k = 0; k < program.nglobals; ++k)
      for (const char *suffix : {".m", ".v", ".sum"})
        if (const char *saved = program.globals[k].saved; saved && saved == parameter + suffix && !all.count(k))
          return true;
    return false;
  }

  const zccrt_program &program;
  const Origin &origin;
  StateTensors state;
  std::vector<std::string> withoutState;
  std::map<std::string, std::set<std::string>> taken; ///< of each weight in the origin, which states
};

} // namespace

/// The data and its index, as the one rank of a program writes them.
static SavedFile writeData(const zccrt_program &p, const Arena &arena, const std::string &folder) {
  constexpr size_t kPage = 4096, kBuffer = 8 << 20; // bytes
  std::unique_ptr<char, void (*)(void *)> buffer(static_cast<char *>(std::aligned_alloc(kPage, kBuffer)), std::free);
  RankFiles files(folder, /*rank=*/0, {buffer.get(), kBuffer});
  for (HeldRun &h : heldRuns(p, /*rank=*/0)) {
    if (p.globals[h.global].saved_flags & ZCCRT_SAVED_IF_THERE)
      continue;
    h.saved.rank = -1; // of all ranks
    files.append(arena, h);
  }
  return files.finish();
}

static void writeCheckpoint(const Origin &origin, const std::string &program, const std::string &folder,
                            const std::vector<std::string> &maps) {
  Manifest m;
  m.exports = "export";
  std::string text = describe(program, folder + "/" + m.exports);
  m.exportsHash = hashBytes(text.data(), text.size());
  const Recipe recipe(std::move(text));
  m.model = recipe.program.model;
  m.modelHash = recipe.modelHash;
  m.step = origin.step;
  m.skipped = origin.skipped;
  m.samples = origin.samples;
  Matching matching(recipe.program, origin, maps);
  OriginArena arena(recipe.program, matching.sources());
  matching.expectStates();
  for (const std::string &n : origin.notes)
    printf("note: %s\n", n.c_str());
  for (const std::string &n : matching.found.notes)
    printf("note: %s\n", n.c_str());
  if (std::string left = leftOverText(matching.found, origin.weights); !left.empty())
    fprintf(stderr, "zcc-ckpt: warning: %s\n", left.c_str());
  if (!origin.hasStates)
    printf("note: '%s' has no optimizer's state: it starts as in a new run, at step 0\n", origin.weights.path.c_str());
  m.files = {writeData(recipe.program, arena, folder)};
  writeDurably(folder + "/" + kManifestName, toJson(m));
  flushFolder(folder);
}

void convertCheckpoint(const std::string &from, const std::string &program, const std::string &dir,
                       const std::vector<std::string> &maps) {
  const Origin origin = openOrigin(from);
  if (std::vector<int64_t> steps = stepsIn(dir); !steps.empty())
    fail("'%s' has checkpoints already, the last of them '%s'; give another folder", dir.c_str(),
         stepFolder(dir, steps.back()).c_str());
  std::random_device random;
  const std::string temporary = temporaryFolder(dir, origin.step, uint64_t(random()) << 32 | random());
  makeFolder(temporary);
  try {
    writeCheckpoint(origin, program, temporary, maps);
    nameCheckpoint(temporary, stepFolder(dir, origin.step));
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
  printf("wrote '%s' from '%s'\n", stepFolder(dir, origin.step).c_str(), from.c_str());
}
