// What PyTorch's TorchScript exporter changes by default, that is in evaluation mode and with constants folded: equal
// initializers are merged, BatchNormalization goes into convolutions, Dropout goes, and what is computed from parameters takes
// their place under names like "onnx::MatMul_12".
#include "frontend/parameters/Decision.h"
#include "onnx.pb.h"
#include "llvm/ADT/StringExtras.h"

using namespace zcc;
using llvm::StringRef;

/// Whether the exporter made the name up.
static bool isMadeUp(StringRef name) { return name.starts_with("onnx::"); }

/// Whether a parameter can have this name, or what the exporter computed from one; other values have names like
/// "/fc/Identity_output_0", or numbers.
static bool isInitializerName(StringRef name) {
  return isMadeUp(name) || (!name.empty() && name[0] != '/' && !llvm::isDigit(name[0]));
}

static bool isTorchScript(const OnnxFile &f) {
  return f.isFromPyTorch() && llvm::none_of(f.graph().node(), [](auto &n) { return fxNodeOf(n).has_value(); });
}

/// Of initializers with equal values the exporter keeps one, and gives the names of the others to
/// Identity nodes. What the model itself ties has one name only, so that these are parameters of
/// their own.
void OnnxFile::separateMerged() {
  if (training || !isTorchScript(*this))
    return;
  auto *graph = model_->mutable_graph();
  llvm::StringSet<> outputs;
  for (auto &o : graph->output())
    outputs.insert(o.name());
  int kept = 0;
  for (int i = 0; i < graph->node_size(); ++i) {
    const auto &n = graph->node(i);
    bool copies = n.op_type() == "Identity" && n.domain().empty() && n.input_size() == 1 && n.output_size() == 1;
    const Initializer *source = copies ? initializer(n.input(0)) : nullptr;
    if (!source || !source->elem || !isFloat(*source->elem) || !isInitializerName(n.output(0)) || outputs.contains(n.output(0)) ||
        !initializerIndex.try_emplace(n.output(0), unsigned(initializers.size())).second) {
      graph->mutable_node()->SwapElements(i, kept++);
      continue;
    }
    Initializer copy = *source;
    copy.name = n.output(0);
    onnx_pb::TensorProto tensor = graph->initializer(int(source - initializers.data()));
    tensor.set_name(copy.name);
    *graph->add_initializer() = std::move(tensor);
    separated.push_back(copy.name);
    initializers.push_back(std::move(copy));
  }
  graph->mutable_node()->DeleteSubrange(kept, graph->node_size() - kept);
}

void Decision::warnAboutTorchScript() {
  if (!isTorchScript(file_))
    return;
  if (!file_.separated.empty())
    remark("the exporter merged initializers of equal values; parameters of their own again are " + listed(file_.separated));
  llvm::StringSet<> ofFolded;
  std::vector<std::string> folded;
  bool hasDropout = false;
  for (auto &n : file_.graph().node()) {
    hasDropout |= n.op_type() == "Dropout";
    bool isFold = n.op_type() == "Conv" && n.input_size() > 2 && isMadeUp(n.input(1)) && isMadeUp(n.input(2)) &&
                  fact(n.input(1)) && fact(n.input(2));
    if (!isFold)
      continue;
    folded.push_back("'" + n.name() + "'");
    ofFolded.insert(n.input(1));
    ofFolded.insert(n.input(2));
  }
  warnAboutFolded(folded, hasDropout ? "" : "; exported in evaluation mode, it has no Dropout either");
  auto isRecovered = [&](const Parameter &p) { // by the path of its module
    return llvm::any_of(out_.state(), [&](auto &s) { return s.parameter == &p && s.name != p.name; });
  };
  std::vector<std::string> computed;
  for (auto &p : out_.all_)
    if (p->role == Parameter::Trained && isMadeUp(p->name) && !ofFolded.contains(p->name) && !isRecovered(*p))
      computed.push_back("'" + p->name + "' " + p->type().str());
  if (!computed.empty())
    warn("what the exporter computed from parameters is trained and exported in their place: " + listed(computed) + "; " +
         exportHint());
  if (folded.empty() && !file_.separated.empty() && !hasDropout)
    warn("the model was exported in evaluation mode: Dropout, if it has any, is not in the file; " + exportHint());
}
