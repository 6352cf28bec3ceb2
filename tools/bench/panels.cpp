// Times sgemm and an elementwise kernel behind it (bias and a leaky activation, two results), the whole product first, and in
// panels of rows, each thread with the kernel right behind its panel: milliseconds, the ratio to the first, and whether panels
// change the product's bits. Where it stands: "Epilogues" in README.md.
//   g++ -std=c++20 -O3 -march=native -fopenmp tools/bench/panels.cpp -ldnnl -o panels && OMP_PROC_BIND=true ./panels
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <dnnl.h>
#include <vector>

using Floats = std::vector<float>;

constexpr int kThreads = 2, kRuns = 9;

struct Shape {
  const char *name;
  int64_t m, k, n;
  bool isTransposed; ///< the second factor
};

/// Rows [first, last) of a result: its bias and activation.
static void epilogue(float *y, const float *bias, float *other, int64_t first, int64_t last, int64_t n) {
  for (int64_t i = first; i < last; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float v = y[i * n + j] + bias[j];
      y[i * n + j] = v;
      other[i * n + j] = v > 0 ? v : 0.1f * v;
    }
}

static void bench(const Shape &s) {
  Floats a(s.m * s.k), b(s.k * s.n), y(s.m * s.n), other(s.m * s.n), bias(s.n, 0.1f), whole, others(1 << 25);
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = float(i * 7919 % 1000) / 1000 - 0.5f;
  for (size_t i = 0; i < b.size(); ++i)
    b[i] = float(i * 104729 % 1000) / 1000 - 0.5f;
  auto product = [&](int64_t first, int64_t last) {
    dnnl_sgemm('N', s.isTransposed ? 'T' : 'N', last - first, s.n, s.k, 1, &a[first * s.k], s.k, b.data(),
               s.isTransposed ? s.k : s.n, 0, &y[first * s.n], s.n);
  };
  std::vector<int64_t> pieces = {s.m, s.m / kThreads};
  for (int64_t rows : {256, 128, 64, 32})
    if (rows < s.m / kThreads)
      pieces.push_back(rows);
  std::vector<double> least(pieces.size(), 1e9);
  std::vector<bool> hasOtherBits(pieces.size());
  for (int run = 0; run < kRuns; ++run) // in turn: the machine is not the same all the time
    for (size_t p = 0; p < pieces.size(); ++p) {
      for (float &x : others) // nothing is in a cache
        x += 1;
      auto start = std::chrono::steady_clock::now();
      if (!p)
        product(0, s.m);
      const int64_t piece = p ? pieces[p] : s.m / kThreads;
#pragma omp parallel for schedule(static) num_threads(kThreads)
      for (int64_t first = 0; first < s.m; first += piece) {
        const int64_t last = std::min(s.m, first + piece);
        if (p)
          product(first, last);
        epilogue(y.data(), bias.data(), other.data(), first, last, s.n);
      }
      least[p] = std::min(least[p], std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
      if (!p)
        whole = y;
      hasOtherBits[p] = whole != y;
    }
  printf("%-20s", s.name);
  for (size_t p = 0; p < pieces.size(); ++p)
    printf("  %ld: %.2f (%.2f%s)", long(pieces[p]), least[p], least[p] / least[0], hasOtherBits[p] ? ", other bits" : "");
  printf("\n");
  fflush(stdout);
}

int main() {
  for (const Shape &s : {Shape{"gpt2-mini-qkv", 2048, 384, 1152, false}, Shape{"gpt2-mini-fc", 2048, 384, 1536, false},
                         Shape{"gpt2-mini-proj", 2048, 1536, 384, false}, Shape{"gpt2-mini-proj-grad", 2048, 384, 1536, true},
                         Shape{"bert-mini-fc", 2048, 256, 1024, false}, Shape{"vit-tiny-fc", 1576, 192, 768, false},
                         Shape{"mlp-1", 64, 784, 1024, false}})
    bench(s);
}
