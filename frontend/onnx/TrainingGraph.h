// Models that bring their own training: TrainingInfoProto, and the graphs that ONNX Runtime trains.
#pragma once

#include "ir/Graph.h"

namespace zcc {

namespace onnx_pb {
class ModelProto;
class NodeProto;
} // namespace onnx_pb

/// A file's training step (TrainingInfoProto, ONNX IR specification): the graph and the algorithm's
/// graph are one, and some results become the initializers of the next step. The algorithm's nodes,
/// inputs and initializers stand behind the graph's own, from these positions on.
struct TrainingAlgorithm {
  int firstNode = 0, firstInput = 0, firstOutput = 0, firstInitializer = 0;
  const onnx_pb::NodeProto *gradient = nullptr;             ///< its Gradient node
  std::string loss;                                         ///< what it differentiates
  std::vector<std::string> trained;                         ///< initializers that it differentiates by
  std::vector<std::pair<std::string, std::string>> updates; ///< (initializer, result)

  bool updatesInitializer(llvm::StringRef name) const;
};

/// Appends the algorithm of the model's training information to its graph; nullopt if it has none.
/// Errors: several training stages, no or several Gradient nodes, updates of what is no
/// initializer.
llvm::Expected<std::optional<TrainingAlgorithm>> appendAlgorithm(onnx_pb::ModelProto &model);

/// How the initialization graph sets an initializer: bytes, or numbers to draw.
struct InitialValue {
  std::string initializer;
  std::string bytes;         ///< little-endian, row-major; empty if drawn
  std::optional<Init> drawn; ///< Uniform or Normal
};

/// Recognises the training graphs of ONNX Runtime (its artifact generator's): outputs of their
/// backward and of their optimizer are dropped, so that what is left is the forward; parameters
/// that are inputs become initializers without data. Returns their names; empty if it is no such
/// graph.
std::vector<std::string> keepForward(onnx_pb::ModelProto &model);

} // namespace zcc
