// PyTorch's default initialisation, by the operator that reads a parameter: embeddings N(0, 1); linear layers and convolutions
// uniform within 1/sqrt(fan in), which is Kaiming-uniform with a = sqrt(5); norms 1 and 0; of attention, by the names that
// torch.nn.MultiheadAttention gives, Xavier-uniform.
#include "frontend/parameters/Draw.h"
#include "onnx.pb.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include <cmath>

using namespace zcc;
using llvm::StringRef;

namespace {

class Draw {
public:
  explicit Draw(const OnnxFile &file) : file_(file) {
    for (auto *list : {&file.graph().input(), &file.graph().value_info()})
      for (auto &i : *list)
        if (const Dims d = dimsOf(i); !d.empty())
          infos_[i.name()] = d;
    for (auto &n : file.graph().node()) {
      if (n.op_type() == "Constant" && n.output_size())
        constants_.insert(n.output(0));
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
    if (auto init = ofAttention(name))
      return init;
    std::vector<Step> work = {{name.str(), false}};
    llvm::StringSet<> seen;
    for (size_t i = 0; i < work.size(); ++i) {
      const Step at = work[i];
      auto readers = readers_.find(at.value);
      if (readers == readers_.end() || !seen.insert(at.value).second)
        continue;
      for (auto &[node, index] : readers->second) {
        if (auto init = under(*node, index, name, at))
          return init;
        const Way way = wayThrough(*node, index, name);
        for (int o = 0; way != Way::None && o < node->output_size(); ++o)
          work.push_back({node->output(o), at.isInParts || way == Way::InParts});
      }
    }
    return std::nullopt;
  }

private:
  /// A value that has a parameter's elements, or parts of them beside others'.
  struct Step {
    std::string value;
    bool isInParts;
  };
  enum class Way { None, Whole, InParts };
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
  /// `fanIn` 0: it is not known, and drawMissing() refuses it.
  static Init uniform(double fanIn) { return within(fanIn > 0 ? 1 / std::sqrt(fanIn) : 0); }
  static Init within(double bound) {
    Init i;
    i.kind = Init::Uniform;
    i.b = bound;
    i.a = -i.b;
    return i;
  }

  llvm::ArrayRef<int64_t> dimsOf(StringRef name) const {
    const Initializer *t = file_.initializer(name);
    return t ? llvm::ArrayRef<int64_t>(t->dims) : llvm::ArrayRef<int64_t>();
  }
  /// An attribute; an empty one if the node has none of that name.
  static const onnx_pb::AttributeProto &attr(const onnx_pb::NodeProto &n, StringRef name) {
    for (auto &a : n.attribute())
      if (a.name() == name)
        return a;
    return onnx_pb::AttributeProto::default_instance();
  }

  /// Empty: some of them are not numbers.
  static Dims dimsOf(const onnx_pb::ValueInfoProto &v) {
    Dims d;
    for (auto &dim : v.type().tensor_type().shape().dim()) {
      if (!dim.has_dim_value())
        return {};
      d.push_back(dim.dim_value());
    }
    return d;
  }

  static bool keepsElements(StringRef op) {
    static const llvm::StringSet<> ops{"Transpose", "Cast", "CastLike", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten"};
    return ops.contains(op);
  }
  /// The value whose elements these are, perhaps of another type or laid otherwise.
  StringRef behind(StringRef value) const {
    const auto *maker = makers_.lookup(value);
    for (int i = 0; maker && keepsElements(maker->op_type()) && i < kMostSteps; ++i) {
      value = maker->input(0);
      maker = makers_.lookup(value);
    }
    return value;
  }
  bool isScalar(StringRef value) const {
    const StringRef v = behind(value);
    return constants_.contains(v) || (file_.initializer(v) && elementCount(dimsOf(v)) == 1);
  }
  bool isMatrix(StringRef name) const {
    return llvm::count_if(dimsOf(name), [](int64_t d) { return d > 1; }) > 1;
  }
  /// Whether a node's result is what a parameter is multiplied as: turned, of another type, or what a layer makes of its weight.
  Way wayThrough(const onnx_pb::NodeProto &n, int index, StringRef name) const {
    StringRef op = n.op_type();
    if (index == 0 && keepsElements(op))
      return Way::Whole;
    if (op == "Concat" || (index == 0 && (op == "Slice" || op == "Split")))
      return Way::InParts;
    const bool isScaled = op == "Mul" && n.input_size() == 2 && isScalar(n.input(1 - index));
    return isMatrix(name) && (isScaled || (index == 0 && (op == "Sub" || op == "Div"))) ? Way::Whole : Way::None;
  }

  /// Dims of any value, as far as the file has them; empty: it has not.
  Dims shapeOf(StringRef value) const {
    std::vector<std::vector<int64_t>> turns;
    for (int i = 0; i < kMostSteps; ++i) {
      Dims d(dimsOf(value));
      if (d.empty())
        d = infos_.lookup(value);
      if (!d.empty()) {
        for (auto &perm : llvm::reverse(turns))
          d = turned(d, perm);
        return d;
      }
      const auto *maker = makers_.lookup(value);
      StringRef op = maker ? StringRef(maker->op_type()) : "";
      if (op == "Transpose")
        turns.emplace_back(attr(*maker, "perm").ints().begin(), attr(*maker, "perm").ints().end());
      else if (op != "Cast" && op != "CastLike" && op != "Identity")
        return {};
      value = maker->input(0);
    }
    return {};
  }
  static Dims turned(const Dims &d, llvm::ArrayRef<int64_t> perm) {
    if (perm.empty())
      return Dims(d.rbegin(), d.rend());
    Dims out;
    for (int64_t p : perm)
      out.push_back(p >= 0 && p < int64_t(d.size()) ? d[p] : 0);
    return out;
  }

  /// Inputs per output of a linear layer or convolution: the terms of its sums; 0: the file does not say.
  double fanIn(const onnx_pb::NodeProto &n) const {
    if (n.input_size() < 2)
      return 0;
    const Dims left = shapeOf(n.input(0)), right = shapeOf(n.input(1));
    if (StringRef(n.op_type()).starts_with("Conv"))
      return right.size() < 2 ? 0 : double(elementCount(llvm::ArrayRef(right).drop_front(1)));
    const bool isGemm = n.op_type() == "Gemm", turnsLeft = isGemm && attr(n, "transA").i(),
               turnsRight = isGemm && attr(n, "transB").i();
    if (right.size() > 1)
      return double(right[right.size() - (turnsRight ? 1 : 2)]);
    return left.size() > 1 ? double(left[left.size() - (turnsLeft ? 2 : 1)]) : 0;
  }

  /// Of a product by an equation, the terms of each sum, as far as an operand has them; 0: the file does not say.
  double termsOf(const onnx_pb::NodeProto &n, int index) const {
    std::string equation = attr(n, "equation").s();
    llvm::erase(equation, ' ');
    auto [in, out] = StringRef(equation).split("->");
    llvm::SmallVector<StringRef, 4> operands;
    in.split(operands, ',');
    const Dims d = shapeOf(n.input(index));
    if (out.empty() || size_t(index) >= operands.size() || operands[index].size() != d.size())
      return 0;
    double terms = 1;
    for (size_t i = 0; i < d.size(); ++i)
      terms *= out.contains(operands[index][i]) ? 1 : double(d[i]);
    return terms;
  }

  /// A bias is drawn as the weight beside it, of a linear layer, a convolution or torch.nn.Bilinear; a norm's is 0.
  std::optional<Init> besideWeight(StringRef name) const {
    const std::string weight = (name.drop_back(4) + "weight").str();
    auto init = file_.initializer(weight) ? of(weight) : std::nullopt;
    return init && init->kind == Init::Uniform ? init : splat(0);
  }

  /// The product that a value is, perhaps of another type or laid otherwise.
  const onnx_pb::NodeProto *productOf(StringRef value) const {
    const auto *maker = makers_.lookup(behind(value));
    return maker && maker->op_type() == "MatMul" ? maker : nullptr;
  }

  /// torch.nn.MultiheadAttention's parameters; those of its projections have the names of a linear layer's, whose bias starts as
  /// 0.
  std::optional<Init> ofAttention(StringRef name) const {
    auto d = dimsOf(name);
    for (StringRef end : {"in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"})
      if (name.ends_with(end) && d.size() == 2)
        return within(std::sqrt(6 / double(d[0] + d[1])));
    StringRef prefix = name;
    if (prefix.consume_back("in_proj_bias") || (prefix.consume_back("out_proj.bias") && hasProjections(prefix)))
      return splat(0);
    return std::nullopt;
  }
  bool hasProjections(StringRef prefix) const {
    return file_.initializer((prefix + "in_proj_weight").str()) || file_.initializer((prefix + "q_proj_weight").str());
  }

  int64_t hiddenSize(const onnx_pb::NodeProto &n) const {
    const Dims hidden = n.input_size() > 2 ? shapeOf(n.input(2)) : Dims();
    return hidden.empty() ? attr(n, "hidden_size").i() : hidden.back();
  }

  std::optional<Init> under(const onnx_pb::NodeProto &n, int index, StringRef name, const Step &at) const {
    StringRef op = n.op_type();
    if ((op == "LSTM" || op == "GRU" || op == "RNN") && index > 0)
      return uniform(double(hiddenSize(n)));
    if (at.isInParts || wayThrough(n, index, name) != Way::None)
      return std::nullopt;
    if (op == "Gather" && index == 0) {
      Init i;
      i.kind = Init::Normal;
      i.b = 1;
      return i;
    }
    if (op == "MatMul" || op == "Gemm" || op == "Conv" || op == "ConvTranspose")
      return uniform(fanIn(n));
    if (op == "Einsum")
      return uniform(termsOf(n, index));
    if (op == "PRelu")
      return splat(0.25);
    if (op == "BatchNormalization")
      return splat(index == 1 || index == 4);
    if (op.ends_with("Normalization"))
      return splat(index == 1);
    if (op == "Add")
      for (auto &input : n.input())
        if (auto *product = productOf(input); product && fanIn(*product) > 0)
          return uniform(fanIn(*product)); // a linear layer's bias
    if (name.ends_with("bias"))
      return besideWeight(name);
    if (at.value != name && isMatrix(name)) // what a layer makes of its weight on the way
      return std::nullopt;
    if (op == "Add" || op == "Sub")
      return splat(0);
    if (op == "Mul")
      return splat(1); // the scale of a norm that is spelled out
    return std::nullopt;
  }

  static constexpr int kMostSteps = 32; ///< from a value to where it comes from
  const OnnxFile &file_;
  llvm::StringMap<std::vector<Reader>> readers_;
  llvm::StringMap<const onnx_pb::NodeProto *> makers_;
  llvm::StringSet<> constants_;
  llvm::StringMap<Dims> infos_; ///< of values that are no initializers
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
    const bool isWeight = how->kind == Init::Uniform || how->kind == Init::Normal;
    if (deviation >= 0 && isWeight && p->source->dims.size() >= 2) {
      how->kind = Init::Normal;
      how->a = 0;
      how->b = deviation;
    } else if (deviation >= 0 && isWeight) {
      *how = Init(); // biases
    }
    if (how->kind == Init::Uniform && how->b == 0) { // of what it is a part of no extents are known
      open.push_back(p->source->name);
      continue;
    }
    p->global->init = *how;
  }
  if (!open.empty())
    return error(noDataOf(*file.initializer(open[0]), open, options));
  return llvm::Error::success();
}
