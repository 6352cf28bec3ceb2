// Params, states and constants, and how they get their first values.
#include "ir/Parser.h"
#include "ir/Tensor.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace zcc;
using llvm::StringRef;
using llvm::Twine;

bool Parser::global() {
  auto role = tok.is("param")   ? GlobalValue::Param
              : tok.is("state") ? GlobalValue::State
              : tok.is("const") ? GlobalValue::Const
                                : GlobalValue::Tensor;
  if (!m->functions.empty())
    return fail("globals come before functions");
  advance();
  Token name;
  Type t;
  Init i;
  if (!take(Token::Name, "a name, like %w", name) || !unused(name) || !expect(":") || !type(t) || !expect("=") || !init(t, i))
    return false;
  GlobalValue *g = m->addGlobal(role, name.str, t, std::move(i));
  positions[g] = name.begin();
  return (!tok.is("{") || globalAttrs(*g)) && location(g->loc);
}

bool Parser::init(const Type &t, Init &i) {
  auto pair = [&](Init::Kind k) {
    i.kind = k;
    return expect("(") && number(i.a) && expect(",") && number(i.b) && expect(")") && (!consume("as") || from(i));
  };
  if (consume("zero"))
    return true;
  if (consume("splat")) {
    i.kind = Init::Splat;
    return number(i.a);
  }
  if (consume("uniform"))
    return pair(Init::Uniform);
  if (consume("normal"))
    return pair(Init::Normal);
  if (consume("copy")) {
    i.kind = Init::Copy;
    return from(i);
  }
  if (consume("data"))
    return range(i);
  if (consume("hex"))
    return hex(t, i);
  if (tok.is("["))
    return listed(t, i);
  if (tok.kind == Token::Name)
    return box(t, i);
  if (tok.kind == Token::String) {
    i.file = tok.str;
    if (i.file.empty())
      return fail("a file's name must not be empty");
    advance();
    return range(i);
  }
  return unexpected("zero, splat, uniform, normal, copy, data, hex, a file, a tensor's box or a list of numbers");
}

bool Parser::from(Init &i) {
  Token name;
  if (!take(Token::Name, "a global, like %w", name))
    return false;
  i.from = name.str;
  return true;
}

/// A half-open range of each axis of a tensor, as many as the type has.
bool Parser::box(const Type &t, Init &i) {
  i.kind = Init::Box;
  Token first = tok;
  if (!from(i) || !expect("["))
    return false;
  Dims dims;
  while (!consume("]")) {
    int64_t begin, end;
    if ((!dims.empty() && !expect(",")) || !count(0, INT64_MAX, begin) || !expect(":") || !count(begin, INT64_MAX, end))
      return false;
    i.start.push_back(begin);
    dims.push_back(end - begin);
  }
  return dims == t.dims || fail(first.range(), "a box of " + t.withDims(dims).str() + " for " + t.str());
}

bool Parser::number(double &v) {
  if (tok.kind != Token::Integer && tok.kind != Token::Float)
    return unexpected("a number");
  v = tok.number;
  advance();
  return true;
}

void Parser::encoding(Init &i) {
  if (consume("transposed"))
    i.encoding = "transposed";
  if (auto e = tok.kind == Token::Word ? elemFromName(tok.text) : std::nullopt) {
    i.elem = *e;
    advance();
  }
}

/// Puts bytes into the constant data, aligned as Module::addConst does.
void Parser::embed(StringRef bytes, Init &i) {
  i.kind = Init::File;
  std::string &data = m->constData.own();
  data.resize(llvm::alignTo(data.size(), kDataAlign));
  i.offset = data.size();
  i.bytes = bytes.size();
  data += bytes;
}

bool Parser::hex(const Type &t, Init &i) {
  Token s;
  std::string bytes;
  if (!take(Token::String, "bytes in quotes", s))
    return false;
  if (s.str.size() % 2 || !llvm::tryGetFromHex(s.str, bytes))
    return fail(s.range(), "expected two hexadecimal digits a byte");
  embed(bytes, i);
  encoding(i);
  if (int64_t(bytes.size()) != t.count() * elemBytes(i.elem.value_or(t.elem)))
    return fail(s.range(), Twine(bytes.size()) + " bytes for " + t.str());
  return true;
}

bool Parser::listed(const Type &t, Init &i) {
  Token start = tok;
  Attr a;
  if (!attr(a))
    return false;
  auto *ints = std::get_if<std::vector<int64_t>>(&a);
  auto *floats = std::get_if<std::vector<double>>(&a);
  int64_t n = ints ? ints->size() : floats->size();
  if (n != t.count())
    return fail(start.range(), Twine(n) + " elements for " + t.str());
  Tensor v(t);
  if (v.isFloat() && ints)
    v.f.assign(ints->begin(), ints->end());
  else if (v.isFloat())
    v.f = *floats;
  else if (floats)
    return fail(start.range(), "expected integers for " + t.str());
  else
    v.i = *ints;
  std::string bytes = tensorToBytes(v);
  if (!v.isFloat() && tensorFromBytes(t, bytes).i != v.i)
    return fail(start.range(), "an element does not fit in " + elemName(t.elem));
  embed(bytes, i);
  return true;
}

bool Parser::range(Init &i) {
  i.kind = Init::File;
  if (!expect("[") || !count(0, INT64_MAX, i.offset) || !expect(",") || !count(0, INT64_MAX, i.bytes) || !expect("]"))
    return false;
  encoding(i);
  return true;
}

bool Parser::globalAttrs(GlobalValue &g) {
  Token start = tok;
  if (!attrs(g.attrs))
    return false;
  g.trained = g.attrs.i("trained");
  g.exported = g.attrs.i("exported");
  g.onnxName = g.attrs.s("onnx");
  for (const char *n : {"trained", "exported", "onnx"})
    g.attrs.erase(n);
  if (g.trained && g.role != GlobalValue::Param)
    return fail(start.range(), "only a param can be trained");
  if (g.isBox() && (g.exported || !g.onnxName.empty()))
    return fail(start.range(), "'exported' and 'onnx' belong to the tensor '%" + g.init.from + "', not to its boxes");
  return true;
}
