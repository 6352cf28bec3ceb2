// The values inside a kernel's loops as C++, whatever runs the loops: names, loads, operators, stores.
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

/// What is printed of a kernel's plan; who derives from it prints the loops.
class LoopValues {
public:
  /// What the marks in the text stand for.
  llvm::ArrayRef<OpenNumber> openNumbers() const { return open.all(); }

protected:
  using Names = llvm::DenseMap<const Value *, std::string>;

  explicit LoopValues(const LoopPlan &plan);
  virtual ~LoopValues() = default;

  const LoopPlan &p;
  const Function &k;
  CodeBlock out;
  OpenNumbers open;
  bool isNear = false;           ///< whether the loops printed now have no large angles
  std::string index = "int64_t"; ///< type of indices
  unsigned names = 0;
  /// C++ names of values and loads in each open scope.
  std::vector<Names> scopes;
  std::vector<std::map<unsigned, std::string>> loads;
  std::vector<std::map<std::string, std::string>> calls; ///< of functions, by what they are called with (keyOf)
  llvm::DenseMap<const Value *, std::string> keys;       ///< of values that are more than their name
  llvm::DenseMap<const Node *, std::string> accumulator; ///< of each sum
  Names bufferName, buffers;                             ///< row buffers declared; filled by an earlier pass
  llvm::DenseMap<const Value *, unsigned> stored;        ///< results stored by an earlier pass
  bool isAlone = false;                                  ///< accumulators take an element each, instead of adding it
  llvm::DenseMap<const Node *, std::string> drawn;       ///< draws of this run of the innermost loop: the element of each

  void pushScope() {
    scopes.emplace_back();
    loads.emplace_back();
    calls.emplace_back();
  }
  void popScope() {
    scopes.pop_back();
    loads.pop_back();
    calls.pop_back();
  }
  std::string fresh(const char *prefix) { return prefix + std::to_string(names++); }
  /// Whether an axis' extent is a number that may be another one in a kernel that is otherwise the same.
  bool isOpen(size_t axis) const;
  std::string extent(size_t axis);
  std::string product(llvm::ArrayRef<size_t> axes);
  void splitIndex(const std::string &element, llvm::ArrayRef<size_t> axes);
  void splitNumber(const std::string &number, llvm::ArrayRef<size_t> axes, llvm::function_ref<std::string(size_t axis)> count,
                   llvm::function_ref<void(size_t axis, const std::string &at)> place);
  std::string stride(const LoopAccess &a, size_t axis);
  std::string offset(const LoopAccess &a);
  /// An element of memory, as it is read or written.
  virtual std::string element(const LoopAccess &a);
  std::string constant(const Value &v, const Node &user);
  std::string load(unsigned access);
  std::string value(const Value *v, const Node &user, unsigned operand);
  std::string value(const Node &n);
  std::string keyOf(const Value &v, const std::string &name) const;
  std::string call(const std::string &key, const std::string &code, const std::string &type);
  /// The number in a row buffer of the element that the loops are at.
  virtual std::string rowIndex() const;
  void store(unsigned result, const std::string &v);
  /// The loops of the plan, by its form.
  void printForm();
  virtual void elementwise() = 0;
  virtual void tiles() = 0;
  virtual void rows() = 0;
  virtual void columns() = 0;
  virtual void total() = 0;
  /// What is computed for one element. `lane`: which of each sum's accumulators it is added to; "": there is one.
  void bodyOf(const LoopPass &w, const std::string &lane);
  /// A pass over a row is over: its sums are values, later passes read what it has kept and stored.
  void finishPass(const LoopPass &w, const std::string &lane);
  /// The sums of all units, in their order, from the parts of scratch memory that have them.
  /// Of the sums that units leave, which have 8 bytes each: whole numbers keep all their bits.
  static std::string typeOfTotal(const Node &sum);
  void addUnits(const LoopPass &w, llvm::function_ref<std::string(size_t)> part);
  /// What the plan's guard, if it has one, makes of loops: `zeros` where it does not hold.
  void guarded(llvm::function_ref<void()> loops, llvm::function_ref<void()> zeros);
  void storeZeros(const LoopPass &w);
  /// Stores the results of an extent.
  void storeWhere(Extent e);
  void nameSum(const Node &sum, const std::string &value);
};

} // namespace zcc
