// An option as a row of Options.def has it, without its type: what is enough to declare it.
#pragma once

#include <string>

namespace zcc {

/// What stands behind an option's name.
enum class Takes { Nothing, Value, PerhapsValue, Values, CommaValues };

struct OptionRow {
  const char *name;
  Takes takes;
  const char *value, *help;
  std::string otherwise; ///< the default as text, which the help shows; "": there is none
};
template <class Rule, class T>
OptionRow rowOf(const char *name, const Rule &rule, const T &otherwise, const char *value, const char *help) {
  if constexpr (Rule::takes == Takes::Value || Rule::takes == Takes::Nothing)
    return {name, Rule::takes, value, help, rule.print(otherwise)};
  else
    return {name, Rule::takes, value, help, ""};
}
} // namespace zcc
