// .zir -> passes -> .zir: the test tool. With --run it interprets a function naively, the oracle for everything else.
#include "ir/Interpreter.h"
#include "ir/Op.h"
#include "ir/Text.h"
#include "passes/Pipeline.h"
#include "passes/options/Help.h"
#include "passes/options/PassOptions.h"
#include "tools/Npz.h"
#include "tools/Process.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <map>

using namespace zcc;
using llvm::StringRef;
namespace cl = llvm::cl;

static cl::opt<std::string> input(cl::Positional, cl::desc("in.zir"), cl::init("-"), cl::cat(optionCategory()));
static cl::opt<std::string> output("o", cl::desc("file for the IR (default: standard output)"), cl::value_desc("FILE"),
                                   cl::cat(optionCategory()));
static cl::opt<bool> wholePipeline("pipeline", cl::desc("run all passes that zcc runs"), cl::cat(optionCategory()));
static cl::opt<std::string> runInput("run", cl::desc("interpret a function on arrays by argument or global name"),
                                     cl::value_desc("IN.npz"), cl::ValueOptional, cl::cat(optionCategory()));
static cl::opt<std::string> functionName("function", cl::desc("what --run interprets"), cl::value_desc("NAME"), cl::init("micro"),
                                         cl::cat(optionCategory()));
static cl::opt<bool> fp64("fp64", cl::desc("--run computes in double precision"), cl::cat(optionCategory()));
static cl::opt<std::string> outputs("outputs", cl::desc("file for the results of --run and the globals it wrote"),
                                    cl::value_desc("OUT.npz"), cl::cat(optionCategory()));

namespace {
/// --PASS for each pass, in the order of the command line.
struct PassList {
  cl::list<const PassDef *> list{cl::desc("passes, in this order:"), cl::cat(optionCategory())};
  PassList() {
    for (const PassDef &p : allPasses())
      list.getParser().addLiteralOption(p.name, &p, p.summary);
  }
};
} // namespace

// ---- --run

/// An array as a tensor of another width, of the same kind of element.
static llvm::Expected<Tensor> toTensor(StringRef name, const Array &a, const Type &t) {
  Tensor x = tensorFromBytes(a.type, a.bytes);
  if (a.type.dims != t.dims || isFloat(a.type.elem) != isFloat(t.elem))
    return error("array '" + name + "' is " + a.type.str() + ", but " + t.str() + " is needed");
  x.type = t;
  if (!fp64)
    for (double &v : x.f)
      v = roundTo(t.elem, v);
  return x;
}

static Array toArray(Tensor t) {
  if (t.isFloat() && (fp64 || t.type.elem == Elem::BF16))
    t.type.elem = fp64 ? Elem::F64 : Elem::F32;
  return {t.type, tensorToBytes(t)};
}

static void printTensor(StringRef name, const Tensor &t) {
  constexpr int64_t kShown = 64;
  llvm::outs() << '%' << name << " : " << t.type << " = [";
  for (int64_t i = 0; i < std::min(t.count(), kShown); ++i) {
    llvm::outs() << (i ? ", " : "");
    if (t.isFloat())
      llvm::outs() << llvm::format(fp64 ? "%.17g" : "%.9g", t.f[i]);
    else
      llvm::outs() << t.i[i];
  }
  llvm::outs() << (t.count() > kShown ? ", ...]\n" : "]\n");
}

static llvm::Expected<Memory> initialMemory(Module &m, const std::map<std::string, Array> &arrays) {
  Memory memory;
  for (auto &[name, a] : arrays) {
    GlobalValue *g = m.global(name);
    if (!g)
      continue;
    auto t = toTensor(name, a, g->type);
    if (!t)
      return t.takeError();
    memory[g] = std::move(*t);
  }
  return memory;
}

