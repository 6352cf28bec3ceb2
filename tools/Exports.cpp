// Reads the model's own bytes for exports, and finds the globals that hold trained values.
#include "tools/Exports.h"
#include "runtime/zccrt.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace zcc;

/// A range of a file of the model.
static llvm::Expected<std::string> readRange(const Module &m, const ExportPiece &p) {
  llvm::SmallString<256> path(p.file);
  if (llvm::sys::path::is_relative(path) && !m.folder.empty()) {
    path = m.folder;
    llvm::sys::path::append(path, p.file);
  }
  auto data = llvm::MemoryBuffer::getFileSlice(path, p.size, p.offset);
  if (!data)
    return error("cannot read '" + path + "': " + data.getError().message());
  return (*data)->getBuffer().str();
}

/// The global that a piece of an exported file is the value of.
static llvm::Expected<const GlobalValue *> exportedGlobal(const Module &m, const ExportPiece &p) {
  const GlobalValue *g = m.global(p.global);
  if (!g)
    return error("internal: the exported file names '" + p.global + "', which is gone");
  const GlobalValue *master = m.global(g->attrs.s("master"));
  return master ? master : g;
}

static llvm::Expected<std::vector<ExportPart>> exportParts(const Module &m, const ExportTemplate &t) {
  std::vector<ExportPart> parts;
  std::string bytes;
  for (const ExportPiece &p : t.pieces) {
    if (p.kind == ExportPiece::Bytes) {
      bytes += p.bytes;
    } else if (p.kind == ExportPiece::Range) {
      auto range = readRange(m, p);
      if (!range)
        return range.takeError();
      bytes += *range;
    } else {
      auto g = exportedGlobal(m, p);
      if (!g)
        return g.takeError();
      parts.push_back({std::move(bytes), *g, p.transposed});
      bytes.clear();
    }
  }
  if (!bytes.empty())
    parts.push_back({std::move(bytes), nullptr, false});
  return parts;
}

static llvm::Expected<std::vector<ExportWeight>> exportWeights(const Module &m, llvm::ArrayRef<ExportTensor> tensors) {
  std::vector<ExportWeight> weights;
  for (const ExportTensor &t : tensors) {
    if (t.type.ndim() > ZCCRT_MAX_DIMS)
      return error("'" + t.name + "' has more than " + llvm::Twine(int(ZCCRT_MAX_DIMS)) + " axes");
    ExportWeight w{t.name, t.type, {t.data.bytes}, t.isAnother};
    if (t.data.kind == ExportPiece::Tensor) {
      auto g = exportedGlobal(m, t.data);
      if (!g)
        return g.takeError();
      w.data.global = *g;
      w.data.transposed = t.data.transposed;
    } else if (t.data.kind == ExportPiece::Range) {
      auto bytes = readRange(m, t.data);
      if (!bytes)
        return bytes.takeError();
      w.data.bytes = std::move(*bytes);
    }
    weights.push_back(std::move(w));
  }
  return weights;
}

/// Of a module in text: what it marks as exported.
static std::vector<ExportTensor> exportedGlobals(const Module &m) {
  std::vector<ExportTensor> tensors;
  for (auto &g : m.globals) {
    if (!g->exported || g->onnxName.empty())
      continue;
    ExportTensor t{g->onnxName, g->type, {}, false};
    t.data.kind = ExportPiece::Tensor;
    t.data.global = g->name;
    t.data.transposed = g->init.encoding == "transposed" && g->type.ndim() >= 2;
    if (t.data.transposed)
      std::swap(t.type.dims[t.type.ndim() - 2], t.type.dims.back());
    tensors.push_back(std::move(t));
  }
  return tensors;
}

llvm::Error zcc::addExports(const Module &m, const ImportReport &imported, ProgramInfo &info) {
  for (auto [form, parts] :
       {std::pair(&imported.inferenceForm, &info.onnx), std::pair(&imported.trainingForm, &info.onnxTrain)}) {
    auto made = exportParts(m, *form);
    if (!made)
      return made.takeError();
    *parts = std::move(*made);
  }
  info.onnxIndex = imported.inferenceForm.index;
  bool isText = imported.state.empty() && imported.inferenceForm.pieces.empty();
  auto weights = exportWeights(m, isText ? exportedGlobals(m) : imported.state);
  if (!weights)
    return weights.takeError();
  info.weights = std::move(*weights);
  info.absent = imported.absent;
  return llvm::Error::success();
}
