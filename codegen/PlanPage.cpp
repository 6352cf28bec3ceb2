// Puts the page's data together.
#include "codegen/PlanPage.h"
#include "codegen/PageData.h"
#include "ir/Op.h"
#include "ir/Phase.h"
#include "page/PlanScript.h"
#include "runtime/Page.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>
#include <map>

using namespace zcc;
using llvm::formatv;
namespace json = llvm::json;

static json::Value text(llvm::StringRef s) { return json::fixUTF8(s); }

/// Bytes that a span moves: through memory, between ranks, to and from the host or disks.
static double bytesOf(const NodeCost &c) {
  return c[Rate::Bytes] + c[Rate::NearBytes] + c.sentBytes() + c[Rate::HostCopy] + c[Rate::Disk] + c[Rate::DiskWrites];
}

static std::string resultName(const Span &s) {
  const Node &n = *s.node;
  return n.results.empty() ? "" : "%" + n.result(std::min<unsigned>(s.part, n.results.size() - 1))->name;
}

// ---- the schedule

namespace {
/// What is drawn as one: a span, or neighbours that are short.
struct Bar {
  size_t lane;
  int64_t phase; // 0 forward, 1 backward, 2 update, 3 waits
  double begin, end, flops = 0, bytes = 0;
  int64_t count = 1;
  const Span *span;
};
} // namespace

/// At most so many bars: where there are more spans, neighbours shorter than that part of the step become one.
static std::vector<Bar> barsOf(const TimedSchedule &schedule, llvm::ArrayRef<NodeTimes> times) {
  constexpr size_t kMost = 8000;
  size_t spans = 0;
  for (const TimedFunction &f : schedule.functions)
    spans += f.spans.size();
  double whole = times.empty() ? 0 : double(times.back().end());
  double shortest = spans > kMost ? whole / kMost : 0;
  std::vector<Bar> bars;
  std::array<int, kEngines> last;
  last.fill(-1);
  for (const NodeTimes &t : times)
    for (const Span &s : t.timed->spans) {
      if (s.end <= s.begin)
        continue;
      Bar b{size_t(s.engine), s.waits() ? 3 : int64_t(s.node->phase), t.begin + s.begin * 1e9, t.begin + s.end * 1e9};
      b.flops = s.work.flops();
      b.bytes = bytesOf(s.work);
      b.span = &s;
      int &before = last[b.lane];
      if (before >= 0 && bars[before].phase == b.phase && b.end - bars[before].begin < shortest) {
        Bar &all = bars[before];
        all.end = b.end;
        all.flops += b.flops;
        all.bytes += b.bytes;
        ++all.count;
        continue;
      }
      before = int(bars.size());
      bars.push_back(b);
    }
  return bars;
}

static void addSchedule(json::Object &page, const Plan &p, llvm::ArrayRef<NodeTimes> times, PageTexts &texts) {
  std::vector<Bar> bars = barsOf(p.schedule, times);
  std::array<double, kEngines> busy{};
  for (const Bar &b : bars)
    busy[b.lane] += b.phase == 3 ? 0 : b.end - b.begin;
  std::array<int64_t, kEngines> row;
  json::Array names, busyNs, lane, begin, ns, phase, op, name, node, flops, bytes, count;
  for (size_t e = 0; e < kEngines; ++e) {
    row[e] = int64_t(names.size());
    if (busy[e] == 0 && EngineKind(e) != EngineKind::Compute)
      continue;
    names.push_back(engineName(EngineKind(e)));
    busyNs.push_back(int64_t(busy[e]));
  }
  for (const Bar &b : bars) {
    lane.push_back(row[b.lane]);
    begin.push_back(int64_t(b.begin + 0.5));
    ns.push_back(int64_t(b.end - b.begin + 0.5));
    phase.push_back(b.phase);
    op.push_back(texts.number(b.phase == 3 ? "wait for" : performed(*b.span->node)->name));
    name.push_back(texts.number(resultName(*b.span)));
    node.push_back(texts.number(onnxNode(b.span->node->loc)));
    flops.push_back(int64_t(b.flops));
    bytes.push_back(int64_t(b.bytes));
    count.push_back(b.count);
  }
  page["engines"] = std::move(names);
  page["busy"] = std::move(busyNs);
  page["spans"] = json::Object{{"lane", std::move(lane)},   {"begin", std::move(begin)}, {"ns", std::move(ns)},
                               {"phase", std::move(phase)}, {"op", std::move(op)},       {"name", std::move(name)},
                               {"node", std::move(node)},   {"flops", std::move(flops)}, {"bytes", std::move(bytes)},
                               {"count", std::move(count)}};
}

