// PyTorch's default initialisation, by the operator that reads a parameter: embeddings N(0, 1); linear layers and convolutions
// uniform within 1/sqrt(fan in), which is Kaiming-uniform with a = sqrt(5); norms 1 and 0.
#include "frontend/parameters/Draw.h"
#include "onnx.pb.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include <cmath>

using namespace zcc;
using llvm::StringRef;

namespace {

class Draw {
public:
  explicit Draw(const OnnxFile &file) : file_(file) {
    for (auto &n : file.graph().node()) {
      // Of a hostile file, cycles and nodes without operands are left out: what is found is read behind where it is made.
      bool isInOrder = llvm::none_of(
          n.output(), [&](auto &o) { return makers_.count(o) || readers_.count(o) || llvm::is_contained(n.input(), o); });
      if (!isInOrder || !n.input_size() || !n.output_size())
        continue;
      for (int i = 0; i < n.input_size(); ++i)
        readers_[n.input(i)].push_back({&n, i});
      for (auto &o : n.output())
        makers_[o] = &n;
    }
  }

  /// The distribution for an initializer; nullopt if no reader tells what it is.
  std::optional<Init> of(StringRef name) const {
    auto i = readers_.find(name);
    if (i == readers_.end())
      return std::nullopt;
    for (auto &[node, index] : i->second)
      if (auto init = under(*node, index, name))
        return init;
    return std::nullopt;
  }

private:
  struct Reader {
    const onnx_pb::NodeProto *node;
    int index;
  };

  static Init splat(double v) {
    Init i;
    i.kind = v == 0 ? Init::Zero : Init::Splat;
    i.a = v;
    return i;
  }
  static Init uniform(double fanIn) {
    Init i;
    i.kind = Init::Uniform;
    i.b = fanIn > 0 ? 1 / std::sqrt(fanIn) : 0;
    i.a = -i.b;
    return i;
  }

  llvm::ArrayRef<int64_t> dimsOf(StringRef name) const {
    const Initializer *t = file_.initializer(name);
    return t ? llvm::ArrayRef<int64_t>(t->dims) : llvm::ArrayRef<int64_t>();
  }
  static int64_t attr(const onnx_pb::NodeProto &n, StringRef name) {
    for (auto &a : n.attribute())
      if (a.name() == name)
        return a.i();
    return 0;
  }

  /// Inputs per output of the weight of a linear layer or convolution; 0 if it is none.
  double fanIn(const onnx_pb::NodeProto &n) const {
    if (n.input_size() < 2)
      return 0;
    std::string weight = n.input(1);
    bool turned = false;
    while (makers_.count(weight) && makers_.lookup(weight)->op_type() == "Transpose") {
      weight = makers_.lookup(weight)->input(0);
      turned = !turned;
    }
    auto d = dimsOf(weight);
    if (d.size() < 2)
      return 0;
    if (n.op_type() == "Conv" || n.op_type() == "ConvTranspose")
      return double(elementCount(d.drop_front(1)));
    bool outFirst = turned != (n.op_type() == "Gemm" && attr(n, "transB") != 0);
    return double(outFirst ? d.back() : d[d.size() - 2]);
  }

  std::optional<Init> under(const onnx_pb::NodeProto &n, int index, StringRef name) const {
    StringRef op = n.op_type();
    if (op == "Transpose" || op == "Cast" || op == "Identity" || op == "Reshape" || op == "Unsqueeze")
      return of(n.output(0));
    if (op == "Gather" && index == 0) {
      Init i;
      i.kind = Init::Normal;
      i.b = 1;
      return i;
    }
    if (op == "MatMul" || op == "Gemm" || op == "Conv" || op == "ConvTranspose")
      return uniform(fanIn(n));
    if ((op == "LSTM" || op == "GRU" || op == "RNN") && n.input_size() > 2)
      return uniform(double(dimsOf(n.input(2)).empty() ? 0 : dimsOf(n.input(2)).back()));
    if (op == "PRelu")
      return splat(0.25);
    if (op == "BatchNormalization")
      return splat(index == 1 || index == 4);
    if (op.ends_with("Normalization"))
      return splat(index == 1);
    if (op == "Add")
      for (auto &input : n.input())
        if (auto *maker = makers_.lookup(input); maker && maker->op_type() == "MatMul")
          return uniform(fanIn(*maker)); // a linear layer's bias
    if (name.ends_with("bias") || op == "Add" || op == "Sub")
      return splat(0);
    if (op == "Mul")
      return splat(1); // the scale of a norm that is spelled out
    return std::nullopt;
  }

  const OnnxFile &file_;
  llvm::StringMap<std::vector<Reader>> readers_;
  llvm::StringMap<const onnx_pb::NodeProto *> makers_;
};

} // namespace

/// What to say of tensors that nothing gives values.
static std::string noDataOf(const Initializer &first, llvm::ArrayRef<std::string> open, const ImportOptions &options) {
  const bool isOne = open.size() == 1;
  std::string text = "'" + llvm::join(open, "', '") + (isOne ? "' has" : "' have") + " no data (" + (isOne ? "its" : "their") +
                     " file '" + first.file + "' is not there)";
  if (!options.weights.empty())
    text += ", '" + options.weights + "' does not bring " + (isOne ? "it" : "them");
  text += isOne ? " and is not a weight that --init could draw" : " and are no weights that --init could draw";
  return text + "; export the model with its buffers, and only its parameters on the meta device";
}

llvm::Error zcc::drawMissing(const OnnxFile &file, const ImportOptions &options, const Parameters &parameters, Module &module) {
  double deviation = -1;
  StringRef init = options.init;
  if (init.consume_front("normal:")) {
    if (init.getAsDouble(deviation) || !(deviation >= 0))
      return error("--init=normal:" + init + ": a standard deviation is needed, as in normal:0.02");
  } else if (!init.empty() && init != "pytorch") {
    return error("--init=" + init + ": choose pytorch or normal:STD");
  }
  Draw draw(file);
  std::vector<std::string> open;
  for (auto &p : parameters.all()) {
    if (p->global && p->given)
      p->global->init = *p->given;
    if (!p->global || p->given || p->source->place != Initializer::Missing)
      continue;
    if (p->source->drawn) {
      p->global->init = *p->source->drawn;
      continue;
    }
    auto how = init.empty() && deviation < 0 ? std::nullopt : draw.of(p->source->name);
    if (!how || p->role == Parameter::Constant) {
      open.push_back(p->source->name);
      continue;
    }
    bool isWeight = how->kind == Init::Uniform || how->kind == Init::Normal;
    if (deviation >= 0 && isWeight && p->source->dims.size() >= 2) {
      how->kind = Init::Normal;
      how->a = 0;
      how->b = deviation;
    } else if (deviation >= 0 && isWeight) {
      *how = Init(); // biases
    }
    p->global->init = *how;
  }
  if (!open.empty())
    return error(noDataOf(*file.initializer(open[0]), open, options));
  return llvm::Error::success();
}
