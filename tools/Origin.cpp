// Reads state_dicts, and DeepSpeed's universal checkpoints: zero/PARAM/{fp32,exp_avg,exp_avg_sq}.pt, and beside zero/ the model
// states, which have the step, shapes and buffers.
#include "tools/Origin.h"
#include "runtime/Fail.h"
#include "runtime/Npy.h"
#include "runtime/Options.h"
#include "runtime/weights/TorchFile.h"
#include <algorithm>
#include <filesystem>

using namespace zccrt;
namespace fs = std::filesystem;

/// The files of a folder, sorted.
static std::vector<fs::path> filesIn(const fs::path &folder) {
  std::vector<fs::path> all;
  std::error_code error;
  for (const fs::directory_entry &e : fs::directory_iterator(folder, error))
    all.push_back(e.path());
  std::sort(all.begin(), all.end());
  return all;
}

static std::vector<fs::path> filesIn(const fs::path &folder, const char *tail) {
  std::vector<fs::path> all = filesIn(folder);
  std::erase_if(all, [&](const fs::path &p) { return !endsWith(p.string(), tail); });
  return all;
}

// ---- PyTorch

static GivenFiles openStateDict(const std::string &path) {
  GivenFiles given{path, {path}, TorchFile(path).stateDict()};
  return given;
}

// ---- DeepSpeed

namespace {

class UniversalReader {
public:
  explicit UniversalReader(const std::string &path) : path(path) { origin.weights.path = path; }

  Origin read() {
    const std::vector<fs::path> models = filesIn(path, "_model_states.pt");
    if (models.empty())
      fail("'%s' has no *_model_states.pt, which says the step; give ds_to_universal's --output_folder as it was written",
           path.c_str());
    const TorchFile model(models[0].string());
    readShapes(model);
    for (const fs::path &parameter : filesIn(fs::path(path) / "zero"))
      if (fs::exists(parameter / "fp32.pt"))
        readParameter(parameter);
    readOthers(model);
    auto number = [&](const char *key) {
      const PickleValue *v = model.pickle().find(model.pickle().root(), key);
      return v && v->kind == PickleValue::Int ? v->number : 0;
    };
    origin.step = number("global_steps");
    origin.skipped = number("skipped_steps");
    origin.samples = number("global_samples");
    origin.hasStates = true;
    return std::move(origin);
  }

private:
  int addFile(const std::string &file) {
    origin.weights.files.push_back(file);
    return static_cast<int>(origin.weights.files.size()) - 1;
  }

  /// Stage 3 leaves parameters flat: their shapes are with the model.
  void readShapes(const TorchFile &model) {
    const Pickle &p = model.pickle();
    const PickleValue *groups = p.find(p.root(), "param_shapes");
    if (!groups || groups->kind != PickleValue::List)
      return;
    for (int group : groups->items)
      for (size_t i = 0; p[group].kind == PickleValue::Dict && i + 1 < p[group].items.size(); i += 2)
        shapes[p[p[group].items[i]].text] = p.numbers(p[p[group].items[i + 1]]);
  }

  GivenTensor readTensor(const std::string &name, const fs::path &file) {
    GivenTensor t = TorchFile(file.string()).onlyTensor();
    t.name = name;
    t.file = addFile(file.string());
    auto shape = shapes.find(name);
    if (shape == shapes.end())
      return t;
    auto count = [](const std::vector<int64_t> &dims) {
      int64_t n = 1;
      for (int64_t d : dims)
        if (d < 0 || __builtin_mul_overflow(n, d, &n))
          return INT64_MAX;
      return n;
    };
    if (count(t.dims) < count(shape->second)) // a shard's padding may lie behind
      fail("'%s' has %lld elements, '%s' has %lld", file.c_str(), static_cast<long long>(count(t.dims)), name.c_str(),
           static_cast<long long>(count(shape->second)));
    t.dims = shape->second;
    return t;
  }

  void readParameter(const fs::path &folder) {
    const std::string name = folder.filename().string();
    origin.weights.tensors.push_back(readTensor(name, folder / "fp32.pt"));
    for (const fs::path &file : filesIn(folder, ".pt"))
      if (const std::string state = file.stem().string(); state != "fp32" && state != "step")
        origin.states[{name, state}] = readTensor(name, file);
  }

  /// Buffers, and what is not trained.
  void readOthers(const TorchFile &model) {
    if (const PickleValue *module = model.pickle().find(model.pickle().root(), "module");
        !module || module->kind != PickleValue::Dict)
      return;
    int file = -1;
    for (GivenTensor t : model.stateDict()) {
      const bool isKnown = std::any_of(origin.weights.tensors.begin(), origin.weights.tensors.end(),
                                       [&](const GivenTensor &other) { return other.name == t.name; });
      if (isKnown || !t.bytes) // a parameter of stage 3 is empty here
        continue;
      if (file < 0)
        file = addFile(model.path);
      t.file = file;
      origin.weights.tensors.push_back(t);
    }
  }

  const std::string path;
  Origin origin;
  std::map<std::string, std::vector<int64_t>> shapes;
};

} // namespace

/// The folder that has the ranks' parts of a ZeRO checkpoint; "": this is none.
static std::string partsOf(const std::string &path) {
  if (!filesIn(path, "_optim_states.pt").empty())
    return path;
  for (const fs::path &folder : filesIn(path))
    if (!filesIn(folder, "_optim_states.pt").empty())
      return folder.string();
  return "";
}

Origin openOrigin(const std::string &path) {
  std::error_code error;
  const bool isFolder = fs::is_directory(path, error);
  if (!isFolder && (endsWith(path, ".pt") || endsWith(path, ".bin") || endsWith(path, ".pth")))
    return {openStateDict(path)};
  if (!isFolder)
    return {openGiven(path)};
  if (fs::is_directory(fs::path(path) / "zero", error))
    return UniversalReader(path).read();
  if (const std::string parts = partsOf(path); !parts.empty())
    fail("'%s' has the parts of a ZeRO checkpoint, which DeepSpeed joins; then convert '%s-universal':\n  python -m "
         "deepspeed.checkpoint.ds_to_universal --inject_missing_state --input_folder %s --output_folder %s-universal",
         parts.c_str(), parts.c_str(), parts.c_str(), parts.c_str());
  return {openGiven(path)};
}
