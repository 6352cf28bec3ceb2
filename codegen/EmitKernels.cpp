// Collects the kernels of a program: equal loops over equal strides are one C++ function.
#include "codegen/EmitKernels.h"
#include "codegen/EmitTables.h"
#include "codegen/LoopEmitter.h"
#include "codegen/ScalarCode.h"
#include "ir/Control.h"
#include "ir/Epilogue.h"
#include "ir/View.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>

using namespace zcc;

namespace {
/// What a fused node calls: a kernel over certain strides of its operands.
struct Called {
  const Function *kernel;
  std::vector<Dims> strides; ///< the same for all parts
  int64_t parts;

  /// By which calls of the same are known.
  std::string key() const {
    std::string s = kernel->name;
    for (unsigned i = 0; i < strides.size(); ++i) {
      s += ';';
      if (strides[i] == denseStrides(kernel->args[i]->type.localDims()))
        continue;
      for (int64_t x : strides[i])
        s += std::to_string(x) + ",";
    }
    return parts == 1 ? s : s + ";parts " + std::to_string(parts);
  }
};
} // namespace

/// Errors: there is no such kernel, an operand is no view of memory.
static llvm::Expected<Called> calledBy(const Node &fused) {
  std::string name = fused.attrs.s("kernel");
  Called c{fused.parent()->module->function(name), {}, fused.attrs.i("parts", 1)};
  if (!c.kernel)
    return errorAt(fused.loc, "no kernel '" + name + "'");
  auto operands = kernelOperands(fused);
  for (unsigned i = 0; i < operands.size(); ++i) {
    Value *v = operands[i];
    if (!v) {
      c.strides.push_back(denseStrides(c.kernel->args[i]->type.localDims()));
      continue;
    }
    auto view = viewOf(v);
    if (!view)
      return errorAt(fused.loc, "operand '" + v->name + "' of a kernel is no view of memory");
    if (c.parts > 1 && !view->isDense())
      return errorAt(fused.loc, "operand '" + v->name + "' of a part is not dense");
    if (c.strides.size() < c.kernel->args.size())
      c.strides.push_back(view->strides);
  }
  return c;
}

/// The operators of a kernel, for the reader.
static std::string what(const Function &kernel) {
  std::string s;
  for (auto &n : kernel.nodes)
    if (n->op->isElementwise() || n->op->reduction)
      s += std::string(" ") + n->op->name;
  return s;
}

KernelEmitter::KernelEmitter(const Module &m, llvm::ArrayRef<Space> spaces, const PrintKernel &print, std::string head)
    : head_(std::move(head)) {
  llvm::StringMap<size_t> bodyOf;
  llvm::StringMap<unsigned> symbols;
  for (const Function *f : calleesFirst(m))
    for (auto &n : f->nodes)
      if (runsKernel(*n) && llvm::is_contained(spaces, computeSpace(*n)))
        add(*n, print, bodyOf, symbols);
}

void zcc::printPointers(const LoopPlan &plan, std::string &params, std::string &casts) {
  const Function &kernel = *plan.kernel;
  const bool isOfParts = plan.parts > 1;
  unsigned count = 0;
  auto add = [&](const std::string &p, Elem e, bool isConst) {
    std::string type = storageType(e), from = isOfParts ? "(A + at[" + std::to_string(count++) + "])" : p + "_";
    if (!isOfParts)
      params += (params.empty() ? "char *" : ", char *") + p + "_";
    casts += "  " + std::string(isConst ? "const " : "") + type + " *const " + p + " = (" + type + " *)" + from + ";\n";
  };
  for (unsigned i = 0; i < kernel.args.size(); ++i)
    add("a" + std::to_string(i), kernel.args[i]->type.elem, true);
  for (unsigned i = 0; i < kernel.results.size(); ++i)
    add("r" + std::to_string(i), kernel.results[i]->type.elem, false);
  if (isOfParts)
    params = "char *A, std::initializer_list<int64_t> offsets";
  if (int64_t bytes = plan.scratchBytes()) {
    params += isOfParts ? ", char *scratches" : ", char *scratch";
    casts += isOfParts ? "  char *const scratch = scratches + part * " + std::to_string(bytes) + ";\n" : "";
  }
}

/// Makes the function of a fused node, or finds it. What is no kernel is left to call(), which says so.
void KernelEmitter::add(const Node &fused, const PrintKernel &print, llvm::StringMap<size_t> &bodyOf,
                        llvm::StringMap<unsigned> &symbols) {
  auto called = calledBy(fused);
  if (!called)
    return llvm::consumeError(called.takeError());
  const Function &k = *called->kernel;
  auto [variant, isNew] = variants.try_emplace(called->key());
  if (!isNew)
    return;
  KernelText made = print(k, called->strides, called->parts);
  Variant &v = variant->second;
  v.hasScratch = made.hasScratch;
  v.numbers = made.numbers;
  std::string types;
  for (const OpenNumber &n : v.numbers)
    types += n.type + ",";
  auto [body, isNewBody] = bodyOf.try_emplace(made.params + types + made.text, bodies.size());
  v.body = body->second;
  if (!isNewBody) {
    Body &shared = bodies[v.body];
    for (size_t i = 0; i < v.numbers.size(); ++i)
      shared.isArgument[i] = shared.isArgument[i] || v.numbers[i] != shared.numbers[i];
    return;
  }
  // The same kernel over other strides gets a number of its own.
  unsigned before = symbols[k.name]++;
  std::string symbol = before ? k.name + "_v" + std::to_string(before) : k.name;
  bodies.push_back({symbol, what(k), made.params, made.text, v.numbers, std::vector<bool>(v.numbers.size())});
}

