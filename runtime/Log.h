// What a run reports: a JSON object a step in the log file, and lines for people. Rank 0 alone has one.
#pragma once

#include "runtime/Line.h"
#include "runtime/Options.h"
#include "runtime/Progress.h"
#include "runtime/StepReport.h"
#include "runtime/TensorBoard.h"
#include "runtime/zccrt.h"
#include <string>
#include <vector>

namespace zccrt {

/// A line of the log file is {"step": 0, "loss": 1.23456789, ...}; what is not finite is null.
class Log {
public:
  /// Creates the log file, and leaves one that is there as it is. Throws a Failure if it cannot be written.
  /// `first`: the step with which the run begins.
  Log(const zccrt_program &p, const Options &o, int64_t first, int64_t steps, const Epochs &epochs, bool trains);
  ~Log();
  Log(const Log &) = delete;
  Log &operator=(const Log &) = delete;

  /// The run has all that it needs: of a file that was there the steps before its first one stay, or all if it does not train.
  /// Throws a Failure.
  void begin();
  /// A step of the training, which goes on where its log or standard output cannot be written: one
  /// warning says so.
  void report(const StepReport &r);
  /// The result of a run that only evaluates. Throws a Failure if it cannot be written.
  void reportEval(const StepReport &r);
  /// One line, unless --quiet.
  void say(const std::string &line);
  /// One line on standard error.
  void warn(const std::string &text) { progress.warn(text); }
  /// The one warning of what is not finite, the loss or gradients; finish() repeats it.
  void warnNotFinite(int64_t step, const char *what, const std::string &text);
  /// The last line: what was done and what was written where, `wrote` and the log; of a run that a
  /// signal ended on standard error, --quiet or not.
  void finish(std::vector<std::string> wrote, int stoppedBy);

private:
  void keepBefore(int64_t step);
  bool write(const StepReport &r);
  void dropLine(int64_t step);
  void toTensorBoard(const StepReport &r);
  void addNumber(const char *key, double x);
  void addMetrics(const char *prefix, std::span<const MetricValue> metrics);
  void addExact(const char *key, double x);

  const zccrt_program &program;
  int64_t first, steps, done = 0;
  std::string path, notFinite;
  int fd = -1;
  int64_t wholeLines = 0, lostLines = 0; ///< bytes; how many
  bool quiet, exports, saves;
  bool isCut = false; ///< as it begins
  bool isOwn = false; ///< no device, pipe or file that others have open
  Progress progress;
  std::optional<TensorBoard> tensorBoard;
  bool tensorBoardFails = false;
  Line line;
};

} // namespace zccrt
