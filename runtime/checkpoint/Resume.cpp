// Chooses a checkpoint, and reads a rank's runs of elements from the files that have them.
#include "runtime/checkpoint/Resume.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/checkpoint/SavedTensors.h"
#include "runtime/checkpoint/TensorReader.h"
#include <algorithm>
#include <cstring>

namespace zccrt {

// ---- which

/// What is wrong with a checkpoint; the same on every rank; "": it is sound. Each rank reads its share of the data.
static std::string problemOf(const std::string &folder, Comm &comm, Checkpoint &c) {
  std::string mine;
  try {
    c = openCheckpoint(folder);
    verifyData(c, comm.rank, comm.ranks);
  } catch (const std::exception &e) {
    mine = e.what();
  }
  for (const std::string &said : comm.exchangeText(mine))
    if (!said.empty())
      return said;
  return "";
}

/// As rank 0 sees them.
static std::vector<std::string> candidates(const std::string &dir, Comm &comm) {
  constexpr size_t kMost = 8;
  std::string lines;
  std::vector<std::string> folders = checkpointsFrom(dir);
  for (size_t i = 0; i < std::min(folders.size(), kMost); ++i)
    lines += folders[i] + "\n";
  return linesOf(comm.exchangeText(lines)[0]);
}

/// The newest of these that is sound, and what is wrong with the newest of all.
static std::optional<Checkpoint> newestSound(const std::vector<std::string> &folders, Comm &comm,
                                             std::vector<std::string> &wrong) {
  for (const std::string &folder : folders) {
    Checkpoint c;
    std::string problem = problemOf(folder, comm, c);
    if (problem.empty())
      return c;
    wrong.push_back(std::move(problem));
  }
  return std::nullopt;
}

std::optional<Checkpoint> findCheckpoint(const Options &o, Comm &comm, const Say &say, const Say &warn) {
  if (o.resume.empty())
    return std::nullopt;
  const bool isAuto = o.resume == "auto";
  const std::string dir = isAuto ? o.save : o.resume;
  std::vector<std::string> folders = candidates(dir, comm), wrong;
  if (folders.empty() && isAuto) {
    say("no checkpoint in '" + dir + "': the run starts anew");
    return std::nullopt;
  }
  std::optional<Checkpoint> sound = newestSound(folders, comm, wrong);
  for (size_t i = 0; sound && isAuto && i < wrong.size(); ++i)
    warn(wrong[i]);
  if (sound && (isAuto || wrong.empty()))
    return sound;
  std::string problem = folders.empty() ? "there is no checkpoint in '" + dir + "'" : wrong[0];
  if (sound)
    problem += "\nnote: the one before it is sound: --resume=" + sound->folder;
  else if (folders.size() > 1)
    problem += "\nnote: no other in that folder is sound";
  comm.agree(problem);
  return std::nullopt; // not reached
}

// ---- what comes out of it

/// A run that this rank holds, as much at a time as is converted and copied at once.
static void load(TensorReader &reader, const HeldRun &h, const Arenas &arenas, std::vector<char> &aside) {
  constexpr int64_t kElements = 1 << 20;
  const int64_t size = elemBytes(h.saved.elem);
  for (int64_t at = 0; at < h.saved.run.count; at += kElements) {
    SavedRun part = h.saved;
    part.run.begin += at;
    part.run.count = std::min(kElements, h.saved.run.count - at);
    arenas[h.space].write(h.offset + at * size, part.run.count * size, aside, [&](char *out) { reader.read(part, out); });
  }
}

static std::string textOf(const std::vector<int64_t> &dims) { return shapeText(dims.data(), static_cast<int>(dims.size())); }

/// Throws where the saved tensor cannot become the program's.
static void expectAlike(const Checkpoint &c, const SavedRun &saved, const SavedRun &wanted) {
  if (saved.dims != wanted.dims)
    fail("tensor '%s' is %s in checkpoint '%s', and %s in this program", wanted.tensor.c_str(), textOf(saved.dims).c_str(),
         c.folder.c_str(), textOf(wanted.dims).c_str());
  if (isFloat(saved.elem) != isFloat(wanted.elem))
    fail("tensor '%s' is %s in checkpoint '%s', and %s in this program", wanted.tensor.c_str(), elemName(saved.elem),
         c.folder.c_str(), elemName(wanted.elem));
}

std::vector<std::string> doubtsAbout(const zccrt_program &p, const Checkpoint &c) {
  std::vector<std::string> doubts;
  if (c.manifest.graphHash && graphHash(p) && c.manifest.graphHash != graphHash(p))
    doubts.push_back(format("checkpoint '%s' is of another graph ('%s') with the same parameters; the run goes on with this "
                            "program's ('%s')",
                            c.folder.c_str(), c.manifest.model.c_str(), p.model));
  if (p.optimizer && !c.manifest.optimizer.empty() && c.manifest.optimizer != p.optimizer)
    doubts.push_back(format("checkpoint '%s' was saved by a program with another optimizer, %s; %s goes on with what it has of "
                            "the state",
                            c.folder.c_str(), c.manifest.optimizer.c_str(), p.optimizer));
  try {
    readExports(c);
  } catch (const Failure &e) {
    doubts.push_back(format("%s; zcc-ckpt cannot export it", e.what()));
  }
  std::vector<std::string> parameters, held, unused;
  for (const HeldRun &h : heldRuns(p, /*rank=*/0)) {
    held.push_back(h.saved.tensor);
    if (p.globals[h.global].role == 0)
      parameters.push_back(h.saved.tensor + ".");
  }
  for (const std::string &name : TensorReader(c).names()) {
    bool isState = std::any_of(parameters.begin(), parameters.end(), [&](auto &prefix) { return name.rfind(prefix, 0) == 0; });
    if (isState && std::find(held.begin(), held.end(), name) == held.end())
      unused.push_back(name);
  }
  if (!unused.empty())
    doubts.push_back(
        format("this program has no use for %zu tensor%s of checkpoint '%s', such as '%s'; was it saved by a program "
               "with another optimizer?",
               unused.size(), unused.size() == 1 ? "" : "s", c.folder.c_str(), unused[0].c_str()));
  return doubts;
}

std::vector<bool> resumedGlobals(const zccrt_program &p, const Checkpoint &c) {
  if (c.manifest.modelHash != modelHash(p))
    fail("checkpoint '%s' is of another model ('%s'): names or shapes of its parameters are not this program's ('%s')",
         c.folder.c_str(), c.manifest.model.c_str(), p.model);
  const TensorReader reader(c);
  std::vector<bool> resumed(p.nglobals);
  std::string missing;
  for (const HeldRun &h : heldRuns(p, /*rank=*/0)) {
    const std::vector<TensorReader::Place> places = reader.placesOf(h.saved);
    resumed[h.global] = !places.empty();
    if (!places.empty())
      expectAlike(c, *places[0].run, h.saved);
    else if (!(p.globals[h.global].saved_flags & ZCCRT_SAVED_IF_THERE))
      missing += (missing.empty() ? "'" : ", '") + h.saved.tensor + "'";
  }
  if (!missing.empty())
    fail("checkpoint '%s' lacks %s; was it saved by a program with another optimizer?", c.folder.c_str(), missing.c_str());
  for (int i = 0; i < p.nglobals; ++i) // a tensor is there where its boxes are
    if (const zccrt_global &g = p.globals[i]; g.init == ZCCRT_INIT_BOX)
      resumed[g.copy_of] = resumed[i];
  return resumed;
}

void loadCheckpoint(const zccrt_program &p, const Checkpoint &c, const Arenas &arenas, int rank) {
  std::vector<bool> resumed = resumedGlobals(p, c);
  TensorReader reader(c);
  std::vector<char> aside;
  for (const HeldRun &h : heldRuns(p, rank))
    if (resumed[h.global])
      load(reader, h, arenas, aside);
}

} // namespace zccrt
