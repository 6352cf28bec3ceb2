// Reads an ONNX file: walks the wire format so that raw tensor data is never copied, and parses the rest with Protocol Buffers
// (messages concatenate, so they can be parsed piece by piece).
#include "frontend/onnx/OnnxFile.h"
#include "frontend/onnx/Wire.h"
#include "onnx.pb.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace zcc;
using llvm::StringRef;

// ---- element types

namespace {
struct OnnxType {
  int number;
  const char *name;
  std::optional<Elem> elem;
};
const OnnxType kTypes[] = {
    {1, "FLOAT", Elem::F32},   {2, "UINT8", Elem::U8},     {3, "INT8", Elem::I8},     {4, "UINT16", Elem::U16},
    {5, "INT16", Elem::I16},   {6, "INT32", Elem::I32},    {7, "INT64", Elem::I64},   {8, "STRING", {}},
    {9, "BOOL", Elem::Bool},   {10, "FLOAT16", Elem::F16}, {11, "DOUBLE", Elem::F64}, {12, "UINT32", Elem::U32},
    {13, "UINT64", Elem::U64}, {14, "COMPLEX64", {}},      {15, "COMPLEX128", {}},    {16, "BFLOAT16", Elem::BF16},
    {17, "FLOAT8E4M3FN", {}},  {18, "FLOAT8E4M3FNUZ", {}}, {19, "FLOAT8E5M2", {}},    {20, "FLOAT8E5M2FNUZ", {}},
    {21, "UINT4", {}},         {22, "INT4", {}},           {23, "FLOAT4E2M1", {}},    {24, "FLOAT8E8M0", {}},
    {25, "UINT2", {}},         {26, "INT2", {}},
};
} // namespace

std::optional<Elem> zcc::elemFromOnnx(int dataType) {
  for (const OnnxType &t : kTypes)
    if (t.number == dataType)
      return t.elem;
  return std::nullopt;
}

int zcc::onnxFromElem(Elem e) {
  for (const OnnxType &t : kTypes)
    if (t.elem == e)
      return t.number;
  llvm_unreachable("every element has a number");
}

std::string zcc::onnxTypeName(int dataType) {
  for (const OnnxType &t : kTypes)
    if (t.number == dataType)
      return t.name;
  return std::to_string(dataType);
}

std::string zcc::listed(llvm::ArrayRef<std::string> names) {
  constexpr size_t kMost = 6; // names in a message
  if (names.size() <= kMost)
    return llvm::join(names, ", ");
  return llvm::join(names.take_front(kMost), ", ") + " and " + std::to_string(names.size() - kMost) + " more";
}

// ---- opening

OnnxFile::OnnxFile() : model_(std::make_unique<onnx_pb::ModelProto>()) {}
OnnxFile::~OnnxFile() = default;

const onnx_pb::GraphProto &OnnxFile::graph() const { return model_->graph(); }

const Initializer *OnnxFile::initializer(StringRef n) const {
  auto i = initializerIndex.find(n);
  return i == initializerIndex.end() ? nullptr : &initializers[i->second];
}

bool OnnxFile::isFromPyTorch() const { return model_->producer_name() == "pytorch"; }

int64_t OnnxFile::opset(StringRef domain) const {
  int64_t version = 0;
  for (auto &o : model_->opset_import()) {
    StringRef d = o.domain();
    if (d == domain || (domain.empty() && d == "ai.onnx"))
      version = std::max(version, int64_t(o.version()));
  }
  return version;
}

llvm::Expected<std::unique_ptr<OnnxFile>> OnnxFile::open(StringRef path, MissingData missing, UseAlgorithm use,
                                                         StringRef dataFolder) {
  if (!llvm::sys::fs::exists(path))
    return error("no such file: '" + path + "'");
  if (llvm::sys::fs::is_directory(path))
    return error("'" + path + "' is a folder, not an ONNX file");
  if (!llvm::sys::fs::is_regular_file(path)) // a pipe would block, and is read but once
    return error("'" + path + "' is not a regular file");
  uint64_t size = 0;
  if (auto ec = llvm::sys::fs::file_size(path, size))
    return error("cannot read '" + path + "': " + ec.message());
  if (size > uint64_t(INT_MAX))
    return error("'" + path +
                 "' is 2 GiB or more, which no ONNX file can be; export the model with external data "
                 "(torch.onnx.export(..., external_data=True))");
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!buffer)
    return error("cannot read '" + path + "': " + buffer.getError().message());
  std::unique_ptr<OnnxFile> f(new OnnxFile);
  f->path = path.str();
  f->name = llvm::sys::path::filename(path).str();
  f->folder = llvm::sys::path::parent_path(path).str();
  if (f->folder.empty())
    f->folder = ".";
  f->dataFolder = dataFolder.empty() ? f->folder : dataFolder.str();
  f->buffer_ = std::move(*buffer);
  f->missing_ = missing;
  if (auto e = f->parse(use))
    return e;
  return f;
}

