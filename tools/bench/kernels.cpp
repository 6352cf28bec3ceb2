// Times the library kernels of the CPU on the shapes of the benchmark models: a line per case, milliseconds of CPU time of one
// thread (the minimum of many runs), which other work on the machine hardly disturbs. kernels.py times the same cases in PyTorch
// and prints the ratios.
//   g++ -std=c++20 -O2 -fopenmp -I. tools/bench/kernels.cpp -LBUILD/lib -lzccrt -ldnnl -lmpi -o kernels
#include "runtime/cpu/Call.h"
#include "runtime/cpu/Number.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <functional>
#include <string>
#include <vector>

using Dims = std::vector<int64_t>;

static double cpuMs() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return double(t.tv_sec) * 1e3 + double(t.tv_nsec) * 1e-6;
}

/// One call over memory of its own, filled with small numbers.
class Call {
public:
  explicit Call(const char *kernel) {
    for (int i = 0; i < zccrt_cpu_kernel_count; ++i)
      if (!strcmp(zccrt_cpu_kernels[i].name, kernel))
        def_ = &zccrt_cpu_kernels[i];
  }
  /// Adds a tensor whose storage has its axes in the given order (empty: dense).
  Call &add(const Dims &dims, const Dims &order = {}, int32_t elem = ZCCRT_F32) {
    zccrt_tensor t{};
    t.elem = elem;
    t.ndim = int32_t(dims.size());
    int64_t n = 1;
    for (size_t i = dims.size(); i--;) {
      size_t axis = order.empty() ? i : size_t(order[i]);
      t.dims[axis] = dims[axis];
      t.strides[axis] = n;
      n *= dims[axis];
    }
    t.offset = reserve(n * (elem == ZCCRT_I64 ? 8 : 4));
    tensors_.push_back(t);
    return *this;
  }
  Call &none() {
    zccrt_tensor t{};
    t.offset = -1;
    tensors_.push_back(t);
    return *this;
  }
  Call &results() {
    nin_ = int(tensors_.size());
    return *this;
  }
  Call &ints(const char *name, Dims v) {
    ints_.push_back(std::move(v));
    attrs_.push_back({name, int32_t(ints_.back().size()), ints_.back().data(), nullptr, nullptr});
    return *this;
  }
  Call &number(const char *name, double v) {
    floats_.push_back(v);
    attrs_.push_back({name, 1, nullptr, &floats_.back(), nullptr});
    return *this;
  }

  double ms() {
    zccrt_call c{};
    void *cache = nullptr;
    c.name = c.node = "bench";
    c.t = tensors_.data();
    c.nin = nin_;
    c.nout = int(tensors_.size()) - nin_;
    c.attrs = attrs_.data();
    c.nattrs = int32_t(attrs_.size());
    c.threads = 1;
    c.cache = &cache;
    c.scratch_bytes = def_->workspace ? def_->workspace(&c) : 0;
    c.scratch = reserve(c.scratch_bytes);
    char *arena = static_cast<char *>(std::aligned_alloc(64, size_t(used_)));
    auto numbers = [&](auto *to, int64_t n) {
      for (int64_t i = 0; i < n; ++i)
        to[i] = float(i % 97) * 0.01f;
    };
    numbers(reinterpret_cast<float *>(arena), used_ / 4);
    for (const zccrt_tensor &t : tensors_)
      if (t.offset >= 0 && t.elem == ZCCRT_BF16)
        numbers(zccrt::cpu::at<zccrt::cpu::Bf16>(arena, t), zccrt::cpu::count(t));
      else if (t.offset >= 0 && t.elem != ZCCRT_F32)
        memset(arena + t.offset, 0, 64);
    def_->run(nullptr, &c);
    def_->run(arena, &c);
    double best = 1e30, start = cpuMs();
    for (int n = 0; n < 5 || cpuMs() - start < 300; ++n) {
      double t = cpuMs();
      def_->run(arena, &c);
      best = std::min(best, cpuMs() - t);
    }
    free(arena);
    return best;
  }

private:
  int64_t reserve(int64_t bytes) {
    int64_t at = used_;
    used_ += (bytes + 127) / 64 * 64;
    return at;
  }
  const zccrt_kernel_def *def_ = nullptr;
  int nin_ = 0;
  int64_t used_ = 64;
  std::vector<zccrt_tensor> tensors_;
  std::vector<zccrt_attr> attrs_;
  std::deque<Dims> ints_;
  std::deque<double> floats_;
};

