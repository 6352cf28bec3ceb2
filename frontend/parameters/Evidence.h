// Evidence for what an initializer is: the parameter that each use means, from the exporter's metadata.
#pragma once

#include "frontend/onnx/OnnxFile.h"
#include "frontend/onnx/SourceLoc.h"
#include "llvm/ADT/StringSet.h"

namespace zcc {

/// "net.fc" of "net.fc.weight"; "" of a name without a dot.
inline llvm::StringRef parentOf(llvm::StringRef path) { return path.contains('.') ? path.rsplit('.').first : ""; }

/// One input of a node that reads an initializer.
struct InitializerUse {
  const onnx_pb::NodeProto *node;
  unsigned index;
};

/// What the file says about its parameters.
class Evidence {
public:
  explicit Evidence(const OnnxFile &file);

  const OnnxFile &file;
  /// Whether nodes carry the FX nodes they came from (PyTorch's default exporter).
  bool hasFx = false;
  /// Whether tensors that the exporter lifted out of the program stand for its parameters, of which it reads none.
  bool liftsParameters = false;
  /// Whether the file says which parameters and buffers the program had.
  bool hasSignature() const { return !placeholders_.empty(); }

  const std::vector<InitializerUse> &uses(llvm::StringRef initializer) const;
  /// The parameter ("model.fc.weight") that this use means by an initializer; nullopt: the metadata
  /// does not say.
  std::optional<std::string> parameterOf(const Initializer &t, const InitializerUse &use) const;
  /// Whether this use means no parameter: a norm that has none, or numbers that the program makes. What an initializer that is
  /// a parameter's has of them is the value that the parameter began with.
  bool isNumbers(const InitializerUse &use) const;
  /// Parameters that an FX node reads, each once.
  std::vector<std::string> parametersOf(const FxNode &fx) const;
  /// What the signature calls this initializer; Other if it does not know it.
  Placeholder::Kind kindOf(llvm::StringRef initializer) const;
  /// Parameters of the program that no node of the file mentions, in module order: folded into
  /// something else.
  const std::vector<std::string> &lost() const { return lost_; }
  /// Other names that the program has for this parameter: of modules that share it.
  llvm::ArrayRef<std::string> aliasesOf(llvm::StringRef parameter) const;
  /// What the program had, by name; empty without a signature.
  const llvm::StringMap<Placeholder> &placeholders() const { return placeholders_; }
  /// The buffer that this use reads as it is; "" if the metadata does not say.
  std::string bufferOf(const InitializerUse &use) const;
  /// Whether an initializer is what the program computed, by the FX nodes that read it: the exporter folded it.
  bool isResult(llvm::StringRef initializer) const;
  enum class Near { SameModule, Parent, Within };
  /// Lost parameters of the module that computes with this initializer, of its direct children, or of any module in it.
  std::vector<std::string> lostNear(const InitializerUse &use, Near near) const;

private:
  std::string targetOf(llvm::StringRef placeholder) const;
  std::string bufferAt(const FxNode &fx, size_t i) const;
  bool takeLifted(const onnx_pb::GraphProto &g);
  void collect(const onnx_pb::GraphProto &g, const llvm::StringSet<> &hidden, llvm::StringSet<> &aliases);
  void collectBody(const onnx_pb::NodeProto &owner, const onnx_pb::GraphProto &g, llvm::StringSet<> hidden,
                   llvm::StringSet<> &aliases);

  llvm::StringMap<std::vector<InitializerUse>> uses_;
  llvm::StringMap<Placeholder> placeholders_;
  llvm::StringMap<Placeholder::Kind> kinds_;          ///< by target
  llvm::StringMap<std::vector<std::string>> aliases_; ///< by parameter
  llvm::StringSet<> mentioned_;
  std::vector<std::string> lost_;
};

} // namespace zcc
