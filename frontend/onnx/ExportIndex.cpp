// Writes the index: fields with what they need, values with their types, names of nodes and modules.
#include "frontend/onnx/ExportIndex.h"
#include "frontend/onnx/OnnxFile.h"
#include "frontend/onnx/SourceLoc.h"
#include "frontend/onnx/Wire.h"
#include "onnx.pb.h"
#include "runtime/zccrt.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include <map>

using namespace zcc;
using llvm::StringRef;

constexpr int kGraphNode = 1, kGraphInput = 11, kGraphOutput = 12, kGraphInfo = 13, kGraphAnnotation = 14;

void zcc::forEachRead(const onnx_pb::NodeProto &node, llvm::function_ref<void(const std::string &)> f) {
  auto inGraph = [&](const onnx_pb::GraphProto &g) {
    for (auto &n : g.node())
      forEachRead(n, f);
    for (auto &o : g.output())
      f(o.name());
  };
  for (const std::string &name : node.input())
    if (!name.empty())
      f(name);
  for (auto &a : node.attribute()) {
    if (a.has_g())
      inGraph(a.g());
    for (auto &g : a.graphs())
      inGraph(g);
  }
}

/// The module a node is in, "h.0.attn": by the metadata, or by TorchScript's name "/h.0/attn/MatMul".
static std::string moduleOf(const onnx_pb::NodeProto &n) {
  if (auto scope = scopeOf(n))
    return *scope;
  StringRef name = n.name();
  if (!name.consume_front("/") || !name.contains('/'))
    return "";
  std::string path = name.rsplit('/').first.str();
  std::replace(path.begin(), path.end(), '/', '.');
  return path;
}

namespace {

struct Field {
  int number = 0;
  StringRef whole;
  int ordinal = 0; ///< among those of its number
};

class IndexWriter {
public:
  IndexWriter(const onnx_pb::GraphProto &graph, const ExportLayout &layout, const GraphValues &values)
      : graph(graph), layout(layout), values(values) {
    int counts[17] = {};
    forEachField(layout.fields, [&](const WireField &f) {
      int ordinal = f.number < 17 ? counts[f.number]++ : 0;
      fields.push_back({f.number, f.whole, ordinal});
      return true;
    });
    for (auto [i, f] : llvm::enumerate(fields)) {
      if (f.number == kGraphNode)
        for (auto &o : graph.node(f.ordinal).output())
          makers[o].push_back(i);
      if (f.number == kGraphInput)
        makers[graph.input(f.ordinal).name()].push_back(i);
    }
    for (auto [i, t] : llvm::enumerate(layout.initializers))
      makers[t.first].push_back(fields.size() + i);
    makers.erase("");
  }

  std::string take(const Prediction &prediction) {
    number(layout.modelBytes);
    number(layout.headerBytes);
    number(int64_t(fields.size() + layout.initializers.size()));
    for (const Field &f : fields)
      field(f);
    for (auto &[name, bytes] : layout.initializers) {
      number(bytes);
      number(ZCCRT_FIELD_NEEDED);
      number(0);
    }
    collectValues();
    writeValues();
    writeAliases();
    auto found = valueNumber.find(prediction.value);
    bool isKnown = found != valueNumber.end();
    number(isKnown ? found->second + 1 : 0);
    text(isKnown ? "" : !prediction.value.empty() ? "the type of '" + prediction.value + "' is not known" : prediction.why);
    return std::move(out);
  }

private:
  struct Value {
    unsigned field, type;
    std::string name;
  };

  void number(int64_t n) { out += varint(uint64_t(n)); }
  void text(StringRef s) {
    number(int64_t(s.size()));
    out += s;
  }
  /// A name that stands in a field, as a rule.
  void name(StringRef s, StringRef field) {
    size_t at = field.find(s);
    number(at == StringRef::npos ? 0 : int64_t(at) + 1);
    at == StringRef::npos ? text(s) : number(int64_t(s.size()));
  }

  void field(const Field &f) {
    llvm::SetVector<unsigned> needs;
    auto need = [&](const std::string &value) {
      auto found = makers.find(value);
      if (found != makers.end())
        needs.insert(found->second.begin(), found->second.end());
    };
    int kind = f.number == kGraphOutput ? ZCCRT_FIELD_NEVER : ZCCRT_FIELD_ALWAYS;
    if (f.number == kGraphNode) {
      kind = ZCCRT_FIELD_NEEDED;
      forEachRead(graph.node(f.ordinal), need);
    } else if (f.number == kGraphInput) {
      kind = ZCCRT_FIELD_INPUT;
    } else if (f.number == kGraphInfo || f.number == kGraphAnnotation) {
      need(f.number == kGraphInfo ? graph.value_info(f.ordinal).name() : graph.quantization_annotation(f.ordinal).tensor_name());
      kind = needs.empty() ? ZCCRT_FIELD_NEVER : ZCCRT_FIELD_ABOUT;
    }
    number(int64_t(f.whole.size()));
    number(kind);
    number(int64_t(needs.size()));
    for (unsigned n : needs)
      number(n);
    if (kind == ZCCRT_FIELD_INPUT)
      name(graph.input(f.ordinal).name(), f.whole);
  }