/// The node behind which the backward begins: that of the loss. -1: the function has none.
static int lossNode(const Function &f) {
  auto s = f.results.empty() ? std::nullopt : storageOf(f.results[0]);
  int at = 0;
  for (auto &n : f.nodes) {
    if (s && s->base->def == n.get())
      return at;
    ++at;
  }
  return -1;
}

/// The phases of each function, and how often it is run. What of the update lies between nodes of the backward is not told apart.
static json::Array sectionsOf(llvm::ArrayRef<NodeTimes> times) {
  json::Array sections;
  for (const NodeTimes &t : times) {
    const Function &f = *t.timed->function;
    std::string often = t.timed->times > 1 ? formatv(" ({0} times)", t.timed->times).str() : "";
    auto add = [&](Phase phase, int64_t from, int64_t to) {
      if (to > from)
        sections.push_back(json::Array{phaseName(phase).str() + often, from, to});
    };
    int loss = lossNode(f), lastBackward = -1, at = 0;
    for (auto &n : f.nodes) {
      if (n->phase == Phase::Backward)
        lastBackward = at;
      ++at;
    }
    int64_t forwardEnd = lastBackward < 0 ? t.end() : loss < 0 ? t.begin : t.to[loss];
    int64_t backwardEnd = lastBackward < 0 ? t.end() : t.to[lastBackward];
    add(f.name == "update" ? Phase::Update : Phase::Forward, t.begin, forwardEnd);
    add(Phase::Backward, forwardEnd, backwardEnd);
    add(Phase::Update, backwardEnd, t.end());
  }
  return sections;
}

// ---- kernels

namespace {
struct Kernel {
  std::string name, node;
  int64_t kind = 0;
  double calls = 0, seconds = 0, flops = 0, bytes = 0;
};
constexpr const char *kKernelKinds[] = {"matrix products", "convolutions", "attention", "generated kernels", "other operators"};
} // namespace

static std::string shape(const Value *v) { return v ? v->type.str() : "-"; }

/// What two nodes that are the same work have in common.
static std::string kernelName(const Node &n) {
  if (runsKernel(n) && !n.op->feedsKernel)
    return "@" + n.attrs.s("kernel") + " -> " + (n.results.empty() ? "" : shape(n.result()));
  std::string s = n.op->name;
  for (unsigned i = 0; i < std::min(n.numOperands(), 2u); ++i)
    s += (i ? ", " : " ") + shape(n.operand(i));
  return s;
}

static int64_t kernelKind(const Node &n) {
  switch (n.op->library) {
  case Library::Product:
    return 0;
  case Library::Convolution:
    return 1;
  case Library::Attention:
    return 2;
  default:
    return n.op->isFused() ? 3 : 4;
  }
}

static void addKernels(json::Object &page, const Plan &p) {
  std::map<std::string, Kernel> kernels;
  NodeCost work;
  for (const TimedFunction &f : p.schedule.functions)
    for (const Span &s : f.spans) {
      if (s.waits() || s.engine != EngineKind::Compute)
        continue;
      Kernel &k = kernels[kernelName(*s.node)];
      k.kind = kernelKind(*s.node);
      if (k.node.empty())
        k.node = onnxNode(s.node->loc);
      k.calls += f.times;
      k.seconds += f.times * (s.end - s.begin);
      k.flops += f.times * s.work.flops();
      k.bytes += f.times * (s.work[Rate::Bytes] + s.work[Rate::NearBytes]);
      work.add(s.work);
    }
  constexpr size_t kMost = 400;
  std::vector<std::pair<std::string, Kernel>> all(kernels.begin(), kernels.end());
  llvm::stable_sort(all, [](auto &a, auto &b) { return a.second.seconds > b.second.seconds; });
  all.resize(std::min(all.size(), kMost));
  json::Array list, kinds, peaks;
  for (auto &[name, k] : all)
    list.push_back(json::Object{{"name", text(name)},
                                {"node", text(k.node)},
                                {"kind", k.kind},
                                {"calls", k.calls},
                                {"ns", k.seconds * 1e9},
                                {"flops", k.flops},
                                {"bytes", k.bytes}});
  for (const char *kind : kKernelKinds)
    kinds.push_back(kind);
  std::map<double, std::string> roofs; // rates that are equal share one
  for (size_t i = 0; i < 2 * kProductRates; ++i)
    if (work.all[i] > 0 && std::isfinite(p.rates.all[i])) {
      std::string name = rateKey(Rate(i)).drop_back(llvm::StringRef("_flops").size()).str();
      std::replace(name.begin(), name.end(), '_', ' ');
      std::string &known = roofs[p.rates.all[i]];
      known += (known.empty() ? "" : ", ") + name;
    }
  for (auto &[rate, names] : roofs)
    peaks.push_back(json::Array{names, rate});
  page["kernels"] = std::move(list);
  page["kernelKinds"] = std::move(kinds);
  page["peaks"] = std::move(peaks);
  page["bandwidth"] = p.rates[Rate::Bytes];
  page["profile"] = text(p.ratesFrom);
}

