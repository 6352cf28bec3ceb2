// The plan as JSON.
#include "codegen/Plan.h"
#include "ir/Op.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include <cmath>

using namespace zcc;
using llvm::formatv;

static llvm::json::Object choiceJson(const PlanChoice &c) {
  return llvm::json::Object{{"step_s", secondsOf(c.ns)},
                            {"memory_bytes", c.needs.memory},
                            {"host_bytes", c.needs.host},
                            {"nvme_bytes", c.needs.disk},
                            {"decisions", llvm::json::Array(c.decisions)}};
}

static llvm::json::Object engineJson(const std::array<int64_t, kEngines> &ns) {
  llvm::json::Object o;
  for (size_t e = 0; e < kEngines; ++e)
    if (ns[e])
      o[engineName(EngineKind(e))] = secondsOf(ns[e]);
  return o;
}

static llvm::json::Object searchJson(const PlanReport &r) {
  llvm::json::Object o{{"tried", int64_t(r.tried)},
                       {"plain", choiceJson(r.plain)},
                       {"choice", choiceJson(r.taken)},
                       {"bound", llvm::json::Object{{"step_s", secondsOf(r.bound.ns())},
                                                    {"engine_s", engineJson(r.bound.busyNs)},
                                                    {"bytes_away", r.bound.bytesAway}}},
                       {"above_bound", aboveBound(r)}};
  if (r.second)
    o["runner_up"] = choiceJson(*r.second);
  if (!r.gap.empty())
    o["gap"] = llvm::json::Array(r.gap);
  return o;
}

/// Amounts, or rates, by the keys of a profile: what is neither nothing nor without limit.
static llvm::json::Object rateJson(const PerRate &r) {
  llvm::json::Object o;
  for (size_t i = 0; i < kRates; ++i)
    if (r.all[i] != 0 && std::isfinite(r.all[i]))
      o[rateKey(Rate(i))] = r.all[i];
  return o;
}

static llvm::json::Object spanJson(const Span &s) {
  const Node &n = *s.node;
  llvm::json::Object o{{"op", s.waits() ? "wait" : performed(n)->name}, {"begin_s", s.begin}, {"end_s", s.end}};
  if (s.waits()) {
    o["waits_for"] = s.waitsFor;
    return o;
  }
  o["engine"] = engineName(s.engine);
  o["work"] = rateJson(s.work);
  if (!n.results.empty())
    o["name"] = llvm::json::fixUTF8("%" + n.result(std::min<unsigned>(s.part, n.results.size() - 1))->name);
  if (n.loc && !n.loc->nodes.empty())
    o["node"] = llvm::json::fixUTF8(n.loc->nodes[0]);
  return o;
}

static llvm::json::Object scheduleJson(const Plan &p) {
  llvm::json::Array functions;
  for (const TimedFunction &f : p.schedule.functions) {
    llvm::json::Array spans;
    for (const Span &s : f.spans)
      spans.push_back(spanJson(s));
    functions.push_back(llvm::json::Object{
        {"function", f.function->name}, {"times", f.times}, {"seconds", f.seconds}, {"spans", std::move(spans)}});
  }
  return llvm::json::Object{{"rates", rateJson(p.rates)}, {"functions", std::move(functions)}};
}

std::string zcc::toJson(const Plan &p, JsonDetail detail) {
  llvm::json::Object traffic;
  for (auto &[name, bytes] : p.step.sent)
    traffic[name] = int64_t(bytes);
  llvm::json::Object device{{"arena_bytes", p.arenaBytes},           {"model_state_bytes", p.modelStateBytes},
                            {"persisting_bytes", p.persistingBytes}, {"gathered_bytes", p.gatheredBytes},
                            {"library_bytes", p.deviceLibraryBytes}, {"peak_at", p.peakAt},
                            {"activation_bytes", p.activationBytes}, {"gradient_bytes", p.gradientBytes}};
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
                       {"staging_bytes", p.stagingBytes},
                       {"save_bytes", p.saveBytes},
                       {"traffic_bytes_per_rank", std::move(traffic)},
                       {"flops", p.step.flops},
                       {"predicted_step_s", p.step.seconds},
                       {"engine_busy_s", std::move(busy)},
                       {"profile", p.ratesFrom},
                       {"bound_by", p.step.boundBy},
                       {"settings", std::move(settings)}};
  if (p.launches)
    o["launches"] = p.launches;
  if (p.step.diskWrites())
    o["disk_writes_tb_per_day"] = terabytesADay(p);
  if (p.search)
    o["search"] = searchJson(*p.search);
  if (detail == JsonDetail::All)
    o["schedule"] = scheduleJson(p);
  return formatv("{0:2}", llvm::json::Value(std::move(o)));
}
