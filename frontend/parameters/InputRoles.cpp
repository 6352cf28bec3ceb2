// One line an operator. Sources: Operators.md of ONNX, ContribOperators.md of ONNX Runtime.
#include "frontend/parameters/InputRoles.h"
#include "onnx.pb.h"

using namespace zcc;
using llvm::StringRef;

namespace {
/// One letter an input: x data, w weight, s statistic, c setting; the last one stands for all that follow.
struct Roles {
  const char *op, *inputs;
};
// Normalisations are not among the standard's: without weights of their own the exporter gives them ones and zeros.
const Roles kStandard[] = {
    {"Attention", "xxxcx"}, // the mask
    {"BatchNormalization", "xxxss"},
    {"ConstantOfShape", "c"},
    {"Conv", "xww"},
    {"ConvTranspose", "xww"},
    {"DeformConv", "xwxwx"},
    {"DequantizeLinear", "xc"},
    {"Dropout", "xc"},
    {"GRU", "xwwwx"},
    {"LSTM", "xwwwxxxw"}, // the last: peepholes
    {"NegativeLogLikelihoodLoss", "xc"},
    {"OneHot", "xxcx"},
    {"Pad", "xxcx"},
    {"QuantizeLinear", "xc"},
    {"RNN", "xwwwx"},
    {"Range", "c"},
    {"Resize", "xc"},
    {"RotaryEmbedding", "xccx"},
    {"SoftmaxCrossEntropyLoss", "xc"},
    {"Tile", "xc"},
    {"Upsample", "xc"},
};
const Roles kMicrosoft[] = {
    {"Attention", "xwwcx"},
    {"BiasAdd", "xwx"},
    {"BiasDropout", "xwxc"},
    {"BiasGelu", "xw"},
    {"BiasSplitGelu", "xw"},
    {"EmbedLayerNormalization", "xxwwwwwx"},
    {"FastGelu", "xw"},
    {"FusedConv", "xwwx"},
    {"FusedGemm", "xww"},
    {"FusedMatMul", "xw"},
    {"FusedMatMulActivation", "xw"},
    {"GemmFastGelu", "xww"},
    {"GroupNorm", "xww"},
    {"GroupQueryAttention", "xxxxxxxccxxw"}, // cosines and sines; the last: sinks
    {"LayerNormalization", "xww"},
    {"MultiHeadAttention", "xxxwcx"},
    {"Pad", "xxcx"},
    {"RotaryEmbedding", "xxcc"},
    {"SimplifiedLayerNormalization", "xw"},
    {"SkipGroupNorm", "xwwxw"},
    {"SkipLayerNormalization", "xxwww"},
    {"SkipSimplifiedLayerNormalization", "xxww"},
    {"TransposeMatMul", "xw"},
};
} // namespace

InputRole zcc::roleOf(const InitializerUse &use) {
  StringRef domain = use.node->domain();
  llvm::ArrayRef<Roles> table;
  if (domain.empty() || domain == "ai.onnx")
    table = kStandard;
  else if (domain == "com.microsoft")
    table = kMicrosoft;
  for (const Roles &r : table) {
    if (use.node->op_type() != r.op)
      continue;
    StringRef inputs = r.inputs;
    switch (inputs[std::min(size_t(use.index), inputs.size() - 1)]) {
    case 'w':
      return InputRole::Weight;
    case 's':
      return InputRole::Statistic;
    case 'c':
      return InputRole::Setting;
    default:
      return InputRole::Data;
    }
  }
  return InputRole::Data;
}
