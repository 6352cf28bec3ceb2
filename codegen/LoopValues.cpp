// The values inside a kernel's loops: loads, operators, row buffers and stores, each computed once in its scope.
#include "codegen/LoopValues.h"
#include "codegen/ScalarCode.h"
#include "ir/Op.h"
#include "llvm/ADT/Twine.h"
#include <cmath>
#include <map>

using namespace zcc;

void CodeBlock::line(const llvm::Twine &t) {
  text.append(depth * 2, ' ');
  text += t.str();
  text += '\n';
}

LoopValues::LoopValues(const LoopPlan &plan) : p(plan), k(*plan.kernel) {
  for (const Node *n : p.members)
    if (n->op->reduction)
      accumulator[n] = fresh("s");
}

/// Numbers of inner loops below this decide how the compiler unrolls and what it does with the rest.
constexpr int64_t kLongLoop = 512, kShortLoop = 16;

bool LoopValues::isOpen(size_t axis) const {
  const bool isInner = axis == p.innermost(), isOnly = p.dims.size() == 1;
  return isOnly ? p.dims[axis] > 1 : p.dims.back() >= (isInner ? kLongLoop : kShortLoop);
}

std::string LoopValues::extent(size_t axis) { return isOpen(axis) ? open.mark({index, num(p.dims[axis])}) : num(p.dims[axis]); }

/// The elements of these axes together, as code.
std::string LoopValues::product(llvm::ArrayRef<size_t> axes) {
  std::string s;
  for (size_t a : axes)
    s += (s.empty() ? "" : " * ") + index + "(" + extent(a) + ")";
  return s.empty() ? index + "(1)" : s;
}

/// Names the axes' indices of an element, the last axis changing fastest.
void LoopValues::splitIndex(const std::string &element, llvm::ArrayRef<size_t> axes) {
  auto name = [&](size_t axis, const std::string &at) { out.line("const " + index + " " + axisName(axis) + " = " + at + ";"); };
  if (axes.size() == 1)
    return name(axes[0], element);
  splitNumber(element, axes, [&](size_t axis) { return extent(axis); }, name);
}

/// `place` for each axis, the last one first, with where along it a number lies that counts `count` of them.
void LoopValues::splitNumber(const std::string &number, llvm::ArrayRef<size_t> axes,
                             llvm::function_ref<std::string(size_t axis)> count,
                             llvm::function_ref<void(size_t axis, const std::string &at)> place) {
  std::string rest = number;
  for (size_t i = axes.size(); i-- > 0;) {
    std::string d = count(axes[i]);
    place(axes[i], i ? rest + " % " + d : rest);
    if (i == 0)
      break;
    std::string next = fresh("q");
    out.line("const " + index + " " + next + " = " + rest + " / " + d + ";");
    rest = next;
  }
}

std::string LoopValues::stride(const LoopAccess &a, size_t axis) {
  bool isOpen = axis != p.innermost() && p.dims.back() >= kShortLoop;
  return isOpen ? open.mark({index, num(a.strides[axis])}) : num(a.strides[axis]);
}

std::string LoopValues::offset(const LoopAccess &a) {
  std::string e;
  for (size_t i = 0; i < p.dims.size(); ++i) {
    if (!a.strides[i] || p.dims[i] == 1)
      continue;
    e += (e.empty() ? "" : " + ") + axisName(i);
    if (a.strides[i] != 1)
      e += " * " + stride(a, i);
  }
  return e.empty() ? "0" : e;
}

/// "a3[i0 * 70 + i1]".
std::string LoopValues::element(const LoopAccess &a) {
  return (a.kind == LoopAccess::Result ? "r" : "a") + num(a.number) + "[" + offset(a) + "]";
}

/// A number that is no power of two (factors such as a mean's 1/n) may be another in a kernel that is otherwise the same. The
/// others, and exponents, are what the compiler simplifies by.
std::string LoopValues::constant(const Value &v, const Node &user) {
  Elem e = v.type.elem;
  int exponent;
  double x = isFloat(e) ? literalValue(v) : 0;
  bool isFactor = std::isfinite(x) && x != 0 && std::abs(std::frexp(x, &exponent)) != 0.5;
  return isFactor && !user.op->dear ? open.mark({computeType(e), literal(v)}) : literal(v);
}

