// How the text of an option becomes a value and back, and what values there are: the column `rule` of Options.def. Nothing here
// knows the library that reads the command line.
//
// A rule has `takes`; read(name, text, to), whose error names the option; and print(value), "" where the value is that of an
// option that is not given. A rule that takes several values reads and prints one at a time.
#pragma once

#include "ir/Diag.h"
#include "passes/Pass.h"
#include "passes/options/OptionRow.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zcc {

/// "--lr", "-o".
std::string dashed(llvm::StringRef name);
/// "--NAME must be WHAT, not 'TEXT'".
llvm::Error mustBe(llvm::StringRef name, const llvm::Twine &what, llvm::StringRef text);
/// "a, b or c".
std::string anyOf(llvm::ArrayRef<std::string> words);

/// --name; its text is "on" or "off".
struct Switch {
  static constexpr Takes takes = Takes::Nothing;
  llvm::Error read(llvm::StringRef, llvm::StringRef text, bool &to) const;
  std::string print(bool v) const { return v ? "on" : ""; }
};

struct OnOff {
  static constexpr Takes takes = Takes::Value;
  llvm::Error read(llvm::StringRef name, llvm::StringRef text, bool &to) const;
  std::string print(bool v) const { return v ? "on" : "off"; }
};

struct Text {
  static constexpr Takes takes = Takes::Value;
  llvm::Error read(llvm::StringRef, llvm::StringRef text, std::string &to) const;
  std::string print(const std::string &v) const { return v; }
};

struct Integer {
  static constexpr Takes takes = Takes::Value;
  int64_t least, most;
  Integer(int64_t least, int64_t most) : least(least), most(most) {}
  template <class T> llvm::Error read(llvm::StringRef name, llvm::StringRef text, T &to) const {
    if (!text.getAsInteger(10, to) && to >= least && to <= most)
      return llvm::Error::success();
    return mustBe(name, "an integer from " + llvm::Twine(least) + " to " + llvm::Twine(most), text);
  }
  std::string print(int64_t v) const { return v < least ? "" : std::to_string(v); }
};
inline constexpr int64_t kMost = 1 << 20, kMostElements = int64_t(1) << 60; ///< of counts, and of elements

/// Bytes: a number with B, KiB, MiB, GiB, TiB or nothing behind it.
struct Size {
  static constexpr Takes takes = Takes::Value;
  llvm::Error read(llvm::StringRef name, llvm::StringRef text, int64_t &to) const;
  std::string print(int64_t v) const { return v ? std::to_string(v) : ""; }
};

/// "none", "auto" or a number of blocks.
struct Blocks {
  static constexpr Takes takes = Takes::Value;
  llvm::Error read(llvm::StringRef name, llvm::StringRef text, int64_t &to) const;
  std::string print(int64_t v) const { return v > 0 ? std::to_string(v) : !v ? "none" : v == Options::kAuto ? "auto" : ""; }
};

/// 0 or more; in as few digits as read back the same.
struct Number {
  static constexpr Takes takes = Takes::Value;
  llvm::Error read(llvm::StringRef name, llvm::StringRef text, double &to) const;
  std::string print(double v) const;
};

/// From 0 to 1.
struct Fraction : Number {
  llvm::Error read(llvm::StringRef name, llvm::StringRef text, double &to) const;
};

/// One of some words, each for a value.
template <class T> struct Words {
  static constexpr Takes takes = Takes::Value;
  std::vector<std::pair<std::string, T>> words;
  Words(std::initializer_list<std::pair<std::string, T>> words) : words(words) {}
  llvm::Error read(llvm::StringRef name, llvm::StringRef text, T &to) const {
    std::vector<std::string> names;
    for (auto &[word, value] : words) {
      names.push_back(word);
      if (text != word)
        continue;
      to = value;
      return llvm::Error::success();
    }
    return mustBe(name, anyOf(names), text);
  }
  std::string print(const T &v) const {
    for (auto &[word, value] : words)
      if (v == value)
        return word;
    return "";
  }
};

struct Offloads : Words<Offload> {
  Offloads() : Words{{"none", Offload::None}, {"auto", Offload::Auto}, {"cpu", Offload::Cpu}, {"nvme", Offload::Nvme}} {}
};

struct Besides : Words<Options::Beside> {
  Besides() : Words{{"on", Options::Beside::On}, {"off", Options::Beside::Off}} {}
};

/// One of some words, as they are.
struct OneOf : Words<std::string> {
  template <class... W> OneOf(W... words) : Words<std::string>{{words, words}...} {}
};

/// Nothing, or one of some words; nullopt: not given.
struct PerhapsOneOf {
  static constexpr Takes takes = Takes::PerhapsValue;
  std::vector<std::string> words;
  template <class... W> PerhapsOneOf(W... words) : words{words...} {}
  llvm::Error read(llvm::StringRef name, llvm::StringRef text, std::optional<std::string> &to) const;
  std::string print(const std::optional<std::string> &v) const { return v.value_or(""); }
};

/// Nothing, or a text; nullopt: not given.
struct PerhapsText {
  static constexpr Takes takes = Takes::PerhapsValue;
  llvm::Error read(llvm::StringRef, llvm::StringRef text, std::optional<std::string> &to) const;
  std::string print(const std::optional<std::string> &v) const { return v.value_or(""); }
};

struct Texts {
  static constexpr Takes takes = Takes::Values;
  llvm::Error read(llvm::StringRef, llvm::StringRef text, std::vector<std::string> &to) const;
  std::string print(const std::string &v) const { return v; }
};

struct CommaTexts : Texts {
  static constexpr Takes takes = Takes::CommaValues;
};

/// NAME=N, N above 0.
struct SymbolSize {
  static constexpr Takes takes = Takes::Values;
  using Sizes = std::map<std::string, int64_t>;
  llvm::Error read(llvm::StringRef name, llvm::StringRef text, Sizes &to) const;
  std::string print(const Sizes::value_type &v) const { return v.first + "=" + std::to_string(v.second); }
};

/// "0.9,0.999"
struct TwoDecays {
  static constexpr Takes takes = Takes::Value;
  llvm::Error read(llvm::StringRef name, llvm::StringRef text, Options::Betas &to) const;
  std::string print(const Options::Betas &v) const;
};

/// "REGEX:weight-decay=0,lr-scale=0.1"; the regular expression may hold colons.
struct Groups {
  static constexpr Takes takes = Takes::Values;
  llvm::Error read(llvm::StringRef name, llvm::StringRef text, std::vector<Options::ParamGroup> &to) const;
  std::string print(const Options::ParamGroup &g) const;
};

/// "none" or a number of tiles, of what "REGEX:" in front of it names, else of all that is large; the regular expression may hold
/// colons.
struct Tiles {
  static constexpr Takes takes = Takes::Values;
  llvm::Error read(llvm::StringRef name, llvm::StringRef text, std::vector<Options::TileRule> &to) const;
  std::string print(const Options::TileRule &r) const;
};

} // namespace zcc
