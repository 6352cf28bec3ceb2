// What lies where in each memory space, from when to when.
#include "codegen/PageData.h"
#include "ir/Op.h"
#include "passes/zero/Zero.h"
#include <algorithm>

using namespace zcc;

int64_t PageTexts::number(llvm::StringRef text) {
  auto [i, isNew] = known_.try_emplace(text, int64_t(list_.size()));
  if (isNew)
    list_.push_back(llvm::json::fixUTF8(text));
  return i->second;
}

std::string zcc::onnxNode(const Loc &l) { return l && !l->nodes.empty() ? l->nodes[0] : ""; }

std::vector<NodeTimes> zcc::nodeTimes(const TimedSchedule &s) {
  std::vector<NodeTimes> all;
  int64_t began = 0;
  for (const TimedFunction &f : s.functions) {
    NodeTimes &t = all.emplace_back();
    t.timed = &f;
    t.begin = began;
    size_t next = 0;
    double now = 0;
    for (auto &n : f.function->nodes) {
      t.from.push_back(began + wholeNs(now));
      for (; next < f.spans.size() && f.spans[next].node == n.get(); ++next)
        if (f.spans[next].waits() || f.spans[next].engine == EngineKind::Compute)
          now = f.spans[next].end;
      t.to.push_back(began + wholeNs(now));
    }
    began = t.end();
  }
  return all;
}

// ---- values

namespace {
enum class Kind { Parameters, State, Kept, Backward, Update, Workspace, Gathered, Fixed, Forward };
constexpr const char *kKinds[] = {
    "parameters", "optimizer state, counters", "kept for the backward", "of the backward",     "of the update",
    "workspace",  "gathered, brought in",      "inputs, constants",     "of the forward alone"};

struct Item {
  int64_t begin, end, offset, bytes;
  Kind kind;
  std::string name, type, node;
};
} // namespace

llvm::json::Array zcc::memoryKinds() {
  llvm::json::Array all;
  for (const char *k : kKinds)
    all.push_back(k);
  return all;
}

static const Node *nodeAt(const std::vector<const Node *> &nodes, int at) {
  return nodes.empty() ? nullptr : nodes[std::clamp<int>(at, 0, int(nodes.size()) - 1)];
}

static Kind kindOf(const Value &v, const Node *lastReader) {
  const Node &n = *v.def;
  if (gathersParam(n) || performed(n)->structural == Structural::Transfer)
    return Kind::Gathered;
  if (n.phase != Phase::Forward)
    return n.phase == Phase::Backward ? Kind::Backward : Kind::Update;
  return lastReader && lastReader->phase != Phase::Forward ? Kind::Kept : Kind::Forward;
}

static llvm::Error addValues(std::vector<Item> &items, const NodeTimes &t, Space space) {
  const Function &f = *t.timed->function;
  auto l = computeLiveness(f);
  if (!l)
    return l.takeError();
  Extents extents(*f.module);
  std::vector<const Node *> nodes;
  for (auto &n : f.nodes)
    nodes.push_back(n.get());
  auto from = [&](int at) { return t.from.empty() ? t.begin : t.from[std::clamp<int>(at, 0, int(nodes.size()) - 1)]; };
  auto to = [&](int at) { return at >= int(nodes.size()) ? t.end() : at < 0 ? t.begin : t.to[at]; };
  for (auto &[v, life] : l->values)
    if (v->type.space == space) {
      int64_t offset = plannedOffset(f, v);
      if (offset < 0 || (v->def && offset < persistentBytes(*f.module, space)))
        continue;
      Kind kind = v->def ? kindOf(*v, nodeAt(nodes, life.last)) : Kind::Fixed;
      items.push_back({from(life.first), to(life.last), offset, extents.bytes(*v), kind, "%" + v->name, v->type.str(),
                       v->def ? onnxNode(v->def->loc) : ""});
    }
  for (size_t i = 0; space == Space::Device && i < nodes.size(); ++i)
    if (nodes[i]->attrs.has("scratch"))
      items.push_back({t.from[i], t.to[i], nodes[i]->attrs.i("scratch"), nodes[i]->attrs.i("scratch_bytes"), Kind::Workspace,
                       "workspace", "", onnxNode(nodes[i]->loc)});
  return llvm::Error::success();
}

