// Operators of com.microsoft but for attention: fused activations, normalisations and products, as ONNX Runtime's
// ContribOperators.md defines them.
#include "frontend/ops/Activation.h"

using namespace zcc;

namespace {
namespace microsoft_ops {

// ---- activations

Val plusBias(Emitter &e, const Val &x, const Val &bias) { return bias ? e.add(x, bias) : x; }

Val quickGeluOf(Emitter &e, const Val &x, double alpha) { return e.mul(x, e(ops::sigmoid, e.mul(x, alpha))); }

void gelu(NodeImport &n) { n.out(n.e(ops::gelu, n.in(0))); }
void fastGelu(NodeImport &n) { n.out(n.e(ops::gelu_tanh, plusBias(n.e, n.in(0), n.optional(1)))); }
void biasGelu(NodeImport &n) { n.out(n.e(ops::gelu, n.e.add(n.in(0), n.in(1)))); }
void quickGelu(NodeImport &n) { n.out(quickGeluOf(n.e, n.in(0), n.f("alpha", 1.702))); }

/// Half of the channels times the GELU of the other half.
void biasSplitGelu(NodeImport &n) {
  Emitter &e = n.e;
  Val x = e.add(n.in(0), n.in(1));
  int64_t axis = x.rank() - 1, half = x.dim(-1) / 2;
  n.out(e.mul(e.slice(x, axis, 0, half), e(ops::gelu, e.slice(x, axis, half, 2 * half))));
}

void biasAdd(NodeImport &n) { n.out(n.e.add(n.e.add(n.in(0), n.in(1)), n.in(2))); }

/// The activation that a fused product or convolution names, if any.
Val withActivation(NodeImport &n, const Val &x, const std::vector<std::optional<double>> &parameters) {
  std::string name = n.s("activation");
  return name.empty() ? x : activation(n.e, x, name, parameters);
}
/// The same, with parameters that are attributes.
Val withActivation(NodeImport &n, const Val &x) {
  auto of = [&](const char *name) { return n.hasAttr(name) ? std::optional(n.f(name)) : std::nullopt; };
  n.ignore({"activation_gamma"}); // none takes a third
  return withActivation(n, x, {of("activation_alpha"), of("activation_beta")});
}

// ---- softmax, dropout

/// softmax(data + bias) over all axes from `axis` on; the bias lacks some of the outer axes.
void biasSoftmax(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0), bias = n.in(1);
  int64_t axis = normalAxis(n.i("axis", 1), x.rank());
  bool inner = n.i("is_inner_broadcast", 1) != 0;
  int64_t rows = elementCount(x.dims().take_front(axis)), row = x.count() / std::max<int64_t>(1, rows),
          own = bias.count() / std::max<int64_t>(1, row);
  if (own < 1 || rows % own)
    invalid("a bias of " + bias.type.str() + " for " + x.type.str());
  // Inner: one bias row for several consecutive rows; outer: the bias rows over and over.
  Dims dims = inner ? Dims{own, rows / own, row} : Dims{rows / own, own, row};
  Val b = e.reshape(bias, inner ? Dims{own, 1, row} : Dims{1, own, row});
  n.out(e.reshape(e.softmax(e.add(e.reshape(x, dims), b), 2), x.dims()));
}

/// dropout(data + bias) + residual, by the importer of Dropout.
void biasDropout(NodeImport &n) {
  Emitter &e = n.e;
  Val residual = n.optional(2), ratio = n.optional(3), mode = n.optional(4);
  n.setInput(0, e.add(n.in(0), n.in(1)));
  n.setInput(1, ratio);
  n.setInput(2, mode);
  findOnnxOp("Dropout")(n);
  n.out(0, plusBias(e, n.results()[0], residual));
}

// ---- normalisations

/// What both skip forms add: input + skip + bias; [S, H] or [1, S, H] skips broadcast.
Val skipSum(NodeImport &n, const Val &bias) { return plusBias(n.e, n.e.add(n.in(0), n.in(1)), bias); }

void skipLayerNorm(NodeImport &n) {
  Val sum = skipSum(n, n.optional(4));
  Vals r =
      n.e.emitAll(ops::layer_norm, {sum, n.in(2), n.optional(3)}, {{"axis", sum.rank() - 1}, {"eps", n.f("epsilon", 1e-12)}});
  for (unsigned i = 0; i < 3; ++i)
    n.out(i, r[i]);
  n.out(3, sum);
}

void skipSimplifiedNorm(NodeImport &n) {
  Val sum = skipSum(n, n.optional(3));
  n.out(0, n.e.emit(ops::rms_norm, {sum, n.in(2)}, {{"axis", sum.rank() - 1}, {"eps", n.f("epsilon", 1e-12)}}));
  n.out(3, sum);
}

Val rowsOf(NodeImport &n, const Val &table, const Val &index) {
  n.graph.noteRange(index, 0, table.dim(0) - 1);
  return n.e.gather(table, n.e.cast(index, Elem::I64), 0);
}

/// Word, position and segment embeddings, normalised.
void embedLayerNorm(NodeImport &n) {
  Emitter &e = n.e;
  Val ids = n.in(0), positions = n.in(3), sum = rowsOf(n, n.in(2), ids);
  n.ignore({"mask_index_type"}); // how output 1 says the lengths
  if (ids.rank() != 2)
    invalid("token ids need two axes, got " + ids.type.str());
  sum = e.add(sum, n.has(8) ? rowsOf(n, positions, n.in(8)) : e.slice(positions, 0, 0, ids.dim(1)));
  if (n.has(1) && n.has(4))
    sum = e.add(sum, rowsOf(n, n.in(4), n.in(1)));
  n.out(0, e.emitAll(ops::layer_norm, {sum, n.in(5), n.in(6)}, {{"axis", int64_t(2)}, {"eps", n.f("epsilon", 1e-12)}})[0]);
  if (n.wants(1)) // how many tokens of each row the mask keeps
    n.out(1, n.has(7) ? e.cast(e.sum(e.cast(n.in(7), Elem::I64), {1}, Emitter::Keep::Nothing), Elem::I32)
                      : Emitter::integers({0}, {1}, Elem::I32));
  n.out(2, sum);
}

/// Groups of the channels, which come last by default; Swish behind it if asked for.
void groupNormOf(NodeImport &n, Val x) {
  Emitter &e = n.e;
  bool last = n.i("channels_last", 1) != 0;
  int64_t rank = x.rank(), groups = n.i("groups"), channels = rank < 3 ? 0 : x.dim(last ? -1 : 1);
  if (groups < 1 || channels < 1 || channels % groups)
    invalid(llvm::Twine(groups) + " groups of the channels of " + x.type.str());
  Dims toFirst{0, rank - 1}, toLast{0};
  for (int64_t i = 1; i + 1 < rank; ++i)
    toFirst.push_back(i);
  for (int64_t i = 2; i < rank; ++i)
    toLast.push_back(i);
  toLast.push_back(1);
  Val first = last ? e.transpose(x, toFirst) : x;
  Val flat = e.reshape(first, {x.dim(0), groups, elementCount(first.dims().drop_front()) / groups});
  Val y = e.emitAll(ops::layer_norm, {flat, Val(), Val()}, {{"axis", int64_t(2)}, {"eps", n.f("epsilon", 1e-5)}})[0];
  Dims each(rank, 1);
  each[1] = channels;
  y = e.add(e.mul(e.reshape(y, first.dims()), e.reshape(n.in(1), each)), e.reshape(n.in(2), each));
  if (n.i("activation"))
    y = e(ops::silu, y);
  n.out(0, last ? e.transpose(y, toLast) : y);
}

void groupNorm(NodeImport &n) { groupNormOf(n, n.in(0)); }
void skipGroupNorm(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0), skip = n.in(3);
  if (skip.rank() == 2 && x.rank() == 4)
    skip = e.unsqueeze(skip, {1, 2});
  Val sum = plusBias(e, e.add(x, skip), n.optional(4));
  groupNormOf(n, sum);
  n.out(1, sum);
}

