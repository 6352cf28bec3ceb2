// Calls of kernels that are timed.
#include "tools/KernelRun.h"
#include "runtime/cpu/Call.h"
#include "tools/Timing.h"
#include <cstring>

using namespace zcc;

KernelRun::KernelRun(const char *kernel, int32_t elem) : elem_(elem) {
  for (int i = 0; i < zccrt_cpu_kernel_count; ++i)
    if (!strcmp(zccrt_cpu_kernels[i].name, kernel))
      def_ = &zccrt_cpu_kernels[i];
}

KernelRun &KernelRun::add(const Shape &dims, int32_t elem) {
  zccrt_tensor t{};
  t.elem = elem;
  t.ndim = int32_t(dims.size());
  int64_t n = 1;
  for (size_t i = dims.size(); i--; n *= dims[i]) {
    t.dims[i] = dims[i];
    t.strides[i] = n;
  }
  t.offset = reserve(n * zccrt::cpu::elemBytes(elem));
  tensors_.push_back(t);
  return *this;
}

KernelRun &KernelRun::addTransposed(int64_t rows, int64_t columns) {
  add({rows, columns});
  tensors_.back().strides[0] = 1;
  tensors_.back().strides[1] = rows;
  return *this;
}

KernelRun &KernelRun::absent() {
  tensors_.push_back({});
  tensors_.back().offset = -1;
  return *this;
}

KernelRun &KernelRun::results() {
  operands_ = int(tensors_.size());
  return *this;
}

KernelRun &KernelRun::ints(const char *name, Shape v) {
  lists_.push_back({name, std::move(v)});
  return *this;
}

KernelRun &KernelRun::way(std::string w) {
  way_ = std::move(w);
  return *this;
}

int64_t KernelRun::reserve(int64_t bytes) {
  int64_t at = used_;
  used_ += (bytes + 127) / 64 * 64;
  return at;
}

void KernelRun::fill(char *arena) const {
  memset(arena, 0, size_t(used_));
  for (const zccrt_tensor &t : tensors_)
    for (int64_t i = 0; t.offset >= 0 && i < zccrt::cpu::count(t); ++i) {
      const float x = float(i % 97) * 0.01f;
      if (t.elem == ZCCRT_F32)
        zccrt::cpu::at<float>(arena, t)[i] = x;
      else // bf16: the upper half
        zccrt::cpu::at<uint16_t>(arena, t)[i] = uint16_t(__builtin_bit_cast(uint32_t, x) >> 16);
    }
}

zccrt_call KernelRun::call(int threads, std::vector<zccrt_attr> &attrs) const {
  static const double scale = 0.125;
  zccrt_call c{};
  attrs = {{"scale", 1, nullptr, &scale, nullptr}}; // of attention; others do not look
  for (auto &[name, values] : lists_)
    attrs.push_back({name, int32_t(values.size()), values.data(), nullptr, nullptr});
  if (!way_.empty())
    attrs.push_back({"way", 1, nullptr, nullptr, way_.c_str()});
  c.name = c.node = "calibration";
  c.t = tensors_.data();
  c.nin = operands_;
  c.nout = int(tensors_.size()) - operands_;
  c.attrs = attrs.data();
  c.nattrs = int32_t(attrs.size());
  c.threads = threads;
  return c;
}

/// Of at least so many bytes, for one run after the other: pages that have been touched stay.
static char *memoryOf(int64_t bytes) {
  static int64_t size = 0;
  static std::unique_ptr<Buffer> memory;
  if (size < bytes)
    memory = std::make_unique<Buffer>(size = bytes);
  return memory->data();
}

void zcc::measureInTurn(llvm::MutableArrayRef<KernelRun> runs, int threads, double limit, int rounds) {
  constexpr int64_t kMostArenas = 16;
  const KernelRun &first = runs.front();
  struct Prepared {
    std::vector<zccrt_attr> attrs;
    zccrt_call call;
    void *cache = nullptr;
  };
  std::vector<Prepared> prepared(runs.size());
  int64_t scratch = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    Prepared &p = prepared[i];
    p.call = runs[i].call(threads, p.attrs);
    p.call.cache = &p.cache;
    p.call.scratch = first.used_;
    p.call.scratch_bytes = first.def_->workspace ? first.def_->workspace(&p.call) : 0;
    scratch = std::max(scratch, p.call.scratch_bytes);
  }
  const int64_t used = (first.used_ + scratch + 127) / 64 * 64;
  const int64_t arenas = std::clamp((beyondCaches() + used - 1) / used, int64_t(1), kMostArenas); // in turn
  char *memory = memoryOf(arenas * used);
  first.fill(memory);
  for (int64_t i = 1; i < arenas; ++i)
    memcpy(memory + i * used, memory, size_t(first.used_));
  for (Prepared &p : prepared) {
    first.def_->run(nullptr, &p.call);
    first.def_->run(memory, &p.call);
  }
  int64_t next = 0;
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < runs.size(); ++i)
      runs[i].seconds.push_back(
          typicalSeconds(limit, [&] { first.def_->run(memory + next++ % arenas * used, &prepared[i].call); }));
}
