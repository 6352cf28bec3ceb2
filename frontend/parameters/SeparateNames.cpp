// Two values of one name: PyTorch's exporter calls the result of `x.mean()` "mean" also where the module has a buffer `mean`. The
// metadata says which of the two a node reads; the node's result gets another name.
//
//   initializer mean; mean = ReduceMean(x); y = Sub(x, mean)  ->  mean.value = ReduceMean(x); y = Sub(x, mean.value)
#include "frontend/onnx/OnnxFile.h"
#include "frontend/onnx/SourceLoc.h"
#include "ir/Diag.h"
#include "onnx.pb.h"
#include "llvm/ADT/StringSet.h"

using namespace zcc;
using llvm::StringRef;

namespace {
class NameSeparator {
public:
  explicit NameSeparator(onnx_pb::GraphProto &g) : graph_(g), placeholders_(placeholdersOf(g)) {}

  llvm::Error run() {
    for (auto &t : graph_.initializer())
      initializers_.insert(t.name());
    for (auto &i : graph_.input())
      taken_.insert(i.name());
    llvm::StringSet<> made;
    for (auto &n : *graph_.mutable_node())
      for (int i = 0; i < n.output_size(); ++i) {
        std::string name = n.output(i);
        if (name.empty())
          continue;
        bool isShared = initializers_.contains(name);
        if (!made.insert(name).second || (taken_.contains(name) && !isShared))
          return error("value '" + name + "' is defined twice, again by node '" + n.name() + "' (" + n.op_type() + ")");
        if (isShared)
          shared_.push_back({&n, i, name});
      }
    for (auto &name : made)
      taken_.insert(name.getKey());
    for (Shared &s : shared_)
      if (auto e = separate(s))
        return e;
    return llvm::Error::success();
  }

private:
  struct Shared {
    onnx_pb::NodeProto *node; ///< makes the second value
    int output;
    std::string name;
  };

  /// Whether the exporter's node of `n` reads `name` as a value (1) or as the program's input that the initializer is
  /// (0); -1: it does not say, or it reads both.
  int meaning(const onnx_pb::NodeProto &n, StringRef name) const {
    auto fx = fxNodeOf(n);
    if (!fx)
      return -1;
    bool value = llvm::is_contained(fx->names, name);
    bool input = llvm::any_of(fx->names, [&](const std::string &s) {
      auto p = placeholders_.find(s);
      return p != placeholders_.end() && p->second.target == name;
    });
    return value == input ? -1 : value;
  }

  llvm::Error separate(const Shared &s) {
    auto open = [&](const std::string &why) {
      return error("value '" + s.name + "' is defined twice, by an initializer and by node '" + s.node->name() + "' (" +
                   s.node->op_type() + "), and " + why + "; rename the attribute '" + s.name +
                   "' of the module, or export with optimize=True");
    };
    std::string fresh = s.name + ".value";
    while (!taken_.insert(fresh).second || initializers_.contains(fresh))
      fresh += "_";
    for (auto &o : graph_.output())
      if (o.name() == s.name)
        return open("an output has this name");
    bool isBehind = false; // in the order of the file nothing reads a result before it is made
    for (auto &n : *graph_.mutable_node()) {
      if (auto e = rename(n, isBehind, s.name, fresh, open))
        return e;
      isBehind |= &n == s.node;
    }
    s.node->set_output(s.output, fresh);
    return llvm::Error::success();
  }

  llvm::Error rename(onnx_pb::NodeProto &n, bool isBehind, const std::string &name, const std::string &fresh,
                     llvm::function_ref<llvm::Error(const std::string &)> open) {
    for (auto &a : *n.mutable_attribute())
      if (a.has_g())
        for (auto &inner : *a.mutable_g()->mutable_node())
          if (auto e = rename(inner, isBehind, name, fresh, open))
            return e;
    for (int i = 0; i < n.input_size(); ++i) {
      if (n.input(i) != name || !isBehind)
        continue;
      int m = meaning(n, name);
      if (m < 0)
        return open("the metadata does not say which of them node '" + n.name() + "' (" + n.op_type() + ") reads");
      if (m)
        n.set_input(i, fresh);
    }
    return llvm::Error::success();
  }

  onnx_pb::GraphProto &graph_;
  llvm::StringMap<Placeholder> placeholders_;
  llvm::StringSet<> initializers_, taken_;
  std::vector<Shared> shared_;
};
} // namespace

llvm::Error zcc::separateNames(onnx_pb::GraphProto &graph) { return NameSeparator(graph).run(); }