llvm::Error OnnxFile::parse(UseAlgorithm use) {
  auto corrupt = [&] { return error("'" + path + "' is not an ONNX model, or it is truncated or corrupt"); };
  if (contents().empty())
    return error("'" + path + "' is empty");
  std::vector<std::pair<int64_t, int64_t>> raw; // per initializer: offset and bytes of its raw data
  llvm::Error inner = llvm::Error::success();
  bool hasGraph = false;
  bool ok = forEachField(contents(), [&](const WireField &f) {
    if (f.number != kModelGraph || !f.isBytes)
      return mergeMessage(*model_, f.whole);
    hasGraph = true;
    if (inner)
      return false;
    inner = parseGraph(f.payload, raw);
    return !inner;
  });
  if (inner)
    return inner;
  if (!ok || !hasGraph)
    return corrupt();
  if (auto e = checkModel())
    return e;
  warnings = newerThanKnown(*model_);
  if (auto e = separateNames(*model_->mutable_graph()))
    return e;
  runtimeParameters = keepForward(*model_);
  if (!runtimeParameters.empty() && missing_ == MissingData::Refuse)
    return error("'" + path + "' is a training graph of ONNX Runtime: the data of '" + runtimeParameters[0] +
                 "' and others is in a checkpoint, which zcc does not read; "
                 "compile the model that it was made from, or draw new weights with --init=pytorch");
  if (use != UseAlgorithm::No && model_->training_info_size()) {
    onnx_pb::ModelProto before = *model_;
    auto algorithm = appendAlgorithm(*model_);
    if (!algorithm && use == UseAlgorithm::Yes)
      return algorithm.takeError();
    if (algorithm) {
      training = std::move(*algorithm);
    } else { // zcc's own optimizer needs no more than the graph
      llvm::consumeError(algorithm.takeError());
      model_->CopyFrom(before);
    }
  }
  auto local = LocalFunctions::of(*model_);
  if (!local)
    return local.takeError();
  functions = std::move(*local);
  auto *graph = model_->mutable_graph();
  raw.resize(graph->initializer_size(), {-1, 0}); // what training adds is in its own messages
  for (int i = 0; i < graph->initializer_size(); ++i) {
    auto t =
        raw[i].first < 0 ? resolveWithData(graph->initializer(i)) : resolve(graph->initializer(i), raw[i].first, raw[i].second);
    if (!t)
      return t.takeError();
    if (!initializerIndex.try_emplace(t->name, unsigned(i)).second)
      return error("'" + path + "' has two initializers named '" + t->name + "'");
    if (t->elem) { // from here on the data is where `t` says
      auto *d = graph->mutable_initializer(i);
      d->clear_float_data();
      d->clear_int32_data();
      d->clear_int64_data();
      d->clear_double_data();
      d->clear_uint64_data();
    }
    initializers.push_back(std::move(*t));
  }
  separateMerged();
  unfoldParts();
  return checkData(initializers);
}

llvm::Error OnnxFile::parseGraph(StringRef bytes, std::vector<std::pair<int64_t, int64_t>> &raw) {
  auto *graph = model_->mutable_graph();
  bool ok = forEachField(bytes, [&](const WireField &f) {
    if (f.number != kGraphInitializer || !f.isBytes)
      return mergeMessage(*graph, f.whole);
    auto *tensor = graph->add_initializer();
    std::pair<int64_t, int64_t> range(-1, 0);
    bool good = forEachField(f.payload, [&](const WireField &t) {
      if (t.number != kTensorRawData || !t.isBytes)
        return mergeMessage(*tensor, t.whole);
      range = {t.payload.data() - contents().data(), int64_t(t.payload.size())};
      return true;
    });
    raw.push_back(range);
    return good;
  });
  if (!ok)
    return error("'" + path + "' is not an ONNX model, or it is truncated or corrupt");
  return llvm::Error::success();
}

llvm::Error OnnxFile::checkModel() const {
  auto &graph = model_->graph();
  if (graph.sparse_initializer_size())
    return error("sparse tensor '" + graph.sparse_initializer(0).values().name() +
                 "' is not supported; export it as a dense one");
  int64_t version = opset("");
  if (version == 0 && graph.node_size())
    return error("'" + path + "' imports no operator set; is it an ONNX model?");
  return checkOpset(graph, version);
}

