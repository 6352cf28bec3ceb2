// Recursive descent over .zir. Stops at the first mistake; what parses is then verified, and each broken rule is shown where it
// is.
#include "ir/Parser.h"
#include "ir/Op.h"
#include "ir/Phase.h"
#include "ir/Text.h"
#include "ir/Verifier.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace zcc;
using llvm::StringRef;
using llvm::Twine;

// ---- the module

bool Parser::module() {
  Token name;
  if (!consume("module"))
    return unexpected("'module @name {'");
  if (!take(Token::Symbol, "the module's name, like @gpt", name))
    return false;
  m->name = name.str;
  int64_t ranks = 1;
  if (consume("ranks") && !count(1, kMostRanks, ranks))
    return false;
  m->ranks = int(ranks);
  if (consume("properties") && !properties())
    return false;
  if (!expect("{"))
    return false;
  while (!consume("}"))
    if (!item())
      return false;
  if (tok.kind != Token::End)
    return unexpected("nothing behind the module");
  return verify();
}

bool Parser::properties() {
  if (!expect("["))
    return false;
  for (bool first = true; !consume("]"); first = false) {
    Token t;
    if ((!first && !expect(",")) || !take(Token::Word, "a property", t))
      return false;
    auto names = propertyNames();
    auto at = llvm::find(names, t.text);
    if (at == names.end())
      return fail(t.range(), "unknown property '" + t.text + "'" + didYouMean(t.text, {names.begin(), names.end()}));
    m->properties |= 1u << (at - names.begin());
  }
  return true;
}

bool Parser::item() {
  Token t;
  if (consume("folder")) {
    if (!take(Token::String, "a folder in quotes", t))
      return false;
    m->folder = inFolder(t.str);
    return true;
  }
  if (tok.is("attrs")) {
    advance();
    positions[nullptr] = tok.begin(); // of the module itself
    return attrs(m->attrs);
  }
  if (consume("data"))
    return data();
  if (tok.is("param") || tok.is("state") || tok.is("const") || tok.is("tensor"))
    return global();
  if (tok.is("func") || tok.is("kernel") || tok.is("body"))
    return function();
  return unexpected("param, state, const, tensor, kernel, body, func, attrs, folder, data or '}'");
}

std::string Parser::inFolder(StringRef path) const {
  if (llvm::sys::path::is_absolute(path))
    return path.str();
  llvm::SmallString<128> whole(folder);
  llvm::sys::path::append(whole, path);
  return whole.str().str();
}

bool Parser::data() {
  Token t;
  if (!take(Token::String, "a file in quotes", t))
    return false;
  if (!m->constData.empty())
    return fail(t.range(), "constant data must come first, and once");
  std::string path = inFolder(t.str);
  if (llvm::sys::fs::exists(path) && !llvm::sys::fs::is_regular_file(path))
    return fail(t.range(), "'" + path + "' is no file");
  auto buf = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!buf)
    return fail(t.range(), "cannot read '" + path + "': " + buf.getError().message());
  m->constData = (*buf)->getBuffer().str();
  return true;
}

bool Parser::unused(const Token &name) {
  if (!locals.contains(name.str) && !m->global(name.str))
    return true;
  return fail(name.range(), "'%" + name.str + "' is defined twice");
}

bool Parser::verify() {
  std::vector<Violation> broken = violations(*m);
  for (const Violation &v : broken) {
    const void *where = v.node     ? static_cast<const void *>(v.node)
                        : v.global ? static_cast<const void *>(v.global)
                                   : static_cast<const void *>(v.function);
    const char *at = positions.lookup(where);
    auto loc = llvm::SMLoc::getFromPointer(at ? at : lex.rest(tok.begin()).end());
    fail({loc, loc}, v.text);
  }
  return broken.empty();
}

llvm::Expected<std::unique_ptr<Module>> Parser::run() {
  if (module())
    return std::move(m);
  return error(firstError);
}

// ---- functions and nodes