static void report(const std::string &name, std::initializer_list<double> ms) {
  printf("%s", name.c_str());
  for (double x : ms)
    printf(" %.4f", x);
  printf("\n");
  fflush(stdout);
}

/// y = x w, dx = dy w^T, dw = x^T dy.
static void product(const char *name, int64_t rows, int64_t in, int64_t out) {
  double y = Call("matmul").add({rows, in}).add({in, out}).results().add({rows, out}).ms();
  double dx = Call("matmul").add({rows, out}).add({out, in}, {1, 0}).results().add({rows, in}).ms();
  double dw = Call("matmul").add({in, rows}, {1, 0}).add({rows, out}).results().add({in, out}).ms();
  report(std::string("matmul:") + name, {y, dx, dw});
}

static void attention(const char *name, Dims q, int64_t causal) {
  const Dims order{0, 2, 1, 3};
  Dims lse{q[0], q[1], q[2], 1};
  for (int32_t elem : {ZCCRT_F32, ZCCRT_BF16}) {
    auto add = [&](Call &c, int n) {
      for (int i = 0; i < n; ++i)
        c.add(q, order, elem);
    };
    Call f("attention"), g("attention_grad");
    add(f, 3);
    add(f.none().results(), 1);
    f.add(lse);
    add(g, 4);
    add(g.none(), 1);
    add(g.add(lse).results(), 3);
    for (Call *c : {&f, &g})
      c->number("scale", 0.125).ints("causal", {causal});
    report(std::string("attention:") + name + (elem == ZCCRT_F32 ? "" : "-bf16"), {f.ms(), g.ms()});
  }
}

static void convolution(const char *name, Dims x, int64_t filters, int64_t k, int64_t s, int64_t p) {
  int64_t out = (x[2] + 2 * p - k) / s + 1;
  Dims w{filters, x[1], k, k}, y{x[0], filters, out, out};
  auto time = [&](const char *kernel, const Dims &a, const Dims &b, const Dims &r) {
    Call c(kernel);
    c.add(a).add(b).results().add(r).ints("strides", {s, s}).ints("pads_lo", {p, p}).ints("pads_hi", {p, p});
    return c.ms();
  };
  report(std::string("conv:") + name,
         {time("conv", x, w, y), time("conv_grad_input", y, w, x), time("conv_grad_weight", x, y, w)});
}

int main() {
  product("gpt2-mini-qkv", 2048, 384, 1152);
  product("gpt2-mini-fc", 2048, 384, 1536);
  product("gpt2-mini-proj", 2048, 1536, 384);
  product("gpt2-mini-head", 2048, 384, 8192);
  product("gpt2-124m-fc", 512, 768, 3072);
  product("gpt2-124m-head", 512, 768, 50257);
  product("llama-60m-fc", 1024, 512, 1408);
  product("bert-mini-fc", 2048, 256, 1024);
  product("vit-tiny-fc", 1576, 192, 768);
  product("mlp-1", 64, 784, 512);
  product("mlp-3", 64, 512, 10);
  attention("gpt2-mini", {8, 6, 256, 64}, 1);
  attention("gpt2-124m", {2, 12, 256, 64}, 1);
  attention("bert-mini", {16, 4, 128, 64}, 0);
  attention("vit-tiny", {8, 3, 197, 64}, 0);
  attention("long", {1, 8, 2048, 64}, 1);
  convolution("resnet18-stem", {32, 3, 64, 64}, 64, 7, 2, 3);
  convolution("resnet18-1", {32, 64, 16, 16}, 64, 3, 1, 1);
  convolution("resnet18-2a", {32, 64, 16, 16}, 128, 3, 2, 1);
  convolution("resnet18-2", {32, 128, 8, 8}, 128, 3, 1, 1);
  convolution("resnet18-3", {32, 256, 4, 4}, 256, 3, 1, 1);
  convolution("resnet18-4", {32, 512, 2, 2}, 512, 3, 1, 1);
  convolution("resnet50-points", {4, 64, 56, 56}, 256, 1, 1, 0);
  convolution("resnet50-3x3", {4, 64, 56, 56}, 64, 3, 1, 1);
  convolution("vit-tiny-patch", {8, 3, 224, 224}, 192, 16, 16, 0);
}
