// Nodes with inferred types, constants and shapes that rules need, and expressions as nodes.
#include "ir/Builder.h"
#include "ir/Control.h"
#include "ir/Scalar.h"
#include "ir/Tensor.h"
#include "llvm/Support/ErrorHandling.h"

using namespace zcc;
using llvm::ArrayRef;
using llvm::StringRef;

llvm::Expected<Node *> Builder::tryMake(const OpDef &op, ArrayRef<Value *> operands, Attrs attrs, StringRef name) {
  if (op.isOfRank() && !attrs.has("ranks"))
    attrs.set("ranks", int64_t(fn.module->ranks));
  llvm::SmallVector<const Type *, 4> types;
  for (Value *v : operands)
    types.push_back(v ? &v->type : nullptr);
  auto results = callsBodies(op) ? typesByBodies(op, types, attrs, *fn.module) : inferTypes(op, types, attrs);
  if (!results)
    return results.takeError();
  Node *n = fn.insert(std::make_unique<Node>(&op, loc), before);
  n->attrs = std::move(attrs);
  n->phase = phase;
  for (Value *v : operands)
    n->addOperand(v);
  for (Type &t : *results) {
    std::string unique = fn.unique(name.empty() ? StringRef(op.name) : name);
    n->results.push_back(std::make_unique<Value>(Value::Result, unique, std::move(t)));
    n->results.back()->def = n;
    n->results.back()->index = n->results.size() - 1;
  }
  return n;
}

Node *Builder::node(const OpDef &op, ArrayRef<Value *> operands, Attrs attrs, StringRef name) {
  auto n = tryMake(op, operands, std::move(attrs), name);
  if (!n) {
    std::string text = llvm::toString(n.takeError());
    llvm::report_fatal_error(llvm::Twine(describe(loc)) + ": made '" + op.name + "' wrongly: " + text);
  }
  return *n;
}

// ---- constants

Value *Builder::scalar(double v, Elem e) { return splat(v, Type(e, {})); }

Value *Builder::splat(double v, Type t) {
  Attrs a = {{"elem", elemName(t.elem).str()}, {"dims", ArrayRef<int64_t>(t.dims).vec()}};
  if (isFloat(t.elem))
    a.set("value", std::vector<double>{v});
  else
    a.set("value", std::vector<int64_t>{int64_t(v)});
  return make(ops::constant, {}, std::move(a));
}

Value *Builder::ints(ArrayRef<int64_t> v) {
  return make(ops::constant, {}, {{"value", v.vec()}, {"elem", "i64"}, {"dims", std::vector{int64_t(v.size())}}});
}

Value *Builder::constant(const Tensor &t, StringRef name) {
  bool splat = t.count() > 0 && isSplat(t);
  if (!splat && t.count() > kMostInline) {
    std::string of = name.empty() ? "const." + std::to_string(fn.module->globals.size()) : name.str();
    GlobalValue *g = fn.module->addConst(of, t.type, tensorToBytes(t));
    if (!g->loc)
      g->loc = loc;
    return g;
  }
  size_t n = splat ? 1 : t.count();
  Attrs a = {{"elem", elemName(t.type.elem).str()}, {"dims", ArrayRef<int64_t>(t.type.dims).vec()}};
  if (t.isFloat())
    a.set("value", std::vector<double>(t.f.begin(), t.f.begin() + n));
  else
    a.set("value", std::vector<int64_t>(t.i.begin(), t.i.begin() + n));
  return make(ops::constant, {}, std::move(a), name);
}

// ---- shapes

Value *Builder::reshape(Value *v, ArrayRef<int64_t> dims) {
  if (ArrayRef<int64_t>(v->type.dims) == dims)
    return v;
  return make(ops::reshape, {v}, {{"dims", dims.vec()}});
}

Value *Builder::transpose(Value *v, ArrayRef<int64_t> perm) {
  for (size_t i = 0; i < perm.size(); ++i)
    if (perm[i] != int64_t(i))
      return make(ops::transpose, {v}, {{"perm", perm.vec()}});
  return v;
}

