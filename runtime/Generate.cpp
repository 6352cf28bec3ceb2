// Reads the prompt, evaluates the model token by token, and draws.
#include "runtime/Generate.h"
#include "ir/Philox.h"
#include "runtime/Device.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace zccrt {

constexpr int64_t kBytes = 256; // a vocabulary of so many is one of bytes

Generator::Generator(const zccrt_program &p, const Options &o) : p(p), o(o) {
  if (!p.tokens || !p.logits)
    fail("--generate: the model is no model of tokens: %s",
         p.generate_why ? p.generate_why : "no integer input is looked up in an embedding");
  readPrompt(o.prompt);
}

bool Generator::isText() const { return p.tokens->lo <= 0 && p.tokens->hi == kBytes; }

/// Control characters would command a terminal.
std::string Generator::textOf(int64_t token) const {
  if (!isText())
    return format(" %lld", static_cast<long long>(token));
  bool isControl = (token < 32 && token != '\n' && token != '\t') || token == 127;
  return std::string(1, isControl ? '?' : static_cast<char>(token));
}

void Generator::readPrompt(const std::string &prompt) {
  if (isText()) {
    for (char c : prompt.empty() ? std::string("\n") : prompt)
      tokens.push_back(static_cast<unsigned char>(c));
  } else {
    for (const char *at = prompt.c_str(); *at;) {
      char *end;
      errno = 0;
      tokens.push_back(strtoll(at, &end, 10));
      if (end == at || errno || (*end && !strchr(", ", *end)))
        fail("--prompt=%s: the tokens of this model are no bytes; give their numbers, such as 15,3,7", prompt.c_str());
      at = end + strspn(end, ", ");
    }
    if (tokens.empty())
      tokens.push_back(least());
  }
  for (int64_t t : tokens)
    if (p.tokens->lo < p.tokens->hi && (t < p.tokens->lo || t >= p.tokens->hi))
      fail("--prompt: token %lld is not in [%lld, %lld)", static_cast<long long>(t), static_cast<long long>(p.tokens->lo),
           static_cast<long long>(p.tokens->hi));
}

/// Sets each element k to valueOf(k), all by one copy.
template <typename F> static void fill(Arena &arena, const zccrt_tensor &t, F valueOf) {
  const int64_t count = elementCount(t), size = elemBytes(t.elem);
  std::vector<char> aside;
  arena.write(t.offset, count * size, aside, [&](char *to) {
    for (int64_t k = 0; k < count; ++k) {
      const double value = valueOf(k);
      convert(&value, ZCCRT_F64, to + k * size, t.elem, 1);
    }
  });
}

/// Inputs beside the tokens: masks let everything pass, positions count, types are 0. Others do not matter for the logits.
void Generator::fillAside(Arena &arena) const {
  for (int i = 0; i < p.ninputs; ++i) {
    const zccrt_io &in = p.inputs[i];
    bool isMask = strstr(in.name, "mask"), isPosition = strstr(in.name, "position");
    if (&in == p.tokens || !(isMask || isPosition || strstr(in.name, "type")))
      continue;
    int64_t last = in.t.ndim ? in.t.dims[in.t.ndim - 1] : 1;
    fill(arena, in.t, [&](int64_t k) { return isMask ? 1 : isPosition ? k % last : 0; });
  }
}

/// The logits behind the last n tokens; the rest of the input is `filler`, which a model that looks back does not see.
void Generator::evaluate(Arena &arena, int64_t n, int64_t filler) {
  const int64_t *window = tokens.data() + tokens.size() - n;
  fill(arena, p.tokens->t, [&](int64_t k) { return double(k < n ? window[k] : filler); });
  runToEnd(p.eval, arena);
  const zccrt_tensor &t = p.logits->t;
  logits.resize(t.dims[t.ndim - 1]);
  const int64_t row = int64_t(logits.size()) * elemBytes(t.elem);
  std::vector<char> aside;
  const char *at = arena.read(t.offset + (n - 1) * row, row, aside);
  for (size_t c = 0; c < logits.size(); ++c)
    logits[c] = float(zccrt::floatAt(at, t.elem, int64_t(c)));
}

void Generator::checkCausal(Arena &arena) {
  int64_t n = std::min<int64_t>(tokens.size(), length() - 1);
  if (n == 0)
    return; // one token alone: none follows
  evaluate(arena, n, least());
  std::vector<float> first = logits;
  evaluate(arena, n, least() + 1);
  float size = 0, change = 0;
  for (size_t c = 0; c < first.size(); ++c) {
    size = std::max(size, std::fabs(first[c]));
    change = std::max(change, std::fabs(first[c] - logits[c]));
  }
  constexpr float kRounding = 1e-3f; // 16-bit products, summed in another order
  if (change > kRounding * size)
    fail("--generate: the model looks ahead: its logits depend on tokens that follow; it predicts no next token");
}

/// The likeliest token, or one by its probability at the temperature.
int64_t Generator::draw(int64_t number) const {
  size_t choices = logits.size();
  if (p.tokens->hi > p.tokens->lo) // a table may be padded, and only its rows are tokens
    choices = std::min<size_t>(choices, p.tokens->hi);
  auto likeliest = std::max_element(logits.begin(), logits.begin() + choices);
  if (o.temperature == 0)
    return likeliest - logits.begin();
  double sum = 0;
  auto weight = [&](size_t c) { return std::exp((double(logits[c]) - *likeliest) / o.temperature); };
  for (size_t c = 0; c < choices; ++c)
    sum += weight(c);
  double left = sum * zcc::philoxUniform(o.seed, number, zcc::philoxId("generate"), zcc::kPhiloxInit);
  for (size_t c = 0; c < choices; ++c)
    if ((left -= weight(c)) < 0)
      return c;
  return likeliest - logits.begin();
}

void Generator::run(Arena &arena, const std::function<void(const std::string &)> &say) {
  fillAside(arena);
  checkCausal(arena);
  std::string text;
  for (int64_t t : tokens)
    text += textOf(t);
  say(text);
  for (int64_t i = 0; i < o.generate; ++i) {
    evaluate(arena, std::min<int64_t>(tokens.size(), length()), least());
    for (float x : logits)
      if (std::isnan(x))
        fail("--generate: the model's logits are not a number");
    tokens.push_back(draw(i));
    say(textOf(tokens.back()));
  }
  say("\n");
}

} // namespace zccrt
