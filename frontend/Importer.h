// The import loop's insides: scopes of ONNX values, and what one operator's importer sees of its node.
#pragma once

#include "frontend/Emitter.h"
#include "frontend/parameters/Parameters.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"
#include <map>

namespace zcc {

namespace onnx_pb {
class AttributeProto;
class GraphProto;
class NodeProto;
class TensorProto;
class ValueInfoProto;
} // namespace onnx_pb

enum class Mode { Training, Eval };

/// What cannot be compiled, over all functions: one report.
class Problems {
public:
  void unsupported(const std::string &what, const Loc &where);
  void invalid(const std::string &what, const Loc &where);
  void add(llvm::Error e); ///< anything else that is wrong; success adds nothing
  bool any() const { return !seen_.empty() || !wrong_.empty(); }
  /// The list of everything that is not supported, then everything that is wrong.
  llvm::Error take(llvm::StringRef file) const;

private:
  struct Seen {
    std::string what;
    std::vector<std::string> nodes;
  };
  std::vector<Seen> seen_; ///< in order of appearance
  std::vector<std::string> wrong_;
};

/// The values that the nodes of one graph see. A subgraph also sees its parent's; a function's body
/// does not.
struct Scope {
  Scope *parent = nullptr;
  llvm::StringMap<Val> values;
  /// Outputs of nodes that could not be imported, and what follows from them. Where the file declares their types,
  /// `values` has a stand-in, so that the nodes behind them are looked at too.
  llvm::StringSet<> failed;
  llvm::StringMap<const onnx_pb::ValueInfoProto *> declared;         ///< types that the file states
  int64_t opset = 0;                                                 ///< of ai.onnx
  std::map<std::string, const onnx_pb::AttributeProto *> attributes; ///< a function's, from its call
  bool isMain = false;                                               ///< whether initializers are in view

  const Val *find(llvm::StringRef name) const;
  bool hasFailed(llvm::StringRef name) const;
  template <typename Infos> void declare(const Infos &infos) {
    for (auto &info : infos)
      declared.try_emplace(info.name(), &info);
  }
};

class GraphImporter;

/// One node, as its operator's importer sees it.
class NodeImport {
public:
  NodeImport(GraphImporter &g, Scope &s, const onnx_pb::NodeProto &n);

  GraphImporter &graph;
  Scope &scope;
  Emitter &e;
  const onnx_pb::NodeProto &node;
  std::string op;
  int64_t opset;

  unsigned inputs() const { return unsigned(operands_.size()); }
  bool has(unsigned i) const { return i < operands_.size() && bool(operands_[i]); }
  const Val &in(unsigned i) const; ///< throws if it is left out
  Val optional(unsigned i) const { return has(i) ? operands_[i] : Val(); }
  void setInput(unsigned i, Val v); ///< what an upgrade does
  void dropInput(unsigned i) {
    if (has(i))
      operands_[i] = Val();
  }

  unsigned outputs() const;
  bool wants(unsigned i) const; ///< whether output i has a name
  void out(unsigned i, Val v);
  void out(Val v) { out(0, std::move(v)); }
  std::vector<Val> &results() { return results_; }

  // Attributes. What is never asked for is reported as not supported.
  bool hasAttr(const char *name) const;
  int64_t i(const char *name, int64_t otherwise = 0);
  double f(const char *name, double otherwise = 0);
  std::string s(const char *name, llvm::StringRef otherwise = "");
  /// One of these words. Throws if it is another.
  std::string oneOf(const char *name, std::initializer_list<llvm::StringRef> words, llvm::StringRef otherwise);
  std::vector<int64_t> ints(const char *name);
  std::vector<double> floats(const char *name);
  std::vector<std::string> strings(const char *name);
  /// An element type, by ONNX's number. Throws if there is none such.
  Elem elemOf(const char *name, std::optional<Elem> otherwise = std::nullopt);
  const onnx_pb::TensorProto *tensor(const char *name);
  const onnx_pb::GraphProto *subgraph(const char *name);
  void ignore(std::initializer_list<const char *> names); ///< they say nothing that matters here
  /// The attributes nobody asked for.
  std::vector<std::string> unread() const;

