// The C++ of one kernel: its loops (LoopPlan.h) and the values computed in them.
#pragma once

#include "codegen/LoopPlan.h"
#include "codegen/OpenNumbers.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <map>
#include <string>

namespace zcc {

inline std::string num(int64_t v) { return std::to_string(v); }
inline std::string axisName(size_t axis) { return "i" + std::to_string(axis); }

/// Statements with their indentation.
class CodeBlock {
public:
  std::string text;
  void line(const llvm::Twine &t);
  void open(const llvm::Twine &t) {
    line(t + " {");
    ++depth;
  }
  void close() {
    --depth;
    line("}");
  }

private:
  int depth = 1;
};

/// Prints the plan of a kernel's loops as C++.
class LoopEmitter {
public:
  explicit LoopEmitter(const LoopPlan &plan);
  /// The function's body, with marks of open numbers. Parameters are typed pointers a0.. and r0.., and `scratch` (char *) if the
  /// plan's scratchBytes() > 0.
  std::string body();
  /// What the marks in it stand for.
  llvm::ArrayRef<OpenNumber> openNumbers() const { return open.all(); }

private:
  using Names = llvm::DenseMap<const Value *, std::string>;

  const LoopPlan &p;
  const Function &k;
  CodeBlock out;
  OpenNumbers open;
  bool isNear = false; ///< whether the loops printed now have no large angles
  unsigned names = 0;
  /// C++ names of values and loads in each open scope.
  std::vector<Names> scopes;
  std::vector<std::map<unsigned, std::string>> loads;
  llvm::DenseMap<const Node *, std::string> accumulator; ///< of each sum
  Names bufferName, buffers;                             ///< row buffers declared; filled by an earlier pass
  llvm::DenseMap<const Value *, unsigned> stored;        ///< results stored by an earlier pass

  // Values (LoopValues.cpp).
  void pushScope() {
    scopes.emplace_back();
    loads.emplace_back();
  }
  void popScope() {
    scopes.pop_back();
    loads.pop_back();
  }
  std::string fresh(const char *prefix) { return prefix + std::to_string(names++); }
  std::string extent(size_t axis);
  std::string stride(const LoopAccess &a, size_t axis);
  std::string offset(const LoopAccess &a);
  std::string element(const LoopAccess &a);
  std::string constant(const Value &v, const Node &user);
  std::string load(unsigned access);
  std::string value(const Value *v, const Node &user, unsigned operand);
  std::string value(const Node &n);
  std::string rowIndex() const;
  void store(unsigned result, const std::string &v);
  void storeReduced();

  // Loops.
  void parallel(size_t collapse);
  void openLoop(size_t axis);
  void openLoops(llvm::ArrayRef<size_t> axes);
  void closeLoops(size_t count);
  void declareSums(const LoopPass &w, int64_t lanes);
  void combineLanes(const LoopPass &w);
  void nameSum(const Node &sum, const std::string &value);
  void loadSteady(const LoopPass &w);
  void bodyOf(const LoopPass &w, const std::string &lane);
  void guardAngles(const LoopPass &w, llvm::function_ref<void()> openLoop, llvm::function_ref<void()> loops);
  void lanesLoops(const LoopPass &w, int64_t lanes, const std::string &lo, const std::string &hi);
  void innerLoop(const LoopPass &w, int64_t lanes, const std::string &lo, const std::string &hi);

  void elementwise();
  void tiles();
  void rows();
  void rowPass(const LoopPass &w);
  void columns();
  void columnSums(const LoopPass &w, const std::string &width);
  std::string openStrip(const std::string &width);
  void total();
};

} // namespace zcc
