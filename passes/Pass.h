// A pass is one function and one line in Passes.def.
#pragma once

#include "ir/Graph.h"

namespace zcc {

class Target;      // passes/Target.h
struct PlanReport; // passes/plan/PlanReport.h

/// Where something lives between its uses: as asked for, or as a search says that has a budget to fit.
enum class Offload { WithBudget, None, Auto, Cpu, Nvme };

/// Where optimizer state that lives elsewhere is updated: where the target's rates say that it is done sooner, on the device, in
/// host memory.
enum class UpdatePlace { Auto, Device, Host };

/// What the user asked for; set by zcc and zcc-opt from the options of the same names, which have the words on each field.
struct Options {
  /// Decay rates of the moments.
  struct Betas {
    double first = 0.9, second = 0.999;
  };
  /// Hyper-parameters of the parameters that match; -1: as the rest.
  struct ParamGroup {
    std::string regex;
    double weightDecay = -1, lrScale = 1;
  };
  enum class AccumOrder { WithBudget, Batches, Blocks, Auto };
  enum class OverflowCheck { InBf16, On, Off };
  /// What collectives do beside compute; derived by passes/zero/Zero.h.
  enum class Beside { Derived, On, Off };
  /// --tile: what is split and into how many pieces; without a name every large operator, 0 pieces: none, kAuto: as few as fit.
  struct TileRule {
    std::string regex;
    int64_t count = 0;
  };
  static constexpr double kUnset = -1;    ///< the optimizer's default
  static constexpr int64_t kDerived = -1; ///< by passes/zero/Zero.h
  /// --checkpoint-activations: 0 is none, above 0 a number of blocks.
  static constexpr int64_t kAuto = -1, kWithBudget = -2; ///< what fits the budgets; that, if there is one
#define ZCC_PASS_OPTION(NAME, TYPE, FIELD, OTHERWISE, ...) TYPE FIELD = OTHERWISE;
#include "passes/options/Options.def"

  bool inference = false;      ///< --loss=none
  bool triesMoreTiles = false; ///< where nothing fits, all is compiled again, in more tiles
  /// Whether @micro gets all micro-batches of a step at once.
  bool ordersBlocks() const { return gradAccum > 1 && accumOrder == AccumOrder::Blocks; }
  bool hasBudget() const { return memoryBudget || hostBudget || nvmeBudget; }
  /// Whether a search is to find what no flag gives.
  bool seeksCheckpoints() const { return hasBudget() && checkpointActivations < 0; }
  bool seeks(Offload o) const { return hasBudget() && (o == Offload::Auto || o == Offload::WithBudget); }
  bool tiles() const {
    return llvm::any_of(tileRules, [](const TileRule &r) { return r.count > 0; });
  }
  bool hasAutoTiles() const {
    return llvm::any_of(tileRules, [](const TileRule &r) { return r.count == kAuto; });
  }
  /// Whether as many tiles are to be taken as fit the budget.
  bool seeksTiles() const { return hasAutoTiles() || (tileRules.empty() && memoryBudget); }
  /// Also without a budget, if it is told to.
  bool seeksOrder() const {
    return gradAccum > 1 && (accumOrder == AccumOrder::Auto || (hasBudget() && accumOrder == AccumOrder::WithBudget));
  }
  /// With a budget also where flags leave nothing open: what is said of it, and what would fit, is the search's.
  bool seeksPlan() const { return hasBudget() || (!inference && seeksOrder()); }
  bool isLow() const { return dtype != Elem::F32; }
  /// Whether steps whose gradients are not finite are skipped.
  bool skipsOverflows() const {
    return dtype == Elem::F16 || (checkGradOverflow == OverflowCheck::InBf16 ? isLow() : checkGradOverflow == OverflowCheck::On);
  }
  /// Where what is to live in a space does: host memory is the CPU's own, unless it is told to keep them apart.
  Space away(Space s) const { return s == Space::Host && !separateHost ? Space::Device : s; }
  /// Whether there is host memory besides the device's.
  bool hasHost() const { return away(Space::Host) == Space::Host; }
  /// The space that a flag gives.
  Space away(Offload o) const { return o == Offload::Nvme ? Space::Nvme : o == Offload::Cpu ? away(Space::Host) : Space::Device; }
};

struct PassContext {
  const Options &options;
  const Target *target;                          ///< nullptr: none is known, and no workspaces are planned
  std::vector<std::string> remarks = {};         ///< shown by --plan
  std::shared_ptr<const PlanReport> search = {}; ///< what choose-plan found
};

/// Micro-batches that a call of @micro takes.
inline int64_t batchesPerCall(const Module &m) { return m.attrs.i("batches_per_call", 1); }

/// Returns whether it changed the module.
using PassFn = llvm::Expected<bool> (*)(Module &, PassContext &);

struct PassDef {
  const char *name;
  PassFn run;
  uint32_t needs, provides; ///< bits of Property
  const char *summary;
};

#define ZCC_PASS(NAME, FUNCTION, NEEDS, PROVIDES, SUMMARY) llvm::Expected<bool> FUNCTION(Module &, PassContext &);
#include "passes/Passes.def"
#undef ZCC_PASS

llvm::ArrayRef<PassDef> allPasses();
const PassDef *findPass(llvm::StringRef name);

} // namespace zcc
