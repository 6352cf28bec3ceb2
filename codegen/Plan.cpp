// Collects the plan from the module and the cost model, and prints it as text or JSON.
#include "codegen/Plan.h"
#include "ir/Op.h"
#include "passes/memory/Liveness.h"
#include "passes/memory/SavedStates.h"
#include "passes/zero/Zero.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>

using namespace zcc;
using llvm::formatv;

// ---- making it

/// "'node_linear_3' in 'h.0.fc'", or empty.
static std::string nodeName(const Loc &l) {
  if (!l || l->nodes.empty())
    return "";
  return "'" + l->nodes[0] + "'" + (l->scope.empty() ? "" : " in '" + l->scope + "'");
}

static std::string modelName(const GlobalValue &g) { return g.onnxName.empty() ? g.name : g.onnxName; }

/// "@micro %y = matmul (node '/fc1/MatMul')"
static std::string nodeText(const Function &f, const Node &n) {
  std::string s = "@" + f.name;
  if (!n.results.empty())
    s += " %" + n.result()->name + " =";
  s += " " + std::string(n.op->name);
  std::string from = nodeName(n.loc);
  return from.empty() ? s : s + " (node " + from + ")";
}

static void addLive(Plan &p, const Function &f, const Liveness &l, int at) {
  p.live.clear();
  llvm::DenseMap<int64_t, size_t> known; // values written over one another count once
  auto add = [&](int64_t offset, LiveItem item) {
    if (offset < f.module->attrs.i("persistent_bytes"))
      return;
    auto [i, isNew] = known.try_emplace(offset, p.live.size());
    if (isNew)
      p.live.push_back(std::move(item));
  };
  for (auto &[v, life] : l.values)
    if (v->def && life.first <= at && at <= life.last)
      add(plannedOffset(f, v), {"%" + v->name + " : " + v->type.str(), nodeName(v->def->loc), v->type.localBytes()});
  for (auto &n : f.nodes)
    if (n->attrs.has("scratch") && l.number.lookup(n.get()) == at)
      add(n->attrs.i("scratch"), {"workspace", nodeName(n->loc), n->attrs.i("scratch_bytes")});
  llvm::stable_sort(p.live, [](const LiveItem &a, const LiveItem &b) { return a.bytes > b.bytes; });
}

/// Gathered parameters live at once, in bytes, by the lifetimes of @f's values.
static int64_t mostGathered(const Function &f, const Liveness &l) {
  std::vector<int64_t> change(f.nodes.size() + 2);
  for (auto &[v, life] : l.values) {
    const Node *n = v->def;
    if (!n || !gathersParam(*n))
      continue;
    change[life.first] += v->type.localBytes();
    change[life.last + 1] -= v->type.localBytes();
  }
  int64_t live = 0, most = 0;
  for (int64_t c : change)
    most = std::max(most, live += c);
  return most;
}

static const Node *nodeAt(const Function &f, size_t at) {
  const Node *n = f.first();
  for (size_t i = 0; i < at && n->next(); ++i)
    n = n->next();
  return n;
}

static void findPeakElsewhere(Plan &p, const Function &f, const Liveness &l) {
  for (auto &[space, s] : p.elsewhere) {
    std::vector<int64_t> live = liveBytes(f, l, space);
    size_t at = std::max_element(live.begin(), live.end()) - live.begin();
    if (live[at] > s.peakBytes) {
      s.peakBytes = live[at];
      s.peakAt = nodeText(f, *nodeAt(f, at));
    }
  }
}

static llvm::Error findPeak(Plan &p, const Module &m) {
  for (auto &f : m.functions) {
    if (!f->isEntry() || f->nodes.empty())
      continue;
    auto l = computeLiveness(*f);
    if (!l)
      return l.takeError();
    p.gatheredBytes = std::max(p.gatheredBytes, mostGathered(*f, *l));
    findPeakElsewhere(p, *f, *l);
    std::vector<int64_t> live = liveBytes(*f, *l);
    size_t at = std::max_element(live.begin(), live.end()) - live.begin();
    if (live[at] < p.peakBytes || (live[at] == p.peakBytes && !p.peakAt.empty()))
      continue;
    p.peakBytes = live[at];
    p.peakAt = nodeText(*f, *nodeAt(*f, at));
    addLive(p, *f, *l, int(at));
  }
  return llvm::Error::success();
}

