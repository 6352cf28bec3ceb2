// What of the exported graph computes which of its values: the index by which the compiled program exports a part of it.
#pragma once

#include "frontend/onnx/ExportTemplate.h"
#include "llvm/ADT/StringSet.h"

namespace zcc {

namespace onnx_pb {
class GraphProto;
class NodeProto;
} // namespace onnx_pb

/// The exported file: the model without its graph, the graph's tag and length, its fields but for initializers, those.
struct ExportLayout {
  int64_t modelBytes = 0, headerBytes = 0;
  llvm::StringRef fields;
  llvm::ArrayRef<std::pair<std::string, int64_t>> initializers; ///< names, bytes of the fields
};

/// In the form that zccrt.h gives. `trained`: the initializers that are trained.
std::string makeExportIndex(const onnx_pb::GraphProto &graph, const ExportLayout &layout, const GraphValues &values,
                            const llvm::StringSet<> &trained);

/// What a trained model predicts: the value nearest the loss that needs no label, without the reshaping and slicing that
/// the loss does.
struct Prediction {
  std::string value; ///< empty: there is none, or not one
  std::string why;   ///< why
};
Prediction findPrediction(const onnx_pb::GraphProto &graph, const GraphValues &values, const llvm::StringSet<> &trained);

/// Calls `f` with the name of each value that a node reads, in its subgraphs too.
void forEachRead(const onnx_pb::NodeProto &node, llvm::function_ref<void(const std::string &)> f);

} // namespace zcc