std::string LoopValues::load(unsigned i) {
  for (auto &l : llvm::reverse(loads))
    if (auto f = l.find(i); f != l.end())
      return f->second;
  const LoopAccess &a = p.accesses[i];
  Elem e = a.value->type.elem;
  std::string x = fresh("x");
  std::string v = a.kind == LoopAccess::Iota ? "(" + computeType(e) + ")(" + offset(a) + ")" : loadCode(e, element(a));
  out.line("const " + computeType(e) + " " + x + " = " + v + ";");
  loads.back()[i] = x;
  return x;
}

/// A row's element number, for row buffers: reduced axes only.
std::string LoopValues::rowIndex() const {
  std::string e;
  int64_t stride = 1;
  for (size_t i = p.dims.size(); i-- > 0;)
    if (p.reduced[i]) {
      e = axisName(i) + (stride == 1 ? "" : " * " + num(stride)) + (e.empty() ? "" : " + " + e);
      stride *= p.dims[i];
    }
  return e;
}

std::string LoopValues::value(const Value *v, const Node &user, unsigned operand) {
  for (auto &scope : llvm::reverse(scopes))
    if (auto f = scope.find(v); f != scope.end())
      return f->second;
  if (v->kind == Value::Argument || v->def->op->leaf == Leaf::Counter)
    return load(p.accessOf.at({&user, operand}));
  if (isConstant(v))
    return constant(*v, user);
  std::string x;
  if (auto b = buffers.find(v); b != buffers.end()) {
    x = fresh("v");
    out.line("const " + computeType(v->type.elem) + " " + x + " = " + b->second + "[" + rowIndex() + "];");
  } else if (auto r = stored.find(v); r != stored.end()) {
    x = load(p.resultAccess[r->second]);
  } else {
    return value(*v->def);
  }
  scopes.back()[v] = x;
  return x;
}

/// Whether a node's code has nothing but its expression, of floats that are not rounded.
static bool isExactlyComputed(const Node &n) {
  auto isWide = [](const Value *v) { return v->type.elem == Elem::F32 || v->type.elem == Elem::F64; };
  return !n.op->converts() && !takesAngle(n) && isWide(n.result()) && llvm::all_of(n.operands(), isWide);
}

static const std::string *find(const std::vector<std::map<std::string, std::string>> &scopes, const std::string &key) {
  for (auto &scope : llvm::reverse(scopes))
    if (auto f = scope.find(key); f != scope.end())
      return &f->second;
  return nullptr;
}

constexpr size_t kLongestKey = 300; ///< so that keys of keys do not grow without bounds

std::string LoopValues::value(const Node &n) {
  if (n.op->reshapes)
    return scopes.back()[n.result()] = value(n.operand(0), n, 0);
  const Type &t = n.result()->type;
  if (auto d = drawn.find(&n); d != drawn.end()) {
    std::string x = fresh("v");
    out.line("const " + computeType(t.elem) + " " + x + " = " + d->second + ";");
    return scopes.back()[n.result()] = x;
  }
  std::vector<std::string> operands, known;
  for (unsigned i = 0; i < n.numOperands(); ++i) {
    operands.push_back(value(n.operand(i), n, i));
    known.push_back(keyOf(*n.operand(i), operands[i]));
  }
  const std::string key = isExactlyComputed(n) ? scalarKey(n, known) : "";
  if (const std::string *same = key.empty() ? nullptr : find(calls, key))
    return scopes.back()[n.result()] = *same;
  const std::string code = scalarCode(n, operands, isNear, known,
                                      [&](auto &key, auto &code, auto &type) -> std::string { return call(key, code, type); });
  std::string x = fresh("v");
  out.line("const " + computeType(t.elem) + " " + x + " = " + code + ";");
  if (!key.empty()) {
    calls.back()[key] = x;
    if (key.size() <= kLongestKey)
      keys[n.result()] = key;
  }
  return scopes.back()[n.result()] = x;
}

/// What a value is, as far as the kernel's text says it: equal for equal values.
std::string LoopValues::keyOf(const Value &v, const std::string &name) const {
  if (isConstant(&v))
    return literal(v);
  auto f = keys.find(&v);
  return f == keys.end() ? name : f->second;
}

/// A function's call, once in its scope: compilers do not see that two are the same.
std::string LoopValues::call(const std::string &key, const std::string &code, const std::string &type) {
  if (const std::string *same = find(calls, key))
    return *same;
  std::string x = fresh("v");
  out.line("const " + type + " " + x + " = " + code + ";");
  return calls.back()[key] = x;
}

