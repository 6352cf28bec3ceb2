// What a search over plans found: for --plan, and for the refusal.
#pragma once

#include "passes/CostModel.h"
#include "passes/memory/Budget.h"
#include <optional>

namespace zcc {

/// One way to train, carried out on a copy. Times are whole nanoseconds, so that they compare the same everywhere.
struct PlanChoice {
  std::vector<std::string> decisions; ///< in words; none: nothing is recomputed, all lives on the device
  Needs needs;
  int64_t ns = 0; ///< of a step, predicted
  std::array<int64_t, kEngines> busyNs{};
};

/// What no plan avoids within the budgets, by engine.
struct PlanBound {
  std::array<int64_t, kEngines> busyNs{};
  int64_t bytesAway = 0; ///< that cannot stay in memory
  int64_t ns() const { return *std::max_element(busyNs.begin(), busyNs.end()); }
};

struct PlanReport {
  bool fits = false;
  PlanChoice plain, taken;          ///< taken: where nothing fits, what exceeds the budgets least
  std::optional<PlanChoice> second; ///< the next best that fits
  PlanBound bound;
  std::vector<std::string> gap; ///< why the choice takes longer than that
  size_t tried = 0;
  std::vector<std::string> advice; ///< where nothing fits: the smallest changes with which something does
};

} // namespace zcc
