// Collects the kernels of a program: equal loops over equal strides are one C++ function.
#include "codegen/EmitKernels.h"
#include "codegen/LoopEmitter.h"
#include "codegen/ScalarCode.h"
#include "ir/Op.h"
#include "ir/View.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>

using namespace zcc;

static std::string strideKey(llvm::ArrayRef<Dims> strides, const Function &kernel) {
  std::string s;
  for (unsigned i = 0; i < strides.size(); ++i) {
    s += ';';
    if (strides[i] == denseStrides(kernel.args[i]->type.localDims()))
      continue;
    for (int64_t x : strides[i])
      s += std::to_string(x) + ",";
  }
  return s;
}

/// Strides of the operands of a fused node. Error: one is no view of memory.
static llvm::Expected<std::vector<Dims>> operandStrides(const Node &fused) {
  std::vector<Dims> strides;
  for (Value *v : fused.operands()) {
    auto view = viewOf(v);
    if (!view)
      return errorAt(fused.loc, "operand '" + v->name + "' of a kernel is no view of memory");
    strides.push_back(view->strides);
  }
  return strides;
}

llvm::Expected<std::string> KernelEmitter::call(const Node &fused, llvm::function_ref<std::string(const Value *)> pointer) {
  std::string name = fused.attrs.s("kernel");
  const Function *k = module.function(name);
  if (!k)
    return errorAt(fused.loc, "no kernel '" + name + "'");
  auto strides = operandStrides(fused);
  if (!strides)
    return strides.takeError();
  std::string &symbol = symbols[name + strideKey(*strides, *k)];
  LoopEmitter emitter(*k, *strides, threads);
  bool hasScratch = emitter.scratchBytes() > 0;
  if (symbol.empty()) {
    // The same kernel over other strides gets a number of its own.
    unsigned variants = 0;
    for (auto &s : symbols)
      variants += s.getKey().split(';').first == name;
    symbol = variants > 1 ? name + "_" + std::to_string(variants - 1) : name;
    std::string params, casts, what;
    auto add = [&](const std::string &p, Elem e, bool isConst) {
      std::string type = storageType(e);
      params += (params.empty() ? "char *" : ", char *") + p + "_";
      casts += "  " + std::string(isConst ? "const " : "") + type + " *const " + p + " = (" + type + " *)" + p + "_;\n";
    };
    for (unsigned i = 0; i < k->args.size(); ++i)
      add("a" + std::to_string(i), k->args[i]->type.elem, true);
    for (unsigned i = 0; i < k->results.size(); ++i)
      add("r" + std::to_string(i), k->results[i]->type.elem, false);
    if (hasScratch)
      params += ", char *scratch";
    for (auto &n : k->nodes)
      if (n->op->isElementwise() || n->op->reduction)
        what += std::string(" ") + n->op->name;
    heads += "void " + symbol + "(" + params + ");\n";
    functions.push_back("//" + what + "\nvoid " + symbol + "(" + params + ") {\n" + casts + emitter.body() + "}\n\n");
  }
  std::string c = symbol + "(";
  bool first = true;
  auto add = [&](const std::string &a) {
    c += (first ? "" : ", ") + a;
    first = false;
  };
  for (Value *v : fused.operands())
    add(pointer(v));
  for (auto &r : fused.results)
    add(pointer(r.get()));
  if (hasScratch)
    add("A + " + std::to_string(fused.attrs.i("scratch")));
  return c + ")";
}

int64_t KernelEmitter::scratchBytes(const Node &fused) {
  const Function *k = fused.parent()->module->function(fused.attrs.s("kernel"));
  auto strides = operandStrides(fused);
  if (!strides) { // call() says so
    llvm::consumeError(strides.takeError());
    return 0;
  }
  return k ? LoopEmitter(*k, *strides, /*threads=*/1).scratchBytes() : 0;
}

std::string KernelEmitter::sourceHead() const {
  return "// Kernels of " + module.name +
         ". Sums have the order that their extent gives: compile with -ffp-contract=off.\n"
         "#include \"runtime/cpu/KernelMath.h\"\n\n";
}

std::string KernelEmitter::source() const { return sourceHead() + llvm::join(functions, ""); }

std::vector<std::string> KernelEmitter::sources() const {
  constexpr size_t kMostParts = 4, kPartBytes = 32 << 10; // that takes the compiler half a second
  size_t total = 0, done = 0;
  for (const std::string &f : functions)
    total += f.size();
  size_t parts = std::clamp<size_t>(total / kPartBytes, 1, kMostParts);
  std::vector<std::string> out(parts, sourceHead());
  for (const std::string &f : functions) {
    out[done * parts / total] += f;
    done += f.size();
  }
  return out;
}

std::string KernelEmitter::declarations() const { return heads; }
