// The interpreter against values worked out by hand.
#include "ir/Interpreter.h"
#include "ir/Builder.h"
#include "ir/Philox.h"
#include <chrono>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

namespace interpreter_test {

using namespace zcc;
using llvm::StringRef;
using Floats = std::vector<double>;
using Ints = std::vector<int64_t>;

static Tensor floats(Dims dims, Floats v, Elem e = Elem::F32) {
  Tensor t(Type(e, dims));
  t.f = std::move(v);
  return t;
}
static Tensor ints(Dims dims, Ints v, Elem e = Elem::I64) {
  Tensor t(Type(e, dims));
  t.i = std::move(v);
  return t;
}

namespace {
/// A function of one node on arguments.
struct OneNode {
  Module module;
  Function *f = module.addFunction("f");
  Node *node;

  OneNode(const OpDef &op, const std::vector<Tensor> &in, Attrs attrs) {
    std::vector<Value *> args;
    for (const Tensor &t : in)
      args.push_back(f->addArg("x", t.type));
    node = Builder(*f, nullptr, makeLoc("node")).node(op, args, std::move(attrs));
    for (auto &r : node->results)
      f->results.push_back(r.get());
  }
};
} // namespace

static std::vector<Tensor> run(const OpDef &op, const std::vector<Tensor> &in, Attrs attrs = {}) {
  OneNode one(op, in, std::move(attrs));
  Memory memory;
  return llvm::cantFail(runFunction(*one.f, in, memory));
}
static Floats f(const OpDef &op, const std::vector<Tensor> &in, Attrs attrs = {}) { return run(op, in, std::move(attrs))[0].f; }
static Ints i(const OpDef &op, const std::vector<Tensor> &in, Attrs attrs = {}) { return run(op, in, std::move(attrs))[0].i; }

TEST(Interpreter, ElementwiseBroadcasts) {
  Tensor m = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(f(ops::add, {m, floats({3}, {10, 20, 30})}), (Floats{11, 22, 33, 14, 25, 36}));
  EXPECT_EQ(f(ops::mul, {floats({2, 1}, {2, 3}), m}), (Floats{2, 4, 6, 12, 15, 18}));
  EXPECT_EQ(f(ops::sub, {m, floats({}, {1})}), (Floats{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(i(ops::lt, {m, floats({}, {3})}), (Ints{1, 1, 0, 0, 0, 0}));
  Tensor cond = ints({2, 1}, {1, 0}, Elem::Bool);
  EXPECT_EQ(f(ops::select, {cond, m, floats({}, {-1})}), (Floats{1, 2, 3, -1, -1, -1}));
}

TEST(Interpreter, RoundsToTheElement) {
  EXPECT_EQ(roundTo(Elem::F32, 0.1), double(0.1f));
  EXPECT_EQ(roundTo(Elem::BF16, 1 + 0x1p-8), 1); // a tie goes to even
  EXPECT_EQ(roundTo(Elem::BF16, 1 + 3 * 0x1p-8), 1 + 0x1p-6);
  EXPECT_EQ(roundTo(Elem::F16, 2049), 2048);
  EXPECT_EQ(roundTo(Elem::F16, 65520), INFINITY);
  EXPECT_EQ(roundTo(Elem::I8, 130), -126);
  EXPECT_EQ(roundTo(Elem::U8, -1), 255);
  EXPECT_EQ(i(ops::add, {ints({1}, {127}, Elem::I8), ints({1}, {1}, Elem::I8)}), (Ints{-128}));
  EXPECT_EQ(f(ops::add, {floats({1}, {256}, Elem::BF16), floats({1}, {1}, Elem::BF16)}), (Floats{256}));
}

TEST(Interpreter, Casts) {
  Tensor x = floats({4}, {-1.7, 0, 0.4, 300.9});
  EXPECT_EQ(i(ops::cast, {x}, {{"to", "i64"}}), (Ints{-1, 0, 0, 300}));
  EXPECT_EQ(i(ops::cast, {x}, {{"to", "bool"}}), (Ints{1, 0, 1, 1}));
  EXPECT_EQ(i(ops::cast, {x}, {{"to", "u8"}}), (Ints{255, 0, 0, 44}));
  EXPECT_EQ(f(ops::cast, {ints({2}, {3, -1})}, {{"to", "f32"}}), (Floats{3, -1}));
  EXPECT_EQ(f(ops::cast, {ints({1}, {-1}, Elem::U64)}, {{"to", "f32"}}), (Floats{0x1p64}));
}

TEST(Interpreter, BytesBothWays) {
  for (Elem e : {Elem::F32, Elem::F64, Elem::F16, Elem::BF16}) {
    Tensor t = floats({3}, {1.5, -2, 0.25}, e);
    std::string bytes = tensorToBytes(t);
    EXPECT_EQ(int64_t(bytes.size()), 3 * elemBytes(e));
    EXPECT_EQ(tensorFromBytes(t.type, bytes).f, t.f);
  }
  // A file can hold any byte; a bool of 61 is nothing C++ may load.
  EXPECT_EQ(tensorFromBytes(Type(Elem::Bool, {3}), StringRef("\0\x3d\1", 3)).i, (Ints{0, 1, 1}));
  EXPECT_EQ(tensorToBytes(ints({2}, {-2, 258}, Elem::I16)), StringRef("\xfe\xff\x02\x01", 4));
  EXPECT_EQ(tensorToBytes(floats({1}, {1}, Elem::BF16)), StringRef("\x80\x3f", 2));
}

TEST(Interpreter, Views) {
  Tensor m = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(f(ops::transpose, {m}, {{"perm", Ints{1, 0}}}), (Floats{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(f(ops::slice, {m}, {{"starts", Ints{1, 2}}, {"ends", Ints{-1, -1}}, {"steps", Ints{-1, -2}}}), (Floats{6, 4, 3, 1}));
  EXPECT_EQ(f(ops::broadcast, {floats({2, 1}, {1, 2})}, {{"dims", Ints{2, 2, 3}}}), (Floats{1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(f(ops::reshape, {m}, {{"dims", Ints{3, 2}}}), m.f);
}

TEST(Interpreter, ConcatAndPad) {
  Tensor a = floats({2, 1}, {1, 2}), b = floats({2, 2}, {3, 4, 5, 6});
  EXPECT_EQ(f(ops::concat, {a, b}, {{"axis", 1}}), (Floats{1, 3, 4, 2, 5, 6}));
  Tensor x = floats({3}, {1, 2, 3});
  auto padded = [&](const char *mode) {
    return f(ops::pad, {x}, {{"lo", Ints{2}}, {"hi", Ints{2}}, {"value", 9.0}, {"mode", std::string(mode)}});
  };
  EXPECT_EQ(padded("constant"), (Floats{9, 9, 1, 2, 3, 9, 9}));
  EXPECT_EQ(padded("reflect"), (Floats{3, 2, 1, 2, 3, 2, 1}));
  EXPECT_EQ(padded("edge"), (Floats{1, 1, 1, 2, 3, 3, 3}));
  EXPECT_EQ(padded("wrap"), (Floats{2, 3, 1, 2, 3, 1, 2}));
  EXPECT_EQ(f(ops::pad, {x}, {{"lo", Ints{-1}}, {"hi", Ints{1}}}), (Floats{2, 3, 0}));
}

TEST(Interpreter, Reductions) {
  Tensor m = floats({2, 3}, {1, 5, 3, 4, 2, 6});
  EXPECT_EQ(f(ops::reduce_sum, {m}, {{"axes", Ints{1}}}), (Floats{9, 12}));
  EXPECT_EQ(f(ops::reduce_sum, {m}, {{"axes", Ints{0, 1}}}), (Floats{21}));
  EXPECT_EQ(f(ops::reduce_max, {m}, {{"axes", Ints{0}}}), (Floats{4, 5, 6}));
  EXPECT_EQ(f(ops::reduce_prod, {m}, {{"axes", Ints{1}}}), (Floats{15, 48}));
  EXPECT_EQ(i(ops::reduce_min, {ints({3}, {4, -2, 7}, Elem::I8)}, {{"axes", Ints{0}}}), (Ints{-2}));
  EXPECT_EQ(i(ops::reduce_max, {ints({0}, {}, Elem::I16)}, {{"axes", Ints{0}}}), (Ints{-32768}));
  EXPECT_TRUE(std::isnan(f(ops::reduce_max, {floats({2}, {NAN, 1})}, {{"axes", Ints{0}}})[0]));
}

TEST(Interpreter, OrderAlongAnAxis) {
  Tensor x = floats({5}, {2, 7, 7, 1, 5});
  EXPECT_EQ(i(ops::argmax, {x}, {{"axis", 0}}), (Ints{1}));
  EXPECT_EQ(i(ops::argmax, {x}, {{"axis", 0}, {"last", 1}}), (Ints{2}));
  EXPECT_EQ(i(ops::argmin, {x}, {{"axis", 0}}), (Ints{3}));
  auto top = run(ops::topk, {x}, {{"axis", 0}, {"k", 3}});
  EXPECT_EQ(top[0].f, (Floats{7, 7, 5}));
  EXPECT_EQ(top[1].i, (Ints{1, 2, 4}));
  EXPECT_EQ(f(ops::cumsum, {x}, {{"axis", 0}}), (Floats{2, 9, 16, 17, 22}));
  EXPECT_EQ(f(ops::cumsum, {x}, {{"axis", 0}, {"exclusive", 1}, {"reverse", 1}}), (Floats{20, 13, 6, 5, 0}));
}

TEST(Interpreter, ConstantsAndCounters) {
  EXPECT_EQ(f(ops::constant, {}, {{"value", Floats{2}}, {"elem", "f32"}, {"dims", Ints{3}}}), (Floats{2, 2, 2}));
  EXPECT_EQ(i(ops::constant, {}, {{"value", Ints{1, 2}}, {"elem", "i32"}, {"dims", Ints{2}}}), (Ints{1, 2}));
  EXPECT_EQ(i(ops::iota, {}, {{"dims", Ints{2, 3}}, {"axis", 1}}), (Ints{0, 1, 2, 0, 1, 2}));
}

TEST(Interpreter, PhiloxIsThePublishedOne) {
  // From the known-answer file of Random123.
  PhiloxBlock b = philox(0, 0, 0, 0);
  EXPECT_EQ(b.word[0], 0x6627e8d5u);
  EXPECT_EQ(b.word[3], 0x9b00dbd8u);
  b = philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x13198a2e, 0x03707344);
  EXPECT_EQ(b.word[0], 0xd16cfe09u);
  EXPECT_EQ(b.word[3], 0x24126ea1u);
}

TEST(Interpreter, RandomNumbersDependOnStepAndMicroBatch) {
  Ints places(1000);
  std::iota(places.begin(), places.end(), 0);
  auto uniform = [&](int64_t step, int64_t micro) {
    return f(ops::random_uniform, {ints({}, {7}), ints({}, {step}), ints({}, {micro}), ints({}, {3}), ints({1000}, places)});
  };
  auto normal = [](int64_t step, int64_t micro) {
    return f(ops::random_normal, {ints({}, {7}), ints({}, {step}), ints({}, {micro})}, {{"dims", Ints{1000}}, {"id", 3}});
  };
  Floats u = uniform(0, 0);
  EXPECT_EQ(u, uniform(0, 0));
  EXPECT_NE(u, uniform(1, 0));
  EXPECT_NE(u, uniform(0, 1));
  EXPECT_NE(u, uniform(65536, 0)); // no period
  EXPECT_NE(normal(0, 0), normal(65536, 0));
  EXPECT_EQ(u[5], philoxUniform(7, 5, 3, 0));
  double mean = 0, square = 0;
  for (double x : normal(0, 0)) {
    mean += x / 1000;
    square += x * x / 1000;
  }
  EXPECT_NEAR(mean, 0, 0.1);
  EXPECT_NEAR(square, 1, 0.15);
}

TEST(Interpreter, AssignIsSeenByWhatFollows) {
  Module m;
  Function *fn = m.addFunction("f");
  Init two;
  two.kind = Init::Splat;
  two.a = 2;
  GlobalValue *w = m.addGlobal(GlobalValue::State, "w", Type(Elem::F32, {2}), two);
  Builder b(*fn, nullptr, makeLoc("node"));
  Value *twice = b.make(ops::add, {w, w});
  b.node(ops::assign, {w, twice});
  fn->results = {b.make(ops::neg, {w})};
  Memory memory;
  EXPECT_EQ(llvm::cantFail(runFunction(*fn, {}, memory))[0].f, (Floats{-4, -4}));
  EXPECT_EQ(llvm::cantFail(runFunction(*fn, {}, memory))[0].f, (Floats{-8, -8}));
  EXPECT_EQ(memory[w].f, (Floats{8, 8}));
}

TEST(Interpreter, KernelsAndWhatIsStarted) {
  Module m;
  Type t(Elem::F32, {2});
  Function *kernel = m.addFunction("k0");
  kernel->isKernel = true;
  Value *a = kernel->addArg("a", t);
  kernel->results = {Builder(*kernel, nullptr, makeLoc("node")).make(ops::exp, {a})};
  Function *fn = m.addFunction("f");
  Value *x = fn->addArg("x", t);
  Node *call = fn->insert(std::make_unique<Node>(&ops::fused, makeLoc("node")));
  call->attrs.set("kernel", "k0");
  call->addOperand(x);
  call->results.push_back(std::make_unique<Value>(Value::Result, "y", t));
  call->results[0]->def = call;
  Builder b(*fn, nullptr, makeLoc("node"));
  Value *started = b.make(ops::start, {call->result()}, {{"op", "all_reduce"}});
  EXPECT_TRUE(started->type.isFuture);
  fn->results = {b.make(ops::wait, {started})};
  Memory memory;
  EXPECT_EQ(llvm::cantFail(runFunction(*fn, {floats({2}, {0, 1})}, memory))[0].f, (Floats{1, double(float(M_E))}));
}

/// The gradient of a node's first operand by its rule, for a gradient of its first result.
static Floats gradient(const OpDef &op, const Tensor &x, Floats dy, Attrs attrs) {
  OneNode one(op, {x}, std::move(attrs));
  Tensor g(one.node->result()->type);
  g.f = std::move(dy);
  Value *arg = one.f->addArg("dy", g.type);
  llvm::SmallVector<Value *, 2> gradients(one.node->results.size(), nullptr);
  gradients[0] = arg;
  Builder b(*one.f, nullptr, makeLoc("node"));
  one.f->results = {op.gradFn(b, *one.node, gradients)[0]};
  Memory memory;
  return llvm::cantFail(runFunction(*one.f, {x, g}, memory))[0].f;
}

TEST(Interpreter, EqualExtremesShareTheGradient) {
  Tensor x = floats({2, 3}, {1, 4, 4, 7, 5, 6});
  EXPECT_EQ(gradient(ops::reduce_max, x, {1, 2}, {{"axes", Ints{1}}}), (Floats{0, 0.5, 0.5, 2, 0, 0}));
}

TEST(Interpreter, GradientsOfProductsWithZeros) {
  Attrs axes = {{"axes", Ints{0}}};
  EXPECT_EQ(gradient(ops::reduce_prod, floats({3}, {2, 3, 4}), {1}, axes), (Floats{12, 8, 6}));
  EXPECT_EQ(gradient(ops::reduce_prod, floats({3}, {2, 0, 4}), {1}, axes), (Floats{0, 8, 0}));
  EXPECT_EQ(gradient(ops::reduce_prod, floats({3}, {0, 3, 0}), {1}, axes), (Floats{0, 0, 0}));
}

TEST(Interpreter, GradientsOfPaddingFoldBack) {
  auto padded = [](const char *mode) {
    return gradient(ops::pad, floats({3}, {1, 2, 3}), {1, 2, 4, 8, 16, 32, 64},
                    {{"lo", Ints{2}}, {"hi", Ints{2}}, {"mode", std::string(mode)}});
  };
  EXPECT_EQ(padded("constant"), (Floats{4, 8, 16}));
  EXPECT_EQ(padded("reflect"), (Floats{4 + 64, 8 + 2 + 32, 16 + 1}));
  EXPECT_EQ(padded("edge"), (Floats{4 + 1 + 2, 8, 16 + 32 + 64}));
  EXPECT_EQ(padded("wrap"), (Floats{4 + 32, 8 + 1 + 64, 16 + 2}));
}

TEST(Interpreter, ExpressionsBuildNoTrivialNodes) {
  Module m;
  Function *fn = m.addFunction("f");
  Value *x = fn->addArg("x", Type(Elem::F32, {4})), *dy = fn->addArg("dy", x->type);
  Builder b(*fn, nullptr, makeLoc("node"));
  Value *two = b.scalar(2, Elem::F32);
  EXPECT_EQ(b.expr("dy * 1 + 0", {{"dy", dy}}), dy);
  Value *g = b.expr("b == 0 ? 0 : dy * (b * pow(a, b - 1))", {{"dy", dy}, {"a", x}, {"b", two}});
  ASSERT_EQ(g->def->op, &ops::mul); // dy * (2 * x)
  EXPECT_EQ(g->def->operand(1)->def->op, &ops::mul);
  EXPECT_EQ(g->def->operand(1)->def->operand(1), x);
  Value *y = b.expr("exp(x) * exp(x)", {{"x", x}});
  EXPECT_EQ(y->def->operand(0), y->def->operand(1));
}

TEST(Interpreter, MasksFoldFast) {
  auto start = std::chrono::steady_clock::now();
  Tensor rows = run(ops::iota, {}, {{"dims", Ints{1024, 1}}, {"axis", 0}})[0];
  Tensor columns = run(ops::iota, {}, {{"dims", Ints{1, 1024}}, {"axis", 1}})[0];
  Ints mask = i(ops::le, {columns, rows});
  EXPECT_EQ(mask[1024 * 5 + 5], 1);
  EXPECT_EQ(mask[1024 * 5 + 6], 0);
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 1); // 0.01 s; sanitizers and busy machines take longer
}

} // namespace interpreter_test
