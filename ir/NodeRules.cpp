// What the verifier's rules V1 and V2 say of one node and its operands.
#include "ir/Control.h"
#include "ir/Epilogue.h"
#include "ir/Verifier.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CheckedArithmetic.h"

using namespace zcc;
using llvm::StringRef;
using llvm::Twine;

static std::string operandName(const OpDef &op, unsigned i) {
  unsigned n = op.numOperandDefs();
  return n ? op.operands[std::min(i, n - 1)].name : "?";
}

// ---- attributes

static const AttrDef *attrDef(const OpDef &op, StringRef name) {
  for (const AttrDef &d : op.attrs)
    if (d.name && name == d.name)
      return &d;
  return nullptr;
}

const AttrDef *zcc::attrDef(const Node &n, StringRef name) {
  if (const AttrDef *d = ::attrDef(*n.op, name))
    return d;
  const OpDef *op = performed(n);
  return op ? ::attrDef(*op, name) : nullptr;
}

/// A default of a list is one number: all its elements.
bool zcc::isDefault(const AttrDef &d, const Attr &a) {
  if (!d.otherwise)
    return false;
  if (auto *s = std::get_if<std::string>(&a))
    return *s == d.otherwise;
  double v;
  if (StringRef(d.otherwise).getAsDouble(v))
    return false;
  auto same = [&](auto x) { return double(x) == v; };
  if (auto *i = std::get_if<int64_t>(&a))
    return same(*i);
  if (auto *f = std::get_if<double>(&a))
    return same(*f);
  if (auto *is = std::get_if<std::vector<int64_t>>(&a))
    return llvm::all_of(*is, same);
  return llvm::all_of(std::get<std::vector<double>>(a), same);
}

bool zcc::fits(AttrKind kind, const Attr &a) {
  bool isInt = std::holds_alternative<int64_t>(a);
  bool isInts = std::holds_alternative<std::vector<int64_t>>(a);
  switch (kind) {
  case AttrKind::Int:
    return isInt;
  case AttrKind::Float:
    return isInt || std::holds_alternative<double>(a);
  case AttrKind::Str:
  case AttrKind::Body:
    return std::holds_alternative<std::string>(a);
  case AttrKind::Ints:
    return isInts;
  case AttrKind::Floats:
    return isInts || std::holds_alternative<std::vector<double>>(a);
  }
  llvm_unreachable("a kind of attribute without a rule");
}

/// Whether integers leave room for what type rules add and multiply.
static bool inRange(const AttrDef &d, const Attr &a) {
  constexpr int64_t kMost = int64_t(1) << 62, kMostListed = int64_t(1) << 55, kMostElements = kMostListed;
  if (auto *i = std::get_if<int64_t>(&a))
    return d.kind != AttrKind::Int || (-kMost <= *i && *i <= kMost);
  auto *list = std::get_if<std::vector<int64_t>>(&a);
  if (!list || d.kind != AttrKind::Ints)
    return true;
  std::optional<int64_t> product = 1;
  for (int64_t i : *list) {
    if (i < -kMostListed || i > kMostListed)
      return false;
    product = product ? llvm::checkedMul(*product, std::max<int64_t>(i, 1)) : product;
  }
  return StringRef(d.name) != "dims" || (product && *product <= kMostElements);
}

std::string zcc::checkAttrs(const OpDef &op, const Attrs &attrs) {
  for (const AttrDef &d : op.attrs) {
    if (!d.name)
      continue;
    const Attr *a = attrs.find(d.name);
    StringRef name = op.name;
    if (!a && !d.otherwise)
      return ("[V1] '" + name + "' needs the attribute '" + d.name + "'").str();
    if (a && !fits(d.kind, *a))
      return ("[V1] attribute '" + Twine(d.name) + "' of '" + name + "' is of kind '" + kindName(d.kind) + "'").str();
    if (a && !inRange(d, *a))
      return ("[V1] attribute '" + Twine(d.name) + "' of '" + name + "' is out of range").str();
  }
  return "";
}