/// Those of ZeRO's limits that no flag gives.
static void addLimits(Plan &p, const Module &m, const Options &o) {
  ZeroLimits l = zeroLimits(m, o);
  auto add = [&](const char *name, int64_t value, int64_t given) {
    if (given < 0)
      p.settings.push_back({std::string("--") + name, std::to_string(value), "derived"});
  };
  add("reduce-bucket-size", l.reduceBucket, o.reduceBucket);
  add("allgather-bucket-size", l.gatherBucket, o.gatherBucket);
  if (o.zero == 3) {
    add("param-persistence-threshold", l.persistence, o.persistence);
    add("max-live-parameters", l.maxLive, o.maxLive);
    add("max-reuse-distance", l.maxReuse, o.maxReuse);
  }
}

llvm::Expected<Plan> zcc::makePlan(const Module &m, const Options &o, const Target &target) {
  Plan p;
  p.model = m.name;
  p.ranks = m.ranks;
  p.zero = o.zero;
  p.threads = o.threads;
  for (Space space : {Space::Host, Space::Nvme})
    if (int64_t bytes = arenaBytes(m, space))
      p.elsewhere[space].arenaBytes = bytes;
  for (auto &g : m.globals) {
    if (g->role == GlobalValue::Const) {
      p.constantBytes += g->type.localBytes();
      continue;
    }
    int64_t bytes = g->type.localBytes();
    if (g->attrs.i("persists")) {
      int64_t shard = (g->type.count() + m.ranks - 1) / m.ranks * elemBytes(g->type.elem);
      p.persistingBytes += bytes - shard;
      bytes = shard;
    }
    (g->type.space == Space::Device ? p.modelStateBytes : p.elsewhere[g->type.space].modelStateBytes) += bytes;
    if (g->role != GlobalValue::Param)
      continue;
    p.parameters += g->type.count();
    (g->trained ? p.trained : p.frozen).push_back(modelName(*g));
  }
  p.arenaBytes = m.attrs.i("arena_bytes");
  p.inputBytes = m.attrs.i("persistent_bytes") - p.modelStateBytes - p.persistingBytes - p.constantBytes;
  if (m.ranks > 1 && o.zero > 0)
    addLimits(p, m, o);
  if (auto e = findPeak(p, m))
    return e;
  p.libraryBytes = target.libraryBytes(m);
  p.saveBytes = saveBytes(m);
  p.step = costOfStep(m, o, target.machine());
  p.ratesFrom = target.ratesFrom();
  return p;
}

// ---- --memory

/// "1.25 GiB", with three digits at least.
static std::string size(int64_t bytes) {
  const char *units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double v = double(bytes);
  int u = 0;
  for (; v >= 1024 && u < 4; ++u)
    v /= 1024;
  return u ? formatv("{0:f2} {1}", v, units[u]).str() : formatv("{0} bytes", bytes).str();
}

llvm::Error zcc::checkBudget(const Plan &p, const Options &o) {
  auto host = p.elsewhere.find(Space::Host);
  int64_t arenas = p.arenaBytes + (host == p.elsewhere.end() ? 0 : host->second.arenaBytes),
          need = arenas + p.libraryBytes + p.saveBytes;
  if (!o.memoryBudget || need <= o.memoryBudget)
    return llvm::Error::success();
  std::string s = formatv("a rank needs {0}, --memory is {1}: {2} too little ({3} model state, {4} values most at {5}, {6} "
                          "libraries, {7} for checkpoints)",
                          size(need), size(o.memoryBudget), size(need - o.memoryBudget), size(p.modelStateBytes),
                          size(p.peakBytes), p.peakAt, size(p.libraryBytes), size(p.saveBytes));
  constexpr size_t kMost = 10;
  for (size_t i = 0; i < std::min(p.live.size(), kMost); ++i)
    s += formatv("\nnote: {0} of it: {1}{2}{3}", size(p.live[i].bytes), p.live[i].name, p.live[i].node.empty() ? "" : ", node ",
                 p.live[i].node);
  if (o.checkpointActivations >= 0)
    s += "\nnote: --checkpoint-activations=auto looks for what fits";
  else
    s += "\nnote: this is the least of what recomputing was tried; a smaller batch needs less";
  return error(s);
}

