// One operator = one record. Ops.def is the closed list; the records are in ops/FAMILY.cpp.
#pragma once

#include "ir/View.h"
#include <array>
#include <functional>

namespace zcc {

class Builder;
struct Tensor; // ir/Tensor.h
struct Scalar; // ir/Scalar.h

/// An operand's name and what it may be.
struct OperandDef {
  const char *name;
  enum Flags { None = 0, Optional = 1, Variadic = 2, AnyElem = 4 } flags = None;
};

enum class AttrKind { Int, Float, Str, Ints, Floats, Body /*the name of one*/ };
llvm::StringRef kindName(AttrKind k);

struct AttrDef {
  const char *name;
  AttrKind kind;
  const char *otherwise; ///< default as text; the printer leaves out what equals it; nullptr: required
};

enum class Precision { Follow, Compute, F32 };

/// Element of an elementwise result.
enum class ResultElem {
  Operands, ///< theirs, which are all equal
  Second,   ///< the second operand's
  Bool,
  F32,
  To,           ///< attribute "to"
  ToOfEqualSize ///< attribute "to", which takes as many bytes
};

/// How the elements of a reduction come together.
struct Reduction {
  enum Kind { None, Sum, Product, Max, Min };
};

/// What has no operands and is computed where it is read.
struct Leaf {
  enum Kind { None, Constant, Counter };
};

/// What neither a kernel nor a view does: the emitter, the interpreter and the passes that schedule know each of these.
struct Structural {
  enum Kind {
    None,
    Assign,
    After,
    Start,
    Wait,
    Release,
    Fused,
    Scan,
    Cond,
    Addend,
    Shard,
    SumRanks,
    Collective,
    Transfer,
    Insert
  };
};

/// Where the rows of a batch, an axis of an operand, are in the result (passes/train/BatchRows.h).
struct Rows {
  enum Kind {
    Mixed,    ///< nowhere: each element may depend on several
    Aligned,  ///< in the axis aligned with the operands' at the end, as numpy broadcasts; elementwise operators
    InOrder,  ///< where they are in the operand, elements being in its order
    Reduced,  ///< in their axis, unless that is one of `axes`; reductions
    Product,  ///< as a matrix product's axes
    Lookup,   ///< of a table or of indices along `axis`
    ByTuples, ///< of a table or of index tuples; with attribute `batch` as PerSample
    ToTuples, ///< of what is written to index tuples
    Permuted, ///< where `perm` takes their axis
    Sliced,   ///< in their axis, if `steps` takes the whole of it
    Padded,   ///< in their axis, if nothing is before and behind it
    Others,   ///< in their axis, unless that is `axis`
    Leading,  ///< in their axis, if that is before `axis`
    PerSample ///< in the first axis, as in the operands
  };
};

/// What an operator does between ranks.
enum class Collective { None, Gather, Reduce };

/// Which library's kernel runs it; what that costs in memory, and which layouts it reads, is the target's to know.
enum class Library { None, Product, Convolution, Attention };

constexpr uint32_t kAllOperands = ~0u; ///< of a mask of operands
/// Whether it holds operand i; of those behind the 32nd it holds all or none.
constexpr bool hasOperand(uint32_t mask, unsigned i) { return mask == kAllOperands || (i < 32 && mask >> i & 1); }

/// Types of the results from the operands' types (nullptr for an operand left out) and attributes.
using InferFn = llvm::Expected<llvm::SmallVector<Type, 2>> (*)(llvm::ArrayRef<const Type *>, const Attrs &);
/// Adds nodes that compute the gradient of each operand; `dy[i]` is the gradient of result i or nullptr. Returns one
/// value per operand, nullptr where there is none. Broadcast operands get the broadcast shape: Differentiate.cpp sums.
using GradFn = llvm::SmallVector<Value *, 4> (*)(Builder &, Node &, llvm::ArrayRef<Value *> dy);
/// The node as primitive operators; returns one value per result.
using ExpandFn = llvm::SmallVector<Value *, 2> (*)(Builder &, Node &);
/// Adds nodes that compute the first result again from such operands and from the node's other results, `rest`, which are small:
/// they are kept where it is computed again.
using AgainFn = Value *(*)(Builder &, llvm::ArrayRef<Value *> operands, llvm::ArrayRef<Value *> rest);
/// Naive evaluation: operands in, results preallocated.
using EvalFn = llvm::Error (*)(Node &, llvm::ArrayRef<const Tensor *> in, llvm::ArrayRef<Tensor *> out);
/// Floating-point operations of one execution.
using FlopsFn = double (*)(const Node &);
/// How a view's result lies, its operand lying as `in`; nullopt: no strides express it.
using ViewFn = std::optional<View> (*)(const Node &, const View &in);

struct OpDef {
  const char *name = nullptr;    ///< mnemonic in .zir
  const char *summary = nullptr; ///< one line, for --help-ops
  const char *onnx = nullptr;    ///< ONNX operator that the importer takes for it: same operands, no attributes
  std::array<OperandDef, 8> operands{};
  std::array<AttrDef, 12> attrs{};
  int results = 1; ///< number of results; -1 if it depends on attributes or types

