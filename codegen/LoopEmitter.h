// The C++ of one kernel: loops by the kernel's form (passes/fuse/KernelShape.h) and the values computed in them.
#pragma once

#include "codegen/OpenNumbers.h"
#include "passes/fuse/KernelShape.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
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

class LoopEmitter {
public:
  /// `strides[i]`: of operand i over its own dims, in elements.
  LoopEmitter(const Function &kernel, llvm::ArrayRef<Dims> strides, int threads);
  /// The function's body, with marks of open numbers. Parameters are typed pointers a0.. and r0.., and `scratch` (char *) if
  /// scratchBytes() > 0.
  std::string body();
  /// What the marks in it stand for.
  llvm::ArrayRef<OpenNumber> openNumbers() const { return open.all(); }
  /// Bytes for the partial sums of a large total reduction; they depend on which axes merge, hence on the strides.
  int64_t scratchBytes() const;

private:
  /// One way an operand, iota or result is stepped through.
  struct Access {
    const Value *value;
    Dims strides;     ///< over the domain
    std::string base; ///< "a3", "r0"; empty for an iota, whose value is the offset
  };
  /// A reduction and the name of its accumulators.
  struct Sum {
    const Node *node;
    std::string acc;
  };
  /// What one innermost loop is for.
  struct Work {
    std::vector<Sum> sums;
    std::vector<unsigned> results;    ///< to be stored
    std::vector<const Value *> fills; ///< to be kept in row buffers
    bool empty() const { return sums.empty() && results.empty() && fills.empty(); }
  };

  const Function &k;
  int threads;
  KernelShape s;
  std::vector<const Node *> members;
  Dims dims; ///< the domain, with axes merged that all accesses step through together
  std::vector<bool> reduced;
  std::vector<Access> accesses;
  std::map<std::pair<const Node *, unsigned>, unsigned> accessOf; ///< (user, operand) -> access
  std::vector<unsigned> resultAccess;

  CodeBlock out;
  bool isNear = false; ///< whether the loops printed now have no large angles
  OpenNumbers open;
  unsigned names = 0;
  /// C++ names of values and loads in each open scope.
  std::vector<llvm::DenseMap<const Value *, std::string>> scopes;
  std::vector<std::map<unsigned, std::string>> loads;
  llvm::DenseMap<const Value *, std::string> bufferName, buffers; ///< row buffers declared; filled by an earlier pass
  llvm::DenseMap<const Value *, unsigned> stored;                 ///< results stored by an earlier pass

  void findAccesses(llvm::ArrayRef<Dims> operandStrides);
  void mergeAxes();
  std::vector<size_t> axes(bool isReduced) const;
  bool isLarge() const;
  void parallel(size_t collapse);
  void openLoop(size_t axis);

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
  std::string stride(const Access &a, size_t axis);
  std::string offset(const Access &a);
  std::string constant(const Value &v, const Node &user);
  std::string load(unsigned access);
  std::string value(const Value *v, const Node &user, unsigned operand);
  std::string value(const Node &n);
  std::string rowIndex() const;
  void store(unsigned result, const std::string &v);
  void visit(const Node &n, llvm::DenseSet<const Node *> &seen, llvm::DenseSet<unsigned> *used) const;
  llvm::DenseSet<const Node *> neededBy(const Work &w, llvm::DenseSet<unsigned> *used) const;

  int64_t lanes(size_t axis) const;
  void declareSums(const Work &w, int64_t lanes);
  void combineLanes(const Work &w, int64_t lanes);
  void bodyOf(const Work &w, const std::string &lane);
  std::vector<const Node *> angles(const Work &w) const;
  void guardAngles(const Work &w, llvm::function_ref<void()> openLoop, llvm::function_ref<void()> loops);
  void innerLoops(const Work &w, size_t axis, int64_t lanes, const std::string &lo, const std::string &hi);
  void innerLoop(const Work &w, size_t axis, int64_t lanes, const std::string &lo, const std::string &hi);

  void pointwise();
  void row();
  std::vector<Work> rowPasses();
  void column();
  void total();
};

} // namespace zcc
