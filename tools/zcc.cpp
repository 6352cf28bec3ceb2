// zcc: an ONNX model (or a .zir module as it comes from the frontend) -> a native training program.
#include "codegen/Compilers.h"
#include "passes/options/Help.h"
#include "runtime/Fail.h"
#include "runtime/OptionHints.h"
#include "tools/Calibrate.h"
#include "tools/Compile.h"
#include "tools/Process.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace zcc;

static int run(int argc, char **argv) {
  zccrt::where.program = "zcc"; // a kernel that is asked for its workspace may fail
  if (report("zcc", refuseMissing(argc, argv)))
    return 1;
  declareZccOptions();
  if (!parseCommandLine(argc, argv, "zcc: compiles an ONNX model to a native training program",
                        [](auto &name, auto &known) { return zccrt::optionHint(zccrt::Tool::Compiler, name, known); }))
    return 1;
  if (printTables([] { printOnnxOps(llvm::outs()); }))
    return 0;
  Request r = readRequest(argc, argv);
  if (!r.model.empty() && r.model != "-" && !llvm::sys::fs::exists(r.model))
    return report("zcc", error("no such file: '" + r.model + "'"));
  if (report(llvm::sys::path::filename(configFile()), readConfig(r)))
    return 1;
  if (report("zcc", readToolOptions(r)))
    return 1;
  if (r.tool.calibrate)
    return report("zcc", calibrate(r));
  if (r.model.empty()) {
    llvm::errs() << "zcc: error: no model; usage: zcc [options] model.onnx -o OUT\n";
    return 1;
  }
  return report(llvm::sys::path::filename(r.model), compile(r));
}

int main(int argc, char **argv) { return zcc::runTool(argc, argv, run, stopCompilers); }
