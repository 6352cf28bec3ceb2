// Cuts .zir into tokens, and spells names, strings and numbers so that they read back the same.
#include "ir/Lexer.h"
#include "llvm/ADT/StringExtras.h"
#include <cfloat>
#include <charconv>
#include <cmath>

using namespace zcc;
using llvm::StringRef;

static bool isNameChar(char c) { return llvm::isAlnum(c) || c == '_' || c == '.' || c == '$' || c == '/' || c == '-'; }
static bool isWordChar(char c) { return llvm::isAlnum(c) || c == '_' || c == '.' || c == '-'; }

// ---- reading

Token Lexer::make(Token::Kind k, const char *from) const {
  Token t;
  t.kind = k;
  t.text = StringRef(from, at - from);
  return t;
}

Token Lexer::bad(const char *from, const llvm::Twine &msg) const {
  Token t = make(Token::Bad, from);
  t.str = msg.str();
  return t;
}

Token Lexer::next() {
  while (at != text.end()) {
    if (llvm::isSpace(*at)) {
      ++at;
      continue;
    }
    if (*at != '/' || at + 1 == text.end() || at[1] != '/')
      break;
    while (at != text.end() && *at != '\n')
      ++at;
  }
  const char *from = at;
  if (at == text.end())
    return make(Token::End, from);
  char c = *at++;
  if (c == '%')
    return named(from, Token::Name);
  if (c == '@')
    return named(from, Token::Symbol);
  if (c == '"')
    return quoted(from, Token::String);
  if (llvm::isDigit(c) || c == '-' || c == '+') {
    if (c == '-' && at != text.end() && *at == '>') {
      ++at;
      return make(Token::Punct, from);
    }
    return number(from);
  }
  if (llvm::isAlpha(c) || c == '_') {
    while (at != text.end() && isWordChar(*at))
      ++at;
    Token t = make(Token::Word, from);
    t.str = t.text.str();
    if (t.text == "inf" || t.text == "nan") {
      t.kind = Token::Float;
      t.number = t.text == "inf" ? INFINITY : NAN;
    }
    return t;
  }
  if (StringRef("{}()[],:=!").contains(c))
    return make(Token::Punct, from);
  return bad(from, "unexpected character");
}

Token Lexer::named(const char *from, Token::Kind k) {
  if (at != text.end() && *at == '"') {
    ++at;
    return quoted(from, k);
  }
  const char *name = at;
  while (at != text.end() && isNameChar(*at))
    ++at;
  if (at == name)
    return bad(from, "expected a name behind '" + StringRef(from, 1) + "'");
  Token t = make(k, from);
  t.str.assign(name, at);
  return t;
}

Token Lexer::quoted(const char *from, Token::Kind k) {
  std::string s;
  while (true) {
    if (at == text.end() || *at == '\n')
      return bad(from, "missing '\"' at the end of the line");
    char c = *at++;
    if (c == '"')
      break;
    if (c != '\\') {
      s += c;
      continue;
    }
    size_t left = text.end() - at;
    if (left && (*at == '"' || *at == '\\')) {
      s += *at++;
    } else if (left && *at == 'n') {
      s += '\n';
      ++at;
    } else if (left > 1 && llvm::isHexDigit(at[0]) && llvm::isHexDigit(at[1])) {
      s += char(llvm::hexFromNibbles(at[0], at[1]));
      at += 2;
    } else {
      return bad(at - 1, "unknown escape; there are \\\\ \\\" \\n and two hexadecimal digits");
    }
  }
  Token t = make(k, from);
  t.str = std::move(s);
  return t;
}

