// Every record of the operator table as a program computes it: the cases, and their gradients, go through the pipeline, the
// emitter and the compiler, and what the executable writes is what the naive interpreter computes, in fp32 and, where an operator
// may run in 16 bits, in those.
#include "RuntimeTest.h"
#include "codegen/CpuTarget.h"
#include "codegen/EmitProgram.h"
#include "codegen/Link.h"
#include "codegen/cuda/CudaTarget.h"
#include "ir/Builder.h"
#include "ir/Control.h"
#include "ir/Interpreter.h"
#include "passes/PassManager.h"
#include "passes/Pipeline.h"
#include "test/unit/OpCases.h"
#include "tools/Npz.h"
#include "llvm/ADT/StringSet.h"
#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <list>

using namespace zcc;
using namespace zcc::test;

namespace {

constexpr int kThreads = 2;

/// What programs compute on. Of the emulated GPU each access of a kernel is looked at, too.
enum class On { Cpu, EmulatedGpu };
#ifdef ZCC_SANITIZED
constexpr CudaDevice kEmulation = CudaDevice::Emulated;
#else
constexpr CudaDevice kEmulation = CudaDevice::Checked;
#endif

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

} // namespace

static bool isHalf(Elem e) { return e == Elem::F16 || e == Elem::BF16; }

// ---- larger cases

/// Floating-point operations and elements of a case, or an error where its types do not fit.
static llvm::Expected<double> flopsOf(const OpCase &c) {
  Module m;
  Function *f = m.addFunction("f");
  Builder b(*f, nullptr, makeLoc("node", "Op"));
  std::vector<Value *> operands;
  llvm::SmallVector<llvm::StringRef, 8> texts;
  llvm::StringRef(c.operands).split(texts, ", ", -1, /*KeepEmpty=*/false);
  for (llvm::StringRef text : texts)
    operands.push_back(text == "_" ? nullptr : f->addArg("x", parseType(text).value()));
  auto n = b.tryMake(*findOp(c.op), operands, c.attrs);
  if (!n)
    return n.takeError();
  double flops = (*n)->op->flops ? (*n)->op->flops(**n) : 0;
  for (auto &r : (*n)->results)
    flops += double(r->type.count());
  for (Value *v : operands)
    flops += v ? double(v->type.count()) : 0;
  return flops;
}

/// Every axis but those of 1 so many times as long.
static std::string scaled(llvm::StringRef operands, int64_t factor) {
  std::string out;
  bool inDims = false;
  while (!operands.empty()) {
    int64_t d;
    if (inDims && !operands.consumeInteger(10, d)) {
      out += std::to_string(d == 1 ? 1 : d * factor);
      continue;
    }
    inDims = operands.front() == '[' || (inDims && operands.front() != ']');
    out += operands.front();
    operands = operands.drop_front();
  }
  return out;
}

/// A GPU's convolutions read no blocks of channels.
static std::vector<OpCase> computedOn(On on, std::vector<OpCase> cases) {
  llvm::erase_if(cases, [&](const OpCase &c) { return on == On::EmulatedGpu && hasBlocks(c); });
  return cases;
}

/// The cases, and each that no attribute ties to its shape once more with long axes: for vectors, blocks and threads.
static std::vector<OpCase> withLarger(llvm::ArrayRef<OpCase> cases) {
  constexpr double kMostFlops = 1e6;
  static std::list<std::string> texts;
  std::vector<OpCase> out = cases;
  for (const OpCase &c : cases) {
    bool lastIsCount = c.op == llvm::StringRef("gather_nd"); // of the indices
    if (c.attrs.has("dims") || c.attrs.has("block") || lastIsCount)
      continue;
    for (int64_t factor : {45, 9, 5, 3}) {
      OpCase larger = c;
      texts.push_back(scaled(c.operands, factor));
      larger.operands = texts.back().c_str();
      auto flops = flopsOf(larger);
      if (!flops) {
        ADD_FAILURE() << describe(larger) << ": " << llvm::toString(flops.takeError());
        break;
      }
      if (*flops > kMostFlops)
        continue;
      out.push_back(larger);
      break;
    }
  }
  return out;
}

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
  return on == On::Cpu ? cpuTarget(isa, kThreads) : cudaTarget("sm_80", kEmulation, cpuTarget(isa, kThreads));
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