static void addGlobals(std::vector<Item> &items, const Module &m, Space space, int64_t end) {
  Extents extents(m);
  for (auto &g : m.globals) {
    int64_t offset = g->attrs.i("offset", -1);
    if (g->type.space != space || offset < 0)
      continue;
    Kind kind = g->role == GlobalValue::Param ? Kind::Parameters : g->role == GlobalValue::State ? Kind::State : Kind::Fixed;
    items.push_back({0, end, offset, extents.bytes(*g), kind, "%" + g->name, g->type.str(), ""});
  }
}

// ---- how much is drawn

/// Leaves the items that cover most; returns how many it has left out.
static size_t keepLargest(std::vector<Item> &items) {
  constexpr size_t kMost = 5000;
  if (items.size() <= kMost)
    return 0;
  size_t out = items.size() - kMost;
  auto area = [](const Item &i) { return double(i.bytes) * (double(i.end - i.begin) + 1); };
  std::stable_sort(items.begin(), items.end(), [&](const Item &a, const Item &b) { return area(a) > area(b); });
  items.resize(kMost);
  return out;
}

/// Bytes live over time: where they change, at most so many points, each the most of what it stands for.
static llvm::json::Object liveOver(llvm::ArrayRef<NodeTimes> times, Space space, const Module &m) {
  constexpr size_t kMost = 4000;
  std::vector<std::pair<int64_t, int64_t>> all;
  for (const NodeTimes &t : times) {
    auto l = computeLiveness(*t.timed->function);
    if (!l) {
      llvm::consumeError(l.takeError()); // memoryOfPage has said it
      continue;
    }
    std::vector<int64_t> live = liveBytes(*t.timed->function, *l, space);
    for (size_t i = 0; i < t.from.size(); ++i)
      all.push_back({t.from[i], persistentBytes(m, space) + live[i]});
  }
  llvm::json::Array at, bytes;
  size_t each = all.size() / kMost + 1;
  int64_t last = -1;
  for (size_t i = 0; i < all.size(); i += each) {
    int64_t most = 0;
    for (size_t j = i; j < std::min(i + each, all.size()); ++j)
      most = std::max(most, all[j].second);
    if (most == last)
      continue;
    at.push_back(all[i].first);
    bytes.push_back(last = most);
  }
  return llvm::json::Object{{"at", std::move(at)}, {"bytes", std::move(bytes)}};
}

static llvm::json::Object valuesJson(const std::vector<Item> &items, PageTexts &texts) {
  llvm::json::Array begin, end, offset, bytes, kind, name, type, node;
  for (const Item &i : items) {
    begin.push_back(i.begin);
    end.push_back(i.end);
    offset.push_back(i.offset);
    bytes.push_back(i.bytes);
    kind.push_back(int64_t(i.kind));
    name.push_back(texts.number(i.name));
    type.push_back(texts.number(i.type));
    node.push_back(texts.number(i.node));
  }
  return llvm::json::Object{{"begin", std::move(begin)}, {"end", std::move(end)},   {"offset", std::move(offset)},
                            {"bytes", std::move(bytes)}, {"kind", std::move(kind)}, {"name", std::move(name)},
                            {"type", std::move(type)},   {"node", std::move(node)}};
}

llvm::Expected<llvm::json::Array> zcc::memoryOfPage(const Module &m, const Options &o, llvm::ArrayRef<NodeTimes> times,
                                                    PageTexts &texts) {
  llvm::json::Array spaces;
  for (Space space : {Space::Device, Space::Host, Space::Nvme}) {
    int64_t arena = arenaBytes(m, space);
    if (!arena)
      continue;
    std::vector<Item> items;
    addGlobals(items, m, space, times.empty() ? 0 : times.back().end());
    for (const NodeTimes &t : times)
      if (llvm::Error e = addValues(items, t, space))
        return e;
    size_t out = keepLargest(items);
    llvm::json::Object s{{"name", spaceName(space)}, {"arena", arena}, {"note", ""}, {"live", liveOver(times, space, m)}};
    if (out)
      s["note"] = std::to_string(out) + " values that take least are not drawn";
    int64_t budget = space == Space::Device ? o.memoryBudget : space == Space::Host ? o.hostBudget : o.nvmeBudget;
    if (budget) {
      s["budget"] = budget;
      s["budgetFlag"] = space == Space::Device ? "memory" : space == Space::Host ? "host-memory" : "nvme";
    }
    s["values"] = valuesJson(items, texts);
    spaces.push_back(std::move(s));
  }
  return spaces;
}