void OnnxFile::initialize(InitialValue value) {
  Initializer &t = initializers[initializerIndex.lookup(value.initializer)];
  t.place = value.drawn ? Initializer::Missing : Initializer::Inline;
  t.data = std::move(value.bytes);
  t.drawn = value.drawn;
}

void OnnxFile::replaceData(StringRef initializer, std::string bytes) {
  Initializer &t = initializers[initializerIndex.lookup(initializer)];
  t.place = Initializer::Inline;
  t.bytes = int64_t(bytes.size());
  t.data = std::move(bytes);
}

// ---- tensors

template <typename T, typename Field> static std::string packed(const Field &values) {
  std::string s;
  s.reserve(values.size() * sizeof(T));
  for (auto v : values) {
    T x = T(v);
    s.append(reinterpret_cast<const char *>(&x), sizeof x);
  }
  return s;
}

/// What the typed fields hold, as raw bytes. float16 and bfloat16 are bit patterns in int32_data.
static std::string typedData(const onnx_pb::TensorProto &t, Elem e) {
  switch (e) {
  case Elem::F32:
    return packed<float>(t.float_data());
  case Elem::F64:
    return packed<double>(t.double_data());
  case Elem::I64:
    return packed<int64_t>(t.int64_data());
  case Elem::U64:
    return packed<uint64_t>(t.uint64_data());
  case Elem::U32:
    return packed<uint32_t>(t.uint64_data());
  case Elem::I32:
    return packed<int32_t>(t.int32_data());
  case Elem::I16:
    return packed<int16_t>(t.int32_data());
  case Elem::U16:
  case Elem::F16:
  case Elem::BF16:
    return packed<uint16_t>(t.int32_data());
  case Elem::I8:
    return packed<int8_t>(t.int32_data());
  case Elem::U8:
    return packed<uint8_t>(t.int32_data());
  case Elem::Bool:
    return packed<bool>(t.int32_data());
  }
  llvm_unreachable("all elements are listed");
}

llvm::Expected<Initializer> OnnxFile::tensor(const onnx_pb::TensorProto &t) const {
  auto r = resolveWithData(t);
  if (r)
    if (auto e = checkData(*r))
      return e;
  return r;
}

/// Refuses tensors whose files are not there, all of them at once, unless they may be missing.
llvm::Error OnnxFile::checkData(llvm::ArrayRef<Initializer> tensors) const {
  llvm::MapVector<StringRef, std::vector<std::string>> missing; // by file
  size_t count = 0;
  for (const Initializer &t : tensors)
    if (t.place == Initializer::Missing && !t.file.empty() && missing_ == MissingData::Refuse) {
      missing[t.file].push_back(t.name);
      ++count;
    }
  if (missing.empty())
    return llvm::Error::success();
  auto pathOf = [&](StringRef location) {
    llvm::SmallString<256> full(dataFolder);
    llvm::sys::path::append(full, location);
    return "'" + full.str().str() + "'";
  };
  constexpr const char *kAdvice = ", or draw new weights with --init=pytorch";
  auto &[file, names] = missing.front();
  if (missing.size() == 1)
    return error("external data " + pathOf(file) + " of " +
                 (count == 1 ? "'" + names[0] + "'" : std::to_string(count) + " tensors (" + listed(names) + ")") +
                 " does not exist; put the file beside the model" + kAdvice);
  std::string text = "external data of " + std::to_string(count) + " tensors does not exist; put the " +
                     std::to_string(missing.size()) + " files beside the model" + kAdvice;
  for (auto &[location, tensors] : missing)
    text += "\nnote: " + pathOf(location) + " of " + listed(tensors);
  return error(text);
}

llvm::Expected<Initializer> OnnxFile::resolveWithData(const onnx_pb::TensorProto &t) const {
  auto r = resolve(t, -1, 0);
  if (r && r->place == Initializer::Inline && t.has_raw_data()) {
    r->data = t.raw_data();
    if (r->elem && int64_t(r->data.size()) != r->bytes)
      return error("tensor '" + t.name() + "' has " + llvm::Twine(r->data.size()) + " bytes of data, its shape needs " +
                   llvm::Twine(r->bytes));
  }
  return r;
}