  /// ints of input `index` if it is there; they must be constant.
  std::optional<std::vector<int64_t>> intsOf(unsigned index, const char *what) const;

private:
  const onnx_pb::AttributeProto *attr(const char *name, int type);
  std::vector<Val> operands_, results_;
  std::map<std::string, const onnx_pb::AttributeProto *> attributes_;
  llvm::StringSet<> read_;
};

/// Imports the model's graph into one function.
class GraphImporter {
public:
  GraphImporter(const OnnxFile &file, const ImportOptions &options, Parameters &parameters, Module &module, Function &fn,
                Mode mode, Problems &problems, ImportReport &report);

  const OnnxFile &file;
  const ImportOptions &options;
  Parameters &parameters;
  Module &module;
  Mode mode;
  Problems &problems;
  ImportReport &report;
  Emitter e;
  Scope main;
  Vals iterations; ///< numbers of the iterations of the loops whose bodies are being made

  bool training() const { return mode == Mode::Training; }
  /// The whole graph; inputs become arguments. What is wrong is among the problems.
  void run();
  /// Nodes of a graph or function into a scope.
  void importNodes(llvm::ArrayRef<const onnx_pb::NodeProto *> nodes, Scope &scope);
  /// A subgraph with bound inputs (If, Loop, Scan); returns its outputs. Throws if one could not be
  /// imported.
  Vals importSubgraph(const onnx_pb::GraphProto &g, llvm::ArrayRef<Val> inputs, Scope &parent);

  /// The parameter as a value: known if it is a constant small enough to fold.
  Val valueOf(Parameter &p);
  /// A tensor message (an attribute) as a known value.
  Val valueOf(const onnx_pb::TensorProto &t);
  /// A value by name; throws if there is none.
  Val lookup(llvm::StringRef name, Scope &scope, const onnx_pb::NodeProto *node, unsigned index);

  /// Draws in [0, 1) or from the normal distribution, new at every step.
  Val random(const OpDef &op, llvm::ArrayRef<int64_t> dims);
  /// The state that the runtime sets ("seed", "step", "micro").
  GlobalValue *runtimeState(llvm::StringRef name, Elem elem);
  /// Notes that integers of an input (seen through shape operators) must lie in lo..hi or equal
  /// `ignore`. Returns whether they are an input's.
  bool noteRange(const Val &index, int64_t lo, int64_t hi, std::optional<int64_t> ignore = std::nullopt);
  /// Of integers that QuantizeLinear makes in training: what they are made of, and where they were within range. PyTorch's
  /// fake_quantize passes gradients there, as if nothing were rounded.
  struct Quantized {
    Val from, isInRange;
    bool isPassedOn = false;
  };
  llvm::MapVector<Value *, Quantized> quantized;
  /// What integers were made of, for what passes the gradient on; nullptr: that is not known.
  const Quantized *passOn(const Val &integers);
  /// What is told of values and nodes, which is taken back with the nodes of a body that cannot be made.
  struct Notes {
    Problems problems;
    llvm::MapVector<Value *, Quantized> quantized;
    llvm::DenseSet<Value *> named;
  };
  Notes notes() const { return {problems, quantized, named_}; }
  void restore(Notes n) { problems = std::move(n.problems), quantized = std::move(n.quantized), named_ = std::move(n.named); }
  /// What losses ignore of labels, by the input's name; nullopt: not all the same.
  llvm::StringMap<std::optional<int64_t>> ignored;
  void remarkOnce(const std::string &text);
  void warnOnce(const std::string &text);

