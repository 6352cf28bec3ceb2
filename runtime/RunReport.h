// The page of the program's --report: what the log has, and what was predicted. Steps go into memory that is allocated before the
// first one; of a long run each point stands for several steps.
#pragma once

#include "runtime/StepReport.h"
#include "runtime/zccrt.h"
#include <string>
#include <vector>

namespace zccrt {

class RunReport {
public:
  RunReport(const zccrt_program &p, int64_t first, int64_t steps);

  void add(const StepReport &r);
  void addCheckpoint(int64_t step);
  /// `peaks`: bytes that the ranks had resident at most; `stoppedBy`: "SIGINT", or nullptr; `seconds`: of the whole run.
  std::string page(const std::vector<int64_t> &peaks, const char *stoppedBy) const;

private:
  /// Steps in a row.
  struct Point {
    int64_t step = 0, count = 0, finite = 0, skipped = 0;
    double loss = 0, least = 0, most = 0; ///< loss: a sum, of those that are finite
    double lr = 0, gradNorm = 0, lossScale = 0, seconds = 0, slowest = 0, fastest = 0, samples = 0;
  };
  struct Mark {
    int64_t step;
    double loss; ///< of an evaluation
  };
  void halve();
  static void merge(Point &into, const Point &p);
  static void note(std::vector<Mark> &marks, Mark m);
  std::string json(const std::vector<int64_t> &peaks, const char *stoppedBy) const;

  const zccrt_program &program;
  const int64_t first, steps;
  int64_t each = 1; ///< steps of a point
  std::vector<Point> points;
  std::vector<Mark> evaluations, checkpoints;
  Traffic sent; ///< in the last step
  bool hasLr = false, hasNorm = false, hasScale = false;
};

/// Bytes that this process has had resident at most.
int64_t residentPeak();

} // namespace zccrt