static llvm::Error interpret(Module &m) {
  std::map<std::string, Array> arrays;
  if (!runInput.empty()) {
    auto read = readNpz(runInput);
    if (!read)
      return read.takeError();
    arrays = std::move(*read);
  }
  Function *f = m.function(functionName);
  if (!f)
    return error("there is no function '@" + functionName + "'");
  std::vector<Tensor> args;
  for (auto &a : f->args) {
    auto at = arrays.find(a->name);
    if (at == arrays.end())
      return error("no array for argument '%" + a->name + "'");
    auto t = toTensor(a->name, at->second, a->type);
    if (!t)
      return t.takeError();
    args.push_back(std::move(*t));
  }
  for (auto &[name, a] : arrays)
    if (!f->arg(name) && !m.global(name))
      return error("array '" + name + "' is neither an argument nor a global");
  auto memory = initialMemory(m, arrays);
  if (!memory)
    return memory.takeError();
  auto results = runFunction(*f, args, *memory, fp64 ? Compute::F64 : Compute::F32);
  if (!results)
    return results.takeError();

  std::vector<std::pair<std::string, Tensor>> named;
  for (unsigned i = 0; i < results->size(); ++i) {
    bool hasName = i < f->resultNames.size() && !f->resultNames[i].empty();
    named.emplace_back(hasName ? f->resultNames[i] : f->results[i]->name, std::move((*results)[i]));
  }
  for (auto &n : f->nodes)
    if (n->op->writes && n->operand(0) && n->operand(0)->isGlobal())
      named.emplace_back(n->operand(0)->name, (*memory)[n->operand(0)]);
  if (outputs.empty()) {
    for (auto &[name, t] : named)
      printTensor(name, t);
    return llvm::Error::success();
  }
  std::map<std::string, Array> out;
  for (auto &[name, t] : named)
    out[name] = toArray(std::move(t));
  return writeNpz(outputs, out);
}

// ---- main

static llvm::Error process(const cl::list<const PassDef *> &passes, Options options, DumpOptions dump,
                           std::unique_ptr<Module> m) {
  if (!textsOf("ranks").empty())
    m->ranks = options.ranks;
  options.ranks = m->ranks;
  dump.flags = flagsOf(options);
  PassManager pm(options, dump);
  if (wholePipeline)
    buildPipeline(pm, options);
  for (const PassDef *p : passes)
    pm.add(p->name);
  if (dump.verifyRoundtrip)
    if (llvm::Error e = verifyRoundtrip(*m))
      return e;
  if (llvm::Error e = pm.run(*m))
    return e;
  PrintOptions print;
  print.locs = dump.locs;
  for (const std::string &file : {std::string(output), std::string(outputs)})
    if (llvm::Error e = file.empty() ? llvm::Error::success() : m->expectNotRead(file))
      return e;
  if (!output.empty())
    if (llvm::Error e = writeText(*m, output, print))
      return e;
  if (runInput.getNumOccurrences())
    return interpret(*m);
  if (output.empty())
    zcc::print(*m, llvm::outs(), print);
  return llvm::Error::success();
}

static int run(int argc, char **argv) {
  declareOptions(sharedOptions());
  PassList passes;
  if (!parseCommandLine(argc, argv, "zcc-opt: runs passes on .zir\n"))
    return 1;
  if (printTables())
    return 0;
  if (!outputs.empty() && !runInput.getNumOccurrences())
    return report("zcc-opt", error("--outputs is what --run computes; give that, too"));
  auto options = passOptions();
  if (!options)
    return report("zcc-opt", options.takeError());
  auto dump = dumpOptions();
  if (!dump)
    return report("zcc-opt", dump.takeError());
  auto buf = llvm::MemoryBuffer::getFileOrSTDIN(input);
  if (!buf)
    return report("zcc-opt", error("cannot read '" + input + "': " + buf.getError().message()));
  auto m = parse((*buf)->getBuffer(), input, llvm::sys::path::parent_path(input));
  if (!m) {
    llvm::consumeError(m.takeError()); // shown with its position
    return 1;
  }
  return report("zcc-opt", process(passes.list, *options, *dump, std::move(*m)));
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  return zcc::runTool(argc, argv, run, [] {});
}
