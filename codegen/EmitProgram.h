// A planned module as readable C++: tables first, then one function per function of the IR with one call per node. Of the
// module's attributes it reads the plan (arena_bytes, the offsets) and what the frontend found about integer inputs:
// `range.INPUT` = [lo, hi, ignore] (both ends allowed; ignore = lo: none) and `range_node.INPUT`.
#pragma once

#include "ir/Graph.h"
#include "passes/Target.h"
#include "passes/TimedSchedule.h"

namespace zcc {

/// A part of the exported ONNX file: bytes, then the value of a global (nullptr: none).
struct ExportPart {
  std::string bytes;
  const GlobalValue *global = nullptr;
  bool transposed = false; ///< write the global with its last two axes swapped
};

/// A tensor of the exported safetensors file.
struct ExportWeight {
  std::string name;
  Type type;
  ExportPart data;
  bool isAnother = false; ///< a further name of one before
};

/// What a program needs to know besides its module.
struct ProgramInfo {
  const Options *options = nullptr; ///< threads is resolved: above 0
  const Target *target = nullptr;
  std::string compileLine; ///< the zcc command without --ranks
  std::string isa;         ///< features of the CPU that the code needs, separated by blanks
  std::string planJson;
  const TimedSchedule *timed = nullptr; ///< what is predicted of each node; nullptr: nothing
  int64_t libraryBytes = 0;
  std::string outputFolder; ///< weights files below it are named relative to it
  bool isBundle = false;    ///< they are named as in the model's folder, to be copied to the program's
  std::vector<ExportPart> onnx, onnxTrain;
  std::string onnxIndex; ///< zccrt_program::onnx_index of onnx; empty: none
  std::vector<ExportWeight> weights;
  std::string absent;                ///< what of the model's state_dict they lack
  std::string schedule = "constant"; ///< default of the program's --lr-schedule, and its parameters
  std::vector<std::pair<std::string, std::string>> scheduleParams;
  std::string nvmePath; ///< default of its --nvme-path; empty: none
};

/// A file of the model.
struct WeightsFile {
  std::string name; ///< by which the program finds it: absolute, or relative to its folder
  std::string path; ///< where it is now
};

/// The sources of a program, and the data beside them.
struct EmittedProgram {
  std::string program;                  ///< tables and schedule, for -O0; reads "literals.bin" from its folder
  std::vector<std::string> kernels;     ///< generated kernels, one translation unit each; for optLevel, or nvcc
  std::vector<std::string> hostKernels; ///< those that compute in host memory, where the target's own compiler does not take them
  enum class Machine { Host, EmulatedGpu, CheckedGpu, Gpu } machine = Machine::Host;
  std::string gpu;  ///< Machine::Gpu: "sm_90"
  int optLevel = 3; ///< the C++ compiler's, 0 to 3; results do not depend on it
  std::string literals;
  std::string weights;            ///< contents of OUT.weights; empty: there is none
  std::vector<WeightsFile> files; ///< of the model
};

/// Errors: what a kernel cannot take, a weights file that cannot be read.
llvm::Expected<EmittedProgram> emitProgram(const Module &m, const ProgramInfo &info);

} // namespace zcc
