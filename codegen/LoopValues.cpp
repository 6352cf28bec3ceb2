// The values inside a kernel's loops: loads, operators, row buffers and stores, each computed once in its scope.
#include "codegen/LoopEmitter.h"
#include "codegen/ScalarCode.h"
#include "ir/Op.h"
#include <cmath>

using namespace zcc;

std::string LoopEmitter::offset(const Access &a) {
  std::string e;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!a.strides[i] || dims[i] == 1)
      continue;
    e += (e.empty() ? "" : " + ") + axisName(i);
    if (a.strides[i] != 1)
      e += " * " + stride(a, i);
  }
  return e.empty() ? "0" : e;
}

/// A number that is no power of two (factors such as a mean's 1/n) may be another in a kernel that is otherwise the same. The
/// others, and exponents, are what the compiler simplifies by.
std::string LoopEmitter::constant(const Value &v, const Node &user) {
  Elem e = v.type.elem;
  int exponent;
  double x = isFloat(e) ? literalValue(v) : 0;
  bool isFactor = std::isfinite(x) && x != 0 && std::abs(std::frexp(x, &exponent)) != 0.5;
  return isFactor && !isDear(*user.op) ? open.mark({computeType(e), literal(v)}) : literal(v);
}

std::string LoopEmitter::load(unsigned i) {
  for (auto &l : llvm::reverse(loads))
    if (auto f = l.find(i); f != l.end())
      return f->second;
  const Access &a = accesses[i];
  Elem e = a.value->type.elem;
  std::string x = fresh("x");
  std::string v = a.base.empty() ? "(" + computeType(e) + ")(" + offset(a) + ")" : loadCode(e, a.base + "[" + offset(a) + "]");
  out.line("const " + computeType(e) + " " + x + " = " + v + ";");
  loads.back()[i] = x;
  return x;
}

/// A row's element number, for row buffers: reduced axes only.
std::string LoopEmitter::rowIndex() const {
  std::string e;
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;)
    if (reduced[i]) {
      e = axisName(i) + (stride == 1 ? "" : " * " + num(stride)) + (e.empty() ? "" : " + " + e);
      stride *= dims[i];
    }
  return e;
}

std::string LoopEmitter::value(const Value *v, const Node &user, unsigned operand) {
  for (auto &scope : llvm::reverse(scopes))
    if (auto f = scope.find(v); f != scope.end())
      return f->second;
  if (v->kind == Value::Argument || v->def->op == &ops::iota)
    return load(accessOf.at({&user, operand}));
  if (v->def->op == &ops::constant)
    return constant(*v, user);
  std::string x;
  if (auto b = buffers.find(v); b != buffers.end()) {
    x = fresh("v");
    out.line("const " + computeType(v->type.elem) + " " + x + " = " + b->second + "[" + rowIndex() + "];");
  } else if (auto r = stored.find(v); r != stored.end()) {
    x = load(resultAccess[r->second]);
  } else {
    return value(*v->def);
  }
  scopes.back()[v] = x;
  return x;
}

std::string LoopEmitter::value(const Node &n) {
  if (n.op == &ops::reshape)
    return scopes.back()[n.result()] = value(n.operand(0), n, 0);
  std::vector<std::string> operands;
  for (unsigned i = 0; i < n.numOperands(); ++i)
    operands.push_back(value(n.operand(i), n, i));
  std::string x = fresh("v");
  out.line("const " + computeType(n.result()->type.elem) + " " + x + " = " + scalarCode(n, operands, isNear) + ";");
  return scopes.back()[n.result()] = x;
}

void LoopEmitter::store(unsigned r, const std::string &v) {
  const Access &a = accesses[resultAccess[r]];
  out.line(a.base + "[" + offset(a) + "] = " + storeCode(a.value->type.elem, v) + ";");
}

/// Nodes and accesses that computing `n` in a new scope takes, given what is known, buffered or stored.
void LoopEmitter::visit(const Node &n, llvm::DenseSet<const Node *> &seen, llvm::DenseSet<unsigned> *used) const {
  if (!seen.insert(&n).second)
    return;
  for (unsigned i = 0; i < n.numOperands(); ++i) {
    const Value *v = n.operand(i);
    bool have = llvm::any_of(scopes, [&](auto &scope) { return scope.count(v); });
    if (have || (v->def && v->def->op == &ops::constant))
      continue;
    if (auto a = accessOf.find({&n, i}); a != accessOf.end()) {
      if (used)
        used->insert(a->second);
      continue;
    }
    if (auto r = stored.find(v); r != stored.end() && !buffers.count(v)) {
      if (used)
        used->insert(resultAccess[r->second]);
      continue;
    }
    if (!buffers.count(v) && !v->def->op->reduction)
      visit(*v->def, seen, used);
  }
}

llvm::DenseSet<const Node *> LoopEmitter::neededBy(const Work &w, llvm::DenseSet<unsigned> *used) const {
  llvm::DenseSet<const Node *> seen;
  for (const Sum &x : w.sums)
    visit(*x.node, seen, used);
  for (unsigned r : w.results)
    visit(*k.results[r]->def, seen, used);
  return seen;
}
