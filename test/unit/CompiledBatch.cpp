// A batch goes through the pipeline, the emitter and the compiler; what the executable writes is compared.
#include "test/unit/CompiledBatch.h"
#include "RuntimeTest.h"
#include "codegen/CpuTarget.h"
#include "codegen/EmitProgram.h"
#include "codegen/Link.h"
#include "codegen/cuda/CudaTarget.h"
#include "ir/Control.h"
#include "passes/PassManager.h"
#include "passes/Pipeline.h"
#include "tools/Npz.h"
#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <map>

using namespace zcc;
using namespace zcc::test;

namespace {

constexpr int kThreads = 2;
#ifdef ZCC_SANITIZED
constexpr CudaDevice kEmulation = CudaDevice::Emulated;
#else
constexpr CudaDevice kEmulation = CudaDevice::Checked;
#endif

} // namespace

// ---- modules

static Tensor tensorOf(const Operand &o) {
  Tensor t(o.type);
  t.f = o.f;
  t.i = o.i;
  roundAll(t, Compute::F32);
  return t;
}

/// The operands as arguments of the function or, if they are trained, as globals; floats in `elem`.
std::vector<Value *> Batch::draw(const OpCase &c, Builder &b, bool trained, std::mt19937 &random) {
  auto inElem = [&](Value *v) { return v->type.elem == Elem::F32 ? b.cast(v, elem) : v; };
  std::vector<Value *> operands;
  for (const Operand &o : drawOperands(c, random)) {
    if (!o.present) {
      operands.push_back(nullptr);
      continue;
    }
    Tensor t = tensorOf(o);
    if (!trained) {
      operands.push_back(inElem(b.fn.addArg("x" + std::to_string(args.size()), o.type)));
      args.push_back(std::move(t));
      continue;
    }
    bool isParam = isFloat(o.type.elem);
    GlobalValue *g =
        module.addGlobal(isParam ? GlobalValue::Param : GlobalValue::State, "x" + std::to_string(values.size()), o.type, Init());
    g->trained = isParam;
    g->loc = loc;
    g->attrs.set("case", describe(c) + ", operand " + std::to_string(operands.size()));
    values[g] = std::move(t);
    operands.push_back(inElem(g));
  }
  return operands;
}

void Batch::addForward(const OpCase &c, std::mt19937 &random) {
  if (!eval)
    eval = module.addFunction("eval");
  Builder b(*eval, nullptr, loc);
  Node *n = b.node(*findOp(c.op), draw(c, b, false, random), c.attrs);
  records.insert(c.op);
  for (auto &r : n->results) {
    what.push_back(describe(c) + ", result " + std::to_string(r->index));
    eval->results.push_back(isHalf(r->type.elem) && elem != Elem::F32 ? b.cast(r.get(), Elem::F32) : r.get());
  }
}

/// The operator behind a product: of an operand that is as large as the result with a unit matrix. Whether there is one.
bool Batch::addEpilogue(const OpCase &c, std::mt19937 &random) {
  if (!eval)
    eval = module.addFunction("eval");
  Builder b(*eval, nullptr, loc);
  const size_t before = args.size();
  std::vector<Value *> operands = draw(c, b, false, random);
  Node *n = b.node(*findOp(c.op), operands, c.attrs);
  const Dims dims = n->result()->type.dims;
  for (unsigned i = 0; i < operands.size(); ++i) {
    Value *v = operands[i];
    if (!v || v->type.elem != elem || v->type.dims != dims || dims.size() < 2)
      continue;
    Tensor unit(Type(Elem::F32, {dims.back(), dims.back()}));
    for (int64_t e = 0; e < dims.back(); ++e)
      unit.f[e * dims.back() + e] = 1;
    Builder inFront(*eval, n, loc);
    Value *factor = eval->addArg("x" + std::to_string(args.size()), unit.type);
    args.push_back(std::move(unit));
    n->setOperand(i, inFront.make(ops::matmul, {v, inFront.cast(factor, elem)}));
    what.push_back(describe(c) + " behind a product");
    eval->results.push_back(isHalf(n->result()->type.elem) ? b.cast(n->result(), Elem::F32) : n->result());
    return true;
  }
  n->erase();
  eraseDeadNodes(*eval);
  for (; args.size() > before; args.pop_back())
    eval->eraseArg(unsigned(args.size() - 1));
  return false;
}

