// --weights of a program: other files than those that it was compiled with.
#pragma once

#include "runtime/comm/Comm.h"
#include "runtime/weights/WeightNames.h"
#include "runtime/zccrt.h"
#include <deque>

namespace zccrt {

/// The tensors of a program's state_dict: names of the model that are one tensor come together.
struct StateTensors {
  explicit StateTensors(const zccrt_program &p);
  std::vector<WantedTensor> wanted;
  std::vector<int> globalOf;                  ///< of each; -1: its bytes are in the program
  std::vector<const zccrt_weight *> weightOf; ///< likewise, its first name
};

/// The program with globals that start from the given files. Where --weights means the folder of the model's own files, or is not
/// given, it is the program as it was compiled.
class GivenWeights {
public:
  /// Throws a Failure: what is no file of weights, or does not fit.
  GivenWeights(const zccrt_program &p, const std::string &weights, const std::vector<std::string> &maps);
  GivenWeights(GivenWeights &&) = default; // what the program points to stays where it is

  zccrt_program program;
  std::string ownFolder; ///< of the model's own files; "": where they were when it was compiled
  uint64_t hash = 0;     ///< of what the files' headers say: equal on all ranks, or they have different files
  std::vector<std::string> notes, warnings;

  /// Whether other files than the model's own are meant.
  bool areByName() const { return !given.files.empty(); }
  /// Reads the values of what is compiled in, and of tied parameters. Throws a Failure where they differ from the program's.
  void expectEqual() const;

private:
  void take(const std::vector<std::string> &maps);
  void point(int global, const FoundTensor &f, const WantedTensor &w);
  bool isSameData(const zccrt_weight &w, const GivenTensor &t) const;

  GivenFiles given;
  FoundWeights found;
  StateTensors state;
  std::vector<zccrt_global> globals;
  std::vector<const char *> files;
  std::deque<std::string> paths;
};

} // namespace zccrt
