// Finds tensors by name as a compiled program does (runtime/weights), and notes where they are.
#include "frontend/parameters/TakeWeights.h"
#include "runtime/Fail.h"
#include "runtime/Npy.h"
#include "runtime/weights/RunReader.h"
#include "runtime/weights/WeightNames.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace zcc;
using llvm::StringRef;

/// What the runtime's functions throw as an error.
template <class Fn> static llvm::Error caught(Fn f) {
  try {
    f();
  } catch (const zccrt::Failure &e) {
    return error(e.what());
  }
  return llvm::Error::success();
}

llvm::Expected<std::string> zcc::dataFolderOf(const ImportOptions &options) {
  std::string folder;
  if (!options.weightsMap.empty() && options.weights.empty())
    return error("--weights-map needs --weights=FILE");
  if (auto e = caught([&] {
        if (llvm::sys::fs::is_directory(options.weights) && zccrt::safetensorsIn(options.weights).empty())
          folder = options.weights;
      }))
    return e;
  if (!folder.empty() && !options.weightsMap.empty())
    return error("--weights-map: '" + folder + "' has no safetensors file whose tensors could have other names");
  return folder;
}

/// A folder that has safetensors files must not have the model's own data.
static llvm::Error checkFolder(const OnnxFile &file, const std::string &weights) {
  if (!llvm::sys::fs::is_directory(weights))
    return llvm::Error::success();
  for (const Initializer &t : file.initializers) {
    llvm::SmallString<256> own(weights);
    llvm::sys::path::append(own, t.file);
    if (!t.file.empty() && !StringRef(t.file).ends_with(".safetensors") && llvm::sys::fs::exists(own))
      return error("--weights=" + weights + ": it has the model's own '" + own.str() +
                   "' and safetensors files: which is meant? name a file, or keep them in two folders");
  }
  return llvm::Error::success();
}

namespace {

/// The state_dict's tensors, each with all of its names.
class Taking {
public:
  Taking(OnnxFile &file, const ImportOptions &options, Parameters &parameters, ImportReport &report)
      : file_(file), options_(options), report_(report) {
    llvm::MapVector<const void *, size_t> number;
    for (const StateName &s : parameters.state()) {
      const void *key = s.parameter ? static_cast<const void *>(s.parameter) : s.source;
      auto [known, isNew] = number.insert({key, wanted_.size()});
      if (isNew) {
        wanted_.push_back({{}, int(*s.source->elem), !s.parameter && s.source->place != Initializer::Missing});
        states_.push_back(&s);
      }
      wanted_[known->second].names.push_back({s.name, {s.dims.begin(), s.dims.end()}, s.transposed});
    }
  }

  llvm::Error run() {
    if (auto e = caught([&] {
          given_ = zccrt::openGiven(options_.weights);
          auto missing = options_.init.empty() ? zccrt::MissingWeights::Refuse : zccrt::MissingWeights::Allow;
          found_ = zccrt::findWeights(wanted_, given_, options_.weightsMap, missing);
          zccrt::expectTwinsEqual(wanted_, found_, given_);
          for (size_t i = 0; i < wanted_.size(); ++i)
            if (found_.tensors[i].tensor >= 0)
              take(i);
        }))
      return e;
    for (const std::string &n : found_.notes)
      report_.warnings.push_back(n);
    if (std::string text = zccrt::leftOverText(found_, given_); !text.empty())
      report_.warnings.push_back(text);
    if (!found_.missing.empty())
      report_.warnings.push_back(
          "'" + given_.path + "' lacks " + std::to_string(found_.missing.size()) +
          " tensors, which start as the model's file or --init says: " + zccrt::listedNames(found_.missing));
    return llvm::Error::success();
  }

private:
  void take(size_t i) {
    const StateName &s = *states_[i];
    const zccrt::GivenTensor &t = given_.tensors[found_.tensors[i].tensor];
    const bool isTransposed = wanted_[i].names[found_.tensors[i].name].isTransposed;
    if (!s.parameter)
      return replace(*s.source, t, isTransposed);
    llvm::SmallString<256> path(given_.files[t.file]);
    llvm::sys::fs::make_absolute(path);
    Init init;
    init.kind = Init::File;
    init.file = path.str().str();
    init.offset = t.offset;
    init.bytes = t.bytes;
    if (isTransposed)
      init.encoding = "transposed";
    if (Elem(t.elem) != *s.source->elem)
      init.elem = Elem(t.elem);
    s.parameter->given = init;
  }

  /// A constant's values, which may be folded.
  void replace(const Initializer &to, const zccrt::GivenTensor &t, bool isTransposed) {
    const std::vector<int64_t> dims(to.dims.begin(), to.dims.end());
    const zccrt::Box whole = zccrt::Box::whole(dims);
    std::string bytes(to.count() * elemBytes(*to.elem), 0);
    zccrt::RunReader().read(zccrt::File(given_.files[t.file]), {t.offset, t.elem, dims, isTransposed},
                            {whole, 0, whole.elements()}, int(*to.elem), bytes.data());
    file_.replaceData(to.name, std::move(bytes));
  }

  OnnxFile &file_;
  const ImportOptions &options_;
  ImportReport &report_;
  std::vector<zccrt::WantedTensor> wanted_;
  std::vector<const StateName *> states_; ///< of each, its first name
  zccrt::GivenFiles given_;
  zccrt::FoundWeights found_;
};

} // namespace

llvm::Error zcc::takeWeights(OnnxFile &file, const ImportOptions &options, Parameters &parameters, ImportReport &report) {
  if (auto e = checkFolder(file, options.weights))
    return e;
  return Taking(file, options, parameters, report).run();
}
