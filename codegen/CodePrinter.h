// Prints a planned module for one machine: generated kernels, and the statements of the schedule. What is the same everywhere
// (tables, collectives, the order of statements) is EmitProgram's.
#pragma once

#include "passes/memory/Liveness.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace zcc {

class CodePrinter {
public:
  virtual ~CodePrinter() = default;

  // ---- generated kernels

  /// The call for a fused node; `placeOf` says where an operand or result lies, and of nullptr where the product
  /// before it does.
  virtual llvm::Expected<std::string> kernelCall(const Node &fused, llvm::function_ref<Place(const Value *)> placeOf) = 0;
  /// Translation units with all of them, of about equal length, so that they compile side by side.
  virtual std::vector<std::string> kernelSources() const = 0;
  virtual std::string kernelDeclarations() const = 0;

  // ---- statements

  /// What the program includes besides the runtime's header, and the head of a function of the schedule. A body runs for slice t.
  virtual std::string includes() const = 0;
  virtual std::string functionHead(llvm::StringRef symbol, bool isBody) const = 0;
  /// Bytes from one place of the arena to another; they do not overlap.
  virtual std::string copy(Place to, Place from, int64_t bytes) const = 0;
  /// A library kernel with the call of that number.
  virtual std::string libraryCall(llvm::StringRef kernel, unsigned call) const = 0;
  /// A body for each slice.
  virtual std::string repeat(llvm::StringRef body, int64_t slices, bool reverse) const = 0;
  /// One of two bodies, by a truth value in the arena.
  virtual std::string choose(Place condition, llvm::StringRef then, llvm::StringRef otherwise) const = 0;
};

} // namespace zcc
