// Fused kernels as C++: loops over the kernel's domain, bodies from the operators' scalar expressions.
#pragma once

#include "codegen/LoopPlan.h"
#include "codegen/OpenNumbers.h"
#include "ir/Graph.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringMap.h"
#include <functional>

namespace zcc {

/// A kernel's definition with marks of open numbers, and @SYMBOL for its name, @PARAMS and @ARGUMENTS for what it is given,
/// @NUMBERS and @GIVEN, each behind a comma, for what it is given of open numbers.
struct KernelText {
  std::string params, text;
  std::vector<OpenNumber> numbers;
  bool hasScratch = false;
};
/// Prints a kernel over certain strides of its operands, for a fused node of so many parts.
using PrintKernel = std::function<KernelText(const Function &kernel, llvm::ArrayRef<Dims> strides, int64_t parts)>;

/// As C++ for the CPU. `threads`: what the parallel loops are given.
PrintKernel printForCpu(int threads);
/// What the definitions of kernels for the CPU include, for the reader and the compiler.
std::string sourceHeadForCpu(const Module &m);

/// Parameters of a kernel, and the typed pointers made of them. Of a kernel for several parts, which is given the arena and the
/// parts' offsets in it, the pointers of number `part`, whose offsets begin at `at`.
void printPointers(const LoopPlan &plan, std::string &params, std::string &casts);

/// The kernels of a program. Kernels, and the same kernel over other strides, whose text differs in open numbers only share a C++
/// function; it gets as arguments the numbers that its calls do not agree on.
class KernelEmitter {
public:
  /// Makes the functions of the module's fused nodes in these spaces. `head`: of each translation unit.
  KernelEmitter(const Module &m, llvm::ArrayRef<Space> spaces, const PrintKernel &print, std::string head);

  /// The C++ call for a fused node: "k17(A + 64, A + 0, A + 128)"; of several parts "k17(A, {64, 0, 128, 96, 0, 160})". `pointer`
  /// gives the expression of the address (char *) of element 0 of an operand or result (of nullptr, that of the
  /// product before it), `offset` where that is in the arena.
  llvm::Expected<std::string> call(const Node &fused, llvm::function_ref<std::string(const Value *)> pointer,
                                   llvm::function_ref<int64_t(const Value *)> offset) const;
  /// Bytes of the arena that a call needs besides operands and results: partial sums. Plan-memory gives them
  /// an offset in the node's attribute "scratch". `threads`: as planLoops has it.
  static int64_t scratchBytes(const Node &fused, int threads);
  /// All functions as translation units, of about equal length and more of them the more there is, so that they compile side by
  /// side; by the flags of the target.
  std::vector<std::string> sources() const;
  /// Their declarations.
  std::string declarations() const;

private:
  /// A function that one or more kernels share.
  struct Body {
    std::string symbol, what;        ///< its name, and its operators for the reader
    std::string params, text;        ///< parameters without numbers; text as in KernelText
    std::vector<OpenNumber> numbers; ///< of the kernel met first
    std::vector<bool> isArgument;    ///< whether another kernel has another number
  };
  /// A kernel over certain strides.
  struct Variant {
    size_t body;
    std::vector<OpenNumber> numbers;
    bool hasScratch;
  };

  std::string head_;
  llvm::StringMap<Variant> variants; ///< by kernel and strides
  std::vector<Body> bodies;

  void add(const Node &fused, const PrintKernel &print, llvm::StringMap<size_t> &bodyOf, llvm::StringMap<unsigned> &symbols);
  std::string numbers(const Body &b) const;
  std::string definition(const Body &b) const;
};

} // namespace zcc
