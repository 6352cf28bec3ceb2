// Tokens of .zir, and how names, strings and numbers are spelled: what Parser.cpp reads and Printer.cpp writes.
#pragma once

#include "ir/Graph.h"
#include "llvm/Support/SMLoc.h"
#include "llvm/Support/raw_ostream.h"

namespace zcc {

struct Token {
  /// Name: `%x`. Symbol: `@f`. Word: an identifier. Punct: one of { } ( ) [ ] , : = ! and "->".
  enum Kind { End, Name, Symbol, Word, String, Integer, Float, Punct, Bad } kind = End;
  llvm::StringRef text; ///< as written
  std::string str;      ///< without '%', '@', quotes and escapes; of Bad: what is wrong
  int64_t integer = 0;
  double number = 0; ///< of Integer too

  const char *begin() const { return text.data(); }
  llvm::SMLoc loc() const { return llvm::SMLoc::getFromPointer(text.data()); }
  llvm::SMRange range() const { return {loc(), llvm::SMLoc::getFromPointer(text.data() + text.size())}; }
  bool is(llvm::StringRef s) const { return (kind == Punct || kind == Word) && text == s; }
};

class Lexer {
  llvm::StringRef text;
  const char *at;

public:
  explicit Lexer(llvm::StringRef t) : text(t), at(t.begin()) {}
  Token next();
  /// Continues behind `p`, which lies in the text.
  void jump(const char *p) { at = p; }
  llvm::StringRef rest(const char *from) const { return {from, size_t(text.end() - from)}; }

private:
  Token make(Token::Kind k, const char *from) const;
  Token bad(const char *from, const llvm::Twine &msg) const;
  Token number(const char *from);
  Token quoted(const char *from, Token::Kind k);
  Token named(const char *from, Token::Kind k);
};

/// `x`, `fc1.weight`, or `"a b"`: a name behind its sigil.
void printName(llvm::raw_ostream &os, llvm::StringRef name);
/// An attribute's name: a word, or quoted.
void printKey(llvm::raw_ostream &os, llvm::StringRef name);
/// In double quotes, with \" \\ \n and \xx escapes.
void printQuoted(llvm::raw_ostream &os, llvm::StringRef s);
/// The shortest text that reads back as exactly this number; it never looks like an integer. A
/// value that a float holds is written as one: `0.1f`.
void printFloat(llvm::raw_ostream &os, double v);
void printAttr(llvm::raw_ostream &os, const Attr &a);

} // namespace zcc
