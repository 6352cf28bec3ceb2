// Every record of the operator table as a program computes it: the cases, and their gradients, go through the pipeline, the
// emitter and the compiler, and what the executable writes is what the naive interpreter computes, in fp32 and, where an operator
// may run in 16 bits, in those.
#include "codegen/cuda/Toolkit.h"
#include "ir/Op.h"
#include "test/unit/CompiledBatch.h"
#include <gtest/gtest.h>
#include <list>

namespace compiled_ops_test {

using namespace zcc;
using namespace zcc::test;

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
  llvm::erase_if(cases, [&](const OpCase &c) { return on != On::Cpu && hasBlocks(c); });
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

/// Tests that need CUDA's toolkit, and no GPU.
class CompiledOpsGpu : public testing::Test {
protected:
  void SetUp() override {
#ifdef ZCC_SANITIZED
    GTEST_SKIP() << "the same without a sanitizer";
#endif
    if (auto e = checkToolkit())
      GTEST_SKIP() << llvm::toString(std::move(e));
  }
};

TEST(CompiledOps, ForwardEqualsTheInterpreter) { checkForward(On::Cpu); }
TEST(CompiledOps, GradientsEqualTheInterpreter) { checkGradients(On::Cpu); }
TEST(CompiledOpsEmulatedGpu, ForwardEqualsTheInterpreter) { checkForward(On::EmulatedGpu); }
TEST(CompiledOpsEmulatedGpu, GradientsEqualTheInterpreter) { checkGradients(On::EmulatedGpu); }
TEST_F(CompiledOpsGpu, Forward) { checkForward(On::Gpu); }
TEST_F(CompiledOpsGpu, Gradients) { checkGradients(On::Gpu); }

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
TEST_F(CompiledOpsGpu, LowPrecision) { checkLowPrecision(On::Gpu); }

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
TEST_F(CompiledOpsGpu, Epilogues) { checkEpilogues(On::Gpu); }

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

} // namespace compiled_ops_test
