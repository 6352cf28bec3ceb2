// What a search over plans may decide: each open decision is an axis with levels, from what is done where there is room on.
//
// To make something else part of the plan, add an axis to openAxes(): a number of levels, and how a level is noted in the module.
// The passes behind choose-plan carry the notes out.
#pragma once

#include "passes/Pass.h"
#include <functional>
#include <optional>

namespace zcc {

struct Axis {
  std::string name;
  unsigned levels = 1; ///< each further one is meant to take less memory
  /// Notes a level in a copy of the module, behind the axes before it.
  std::function<void(Module &, unsigned level)> note;
  /// The level in words, for --plan; "" where there is nothing to say.
  std::function<std::string(unsigned level)> text;
  bool varies = false; ///< its levels take about the same memory: they are tried at each step down the other axes
  /// Names of axes: while all of them are at level 0, so is this one, whatever is asked for. None: it always decides something.
  std::vector<std::string> beside;
  bool mayBeForbidden = false; ///< a flag may say that it is at level 0
  bool mayBeWhole = false;     ///< a flag may say that it is at its last level, or at what is nearly that
  bool tightens = false;       ///< a level takes less memory for little more time, whatever the others are at
  bool shifts = false;         ///< its levels do not take less of a rank's memory, but more of one space and less of another
  /// Adds levels behind the others that lie between the one before this and this one, in order.
  std::function<std::vector<unsigned>(unsigned level)> before;
  /// Adds levels behind the others that are near this one: each is meant to take a little more memory for less time.
  std::function<std::vector<unsigned>(unsigned level)> near;
  /// Numbers of changes to a level, each of which is meant to take less memory for more time; and the level that one of them
  /// leads to, which it adds: nothing where it changes nothing.
  std::function<std::vector<unsigned>(unsigned level)> changes;
  std::function<std::optional<unsigned>(unsigned level, unsigned change)> changed;
};

/// Of a module before recompute-activations. With few decisions the levels are all that there is to decide, and not an order of
/// what takes less and less.
std::vector<Axis> openAxes(const Module &m, const PassContext &ctx);
/// So many trials are carried out for a module whose plans are all tried.
constexpr size_t kTriedAll = 4096;
/// How many plans there are.
size_t countOf(llvm::ArrayRef<Axis> axes);

} // namespace zcc
