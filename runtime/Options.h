// The command line of a compiled program.
#pragma once

#include "runtime/Schedule.h"
#include "runtime/zccrt.h"
#include <optional>
#include <string>
#include <vector>

namespace zccrt {

/// Where the arrays of one data set come from. What several files have of an input follows each other in this order.
struct DataFiles {
  struct Named {
    std::string input, file; ///< of --data=NAME=FILE.npy
  };
  std::vector<std::string> npz; ///< of --data=FILE.npz
  std::vector<Named> npy;
  std::vector<std::string> tokens; ///< of --tokens=FILE
  bool empty() const { return npz.empty() && npy.empty() && tokens.empty(); }
};

/// [from, to); from < 0: not said.
struct StepRange {
  int64_t from = -1, to = -1;
};

enum class TokenType { Auto, U16, U32, U8 };
enum class TokenLabels { Auto, Next, Same };
enum class ExportFormat { Onnx, Safetensors };
enum class CommKind { Auto, Mpi };

/// What the command line says: a field for each row of Options.def.
struct Options {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  static constexpr int kUnset = -1;
#define ZCCRT_OPTION(NAME, TYPE, FIELD, OTHERWISE, ...) TYPE FIELD = OTHERWISE;
#include "runtime/Options.def"
  std::optional<ExportFormat> exportFormat; ///< of exportFile, by its extension
  bool isSeedGiven = false;                 ///< whatever it is
  std::vector<std::string> warnings;        ///< for rank 0 to say
};

/// Reads the command line. Throws a Failure; an unknown option's message suggests the nearest.
Options parseOptions(const zccrt_program &p, int argc, char **argv);

/// The schedule that the program and the options say, for a run of so many steps. Throws a Failure.
Schedule makeSchedule(const zccrt_program &p, const Options &o, int64_t steps);

/// What --help prints.
std::string helpText(const zccrt_program &p);

/// Whether `s` is more than `tail` and ends in it.
bool endsWith(const std::string &s, const char *tail);

/// The candidate with the fewest edits from `name`, if it is near enough to be meant; "" if none
/// is.
std::string nearest(const std::string &name, const std::vector<std::string> &candidates);

} // namespace zccrt
