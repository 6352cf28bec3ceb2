// The page of the program's --report: what the log has, and what was predicted. Steps go into memory that is allocated before the
// first one; of a long run each point stands for several steps. An error that ends the run is on the page too.
#pragma once

#include "runtime/OutFile.h"
#include "runtime/StepReport.h"
#include "runtime/zccrt.h"
#include <mutex>
#include <string>
#include <vector>

namespace zccrt {

class RunReport {
public:
  /// How the run ended, where it did not reach its last step: by a signal such as "SIGINT", or by an error.
  struct Ending {
    const char *signal = nullptr;
    std::string error;
  };

  /// Opens the file. Throws a Failure if it cannot be written.
  RunReport(const zccrt_program &p, int64_t first, int64_t steps, const std::string &path);
  ~RunReport();

  void add(const StepReport &r);
  void addCheckpoint(int64_t step);
  /// `peaks`: bytes that the ranks had resident at most.
  void write(const std::vector<int64_t> &peaks, const Ending &ending);
  /// What there is when an error ends the run on whatever thread, unless the page is there already or cannot be written.
  void writeUnfinished(const std::string &error) noexcept;
  bool isWritten() const { return !file.isOpen(); }

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
  /// Beside the points and evaluations.
  struct Metric {
    const char *name;
    std::vector<double> sums, counts; ///< of a point's steps in which it is finite
    std::vector<double> evaluations;
  };
  void halve();
  static void merge(Point &into, const Point &p);
  template <typename T> static void thinOut(std::vector<T> &marks);
  void addMetrics(std::span<const MetricValue> values, bool isNewPoint);
  void addEvaluation(const StepReport &r);
  std::string metricsJson() const;
  std::string json(const std::vector<int64_t> &peaks, const Ending &ending) const;

  const zccrt_program &program;
  const int64_t first, steps;
  int64_t each = 1; ///< steps of a point
  std::vector<Point> points;
  std::vector<Mark> evaluations, checkpoints;
  std::vector<Metric> metrics;
  Traffic sent; ///< in the last step
  bool hasLr = false, hasNorm = false, hasScale = false;
  OutFile file;
  std::mutex guard; ///< an error on another thread may want the page at any time
};

/// Bytes that this process has had resident at most.
int64_t residentPeak();

} // namespace zccrt
