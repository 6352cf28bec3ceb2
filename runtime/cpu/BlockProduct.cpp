// Forms and their primitives are kept in a map.
#include "runtime/cpu/BlockProduct.h"
#include <map>
#include <memory>
#include <mutex>

using namespace dnnl;

namespace zccrt::cpu {

namespace {

std::mutex lock;

/// oneDNN plans a primitive for OpenMP's threads at the time.
class OneThread {
public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }

private:
  int before_;
};

matmul::primitive_desc makePrimitive(const BlockForm &f) {
  OneThread alone;
  const auto type = dnnlType(f.elem);
  return makeProduct(describeMatrix(f.m, f.k, type, f.a.ld, f.a.transposed),
                     describeMatrix(f.k, f.n, type, f.b.ld, f.b.transposed),
                     describeMatrix(f.m, f.n, memory::data_type::f32, f.ldy), f.adds);
}

} // namespace

BlockProduct::BlockProduct(const BlockForm &form)
    : desc_(makePrimitive(form)), bytes_(aligned(int64_t(desc_.scratchpad_desc().get_size()))) {}

BlockProduct &BlockProduct::of(const BlockForm &form) {
  static std::map<BlockForm, std::unique_ptr<BlockProduct>> made;
  std::lock_guard guard(lock);
  auto &p = made[form];
  if (!p)
    p = std::make_unique<BlockProduct>(form);
  return *p;
}

void BlockProduct::prepare(int threads) {
  std::lock_guard guard(lock);
  OneThread alone;
  while (ofThread_.size() < size_t(threads))
    ofThread_.push_back(productPrimitive(desc_));
}

void BlockProduct::run(int thread, const void *a, const void *b, float *y, char *scratch) {
  try {
    Primitive &p = ofThread_[size_t(thread)];
    p.bind(0, const_cast<void *>(a));
    p.bind(1, const_cast<void *>(b));
    p.bind(2, y);
    p.run(scratch);
  } catch (const error &e) { // other threads are at work
    zccrt_fail(nullptr, "oneDNN cannot multiply blocks: %s (status %d)", e.what(), int(e.status));
  }
}

} // namespace zccrt::cpu
