// An ONNX file as it lies on disk: its messages without the tensor data, and where the data of each initializer is. Weights stay
// file ranges; nothing of a model larger than memory is loaded whole.
#pragma once

#include "frontend/onnx/LocalFunctions.h"
#include "frontend/onnx/TrainingGraph.h"
#include "ir/Diag.h"
#include "ir/Type.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MemoryBuffer.h"

namespace zcc {

namespace onnx_pb {
class GraphProto;
class ModelProto;
class TensorProto;
} // namespace onnx_pb

/// The element for an ONNX data type number; nullopt for strings, complex numbers and types below 8
/// bits.
std::optional<Elem> elemFromOnnx(int dataType);
int onnxFromElem(Elem e);
/// "FLOAT8E4M3FN", for messages.
std::string onnxTypeName(int dataType);

/// A tensor of the file: its type, and where its bytes are (little-endian, row-major).
struct Initializer {
  enum Place { InFile, Inline, Missing };
  std::string name;
  int dataType = 0;         ///< ONNX's number
  std::optional<Elem> elem; ///< none: a type that zcc has not
  Dims dims;
  Place place = Inline;
  std::string file;   ///< InFile: relative to the model's folder
  int64_t offset = 0; ///< InFile: bytes from the start of the file
  int64_t bytes = 0;
  std::string data;          ///< Inline: what was in float_data and its like
  std::optional<Init> drawn; ///< Missing: how the file itself says it starts

  Type type() const { return Type(elem.value_or(Elem::F32), dims); }
  int64_t count() const { return elementCount(dims); }
  /// "'expand' f32[4x1x32]", for messages.
  std::string described() const { return "'" + name + "' " + type().str(); }
};

/// "a, b and 20 more".
std::string listed(llvm::ArrayRef<std::string> names);

/// Refuses nodes of a graph whose operators have another form in that opset than in opset 7, from which on all are taken.
llvm::Error checkOpset(const onnx_pb::GraphProto &graph, int64_t version);

/// What to warn of in a file of an operator set or of a form (IR version) newer than those that zcc knows.
std::vector<std::string> newerThanKnown(const onnx_pb::ModelProto &model);

/// Gives a node's result another name where an initializer has its name, too. Errors: two results of one name; readers of
/// which the metadata does not say what they mean.
llvm::Error separateNames(onnx_pb::GraphProto &graph);

/// What to do about a file of external data that is not there.
enum class MissingData { Refuse, Allow };

/// What is done with a training algorithm in the file. Loss: what it minimises is the loss, and it
/// may be one that zcc cannot run.
enum class UseAlgorithm { No, Loss, Yes };

class OnnxFile {
public:
  /// Opens and parses. Errors: unreadable, truncated or corrupt, 2 GiB or more, no graph, operators
  /// older than those of opset 7, data outside the model's folder or beyond its file, sparse or segmented tensors,
  /// local functions without an end.
  /// `dataFolder`: where external data lie; empty: in the model's folder.
  static llvm::Expected<std::unique_ptr<OnnxFile>> open(llvm::StringRef path, MissingData missing,
                                                        UseAlgorithm use = UseAlgorithm::Yes, llvm::StringRef dataFolder = "");
  ~OnnxFile();

  std::string path;                      ///< as given
  std::string name;                      ///< file name without folder
  std::string folder;                    ///< folder of the file, "." if none
  std::string dataFolder;                ///< of external data
  std::vector<Initializer> initializers; ///< of the main graph, in file order
  llvm::StringMap<unsigned> initializerIndex;

  /// How the file itself trains; its graph is part of the graph.
  std::optional<TrainingAlgorithm> training;
  /// Parameters of an ONNX Runtime training graph, whose data is elsewhere.
  std::vector<std::string> runtimeParameters;
  std::vector<std::string> warnings; ///< about the file as such
  /// Initializers that the exporter had merged with others of equal values.
  std::vector<std::string> separated;
  /// "'slice_1' of 'pos'": slices and other forms of parameters that the exporter had folded, and that are nodes again.
  std::vector<std::string> unfolded;

  /// The functions that the file defines.
  LocalFunctions functions;

  /// Sets an initializer as the file's own initialization does.
  void initialize(InitialValue value);
  /// Gives an initializer other bytes, of its type and shape.
  void replaceData(llvm::StringRef initializer, std::string bytes);
  const onnx_pb::ModelProto &model() const { return *model_; }
  onnx_pb::ModelProto &model() { return *model_; }
  /// Whether one of PyTorch's exporters wrote it: what ONNX leaves open then means what PyTorch means.
  bool isFromPyTorch() const;
  const onnx_pb::GraphProto &graph() const;
  const Initializer *initializer(llvm::StringRef name) const;
  /// The newest opset imported for a domain ("" = ai.onnx); 0 if it is not imported.
  int64_t opset(llvm::StringRef domain) const;

  /// Resolves a tensor message whose raw data is still in it (an attribute, a subgraph's
  /// initializer).
  llvm::Expected<Initializer> tensor(const onnx_pb::TensorProto &t) const;
  /// The bytes of a tensor.
  llvm::Expected<std::string> read(const Initializer &t) const;
  /// Bytes of the model file itself.
  llvm::StringRef contents() const { return buffer_->getBuffer(); }

private:
  OnnxFile();
  llvm::Error parse(UseAlgorithm use);
  void separateMerged();
  void unfoldParts();
  llvm::Error checkModel() const;
  llvm::Error checkData(llvm::ArrayRef<Initializer> tensors) const;
  llvm::Error parseGraph(llvm::StringRef bytes, std::vector<std::pair<int64_t, int64_t>> &raw);
  llvm::Expected<Initializer> resolve(const onnx_pb::TensorProto &t, int64_t rawOffset, int64_t rawBytes) const;
  llvm::Expected<Initializer> resolveWithData(const onnx_pb::TensorProto &t) const;
  llvm::Error resolveExternal(const onnx_pb::TensorProto &t, Initializer &out) const;

  std::unique_ptr<llvm::MemoryBuffer> buffer_;
  std::unique_ptr<onnx_pb::ModelProto> model_;
  MissingData missing_ = MissingData::Refuse;
};

} // namespace zcc
