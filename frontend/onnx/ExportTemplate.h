// The exported ONNX file as a list of pieces, so that the compiled program writes it without Protocol Buffers: bytes as they are,
// ranges of the model's own files, and the values of globals.
#pragma once

#include "ir/Graph.h"
#include "llvm/ADT/StringMap.h"

namespace zcc {

class OnnxFile;
class Parameters;

struct ExportPiece {
  enum Kind {
    Bytes,  ///< `bytes` as they are
    Range,  ///< `size` bytes from `offset` of `file` (relative to the model's folder)
    Tensor, ///< the value of the global `global`, little-endian, row-major; transposed: its last
            ///< two axes swapped
  } kind = Bytes;
  std::string bytes;
  std::string file;
  int64_t offset = 0;
  int64_t size = 0; ///< bytes this piece takes in the file, whatever its kind
  std::string global;
  bool transposed = false;
};

struct ExportTemplate {
  std::vector<ExportPiece> pieces; ///< the file is their concatenation
  std::string index;               ///< of the inference form: which of its bytes compute which value
  std::string refused;             ///< why there is no such file (2 GiB or more, data missing); empty: there is one
};

/// A tensor of the exported safetensors file.
struct ExportTensor {
  std::string name;
  Type type;
  ExportPiece data;       ///< not several
  bool isAnother = false; ///< a further name of one before
};

/// The model's state_dict with new weights.
llvm::Expected<std::vector<ExportTensor>> exportedState(const OnnxFile &file, const Parameters &parameters);

/// Inference: Dropout and BatchNormalization as in model.eval(). Training: the model as it was.
enum class ExportForm { Inference, Training };

/// What the import found out about the values of the main graph.
struct GraphValues {
  llvm::StringMap<Type> types;
  bool hasOpenDims = false; ///< the file leaves dimensions open, of which `types` know one size
  std::string loss;         ///< the output that is minimised; empty: none
  std::string lossOf;       ///< or the output that an added loss is of
};

/// The input model with new weights under its own names, shapes and types.
ExportTemplate makeExportTemplate(const OnnxFile &file, const Parameters &parameters, const GraphValues &values, ExportForm form);

} // namespace zcc
