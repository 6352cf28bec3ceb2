// Parses scalar expressions into trees.
#include "ir/Scalar.h"
#include "ir/Diag.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>
#include <cstdlib>

using namespace zcc;
using llvm::StringRef;
using Tree = std::unique_ptr<Scalar>;

namespace {
/// By precedence climbing. The first error ends it; trees are null from then on.
class ScalarParser {
public:
  explicit ScalarParser(StringRef t) : text(t), rest(t) {}
  llvm::Expected<Tree> parse();

private:
  StringRef text, rest;
  std::string message;

  Tree fail(const llvm::Twine &msg);
  bool take(StringRef token);
  StringRef binaryOperator() const;
  Tree ternary();
  Tree binary(int least);
  Tree unary();
  Tree primary();
  Tree number();
  Tree call(StringRef name);
};

struct Precedence {
  const char *op;
  int level;
};
/// Longer spellings before their prefixes.
constexpr Precedence kOperators[] = {
    {"||", 1}, {"&&", 2}, {"==", 6}, {"!=", 6}, {"<<", 8}, {">>", 8}, {"<=", 7}, {">=", 7}, {"<", 7},
    {">", 7},  {"|", 3},  {"^", 4},  {"&", 5},  {"+", 9},  {"-", 9},  {"*", 10}, {"/", 10},
};
} // namespace

static int levelOf(StringRef op) {
  for (const Precedence &p : kOperators)
    if (op == p.op)
      return p.level;
  return 0;
}

static Tree tree(Scalar::Kind k, StringRef text, std::initializer_list<Tree *> args = {}) {
  auto s = std::make_unique<Scalar>();
  s->kind = k;
  s->text = text.str();
  for (Tree *a : args)
    s->args.push_back(std::move(*a));
  return s;
}

static Tree numberTree(double v) {
  Tree s = tree(Scalar::Number, "");
  s->number = v;
  return s;
}

Tree ScalarParser::fail(const llvm::Twine &msg) {
  if (message.empty())
    message = ("column " + llvm::Twine(rest.data() - text.data() + 1) + ": " + msg).str();
  return nullptr;
}

bool ScalarParser::take(StringRef token) {
  rest = rest.ltrim();
  return rest.consume_front(token);
}

StringRef ScalarParser::binaryOperator() const {
  for (const Precedence &p : kOperators)
    if (rest.ltrim().starts_with(p.op))
      return p.op;
  return "";
}

Tree ScalarParser::ternary() {
  Tree cond = binary(1);
  if (!cond || !take("?"))
    return cond;
  Tree a = ternary();
  if (!a)
    return nullptr;
  if (!take(":"))
    return fail("expected ':'");
  Tree b = ternary();
  return b ? tree(Scalar::Ternary, "?", {&cond, &a, &b}) : nullptr;
}

Tree ScalarParser::binary(int least) {
  Tree left = unary();
  while (left) {
    StringRef op = binaryOperator();
    int level = levelOf(op);
    if (level < least || level == 0)
      return left;
    take(op);
    Tree right = binary(level + 1);
    if (!right)
      return nullptr;
    left = tree(Scalar::Binary, op, {&left, &right});
  }
  return left;
}

Tree ScalarParser::unary() {
  for (StringRef op : {"-", "!", "~"}) {
    if (!take(op))
      continue;
    Tree arg = unary();
    if (!arg)
      return nullptr;
    if (op == "-" && arg->kind == Scalar::Number)
      return numberTree(-arg->number);
    return tree(Scalar::Unary, op, {&arg});
  }
  return primary();
}

Tree ScalarParser::number() {
  std::string digits = rest.str(); // ends with 0, as strtod wants
  char *end;
  double v = std::strtod(digits.c_str(), &end);
  rest = rest.drop_front(end - digits.c_str());
  return numberTree(v);
}

Tree ScalarParser::call(StringRef name) {
  Tree s = tree(Scalar::Call, name);
  do {
    Tree arg = ternary();
    if (!arg)
      return nullptr;
    s->args.push_back(std::move(arg));
  } while (take(","));
  if (!take(")"))
    return fail("expected ')'");
  return s;
}

Tree ScalarParser::primary() {
  if (take("(")) {
    Tree inner = ternary();
    if (inner && !take(")"))
      return fail("expected ')'");
    return inner;
  }
  if (rest.empty())
    return fail("expected a value");
  if (llvm::isDigit(rest[0]) || rest[0] == '.')
    return number();
  StringRef name = rest.take_while([](char c) { return llvm::isAlnum(c) || c == '_'; });
  if (name.empty())
    return fail("expected a value");
  rest = rest.drop_front(name.size());
  if (take("("))
    return call(name);
  if (name == "inf" || name == "nan")
    return numberTree(name == "inf" ? INFINITY : NAN);
  return tree(Scalar::Name, name);
}

llvm::Expected<Tree> ScalarParser::parse() {
  Tree s = ternary();
  rest = rest.ltrim();
  if (s && !rest.empty())
    s = fail("unexpected '" + rest + "'");
  if (!s)
    return error(message);
  return s;
}

llvm::Expected<Tree> zcc::parseScalar(StringRef text) { return ScalarParser(text).parse(); }