bool Parser::value(Value *&v) {
  Token t;
  if (!take(Token::Name, "a value, like %x", t))
    return false;
  v = locals.lookup(t.str);
  if (!v)
    v = m->global(t.str);
  if (v)
    return true;
  std::vector<std::string> names;
  for (auto &l : locals)
    names.push_back(l.getKey().str());
  llvm::sort(names);
  for (auto &g : m->globals)
    names.push_back(g->name);
  return fail(t.range(), "[V1] '%" + t.str + "' is used before it is defined" + didYouMean(t.str, std::move(names)));
}

bool Parser::function() {
  bool isKernel = tok.is("kernel"), isBody = tok.is("body");
  advance();
  Token name;
  if (!take(Token::Symbol, "a function's name, like @micro", name))
    return false;
  if (m->function(name.str))
    return fail(name.range(), "'@" + name.str + "' is defined twice");
  fn = m->addFunction(name.str);
  fn->isKernel = isKernel;
  fn->isBody = isBody;
  positions[fn] = name.begin();
  locals.clear();
  phases.clear();
  if (!expect("("))
    return false;
  while (!consume(")"))
    if ((!fn->args.empty() && !expect(",")) || !argument())
      return false;
  std::vector<std::pair<Type, Token>> types;
  if (!resultList(types) || !expect("{"))
    return false;
  while (!tok.is("return"))
    if (!node())
      return false;
  if (!returns(types) || !expect("}"))
    return false;
  for (auto &[n, phase] : usualPhases(*fn))
    const_cast<Node *>(n)->phase = phases.contains(n) ? phases.lookup(n) : phase;
  return true;
}

/// -> (f32[], "logits" : f32[2x10])
bool Parser::resultList(std::vector<std::pair<Type, Token>> &types) {
  if (!expect("->") || !expect("("))
    return false;
  while (!consume(")")) {
    if (!types.empty() && !expect(","))
      return false;
    if (tok.kind == Token::String) {
      fn->resultNames.resize(types.size());
      fn->resultNames.push_back(tok.str);
      advance();
      if (!expect(":"))
        return false;
    }
    types.emplace_back(Type(), tok);
    if (!type(types.back().first))
      return false;
  }
  return true;
}

bool Parser::argument() {
  Token name;
  Type t;
  if (!take(Token::Name, "an argument, like %x", name) || !unused(name) || !expect(":") || !type(t))
    return false;
  locals[name.str] = fn->addArg(name.str, t);
  return true;
}

bool Parser::returns(const std::vector<std::pair<Type, Token>> &types) {
  Token start = tok;
  advance();
  while (tok.kind == Token::Name || (!fn->results.empty() && tok.is(","))) {
    Value *v;
    if (!fn->results.empty() && !expect(","))
      return false;
    Token at = tok;
    if (!value(v))
      return false;
    size_t i = fn->results.size();
    fn->results.push_back(v);
    if (i < types.size() && v->type != types[i].first)
      return fail(at.range(), "[V1] result " + Twine(i) + " of '@" + fn->name + "' is " + types[i].first.str() + ", but '%" +
                                  v->name + "' is " + v->type.str());
  }
  if (fn->results.size() == types.size())
    return true;
  return fail(start.range(), "[V1] '@" + fn->name + "' has " + Twine(types.size()) + " results, but " +
                                 Twine(fn->results.size()) + " are returned");
}

bool Parser::node() {
  std::vector<Token> names;
  while (tok.kind == Token::Name) {
    Token name = tok;
    if (!take(Token::Name, "", name) || !unused(name))
      return false;
    names.push_back(name);
    if (!consume(",")) {
      if (!expect("="))
        return false;
      break;
    }
  }
  Token opTok;
  if (!take(Token::Word, names.empty() ? "a node or 'return'" : "an operator", opTok))
    return false;
  const OpDef *op = findOp(opTok.text);
  if (!op) {
    std::vector<std::string> all;
    for (const OpDef *o : allOps())
      all.push_back(o->name);
    return fail(opTok.range(), "unknown operator '" + opTok.text + "'" + didYouMean(opTok.text, std::move(all)));
  }
  Node *n = fn->insert(std::make_unique<Node>(op, here(opTok)));
  positions[n] = opTok.begin();
  if (op->structural == Structural::Start && tok.kind == Token::Word && tok.text != "_") {
    n->attrs.set("op", tok.str);
    advance();
  }
  if (runsKernel(*n) && tok.kind == Token::Symbol) {
    n->attrs.set("kernel", tok.str);
    advance();
  }
  if (!operands(*n) || (tok.is("{") && !nodeAttrs(*n)))
    return false;
  std::string broken = checkForm(*n);
  if (broken.empty())
    broken = checkPlacement(*n);
  if (!broken.empty())
    return fail(opTok.range(), broken);
  return resultTypes(*n, names, opTok) && location(n->loc);
}

