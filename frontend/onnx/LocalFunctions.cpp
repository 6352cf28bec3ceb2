// Indexes a model's functions and measures how much each expands to, to refuse what has no end.
#include "frontend/onnx/LocalFunctions.h"
#include "ir/Diag.h"
#include "onnx.pb.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/ScopeExit.h"

using namespace zcc;
using llvm::StringRef;
using onnx_pb::FunctionProto;
using onnx_pb::NodeProto;

std::string zcc::qualifiedName(StringRef domain, StringRef name) {
  bool standard = domain.empty() || domain == "ai.onnx";
  return (standard ? "" : domain.str() + ".") + name.str();
}

/// A node calls the function that has all three.
static std::string keyOf(StringRef domain, StringRef name, StringRef overload) {
  std::string key;
  for (StringRef part : {domain, name, overload})
    key += std::to_string(part.size()) + ":" + part.str();
  return key;
}

const FunctionProto *LocalFunctions::calledBy(const NodeProto &n) const {
  return byKey_.empty() ? nullptr : byKey_.lookup(keyOf(n.domain(), n.op_type(), n.overload()));
}

namespace {
/// What nodes become when every call is replaced by its function.
struct Extent {
  int64_t nodes = 0;
  int depth = 0; ///< calls and subgraphs within one another
};

/// Measures functions and graphs, each function once.
class Measure {
public:
  explicit Measure(const LocalFunctions &functions) : functions_(functions) {}
  template <typename Nodes> llvm::Expected<Extent> of(const Nodes &nodes);

private:
  const LocalFunctions &functions_;
  llvm::DenseMap<const FunctionProto *, Extent> done_;
  std::vector<const FunctionProto *> path_; ///< the functions that are being measured
  int nested_ = 0;

  template <typename Nodes> llvm::Expected<Extent> inside(const Nodes &nodes);
  llvm::Expected<Extent> of(const FunctionProto &f);
  llvm::Error add(Extent &sum, llvm::Expected<Extent> inner) const;
  std::string innermost() const;
};
} // namespace

static std::string nameOf(const FunctionProto &f) { return "'" + qualifiedName(f.domain(), f.name()) + "'"; }

/// "local function 'f': ", where there is one.
std::string Measure::innermost() const { return path_.empty() ? "" : "local function " + nameOf(*path_.back()) + ": "; }

llvm::Error Measure::add(Extent &sum, llvm::Expected<Extent> inner) const {
  if (!inner)
    return inner.takeError();
  sum.nodes += inner->nodes;
  sum.depth = std::max(sum.depth, inner->depth + 1);
  if (nested_ + sum.depth > kMostNested)
    return error(innermost() + "calls and subgraphs lie within one another more than " + llvm::Twine(kMostNested) +
                 " deep, which is the most that zcc takes");
  if (sum.nodes > kMostExpanded)
    return error(innermost() + "its calls become more than " + llvm::Twine(kMostExpanded) +
                 " nodes when each is replaced by its function, which is the most that zcc takes");
  return llvm::Error::success();
}

template <typename Nodes> llvm::Expected<Extent> Measure::inside(const Nodes &nodes) {
  if (nested_ == kMostNested)
    return Extent{0, 1}; // add() refuses it
  ++nested_;
  auto back = llvm::make_scope_exit([&] { --nested_; });
  return of(nodes);
}

/// Calls count with what they become; nodes outside of all functions do not count.
template <typename Nodes> llvm::Expected<Extent> Measure::of(const Nodes &nodes) {
  Extent sum;
  for (const NodeProto &n : nodes) {
    sum.nodes += !path_.empty();
    for (auto &a : n.attribute())
      if (a.has_g())
        if (auto e = add(sum, inside(a.g().node())))
          return e;
    if (const FunctionProto *f = functions_.calledBy(n))
      if (auto e = add(sum, of(*f)))
        return e;
  }
  return sum;
}

llvm::Expected<Extent> Measure::of(const FunctionProto &f) {
  if (auto known = done_.find(&f); known != done_.end())
    return known->second;
  if (auto at = llvm::find(path_, &f); at != path_.end()) {
    std::string by;
    for (auto *g : llvm::ArrayRef(path_).drop_front(at - path_.begin() + 1).take_front(8))
      by += (by.empty() ? " by way of " : ", ") + nameOf(*g);
    return error("local function " + nameOf(f) + " calls itself" + by);
  }
  path_.push_back(&f);
  auto extent = inside(f.node());
  path_.pop_back();
  if (extent)
    done_[&f] = *extent;
  return extent;
}

llvm::Expected<LocalFunctions> LocalFunctions::of(const onnx_pb::ModelProto &model) {
  LocalFunctions r;
  for (const FunctionProto &f : model.functions())
    r.byKey_.try_emplace(keyOf(f.domain(), f.name(), f.overload()), &f);
  Measure measure(r);
  if (auto extent = measure.of(model.graph().node()); !extent)
    return extent.takeError();
  for (auto &t : model.training_info())
    for (auto *g : {&t.initialization(), &t.algorithm()})
      if (auto extent = measure.of(g->node()); !extent)
        return extent.takeError();
  return r;
}