// ---- products

/// Swaps the last two axes (transX), or moves the last batch axis behind them first (transBatchX).
Val arranged(Emitter &e, Val x, bool trans, bool transBatch) {
  if (x.rank() < 2)
    return x;
  if (transBatch) { // [d0, ..., rows, columns] stands as [rows, d0, ..., columns]
    Dims perm = allAxes(1, x.rank() - 1);
    perm.push_back(0);
    perm.push_back(x.rank() - 1);
    x = e.transpose(x, perm);
  }
  return trans ? e.swapAxes(x, -1, -2) : x;
}

void fusedMatMul(NodeImport &n) {
  Emitter &e = n.e;
  n.setInput(0, arranged(e, n.in(0), n.i("transA"), n.i("transBatchA")));
  n.setInput(1, arranged(e, n.in(1), n.i("transB"), n.i("transBatchB")));
  findOnnxOp("MatMul")(n);
  Val y = e.mul(n.results()[0], n.f("alpha", 1));
  n.ignore({"activation_axis"});
  n.out(withActivation(n, y));
}

void fusedGemm(NodeImport &n) {
  findOnnxOp("Gemm")(n);
  n.out(withActivation(n, n.results()[0]));
}

void gemmFastGelu(NodeImport &n) { n.out(n.e(ops::gelu_tanh, plusBias(n.e, n.e.matmul(n.in(0), n.in(1)), n.optional(2)))); }

