// zcc-ckpt convert: other people's checkpoints become checkpoints of a compiled program.
#pragma once

#include <string>
#include <vector>

/// Writes DIR/step-N, from which PROGRAM goes on, of the weights or the DeepSpeed checkpoint in `from`. Throws a Failure.
void convertCheckpoint(const std::string &from, const std::string &program, const std::string &dir,
                       const std::vector<std::string> &maps);
