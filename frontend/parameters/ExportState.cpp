// The tensors of the exported safetensors file, and where each comes from.
#include "frontend/parameters/Decision.h"

using namespace zcc;

/// The data of what nothing changes.
static llvm::Expected<ExportPiece> dataOf(const OnnxFile &file, const StateName &s) {
  ExportPiece piece;
  piece.size = s.source->bytes;
  if (s.source->place == Initializer::InFile && !s.transposed) {
    piece.kind = ExportPiece::Range;
    piece.file = s.source->file;
    piece.offset = s.source->offset;
    return piece;
  }
  auto bytes = file.read(*s.source);
  if (!bytes)
    return bytes.takeError();
  piece.bytes = s.transposed ? transposedBytes(*bytes, s.source->dims, elemBytes(*s.source->elem)) : std::move(*bytes);
  return piece;
}

llvm::Expected<std::vector<ExportTensor>> zcc::exportedState(const OnnxFile &file, const Parameters &parameters) {
  std::vector<ExportTensor> all;
  for (const StateName &s : parameters.state()) {
    ExportTensor t{s.name, Type(*s.source->elem, s.dims), {}, s.isAnother};
    const GlobalValue *g = s.parameter ? s.parameter->global : nullptr;
    if (g) {
      t.data.kind = ExportPiece::Tensor;
      t.data.global = g->name;
      t.data.transposed = s.transposed;
    } else if (s.source->place != Initializer::Missing) {
      auto data = dataOf(file, s);
      if (!data)
        return data.takeError();
      t.data = std::move(*data);
    } else {
      continue;
    }
    all.push_back(std::move(t));
  }
  return all;
}