llvm::Expected<std::string> KernelEmitter::call(const Node &fused, llvm::function_ref<std::string(const Value *)> pointer,
                                                llvm::function_ref<int64_t(const Value *)> offset) const {
  auto called = calledBy(fused);
  if (!called)
    return called.takeError();
  const Variant &variant = variants.find(called->key())->second;
  const Body &body = bodies[variant.body];
  std::vector<std::string> arguments;
  const auto values = kernelOperands(fused);
  const size_t operands = called->kernel->args.size(), results = called->kernel->results.size();
  for (int64_t part = 0; part < called->parts; ++part) {
    auto add = [&](const Value *v) { arguments.push_back(called->parts == 1 ? pointer(v) : std::to_string(offset(v))); };
    for (size_t i = 0; i < operands; ++i)
      add(values[part * operands + i]);
    for (size_t i = 0; i < results; ++i)
      add(fused.result(part * results + i));
  }
  if (called->parts > 1)
    arguments = {"A", "{" + llvm::join(arguments, ", ") + "}"};
  if (variant.hasScratch)
    arguments.push_back("A + " + std::to_string(fused.attrs.i("scratch")));
  for (size_t i = 0; i < variant.numbers.size(); ++i)
    if (body.isArgument[i])
      arguments.push_back(variant.numbers[i].text);
  return body.symbol + "(" + llvm::join(arguments, ", ") + ")";
}

int64_t KernelEmitter::scratchBytes(const Node &fused, int threads) {
  auto called = calledBy(fused);
  if (!called) {
    llvm::consumeError(called.takeError()); // call() says so
    return 0;
  }
  const Function &k = *called->kernel;
  if (llvm::none_of(k.nodes, [](auto &n) { return n->op->reduction != Reduction::None; })) // only sums wait in scratch memory
    return 0;
  return called->parts * planLoops(k, called->strides, threads, called->parts).scratchBytes();
}

/// Of open numbers: ", int64_t n0".
std::string KernelEmitter::numbers(const Body &b) const {
  std::string s;
  for (size_t i = 0; i < b.numbers.size(); ++i)
    if (b.isArgument[i])
      s += ", " + b.numbers[i].type + " n" + std::to_string(i);
  return s;
}

/// The names of what "char *a, int64_t n" declares.
static std::string namesOf(llvm::StringRef params) {
  std::vector<std::string> names;
  for (llvm::StringRef p : llvm::split(params, ", "))
    names.push_back(p.substr(p.find_last_of(" *") + 1).str());
  return llvm::join(names, ", ");
}

static void replaceAll(std::string &text, llvm::StringRef what, llvm::StringRef by) {
  for (size_t at = 0; (at = text.find(what.str(), at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by.str());
}

std::string KernelEmitter::definition(const Body &b) const {
  std::vector<std::string> texts;
  for (size_t i = 0; i < b.numbers.size(); ++i)
    texts.push_back(b.isArgument[i] ? "n" + std::to_string(i) : b.numbers[i].text);
  std::string text = replaceMarks(b.text, texts), given = numbers(b), list = b.params + given;
  replaceAll(text, "@SYMBOL", b.symbol);
  replaceAll(text, "@PARAMS", list);
  replaceAll(text, "@ARGUMENTS", namesOf(list));
  replaceAll(text, "@NUMBERS", given);
  replaceAll(text, "@GIVEN", given.empty() ? "" : ", " + namesOf(llvm::StringRef(given).drop_front(2)));
  return "//" + b.what + "\n" + text + "\n";
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
  std::vector<std::string> out(parts, head_);
  for (const std::string &f : functions) {
    out[done * parts / total] += f;
    done += f.size();
  }
  return out;
}

std::string KernelEmitter::declarations() const {
  std::string s;
  for (const Body &b : bodies)
    s += "void " + b.symbol + "(" + b.params + numbers(b) + ");\n";
  return s;
}

// ---- for the CPU

PrintKernel zcc::printForCpu(int threads) {
  return [threads](const Function &kernel, llvm::ArrayRef<Dims> strides, int64_t parts) {
    LoopPlan plan = planLoops(kernel, strides, threads, parts);
    KernelText t;
    t.hasScratch = plan.scratchBytes() > 0;
    std::string casts;
    printPointers(plan, t.params, casts);
    LoopEmitter emitter(plan, casts);
    t.text = "void @SYMBOL(@PARAMS) {\n" + emitter.body() + "}\n";
    t.numbers = emitter.openNumbers();
    return t;
  };
}

std::string zcc::sourceHeadForCpu(const Module &m) {
  return "// Kernels of " + inComment(m.name) +
         ". Sums have the order that their extent gives: compile with -ffp-contract=off.\n"
         "#include \"runtime/cpu/KernelMath.h\"\n#include \"runtime/cpu/Turn.h\"\n#include <initializer_list>\n\n";
}
