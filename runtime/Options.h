// The command line of a compiled program.
#pragma once

#include "runtime/Schedule.h"
#include "runtime/zccrt.h"
#include <string>
#include <vector>

namespace zccrt {

/// Where the arrays of one data set come from.
struct DataFiles {
  struct Named {
    std::string input, file; ///< of --data=NAME=FILE.npy
  };
  std::vector<std::string> npz; ///< of --data=FILE.npz
  std::vector<Named> npy;
  std::string tokens; ///< of --tokens=FILE
  bool empty() const { return npz.empty() && npy.empty() && tokens.empty(); }
};

enum class TokenType { Auto, U16, U32, U8 };
enum class TokenLabels { Auto, Next, Same };
enum class CommKind { Auto, Mpi };

struct Options {
  bool help = false;
  DataFiles data, evalData;
  TokenType tokenType = TokenType::Auto;
  TokenLabels tokenLabels = TokenLabels::Auto;
  bool shuffle = false;
  int64_t steps = -1, epochs = -1; ///< -1: not given
  double lr = -1;                  ///< < 0: the program's
  Schedule::Kind schedule = Schedule::Constant;
  int64_t warmupSteps = -1, lrSteps = -1;                          ///< -1: not given
  double lrMin = -1;                                               ///< -1: not given
  std::vector<std::pair<std::string, std::string>> scheduleParams; ///< of --lr-param
  std::string log, outputs, exportFile, outputsOf, weights;
  bool eval = false;
  int64_t evalEvery = 0; ///< 0: not during training
  bool exportTrainForm = false;
  bool exportTies = true; ///< every name of a tied parameter
  int64_t seed = 0;
  int64_t generate = 0; ///< tokens
  std::string prompt;
  double temperature = 0.8;
  bool quiet = false;
  int64_t printEvery = 0; ///< 0: by time
  bool stopOnNan = false;
  CommKind comm = CommKind::Auto;
};

/// Reads the command line. Throws a Failure; an unknown option's message suggests the nearest.
Options parseOptions(const zccrt_program &p, int argc, char **argv);

/// The schedule that the program and the options say, for a run of so many steps. Throws a Failure.
Schedule makeSchedule(const zccrt_program &p, const Options &o, int64_t steps);

/// The names of all options.
std::vector<std::string> programOptions();

/// What --help prints.
std::string helpText(const zccrt_program &p);

/// The candidate with the fewest edits from `name`, if it is near enough to be meant; "" if none
/// is.
std::string nearest(const std::string &name, const std::vector<std::string> &candidates);

} // namespace zccrt
