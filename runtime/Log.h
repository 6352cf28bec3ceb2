// What a run reports: a JSON object a step in the log file, a line a step on the terminal. Rank 0
// alone has one.
#pragma once

#include "runtime/Options.h"
#include "runtime/comm/Comm.h"
#include "runtime/zccrt.h"
#include <optional>
#include <string>

namespace zccrt {

struct StepReport {
  int64_t step = 0;
  double loss = 0; ///< mean over ranks and micro-batches, before the update
  std::optional<double> lr, gradNorm, lossScale;
  std::optional<bool> skipped; ///< in 16 bits: the gradients are not finite
  double seconds = 0;
  int64_t samples = 0; ///< over all ranks
  std::optional<double> evalLoss;
  Traffic sent; ///< bytes that rank 0 sent in this step
};

/// A line of the log file is {"step": 0, "loss": 1.23456789, ...}; not-a-number and infinity are
/// written as Python's json reads them.
class Log {
public:
  /// Creates the log file. Throws a Failure if it cannot be written.
  Log(const zccrt_program &p, const Options &o, int64_t steps);
  ~Log();
  Log(const Log &) = delete;
  Log &operator=(const Log &) = delete;

  /// Throws a Failure if the log cannot be written, for instance when the disk is full.
  void report(const StepReport &r);
  /// The result of a run that only evaluates.
  void reportEval(const StepReport &r);
  /// One line, unless --quiet.
  void say(const std::string &line);

private:
  void write(const StepReport &r);
  /// printf behind what `line` holds. A step's lines are made here: the step loop allocates
  /// nothing.
  __attribute__((format(printf, 2, 3))) void add(const char *text, ...);
  void addNumber(const char *key, double x);
  void addDuration(double seconds);
  bool flush(int to);

  const zccrt_program &program;
  int64_t steps, done = 0;
  double secondsSoFar = 0;
  std::string path;
  int fd = -1;
  bool quiet, terminal;
  char line[1024];
  int length = 0;
};

} // namespace zccrt