// ---- decisions

static json::Object planOf(llvm::StringRef label, const PlanChoice &c) {
  json::Array decisions;
  for (const std::string &d : c.decisions)
    decisions.push_back(text(d));
  return json::Object{{"label", label},       {"ns", c.ns},           {"memory", c.needs.memory},
                      {"host", c.needs.host}, {"disk", c.needs.disk}, {"decisions", std::move(decisions)}};
}

static void addDecisions(json::Object &page, const Plan &p) {
  page["searchNote"] = "Without a budget (--memory) nothing is searched for.";
  if (const PlanReport *r = p.search.get()) {
    json::Array plans, bound;
    if (!r->taken.decisions.empty())
      plans.push_back(planOf("without", r->plain));
    plans.push_back(planOf("choice", r->taken));
    if (r->second)
      plans.push_back(planOf("runner-up", *r->second));
    for (size_t e = 0; e < kEngines; ++e)
      if (r->bound.busyNs[e])
        bound.push_back(json::Array{engineName(EngineKind(e)), r->bound.busyNs[e]});
    page["search"] = json::Object{
        {"plans", std::move(plans)}, {"bound", std::move(bound)}, {"boundNs", r->bound.ns()}, {"above", aboveBound(*r)}};
    page["searchNote"] =
        formatv("{0} plans were carried out on copies; the choice is the one with the least predicted time.", r->tried).str();
  }
  json::Array settings, decisions, remarks;
  for (const Setting &s : p.settings)
    settings.push_back(json::Array{text(s.key), text(s.value), text(s.reason)});
  for (const std::string &d : p.decisions)
    decisions.push_back(text(d));
  for (const std::string &r : p.remarks)
    remarks.push_back(text(r));
  page["settings"] = std::move(settings);
  page["decisions"] = std::move(decisions);
  page["remarks"] = std::move(remarks);
}

// ---- all of it

static json::Array factsOf(const Plan &p) {
  json::Array facts;
  auto add = [&](llvm::StringRef what, const std::string &value) { facts.push_back(json::Array{text(what), text(value)}); };
  add("a step, predicted", durationText(p.step.seconds));
  add("bound by", p.step.boundBy);
  add("memory of a rank", sizeText(p.arenaBytes));
  for (auto &[space, s] : p.elsewhere)
    add(("in " + spaceName(space)).str(), sizeText(s.arenaBytes));
  add("libraries, besides", sizeText(p.libraryBytes));
  add("parameters", formatv("{0:n}", p.parameters));
  add("GFLOP a step", formatv("{0:f1}", p.step.flops / 1e9));
  for (auto &[name, bytes] : p.step.sent)
    add(name + " by a rank", sizeText(int64_t(bytes)));
  if (p.step.diskWrites())
    add("written to disks a day", formatv("{0:f1} TB", terabytesADay(p)));
  return facts;
}

llvm::Expected<std::string> zcc::planPage(const Plan &p, const Module &m, const Options &o) {
  PageTexts texts;
  std::vector<NodeTimes> times = nodeTimes(p.schedule);
  json::Object page;
  page["model"] = text(p.model);
  page["subtitle"] = formatv("{0} rank{1}, {2} thread{3} each, ZeRO stage {4}; rates of {5}", p.ranks, p.ranks > 1 ? "s" : "",
                             p.threads, p.threads > 1 ? "s" : "", p.zero, p.ratesFrom)
                         .str();
  page["facts"] = factsOf(p);
  page["ns"] = times.empty() ? 1 : std::max<int64_t>(times.back().end(), 1);
  page["sections"] = sectionsOf(times);
  page["kinds"] = memoryKinds();
  auto spaces = memoryOfPage(m, o, times, texts);
  if (!spaces)
    return spaces.takeError();
  page["spaces"] = std::move(*spaces);
  addSchedule(page, p, times, texts);
  page["scheduleNote"] =
      "The walk through the program that predicts the step's time, a row for each engine; what share of it the engine is "
      "busy stands below its name. What is started runs beside compute, which waits where a result is needed.";
  addKernels(page, p);
  addBlocks(page, times);
  addDecisions(page, p);
  page["strings"] = texts.list();
  std::string data;
  llvm::raw_string_ostream(data) << json::Value(std::move(page));
  return zccrt::page(p.model + ": plan", data, kPlanScript);
}