std::string zcc::checkForm(const Node &n) {
  const OpDef *op = performed(n);
  if (n.op->structural == Structural::Start && !(op && (op->startable || op->isWork())))
    return "[V1] 'start' needs a collective, 'transfer', 'copy' or what computes in @host, not '" + n.attrs.s("op") + "'";
  unsigned defs = op->numOperandDefs(), size = n.numOperands();
  bool variadic = defs && (op->operands[defs - 1].flags & OperandDef::Variadic);
  if (size > defs && !variadic)
    return ("[V1] '" + Twine(op->name) + "' takes " + Twine(defs) + " operands, not " + Twine(size)).str();
  for (unsigned i = 0; i < std::max(size, defs); ++i) {
    int flags = op->operands[std::min(i, defs - 1)].flags;
    bool mayMiss = (flags & OperandDef::Optional) || ((flags & OperandDef::Variadic) && i >= size);
    if (!n.operand(i) && !mayMiss)
      return "[V1] operand '" + operandName(*op, i) + "' of '" + op->name + "' is missing";
  }
  std::string broken = checkAttrs(*n.op, n.attrs);
  return broken.empty() && op != n.op ? checkAttrs(*op, n.attrs) : broken;
}

// ---- placement

/// Whether an addend may be operand `i`: the result is then the addend of what the operator does to
/// the sum.
static bool isLinearIn(const Node &n, const OpDef &op, unsigned i) {
  if (op.isFused()) // whose body is checked
    return true;
  for (unsigned k = 0; op.bilinear && k < n.numOperands(); ++k)
    if (k != i && n.operand(k)->type.isAddend())
      return false;
  return op.isLinearIn(i);
}

static std::string checkAddends(const Node &n, const OpDef &op, unsigned i) {
  const Type &t = n.operand(i)->type;
  if (op.sumsRanks() || op.moves)
    return "";
  if (!isLinearIn(n, op, i))
    return "is an addend (" + t.str() + "); sum it over the ranks first";
  // Sums of an addend and a whole tensor would add the latter once a rank.
  for (unsigned k = 0; k < n.numOperands() && !op.bilinear && !op.isFused(); ++k)
    if (op.isLinearIn(k) && n.operand(k)->type.addends != t.addends)
      return "is an addend (" + t.str() + "), operand '" + operandName(op, k) + "' is not";
  return "";
}

static std::string checkShards(const Node &n, const OpDef &op, unsigned i) {
  const Type &t = n.operand(i)->type;
  // The whole sum of a shard is an addend.
  if (op.moves || op.collective == Collective::Gather || op.isFused() || op.sumsShard)
    return "";
  if (!op.isElementwise())
    return "is partitioned (" + t.str() + "); it must be gathered first";
  for (unsigned k = 0; k < n.numOperands(); ++k) {
    const Type &o = n.operand(k)->type;
    if (!o.isScalar() && (o.shards != t.shards || o.dims != t.dims))
      return "is partitioned (" + t.str() + "), operand '" + operandName(op, k) + "' is " + o.str() +
             "; elementwise operators take equal shards";
  }
  return "";
}

/// A node computes in one space, the device's or host memory. Constants lie anywhere.
static std::string checkSpace(const Node &n, const OpDef &op, unsigned i) {
  const Type &t = n.operand(i)->type;
  if (op.moves || isLeaf(n.operand(i)))
    return "";
  std::string is = "is in @" + spaceName(t.space).str() + " (" + t.str() + ")";
  if (t.space != Space::Device && !(t.space == Space::Host && op.mayBeOnHost()))
    return is + "; transfer it to @device first";
  for (unsigned k = 0; k < i; ++k)
    if (Value *o = n.operand(k); o && !isLeaf(o) && o->type.space != t.space)
      return is + ", operand '" + operandName(op, k) + "' is in @" + spaceName(o->type.space).str() + " (" + o->type.str() +
             "); a node computes in one space";
  if (n.op->structural == Structural::Start && op.isWork() && t.space == Space::Device)
    return is + "; only what computes in @host is started";
  return "";
}

/// What is packed is read by what may be given it so, handed on whole, or kept.
static bool takesPacked(const Node &n, const OpDef &op, unsigned i) {
  // A scan's operands are not known to be there yet.
  const bool handsOn = op.isScan() ? int64_t(i) >= n.attrs.i("carried") + n.attrs.i("scanned") : callsBodies(op);
  return hasOperand(op.packs, i) || handsOn || assigns(n) || op.structural == Structural::After;
}

