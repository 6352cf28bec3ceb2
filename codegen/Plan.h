// What zcc knows about a program before it runs: --plan, --plan=json, --print-memory.
#pragma once

#include "passes/Target.h"
#include "passes/TimedSchedule.h"
#include "passes/options/Config.h"
#include "passes/plan/PlanReport.h"
#include <map>

namespace zcc {

/// A value that takes memory at the peak.
struct LiveItem {
  std::string name; ///< "%h.0.attn : f32[..]"
  std::string node; ///< the ONNX node it comes from, or empty
  int64_t bytes = 0;
};

/// What lies in a memory space other than the device's.
struct SpacePlan {
  int64_t arenaBytes = 0;
  int64_t modelStateBytes = 0;
  int64_t peakBytes = 0; ///< values live at the peak
  std::string peakAt;
};

struct Plan {
  std::string model;
  int ranks = 1, zero = 0, threads = 1;
  std::vector<std::string> trained, frozen; ///< names of initializers
  int64_t parameters = 0;                   ///< elements of all of them
  int64_t arenaBytes = 0;                   ///< of the device space
  int64_t modelStateBytes = 0;              ///< parameters, gradients and optimizer state that live over steps
  /// Stage 3: what parameters that stay whole take beyond a shard; what of the gathered ones is live at once.
  int64_t persistingBytes = 0, gatheredBytes = 0;
  int64_t constantBytes = 0, inputBytes = 0;
  int64_t packedBytes = 0;              ///< of weights that a step's first call of @micro packs for the others
  int64_t peakBytes = 0;                ///< values live at the peak
  int64_t activationBytes = 0;          ///< of values that are no gradients of parameters, the most at any node
  int64_t gradientBytes = 0;            ///< gradients of parameters, at the peak
  std::string peakAt;                   ///< "@micro %y = matmul (node '/fc1/MatMul')"
  std::vector<LiveItem> live;           ///< at the peak, the largest first
  std::map<Space, SpacePlan> elsewhere; ///< spaces that are used, besides the device's
  std::vector<LiveItem> residents;      ///< model state on the device, the largest first
  int64_t libraryBytes = 0;             ///< of the host, besides the arenas
  int64_t deviceLibraryBytes = 0;       ///< of a device's arena, its end
  int64_t stagingBytes = 0;             ///< of the host, besides: where a device's collectives go by way of it
  int64_t saveBytes = 0;                ///< of the buffer through which --save writes
  Needs needs;                          ///< beside the budgets
  TimedSchedule schedule;               ///< of the module, which has to outlive the plan
  StepCost step;
  double launches = 0;                      ///< pieces of work that a step gives the device; 0: there is none
  std::string noGraph;                      ///< why the device does not get them as graphs; "": it does
  PerRate rates;                            ///< by which both are timed
  std::string ratesFrom;                    ///< Target::ratesFrom()
  std::vector<Setting> settings;            ///< what flags and configuration say, and what is derived
  std::vector<std::string> decisions;       ///< of the frontend
  std::vector<std::string> remarks;         ///< of the passes
  std::shared_ptr<const PlanReport> search; ///< of choose-plan; nullptr: nothing was searched for
};

/// Bytes of the host's memory through which the largest bucket of collectives goes where a device's are staged, as the runtime
/// lays it out (runtime/comm/Staged.h): what each tensor is before and after.
int64_t stagingBytes(const Module &m);

/// The plan of a module after plan-memory.
llvm::Expected<Plan> makePlan(const Module &m, const Options &o, const Target &target);

/// An error if it does not fit the budgets: by how much, what is largest at the peak, and what would fit.
llvm::Error checkBudget(const Plan &p, const Options &o);

/// Keys: ranks, zero, trained, frozen, parameters, spaces {device, host, nvme: {arena_bytes, model_state_bytes,
/// peak_at}} (of the device's values also activation_bytes, gradient_bytes), library_bytes, staging_bytes, save_bytes,
/// traffic_bytes_per_rank, flops, launches (of a device), predicted_step_s, engine_busy_s, profile, bound_by, settings [{key,
/// value, reason}]; schedule {rates, functions [{function, times, seconds, spans}]}, a span being {engine, op, name, node,
/// begin_s, end_s, work} or {waits_for: its number, op, begin_s, end_s}, as struct Span has it, work and rates by the keys of a
/// profile; and of what choose-plan has found, search {tried, plain, choice, runner_up: {step_s, memory_bytes, host_bytes,
/// nvme_bytes, decisions}, bound {step_s, engine_s, bytes_away}, above_bound}.
enum class JsonDetail { All, WithoutSchedule };
std::string toJson(const Plan &p, JsonDetail detail = JsonDetail::All);
void print(const Plan &p, llvm::raw_ostream &os);

/// "1.25 GiB", with three digits at least.
std::string sizeText(int64_t bytes);
/// "1.250 ms".
std::string durationText(double seconds);
inline double secondsOf(int64_t ns) { return double(ns) / 1e9; }
/// How much longer the choice takes than no plan can avoid, as a part of that.
double aboveBound(const PlanReport &r);
/// What all ranks of a run write to disks at the predicted speed.
double terabytesADay(const Plan &p);

/// A table: bytes live at each node of each function.
llvm::Error printMemory(const Module &m, llvm::raw_ostream &os);

} // namespace zcc
