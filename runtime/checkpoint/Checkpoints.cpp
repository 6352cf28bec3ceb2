// The course of a save, from its beginning on all ranks to its name.
#include "runtime/checkpoint/Checkpoints.h"
#include "runtime/Fail.h"
#include "runtime/Hash.h"
#include "runtime/checkpoint/Recipe.h"
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <random>
#include <unistd.h>

namespace zccrt {

/// Whether a checkpoint is one of a folder's, by its name: it may be a link.
static bool isIn(const Checkpoint &c, const std::string &dir) {
  std::error_code error;
  const std::filesystem::path above = std::filesystem::path(c.folder).parent_path();
  return std::filesystem::equivalent(above.empty() ? "." : above, dir, error);
}

Checkpoints::Checkpoints(const zccrt_program &p, const Options &o, Comm &comm, const Arenas &arenas,
                         const std::optional<Checkpoint> &resumed, Say warn)
    : program(p), options(o), comm(comm), dir(o.save), warn(std::move(warn)), saver(p, arenas, comm.rank) {
  manifest.step = begun = resumed ? resumed->manifest.step : -1; // what is there need not be saved again
  std::string error;
  try {
    if (comm.rank == 0) {
      makeFolder(dir);
      if (access(dir.c_str(), W_OK | X_OK) != 0)
        failErrno("cannot write to the folder '%s'", dir.c_str());
      const std::vector<int64_t> steps = stepsIn(dir);
      const std::string last = steps.empty() ? "" : stepFolder(dir, steps.back());
      if (!steps.empty() && !(resumed && isIn(*resumed, dir)))
        fail("'%s' has checkpoints of another run, the last of them '%s'; go on from there with --resume=auto, or give another "
             "folder to --save",
             dir.c_str(), last.c_str());
      if (o.resume != "auto" && !steps.empty() && steps.back() > manifest.step)
        this->warn(
            format("'%s' is of a run that went further than where this one begins; --resume=auto would take it, until this "
                   "one is as far",
                   last.c_str()));
      removeUnfinished(dir);
    }
  } catch (const std::exception &e) {
    error = e.what();
  }
  comm.agree(error);
  std::random_device random;
  run = uint64_t(random()) << 32 | random();
  comm.broadcast(&run, sizeof run);
  useSaver(&saver);
}

Checkpoints::~Checkpoints() { useSaver(nullptr); }

void Checkpoints::begin(const Manifest &m) {
  finish();
  why.clear();
  isLost = false;
  manifest = m;
  isWriting = true;
  saver.start(temporaryFolder(dir, m.step, run));
}

SaveStatus Checkpoints::status() const {
  if (!isWriting)
    return {};
  if (!saver.isDone())
    return {SaveStatus::Writing};
  if (!saver.error().empty())
    return {SaveStatus::Failed};
  return {SaveStatus::Done, saver.file().bytes, saver.file().indexHash};
}

void Checkpoints::settle(const std::vector<SaveStatus> &all) {
  auto count = [&](SaveStatus::State s) { return std::count_if(all.begin(), all.end(), [&](auto &r) { return r.state == s; }); };
  if (!isWriting || count(SaveStatus::Writing))
    return;
  isWriting = false;
  const std::string folder = temporaryFolder(dir, manifest.step, run);
  isLost = count(SaveStatus::Failed);
  if (isLost) {
    why = saver.error();
    if (!why.empty())
      warn(format("checkpoint '%s' could not be saved: %s; those before it are as they were", lastFolder().c_str(), why.c_str()));
    if (comm.rank == 0)
      saver.startJob([folder] {
        std::error_code ignored;
        std::filesystem::remove_all(folder, ignored);
      });
    return;
  }
  if (comm.rank != 0)
    return;
  for (int r = 0; r < comm.ranks; ++r)
    manifest.files.push_back({format("rank-%d.data", r), format("rank-%d.json", r), all[r].bytes, all[r].indexHash});
  saver.startJob([this, folder] {
    try {
      commit();
    } catch (...) {
      std::error_code ignored;
      std::filesystem::remove_all(folder, ignored);
      throw;
    }
  });
}

/// All ranks have written their files; whether they are in this folder, too. A folder of a network may show them late.
static void expectFiles(const std::string &folder, const Manifest &m) {
  constexpr int kLooks = 50;
  constexpr timespec kPause = {0, 100'000'000};
  auto isThere = [&](const SavedFile &f) {
    std::error_code error;
    return std::filesystem::file_size(folder + "/" + f.data, error) == uintmax_t(f.bytes) &&
           std::filesystem::exists(folder + "/" + f.index, error);
  };
  for (size_t r = 0; r < m.files.size(); ++r)
    for (int i = 0; !isThere(m.files[r]); ++i) {
      if (i == kLooks)
        fail("what rank %zu has written is not in '%s' here: --save needs a folder that all nodes share", r, folder.c_str());
      nanosleep(&kPause, nullptr);
    }
}

void Checkpoints::commit() {
  const std::string temporary = temporaryFolder(dir, manifest.step, run);
  expectFiles(temporary, manifest);
  const std::string recipe = recipeOf(program, options.weights);
  manifest.exports = "export";
  manifest.exportsHash = hashBytes(recipe.data(), recipe.size());
  writeDurably(temporary + "/" + manifest.exports, recipe);
  writeDurably(temporary + "/" + kManifestName, toJson(manifest));
  flushFolder(temporary);
  nameCheckpoint(temporary, lastFolder());
  written.push_back(manifest.step);
  if (options.keep) {
    std::vector<int64_t> steps = stepsIn(dir);
    std::erase_if(steps, [&](int64_t s) { return s > manifest.step; });
    // First what another run has made of the checkpoint that this one began from.
    std::stable_partition(steps.begin(), steps.end(),
                          [&](int64_t s) { return s > begun && std::find(written.begin(), written.end(), s) == written.end(); });
    removeOlder(dir, steps, options.keep);
  }
}

void Checkpoints::finish() {
  saver.wait();
  if (isWriting) {
    const SaveStatus mine = status();
    std::vector<SaveStatus> all(comm.ranks);
    comm.exchange(&mine, sizeof mine, all.data());
    settle(all);
  }
  saver.wait();
  if (comm.rank == 0 && why.empty() && !saver.error().empty()) {
    why = saver.error();
    warn(format("checkpoint '%s' could not be saved: %s; those before it are as they were", lastFolder().c_str(), why.c_str()));
  }
}

} // namespace zccrt
