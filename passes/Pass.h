// A pass is one function and one line in Passes.def.
#pragma once

#include "ir/Graph.h"
#include <functional>

namespace zcc {

/// What the user asked for; set by the driver from its options and by zcc-opt from the same ones.
struct Options {
  int ranks = 1, threads = 0, gradAccum = 1, zero = 0;
  std::string optimizer = "adamw";                                                      ///< one of optimizers()
  double lr = -1, beta1 = 0.9, beta2 = 0.999, eps = -1, weightDecay = -1, momentum = 0; ///< -1: the optimizer's default
  bool nesterov = false;
  bool biasCorrection = true;                 ///< adam, adamw, lamb
  bool cycleMomentum = false;                 ///< beta1 is a state that the schedule sets at each step
  double lrDecay = 0, initialAccumulator = 0; ///< adagrad
  double maxCoeff = 10, minCoeff = 0.01;      ///< lamb
  double clipGradNorm = 0;                    ///< 0: no clipping
  Elem dtype = Elem::F32; ///< what products are computed in, and parameters and gradients kept: F32, BF16, F16
  bool isLow() const { return dtype != Elem::F32; }
  bool checkGradOverflow = true; ///< 16 bits: steps whose gradients are not finite are skipped; fp16: always
  /// Of fp16, with DeepSpeed's defaults; lossScale 0: dynamic, from 2^initialScalePower.
  double lossScale = 0, minLossScale = 1;
  int initialScalePower = 16, lossScaleWindow = 1000, lossScaleHysteresis = 2;
  struct ParamGroup {
    std::string regex;
    double weightDecay = -1, lrScale = 1; ///< -1: as the rest
  };
  std::vector<ParamGroup> groups; ///< first match wins
  bool inference = false;         ///< --loss=none
  bool overlap = true;
  bool prefetch = true;
  /// ZeRO's limits in elements; -1: derived (passes/zero/Zero.h).
  int64_t persistence = -1, maxLive = -1, maxReuse = -1, reduceBucket = -1, gatherBucket = -1;
};

struct PassContext {
  const Options &options;
  std::vector<std::string> remarks; ///< shown by --plan
  /// Bytes of workspace that the code of a node needs (libraries, generated kernels); set by what knows the target.
  std::function<int64_t(const Node &)> workspaceBytes;
};

/// Returns whether it changed the module.
using PassFn = llvm::Expected<bool> (*)(Module &, PassContext &);

struct PassDef {
  const char *name;
  PassFn run;
  uint32_t needs, provides; ///< bits of Property
  const char *summary;
};

#define ZCC_PASS(NAME, FUNCTION, NEEDS, PROVIDES, SUMMARY) llvm::Expected<bool> FUNCTION(Module &, PassContext &);
#include "passes/Passes.def"
#undef ZCC_PASS

llvm::ArrayRef<PassDef> allPasses();
const PassDef *findPass(llvm::StringRef name);

} // namespace zcc
