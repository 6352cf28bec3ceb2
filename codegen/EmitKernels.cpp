// Collects the kernels of a program: equal loops over equal strides are one C++ function.
#include "codegen/EmitKernels.h"
#include "codegen/LoopEmitter.h"
#include "codegen/ScalarCode.h"
#include "ir/Control.h"
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

/// The operators of a kernel, for the reader.
static std::string what(const Function &kernel) {
  std::string s;
  for (auto &n : kernel.nodes)
    if (n->op->isElementwise() || n->op->reduction)
      s += std::string(" ") + n->op->name;
  return s;
}

KernelEmitter::KernelEmitter(const Module &m, int threads) : module(m), threads(threads) {
  llvm::StringMap<size_t> bodyOf;
  llvm::StringMap<unsigned> symbols;
  for (const Function *f : calleesFirst(module))
    for (auto &n : f->nodes)
      if (n->op->structural == Structural::Fused)
        add(*n, bodyOf, symbols);
}

/// Parameters, and the typed pointers made of them.
static void printPointers(const Function &kernel, bool hasScratch, std::string &params, std::string &casts) {
  auto add = [&](const std::string &p, Elem e, bool isConst) {
    std::string type = storageType(e);
    params += (params.empty() ? "char *" : ", char *") + p + "_";
    casts += "  " + std::string(isConst ? "const " : "") + type + " *const " + p + " = (" + type + " *)" + p + "_;\n";
  };
  for (unsigned i = 0; i < kernel.args.size(); ++i)
    add("a" + std::to_string(i), kernel.args[i]->type.elem, true);
  for (unsigned i = 0; i < kernel.results.size(); ++i)
    add("r" + std::to_string(i), kernel.results[i]->type.elem, false);
  if (hasScratch)
    params += ", char *scratch";
}

/// Makes the function of a fused node, or finds it. What is no kernel is left to call(), which says so.
void KernelEmitter::add(const Node &fused, llvm::StringMap<size_t> &bodyOf, llvm::StringMap<unsigned> &symbols) {
  std::string name = fused.attrs.s("kernel");
  const Function *k = module.function(name);
  auto strides = operandStrides(fused);
  if (!strides)
    llvm::consumeError(strides.takeError());
  if (!k || !strides)
    return;
  auto [variant, isNew] = variants.try_emplace(name + strideKey(*strides, *k));
  if (!isNew)
    return;
  LoopPlan plan = planLoops(*k, *strides, threads);
  LoopEmitter emitter(plan);
  Variant &v = variant->second;
  v.hasScratch = plan.scratchBytes() > 0;
  std::string params, casts;
  printPointers(*k, v.hasScratch, params, casts);
  std::string text = casts + emitter.body(), types;
  v.numbers = emitter.openNumbers();
  for (const OpenNumber &n : v.numbers)
    types += n.type + ",";
  auto [body, isNewBody] = bodyOf.try_emplace(params + types + text, bodies.size());
  v.body = body->second;
  if (!isNewBody) {
    Body &shared = bodies[v.body];
    for (size_t i = 0; i < v.numbers.size(); ++i)
      shared.isArgument[i] = shared.isArgument[i] || v.numbers[i] != shared.numbers[i];
    return;
  }
  // The same kernel over other strides gets a number of its own.
  unsigned before = symbols[name]++;
  std::string symbol = before ? name + "_" + std::to_string(before) : name;
  bodies.push_back({symbol, what(*k), params, text, v.numbers, std::vector<bool>(v.numbers.size())});
}

llvm::Expected<std::string> KernelEmitter::call(const Node &fused, llvm::function_ref<std::string(const Value *)> pointer) const {
  std::string name = fused.attrs.s("kernel");
  const Function *k = module.function(name);
  if (!k)
    return errorAt(fused.loc, "no kernel '" + name + "'");
  auto strides = operandStrides(fused);
  if (!strides)
    return strides.takeError();
  const Variant &variant = variants.find(name + strideKey(*strides, *k))->second;
  const Body &body = bodies[variant.body];
  std::vector<std::string> arguments;
  for (Value *v : fused.operands())
    arguments.push_back(pointer(v));
  for (auto &r : fused.results)
    arguments.push_back(pointer(r.get()));
  if (variant.hasScratch)
    arguments.push_back("A + " + std::to_string(fused.attrs.i("scratch")));
  for (size_t i = 0; i < variant.numbers.size(); ++i)
    if (body.isArgument[i])
      arguments.push_back(variant.numbers[i].text);
  return body.symbol + "(" + llvm::join(arguments, ", ") + ")";
}

int64_t KernelEmitter::scratchBytes(const Node &fused) {
  const Function *k = fused.parent()->module->function(fused.attrs.s("kernel"));
  auto strides = operandStrides(fused);
  if (!strides) { // call() says so
    llvm::consumeError(strides.takeError());
    return 0;
  }
  return k ? planLoops(*k, *strides, /*threads=*/1).scratchBytes() : 0;
}

std::string KernelEmitter::sourceHead() const {
  return "// Kernels of " + module.name +
         ". Sums have the order that their extent gives: compile with -ffp-contract=off.\n"
         "#include \"runtime/cpu/KernelMath.h\"\n\n";
}

std::string KernelEmitter::head(const Body &b) const {
  std::string numbers;
  for (size_t i = 0; i < b.numbers.size(); ++i)
    if (b.isArgument[i])
      numbers += ", " + b.numbers[i].type + " n" + std::to_string(i);
  return "void " + b.symbol + "(" + b.params + numbers + ")";
}

std::string KernelEmitter::definition(const Body &b) const {
  std::vector<std::string> texts;
  for (size_t i = 0; i < b.numbers.size(); ++i)
    texts.push_back(b.isArgument[i] ? "n" + std::to_string(i) : b.numbers[i].text);
  return "//" + b.what + "\n" + head(b) + " {\n" + replaceMarks(b.text, texts) + "}\n\n";
}

std::string KernelEmitter::source() const {
  std::string s = sourceHead();
  for (const Body &b : bodies)
    s += definition(b);
  return s;
}

std::vector<std::string> KernelEmitter::sources() const {
  constexpr size_t kMostParts = 4, kPartBytes = 32 << 10; // that takes the compiler half a second
  size_t total = 0, done = 0;
  std::vector<std::string> functions;
  for (const Body &b : bodies) {
    functions.push_back(definition(b));
    total += functions.back().size();
  }
  size_t parts = std::clamp<size_t>(total / kPartBytes, 1, kMostParts);
  std::vector<std::string> out(parts, sourceHead());
  for (const std::string &f : functions) {
    out[done * parts / total] += f;
    done += f.size();
  }
  return out;
}

std::string KernelEmitter::declarations() const {
  std::string s;
  for (const Body &b : bodies)
    s += head(b) + ";\n";
  return s;
}
