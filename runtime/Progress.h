// What people see of a run, on standard output: on a terminal one line drawn again and again, elsewhere plain lines some seconds
// apart. Rank 0 alone has one.
#pragma once

#include "runtime/Line.h"
#include "runtime/Options.h"
#include "runtime/StepReport.h"
#include <string>

namespace zccrt {

class Progress {
public:
  Progress(const Options &o, int64_t steps, const Epochs &epochs);
  ~Progress();
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

  void step(const StepReport &r);
  /// One line; false, with errno, if it cannot be written.
  bool say(const std::string &text);
  /// One line on standard error.
  void tell(const std::string &text);
  void warn(const std::string &text) { tell("warning: " + text); }
  /// Since the run began.
  double seconds() const;

private:
  void learn(const StepReport &r);
  bool isDue(int64_t step, double time);
  void compose(const StepReport &r);
  void draw(bool stays);
  void warnOfOutput();
  int width() const;

  int64_t steps, every; ///< 0: by time
  const Epochs epochs;
  int screen; ///< the terminal, to ask for its width; -1: none
  double began, drawn = 0, due = 0;
  bool saidOutputFails = false;
  // Recent steps weigh most: sums that decay.
  struct {
    double seconds = 0, samples = 0, steps = 0;
  } recent;
  double loss = 0, losses = 0;
  Line line, drawing;
};

} // namespace zccrt
