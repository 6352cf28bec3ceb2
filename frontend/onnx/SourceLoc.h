// What exporters write into the metadata of a node: the PyTorch source line, the module path, and the FX node with the names of
// the parameters it used. All of it may be absent.
#pragma once

#include "ir/Diag.h"
#include "llvm/ADT/StringMap.h"
#include <optional>

namespace zcc {

namespace onnx_pb {
class GraphProto;
class NodeProto;
} // namespace onnx_pb

/// The location of a node; `index` names one that has no name ("node #412").
Loc locOf(const onnx_pb::NodeProto &n, int64_t index);

/// "%linear : [num_users=1] = call_function[target=torch.ops.aten.linear.default](args = (%x,
/// %p_w), kwargs = {})"
struct FxNode {
  std::string target;                ///< "aten.linear.default"
  std::vector<std::string> args;     ///< as written: "%p_w", "[%a, %b]", "1e-05"
  std::vector<std::string> keywords; ///< "include_self: False"
  /// All names behind a '%', in order of appearance, keyword arguments too.
  std::vector<std::string> names;
};
std::optional<FxNode> fxNodeOf(const onnx_pb::NodeProto &n);
/// Positional argument `i` of the exporter's node if its target starts with `target`; nullopt if there is none.
std::optional<std::string> fxArgument(const onnx_pb::NodeProto &n, llvm::StringRef target, size_t i);

/// The module path of a node, "model.layers.0.self_attn"; nullopt if the file does not say.
std::optional<std::string> scopeOf(const onnx_pb::NodeProto &n);

/// The exported program's inputs: the placeholder "p_model_w" stands for parameter "model.w". Tensor: an attribute of a
/// module that is neither parameter nor buffer.
struct Placeholder {
  enum Kind { Parameter, Buffer, Tensor, Other } kind = Other;
  std::string target;
  bool isPersistent = true; ///< in the state_dict
};
/// From the graph's metadata; empty if the file does not say.
llvm::StringMap<Placeholder> placeholdersOf(const onnx_pb::GraphProto &g);

} // namespace zcc
