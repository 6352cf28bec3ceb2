// Writes the skeleton of the exported file: everything but tensor data as bytes, each tensor as a hole or a file range. Protocol
// Buffers' messages concatenate, so the graph's other fields come first and then one initializer after another.
#include "frontend/onnx/ExportIndex.h"
#include "frontend/onnx/OnnxFile.h"
#include "frontend/onnx/Wire.h"
#include "frontend/parameters/Parameters.h"
#include "onnx.pb.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>

using namespace zcc;
using llvm::StringRef;

namespace {

class Writer {
public:
  std::vector<ExportPiece> pieces;
  std::vector<std::pair<std::string, int64_t>> initializers; ///< names, bytes

  void bytes(std::string s) {
    size_ += int64_t(s.size());
    if (!pieces.empty() && pieces.back().kind == ExportPiece::Bytes) {
      pieces.back().bytes += s;
      pieces.back().size = int64_t(pieces.back().bytes.size());
      return;
    }
    ExportPiece p;
    p.size = int64_t(s.size());
    p.bytes = std::move(s);
    pieces.push_back(std::move(p));
  }
  void range(const std::string &file, int64_t offset, int64_t size) {
    ExportPiece p;
    p.kind = ExportPiece::Range;
    p.file = file;
    p.offset = offset;
    p.size = size;
    size_ += size;
    pieces.push_back(std::move(p));
  }
  void tensor(const std::string &global, bool transposed, int64_t size) {
    ExportPiece p;
    p.kind = ExportPiece::Tensor;
    p.global = global;
    p.transposed = transposed;
    p.size = size;
    size_ += size;
    pieces.push_back(std::move(p));
  }
  void append(Writer &&w) {
    for (ExportPiece &p : w.pieces)
      if (p.kind == ExportPiece::Bytes)
        bytes(std::move(p.bytes));
      else {
        size_ += p.size;
        pieces.push_back(std::move(p));
      }
  }
  int64_t size() const { return size_; }

private:
  int64_t size_ = 0;
};

// ---- model.eval()

/// Dropout does nothing, BatchNormalization uses its statistics, unless something reads those of the batch.
void nodeToInference(onnx_pb::NodeProto &n, const llvm::StringSet<> &read) {
  const std::string op = qualifiedName(n.domain(), n.op_type());
  if (op == "Dropout" && n.input_size() > 2)
    n.mutable_input()->DeleteSubrange(2, n.input_size() - 2); // training_mode: false if left out
  if (op != "BatchNormalization")
    return;
  for (int i = 1; i < n.output_size(); ++i)
    if (read.contains(n.output(i)))
      return;
  auto *attributes = n.mutable_attribute();
  for (int i = attributes->size() - 1; i >= 0; --i)
    if (attributes->Get(i).name() == "training_mode")
      attributes->DeleteSubrange(i, 1);
  if (n.output_size() > 1)
    n.mutable_output()->DeleteSubrange(1, n.output_size() - 1);
}

void toInference(onnx_pb::GraphProto &g);

/// All nodes of a graph or function, and those in their subgraphs. `read`: its outputs.
template <typename Nodes> void nodesToInference(Nodes &nodes, llvm::StringSet<> read) {
  for (const onnx_pb::NodeProto &n : nodes)
    forEachRead(n, [&](const std::string &name) { read.insert(name); });
  for (onnx_pb::NodeProto &n : nodes) {
    nodeToInference(n, read);
    for (auto &a : *n.mutable_attribute()) {
      if (a.has_g())
        toInference(*a.mutable_g());
      for (auto &g : *a.mutable_graphs())
        toInference(g);
    }
  }
}

void toInference(onnx_pb::GraphProto &g) {
  llvm::StringSet<> read;
  for (auto &o : g.output())
    read.insert(o.name());
  nodesToInference(*g.mutable_node(), std::move(read));
}

void toInference(onnx_pb::FunctionProto &f) {
  llvm::StringSet<> read;
  for (auto &o : f.output())
    read.insert(o);
  nodesToInference(*f.mutable_node(), std::move(read));
}

// ---- initializers

/// One initializer's message around its data.
void writeTensor(Writer &out, const onnx_pb::TensorProto &like, StringRef name, int64_t dataBytes,
                 llvm::function_ref<void(Writer &)> data) {
  onnx_pb::TensorProto t = like;
  t.set_name(name.str());
  t.clear_raw_data();
  t.clear_external_data();
  t.clear_data_location();
  std::string head = t.SerializeAsString() + fieldHeader(kTensorRawData, dataBytes);
  int64_t begin = out.size();
  out.bytes(fieldHeader(kGraphInitializer, int64_t(head.size()) + dataBytes) + head);
  data(out);
  out.initializers.push_back({name.str(), out.size() - begin});
}

} // namespace

static const onnx_pb::TensorProto *protoOf(const OnnxFile &file, StringRef name) {
  auto i = file.initializerIndex.find(name);
  return i == file.initializerIndex.end() ? nullptr : &file.graph().initializer(int(i->second));
}

static void writeAsInFile(Writer &out, const Initializer &t) {
  if (t.place == Initializer::InFile)
    out.range(t.file, t.offset, t.bytes);
  else
    out.bytes(t.data);
}

/// Whether what was merged with others gets an initializer of its own.
static bool isSeparate(const Parameter &p) {
  return p.role == Parameter::Constant ? p.source->place != Initializer::Missing : p.global != nullptr;
}

