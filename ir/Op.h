// One operator = one record. Ops.def is the closed list; the records are in ops/FAMILY.cpp.
#pragma once

#include "ir/Graph.h"
#include <array>
#include <functional>

namespace zcc {

class Builder;
struct Tensor; // ir/Interpreter.h
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
  To,           ///< attribute "to"
  ToOfEqualSize ///< attribute "to", which takes as many bytes
};

/// What an operator does between ranks.
enum class Collective { None, Gather, Reduce };

/// Which library's kernel runs it; what that costs in memory is the target's to know.
enum class Library { None, Product, Convolution, Attention };

constexpr uint32_t kAllOperands = ~0u; ///< of a mask of operands

/// Types of the results from the operands' types (nullptr for an operand left out) and attributes.
using InferFn = llvm::Expected<llvm::SmallVector<Type, 2>> (*)(llvm::ArrayRef<const Type *>, const Attrs &);
/// Adds nodes that compute the gradient of each operand; `dy[i]` is the gradient of result i or nullptr. Returns one
/// value per operand, nullptr where there is none. Broadcast operands get the broadcast shape: Differentiate.cpp sums.
using GradFn = llvm::SmallVector<Value *, 4> (*)(Builder &, Node &, llvm::ArrayRef<Value *> dy);
/// The node as primitive operators; returns one value per result.
using ExpandFn = llvm::SmallVector<Value *, 2> (*)(Builder &, Node &);
/// Naive evaluation: operands in, results preallocated.
using EvalFn = llvm::Error (*)(Node &, llvm::ArrayRef<const Tensor *> in, llvm::ArrayRef<Tensor *> out);
/// Floating-point operations of one execution.
using FlopsFn = double (*)(const Node &);

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
  bool view = false;            ///< only strides change (ir/View.h says how)
  bool reduction = false;       ///< reduce_*: generated loops
  bool leaf = false;            ///< constant, iota: computed where it is read
  const char *kernel = nullptr; ///< a library kernel: its name in the runtime's table (zccrt_cpu_kernels)
  /// Which operands a kernel takes as strided views, a letter each: 'm' a matrix with one of its last two axes contiguous,
  /// 'r' rows with the last axis contiguous, '-' dense (also when the string is short).
  const char *strided = nullptr;
  bool structural = false; ///< start, wait, release, assign...: the emitter knows it

  /// Exactly one of:
  const char *grad = nullptr; ///< one scalar expression per operand, separated by ';', over operands, `y` and `dy`; "0": none
  GradFn gradFn = nullptr;
  const char *noGrad = nullptr; ///< the reason there is none

  ResultElem resultElem = ResultElem::Operands;
  EvalFn eval = nullptr; ///< required unless `scalar`
  uint32_t writes = 0;   ///< bit i: operand i is updated in place
  uint32_t inPlace = 0;  ///< bit i: result i may lie where operand i does, if nothing reads that later
  bool forwards = false; ///< result i is operand i: it lies where that lies
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
  FlopsFn flops = nullptr; ///< default: one per element of the result

  bool isElementwise() const { return scalar != nullptr; }
  bool isLinearIn(unsigned i) const { return linear == kAllOperands || (i < 32 && linear >> i & 1); }
  bool isReduction() const { return collective == Collective::Reduce; } ///< over ranks
  bool isPure() const { return !writes && !ordered; }
  unsigned numOperandDefs() const;
};

/// Stops the build when a record is incomplete.
consteval OpDef defineOp(OpDef d) {
  if (!d.name || !d.summary)
    throw "an operator needs a name and a summary";
  if ((d.scalar != nullptr) + (d.expand != nullptr) + d.view + d.reduction + d.leaf + (d.kernel != nullptr) + d.structural != 1)
    throw "exactly one of scalar, expand, view, reduction, leaf, kernel, structural";
  if ((d.grad != nullptr) + (d.gradFn != nullptr) + (d.noGrad != nullptr) != 1)
    throw "exactly one of grad, gradFn, noGrad";
  if (!d.scalar && !d.infer)
    throw "infer is required unless scalar";
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
/// Whether a node is a collective or starts one.
inline bool movesBetweenRanks(const Node &n) {
  const OpDef *op = performed(n);
  return op && op->collective != Collective::None;
}
/// An elementwise operator's expression, parsed.
const Scalar &scalarOf(const OpDef &op);
/// Result types by the record: `infer`, or broadcasting for elementwise operators.
llvm::Expected<llvm::SmallVector<Type, 2>> inferTypes(const OpDef &op, llvm::ArrayRef<const Type *> operands, const Attrs &attrs);

} // namespace zcc
