// --generate: tokens drawn one after the other from a trained model's logits.
#pragma once

#include "runtime/Arena.h"
#include "runtime/Options.h"
#include "runtime/zccrt.h"
#include <functional>
#include <string>
#include <vector>

namespace zccrt {

/// Every rank makes one and draws the same tokens: they have the same weights, seed and prompt.
class Generator {
public:
  /// Throws a Failure if the program is no model of tokens, or the prompt none for it.
  Generator(const zccrt_program &p, const Options &o);

  /// Calls `say` with pieces of text, or with numbers where tokens are no bytes. Throws a Failure if the model looks ahead.
  void run(Arena &arena, const std::function<void(const std::string &)> &say);

private:
  int64_t length() const { return p.tokens->t.dims[p.tokens->t.ndim - 1]; }
  int64_t least() const { return p.tokens->lo > 0 ? p.tokens->lo : 0; } ///< a token; below 0 they count from the end
  bool isText() const;
  std::string textOf(int64_t token) const;
  void readPrompt(const std::string &prompt);
  void fillAside(Arena &arena) const;
  void evaluate(Arena &arena, int64_t n, int64_t filler);
  void checkCausal(Arena &arena);
  int64_t draw(int64_t number) const;

  const zccrt_program &p;
  const Options &o;
  std::vector<int64_t> tokens;
  std::vector<float> logits; ///< of what comes behind `tokens`
};

} // namespace zccrt