// ---- JSON

std::string zcc::toJson(const Plan &p) {
  llvm::json::Object traffic;
  for (auto &[name, bytes] : p.step.sent)
    traffic[name] = int64_t(bytes);
  llvm::json::Object device{{"arena_bytes", p.arenaBytes},
                            {"model_state_bytes", p.modelStateBytes},
                            {"persisting_bytes", p.persistingBytes},
                            {"gathered_bytes", p.gatheredBytes},
                            {"peak_at", p.peakAt}};
  llvm::json::Object spaces{{"device", std::move(device)}};
  for (auto &[space, s] : p.elsewhere)
    spaces[spaceName(space)] =
        llvm::json::Object{{"arena_bytes", s.arenaBytes}, {"model_state_bytes", s.modelStateBytes}, {"peak_at", s.peakAt}};
  llvm::json::Object busy;
  for (size_t e = 0; e < kEngines; ++e)
    if (double seconds = p.step.busy[e])
      busy[engineName(EngineKind(e))] = seconds;
  llvm::json::Array settings;
  for (const Setting &s : p.settings)
    settings.push_back(llvm::json::Object{{"key", s.key}, {"value", s.value}, {"reason", s.reason}});
  llvm::json::Object o{{"ranks", p.ranks},
                       {"zero", p.zero},
                       {"trained", llvm::json::Array(p.trained)},
                       {"frozen", llvm::json::Array(p.frozen)},
                       {"parameters", p.parameters},
                       {"spaces", std::move(spaces)},
                       {"library_bytes", p.libraryBytes},
                       {"save_bytes", p.saveBytes},
                       {"traffic_bytes_per_rank", std::move(traffic)},
                       {"flops", p.step.flops},
                       {"predicted_step_s", p.step.seconds},
                       {"engine_busy_s", std::move(busy)},
                       {"profile", p.ratesFrom},
                       {"bound_by", p.step.boundBy},
                       {"settings", std::move(settings)}};
  return formatv("{0:2}", llvm::json::Value(std::move(o)));
}

// ---- text

static void printNames(llvm::raw_ostream &os, llvm::ArrayRef<std::string> names) {
  constexpr size_t kMost = 8;
  os << names.size() << (names.size() == 1 ? " tensor" : " tensors");
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i)
    os << (i ? ", " : ": ") << names[i];
  if (names.size() > kMost)
    os << ", and " << names.size() - kMost << " more";
  os << '\n';
}

/// "1.250 ms".
static std::string duration(double seconds) {
  bool isShort = seconds < 0.1;
  return formatv("{0:f3} {1}", seconds * (isShort ? 1e3 : 1), isShort ? "ms" : "s");
}

