// The model as a chain of its modules: the tree of their names, opened where most of the time goes.
#include "codegen/PageData.h"
#include "ir/Op.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>
#include <map>

using namespace zcc;
using llvm::StringRef;

namespace {
/// A module of the model, or several equal ones in a row.
struct Block {
  std::string name;
  int64_t times = 1, forward = 0, backward = 0, parameters = 0, kept = 0, nodes = 0;
  /// Whether another one beside it does the same.
  bool isLike(const Block &o) const {
    StringRef a = StringRef(name).rsplit('.').first, b = StringRef(o.name).rsplit('.').first;
    return a == b && parameters == o.parameters && nodes == o.nodes && isNumbered() && o.isNumbered();
  }
  bool isNumbered() const {
    StringRef last = StringRef(name).rsplit('.').second;
    return !last.empty() && llvm::all_of(last, llvm::isDigit);
  }
};
} // namespace

/// The modules that a node is in, the outermost first: of the exporter's scopes, else of the node's own name.
static std::vector<std::string> pathOf(const Node &n) {
  std::vector<std::string> path;
  if (!n.loc)
    return path;
  llvm::SmallVector<StringRef> parts;
  if (!n.loc->scope.empty()) {
    StringRef(n.loc->scope).split(parts, '.', -1, /*KeepEmpty=*/false);
  } else if (!n.loc->nodes.empty() && StringRef(n.loc->nodes[0]).starts_with("/")) {
    StringRef(n.loc->nodes[0]).split(parts, '/', -1, /*KeepEmpty=*/false);
    if (!parts.empty())
      parts.pop_back(); // the operator
  }
  for (StringRef part : parts) // TorchScript calls the layers of a list "h.0"
    for (StringRef p : llvm::split(part, '.'))
      path.push_back(p.str());
  return path;
}

static std::string prefix(const std::vector<std::string> &path, size_t depth) {
  return llvm::join(path.begin(), path.begin() + std::min(depth, path.size()), ".");
}

/// Names of the modules that become blocks: the root's, opened again and again where most of the time is, up to kMost.
static llvm::StringMap<size_t> openedModules(const std::vector<std::pair<std::vector<std::string>, int64_t>> &nodes) {
  constexpr size_t kMost = 64;
  constexpr int64_t kWorthOpening = 12; // a part of the step
  llvm::StringMap<size_t> opened;       // and how deep they are
  int64_t total = 1;
  for (auto &[path, ns] : nodes)
    total += ns;
  while (true) {
    std::map<std::string, int64_t> time;
    llvm::StringMap<llvm::StringMap<bool>> inside;
    llvm::StringMap<size_t> depthOf;
    for (auto &[path, ns] : nodes) {
      size_t depth = 1;
      while (depth < path.size() && opened.count(prefix(path, depth)))
        ++depth;
      std::string name = prefix(path, depth);
      time[name] += ns;
      depthOf[name] = depth;
      if (path.size() > depth)
        inside[name][path[depth]] = true;
    }
    std::string best;
    int64_t most = total / kWorthOpening;
    for (auto &[name, ns] : time)
      if (ns > most && inside[name].size() && time.size() + inside[name].size() <= kMost) {
        best = name;
        most = ns;
      }
    if (best.empty())
      return opened;
    opened[best] = depthOf[best];
  }
}

static std::string blockOf(const std::vector<std::string> &path, const llvm::StringMap<size_t> &opened) {
  size_t depth = 1;
  while (depth < path.size() && opened.count(prefix(path, depth)))
    ++depth;
  return prefix(path, depth);
}

/// Whether a value is read in another phase than it is made in.
static bool isKept(const Value &v) {
  return llvm::any_of(v.uses, [](auto &u) { return u.node->phase != Phase::Forward; });
}

namespace {
class Blocks {
public:
  explicit Blocks(const NodeTimes &t) : times(t) {}
  void collect();
  void merge();
  void print(llvm::json::Object &page) const;

private:
  const NodeTimes &times;
  std::vector<Block> blocks;
  llvm::StringMap<size_t> numberOf;
  std::vector<size_t> mergedInto; ///< of each that was collected
  llvm::MapVector<std::pair<size_t, size_t>, int64_t> edges;
};
} // namespace