/// The sum of the results, each element times a random number.
Value *Batch::term(const OpCase &c, Node &n, std::mt19937 &random) {
  Builder b(*eval, nullptr, loc);
  std::uniform_real_distribution<double> uniform(0.5, 2);
  Value *loss = nullptr;
  for (auto &r : n.results) {
    if (!isFloat(r->type.elem) || !(c.results >> r->index & 1))
      continue;
    Type type = r->type.withElem(r->type.elem == elem ? Elem::F32 : r->type.elem);
    GlobalValue *w = module.addGlobal(GlobalValue::State, "r" + std::to_string(values.size()), type, Init());
    w->loc = loc;
    Tensor t(type);
    for (double &x : t.f)
      x = uniform(random);
    roundAll(t, Compute::F32);
    values[w] = std::move(t);
    Dims axes;
    for (unsigned i = 0; i < r->type.ndim(); ++i)
      axes.push_back(i);
    Value *sum = b.make(ops::mul, {b.cast(r.get(), type.elem), w});
    sum = b.cast(b.reshape(axes.empty() ? sum : b.reduceSum(sum, axes), {}), Elem::F32);
    loss = loss ? b.make(ops::add, {loss, sum}) : sum;
  }
  return loss;
}

/// @eval returns the gradients of all cases' float operands.
void Batch::addGradients(llvm::ArrayRef<OpCase> cases, std::mt19937 &random) {
  eval = module.addFunction("micro");
  Builder b(*eval, nullptr, loc);
  Value *loss = nullptr;
  for (const OpCase &c : cases) {
    if (findOp(c.op)->noGrad)
      continue;
    Node *n = b.node(*findOp(c.op), draw(c, b, true, random), c.attrs);
    Value *t = term(c, *n, random);
    loss = loss ? b.make(ops::add, {loss, t}) : t;
  }
  eval->results = {loss};
  Options options;
  PassContext ctx{options, {}, {}};
  auto changed = differentiate(module, ctx);
  ASSERT_TRUE(bool(changed)) << llvm::toString(changed.takeError());
  eval->results.clear();
  for (Node *n = eval->first(), *next; n; n = next) {
    next = n->next();
    if (!assigns(*n))
      continue;
    auto *state = static_cast<GlobalValue *>(n->operand(0));
    what.push_back("gradient of " + module.global(state->attrs.s("of"))->attrs.s("case"));
    eval->results.push_back(n->operand(1));
    n->erase();
    module.eraseGlobals({state});
  }
  eraseDeadNodes(*eval); // of the loss: what no gradient reads
  for (auto &n : eval->nodes)
    records.insert(n->op->name);
  argumentsForGlobals();
  module.rename(*eval, "eval");
  module.properties = 0;
}

void Batch::argumentsForGlobals() {
  while (!module.globals.empty()) {
    GlobalValue *g = module.globals.back().get();
    Value *arg = eval->addArg(g->name + ".in", g->type);
    g->replaceAllUsesWith(arg);
    args.push_back(std::move(values[g]));
    module.eraseGlobals({g});
  }
}

void Batch::finish() {
  for (size_t i = 0; i < eval->results.size(); ++i)
    eval->resultNames.push_back("y" + std::to_string(i));
}

// ---- running

static std::unique_ptr<Target> targetOf(On on, llvm::StringRef isa) {
  if (on == On::Cpu)
    return cpuTarget(isa, kThreads);
  return cudaTarget("sm_80", on == On::Gpu ? CudaDevice::Gpu : kEmulation, cpuTarget(isa, kThreads));
}

/// Compiles as `zcc --loss=none` does; nothing on failure.
static void compile(Module &m, On on, const std::string &program) {
  Options options;
  options.inference = true;
  options.threads = kThreads;
  auto isa = isaOf("native");
  ASSERT_TRUE(bool(isa)) << llvm::toString(isa.takeError());
  auto target = targetOf(on, *isa);
  options.separateHost = on != On::Cpu;
  DumpOptions dump;
  PassManager passes(options, dump, target.get());
  buildPipeline(passes, options);
  passes.add("join-updates"); // where there are any
  auto e = passes.run(m);
  ASSERT_FALSE(bool(e)) << llvm::toString(std::move(e));
  ProgramInfo info;
  info.options = &options;
  info.target = target.get();
  info.planJson = "{}";
  info.isa = *isa;
  auto emitted = emitProgram(m, info);
  ASSERT_TRUE(bool(emitted)) << llvm::toString(emitted.takeError());
  emitted->optLevel = on == On::Cpu ? 3 : 1; // an emulated GPU's threads are compiled for longer than they run
  e = link(*emitted, "native", program);
  ASSERT_FALSE(bool(e)) << llvm::toString(std::move(e));
}