Token Lexer::number(const char *from) {
  bool isFloat = false, negative = *from == '-';
  if (!llvm::isDigit(*from) && (rest(at).starts_with("inf") || rest(at).starts_with("nan"))) {
    at += 3;
    Token t = make(Token::Float, from);
    t.number = at[-1] == 'f' ? (negative ? -INFINITY : INFINITY) : NAN;
    return t;
  }
  while (at != text.end()) {
    char c = *at;
    bool isSign = (c == '-' || c == '+') && (at[-1] == 'e' || at[-1] == 'E');
    if (!llvm::isDigit(c) && c != '.' && c != 'e' && c != 'E' && !isSign)
      break;
    isFloat |= !llvm::isDigit(c);
    ++at;
  }
  const char *first = *from == '+' ? from + 1 : from;
  if (!isFloat && (at == text.end() || *at != 'f')) {
    Token t = make(Token::Integer, from);
    auto [end, err] = std::from_chars(first, at, t.integer);
    if (err == std::errc::result_out_of_range)
      return bad(from, "number does not fit in 64 bits");
    if (err != std::errc() || end != at)
      return bad(from, "expected a number");
    t.number = double(t.integer);
    return t;
  }
  const char *last = at;
  double v = 0;
  std::from_chars_result r;
  if (at != text.end() && *at == 'f') {
    ++at;
    float f = 0;
    r = std::from_chars(first, last, f);
    v = f;
  } else {
    r = std::from_chars(first, last, v);
  }
  if (r.ec == std::errc::result_out_of_range)
    return bad(from, "number is out of range");
  if (r.ec != std::errc() || r.ptr != last)
    return bad(from, "expected a number");
  Token t = make(Token::Float, from);
  t.number = v;
  return t;
}

// ---- writing

void zcc::printQuoted(llvm::raw_ostream &os, StringRef s) {
  os << '"';
  for (char c : s) {
    if (c == '"' || c == '\\')
      os << '\\' << c;
    else if (c == '\n')
      os << "\\n";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      os << '\\' << llvm::hexdigit(c >> 4 & 15) << llvm::hexdigit(c & 15);
    else
      os << c;
  }
  os << '"';
}

void zcc::printName(llvm::raw_ostream &os, StringRef name) {
  if (!name.empty() && llvm::all_of(name, isNameChar))
    os << name;
  else
    printQuoted(os, name);
}

void zcc::printKey(llvm::raw_ostream &os, StringRef name) {
  bool isWord = !name.empty() && !llvm::isDigit(name[0]) && name[0] != '-' && name[0] != '.' && llvm::all_of(name, isWordChar) &&
                name != "inf" && name != "nan";
  if (isWord)
    os << name;
  else
    printQuoted(os, name);
}

void zcc::printFloat(llvm::raw_ostream &os, double v) {
  if (std::isnan(v)) {
    os << "nan";
    return;
  }
  char wide[32], narrow[32];
  StringRef s(wide, std::to_chars(wide, wide + sizeof wide, v).ptr - wide);
  bool asFloat = false;
  if (std::abs(v) <= FLT_MAX && double(float(v)) == v) {
    StringRef n(narrow, std::to_chars(narrow, narrow + sizeof narrow, float(v)).ptr - narrow);
    asFloat = n.size() + 1 < s.size();
    if (asFloat)
      s = n;
  }
  os << s;
  if (s.find_first_of(".ein") == StringRef::npos)
    os << ".0";
  if (asFloat)
    os << 'f';
}

void zcc::printAttr(llvm::raw_ostream &os, const Attr &a) {
  if (auto *i = std::get_if<int64_t>(&a)) {
    os << *i;
  } else if (auto *d = std::get_if<double>(&a)) {
    printFloat(os, *d);
  } else if (auto *s = std::get_if<std::string>(&a)) {
    printQuoted(os, *s);
  } else if (auto *v = std::get_if<std::vector<int64_t>>(&a)) {
    os << '[';
    llvm::interleaveComma(*v, os);
    os << ']';
  } else {
    os << '[';
    llvm::interleaveComma(std::get<std::vector<double>>(a), os, [&](double x) { printFloat(os, x); });
    os << ']';
  }
}
