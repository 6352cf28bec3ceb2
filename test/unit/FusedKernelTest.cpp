// Every form of generated kernel against the naive interpreter: the graph is fused, its kernels are emitted, compiled, loaded and
// run on random data, with one thread and with two.
#include "codegen/CpuTarget.h"
#include "codegen/EmitKernels.h"
#include "ir/Builder.h"
#include "ir/Interpreter.h"
#include "ir/View.h"
#include "passes/Pass.h"
#include "passes/Target.h"
#include "llvm/ADT/StringExtras.h"
#include "gtest/gtest.h"
#include <cmath>
#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <numeric>
#include <random>
#include <unistd.h>

namespace fused_kernel_test {

using namespace zcc;

namespace {

/// A module whose @micro is built by a test.
struct Graph {
  Module m;
  Function *f = m.addFunction("micro");
  Builder b{*f, nullptr, makeLoc("test")};

  Value *in(Elem e, llvm::ArrayRef<int64_t> dims) { return f->addArg("x", Type(e, dims)); }
  Value *in(llvm::ArrayRef<int64_t> dims) { return in(Elem::F32, dims); }
  void out(Value *v) { f->results.push_back(v); }
  Value *make(const OpDef &op, llvm::ArrayRef<Value *> v, Attrs a = {}) { return b.make(op, v, std::move(a)); }
  Value *reduce(const OpDef &op, Value *v, std::vector<int64_t> axes) { return b.make(op, {v}, {{"axes", axes}}); }
};

Tensor random(const Type &t, std::mt19937 &r) {
  Tensor x(t);
  std::normal_distribution<double> normal;
  for (double &v : x.f)
    v = roundTo(t.elem, normal(r));
  for (int64_t &v : x.i)
    v = t.elem == Elem::Bool ? r() & 1 : int64_t(r() % 17) - (t.elem == Elem::U8 ? 0 : 8);
  return x;
}

/// Runs the fused function through compiled kernels; `bytes` are the arguments. Results are written over operands that nobody
/// else reads wherever they may be.
std::vector<std::string> runCompiled(Module &m, Function &f, const std::vector<std::string> &args, int threads) {
  KernelEmitter kernels(m, {Space::Device}, printForCpu(threads), sourceHeadForCpu(m));
  std::vector<const Value *> owners;
  auto slot = [&](const Value *v) {
    for (size_t i = 0; i < owners.size(); ++i)
      if (owners[i] == v)
        return i;
    owners.push_back(v);
    return owners.size() - 1;
  };
  auto pointer = [&](const Value *v) {
    auto view = viewOf(const_cast<Value *>(v));
    return "b[" + std::to_string(slot(view->base)) + "] + " + std::to_string(view->offset * elemBytes(v->type.elem));
  };
  for (auto &a : f.args)
    slot(a.get());
  std::string run = "extern \"C\" void run(char **b, char *A) {\n";
  int64_t scratch = 0;
  for (auto &n : f.nodes) {
    if (n->op->view)
      continue;
    EXPECT_EQ(n->op, &ops::fused) << n->op->name;
    n->attrs.set("scratch", scratch);
    scratch += KernelEmitter::scratchBytes(*n, threads);
    auto c = kernels.call(*n, pointer, [](const Value *) { return int64_t(0); });
    if (!c)
      return ADD_FAILURE() << llvm::toString(c.takeError()), std::vector<std::string>();
    run += "  " + *c + ";\n";
  }
  for (Value *r : f.results)
    slot(viewOf(r)->base);
  // A name of its own each time: a library of the same name would not be loaded anew.
  static int count = 0;
  std::string base = testing::TempDir() + "zcc-kernel-" + std::to_string(getpid()) + "-" + std::to_string(count++);
  std::string source = base + ".cpp", library = base + ".so";
  std::string text = llvm::join(kernels.sources(), "");
  std::ofstream(source) << text << run << "}\n";
  std::string flags = " -std=c++20 -O3 -march=native -fno-math-errno -fno-trapping-math -ffp-contract=off -fopenmp"
                      " -fPIC -shared -Wall -Werror -Wno-unused -I'" ZCC_SOURCE_DIR "' ";
  EXPECT_EQ(std::system((ZCC_CXX + flags + source + " -o " + library).c_str()), 0) << text;
  void *lib = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(lib, nullptr);
  if (!lib)
    return {};
  auto *fn = reinterpret_cast<void (*)(char **, char *)>(dlsym(lib, "run"));
  std::vector<std::string> buffers;
  std::vector<char *> pointers;
  for (size_t i = 0; i < owners.size(); ++i)
    buffers.push_back(i < args.size() ? args[i] : std::string(owners[i]->type.localBytes() + 64, '\x7f'));
  for (std::string &s : buffers)
    pointers.push_back(s.data());
  std::vector<size_t> place(owners.size());
  std::iota(place.begin(), place.end(), 0);
  std::vector<bool> isTaken(owners.size());
  for (auto &n : f.nodes) {
    std::vector<int64_t> pairs = n->attrs.ints("inplace");
    for (size_t i = 0; i < pairs.size(); i += 2) {
      const size_t result = slot(n->result(pairs[i])), operand = slot(viewOf(n->operand(pairs[i + 1]))->base);
      if (isTaken[operand] || isTaken[result] || owners[operand]->uses.size() != 1 ||
          int64_t(buffers[operand].size()) < owners[result]->type.localBytes())
        continue;
      isTaken[operand] = isTaken[result] = true;
      place[result] = place[operand];
      pointers[result] = pointers[operand];
    }
  }
  std::string guard(1 << 16, '\x7f'), temp = std::string(scratch, 0) + guard;
  fn(pointers.data(), temp.data());
  EXPECT_TRUE(temp.substr(scratch) == guard) << "written behind the scratch memory of " << scratch << " bytes";
  unlink(source.c_str());
  unlink(library.c_str());
  std::vector<std::string> out;
  for (Value *r : f.results)
    out.push_back(buffers[place[slot(viewOf(r)->base)]].substr(0, r->type.localBytes()));
  return out;
}

/// Fuses the graph and compares; `kernels`: how many kernels it must become (0: any number).
void check(Graph &g, size_t kernels, double tolerance = 2e-6) {
  std::mt19937 r(7);
  std::vector<Tensor> args;
  std::vector<std::string> bytes;
  for (auto &a : g.f->args) {
    args.push_back(random(a->type, r));
    bytes.push_back(tensorToBytes(args.back()));
  }
  auto before = g.m.clone();
  Memory memory;
  auto want = runFunction(*before->function("micro"), args, memory, Compute::F64);
  ASSERT_TRUE(bool(want)) << llvm::toString(want.takeError());
  Options options;
  auto target = cpuTarget("", 1);
  PassContext ctx{options, {}};
  ctx.target = target.get();
  for (PassFn pass : {expandComposites, sinkCasts, globalizeConstants, legalizeOperands, fuse}) {
    auto changed = pass(g.m, ctx);
    ASSERT_TRUE(bool(changed)) << llvm::toString(changed.takeError());
  }
  if (kernels) {
    size_t calls = 0;
    for (auto &n : g.f->nodes)
      calls += n->op->isFused();
    EXPECT_EQ(calls, kernels);
  }
  for (int threads : {1, 2}) {
    auto got = runCompiled(g.m, *g.f, bytes, threads);
    ASSERT_EQ(got.size(), want->size());
    for (size_t i = 0; i < got.size(); ++i) {
      Tensor t = tensorFromBytes((*want)[i].type, got[i]);
      double scale = 1;
      for (double v : (*want)[i].f)
        scale = std::max(scale, std::isfinite(v) ? std::fabs(v) : 0);
      int wrong = 0;
      for (size_t j = 0; j < t.f.size() && wrong < 3; ++j) {
        double w = (*want)[i].f[j];
        bool same = std::isfinite(w) ? std::fabs(t.f[j] - w) <= tolerance * scale : std::isnan(w) == std::isnan(t.f[j]);
        if (!same)
          ++wrong, ADD_FAILURE() << "result " << i << " element " << j << ": " << t.f[j] << ", expected " << w;
      }
      EXPECT_EQ(t.i, (*want)[i].i);
    }
  }
}

TEST(FusedKernel, BroadcastChain) {
  Graph g;
  Value *x = g.in({4, 33, 70}), *b = g.in({70}), *s = g.in({33, 1});
  Value *y = g.make(ops::mul, {g.make(ops::gelu, {g.make(ops::add, {x, b})}), s});
  g.out(y);
  g.out(g.make(ops::tanh, {y}));
  check(g, 1);
}

TEST(FusedKernel, LargePointwise) {
  Graph g;
  Value *x = g.in({50000}), *y = g.in({50000});
  g.out(g.make(ops::sub, {g.make(ops::exp, {x}), g.make(ops::mul, {x, y})}));
  check(g, 1);
}

TEST(FusedKernel, ElementaryFunctions) {
  Graph g;
  Value *x = g.in({999});
  for (const OpDef *op : {&ops::exp, &ops::sigmoid, &ops::erf, &ops::sin, &ops::cos, &ops::softplus, &ops::silu, &ops::gelu_tanh,
                          &ops::relu, &ops::abs, &ops::sign, &ops::floor, &ops::round, &ops::atan})
    g.out(g.make(*op, {x}));
  g.out(g.make(ops::log1p, {g.make(ops::abs, {x})}));
  g.out(g.make(ops::pow, {g.make(ops::abs, {x}), x}));
  check(g, 0, 4e-6);
}

TEST(FusedKernel, Softmax) {
  for (int64_t n : {5, 129, 1000}) {
    Graph g;
    Value *x = g.in({37, n});
    g.out(g.make(ops::softmax, {x}, {{"axis", int64_t(1)}}));
    check(g, 1);
  }
}

/// Large angles, alone and among small ones, in every form of loop. Powers of two scale them exactly.
TEST(FusedKernel, LargeAngles) {
  for (Elem e : {Elem::F32, Elem::BF16, Elem::F64}) {
    Graph g;
    auto angles = [&](Dims dims) {
      Value *x = g.in(e, dims), *far = g.make(ops::mul, {x, g.b.splat(0x1p100, x->type)});
      return g.make(ops::select, {g.make(ops::gt, {x, g.b.splat(0.5, x->type)}), far, x});
    };
    for (const Dims &dims : {Dims{70}, Dims{20000}, Dims{40, 300}})
      for (const OpDef *op : {&ops::sin, &ops::cos})
        g.out(g.make(*op, {angles(dims)}));
    g.out(g.reduce(ops::reduce_sum, g.make(ops::cos, {angles({20, 130})}), {1}));
    g.out(g.reduce(ops::reduce_sum, g.make(ops::cos, {angles({130, 20})}), {0}));
    g.out(g.make(ops::cos, {g.reduce(ops::reduce_max, angles({130, 20}), {1})}));
    check(g, 0, e == Elem::BF16 ? 6e-2 : 4e-6);
  }
}

/// Means of rows, sums of columns and products that differ in their numbers only are one function each.
TEST(FusedKernel, NumbersAreArguments) {
  Graph g;
  auto factor = [&](Value *v, double x) { return g.make(ops::mul, {v, g.b.splat(x, v->type)}); };
  for (int64_t scale : {1, 2, 3}) {
    g.out(factor(g.reduce(ops::reduce_sum, g.in({7 * scale, 600 * scale + 1}), {1}), 0.3 / scale));
    g.out(g.reduce(ops::reduce_sum, g.in({130 * scale, 48}), {0}));
    g.out(g.make(ops::exp, {factor(g.in({9000 * scale - 1}), 0.1 * scale)}));
  }
  check(g, 9);
  std::string text = llvm::join(KernelEmitter(g.m, {Space::Device}, printForCpu(1), sourceHeadForCpu(g.m)).sources(), "");
  EXPECT_EQ(llvm::StringRef(text).count("\nvoid k"), 3u) << text;
}

TEST(FusedKernel, LogSoftmaxOverTheMiddleAxis) {
  Graph g;
  g.out(g.make(ops::log_softmax, {g.in({6, 40, 9})}, {{"axis", int64_t(1)}}));
  check(g, 0);
}

TEST(FusedKernel, NormsKeepTheirStatistics) {
  Graph g;
  Value *x = g.in({8, 30, 96}), *y = g.in({8, 30, 96}), *w = g.in({96}), *b = g.in({96});
  Node *n = g.b.node(ops::layer_norm, {g.make(ops::add, {x, y}), w, b}, {{"axis", int64_t(2)}, {"eps", 1e-5}});
  for (auto &r : n->results)
    g.out(r.get());
  g.out(g.b.node(ops::rms_norm, {x, w}, {{"axis", int64_t(2)}, {"eps", 1e-6}})->result(0));
  check(g, 0);
}

TEST(FusedKernel, ColumnSums) {
  Graph g;
  Value *x = g.in({300, 77}), *y = g.in({300, 77}), *m = g.in({300, 1});
  Value *d = g.make(ops::mul, {g.make(ops::sub, {x, m}), y});
  g.out(d);
  g.out(g.reduce(ops::reduce_sum, d, {0}));
  g.out(g.make(ops::neg, {g.reduce(ops::reduce_sum, y, {0})}));
  check(g, 1, 1e-5);
}

/// Blocks of rows by thread, the last one shorter; of several reductions and what follows from them.
TEST(FusedKernel, ColumnsOfManyRows) {
  Graph g;
  Value *x = g.in({3, 700, 77}), *y = g.in({3, 700, 77}), *b = g.in({77});
  Value *d = g.make(ops::mul, {g.make(ops::add, {x, b}), y});
  Value *sum = g.make(ops::reshape, {g.reduce(ops::reduce_sum, y, {0, 1})}, {{"dims", std::vector<int64_t>{77}}});
  g.out(d);
  g.out(g.make(ops::sub, {g.reduce(ops::reduce_sum, d, {0, 1}), g.reduce(ops::reduce_max, x, {0, 1})}));
  g.out(g.make(ops::mul, {b, sum}));
  check(g, 1, 1e-5);
}

/// Rows and sums over them, of what is computed in either pass and of an operand, and what follows from these; rows of one axis
/// and, where an operand lies across, of two.
TEST(FusedKernel, RowsAndSumsOverThem) {
  for (bool across : {false, true}) {
    Graph g;
    Value *x = g.in({3, 100, 7, 11}), *y = g.in(across ? Dims{3, 100, 11, 7} : Dims{3, 100, 7, 11}), *w = g.in({7, 11});
    if (across)
      y = g.make(ops::transpose, {y}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
    Value *p = g.make(ops::mul, {x, y}), *d = g.make(ops::mul, {g.make(ops::sub, {x, g.reduce(ops::reduce_sum, p, {2, 3})}), w});
    g.out(d);
    g.out(g.make(ops::sub, {w, g.reduce(ops::reduce_sum, d, {0, 1})}));
    g.out(g.make(ops::exp, {g.make(ops::tanh, {g.reduce(ops::reduce_sum, p, {0, 1})})}));
    g.out(g.reduce(ops::reduce_sum, x, {0, 1}));
    check(g, across ? 0 : 1, 1e-5);
  }
}

/// A sum has the same bits whether its axes lie as one or, of a tensor whose last two axes are swapped, as several.
TEST(FusedKernel, SumsOfAnyLayout) {
  using Dims = std::vector<int64_t>;
  const std::pair<Dims, Dims> cases[] = {{{4, 50, 96}, {0, 1}},                                  // columns
                                         {{6, 30, 70}, {1, 2}},      {{6, 30, 16}, {1, 2}},      // rows
                                         {{4, 6, 5, 7}, {0, 2, 3}},  {{3, 20, 128}, {1, 2}},     //
                                         {{4, 8, 9, 14}, {1, 2, 3}}, {{2, 150, 170}, {0, 1, 2}}, // all
                                         {{3, 130, 128}, {0, 1, 2}}, {{2, 3, 110, 70}, {0, 1, 2, 3}}};
  for (const auto &[dims, axes] : cases) {
    const size_t last = dims.size() - 1;
    const int64_t w = dims[last], h = dims[last - 1];
    Dims swapped = dims, perm(dims.size());
    std::iota(perm.begin(), perm.end(), 0);
    std::swap(swapped[last], swapped[last - 1]);
    std::swap(perm[last], perm[last - 1]);
    Graph g;
    Value *x = g.in(dims), *y = g.in(swapped);
    g.out(g.reduce(ops::reduce_sum, x, axes));
    g.out(g.reduce(ops::reduce_sum, g.b.transpose(y, perm), axes));
    std::mt19937 r(7);
    Tensor a = random(x->type, r), b(y->type);
    for (int64_t i = 0; i < int64_t(a.f.size()); ++i)
      b.f[i / (h * w) * (h * w) + i % w * h + i / w % h] = a.f[i];
    Options options;
    PassContext ctx{options, {}};
    auto changed = fuse(g.m, ctx);
    ASSERT_TRUE(bool(changed)) << llvm::toString(changed.takeError());
    for (int threads : {1, 2}) {
      auto got = runCompiled(g.m, *g.f, {tensorToBytes(a), tensorToBytes(b)}, threads);
      ASSERT_EQ(got.size(), 2u);
      EXPECT_EQ(got[0], got[1]) << "rows of " << w << ", " << threads << " threads";
    }
  }
}

TEST(FusedKernel, SumsThroughReshapes) {
  Graph g;
  Value *x = g.in({600, 48}), *y = g.in({4, 150, 48});
  Value *s = g.make(ops::add, {g.b.reshape(x, {4, 150, 48}), y});
  g.out(g.b.reshape(g.make(ops::relu, {s}), {600, 48}));
  g.out(g.reduce(ops::reduce_sum, s, {0, 1}));
  check(g, 1, 1e-5);
}

/// What is stored before a sum is known is read again behind it, and not what it is computed from.
TEST(FusedKernel, ResultsOfAnEarlierPassInPlace) {
  Graph g;
  Value *a = g.in({4, 6, 5, 7}), *b = g.in({4, 6, 5, 7}), *x = g.in({4, 6, 5, 7});
  Value *s = g.make(ops::add, {a, b});
  Value *sum = g.reduce(ops::reduce_sum, g.make(ops::mul, {s, x}), {0, 2, 3});
  g.out(s);
  g.out(g.make(ops::sub, {s, g.make(ops::mul, {x, sum})}));
  check(g, 1, 1e-5);
  const std::vector<int64_t> pairs = g.f->nodes.front()->attrs.ints("inplace"), want = {0, 0, 0, 1, 1, 0, 1, 1, 1, 2};
  EXPECT_EQ(pairs, want); // not the first over the third operand, which the second pass reads
}

TEST(FusedKernel, ChannelStatistics) {
  Graph g;
  Value *x = g.in({4, 6, 5, 7}), *w = g.in({6}), *b = g.in({6});
  Node *n = g.b.node(ops::batch_norm, {x, w, b}, {{"eps", 1e-5}});
  g.out(g.make(ops::relu, {n->result(0)}));
  for (unsigned i = 1; i < n->results.size(); ++i)
    g.out(n->result(i));
  check(g, 0, 1e-5);
}

/// Strips of 16 columns, passed over three times; truth values are read and written beside floats.
TEST(FusedKernel, StatisticsOfChannelsInBlocks) {
  for (Dims dims : {Dims{4, 3, 5, 7, 16}, {2, 2, 3, 3, 16}, {4, 3, 5, 7, 8}, {4, 2, 33, 16}}) {
    Graph g;
    const int64_t channels = dims[1] * dims.back();
    Value *x = g.in(dims), *w = g.in({channels}), *b = g.in({channels}), *z = g.in(dims);
    Value *hidden = g.make(ops::le, {g.in(dims), z});
    Node *n = g.b.node(ops::batch_norm, {x, w, b}, {{"eps", 1e-5}});
    Value *y = g.make(ops::add, {n->result(0), g.make(ops::select, {hidden, z, n->result(0)})});
    g.out(g.make(ops::relu, {y}));
    g.out(g.make(ops::le, {y, z}));
    for (unsigned i = 1; i < n->results.size(); ++i)
      g.out(n->result(i));
    check(g, 1, 1e-5);
  }
}

/// As of a gradient: sums beside a mask that is given, and what follows from them.
TEST(FusedKernel, SumsOfChannelsInBlocksWithAMask) {
  Graph g;
  const Dims dims = {3, 2, 9, 8, 16}, one = {1, 2, 1, 1, 16};
  Value *mask = g.b.make(ops::le, {g.in(dims), g.in(dims)});
  g.out(mask);
  Value *dy = g.make(ops::select, {mask, g.in(dims), g.b.splat(0, Type(Elem::F32, {}))}), *x = g.in(dims), *scale = g.in(one);
  Value *sum = g.reduce(ops::reduce_sum, dy, {0, 2, 3}), *along = g.reduce(ops::reduce_sum, g.make(ops::mul, {dy, x}), {0, 2, 3});
  Value *less = g.make(ops::sub, {g.make(ops::sub, {dy, sum}), g.make(ops::mul, {x, along})});
  g.out(g.make(ops::mul, {less, scale}));
  g.out(g.b.reshape(sum, {32}));
  check(g, 1, 1e-5);
}

TEST(FusedKernel, TotalSums) {
  for (int64_t n : {7, 30000, 100001}) {
    Graph g;
    Value *x = g.in({n});
    g.out(g.make(ops::sqrt, {g.reduce(ops::reduce_sum, g.make(ops::mul, {x, x}), {0})}));
    g.out(g.reduce(ops::reduce_max, x, {0}));
    check(g, 1, 1e-5);
  }
  Graph g;
  g.out(g.reduce(ops::reduce_sum, g.make(ops::mul, {g.in({90, 500}), g.in({500})}), {0, 1}));
  check(g, 1, 1e-5);
}

// The first two axes merge, the others do not: 64 partial sums a reduction, more than the first axis or chunks of all say.
TEST(FusedKernel, TotalSumsOfACutTensor) {
  Graph g;
  Value *x = g.in({8, 8, 33, 33}), *y = g.in({8, 8, 32, 32});
  Value *cut = g.make(ops::slice, {x},
                      {{"starts", std::vector<int64_t>{0, 0, 0, 0}},
                       {"ends", std::vector<int64_t>{8, 8, 32, 32}},
                       {"steps", std::vector<int64_t>{1, 1, 1, 1}}});
  g.out(g.reduce(ops::reduce_sum, cut, {0, 1, 2, 3}));
  g.out(g.reduce(ops::reduce_sum, g.make(ops::mul, {cut, y}), {0, 1, 2, 3}));
  check(g, 1, 1e-5);
}

TEST(FusedKernel, StridedOperands) {
  Graph g;
  Value *x = g.in({40, 50}), *y = g.in({50, 40});
  g.out(g.make(ops::add, {g.b.transpose(x, {1, 0}), y}));
  g.out(g.make(ops::neg, {g.b.slice(y, 0, 3, 21, 2)}));
  g.out(g.make(ops::copy, {g.make(ops::slice, {x},
                                  {{"starts", std::vector<int64_t>{39, 0}},
                                   {"ends", std::vector<int64_t>{-1, 50}},
                                   {"steps", std::vector<int64_t>{-1, 1}}})}));
  g.out(g.make(ops::mul, {g.b.reshape(g.b.transpose(g.in({3, 4, 5}), {1, 0, 2}), {12, 5}), g.in({12, 5})}));
  check(g, 0);
}

/// In tiles, whole and cut ones: more operands across than are copied, of elements that are and that are not.
TEST(FusedKernel, OperandsAcross) {
  for (Elem e : {Elem::F32, Elem::BF16, Elem::F16, Elem::F64})
    for (int64_t wide : {32, 45, 100}) {
      Graph g;
      Value *sum = g.in(e, {3, 70, wide});
      for (int i = 0; i < 6; ++i)
        sum = g.make(ops::add, {sum, g.b.transpose(g.in(e, {3, wide, 70}), {0, 2, 1})});
      Value *keep = g.b.transpose(g.in(Elem::Bool, {3, wide, 70}), {0, 2, 1});
      g.out(g.make(ops::select, {keep, sum, g.make(ops::neg, {sum})}));
      check(g, 1, e == Elem::BF16 ? 4e-2 : e == Elem::F16 ? 5e-3 : 2e-6);
    }
}

TEST(FusedKernel, IntegersBoolsAndCounters) {
  Graph g;
  Value *i = g.in(Elem::I64, {20, 30}), *j = g.in(Elem::I64, {30}), *c = g.in(Elem::Bool, {20, 1});
  Value *at = g.make(ops::iota, {}, {{"dims", std::vector<int64_t>{1, 30}}, {"axis", int64_t(1)}, {"elem", std::string("i64")}});
  Value *hit = g.make(ops::and_, {g.make(ops::eq, {at, i}), c});
  g.out(hit);
  g.out(g.make(ops::select, {hit, g.make(ops::mul, {i, j}), g.make(ops::div, {i, g.b.scalar(3, Elem::I64)})}));
  g.out(g.b.cast(g.make(ops::max, {i, j}), Elem::F32));
  g.out(g.reduce(ops::reduce_sum, g.b.cast(hit, Elem::I64), {1}));
  g.out(g.reduce(ops::reduce_min, i, {1}));
  check(g, 0);
}

// In every form of loops: along rows, over several runs, from any element of a block on, across the layout, and kept for a pass.
TEST(FusedKernel, DrawsAreThoseOfTheirElements) {
  auto draw = [](Graph &g, std::vector<int64_t> dims) {
    Value *scalars[4];
    for (Value *&v : scalars)
      v = g.in(Elem::I64, {});
    Value *i = g.make(ops::iota, {}, {{"dims", dims}, {"axis", kEveryAxis}});
    return g.make(ops::random_uniform, {scalars[0], scalars[1], scalars[2], scalars[3], i});
  };
  {
    Graph g;
    g.out(draw(g, {}));
    g.out(draw(g, {1}));
    g.out(draw(g, {3}));
    g.out(g.make(ops::mul, {draw(g, {50, 700}), g.in({50, 700})}));
    g.out(g.make(ops::mul, {draw(g, {7, 197}), g.in({7, 1})}));
    g.out(g.make(ops::mul, {draw(g, {5, 2, 1201}), g.in({2, 1})}));
    check(g, 0);
  }
  {
    Graph g;
    Value *u = draw(g, {40, 50});
    g.out(g.make(ops::add, {g.b.transpose(g.in({50, 40}), {1, 0}), u}));
    g.out(g.make(ops::copy, {g.b.transpose(draw(g, {30, 90}), {1, 0})}));
    check(g, 0);
  }
  for (int64_t n : {5, 197, 3000}) {
    Graph g;
    Value *x = g.make(ops::mul, {draw(g, {12, n}), g.in({12, n})});
    Value *s = g.reduce(ops::reduce_sum, x, {1});
    g.out(g.make(ops::sub, {x, s}));
    g.out(g.reduce(ops::reduce_sum, g.make(ops::mul, {draw(g, {n, 12}), g.in({n, 12})}), {0}));
    g.out(g.reduce(ops::reduce_sum, g.make(ops::mul, {draw(g, {n, 33}), g.in({n, 33})}), {0, 1}));
    check(g, 0, 1e-4);
  }
}

TEST(FusedKernel, RowValuesOfStridedOperands) {
  // A label a row, cut out of a larger tensor: its axes are not the row axis of the logits.
  Graph g;
  Value *labels = g.in(Elem::I64, {4, 20}), *x = g.in({64, 40});
  Value *cut = g.b.reshape(g.b.slice(labels, 1, 2, 18), {64, 1});
  Value *top = g.make(ops::sub, {x, g.reduce(ops::reduce_max, x, {1})});
  g.out(g.make(ops::select, {g.make(ops::gt, {cut, g.b.scalar(0, Elem::I64)}), top, x}));
  check(g, 0);
}

TEST(FusedKernel, OtherFloats) {
  for (Elem e : {Elem::BF16, Elem::F16, Elem::F64}) {
    Graph g;
    Value *x = g.in(e, {9, 65}), *y = g.in(e, {65});
    Value *s = g.make(ops::add, {x, y});
    g.out(s);
    g.out(g.b.cast(g.reduce(ops::reduce_sum, g.b.cast(s, Elem::F32), {1}), e));
    check(g, 1, e == Elem::F64 ? 1e-6 : 2e-2);
  }
}

} // namespace

} // namespace fused_kernel_test