/// Conv, plus its fourth input, then the activation.
void fusedConv(NodeImport &n) {
  Val added = n.optional(3);
  findOnnxOp("Conv")(n);
  const auto p = n.floats("activation_params");
  n.out(withActivation(n, plusBias(n.e, n.results()[0], added), {p.begin(), p.end()}));
}

/// An operator of the standard under the same or another name.
template <const char *Name> void standard(NodeImport &n) { findOnnxOp(Name)(n); }
constexpr char kTrilu[] = "Trilu", kGatherND[] = "GatherND", kRange[] = "Range", kRmsNorm[] = "SimplifiedLayerNormalization",
               kLayerNorm[] = "LayerNormalization", kExpand[] = "Expand", kPad[] = "Pad", kEinsum[] = "Einsum",
               kLoss[] = "SoftmaxCrossEntropyLoss", kConcat[] = "Concat";

/// Of training graphs: the loss with `ignore_index` as an input.
void lossInternal(NodeImport &n) {
  n.ignore({"output_type"});
  if (n.has(3))
    unsupported("ignore_index as an input");
  findOnnxOp(kLoss)(n);
}

const OnnxOp kOps[] = {
    {"Gelu", gelu},
    {"FastGelu", fastGelu},
    {"BiasGelu", biasGelu},
    {"QuickGelu", quickGelu},
    {"BiasSplitGelu", biasSplitGelu},
    {"BiasAdd", biasAdd},
    {"BiasSoftmax", biasSoftmax},
    {"BiasDropout", biasDropout},
    {"LayerNormalization", standard<kLayerNorm>},
    {"SimplifiedLayerNormalization", standard<kRmsNorm>},
    {"SkipLayerNormalization", skipLayerNorm},
    {"SkipSimplifiedLayerNormalization", skipSimplifiedNorm},
    {"EmbedLayerNormalization", embedLayerNorm},
    {"GroupNorm", groupNorm},
    {"SkipGroupNorm", skipGroupNorm},
    {"FusedMatMul", fusedMatMul},
    {"FusedMatMulActivation", fusedMatMul},
    {"TransposeMatMul", fusedMatMul},
    {"FusedGemm", fusedGemm},
    {"GemmFastGelu", gemmFastGelu},
    {"FusedConv", fusedConv},
    {"Trilu", standard<kTrilu>},
    {"GatherND", standard<kGatherND>},
    {"Range", standard<kRange>},
    {"Pad", standard<kPad>},
    {"Expand", standard<kExpand>},
    {"Einsum", standard<kEinsum>},
    {"ConcatTraining", standard<kConcat>},
    {"SoftmaxCrossEntropyLossInternal", lossInternal},
};

} // namespace microsoft_ops
} // namespace

llvm::ArrayRef<OnnxOp> zcc::microsoftOps() { return microsoft_ops::kOps; }
