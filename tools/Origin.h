// What others have saved, as zcc-ckpt convert reads it: where each tensor's bytes are, and how far the run was.
#pragma once

#include "runtime/weights/WeightFiles.h"
#include <cstdio>
#include <map>
#include <memory>

/// Weights, perhaps with an optimizer's state.
struct Origin {
  zccrt::GivenFiles weights;
  /// By the weight's name and the state's: "exp_avg".
  std::map<std::pair<std::string, std::string>, zccrt::GivenTensor> states;
  bool hasStates = false;
  int64_t step = 0, skipped = 0, samples = 0;
  std::vector<std::string> notes;
  std::shared_ptr<FILE> inOrder; ///< has no name: copies of tensors that do not lie in order
};

/// Of FILE.pt, FILE.bin, FILE.pth, what --weights takes, or the folder of DeepSpeed's universal checkpoint. Throws a Failure.
Origin openOrigin(const std::string &path);
