// ONNX file -> forward module: `@micro(inputs) -> (loss)` in training mode, `@eval(inputs) -> (loss, outputs)` in evaluation mode
// (no dropout, running statistics).
#pragma once

#include "frontend/onnx/ExportTemplate.h"
#include "ir/Graph.h"
#include <map>

namespace zcc {

/// What the user asked for: the options of the same names, and what follows from others.
struct ImportOptions {
  using Strings = std::vector<std::string>;
  using SymbolSizes = std::map<std::string, int64_t>;
  enum BatchNorm { AsInFile, Train, Frozen };
#define ZCC_IMPORT_OPTION(NAME, TYPE, FIELD, OTHERWISE, ...) TYPE FIELD = OTHERWISE;
#include "passes/options/Options.def"

  int64_t batch = 0;         ///< size of a symbolic first axis of the inputs that `dims` does not fix
  bool ownOptimizer = false; ///< --optimizer: a training algorithm in the file is left aside
  bool inference = false;    ///< --loss=none: no @micro, and @eval returns the outputs only
};

/// One trained (or frozen) parameter, as --plan shows it.
struct ParameterRemark {
  std::string name, initializer, decision, evidence;
  bool isObvious = false; ///< nothing that a reader of the model would not expect
};

struct ImportReport {
  std::vector<std::string> warnings; ///< one message each, without prefix
  std::vector<std::string> remarks;  ///< what was decided, for --plan
  std::vector<ParameterRemark> parameters;
  ExportTemplate inferenceForm, trainingForm; ///< the files that --export writes
  std::vector<ExportTensor> state;            ///< what it writes as safetensors
  bool isBatchGiven = false;                  ///< whether `dims` fixed a first axis of the inputs
  std::string absent;                         ///< what of the model's state_dict is not in the file: "a, b and 20 more"
};

/// Imports the model at `path`. The module's attributes say what the frontend found:
///   `loss`              name of the loss ("" for inference)
///   `range.INPUT`       [lo, hi, ignore]: integers that input may hold, lo <= x <= hi or x == ignore (ignore = lo if there is
///                       none), because it indexes a table or names a class
///   `range_node.INPUT`  the ONNX node that demands it
/// @eval returns the loss (if any) and then the graph's other outputs; resultNames are their names
/// in the model. Errors: what the file or the options say wrongly, or one report of everything that
/// is not supported.
llvm::Expected<std::unique_ptr<Module>> importOnnx(llvm::StringRef path, const ImportOptions &options, ImportReport &report);

/// The operators of ONNX and of the other domains that are imported, one line a domain.
void printOnnxOps(llvm::raw_ostream &os);

} // namespace zcc