llvm::Expected<Initializer> OnnxFile::resolve(const onnx_pb::TensorProto &t, int64_t rawOffset, int64_t rawBytes) const {
  Initializer out;
  out.name = t.name();
  out.dataType = t.data_type();
  out.elem = elemFromOnnx(t.data_type());
  if (t.has_segment())
    return error("tensor '" + t.name() + "' is stored in segments, which is not supported");
  constexpr int64_t kMostBytes = int64_t(1) << 46; // far beyond any file; keeps products from overflowing
  int64_t count = 1;
  for (int64_t d : t.dims()) {
    if (d < 0 || (d > 0 && count > kMostBytes / d))
      return error("tensor '" + t.name() + "' has an impossible shape");
    count *= d;
    out.dims.push_back(d);
  }
  if (!out.elem) { // reported by whoever uses it
    if (rawOffset >= 0) {
      out.place = Initializer::InFile;
      out.file = name;
      out.offset = rawOffset;
      out.bytes = rawBytes;
    }
    return out;
  }
  out.bytes = count * elemBytes(*out.elem);
  if (t.data_location() == onnx_pb::TensorProto::EXTERNAL) {
    if (auto e = resolveExternal(t, out))
      return e;
    return out;
  }
  int64_t have;
  if (rawOffset >= 0) {
    out.place = Initializer::InFile;
    out.file = name;
    out.offset = rawOffset;
    have = rawBytes;
  } else if (t.has_raw_data()) {
    return out; // tensor() fills it in
  } else {
    out.data = typedData(t, *out.elem);
    have = out.data.size();
  }
  if (have != out.bytes)
    return error("tensor '" + t.name() + "' has " + llvm::Twine(have) + " bytes of data, its shape needs " +
                 llvm::Twine(out.bytes));
  return out;
}

llvm::Error OnnxFile::resolveExternal(const onnx_pb::TensorProto &t, Initializer &out) const {
  int64_t length = out.bytes;
  for (auto &p : t.external_data()) {
    if (p.key() == "location")
      out.file = p.value();
    else if ((p.key() == "offset" && StringRef(p.value()).getAsInteger(10, out.offset)) ||
             (p.key() == "length" && StringRef(p.value()).getAsInteger(10, length)))
      return error("tensor '" + t.name() + "' has a bad " + p.key() + " of its external data: '" + p.value() + "'");
  }
  out.place = Initializer::InFile;
  StringRef location = out.file;
  bool climbs = llvm::any_of(llvm::make_range(llvm::sys::path::begin(location), llvm::sys::path::end(location)),
                             [](StringRef part) { return part == ".."; });
  if (location.empty() || llvm::sys::path::is_absolute(location) || climbs || location.contains('\0'))
    return error("tensor '" + t.name() + "': its external data '" + location + "' must be a path within the model's folder");
  llvm::SmallString<256> full(dataFolder), real, realFolder;
  llvm::sys::path::append(full, location);
  if (!llvm::sys::fs::exists(full)) {
    out.place = Initializer::Missing; // refused, if it is, with all others
    return llvm::Error::success();
  }
  if (llvm::sys::fs::is_directory(full))
    return error("tensor '" + t.name() + "': its external data '" + full.str() + "' is a folder, not a file");
  if (llvm::sys::fs::real_path(full, real) || llvm::sys::fs::real_path(dataFolder, realFolder))
    return error("cannot read '" + full.str() + "'");
  realFolder += "/";
  if (!real.str().starts_with(realFolder))
    return error("tensor '" + t.name() + "': its external data '" + location + "' leads out of the model's folder");
  if (!llvm::sys::fs::is_regular_file(full))
    return error("external data '" + full.str() + "' of '" + t.name() + "' is not a regular file");
  uint64_t size = 0;
  if (auto ec = llvm::sys::fs::file_size(full, size))
    return error("cannot read '" + full.str() + "': " + ec.message());
  if (length != out.bytes)
    return error("tensor '" + t.name() + "' has " + llvm::Twine(length) + " bytes of external data, its shape needs " +
                 llvm::Twine(out.bytes));
  if (out.offset < 0 || out.offset > int64_t(size) || out.bytes > int64_t(size) - out.offset)
    return error("external data of '" + t.name() + "' lies beyond the end of '" + full.str() + "' (offset " +
                 llvm::Twine(out.offset) + ", " + llvm::Twine(out.bytes) + " bytes, file of " + llvm::Twine(size) + ")");
  if (dataFolder != folder)
    out.file = real.str().str();
  return llvm::Error::success();
}

llvm::Expected<std::string> OnnxFile::read(const Initializer &t) const {
  if (t.place == Initializer::Inline)
    return t.data;
  if (t.place == Initializer::Missing)
    return error("'" + t.name + "' has no data");
  if (t.file == name)
    return contents().substr(t.offset, t.bytes).str();
  llvm::SmallString<256> full(llvm::sys::path::is_absolute(t.file) ? "" : StringRef(folder));
  llvm::sys::path::append(full, t.file);
  auto slice = llvm::MemoryBuffer::getFileSlice(full, t.bytes, t.offset);
  if (!slice)
    return error("cannot read '" + full.str() + "': " + slice.getError().message());
  return (*slice)->getBuffer().str();
}