void LoopValues::store(unsigned r, const std::string &v) {
  const LoopAccess &a = p.accesses[p.resultAccess[r]];
  out.line(element(a) + " = " + storeCode(a.value->type.elem, v) + ";");
}

void LoopValues::printForm() {
  pushScope();
  switch (p.form) {
  case LoopPlan::Elementwise:
    elementwise();
    break;
  case LoopPlan::Tiled:
    tiles();
    break;
  case LoopPlan::Rows:
    rows();
    break;
  case LoopPlan::Columns:
    columns();
    break;
  case LoopPlan::Total:
    total();
    break;
  }
  popScope();
}

/// An accumulator: an element of an array, or a variable.
static std::string laneOf(const std::string &sum, const std::string &lane) { return lane.empty() ? sum : sum + "[" + lane + "]"; }

void LoopValues::bodyOf(const LoopPass &w, const std::string &lane) {
  pushScope();
  std::vector<std::string> stores, sums, columns;
  for (unsigned r : w.results)
    stores.push_back(value(k.results[r], *k.results[r]->def, 0));
  for (const Node *x : w.sums)
    sums.push_back(value(x->operand(0), *x, 0));
  for (const Node *x : w.columns)
    columns.push_back(value(x->operand(0), *x, 0));
  for (size_t i = 0; i < w.sums.size(); ++i) {
    const std::string a = laneOf(accumulator[w.sums[i]], lane);
    out.line(a + " = " + (isAlone ? sums[i] : combineCode(*w.sums[i], a, sums[i])) + ";");
  }
  for (size_t i = 0; i < w.columns.size(); ++i) {
    std::string a = accumulator[w.columns[i]] + "[" + rowIndex() + "]";
    out.line(a + " = " + combineCode(*w.columns[i], a, columns[i]) + ";");
  }
  for (const Value *v : w.buffers)
    out.line(bufferName[v] + "[" + rowIndex() + "] = " + value(v, *v->def, 0) + ";");
  for (size_t i = 0; i < stores.size(); ++i)
    store(w.results[i], stores[i]);
  popScope();
}

void LoopValues::finishPass(const LoopPass &w, const std::string &lane) {
  for (const Node *x : w.sums)
    nameSum(*x, laneOf(accumulator[x], lane));
  for (const Value *v : w.buffers)
    buffers[v] = bufferName[v];
  for (unsigned r : w.results)
    stored[k.results[r]] = r;
}

std::string LoopValues::typeOfTotal(const Node &sum) {
  const Elem e = sum.result()->type.elem;
  return isFloat(e) ? "double" : computeType(e) == "uint64_t" ? "uint64_t" : "int64_t";
}

void LoopValues::addUnits(const LoopPass &w, llvm::function_ref<std::string(size_t)> part) {
  for (size_t i = 0; i < w.sums.size(); ++i) {
    const Node &sum = *w.sums[i];
    std::string t = fresh("t"), at = part(i);
    out.line(typeOfTotal(sum) + " " + t + " = " + at + "[0];");
    out.line("for (int64_t u = 1; u < " + num(p.units) + "; ++u) " + t + " = " + combineCode(sum, t, at + "[u]") + ";");
    nameSum(sum, "(" + computeType(sum.result()->type.elem) + ")" + t);
  }
  storeWhere(Extent::Reduced);
}

void LoopValues::guarded(llvm::function_ref<void()> loops, llvm::function_ref<void()> zeros) {
  if (!p.guard)
    return loops();
  pushScope();
  const std::string holds = value(p.guard->operand(0), *p.guard, 0);
  for (const auto &[head, part] : {std::pair("if (" + holds + ")", loops), {"else", zeros}}) {
    out.open(head);
    pushScope();
    part();
    popScope();
    out.close();
  }
  popScope();
}

void LoopValues::storeZeros(const LoopPass &w) {
  for (unsigned r : w.results)
    store(r, "0");
}

void LoopValues::storeWhere(Extent e) {
  for (unsigned r = 0; r < k.results.size(); ++r)
    if (p.shape.extents.lookup(k.results[r]->def) == e)
      store(r, value(k.results[r], *k.results[r]->def, 0));
}

/// From here on a sum's result is a value like others.
void LoopValues::nameSum(const Node &sum, const std::string &code) {
  const Value *r = sum.result();
  std::string v = fresh("v");
  out.line("const " + computeType(r->type.elem) + " " + v + " = " + roundCode(r->type.elem, code) + ";");
  scopes.back()[r] = v;
}
