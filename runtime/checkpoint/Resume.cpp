// Chooses a checkpoint, and reads a rank's runs of elements from the files that have them.
#include "runtime/checkpoint/Resume.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/Npy.h"
#include "runtime/checkpoint/SavedTensors.h"
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

namespace zccrt {

// ---- which

/// Every rank's text, cut to what fits.
static std::vector<std::string> exchangeText(Comm &comm, const std::string &mine) {
  struct Text {
    char bytes[8192];
  };
  auto text = std::make_unique<Text>();
  mine.copy(text->bytes, sizeof text->bytes - 1);
  std::vector<Text> all(comm.ranks);
  comm.exchange(text.get(), sizeof *text, all.data());
  std::vector<std::string> texts;
  for (const Text &t : all)
    texts.push_back(t.bytes);
  return texts;
}

/// What is wrong with a checkpoint; the same on every rank; "": it is sound. Each rank reads its share of the data.
static std::string problemOf(const std::string &folder, Comm &comm, Checkpoint &c) {
  std::string mine;
  try {
    c = openCheckpoint(folder);
    verifyData(c, comm.rank, comm.ranks);
  } catch (const std::exception &e) {
    mine = e.what();
  }
  for (const std::string &said : exchangeText(comm, mine))
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
  lines = exchangeText(comm, lines)[0];
  folders.clear();
  for (size_t at = 0, end; (end = lines.find('\n', at)) != std::string::npos; at = end + 1)
    folders.push_back(lines.substr(at, end - at));
  return folders;
}

std::optional<Checkpoint> findCheckpoint(const Options &o, Comm &comm, const Say &say, const Say &warn) {
  if (o.resume.empty())
    return std::nullopt;
  const bool isAuto = o.resume == "auto";
  const std::string dir = isAuto ? o.save : o.resume;
  std::vector<std::string> folders = candidates(dir, comm);
  if (folders.empty() && isAuto) {
    say("no checkpoint in '" + dir + "': the run starts anew");
    return std::nullopt;
  }
  std::string problem = "there is no checkpoint in '" + dir + "'";
  for (const std::string &folder : folders) {
    Checkpoint c;
    std::string wrong = problemOf(folder, comm, c);
    if (wrong.empty() && (isAuto || &folder == &folders[0]))
      return c;
    if (wrong.empty())
      problem += "\nnote: the one before it is sound: --resume=" + folder;
    else if (isAuto)
      warn("warning: " + wrong);
    if (&folder == &folders[0] || isAuto)
      problem = wrong;
    if (wrong.empty())
      break;
  }
  if (isAuto)
    problem = "no checkpoint in '" + dir + "' is sound; to start anew give another folder to --save";
  comm.agree(comm.rank == 0 ? problem : "");
  return std::nullopt; // not reached
}

// ---- what comes out of it

namespace {

/// The runs of each tensor, and the files they are in.
class Tensors {
public:
  explicit Tensors(const Checkpoint &c) : checkpoint(c) {
    for (size_t i = 0; i < c.runs.size(); ++i)
      for (const SavedRun &r : c.runs[i])
        tensors[r.tensor].push_back({&r, i});
  }

  struct Place {
    const SavedRun *run;
    size_t file;
  };
  /// Those whose values a rank takes: everybody's, or one rank's own.
  std::vector<Place> of(const SavedRun &wanted) const {
    std::vector<Place> places;
    auto found = tensors.find(wanted.tensor);
    if (found == tensors.end())
      return places;
    const int owner = std::max(wanted.rank, 0) % checkpoint.manifest.ranks;
    for (const Place &p : found->second)
      if (p.run->rank < 0 || p.run->rank == owner)
        places.push_back(p);
    return places;
  }

  const File &file(size_t i) {
    if (!files[i])
      files[i] = std::make_unique<File>(checkpoint.folder + "/" + checkpoint.manifest.files[i].data);
    return *files[i];
  }

private:
  const Checkpoint &checkpoint;
  std::map<std::string, std::vector<Place>> tensors;
  std::map<size_t, std::unique_ptr<File>> files;
};

class CheckpointLoader {
public:
  CheckpointLoader(const Checkpoint &c, const Arenas &arenas) : tensors(c), arenas(arenas) {}

  void load(const HeldRun &h) {
    int64_t found = 0;
    for (const Tensors::Place &place : tensors.of(h.saved))
      forEachCommon(h.saved.dims, place.run->run, h.saved.run, [&](int64_t from, int64_t to, int64_t n) {
        read(place, from, h, to, n);
        found += n;
      });
    if (found != h.saved.run.count)
      fail("the checkpoint has %lld of %lld elements of tensor '%s'", static_cast<long long>(found),
           static_cast<long long>(h.saved.run.count), h.saved.tensor.c_str());
  }

private:
  static constexpr int64_t kElements = 1 << 18; // at a time

  void read(const Tensors::Place &place, int64_t from, const HeldRun &h, int64_t to, int64_t count) {
    const File &file = tensors.file(place.file);
    const int elem = place.run->elem;
    const int64_t stored = elemBytes(elem), size = elemBytes(h.saved.elem);
    for (int64_t at = 0; at < count; at += kElements) {
      const int64_t n = std::min(kElements, count - at);
      arenas[h.space].write(h.offset + (to + at) * size, n * size, aside, [&](char *out) {
        const int64_t offset = place.run->offset + (from + at) * stored;
        if (elem == h.saved.elem)
          return file.read(offset, n * stored, out);
        buffer.resize(n * stored);
        file.read(offset, n * stored, buffer.data());
        convert(buffer.data(), elem, out, h.saved.elem, n);
      });
    }
  }

  Tensors tensors;
  const Arenas &arenas;
  std::vector<char> aside, buffer;
};

} // namespace

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

std::vector<bool> resumedGlobals(const zccrt_program &p, const Checkpoint &c) {
  if (c.manifest.modelHash != modelHash(p))
    fail("checkpoint '%s' is of another model ('%s'): names or shapes of its parameters are not this program's ('%s')",
         c.folder.c_str(), c.manifest.model.c_str(), p.model);
  Tensors tensors(c);
  std::vector<bool> resumed(p.nglobals);
  std::string missing;
  for (const HeldRun &h : heldRuns(p, /*rank=*/0)) {
    std::vector<Tensors::Place> places = tensors.of(h.saved);
    resumed[h.global] = !places.empty();
    if (!places.empty())
      expectAlike(c, *places[0].run, h.saved);
    else if (!(p.globals[h.global].saved_flags & ZCCRT_SAVED_IF_THERE))
      missing += (missing.empty() ? "'" : ", '") + h.saved.tensor + "'";
  }
  if (!missing.empty())
    fail("checkpoint '%s' lacks %s; was it saved by a program with another optimizer?", c.folder.c_str(), missing.c_str());
  return resumed;
}

void loadCheckpoint(const zccrt_program &p, const Checkpoint &c, const Arenas &arenas, int rank) {
  std::vector<bool> resumed = resumedGlobals(p, c);
  CheckpointLoader loader(c, arenas);
  for (const HeldRun &h : heldRuns(p, rank))
    if (resumed[h.global])
      loader.load(h);
}

} // namespace zccrt