  InferFn infer = nullptr; ///< required unless `scalar`

  /// Exactly one way to compute it:
  const char *scalar = nullptr; ///< expression over the operands' names (ir/Scalar.h); elementwise with numpy's broadcast
  ExpandFn expand = nullptr;    ///< a body of primitives
  ViewFn view = nullptr;        ///< only strides change
  Reduction::Kind reduction = Reduction::None; ///< generated loops
  Leaf::Kind leaf = Leaf::None;
  const char *kernel = nullptr; ///< a library kernel: its name in the runtime's table (zccrt_cpu_kernels)
  Structural::Kind structural = Structural::None;

  /// Exactly one of:
  const char *grad = nullptr; ///< one scalar expression per operand, separated by ';', over operands, `y` and `dy`; "0": none
  GradFn gradFn = nullptr;
  const char *noGrad = nullptr; ///< the reason there is none

  ResultElem resultElem = ResultElem::Operands;
  EvalFn eval = nullptr;   ///< required unless `scalar`
  AgainFn again = nullptr; ///< its first result in less than `expand` takes, once the others are known
  uint32_t writes = 0;     ///< bit i: operand i is updated in place
  uint32_t packs = 0;      ///< bit i: operand i may be packed (ir/Layout.h)
  uint32_t inPlace = 0;    ///< bit i: result i may lie where operand i does, if nothing reads that later
  bool forwards = false;   ///< result i is operand i: it lies where that lies
  /// Bit i: the result is linear in operand i, where the other operands of the mask vary along; with `bilinear` where they
  /// are fixed.
  uint32_t linear = 0;
  bool bilinear = false;
  Collective collective = Collective::None;
  int sends = 0; ///< bytes that a rank sends, in (N-1)/N of the whole operands
  Library library = Library::None;
  bool stopsGradient = false; ///< only until the gradients are there
  bool ordered = false;       ///< collectives, start and wait: neither dropped nor reordered against each other
  bool random = false;        ///< draws from Philox
  Precision precision = Precision::Follow;
  bool reshapes = false;    ///< a view of the same elements in the same row-major order
  bool moves = false;       ///< bytes, whatever they mean: takes any shard and addend, in any space
  bool exact = false;       ///< each element is one of the operands', or its magnitude: nothing is to be rounded
  bool cheap = false;       ///< costs as much as a load: computed again rather than stored
  bool dear = false;        ///< computing it again costs more than keeping its value
  bool feedsKernel = false; ///< nobody reads what it computes but a kernel of the module, in the same node (ir/Epilogue.h)
  bool startable = false;   ///< `start` may begin it; what computes, too, in @host
  bool sumsShard = false;   ///< what it makes of a shard is an addend
  bool staysWide = false;   ///< a sum or a loss: its f32 result is not rounded
  Rows::Kind rows = Rows::Mixed;
  uint32_t rowOperands = kAllOperands; ///< of PerSample: operands that may have rows
  uint32_t sameOperands = 0;           ///< of PerSample: operands that may be the same for all samples
  FlopsFn flops = nullptr;             ///< default: one per element of the result
  const char *roughly = nullptr;       ///< `scalar` by functions that are as exact as bfloat16 operands need

