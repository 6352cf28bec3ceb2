// Points the program's globals to the files that are given.
#include "runtime/weights/GivenWeights.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/Hash.h"
#include "runtime/Npy.h"
#include "runtime/Options.h"
#include "runtime/Weights.h"
#include "runtime/checkpoint/SavedTensors.h"
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <unistd.h>

namespace zccrt {

namespace fs = std::filesystem;

/// The model's own files that a folder has; what is a safetensors file goes by name.
static std::vector<std::string> ownFilesIn(const zccrt_program &p, const std::string &folder) {
  std::vector<std::string> own;
  for (int i = p.weights_bytes ? -1 : 0; i < p.nfiles; ++i)
    if (std::string path = weightsPath(p, i, folder); !endsWith(path, ".safetensors") && access(path.c_str(), F_OK) == 0)
      own.push_back(path);
  return own;
}

/// Whether --weights goes by the names of tensors, not by those of the model's own files.
static bool goesByName(const zccrt_program &p, const std::string &weights) {
  std::error_code error;
  if (weights.empty())
    return false;
  if (!fs::is_directory(weights, error))
    return true;
  const std::vector<std::string> own = ownFilesIn(p, weights), others = safetensorsIn(weights);
  if (!own.empty() && !others.empty())
    fail("--weights=%s: it has the model's own '%s' and '%s': which is meant? name a file, or keep them in two folders",
         weights.c_str(), own[0].c_str(), others[0].c_str());
  if (own.empty() && others.empty()) {
    std::string expected;
    for (int i = p.weights_bytes ? -1 : 0; i < p.nfiles; ++i)
      expected += (expected.empty() ? ", nor the model's own: '" : ", '") + weightsPath(p, i, weights) + "'";
    fail("--weights=%s: there is no safetensors file%s", weights.c_str(), expected.c_str());
  }
  return !others.empty();
}

GivenWeights::GivenWeights(const zccrt_program &p, const std::string &weights, const std::vector<std::string> &maps)
    : program(p), state(p) {
  if (goesByName(p, weights)) {
    given = openGiven(weights);
    take(maps);
  } else {
    ownFolder = weights;
    if (!maps.empty())
      fail("--weights-map gives tensors of safetensors files other names; there is no --weights that names such a file");
  }
}

StateTensors::StateTensors(const zccrt_program &program) {
  std::map<int, size_t> number;
  for (int i = 0; i < program.nweights; ++i) {
    const zccrt_weight &w = program.weights[i];
    int global = w.data.global;
    while (global >= 0 && isAlias(program, program.globals[global]))
      global = program.globals[global].copy_of;
    auto [known, isNew] = number.try_emplace(global, wanted.size());
    if (isNew || global < 0) {
      known->second = wanted.size();
      wanted.push_back({{}, global < 0 ? w.t.elem : program.globals[global].t.elem, global < 0});
      globalOf.push_back(global);
      weightOf.push_back(&w);
    }
    wanted[known->second].names.push_back({w.name, {w.t.dims, w.t.dims + w.t.ndim}, bool(w.data.transposed)});
  }
}

/// A global starts from a tensor of a file.
void GivenWeights::point(int global, const FoundTensor &f, const WantedTensor &w) {
  zccrt_global &g = globals[global];
  if (g.init == ZCCRT_INIT_COPY || g.init == ZCCRT_INIT_BOX)
    return; // as what it is of
  const GivenTensor &t = given.tensors[f.tensor];
  g.init = ZCCRT_INIT_FILE;
  g.file = program.nfiles + t.file;
  g.file_offset = t.offset;
  g.file_bytes = t.bytes;
  g.file_elem = t.elem;
  g.transposed = w.names[f.name].isTransposed;
  g.hash = 0;
}

void GivenWeights::take(const std::vector<std::string> &maps) {
  const std::vector<WantedTensor> &wanted = state.wanted;
  const std::vector<int> &globalOf = state.globalOf;
  found = findWeights(wanted, given, maps, MissingWeights::Refuse);
  globals.assign(program.globals, program.globals + program.nglobals);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (globalOf[i] < 0 || found.tensors[i].tensor < 0)
      continue;
    point(globalOf[i], found.tensors[i], wanted[i]);
    // A parameter and its master have one name in checkpoints.
    if (const char *saved = globals[globalOf[i]].saved)
      for (int k = 0; k < program.nglobals; ++k)
        if (k != globalOf[i] && globals[k].saved && std::strcmp(globals[k].saved, saved) == 0)
          point(k, found.tensors[i], wanted[i]);
  }
  files.assign(program.files, program.files + program.nfiles);
  std::string headers;
  for (const std::string &file : given.files)
    files.push_back(paths.emplace_back(fs::absolute(file).string()).c_str());
  for (const GivenTensor &t : given.tensors)
    headers += format("%s %s %lld %lld\n", t.name.c_str(), t.dtype.c_str(), static_cast<long long>(t.offset),
                      static_cast<long long>(t.bytes));
  hash = hashBytes(headers.data(), headers.size());
  program.globals = globals.data();
  program.files = files.data();
  program.nfiles = static_cast<int32_t>(files.size());
  notes = found.notes;
  if (std::string text = leftOverText(found, given); !text.empty())
    warnings.push_back(text);
}

/// Whether a tensor of a file is what the program has in itself.
bool GivenWeights::isSameData(const zccrt_weight &w, const GivenTensor &t) const {
  if (t.elem != w.t.elem || t.bytes != w.data.nbytes)
    return false;
  std::string bytes(t.bytes, ' ');
  File(given.files[t.file]).read(t.offset, t.bytes, bytes.data());
  return std::memcmp(bytes.data(), w.data.bytes, t.bytes) == 0;
}

void GivenWeights::expectEqual() const {
  if (given.files.empty())
    return;
  std::vector<std::string> other;
  for (size_t i = 0; i < state.wanted.size(); ++i)
    if (const int tensor = found.tensors[i].tensor; state.globalOf[i] < 0 && tensor >= 0)
      if (!isSameData(*state.weightOf[i], given.tensors[tensor]))
        other.push_back(state.weightOf[i]->name);
  if (!other.empty())
    fail("the program has other values of %s compiled in than '%s' has; give --weights to zcc", listedNames(other).c_str(),
         given.path.c_str());
  expectTwinsEqual(state.wanted, found, given);
}

} // namespace zccrt