void Blocks::collect() {
  std::vector<std::pair<std::vector<std::string>, int64_t>> nodes;
  size_t at = 0;
  for (auto &n : times.timed->function->nodes) {
    nodes.push_back({pathOf(*n), times.to[at] - times.from[at]});
    ++at;
  }
  auto opened = openedModules(nodes);
  llvm::DenseMap<const Node *, size_t> home;
  llvm::DenseMap<const Value *, bool> seen;
  at = 0;
  for (auto &n : times.timed->function->nodes) {
    auto &[path, ns] = nodes[at++];
    if (path.empty() || n->phase == Phase::Update)
      continue;
    std::string name = blockOf(path, opened);
    if (n->phase == Phase::Forward && numberOf.try_emplace(name, blocks.size()).second) {
      blocks.emplace_back();
      blocks.back().name = name;
    }
    auto known = numberOf.find(name);
    if (known == numberOf.end())
      continue;
    Block &b = blocks[known->second];
    (n->phase == Phase::Forward ? b.forward : b.backward) += ns;
    if (n->phase != Phase::Forward)
      continue;
    ++b.nodes;
    home[n.get()] = known->second;
    for (auto &r : n->results)
      if (ownsMemory(*n) && isKept(*r))
        b.kept += r->type.localBytes();
    for (Value *v : n->operands()) {
      auto s = v ? storageOf(v) : std::nullopt;
      if (!s || !seen.try_emplace(s->base, true).second)
        continue;
      if (auto *g = s->base->isGlobal() ? static_cast<const GlobalValue *>(s->base) : nullptr; g && g->role == GlobalValue::Param)
        b.parameters += g->type.count();
    }
    for (Value *v : n->operands()) {
      auto from = v && v->def ? home.find(v->def) : home.end();
      if (from != home.end() && from->second != known->second)
        edges[{from->second, known->second}] += v->type.localBytes();
    }
  }
}

/// Equal ones in a row become one.
void Blocks::merge() {
  std::vector<Block> merged;
  std::vector<Block> last; // of each merged one, as it was
  for (const Block &b : blocks) {
    if (!merged.empty() && last.back().isLike(b)) {
      Block &all = merged.back();
      ++all.times;
      all.forward += b.forward;
      all.backward += b.backward;
      all.parameters += b.parameters;
      all.kept += b.kept;
      all.name = StringRef(all.name).split(" \xe2\x80\xa6 ").first.str() + " \xe2\x80\xa6 " + b.name;
    } else {
      merged.push_back(b);
      last.push_back(b);
    }
    mergedInto.push_back(merged.size() - 1);
  }
  blocks = std::move(merged);
}

void Blocks::print(llvm::json::Object &page) const {
  llvm::json::Array list, lines;
  for (const Block &b : blocks)
    list.push_back(llvm::json::Object{{"name", llvm::json::fixUTF8(b.name)},
                                      {"times", b.times},
                                      {"forward", b.forward},
                                      {"backward", b.backward},
                                      {"parameters", b.parameters},
                                      {"kept", b.kept},
                                      {"nodes", b.nodes}});
  llvm::MapVector<std::pair<size_t, size_t>, int64_t> between;
  for (auto &[ends, bytes] : edges) {
    size_t from = mergedInto[ends.first], to = mergedInto[ends.second];
    if (from < to)
      between[{from, to}] = std::max(between[{from, to}], bytes);
  }
  for (auto &[ends, bytes] : between)
    lines.push_back(llvm::json::Array{int64_t(ends.first), int64_t(ends.second), bytes});
  page["blocks"] = std::move(list);
  page["edges"] = std::move(lines);
}

void zcc::addBlocks(llvm::json::Object &page, llvm::ArrayRef<NodeTimes> times) {
  page["blocks"] = llvm::json::Array();
  page["edges"] = llvm::json::Array();
  if (times.empty())
    return;
  Blocks b(times[0]);
  b.collect();
  b.merge();
  b.print(page);
}
