// Reads state_dicts, and DeepSpeed's universal checkpoints: zero/PARAM/{fp32,exp_avg,exp_avg_sq}.pt, and beside zero/ the model
// states, which have the step, shapes and buffers.
#include "tools/Origin.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/Npy.h"
#include "runtime/Options.h"
#include "runtime/OutFile.h"
#include "runtime/weights/TorchFile.h"
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <unistd.h>

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

/// The bytes of a tensor in order, of the part of its file that it has elements of.
static std::vector<char> inOrder(const GivenTensor &t, const std::vector<char> &part) {
  const int64_t size = elemBytes(t.elem);
  std::vector<char> all(t.bytes);
  std::vector<int64_t> index(t.dims.size());
  for (int64_t to = 0, from = 0; to < t.bytes; to += size) {
    std::memcpy(&all[to], &part[from * size], size);
    for (size_t axis = t.dims.size(); axis-- > 0;) {
      from += t.strides[axis];
      if (++index[axis] < t.dims[axis])
        break;
      from -= index[axis] * t.strides[axis];
      index[axis] = 0;
    }
  }
  return all;
}

/// Tensors such as those of channels_last or of transposed layers are copied, so that the rest finds their elements in order.
static void putInOrder(Origin &origin) {
  constexpr int64_t kMost = 96 << 20; // bytes, of the part and of the copy
  GivenFiles &w = origin.weights;
  for (GivenTensor &t : w.tensors) {
    if (t.strides.empty())
      continue;
    int64_t elements = 1;
    for (size_t i = 0; i < t.dims.size(); ++i)
      elements += (t.dims[i] - 1) * t.strides[i];
    const int64_t partBytes = elements * elemBytes(t.elem);
    if (std::max(partBytes, t.bytes) > kMost)
      fail("'%s': tensor '%s' is a view that is larger than %lld MiB; save tensor.contiguous()", w.files[t.file].c_str(),
           t.name.c_str(), static_cast<long long>(kMost >> 20));
    if (!origin.inOrder) {
      origin.inOrder = {std::tmpfile(), [](FILE *f) { f ? fclose(f) : 0; }};
      if (!origin.inOrder)
        failErrno("cannot write a temporary file");
      w.files.push_back(format("/proc/self/fd/%d", fileno(origin.inOrder.get())));
    }
    std::vector<char> part(partBytes);
    File(w.files[t.file]).read(t.offset, partBytes, part.data());
    const std::vector<char> all = inOrder(t, part);
    t.offset = lseek(fileno(origin.inOrder.get()), 0, SEEK_CUR);
    if (!writeAll(fileno(origin.inOrder.get()), all.data(), all.size()))
      failErrno("cannot write a temporary file");
    t.file = static_cast<int>(w.files.size()) - 1;
    t.strides.clear();
  }
}

/// "'x.pt': taken is what is under 'model', not 'optimizer', 'step'"
static std::string whatIsTaken(const TorchFile &file, const std::string &under) {
  const Pickle &p = file.pickle();
  std::vector<std::string> left;
  for (size_t i = 0; i + 1 < p.root().items.size(); i += 2)
    if (const PickleValue &key = p[p.root().items[i]]; key.kind == PickleValue::String && key.text != under)
      left.push_back(key.text);
  return format("'%s': taken is what is under '%s'", file.path.c_str(), under.c_str()) +
         (left.empty() ? "" : ", not " + listedNames(left));
}

static Origin openStateDict(const std::string &path) {
  const TorchFile file(path);
  std::string under;
  Origin origin;
  origin.weights = {path, {path}, file.stateDict(&under)};
  if (!under.empty())
    origin.notes.push_back(whatIsTaken(file, under));
  putInOrder(origin);
  return origin;
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
    readShared(model);
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

  /// Names of parameters that have another, under which the optimizer knows them; and what the module has itself.
  void readShared(const TorchFile &model) {
    const Pickle &p = model.pickle();
    if (const PickleValue *names = p.find(p.root(), "shared_params"); names && names->kind == PickleValue::Dict)
      for (size_t i = 0; i + 1 < names->items.size(); i += 2)
        shared[p[names->items[i]].text] = p[names->items[i + 1]].text;
    if (const PickleValue *module = p.find(p.root(), "module"); module && module->kind == PickleValue::Dict)
      for (const GivenTensor &t : model.stateDict())
        if (t.bytes)
          own.insert(t.name);
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
    bool hasStates = false;
    for (const fs::path &file : filesIn(folder, ".pt"))
      if (const std::string state = file.stem().string(); state != "fp32" && state != "step") {
        origin.states[{name, state}] = readTensor(name, file);
        hasStates = true;
      }
    // Without states it is what ds_to_universal made of the module's tensor: a float of a buffer, or of a 16-bit copy of a
    // parameter that the optimizer knows by another name.
    fs::path source = folder;
    if (auto other = shared.find(name); !hasStates && other != shared.end())
      source = folder.parent_path() / other->second;
    else if (!hasStates && own.count(name))
      return;
    origin.weights.tensors.push_back(readTensor(name, (fs::exists(source / "fp32.pt") ? source : folder) / "fp32.pt"));
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
      if (!t.strides.empty())
        fail("'%s': tensor '%s' is a view of another", model.path.c_str(), t.name.c_str());
      if (file < 0)
        file = addFile(model.path);
      t.file = file;
      origin.weights.tensors.push_back(t);
    }
  }

  const std::string path;
  Origin origin;
  std::map<std::string, std::vector<int64_t>> shapes;
  std::map<std::string, std::string> shared;
  std::set<std::string> own;
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
    return openStateDict(path);
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
