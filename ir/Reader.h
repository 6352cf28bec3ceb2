// What Parser.cpp reads with: the token at hand, errors with carets, and the small phrases of the grammar.
#pragma once

#include "ir/Lexer.h"
#include "llvm/Support/SourceMgr.h"

namespace zcc {

/// Ranks, shards and addends beyond this are typing mistakes.
constexpr int64_t kMostRanks = 1 << 20;

/// All functions that return bool return false after they have reported an error.
class Reader {
public:
  explicit Reader(std::unique_ptr<llvm::MemoryBuffer> text);

protected:
  llvm::SourceMgr sources;
  Lexer lex;
  Token tok;
  std::string firstError;

  void advance() { tok = lex.next(); }
  bool fail(llvm::SMRange where, const llvm::Twine &msg);
  bool fail(const llvm::Twine &msg) { return fail(tok.range(), msg); }
  void note(llvm::SMRange where, const llvm::Twine &msg);
  /// "; did you mean 'x'?", or empty.
  std::string didYouMean(llvm::StringRef name, std::vector<std::string> names);
  bool unexpected(const llvm::Twine &wanted);
  bool expect(llvm::StringRef punct);
  bool consume(llvm::StringRef s) { return tok.is(s) ? (advance(), true) : false; }
  bool take(Token::Kind k, const char *wanted, Token &out);
  /// An integer from `least` to `most`.
  bool count(int64_t least, int64_t most, int64_t &out);
  /// The line and column of a token.
  Loc here(const Token &t);

  bool type(Type &t);
  /// 1, 0.5, "text", [1, 2] or [0.5, 1].
  bool attr(Attr &a);
  /// The name of an attribute.
  bool key(Token &name);
  /// {a = 1, b}, where b is 1.
  bool attrs(Attrs &a);
  /// An optional loc("node", ..., op = "MatMul", source = "train.py:57", code = "...", scope =
  /// "...", line = 1, column = 2).
  bool location(Loc &l);
};

} // namespace zcc
