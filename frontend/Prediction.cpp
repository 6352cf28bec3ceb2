// Finds in a graph that ends in a loss what the loss compares with the labels.
//
// Nodes that read a parameter, and those before them, are the model; what comes after may be the loss. Labels are the inputs that
// only the loss reads. Of the values that every way from a parameter to the loss goes through, the last one into which no label
// has gone is the prediction.
#include "frontend/onnx/ExportIndex.h"
#include "onnx.pb.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace zcc;
using llvm::StringRef;

namespace {

struct GraphNode {
  const onnx_pb::NodeProto *proto;
  std::vector<int> reads, results; ///< values
  bool isNeeded = false;           ///< for the loss
  bool isModel = false;            ///< reads a parameter, or comes before a node that does
};

struct Flow {
  std::string name;
  int maker = -1, lastReader = -1; ///< nodes; the readers are those that the loss needs
  bool isInput = false;
  bool isTrained = false, isData = false;       ///< comes from a trained initializer; from an input
  bool isFromLabel = false, meetsLabel = false; ///< comes from a label alone; with a parameter, too
  bool feedsModel = false;
  bool isActivation() const { return isTrained && isData; }
};

class Finder {
public:
  Finder(const onnx_pb::GraphProto &graph, const GraphValues &types, const llvm::StringSet<> &trained) : types(types) {
    for (auto &o : graph.output())
      outputs.insert(o.name());
    for (const auto &name : trained.keys())
      values[number(name.str())].isTrained = true;
    for (auto &i : graph.input()) {
      Flow &v = values[number(i.name())];
      v.isInput = v.isData = !v.isTrained;
    }
    for (auto &proto : graph.node()) {
      GraphNode n{&proto, {}, {}};
      bool readsShape = proto.op_type() == "Shape" || proto.op_type() == "Size";
      forEachRead(proto, [&](const std::string &name) {
        if (auto known = numbers.find(name); known != numbers.end() && !readsShape)
          n.reads.push_back(int(known->second));
      });
      for (auto &o : proto.output()) {
        n.results.push_back(number(o));
        values[n.results.back()].maker = int(nodes.size());
      }
      nodes.push_back(std::move(n));
    }
  }

  Prediction find(const std::string &loss) {
    auto known = numbers.find(loss);
    if (known == numbers.end() || values[known->second].maker < 0)
      return {"", "no node computes the loss"};
    int lossValue = int(known->second);
    follow();
    trace(lossValue);
    markLabels();
    int best = lastCut(lossValue);
    if (best < 0)
      return {"", none()};
    best = withoutReshaping(best);
    return {values[best].name, ""};
  }

private:
  int number(const std::string &name) {
    auto [known, isNew] = numbers.try_emplace(name, unsigned(values.size()));
    if (isNew)
      values.push_back({name});
    return int(known->second);
  }
  bool reads(const GraphNode &n, llvm::function_ref<bool(const Flow &)> f) const {
    return llvm::any_of(n.reads, [&](int v) { return f(values[v]); });
  }

  /// From the inputs on: what depends on parameters and on data.
  void follow() {
    for (GraphNode &n : nodes)
      for (int r : n.results) {
        values[r].isTrained = reads(n, [](auto &v) { return v.isTrained; });
        values[r].isData = reads(n, [](auto &v) { return v.isData; });
      }
  }

  /// Back from the loss: what it needs, and what of that is in front of a parameter.
  void trace(int loss) {
    std::vector<bool> isWanted(values.size());
    isWanted[loss] = true;
    for (int i = int(nodes.size()); i-- > 0;) {
      GraphNode &n = nodes[i];
      n.isNeeded = llvm::any_of(n.results, [&](int r) { return isWanted[r]; });
      if (!n.isNeeded)
        continue;
      n.isModel = reads(n, [](auto &v) { return v.isTrained && !v.isData; }) ||
                  llvm::any_of(n.results, [&](int r) { return values[r].feedsModel; });
      for (int r : n.reads) {
        isWanted[r] = true;
        values[r].lastReader = std::max(values[r].lastReader, i);
        values[r].feedsModel |= n.isModel;
      }
    }
    values[loss].lastReader = int(nodes.size());
  }

