// Collects the plan from the module and the cost model.
#include "codegen/Plan.h"
#include "codegen/cuda/StepGraphs.h"
#include "ir/Control.h"
#include "ir/Op.h"
#include "passes/memory/Liveness.h"
#include "passes/memory/SavedStates.h"
#include "passes/offload/LateNodes.h"
#include "passes/zero/Zero.h"
#include "llvm/Support/FormatVariadic.h"
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

/// What of the device is live there.
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
    if (v->def && v->type.space == Space::Device && life.first <= at && at <= life.last)
      add(plannedOffset(f, v), {"%" + v->name + " : " + v->type.str(), nodeName(v->def->loc), v->type.localBytes()});
  for (auto &n : f.nodes)
    if (n->attrs.has("scratch") && computeSpace(*n) == Space::Device && l.number.lookup(n.get()) <= at && at <= endOf(*n, l))
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
    std::vector<int64_t> others = liveBytes(*f, *l, Space::Device, gradientsOf(*f, *l));
    p.activationBytes = std::max(p.activationBytes, *llvm::max_element(others));
    size_t at = std::max_element(live.begin(), live.end()) - live.begin();
    if (live[at] < p.peakBytes || (live[at] == p.peakBytes && !p.peakAt.empty()))
      continue;
    p.peakBytes = live[at];
    p.gradientBytes = live[at] - others[at];
    p.peakAt = nodeText(*f, *nodeAt(*f, at));
    addLive(p, *f, *l, int(at));
  }
  return llvm::Error::success();
}

/// Of what steers collectives, what no flag gives.
static void addDerived(Plan &p, const Module &m, const Options &o, const Target &target) {
  auto derived = [&](const char *name, std::string value) {
    p.settings.push_back({std::string("--") + name, std::move(value), "derived"});
  };
  auto beside = [&](const char *name, Options::Beside told) {
    if (told == Options::Beside::Derived)
      derived(name, runsBeside(told, &target) ? "on" : "off");
  };
  beside("overlap", o.overlap);
  if (o.zero == 3)
    beside("prefetch", o.prefetch);
  if (o.zero == 0)
    return;
  ZeroLimits l = zeroLimits(m, o);
  auto add = [&](const char *name, int64_t value, int64_t given) {
    if (given < 0)
      derived(name, std::to_string(value));
  };
  add("reduce-bucket-size", l.reduceBucket, o.reduceBucket);
  add("allgather-bucket-size", l.gatherBucket, o.gatherBucket);
  if (o.zero == 3) {
    add("param-persistence-threshold", l.persistence, o.persistence);
    add("max-live-parameters", l.maxLive, o.maxLive);
    add("max-reuse-distance", l.maxReuse, o.maxReuse);
  }
}

/// Of a function, and of the bodies that it calls.
static double launchesOf(const Function &f, const Target &target) {
  double sum = 0;
  for (auto &n : f.nodes) {
    sum += double(target.launches(*n));
    double most = 0; // of a cond, the dearer body
    if (callsBodies(*n->op))
      for (const Function *body : bodiesOf(*n))
        most = std::max(most, launchesOf(*body, target));
    sum += most * (n->op->isScan() ? double(ScanForm(*n).trips) : 1);
  }
  return sum;
}

static double launchesOf(const TimedSchedule &s, const Module &m, const Target &target) {
  double sum = 0, first = 0;
  for (const Node *n : nodesOfFirstCall(m))
    first += double(target.launches(*n));
  for (const TimedFunction &f : s.functions)
    sum += f.times * (launchesOf(*f.function, target) - (f.isFirst ? 0 : first));
  return sum;
}

int64_t zcc::stagingBytes(const Module &m) {
  int64_t most = 0;
  for (auto &f : m.functions)
    for (auto &n : f->nodes) {
      if (!movesBetweenRanks(*n))
        continue;
      int64_t bytes = 0;
      for (unsigned i = 0; i < n->numOperands(); ++i)
        bytes += wholeBytes(n->operand(i)->type, kLine) + wholeBytes(n->result(i)->type, kLine);
      most = std::max(most, bytes);
    }
  return most;
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
    if (!g->hasStorage())
      continue;
    if (g->role == GlobalValue::Const) {
      p.constantBytes += g->type.localBytes();
      continue;
    }
    if (g->type.isPacked()) {
      p.packedBytes += g->type.localBytes();
      continue;
    }
    int64_t bytes = g->type.localBytes();
    if (g->attrs.i("persists")) {
      int64_t shard = (g->type.count() + m.ranks - 1) / m.ranks * elemBytes(g->type.elem);
      p.persistingBytes += bytes - shard;
      bytes = shard;
    }
    (g->type.space == Space::Device ? p.modelStateBytes : p.elsewhere[g->type.space].modelStateBytes) += bytes;
    if (g->type.space == Space::Device)
      p.residents.push_back({"%" + g->name + " : " + g->type.str(), "", bytes});
    if (g->role != GlobalValue::Param)
      continue;
    p.parameters += g->type.count();
    std::vector<std::string> &names = g->trained ? p.trained : p.frozen;
    if (std::string name = modelName(m.wholeOf(*g)); !g->isBox() || names.empty() || names.back() != name)
      names.push_back(name); // the boxes of a tensor stand side by side
  }
  p.arenaBytes = m.attrs.i("arena_bytes");
  p.inputBytes = m.attrs.i("persistent_bytes") - p.modelStateBytes - p.persistingBytes - p.constantBytes - p.packedBytes;
  if (m.ranks > 1)
    addDerived(p, m, o, target);
  if (auto e = findPeak(p, m))
    return e;
  p.libraryBytes = target.libraryBytes(m);
  p.deviceLibraryBytes = m.attrs.i(kDeviceLibraryBytes);
  p.stagingBytes = target.deviceSymbol().empty() ? 0 : stagingBytes(m);
  p.saveBytes = saveBytes(m);
  p.needs = needsOf(m, o, &target);
  Machine machine = target.machine();
  p.schedule = scheduleOf(m, o);
  setTimes(p.schedule, machine);
  p.step = costOf(p.schedule, machine);
  p.launches = launchesOf(p.schedule, m, target);
  p.noGraph = whyNoGraph(m);
  p.rates = machine;
  p.ratesFrom = target.ratesFrom();
  return p;
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
