// One run of a program: what it holds between start-up and the end, and the step loop.
#pragma once

#include "runtime/Data.h"
#include "runtime/Export.h"
#include "runtime/Generate.h"
#include "runtime/Log.h"
#include "runtime/Metrics.h"
#include "runtime/Options.h"
#include "runtime/Outputs.h"
#include "runtime/RunReport.h"
#include "runtime/Spaces.h"
#include "runtime/StepGraphs.h"
#include "runtime/Trace.h"
#include "runtime/Weights.h"
#include "runtime/checkpoint/Checkpoints.h"
#include "runtime/comm/Comm.h"
#include "runtime/weights/GivenWeights.h"
#include <functional>
#include <memory>

namespace zccrt {

/// What ranks tell each other at the end of a step.
struct StepEnd {
  double loss; ///< summed over micro-batches
  int64_t signal;
  int64_t saveSignals; ///< so far
  SaveStatus save;
};

/// And at the end of a round of an evaluation.
struct EvalEnd {
  Weighted loss;
  int64_t signal;
};

class Session {
public:
  Session(const zccrt_program &p, const Options &o, const Launch &launch, Comm &comm);

  /// Opens data and outputs, maps the arena, loads the weights, prepares the kernels. An error on
  /// any rank is printed once and ends all of them with AgreedFailure.
  void start(const GivenWeights &given);
  /// Trains, exports, evaluates, as the options say; returns the exit status. Throws a Failure on the
  /// rank where something is wrong.
  int run();

private:
  void together(const std::function<void()> &phase);
  void attempt(const std::function<void()> &work);
  void findResume(const GivenWeights &given);
  void openData();
  Rest restOfEvaluation() const;
  void explainRest();
  void countSteps();
  void openOutputs();
  void openCheckpoints();
  void expectSame(uint64_t weights);
  void announce(const GivenWeights &given);

  int runAll();
  void finishAfter(const std::exception &e);
  void train();
  bool onlyEvaluates() const;
  void evaluateAll();
  std::vector<std::string> written() const;
  bool succeeds(const std::function<void()> &phase);
  bool isSaveDue(int64_t done);
  void save(int64_t done);
  void saveNow(int64_t done);
  void finishSaving();
  void agreeOnSignal();
  void noteSignal();
  void noteSignal(int64_t signal);
  void writeTrace();
  void writeTrace(const std::vector<std::string> &ofRanks);
  void writeReport();
  void runStep(int64_t step);
  void loadBatches(int64_t step, int64_t k);
  void call(void (*function)(char *arena), const char *name, int64_t number = -1);
  void openGraphs();
  void generate();
  void flush();
  struct TrafficMark {
    Traffic sent;
    NvmeTraffic disk;
  };
  TrafficMark mark() const;
  void noteTraffic(StepReport &r, const TrafficMark &since) const;
  std::optional<StepReport> trainStep(int64_t step);
  int64_t integerAt(int64_t offset) const; ///< 0 for an offset below 0
  const char *firstNotFinite() const;
  void checkGradients(const StepReport &r);
  const char *firstParameterNotFinite();
  std::string describeNotFinite(const StepReport &r);
  bool isWrong(const StepReport &r) const;
  void checkLoss(const StepReport &r);
  std::vector<char> takeStatistics();
  void putBackStatistics(const std::vector<char> &own);
  void evaluate(DataSet &set, Outputs *to, StepReport &r, int64_t &samples);
  void evaluateRounds(DataSet &set, Outputs *to, StepReport &r, int64_t &samples);
  double divisorOf(double weight) const;
  Weighted lossOf(int64_t rows, int64_t counted) const;
  template <typename T> void setScalar(int64_t offset, T value);
  ExportForm exportForm() const;
  const GraphPart *partToExport() const; ///< nullptr: all of it

  const zccrt_program &p;
  Options o; ///< with what a checkpoint says
  const Launch &launch;
  Comm &comm;
  ModelFiles files;
  std::unique_ptr<DataSet> data, evalData;
  std::unique_ptr<Spaces> spaces;
  Arena *arena = nullptr; // the device's
  std::unique_ptr<StepGraphs> graphs;
  std::unique_ptr<Log> log; // of rank 0
  std::unique_ptr<Outputs> outputs;
  std::unique_ptr<Generator> generator;
  OutFile exportFile, traceFile;     // of rank 0
  std::unique_ptr<RunReport> report; // of rank 0
  std::unique_ptr<Trace> trace;
  std::optional<GraphPart> exportedPart;
  Schedule schedule;
  int64_t first = 0, steps = 0;     // the run has the steps [first, steps)
  int64_t firstBatch = 0;           // of all ranks' batches, that of step `first`
  int64_t skippedBefore = 0;        // steps, of those that the program has no count of
  std::optional<Checkpoint> resume; // what the run goes on from
  std::unique_ptr<Checkpoints> checkpoints;
  int64_t saveSignals = 0;       // that were heeded
  std::vector<double> gathered;  // one number from every rank
  std::vector<StepEnd> ends;     // one of every rank
  std::vector<EvalEnd> evalEnds; // likewise
  std::vector<SaveStatus> saves; // of them, with room for all
  Metrics stepMetrics, evalMetrics;
  int stoppedBy = 0;          // the signal that ends the run; every rank knows the same
  bool leavesUpdates = false; // the last step has left some that nothing has done yet
  bool saidNotFinite = false;
  bool hasOutputs = false; ///< that --outputs asked for
  std::string failed;      ///< of what is due behind the last step, the first; every rank knows the same
};

/// The whole program; returns its exit status.
int runProgram(const zccrt_program &p, int argc, char **argv);

} // namespace zccrt
