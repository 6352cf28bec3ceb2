// The table of all records, and the types of their results.
#include "ir/Op.h"
#include "ir/Scalar.h"
#include "ir/Verifier.h"
#include "llvm/ADT/DenseMap.h"

using namespace zcc;
using llvm::StringRef;
using llvm::Twine;
using Types = llvm::SmallVector<Type, 2>;
using Operands = llvm::ArrayRef<const Type *>;

static const OpDef *const kOps[] = {
#define ZCC_OP(NAME) &ops::NAME,
#include "ir/Ops.def"
#undef ZCC_OP
};

llvm::ArrayRef<const OpDef *> zcc::allOps() { return kOps; }

const OpDef *zcc::performed(const Node &n) { return n.op->structural == Structural::Start ? findOp(n.attrs.s("op")) : n.op; }

Space zcc::computeSpace(const Node &n) {
  for (Value *v : n.operands())
    if (v && !isLeaf(v))
      return v->type.space;
  return Space::Device;
}

StringRef zcc::kindName(AttrKind k) {
  constexpr StringRef kNames[] = {"int", "float", "str", "ints", "floats", "body"};
  return kNames[unsigned(k)];
}

const OpDef *zcc::findOp(StringRef name) {
  static const llvm::StringMap<const OpDef *> byName = [] {
    llvm::StringMap<const OpDef *> m;
    for (const OpDef *op : kOps)
      m[op->name] = op;
    return m;
  }();
  return byName.lookup(name);
}

unsigned OpDef::numOperandDefs() const {
  unsigned n = 0;
  while (n < operands.size() && operands[n].name)
    ++n;
  return n;
}

using Expressions = llvm::DenseMap<const OpDef *, std::unique_ptr<Scalar>>;

static Expressions parsedColumn(const char *const OpDef::*column) {
  Expressions all;
  for (const OpDef *o : kOps)
    if (o->*column)
      all[o] = llvm::cantFail(parseScalar(o->*column));
  return all;
}

const Scalar &zcc::scalarOf(const OpDef &op) {
  static const Expressions parsed = parsedColumn(&OpDef::scalar);
  return *parsed.find(&op)->second;
}

const Scalar &zcc::compiledScalarOf(const OpDef &op, Elem elem) {
  static const Expressions parsed = parsedColumn(&OpDef::roughly);
  return elem == Elem::BF16 && op.roughly ? *parsed.find(&op)->second : scalarOf(op);
}

static llvm::Error checkCount(const OpDef &op, Operands t) {
  unsigned defs = op.numOperandDefs();
  bool variadic = defs && (op.operands[defs - 1].flags & OperandDef::Variadic);
  if (t.size() > defs && !variadic)
    return error("takes " + Twine(defs) + " operands, got " + Twine(t.size()));
  for (unsigned i = 0; i < std::max<size_t>(defs, t.size()); ++i) {
    const OperandDef &d = op.operands[std::min(i, defs - 1)];
    bool given = i < t.size() && t[i];
    if (!given && !(d.flags & OperandDef::Optional))
      return error("operand '" + Twine(d.name) + "' is missing");
  }
  return llvm::Error::success();
}

/// Shards and addends of an elementwise result are those of its tensors; scalars fit in everywhere.
static void place(Type &result, Operands t) {
  for (const Type *x : t) {
    result.shards = std::max(result.shards, x->shards);
    result.addends = std::max(result.addends, x->addends);
  }
}

/// What computes gives its results where its operands lie. Constants, whose type is in @device, lie anywhere.
static void placeResults(const OpDef &op, Operands t, Types &results) {
  if (op.moves || op.structural == Structural::Start)
    return;
  for (const Type *x : t)
    for (Type &r : results)
      if (x && x->space != Space::Device)
        r.space = x->space;
}

static llvm::Expected<Types> inferElementwise(const OpDef &op, Operands t, const Attrs &attrs) {
  const Type *first = nullptr;
  llvm::SmallVector<ScalarName, 4> names;
  Dims dims;
  for (unsigned i = 0; i < t.size(); ++i) {
    names.push_back({op.operands[i].name, scalarKind(t[i]->elem)});
    auto d = broadcastDims(dims, t[i]->dims);
    if (!d)
      return error(Twine("dimensions do not broadcast: ") + Type(t[i]->elem, dims).str() + " and " + t[i]->str());
    dims = *d;
    if (op.operands[i].flags & OperandDef::AnyElem)
      continue;
    if (first && first->elem != t[i]->elem)
      return error(Twine("element types differ: ") + first->str() + " and " + t[i]->str());
    first = first ? first : t[i];
  }
  if (auto p = ScalarProgram::compile(scalarOf(op), names); !p) {
    llvm::consumeError(p.takeError());
    std::string all;
    for (const Type *x : t)
      all += (all.empty() ? "" : ", ") + x->str();
    return error(Twine("not defined for ") + all);
  }
  Type result(first->elem, dims);
  if (op.resultElem == ResultElem::Bool)
    result.elem = Elem::Bool;
  if (op.resultElem == ResultElem::F32)
    result.elem = Elem::F32;
  if (op.resultElem == ResultElem::Second)
    result.elem = t[1]->elem;
  bool isSameSize = op.resultElem == ResultElem::ToOfEqualSize;
  if (op.resultElem == ResultElem::To || isSameSize) {
    auto e = elemFromName(attrs.s("to"));
    if (!e)
      return error(Twine("'") + attrs.s("to") + "' is no element type");
    int64_t bytes = elemBytes(*e);
    if (isSameSize && (bytes != elemBytes(first->elem) || bytes < 4))
      return error(Twine("no element of 4 or 8 bytes both: ") + first->str() + " and " + elemName(*e));
    result.elem = *e;
  }
  place(result, t);
  return Types{result};
}

Dims zcc::counterStrides(const Node &counter) {
  const Type &t = counter.result()->type;
  const int64_t axis = counter.attrs.i("axis");
  if (axis == kEveryAxis)
    return denseStrides(t.dims);
  Dims strides(t.ndim(), 0);
  strides[axis] = 1;
  return strides;
}

llvm::Expected<Types> zcc::inferTypes(const OpDef &op, Operands operands, const Attrs &attrs) {
  if (auto e = checkCount(op, operands))
    return e;
  auto types = op.scalar ? inferElementwise(op, operands, attrs) : op.infer(operands, attrs);
  if (!types)
    return types;
  placeResults(op, operands, *types);
  for (const Type &t : *types)
    if (auto e = checkSize(t))
      return e;
  return types;
}