static void check(Batch &b, On on) {
  b.finish();
  std::vector<Tensor> want, exact;
  for (auto [compute, out] : {std::pair(Compute::F32, &want), std::pair(Compute::F64, &exact)}) {
    Memory memory;
    auto results = runFunction(*b.eval, b.args, memory, compute);
    ASSERT_TRUE(bool(results)) << llvm::toString(results.takeError());
    *out = std::move(*results);
  }
  runtimetest::Folder folder;
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

static void fillForward(Batch &b, On on) {
  std::mt19937 random(3);
  for (const auto &cases : {opCases(), otherCases()})
    for (const OpCase &c : withLarger(computedOn(on, cases)))
      b.addForward(c, random);
}

static void fillGradients(Batch &b, On on) {
  std::mt19937 random(4);
  b.addGradients(withLarger(computedOn(on, opCases())), random);
}

static void checkForward(On on) {
  Batch b;
  fillForward(b, on);
  check(b, on);
}

static void checkGradients(On on) {
  Batch b;
  fillGradients(b, on);
  check(b, on);
}

TEST(CompiledOps, ForwardEqualsTheInterpreter) { checkForward(On::Cpu); }
TEST(CompiledOps, GradientsEqualTheInterpreter) { checkGradients(On::Cpu); }
TEST(CompiledOpsEmulatedGpu, ForwardEqualsTheInterpreter) { checkForward(On::EmulatedGpu); }
TEST(CompiledOpsEmulatedGpu, GradientsEqualTheInterpreter) { checkGradients(On::EmulatedGpu); }

/// The cases of operators that lower-precision leaves in 16 bits; those of libraries at more lengths.
static std::vector<OpCase> lowCases() {
  std::vector<OpCase> pointwise, library;
  for (const OpCase &c : opCases()) {
    const OpDef &op = *findOp(c.op);
    if (op.precision == Precision::F32 || op.expand || op.converts())
      continue;
    (op.kernel ? library : pointwise).push_back(c);
  }
  library = withLarger(library);
  pointwise.insert(pointwise.end(), library.begin(), library.end());
  return pointwise;
}

static void checkLowPrecision(On on) {
  for (Elem elem : {Elem::BF16, Elem::F16}) {
    Batch forward, gradients;
    forward.elem = gradients.elem = elem;
    std::mt19937 random(5);
    for (const OpCase &c : computedOn(on, lowCases()))
      forward.addForward(c, random);
    check(forward, on);
    gradients.addGradients(computedOn(on, lowCases()), random);
    check(gradients, on);
  }
}

TEST(CompiledOps, LowPrecisionEqualsTheInterpreter) { checkLowPrecision(On::Cpu); }
TEST(CompiledOpsEmulatedGpu, LowPrecisionEqualsTheInterpreter) { checkLowPrecision(On::EmulatedGpu); }

/// Kernels over several parts: updates with operands of their own that are equal otherwise, their sums too.
static void checkParts(On on) {
  constexpr int kParts = 3;
  const Elem elems[] = {Elem::F32, Elem::F64, Elem::BF16, Elem::F16, Elem::I64, Elem::I32, Elem::U8, Elem::Bool};
  const int64_t sizes[] = {7, 300, 40000}; // a row, more of them than a block, in units
  Batch b;
  b.eval = b.module.addFunction("eval");
  std::mt19937 random(6);
  Loc loc = makeLoc("node", "Op");
  Builder build(*b.eval, nullptr, loc);
  for (Elem e : elems)
    for (int64_t size : sizes)
      for (int part = 0; part < kParts; ++part) {
        std::string name = std::to_string(b.args.size());
        OpCase c{"neg", "", {}};
        std::string text = Type(Elem::F32, {size}).str();
        c.operands = text.c_str();
        Value *x = b.draw(c, build, false, random)[0];
        GlobalValue *g = b.module.addGlobal(GlobalValue::State, "g" + name, Type(e, {size}), Init{Init::Splat, 1.5});
        g->loc = loc;
        Value *y = build.make(ops::add, {build.make(ops::mul, {x, build.cast(g, Elem::F32)}), x});
        for (Value *v : {y, build.reduceSum(build.make(ops::mul, {y, y}), {0})}) {
          b.eval->results.push_back(v);
          b.what.push_back("part " + std::to_string(part) + " of " + Type(e, {size}).str());
        }
      }
  for (auto &n : b.eval->nodes)
    n->phase = Phase::Update;
  // Where most memory lives is behind them: there is room for the units of several sums.
  Value *large = b.draw({"neg", "f32[9999]", {}}, build, false, random)[0];
  b.eval->results.push_back(build.make(ops::neg, {large}));
  b.what.push_back("the rest");
  check(b, on);
  int joined = 0;
  for (auto &n : b.eval->nodes)
    joined += n->op->isFused() && n->attrs.i("parts", 1) == kParts;
  EXPECT_EQ(joined, int(std::size(elems) * std::size(sizes)));
}

TEST(CompiledOps, PartsEqualTheInterpreter) { checkParts(On::Cpu); }
TEST(CompiledOpsEmulatedGpu, PartsEqualTheInterpreter) { checkParts(On::EmulatedGpu); }

/// Sums that blocks of a GPU share: of few long rows and columns, and of all, in one pass and where a second one needs them.
static void checkLongSums(On on) {
  struct {
    const char *operand;
    Dims axes;
  } cases[] = {{"f32[3x40000]", {1}}, {"f32[2x3x20000]", {0, 2}}, {"f32[40000]", {0}},         {"f32[3x20001]", {0, 1}},
               {"f32[700x5]", {0}},   {"f32[2x600x40]", {1}},     {"f32[30x2x30x33]", {0, 2}}, {"i64[700x5]<90", {0}}};
  Batch b;
  b.eval = b.module.addFunction("eval");
  std::mt19937 random(6);
  Loc loc = makeLoc("node", "Op");
  Builder build(*b.eval, nullptr, loc);
  for (auto &[operand, axes] : cases) {
    Value *x = b.draw({"neg", operand, {}, 0.5, 2}, build, false, random)[0];
    Value *sum = build.reduceSum(x, axes),
          *away = x->type.elem == Elem::F32 ? build.expr("x - s * 1e-5", {{"x", x}, {"s", sum}}) : build.make(ops::sub, {x, sum});
    Value *most = build.make(ops::reduce_max, {x}, {{"axes", std::vector<int64_t>(axes.begin(), axes.end())}});
    for (Value *v : {sum, most, build.make(ops::add, {build.reduceSum(build.make(ops::mul, {away, away}), axes), most}), away}) {
      b.eval->results.push_back(v);
      b.what.push_back(std::string("result ") + std::to_string(b.what.size() % 4) + " of " + operand);
    }
  }
  check(b, on);
}

TEST(CompiledOps, LongSumsEqualTheInterpreter) { checkLongSums(On::Cpu); }
TEST(CompiledOpsEmulatedGpu, LongSumsEqualTheInterpreter) { checkLongSums(On::EmulatedGpu); }

/// A kernel of short and of long rows with sums over them, the last unit of rows a part of one; these sums have the bits that a
/// kernel of their own gives them.
static void checkSumsOverRows(On on) {
  Batch b;
  b.eval = b.module.addFunction("eval");
  std::mt19937 random(6);
  Loc loc = makeLoc("node", "Op");
  Builder build(*b.eval, nullptr, loc);
  for (const Dims &dims : {Dims{600, 33}, Dims{513, 600}, Dims{700, 1030}}) {
    const Type whole(Elem::F32, dims), row(Elem::F32, {dims[1]});
    Function *kernel = b.module.addFunction("rows" + std::to_string(dims[1]));
    kernel->isKernel = true;
    Builder in(*kernel, nullptr, loc);
    Value *x = kernel->addArg("x", whole), *y = kernel->addArg("y", whole), *w = kernel->addArg("w", row);
    Value *mean = in.reduceSum(in.make(ops::mul, {x, y}), {1});
    Value *away = in.expr("(x - s * 1e-2) * w", {{"x", x}, {"s", mean}, {"w", w}});
    Value *sum = in.make(ops::reshape, {in.reduceSum(away, {0})}, {{"dims", std::vector<int64_t>{dims[1]}}});
    kernel->results = {away, mean, in.make(ops::sub, {w, sum}), in.reduceSum(away, {0}), in.reduceSum(x, {0})};
    Node *n = b.eval->insert(std::make_unique<Node>(&ops::fused, loc));
    n->attrs.set("kernel", kernel->name);
    for (const Type &t : {whole, whole, row})
      n->addOperand(b.draw({"neg", t.str().c_str(), {}}, build, false, random)[0]);
    for (Value *r : kernel->results) {
      std::string name = "y" + std::to_string(b.eval->results.size());
      n->results.push_back(std::make_unique<Value>(Value::Result, name, r->type));
      n->results.back()->def = n;
      n->results.back()->index = n->results.size() - 1;
      b.eval->results.push_back(n->results.back().get());
    }
    Value *again = b.eval->addArg("again" + std::to_string(dims[1]), whole);
    b.args.push_back(b.args[b.args.size() - 3]);
    Value *alone = build.reduceSum(n->result(0), {0}), *ofOperand = build.reduceSum(again, {0});
    b.eval->results.push_back(build.expr("(a - b) * 1e9", {{"a", n->result(3)}, {"b", alone}}));
    b.eval->results.push_back(build.expr("(a - b) * 1e9", {{"a", n->result(4)}, {"b", ofOperand}}));
    for (int i = 0; i < 7; ++i)
      b.what.push_back("result " + std::to_string(i) + " of " + whole.str());
  }
  check(b, on);
}

TEST(CompiledOps, SumsOverRowsBesideThem) { checkSumsOverRows(On::Cpu); }
TEST(CompiledOpsEmulatedGpu, SumsOverRowsBesideThem) { checkSumsOverRows(On::EmulatedGpu); }

/// Every elementwise operator as the kernel of a product's node.
static void checkEpilogues(On on) {
  for (Elem elem : {Elem::F32, Elem::BF16, Elem::F16}) {
    Batch b;
    b.elem = elem;
    std::mt19937 random(6);
    int count = 0;
    for (const OpCase &c : elem == Elem::F32 ? withLarger(opCases()) : lowCases())
      if (const OpDef &op = *findOp(c.op); op.isElementwise() && !op.isIdentity() && !op.stopsGradient)
        count += b.addEpilogue(c, random);
    EXPECT_TRUE(count > 12 || std::getenv("ZCC_OP"));
    if (!count)
      continue;
    check(b, on);
    int attached = 0;
    for (auto &n : b.eval->nodes)
      attached += n->op->feedsKernel;
    EXPECT_EQ(attached, count);
  }
}

TEST(CompiledOps, EpiloguesEqualTheInterpreter) { checkEpilogues(On::Cpu); }
TEST(CompiledOpsEmulatedGpu, EpiloguesEqualTheInterpreter) { checkEpilogues(On::EmulatedGpu); }

// `structural` ones have no kernel: programs and ranks test them (test/e2e), control flow ControlTest. Those that feed a kernel
// of the module are tested above, packed values with the kernels that read them.
TEST(CompiledOps, EveryRecordThatComputesHasACase) {
  Batch forward, gradients;
  fillForward(forward, On::Cpu);
  fillGradients(gradients, On::Cpu);
  for (const OpDef *op : allOps())
    EXPECT_TRUE(op->structural || op->feedsKernel || op == &ops::pack || forward.records.contains(op->name) ||
                gradients.records.contains(op->name))
        << "'" << op->name << "' has no case in OpCases.cpp, and occurs in no gradient";
}