Value *Builder::swapLast(Value *v) {
  Dims perm(v->type.ndim(), 0);
  for (size_t i = 0; i < perm.size(); ++i)
    perm[i] = i;
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return transpose(v, perm);
}

Value *Builder::expand(Value *v, ArrayRef<int64_t> dims) {
  if (ArrayRef<int64_t>(v->type.dims) == dims)
    return v;
  return make(ops::broadcast, {v}, {{"dims", dims.vec()}});
}

Value *Builder::cast(Value *v, Elem e) { return v->type.elem == e ? v : make(ops::cast, {v}, {{"to", elemName(e).str()}}); }

Value *Builder::slice(Value *v, int axis, int64_t start, int64_t end, int64_t step) {
  const Dims &d = v->type.dims;
  if (start == 0 && end == d[axis] && step == 1)
    return v;
  std::vector<int64_t> starts(d.size(), 0), ends(d.begin(), d.end()), steps(d.size(), 1);
  starts[axis] = start;
  ends[axis] = end;
  steps[axis] = step;
  return make(ops::slice, {v}, {{"starts", starts}, {"ends", ends}, {"steps", steps}});
}

Value *Builder::reduceSum(Value *v, ArrayRef<int64_t> axes) {
  return axes.empty() ? v : make(ops::reduce_sum, {v}, {{"axes", axes.vec()}});
}

Value *Builder::sumTo(Value *v, ArrayRef<int64_t> dims) {
  const Dims &d = v->type.dims;
  int64_t lead = int64_t(d.size()) - int64_t(dims.size());
  Dims axes;
  for (int64_t i = 0; i < int64_t(d.size()); ++i)
    if (i < lead || (dims[i - lead] == 1 && d[i] != 1))
      axes.push_back(i);
  v = reduceSum(v, axes);
  return v->type.count() == elementCount(dims) ? reshape(v, dims) : expand(v, dims);
}

// ---- expressions

namespace {
/// An operand or result inside an expression: a value, or a number that nothing has given a type.
struct Item {
  Value *value = nullptr;
  double number = 0;
  bool isNumber() const { return !value; }
};

class ExprBuilder {
public:
  using Names = ArrayRef<std::pair<StringRef, Value *>>;
  ExprBuilder(Builder &b, Names n) : b(b), names(n) {}
  Value *run(const Scalar &s);

private:
  Builder &b;
  Names names;
  llvm::SmallVector<Node *, 16> made;

  Item build(const Scalar &s);
  Item name(const Scalar &s);
  Item fold(const Scalar &s, ArrayRef<Item> args);
  std::optional<Item> simplified(const Scalar &s, ArrayRef<Item> args);
  Value *materialize(const Item &i, Elem e) { return i.value ? i.value : b.scalar(i.number, e); }
  Value *make(const OpDef &op, ArrayRef<Value *> operands);
};
} // namespace

static const OpDef &opOf(const Scalar &s) {
  static const std::pair<StringRef, const OpDef *> operators[] = {
      {"+", &ops::add},     {"*", &ops::mul},    {"/", &ops::div},         {"<", &ops::lt},          {"<=", &ops::le},
      {">", &ops::gt},      {">=", &ops::ge},    {"==", &ops::eq},         {"!=", &ops::ne},         {"&&", &ops::and_},
      {"||", &ops::or_},    {"!", &ops::not_},   {"&", &ops::bit_and},     {"|", &ops::bit_or},      {"^", &ops::bit_xor},
      {"~", &ops::bit_not}, {"?", &ops::select}, {"<<", &ops::shift_left}, {">>", &ops::shift_right}};
  if (s.text == "-")
    return s.kind == Scalar::Unary ? ops::neg : ops::sub;
  for (auto &[sign, op] : operators)
    if (s.text == sign)
      return *op;
  const OpDef *op = findOp(s.text);
  if (!op)
    llvm::report_fatal_error(llvm::Twine("no operator computes '") + s.text + "'");
  return *op;
}

