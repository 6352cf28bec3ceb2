// Programs of unit tests: operators and kernels computed together, by what zcc makes of them and by the interpreter.
#pragma once

#include "ir/Builder.h"
#include "ir/Interpreter.h"
#include "test/unit/OpCases.h"
#include "llvm/ADT/StringSet.h"
#include <map>
#include <random>

namespace zcc::test {

/// What programs compute on. Of the emulated GPU each access of a kernel is looked at, too. For a real one they are compiled and
/// linked, and not run.
enum class On { Cpu, EmulatedGpu, Gpu };

/// What a run is given and must return.
struct Batch {
  Module module;
  Function *eval = nullptr;
  std::vector<Tensor> args;
  std::vector<std::string> what; ///< a result each
  llvm::StringSet<> records;     ///< those that occur before any pass

  Elem elem = Elem::F32; ///< of what the operators compute; arguments and results are f32

  std::vector<Value *> draw(const OpCase &c, Builder &b, bool trained, std::mt19937 &random);
  void addForward(const OpCase &c, std::mt19937 &random);
  bool addEpilogue(const OpCase &c, std::mt19937 &random);
  void addGradients(llvm::ArrayRef<OpCase> cases, std::mt19937 &random);
  void finish();

private:
  std::map<const Value *, Tensor> values;
  Loc loc = makeLoc("node", "Op");
  Value *term(const OpCase &c, Node &n, std::mt19937 &random);
  void argumentsForGlobals();
};

/// Compiles and runs a batch: what it returns is what the interpreter computes. For a real GPU it is only compiled.
void check(Batch &b, On on);

inline bool isHalf(Elem e) { return e == Elem::F16 || e == Elem::BF16; }

} // namespace zcc::test