  /// The graph's inputs become arguments.
  void addInputs();

private:
  llvm::Expected<Type> typeOf(const onnx_pb::ValueInfoProto &info) const;
  llvm::Error addInput(const onnx_pb::ValueInfoProto &input);
  void standIn(const std::string &name, Scope &scope);
  void importNode(const onnx_pb::NodeProto &n, Scope &scope, int64_t index);
  bool importCall(NodeImport &n);
  /// Counts a node that is not the main graph's; whether there were more of them than zcc takes.
  bool isTooMany(const Scope &scope);
  int64_t randoms_ = 0;
  int64_t copies_ = 0;            ///< nodes of functions and subgraphs, once for each call and iteration
  llvm::DenseSet<Value *> named_; ///< values that have a name of the model
};

/// An importer of an operator along one axis. Of a tensor without axes PyTorch takes, and both of its
/// exporters write, axis 0 and -1: it is imported as a tensor of one element.
void importAsOneElement(NodeImport &n, void (*import)(NodeImport &));
template <void (*Import)(NodeImport &)> void alongAxis(NodeImport &n) {
  n.in(0).rank() ? Import(n) : importAsOneElement(n, Import);
}

/// One ONNX operator's importer.
struct OnnxOp {
  const char *name;
  void (*import)(NodeImport &);
};
// By family; each list is in the file named after it.
llvm::ArrayRef<OnnxOp> elementwiseOps();
llvm::ArrayRef<OnnxOp> shapeOps();
llvm::ArrayRef<OnnxOp> indexOps();
llvm::ArrayRef<OnnxOp> reduceOps();
llvm::ArrayRef<OnnxOp> linearOps();
llvm::ArrayRef<OnnxOp> convOps();
llvm::ArrayRef<OnnxOp> poolOps();
llvm::ArrayRef<OnnxOp> normalizeOps();
llvm::ArrayRef<OnnxOp> lossOps();
llvm::ArrayRef<OnnxOp> randomOps();
llvm::ArrayRef<OnnxOp> recurrentOps();
llvm::ArrayRef<OnnxOp> attentionOps();
llvm::ArrayRef<OnnxOp> resizeOps();
llvm::ArrayRef<OnnxOp> sampleOps();
llvm::ArrayRef<OnnxOp> regionOps();
llvm::ArrayRef<OnnxOp> searchOps();
llvm::ArrayRef<OnnxOp> signalOps();
llvm::ArrayRef<OnnxOp> sequenceOps();
llvm::ArrayRef<OnnxOp> quantizeOps();
llvm::ArrayRef<OnnxOp> controlOps();
// Of com.microsoft: what ONNX Runtime's optimizer and Optimum write.
llvm::ArrayRef<OnnxOp> microsoftOps();
llvm::ArrayRef<OnnxOp> microsoftAttentionOps();
llvm::ArrayRef<OnnxOp> previewTrainingOps(); ///< of ai.onnx.preview.training
/// The importer of an operator, or nullptr.
void (*findOnnxOp(llvm::StringRef name, llvm::StringRef domain = ""))(NodeImport &);

/// Notes the nodes of a graph whose operators have no importer.
void findUnknown(const OnnxFile &file, Problems &problems);

/// Whether an operator of that name is gone from ONNX and becomes another one.
bool isRenamed(llvm::StringRef op);
/// Brings a node to the newest form of its operator (Upgrade.cpp): attributes that became inputs,
/// renamed operators.
void upgrade(NodeImport &n);

/// root(s), and 0 with the gradient 0 where s is zero, as PyTorch's norms have it.
Val rootOf(Emitter &e, const Val &s, llvm::function_ref<Val(const Val &)> root);

/// Per-element losses of `labels` under `logits`, class axis last: [N, C] and [N] -> f32[N]; mean
/// and sum over what is not ignored. Shared by SoftmaxCrossEntropyLoss and --loss.
struct CrossEntropy {
  Val logits, labels, weight; ///< weight: f32[C] or absent
  bool hasIgnore = false;
  int64_t ignore = -100;
  bool isChecked = true; ///< whether the data are looked at for labels of no class; else the loss of these is NaN
  double smoothing = 0;
};
Val meanOverValid(Emitter &e, const Val &rowLosses, const Val &labels, const CrossEntropy &c);
Val crossEntropyRows(Emitter &e, const CrossEntropy &c);

} // namespace zcc