  /// Without an input that only the loss reads it is a copy of another input that the model is compared with.
  void markLabels() {
    auto isLabel = [](const Flow &v) { return v.isInput && v.lastReader >= 0 && !v.feedsModel; };
    bool any = llvm::any_of(values, isLabel);
    for (Flow &v : values)
      v.isFromLabel = v.isInput && (any ? isLabel(v) : v.lastReader >= 0);
    for (GraphNode &n : nodes) {
      if (!n.isNeeded)
        continue;
      bool fromLabel = reads(n, [](auto &v) { return v.isFromLabel; });
      for (int r : n.results) {
        values[r].isFromLabel = fromLabel && !values[r].isTrained;
        values[r].meetsLabel = reads(n, [](auto &v) { return v.meetsLabel; }) || (fromLabel && values[r].isTrained && !n.isModel);
      }
    }
  }

  /// The last value that nothing goes around, and that has met no label; -1: none.
  int lastCut(int loss) const {
    int best = -1, reach = -1; // reach: the last node that reads an activation from before
    for (int i = 0; i < int(nodes.size()); ++i) {
      int own = -1, activations = 0;
      for (int r : nodes[i].results)
        if (nodes[i].isNeeded && values[r].isActivation() && values[r].lastReader >= 0) {
          ++activations;
          own = r;
        }
      if (activations && !reads(nodes[i], [](auto &v) { return v.isActivation(); }))
        best = -1; // a way that begins here goes around all before
      if (activations == 1 && reach <= i && own != loss && !values[own].meetsLabel && !isNumber(own))
        best = own;
      for (int r : nodes[i].results)
        if (values[r].isActivation())
          reach = std::max(reach, values[r].lastReader);
    }
    return best;
  }

  /// The end of a loss without labels, such as the mean of a contrastive one.
  bool isNumber(int value) const {
    auto type = types.types.find(values[value].name);
    return type != types.types.end() && type->second.count() == 1;
  }

  /// Back over what a loss does to its operand, but for an output of the model.
  int withoutReshaping(int value) const {
    static const StringRef kReshaping[] = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Cast", "Identity"};
    while (!outputs.contains(values[value].name)) {
      const GraphNode &n = nodes[values[value].maker];
      if (!llvm::is_contained(kReshaping, n.proto->op_type()) || n.reads.empty() || !values[n.reads[0]].isActivation())
        break;
      value = n.reads[0];
    }
    return value;
  }

  /// Why there is no cut.
  std::string none() const {
    llvm::SetVector<int> compared;
    for (const GraphNode &n : nodes)
      for (int r : n.reads)
        if (n.isNeeded && values[r].isActivation() && !values[r].meetsLabel &&
            llvm::any_of(n.results, [&](int o) { return values[o].meetsLabel; }))
          compared.insert(withoutReshaping(r));
    if (compared.empty())
      return "no value lies between the parameters and the loss";
    std::vector<std::string> names;
    for (int v : compared)
      names.push_back("'" + values[v].name + "'");
    if (names.size() > 5)
      names.resize(5);
    return "the loss compares several values with inputs; name one, such as " + llvm::join(names, ", ");
  }

  std::vector<GraphNode> nodes;
  std::vector<Flow> values;
  llvm::StringMap<unsigned> numbers;
  llvm::StringSet<> outputs;
  const GraphValues &types;
};

} // namespace

Prediction zcc::findPrediction(const onnx_pb::GraphProto &graph, const GraphValues &values, const llvm::StringSet<> &trained) {
  if (!values.lossOf.empty())
    return {values.lossOf, ""};
  if (!values.loss.empty())
    return Finder(graph, values, trained).find(values.loss);
  if (graph.output_size() == 1)
    return {graph.output(0).name(), ""};
  return {"", "the model has several outputs; name one, such as '" + (graph.output_size() ? graph.output(0).name() : "") + "'"};
}
