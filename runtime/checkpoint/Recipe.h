// What zcc-ckpt knows of a program: what its checkpoints hold, and the tables by which it makes the files that the program
// exports, in a file beside the data.
#pragma once

#include "runtime/zccrt.h"
#include <deque>
#include <string>
#include <vector>

namespace zccrt {

/// The file's bytes: a JSON text with its length in front, as in a safetensors file, then the literal bytes of what is exported.
/// `weightsDir`: where the model's files are, as in --weights.
std::string recipeOf(const zccrt_program &p, const std::string &weightsDir);

/// A program that has nothing but these tables. Globals that checkpoints hold lie one behind the other from offset 0 on; those
/// that are read from the model's files have the offset -1.
class Recipe {
public:
  /// Throws a Failure if the text is none.
  explicit Recipe(std::string text);
  Recipe(const Recipe &) = delete;
  Recipe &operator=(const Recipe &) = delete;

  zccrt_program program = {};
  uint64_t modelHash = 0; ///< of that program

private:
  const char *keep(const std::string &s) { return strings.emplace_back(s).c_str(); }

  std::string text;
  std::deque<std::string> strings;
  std::vector<zccrt_global> globals;
  std::vector<const char *> files;
  std::vector<zccrt_piece> onnx, onnxTrain;
  std::vector<zccrt_weight> weights;

  friend class RecipeReader;
};

} // namespace zccrt