  /// The type that the file states, else the one that the import found.
  std::string typeOf(const std::string &value, const llvm::StringMap<const onnx_pb::ValueInfoProto *> &declared) {
    if (auto *info = declared.lookup(value); info && info->has_type())
      return info->type().SerializeAsString();
    auto found = values.types.find(value);
    if (found == values.types.end())
      return "";
    onnx_pb::TypeProto type;
    auto *tensor = type.mutable_tensor_type();
    tensor->set_elem_type(onnxFromElem(found->second.elem));
    auto *shape = tensor->mutable_shape();
    for (int64_t d : found->second.dims)
      if (auto *dim = shape->add_dim(); !values.hasOpenDims)
        dim->set_dim_value(d);
    return type.SerializeAsString();
  }

  void collectValues() {
    llvm::StringMap<const onnx_pb::ValueInfoProto *> declared;
    for (auto &i : graph.output())
      declared.try_emplace(i.name(), &i);
    for (auto &i : graph.value_info())
      declared.try_emplace(i.name(), &i);
    for (auto [i, f] : llvm::enumerate(fields)) {
      if (f.number == kGraphInfo)
        infoField[graph.value_info(f.ordinal).name()] = i;
      if (f.number != kGraphNode)
        continue;
      for (auto &o : graph.node(f.ordinal).output()) {
        std::string type = o.empty() ? "" : typeOf(o, declared);
        if (type.empty())
          continue;
        auto [known, isNew] = typeNumber.try_emplace(type, unsigned(types.size()));
        if (isNew)
          types.push_back(type);
        valueNumber[o] = unsigned(all.size());
        all.push_back({unsigned(i), known->second, o});
      }
    }
  }

  void writeValues() {
    number(int64_t(types.size()));
    for (const std::string &type : types)
      text(type);
    number(int64_t(all.size()));
    for (const Value &v : all) {
      auto info = infoField.find(v.name);
      number(v.field);
      number(info == infoField.end() ? 0 : info->second + 1);
      number(v.type);
      name(v.name, fields[v.field].whole);
    }
  }

  /// A node stands for its first result, a module for that of its last node.
  void writeAliases() {
    std::map<std::string, unsigned> aliases;
    for (const Field &f : fields) {
      if (f.number != kGraphNode)
        continue;
      const onnx_pb::NodeProto &n = graph.node(f.ordinal);
      auto value = n.output_size() ? valueNumber.find(n.output(0)) : valueNumber.end();
      if (value == valueNumber.end())
        continue;
      for (std::string path = moduleOf(n); !path.empty(); path = path.substr(0, path.find_last_of('.'))) {
        aliases[path] = value->second;
        if (path.find('.') == std::string::npos)
          break;
      }
    }
    for (const Field &f : fields)
      if (f.number == kGraphNode)
        if (const onnx_pb::NodeProto &n = graph.node(f.ordinal); n.output_size() && !n.name().empty())
          if (auto value = valueNumber.find(n.output(0)); value != valueNumber.end())
            aliases.insert({n.name(), value->second});
    std::erase_if(aliases, [&](auto &a) { return valueNumber.contains(a.first); });
    number(int64_t(aliases.size()));
    for (auto &[alias, value] : aliases) {
      number(value);
      name(alias, fields[all[value].field].whole);
    }
  }

  const onnx_pb::GraphProto &graph;
  const ExportLayout &layout;
  const GraphValues &values;
  std::vector<Field> fields;
  llvm::StringMap<llvm::SmallVector<unsigned, 2>> makers; ///< of a value: the fields it comes from
  llvm::StringMap<unsigned> infoField, valueNumber, typeNumber;
  std::vector<std::string> types;
  std::vector<Value> all;
  std::string out;
};

} // namespace

std::string zcc::makeExportIndex(const onnx_pb::GraphProto &graph, const ExportLayout &layout, const GraphValues &values,
                                 const llvm::StringSet<> &trained) {
  return IndexWriter(graph, layout, values).take(findPrediction(graph, values, trained));
}
