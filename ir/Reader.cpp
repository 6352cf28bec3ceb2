// Takes tokens, shows errors with carets, and reads the small phrases.
#include "ir/Reader.h"
#include "ir/Verifier.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace zcc;
using llvm::StringRef;
using llvm::Twine;

static constexpr unsigned kMostDims = 32;

Reader::Reader(std::unique_ptr<llvm::MemoryBuffer> text) : lex(text->getBuffer()) {
  sources.AddNewSourceBuffer(std::move(text), llvm::SMLoc());
  advance();
}

// ---- tokens and errors

bool Reader::fail(llvm::SMRange where, const Twine &msg) {
  sources.PrintMessage(where.Start, llvm::SourceMgr::DK_Error, msg, where);
  if (firstError.empty())
    firstError = msg.str();
  return false;
}

void Reader::note(llvm::SMRange where, const Twine &msg) {
  sources.PrintMessage(where.Start, llvm::SourceMgr::DK_Note, msg, where);
}

std::string Reader::didYouMean(StringRef name, std::vector<std::string> names) {
  constexpr size_t kLongest = 100; // the distance takes quadratic time
  if (name.size() > kLongest)
    return "";
  llvm::erase_if(names, [](auto &n) { return n.size() > kLongest; });
  std::string n = nearest(name, names);
  return n.empty() ? "" : "; did you mean '" + n + "'?";
}

bool Reader::unexpected(const Twine &wanted) {
  if (tok.kind == Token::Bad)
    return fail(tok.str);
  return fail("expected " + wanted);
}

bool Reader::expect(StringRef punct) { return consume(punct) || unexpected("'" + punct + "'"); }

bool Reader::take(Token::Kind k, const char *wanted, Token &out) {
  if (tok.kind != k)
    return unexpected(wanted);
  if ((k == Token::Name || k == Token::Symbol) && tok.str.empty())
    return fail("a name must not be empty");
  out = tok;
  advance();
  return true;
}

bool Reader::count(int64_t least, int64_t most, int64_t &out) {
  Token t;
  if (!take(Token::Integer, "an integer", t))
    return false;
  if (t.integer < least || t.integer > most)
    return fail(t.range(), "expected " + Twine(least) + " to " + Twine(most));
  out = t.integer;
  return true;
}

Loc Reader::here(const Token &t) {
  auto l = std::make_shared<LocInfo>();
  auto [line, column] = sources.getLineAndColumn(t.loc(), sources.getMainFileID());
  l->line = line;
  l->column = column;
  return l;
}

// ---- small things

bool Reader::type(Type &t) {
  const char *start = tok.begin();
  StringRef rest = lex.rest(start);
  auto parsed = parseType(rest);
  auto pos = [](const char *p) { return llvm::SMLoc::getFromPointer(p); };
  if (!parsed)
    return fail({pos(rest.begin()), pos(rest.begin())}, "expected a type, like f32[8x1024]/4@host");
  llvm::SMRange where(pos(start), pos(rest.begin()));
  t = *parsed;
  if (t.dims.size() > kMostDims)
    return fail(where, "more than " + Twine(kMostDims) + " dimensions");
  if (auto e = checkSize(t))
    return fail(where, llvm::toString(std::move(e)));
  if (t.shards > kMostRanks || t.addends > kMostRanks)
    return fail(where, "more than " + Twine(kMostRanks) + " ranks");
  lex.jump(rest.begin());
  advance();
  return true;
}

bool Reader::attr(Attr &a) {
  if (tok.kind == Token::String) {
    a = tok.str;
  } else if (tok.kind == Token::Integer) {
    a = tok.integer;
  } else if (tok.kind == Token::Float) {
    a = tok.number;
  } else if (!tok.is("[")) {
    return unexpected("a number, a string or a list of numbers");
  } else {
    std::vector<int64_t> ints;
    std::vector<double> floats;
    bool isFloat = false;
    advance();
    while (!tok.is("]")) {
      if (!floats.empty() && !expect(","))
        return false;
      if (tok.kind != Token::Integer && tok.kind != Token::Float)
        return unexpected("a number");
      isFloat |= tok.kind == Token::Float;
      ints.push_back(tok.integer);
      floats.push_back(tok.number);
      advance();
    }
    if (isFloat)
      a = std::move(floats);
    else
      a = std::move(ints);
  }
  advance();
  return true;
}

bool Reader::key(Token &name) {
  if (tok.kind == Token::String)
    return take(Token::String, "", name);
  return take(Token::Word, "an attribute", name);
}

/// "{a = 1, b}": b is 1.
bool Reader::attrs(Attrs &a) {
  if (!expect("{"))
    return false;
  for (bool first = true; !consume("}"); first = false) {
    Token name;
    Attr v = int64_t(1);
    if ((!first && !expect(",")) || !key(name) || (consume("=") && !attr(v)))
      return false;
    if (a.has(name.str))
      return fail(name.range(), "attribute '" + name.str + "' is given twice");
    a.set(name.str, std::move(v));
  }
  return true;
}

/// An optional loc("node", ..., op = "MatMul", source = "train.py:57", code = "...", scope = "...",
/// line = 1, column = 2).
bool Reader::location(Loc &l) {
  if (!consume("loc"))
    return true;
  auto info = std::make_shared<LocInfo>();
  if (!expect("("))
    return false;
  for (bool first = true; !consume(")"); first = false) {
    if (!first && !expect(","))
      return false;
    if (tok.kind == Token::String) {
      info->nodes.push_back(tok.str);
      advance();
      continue;
    }
    Token name, s;
    int64_t n = 0;
    if (!take(Token::Word, "a node's name in quotes, or a field", name) || !expect("="))
      return false;
    std::string *field = llvm::StringSwitch<std::string *>(name.text)
                             .Case("op", &info->opType)
                             .Case("source", &info->source)
                             .Case("code", &info->code)
                             .Case("scope", &info->scope)
                             .Default(nullptr);
    if (!field && name.text != "line" && name.text != "column")
      return fail(name.range(), "a location has op, source, code, scope, line and column");
    if (field ? !take(Token::String, "a string", s) : !count(0, INT32_MAX, n))
      return false;
    if (field)
      *field = s.str;
    else
      (name.text == "line" ? info->line : info->column) = int(n);
  }
  l = std::move(info);
  return true;
}