bool Parser::operands(Node &n) {
  while (tok.kind == Token::Name || tok.is("_") || (n.numOperands() && tok.is(","))) {
    if (n.numOperands() && !expect(","))
      return false;
    Value *v = nullptr;
    if (!consume("_") && !value(v))
      return false;
    n.addOperand(v);
    if (!tok.is(","))
      break;
  }
  return true;
}

/// A name that the record does not have is a pass's note and begins with '!'.
bool Parser::nodeAttrs(Node &n) {
  advance();
  for (bool first = true; !consume("}"); first = false) {
    if (!first && !expect(","))
      return false;
    bool isNote = consume("!");
    Token name;
    Attr v = int64_t(1);
    if (!key(name) || (consume("=") && !attr(v)))
      return false;
    if (n.attrs.has(name.str))
      return fail(name.range(), "attribute '" + name.str + "' is given twice");
    const AttrDef *d = attrDef(n, name.str);
    if (isNote && name.str == "phase") {
      auto *text = std::get_if<std::string>(&v);
      auto phase = text ? phaseFromName(*text) : std::nullopt;
      if (!phase)
        return fail(name.range(), "a phase is \"forward\", \"backward\" or \"update\"");
      phases[&n] = *phase;
      continue;
    }
    if (isNote && d)
      return fail(name.range(), "'" + name.str + "' is an attribute of '" + n.op->name + "' and takes no '!'");
    if (!isNote && !d) {
      std::vector<std::string> all;
      for (const AttrDef &a : n.op->attrs)
        if (a.name)
          all.push_back(a.name);
      return fail(name.range(),
                  "'" + Twine(n.op->name) + "' has no attribute '" + name.str + "'" + didYouMean(name.str, std::move(all)));
    }
    n.attrs.set(name.str, std::move(v));
  }
  return true;
}

bool Parser::resultTypes(Node &n, const std::vector<Token> &names, const Token &opTok) {
  auto types = expectedTypes(n, *m);
  if (!types) {
    std::string msg = llvm::toString(types.takeError());
    fail(opTok.range(), "[V1] '" + StringRef(n.op->name) + "': " + msg);
    for (unsigned i = 0; i < n.numOperands() && i < n.op->numOperandDefs(); ++i)
      if (Value *v = n.operand(i))
        note(opTok.range(), "operand '" + StringRef(n.op->operands[i].name) + "' is " + v->type.str());
    return false;
  }
  if (types->size() != names.size())
    return fail(opTok.range(),
                "[V1] '" + StringRef(n.op->name) + "' has " + Twine(types->size()) + " results, not " + Twine(names.size()));
  for (unsigned i = 0; i < names.size(); ++i) {
    if (!expect(i ? "," : ":"))
      return false;
    Token at = tok;
    Type t;
    if (!type(t))
      return false;
    if (t != (*types)[i])
      return fail(at.range(), "[V1] '%" + names[i].str + "' is " + (*types)[i].str() + ", not " + t.str());
    if (!define(n, names[i], t))
      return false;
  }
  return true;
}

bool Parser::define(Node &n, const Token &name, const Type &t) {
  if (!unused(name)) // twice in one list
    return false;
  n.results.push_back(std::make_unique<Value>(Value::Result, fn->unique(name.str), t));
  Value *v = n.result(n.results.size() - 1);
  v->def = &n;
  v->index = n.results.size() - 1;
  locals[name.str] = v;
  return true;
}

llvm::Expected<std::unique_ptr<Module>> zcc::parse(StringRef text, StringRef file, StringRef folder) {
  return Parser(llvm::MemoryBuffer::getMemBufferCopy(text, file), folder).run();
}