Item ExprBuilder::name(const Scalar &s) {
  for (auto &[n, v] : names) {
    if (n != s.text)
      continue;
    // A scalar constant is a number, so that what it makes trivial is not built.
    const Node *def = v->def;
    if (isConstant(v) && v->type.isScalar() && isFloat(v->type.elem))
      return {nullptr, def->attrs.floats("value")[0]};
    return {v};
  }
  llvm::report_fatal_error(llvm::Twine("no value is called '") + s.text + "'");
}

/// Equal subexpressions are built once.
Value *ExprBuilder::make(const OpDef &op, ArrayRef<Value *> operands) {
  for (Node *n : made)
    if (n->op == &op && n->operands() == operands)
      return n->result();
  made.push_back(b.node(op, operands));
  return made.back()->result();
}

Item ExprBuilder::fold(const Scalar &s, ArrayRef<Item> args) {
  static const char *const letters[] = {"a", "b"};
  Scalar copy; // the same operation on names
  copy.kind = s.kind;
  copy.text = s.text;
  llvm::SmallVector<std::pair<StringRef, double>, 2> values;
  for (size_t i = 0; i < args.size(); ++i) {
    copy.args.push_back(std::make_unique<Scalar>());
    copy.args.back()->kind = Scalar::Name;
    copy.args.back()->text = letters[i];
    values.push_back({letters[i], args[i].number});
  }
  auto v = evalScalar(copy, values);
  if (!v)
    llvm::report_fatal_error(v.takeError());
  return {nullptr, *v};
}

/// What needs no node: a neutral operand, or powers that a product computes.
std::optional<Item> ExprBuilder::simplified(const Scalar &s, ArrayRef<Item> a) {
  if (a.size() != 2)
    return std::nullopt;
  auto is = [&](int i, double v) { return a[i].isNumber() && a[i].number == v; };
  StringRef op = s.text;
  if ((op == "*" || op == "+") && is(0, op == "*"))
    return a[1];
  if (((op == "*" || op == "/" || op == "pow") && is(1, 1)) || ((op == "+" || op == "-") && is(1, 0)))
    return a[0];
  if (op == "*" && (is(0, -1) || is(1, -1)))
    return Item{make(ops::neg, {a[is(0, -1)].value})};
  if (op == "-" && is(0, 0))
    return Item{make(ops::neg, {a[1].value})};
  if (op == "pow" && is(1, 2))
    return Item{make(ops::mul, {a[0].value, a[0].value})};
  return std::nullopt;
}

Item ExprBuilder::build(const Scalar &s) {
  if (s.kind == Scalar::Number)
    return {nullptr, s.number};
  if (s.kind == Scalar::Name)
    return name(s);
  llvm::SmallVector<Item, 3> args;
  if (s.kind == Scalar::Ternary) {
    Item cond = build(*s.args[0]);
    if (cond.isNumber())
      return build(*s.args[cond.number != 0 ? 1 : 2]);
    args.push_back(cond);
  }
  for (size_t i = args.size(); i < s.args.size(); ++i)
    args.push_back(build(*s.args[i]));
  ArrayRef<Item> values = args;
  if (s.kind == Scalar::Ternary)
    values = values.drop_front();
  if (s.kind != Scalar::Ternary && llvm::all_of(args, [](auto &i) { return i.isNumber(); }))
    return fold(s, args);
  if (auto simple = simplified(s, args))
    return *simple;
  const Item *typed = llvm::find_if(values, [](auto &i) { return !i.isNumber(); });
  Elem e = typed == values.end() ? names[0].second->type.elem : typed->value->type.elem;
  llvm::SmallVector<Value *, 3> operands;
  for (const Item &i : args)
    operands.push_back(materialize(i, e));
  return {make(opOf(s), operands)};
}

Value *ExprBuilder::run(const Scalar &s) { return materialize(build(s), names[0].second->type.elem); }

Value *Builder::expr(StringRef text, ArrayRef<std::pair<StringRef, Value *>> names) {
  auto s = parseScalar(text);
  if (!s)
    llvm::report_fatal_error(s.takeError());
  return ExprBuilder(*this, names).run(**s);
}