  bool isElementwise() const { return scalar != nullptr; }
  bool isLinearIn(unsigned i) const { return hasOperand(linear, i); }
  bool isFused() const { return structural == Structural::Fused; }
  bool isScan() const { return structural == Structural::Scan; }
  /// Whether it makes one that differs between ranks of a value that they share.
  bool isOfRank() const { return structural == Structural::Addend || structural == Structural::Shard; }
  bool isReduction() const { return collective == Collective::Reduce; } ///< over ranks
  bool sumsRanks() const { return isReduction() || structural == Structural::SumRanks; }
  bool converts() const { return resultElem == ResultElem::To; } ///< numbers to another element
  /// Whether the result's elements are the operand's, in place and value.
  bool isIdentity() const { return scalar && llvm::StringRef(scalar) == "x" && resultElem == ResultElem::Operands; }
  /// Whether it computes from its operands, on the device or in host memory: a queue of its own runs it there.
  bool mayBeOnHost() const { return !moves && !random && (structural == Structural::None || isFused()); }
  /// Whether it is one piece of work that a queue can run.
  bool isWork() const { return kernel || isFused(); }
  bool isPure() const { return !writes && !ordered; }
  bool updates(unsigned i) const { return hasOperand(writes, i); } ///< operand i in place
  unsigned numOperandDefs() const;
};

/// Stops the build when a record is incomplete.
consteval OpDef defineOp(OpDef d) {
  if (!d.name || !d.summary)
    throw "an operator needs a name and a summary";
  int ways = (d.scalar != nullptr) + (d.expand != nullptr) + (d.view != nullptr) + (d.reduction != Reduction::None) +
             (d.leaf != Leaf::None) + (d.kernel != nullptr) + (d.structural != Structural::None);
  if (ways != 1)
    throw "exactly one of scalar, expand, view, reduction, leaf, kernel, structural";
  if ((d.grad != nullptr) + (d.gradFn != nullptr) + (d.noGrad != nullptr) != 1)
    throw "exactly one of grad, gradFn, noGrad";
  if (!d.scalar && !d.infer)
    throw "infer is required unless scalar";
  if ((d.collective != Collective::None) != (d.structural == Structural::Collective))
    throw "a collective says what it does between ranks";
  if (d.cheap && d.dear)
    throw "what is cheap is not dear";
  if (d.reshapes && !d.view)
    throw "only a view reshapes";
  if (d.scalar && d.rows == Rows::Mixed)
    d.rows = Rows::Aligned;
  if (d.reduction)
    d.rows = Rows::Reduced;
  d.sumsShard |= d.reduction == Reduction::Sum;
  d.staysWide |= d.reduction != Reduction::None;
  return d;
}

namespace ops {
#define ZCC_OP(NAME) extern const OpDef NAME;
#include "ir/Ops.def"
#undef ZCC_OP
} // namespace ops

/// All records, in the order of Ops.def.
llvm::ArrayRef<const OpDef *> allOps();
const OpDef *findOp(llvm::StringRef name);
/// What a node performs: the operator that a `start` begins (nullptr if there is none of that name), else its own.
const OpDef *performed(const Node &n);
/// Of a matrix product: the operand that is its first factor; the second follows it.
inline unsigned firstFactor(const Node &n) { return n.is(ops::add_matmul); }
inline bool isConstant(const Value *v) { return v && v->def && v->def->op->leaf == Leaf::Constant; }
/// Whether a value is computed from nothing, so that it lies wherever it is read.
inline bool isLeaf(const Value *v) { return v && v->def && v->def->op->leaf; }
constexpr int64_t kEveryAxis = -1; ///< of a counter: it counts all elements
/// How a counter's value follows from an element's indices: their sum, each times its axis' stride.
Dims counterStrides(const Node &counter);
inline bool assigns(const Node &n) { return n.op->structural == Structural::Assign; }
/// Whether a node is a transfer itself, not the start of one.
inline bool isTransfer(const Node &n) { return n.op->structural == Structural::Transfer; }
/// Whether a node runs a kernel of the module, by itself or behind a product, or starts one.
inline bool runsKernel(const Node &n) {
  const OpDef *op = performed(n);
  return op && (op->isFused() || op->feedsKernel);
}
/// Where a node computes, or what it starts: where its operands lie, but for constants, which lie anywhere.
Space computeSpace(const Node &n);
/// Elements of what a rank holds: [begin, end).
struct Range {
  int64_t begin, end;
  bool overlaps(const Range &o) const { return begin < o.end && o.begin < end; }
};
/// Which elements of its global an `assign` writes.
inline Range assigned(const Node &n) {
  int64_t begin = n.attrs.i("begin");
  return {begin, begin + n.operand(1)->type.localCount()};
}
/// Whether a node is a collective or starts one.
inline bool movesBetweenRanks(const Node &n) {
  const OpDef *op = performed(n);
  return op && op->collective != Collective::None;
}
/// An elementwise operator's expression, parsed.
const Scalar &scalarOf(const OpDef &op);
/// What compiled programs compute of operands of this element: always the same of one type, in whatever kernel.
const Scalar &compiledScalarOf(const OpDef &op, Elem elem);
/// Result types by the record: `infer`, or broadcasting for elementwise operators.
llvm::Expected<llvm::SmallVector<Type, 2>> inferTypes(const OpDef &op, llvm::ArrayRef<const Type *> operands, const Attrs &attrs);

} // namespace zcc