static void writeInitializers(Writer &out, const OnnxFile &file, const Parameters &parameters, std::string &refused) {
  for (const Initializer &t : file.initializers) {
    if (file.training && int(file.initializerIndex.lookup(t.name)) >= file.training->firstInitializer)
      break; // of the algorithm's own graph
    const onnx_pb::TensorProto &proto = *protoOf(file, t.name);
    ParameterUse use = parameters.use(t.name);
    GlobalValue *g = use.parameter ? use.parameter->global : nullptr;
    bool written = g && use.parameter->role != Parameter::Constant;
    if (!t.elem && t.place == Initializer::Inline) { // a type zcc has not: its data is in the message's fields
      int64_t begin = out.size();
      out.bytes(fieldHeader(kGraphInitializer, int64_t(proto.ByteSizeLong())) + proto.SerializeAsString());
      out.initializers.push_back({t.name, out.size() - begin});
      continue;
    }
    if (!written && t.place == Initializer::Missing)
      refused = "'" + t.name + "' has no data";
    writeTensor(out, proto, t.name, t.bytes, [&](Writer &w) {
      if (written)
        for (int64_t k = 0; k < use.parameter->pieces; ++k)
          w.tensor(g->name, use.transposed, t.bytes / use.parameter->pieces);
      else
        writeAsInFile(w, t);
    });
  }
  std::vector<Parameter *> done; // what the exporter had merged comes apart again
  for (auto &s : parameters.splits()) {
    if (llvm::is_contained(done, s.parameter) || !isSeparate(*s.parameter))
      continue;
    done.push_back(s.parameter);
    const Initializer &t = *s.parameter->source;
    writeTensor(out, *protoOf(file, t.name), s.parameter->name, t.bytes, [&](Writer &w) {
      if (s.parameter->role == Parameter::Constant)
        writeAsInFile(w, t);
      else
        w.tensor(s.parameter->global->name, /*transposed=*/false, t.bytes);
    });
  }
}

/// What is trained, by the names in the exported graph.
static llvm::StringSet<> trainedNames(const OnnxFile &file, const Parameters &parameters) {
  llvm::StringSet<> names;
  for (const Initializer &t : file.initializers)
    if (const Parameter *p = parameters.use(t.name).parameter; p && p->role == Parameter::Trained)
      names.insert(t.name);
  for (auto &s : parameters.splits())
    if (s.parameter->role == Parameter::Trained)
      names.insert(s.parameter->name);
  return names;
}

/// Names another input in the copy of a graph, where the original, or a body in it, has the node; returns whether it has.
static bool setInput(const onnx_pb::GraphProto &original, onnx_pb::GraphProto &copy, const onnx_pb::NodeProto &node, int index,
                     const std::string &name) {
  for (int i = 0; i < std::min(original.node_size(), copy.node_size()); ++i) {
    if (&original.node(i) == &node) {
      copy.mutable_node(i)->set_input(index, name);
      return true;
    }
    for (int a = 0; a < original.node(i).attribute_size(); ++a)
      if (original.node(i).attribute(a).has_g() &&
          setInput(original.node(i).attribute(a).g(), *copy.mutable_node(i)->mutable_attribute(a)->mutable_g(), node, index,
                   name))
        return true;
  }
  return false;
}

ExportTemplate zcc::makeExportTemplate(const OnnxFile &file, const Parameters &parameters, const GraphValues &values,
                                       ExportForm form) {
  ExportTemplate result;
  onnx_pb::ModelProto model = file.model();
  auto *graph = model.mutable_graph();
  if (auto &t = file.training) {
    graph->mutable_node()->DeleteSubrange(t->firstNode, graph->node_size() - t->firstNode);
    graph->mutable_input()->DeleteSubrange(t->firstInput, graph->input_size() - t->firstInput);
    graph->mutable_output()->DeleteSubrange(t->firstOutput, graph->output_size() - t->firstOutput);
  }
  if (form == ExportForm::Inference)
    model.clear_training_info();
  for (auto &s : parameters.splits())
    if (isSeparate(*s.parameter) && !setInput(file.graph(), *graph, *s.node, int(s.index), s.parameter->name))
      result.refused =
          "'" + s.initializer + "' is several parameters, of which '" + s.parameter->name + "' has no node of its own";
  if (form == ExportForm::Inference) {
    toInference(*graph);
    for (auto &f : *model.mutable_functions())
      toInference(f);
  }
  graph->clear_initializer();
  std::string graphFields = graph->SerializeAsString();
  std::unique_ptr<onnx_pb::GraphProto> exported(model.release_graph());

  Writer tensors;
  writeInitializers(tensors, file, parameters, result.refused);
  Writer out;
  int64_t graphBytes = int64_t(graphFields.size()) + tensors.size();
  std::string modelFields = model.SerializeAsString(), header = fieldHeader(kModelGraph, graphBytes);
  if (form == ExportForm::Inference) {
    ExportLayout layout{int64_t(modelFields.size()), int64_t(header.size()), graphFields, tensors.initializers};
    result.index = makeExportIndex(*exported, layout, values, trainedNames(file, parameters));
  }
  out.bytes(modelFields + header + graphFields);
  out.append(std::move(tensors));
  if (out.size() > INT_MAX)
    result.refused = "the exported ONNX file would be 2 GiB or more, which no ONNX file can be; "
                     "export the weights "
                     "alone with --export=FILE.safetensors";
  result.pieces = std::move(out.pieces);
  return result;
}
