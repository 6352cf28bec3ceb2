// How the text of a program's option becomes a value: the column `rule` of Options.def. read(name, words, text, to) throws a
// Failure that names the option; `words` is what the help shows behind "=". Where a rule `adds`, a repeated option adds to what
// it says; of others the last counts.
#pragma once

#include "runtime/Options.h"

namespace zccrt {

struct Switch {
  void read(const char *, const char *, const char *, bool &to) const { to = true; }
};

struct Text {
  void read(const char *, const char *, const char *text, std::string &to) const { to = text; }
};

struct Texts {
  static constexpr bool adds = true;
  void read(const char *, const char *, const char *text, std::vector<std::string> &to) const { to.push_back(text); }
};

/// Not empty ones, with commas between.
struct CommaTexts {
  static constexpr bool adds = true;
  void read(const char *name, const char *, const char *text, std::vector<std::string> &to) const;
};

struct NotEmpty {
  const char *what;
  void read(const char *name, const char *, const char *text, std::string &to) const;
};

/// A whole number that is not less.
struct Whole {
  int64_t least;
  void read(const char *name, const char *, const char *text, int64_t &to) const;
};

/// A number that is not negative.
struct Number {
  void read(const char *name, const char *, const char *text, double &to) const;
};

/// The index of `text` among the words of a "a|b|c" list.
int oneOf(const char *name, const std::string &text, const char *words);

/// A value for each of the words.
template <class T> struct Words {
  std::vector<T> values;
  void read(const char *name, const char *words, const char *text, T &to) const { to = values[oneOf(name, text, words)]; }
};

struct ScheduleName {
  void read(const char *name, const char *, const char *text, Schedule::Kind &to) const;
};

/// FROM:TO
struct Range {
  void read(const char *name, const char *, const char *text, StepRange &to) const;
};

/// NAME=X
struct Pair {
  static constexpr bool adds = true;
  void read(const char *name, const char *, const char *text, Options::Pairs &to) const;
};

/// Files in order: a list with commas between, the names with * ? [] in it as the files that they match, by name.
struct FileList {
  static constexpr bool adds = true;
  void read(const char *name, const char *, const char *text, std::vector<std::string> &to) const;
};

/// NAME=FILE.npy or FILE.npz, or lists of them.
struct NpyOrNpz {
  static constexpr bool adds = true;
  void read(const char *name, const char *, const char *text, DataFiles &to) const;
};

/// The same, or a file of tokens by whatever other name.
struct DataOrTokens {
  static constexpr bool adds = true;
  void read(const char *name, const char *, const char *text, DataFiles &to) const;
};

} // namespace zccrt
