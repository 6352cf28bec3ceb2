// Which opsets zcc knows: the newest, and of those before 7 the operators that have the form they have there.
#include "frontend/onnx/OnnxFile.h"
#include "onnx.pb.h"
#include "llvm/ADT/SmallVector.h"

using namespace zcc;
using llvm::StringRef;

namespace {
constexpr int64_t kOldestOpset = 7;
constexpr int64_t kNewestOpset = 28, kNewestIr = 14; ///< of ONNX 1.23

/// Operators whose form of opset 7 began earlier, by ONNX's Changelog.md. All others began with 7.
struct Since {
  int64_t version;
  const char *ops;
};
const Since kSince[] = {
    {1, "ArgMax ArgMin Constant Conv ConvTranspose DepthToSpace Flatten Gather GlobalAveragePool GlobalMaxPool Hardmax "
        "Identity If LRN LogSoftmax Loop LpNormalization MatMul MaxPool MaxRoiPool Not RandomNormal RandomNormalLike "
        "RandomUniform RandomUniformLike ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin "
        "ReduceProd ReduceSum ReduceSumSquare Shape Size Slice Softmax Softplus Softsign SpaceToDepth Squeeze TopK "
        "Transpose Unsqueeze"},
    {2, "GlobalLpPool LpPool Pad Split"},
    {4, "Concat"},
    {5, "Reshape"},
    {6, "Abs Cast Ceil Clip Elu Exp Floor HardSigmoid InstanceNormalization LeakyRelu Log Max Mean Min Neg Reciprocal Relu "
        "Selu Sigmoid Sqrt Sum Tanh Tile"},
};

int64_t sinceOf(StringRef op) {
  for (const Since &s : kSince) {
    llvm::SmallVector<StringRef, 64> names;
    StringRef(s.ops).split(names, ' ');
    if (llvm::is_contained(names, op))
      return s.version;
  }
  return kOldestOpset;
}
} // namespace

llvm::Error zcc::checkOpset(const onnx_pb::GraphProto &graph, int64_t version) {
  if (version >= kOldestOpset)
    return llvm::Error::success();
  for (auto &n : graph.node()) {
    bool isStandard = n.domain().empty() || n.domain() == "ai.onnx";
    if (isStandard && version < sinceOf(n.op_type()))
      return error("opset " + llvm::Twine(version) + " is not supported for '" + n.op_type() + "' (" +
                   llvm::Twine(sinceOf(n.op_type())) + " is the oldest); export the model again");
    for (auto &a : n.attribute())
      if (auto e = checkOpset(a.g(), version))
        return e;
  }
  return llvm::Error::success();
}

std::vector<std::string> zcc::newerThanKnown(const onnx_pb::ModelProto &model) {
  std::vector<std::string> r;
  int64_t opset = 0;
  for (auto &o : model.opset_import())
    if (o.domain().empty() || o.domain() == "ai.onnx")
      opset = std::max(opset, int64_t(o.version()));
  if (opset > kNewestOpset)
    r.push_back("the file is of opset " + std::to_string(opset) + ", the newest that zcc knows is " +
                std::to_string(kNewestOpset) + ": operators that changed since are taken in their older form");
  if (model.ir_version() > kNewestIr)
    r.push_back("the file is of IR version " + std::to_string(model.ir_version()) + ", the newest that zcc knows is " +
                std::to_string(kNewestIr) + ": what is new in it is not seen");
  return r;
}
