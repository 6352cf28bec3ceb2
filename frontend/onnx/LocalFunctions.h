// The functions that a model defines itself: found by a node's operator, and known to come to an end.
#pragma once

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"

namespace zcc {

namespace onnx_pb {
class FunctionProto;
class ModelProto;
class NodeProto;
} // namespace onnx_pb

/// Calls and subgraphs within one another: what recurses over them stays far from the end of the
/// stack, and no exporter's module tree is as deep.
constexpr int kMostNested = 200;
/// Nodes that the calls of a model may become: every call is a copy of its function.
constexpr int64_t kMostExpanded = 1'000'000;

class LocalFunctions {
public:
  /// Of a model, which must outlive this. Errors: functions that call themselves, directly or not;
  /// more than kMostNested, more than kMostExpanded.
  static llvm::Expected<LocalFunctions> of(const onnx_pb::ModelProto &model);

  /// The function that a node calls, or nullptr.
  const onnx_pb::FunctionProto *calledBy(const onnx_pb::NodeProto &n) const;

private:
  llvm::StringMap<const onnx_pb::FunctionProto *> byKey_;
};

/// "Resize" alone, or "com.microsoft.Resize".
std::string qualifiedName(llvm::StringRef domain, llvm::StringRef name);

} // namespace zcc