void zcc::print(const Plan &p, llvm::raw_ostream &os) {
  os << formatv("{0}: {1} rank{2}, {3} thread{4} each, stage {5}\n", p.model, p.ranks, p.ranks > 1 ? "s" : "", p.threads,
                p.threads > 1 ? "s" : "", p.zero);
  os << formatv("  parameters  {0} elements\n", p.parameters);
  os << "    trained   ";
  printNames(os, p.trained);
  if (!p.frozen.empty()) {
    os << "    frozen    ";
    printNames(os, p.frozen);
  }
  os << formatv("\n  memory of a rank, device: {0} ({1} bytes)\n", size(p.arenaBytes), p.arenaBytes);
  os << formatv("    model state   {0}\n", size(p.modelStateBytes));
  if (p.persistingBytes)
    os << formatv("    persisting    {0}, small parameters kept whole\n", size(p.persistingBytes));
  os << formatv("    constants     {0}\n", size(p.constantBytes));
  os << formatv("    inputs, loss  {0}\n", size(p.inputBytes));
  os << formatv("    values        {0}, most at {1}\n", size(p.peakBytes), p.peakAt);
  constexpr size_t kMost = 12;
  for (size_t i = 0; i < std::min(p.live.size(), kMost); ++i)
    os << formatv("      {0,-12} {1}{2}\n", size(p.live[i].bytes), p.live[i].name,
                  p.live[i].node.empty() ? "" : "  " + p.live[i].node);
  if (p.live.size() > kMost) {
    int64_t rest = 0;
    for (size_t i = kMost; i < p.live.size(); ++i)
      rest += p.live[i].bytes;
    os << formatv("      {0,-12} in {1} more\n", size(rest), p.live.size() - kMost);
  }
  int64_t total = p.modelStateBytes + p.persistingBytes + p.constantBytes + p.inputBytes + p.peakBytes;
  if (p.gatheredBytes)
    os << formatv("    of the values, gathered parameters alive at once: {0}\n", size(p.gatheredBytes));
  if (p.arenaBytes > total)
    os << formatv("    gaps          {0}\n", size(p.arenaBytes - total));
  for (auto &[space, s] : p.elsewhere) {
    os << formatv("  memory of a rank, {0}: {1} ({2} bytes)\n", spaceName(space), size(s.arenaBytes), s.arenaBytes);
    os << formatv("    model state   {0}\n", size(s.modelStateBytes));
    if (s.peakBytes)
      os << formatv("    values        {0}, most at {1}\n", size(s.peakBytes), s.peakAt);
  }
  os << formatv("  libraries, besides: {0}\n", size(p.libraryBytes));
  os << formatv("  with --save, besides: {0}\n", size(p.saveBytes));
  os << formatv("\n  a step\n    floating-point operations  {0:e3}\n", p.step.flops);
  for (auto &[name, bytes] : p.step.sent)
    os << formatv("    {0,-26} {1} {2} by a rank\n", name, size(int64_t(bytes)),
                  llvm::StringRef(name).contains(' ') ? "moved" : "sent");
  os << formatv("    predicted                  {0}, bound by {1}\n", duration(p.step.seconds), p.step.boundBy);
  if (llvm::count_if(p.step.busy, [](double s) { return s > 0; }) > 1)
    for (size_t e = 0; e < kEngines; ++e)
      if (double seconds = p.step.busy[e])
        os << formatv("      {0,-24} busy {1}\n", engineName(EngineKind(e)), duration(seconds));
  os << formatv("    by the rates of            {0}\n", p.ratesFrom);
  auto list = [&](const char *head, llvm::ArrayRef<std::string> lines) {
    if (!lines.empty())
      os << "\n  " << head << '\n';
    for (const std::string &l : lines)
      os << "    " << l << '\n';
  };
  if (!p.settings.empty())
    os << "\n  settings\n";
  for (const Setting &s : p.settings)
    os << formatv("    {0} = {1}  ({2})\n", s.key, s.value, s.reason);
  list("decisions", p.decisions);
  list("remarks", p.remarks);
}

llvm::Error zcc::printMemory(const Module &m, llvm::raw_ostream &os) {
  for (auto &f : m.functions) {
    if (!f->isEntry())
      continue;
    auto l = computeLiveness(*f);
    if (!l)
      return l.takeError();
    std::vector<int64_t> live = liveBytes(*f, *l);
    os << "// bytes live in device, @" << f->name << '\n';
    int i = 0;
    for (auto &n : f->nodes) {
      if (ownsMemory(*n))
        os << formatv("{0,15}  {1}\n", live[i], nodeText(*f, *n));
      ++i;
    }
  }
  return llvm::Error::success();
}