/// The first difference that rounding does not explain, or "". `exact` is what the interpreter computes in fp64;
/// `unit`: by how much one more rounding may change a number.
static std::string difference(const Tensor &got, const Tensor &want, const Tensor &exact, double unit) {
  double top = 1e-3, rounding = 0;
  for (size_t i = 0; i < want.f.size(); ++i) {
    if (std::isfinite(want.f[i]))
      top = std::max(top, std::fabs(want.f[i]));
    if (std::isfinite(want.f[i]) && std::isfinite(exact.f[i]))
      rounding = std::max(rounding, std::fabs(want.f[i] - exact.f[i]));
  }
  constexpr double kOfRounding = 8;
  for (size_t i = 0; i < want.f.size(); ++i) {
    double g = got.f[i], w = want.f[i];
    bool same =
        std::isfinite(w) ? std::fabs(g - w) <= unit * top + kOfRounding * rounding : g == w || (std::isnan(g) && std::isnan(w));
    if (!same)
      return "element " + std::to_string(i) + " is " + std::to_string(g) + ", expected " + std::to_string(w);
  }
  for (size_t i = 0; i < want.i.size(); ++i)
    if (got.i[i] != want.i[i])
      return "element " + std::to_string(i) + " is " + std::to_string(got.i[i]) + ", expected " + std::to_string(want.i[i]);
  return "";
}

void zcc::test::check(Batch &b, On on) {
  b.finish();
  runtimetest::Folder folder;
  if (on == On::Gpu)
    return compile(b.module, on, folder / "program");
  std::vector<Tensor> want, exact;
  for (auto [compute, out] : {std::pair(Compute::F32, &want), std::pair(Compute::F64, &exact)}) {
    Memory memory;
    auto results = runFunction(*b.eval, b.args, memory, compute);
    ASSERT_TRUE(bool(results)) << llvm::toString(results.takeError());
    *out = std::move(*results);
  }
  std::map<std::string, Array> inputs;
  for (size_t i = 0; i < b.args.size(); ++i)
    inputs[b.eval->args[i]->name] = {b.args[i].type, tensorToBytes(b.args[i])};
  ASSERT_FALSE(bool(writeNpz(folder / "in.npz", inputs)));
  compile(b.module, on, folder / "program");
  if (testing::Test::HasFatalFailure())
    return;
  auto run = runtimetest::shell(folder / "program" + " --eval --data=" + folder / "in.npz" + " --outputs=" + folder / "out.npz");
  ASSERT_EQ(run.status, 0) << run.err;
  auto outputs = readNpz(folder / "out.npz");
  ASSERT_TRUE(bool(outputs)) << llvm::toString(outputs.takeError());
  for (size_t i = 0; i < want.size(); ++i) {
    const Array &a = (*outputs)["y" + std::to_string(i)];
    ASSERT_EQ(a.bytes.size(), size_t(want[i].type.localBytes())) << b.what[i];
    double unit = b.elem == Elem::F32 ? 3e-6 : b.elem == Elem::F16 ? 0x1p-10 : 0x1p-7;
    std::string why = difference(tensorFromBytes(want[i].type, a.bytes), want[i], exact[i], unit);
    EXPECT_EQ(why, "") << b.what[i];
  }
  // No pass may leave the test without what it is about.
  llvm::StringSet<> called;
  for (auto &n : b.module.function("eval")->nodes)
    called.insert(n->op->feedsKernel ? ops::matmul.name : n->op->name); // what follows a product may be in its node
  for (auto &name : b.records) {
    const OpDef *op = findOp(name.first());
    EXPECT_TRUE(!op->kernel || called.contains(op->name)) << "the program does not call '" << op->name << "'";
  }
}