std::string zcc::checkPlacement(const Node &n) {
  const OpDef *op = performed(n);
  for (unsigned i = 0; op && i < n.numOperands(); ++i) {
    if (!n.operand(i))
      continue;
    const Type &t = n.operand(i)->type;
    std::string broken;
    if (op->sumsRanks() && !t.isAddend() && n.parent()->module->ranks > 1)
      broken = "is no addend (" + t.str() + "): every rank would add the whole";
    if (t.isFuture && n.op->structural != Structural::Wait)
      broken = "is started (" + t.str() + "); wait for it first";
    else if (t.isAddend() && !t.isFuture)
      broken = checkAddends(n, *op, i);
    else if (t.isPartitioned() && !t.isFuture)
      broken = checkShards(n, *op, i);
    else if (t.isPacked() && !takesPacked(n, *op, i))
      broken = "is packed (" + t.str() + "); only weights of a library's products and convolutions are";
    if (broken.empty() && !t.isFuture)
      broken = checkSpace(n, *op, i);
    if (!broken.empty())
      return "[V2] operand '" + operandName(*op, i) + "' of '" + op->name + "' " + broken;
  }
  return "";
}

// ---- types

llvm::Error zcc::checkSize(const Type &t) {
  constexpr int64_t kMostBytes = int64_t(1) << 55;
  std::optional<int64_t> bytes = elemBytes(t.elem);
  if (llvm::any_of(t.dims, [](int64_t d) { return d < 0; }))
    return error("the tensor " + t.str() + " has a negative dimension");
  for (int64_t d : t.dims)
    bytes = bytes ? llvm::checkedMul(*bytes, std::max<int64_t>(d, 1)) : bytes;
  if (!bytes || *bytes > kMostBytes)
    return error("the tensor " + t.str() + " is too large");
  return llvm::Error::success();
}

using Types = llvm::SmallVector<Type, 2>;

/// Whether a product is what its kernel's argument of this type takes: as many elements, in their order.
static llvm::Error checkProduct(const Node &n, const Type &argument) {
  auto product = inferTypes(ops::matmul, {&n.operand(0)->type, &n.operand(1)->type}, {});
  if (!product)
    return product.takeError();
  const Type &t = (*product)[0];
  if (t.withDims(argument.dims) != argument || t.count() != argument.count())
    return error("the product is " + t.str() + ", argument " + Twine(n.attrs.i("product")) + " of its kernel " + argument.str());
  return llvm::Error::success();
}

static llvm::Expected<Types> kernelTypes(const Node &n, const Module &m) {
  std::string name = n.attrs.s("kernel");
  const Function *k = m.function(name);
  if (!k || !k->isKernel)
    return error("there is no kernel '@" + name + "'");
  const int64_t parts = n.attrs.i("parts", 1);
  const size_t count = k->args.size();
  const llvm::SmallVector<Value *, 4> operands = kernelOperands(n);
  if (int64_t at = n.attrs.i("product"); performed(n)->feedsKernel && (at < 0 || at >= int64_t(count)))
    return error("kernel '@" + name + "' has no argument " + Twine(at) + " for the product");
  if (parts < 1 || uint64_t(parts) > std::max<size_t>(operands.size(), 1) || count * parts != operands.size())
    return error("kernel '@" + name + "' takes " + Twine(count) + " operands" + (parts == 1 ? "" : " for each part") + ", not " +
                 Twine(operands.size()) + (parts == 1 ? Twine() : " for " + Twine(parts) + " parts"));
  for (unsigned i = 0; i < operands.size(); ++i) {
    const Type &type = k->args[i % count]->type;
    if (!operands[i]) {
      if (auto e = checkProduct(n, type))
        return e;
    } else if (type != operands[i]->type) {
      return error("operand " + Twine(i) + " of kernel '@" + name + "' is " + type.str() + ", not " + operands[i]->type.str());
    }
  }
  Types types;
  for (int64_t part = 0; part < parts; ++part)
    for (const Value *r : k->results)
      types.push_back(r->type);
  return types;
}

llvm::Expected<Types> zcc::expectedTypes(const Node &n, const Module &m) {
  if (runsKernel(n)) {
    auto types = kernelTypes(n, m);
    for (size_t i = 0; types && i < types->size(); ++i)
      (*types)[i].isFuture = n.op->structural == Structural::Start;
    return types;
  }
  llvm::SmallVector<const Type *> operands;
  for (const Value *v : n.operands())
    operands.push_back(v ? &v->type : nullptr);
  if (callsBodies(*n.op))
    return typesByBodies(*n.op, operands, n.attrs, m);
  return inferTypes(*n.op, operands, n.attrs);
}

llvm::Error zcc::retype(Node &n, const Module &m) {
  auto types = expectedTypes(n, m);
  if (!types)
    return types.takeError();
  for (auto [r, t] : llvm::zip(n.results, *types))
    r->type = t;
  return llvm::Error::success();
}
