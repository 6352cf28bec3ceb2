// The engine and the stream, and primitives with their arguments.
#include "runtime/cpu/Dnnl.h"
#include <cstdlib>
#include <malloc.h>

using namespace dnnl;

namespace zccrt::cpu {

const dnnl::engine &engine() {
  static const dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}

const dnnl::stream &stream() {
  static const dnnl::stream s(engine());
  return s;
}

memory::data_type dnnlType(int32_t elem) {
  switch (elem) {
  case ZCCRT_F32:
    return memory::data_type::f32;
  case ZCCRT_F16:
    return memory::data_type::f16;
  case ZCCRT_BF16:
    return memory::data_type::bf16;
  case ZCCRT_I32:
    return memory::data_type::s32;
  default:
    return memory::data_type::undef;
  }
}

primitive_attr userScratchpad() {
  primitive_attr a;
  a.set_scratchpad_mode(scratchpad_mode::user);
  return a;
}

matmul::primitive_desc makeProduct(const memory::desc &a, const memory::desc &b, const memory::desc &y, bool adds) {
  primitive_attr attr = userScratchpad();
  if (adds) {
    post_ops sum;
    sum.append_sum(1.0f);
    attr.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), a, b, y, attr};
#else
  return {matmul::desc(a, b, y), attr, engine()};
#endif
}

memory::desc describeMatrix(int64_t rows, int64_t cols, memory::data_type type, int64_t ld, bool isTransposed) {
  return {{rows, cols}, type, isTransposed ? memory::dims{1, ld} : memory::dims{ld, 1}};
}

Primitive productPrimitive(const matmul::primitive_desc &pd) {
  Primitive p(matmul(pd), pd.scratchpad_desc());
  p.add(DNNL_ARG_SRC, pd.src_desc());
  p.add(DNNL_ARG_WEIGHTS, pd.weights_desc());
  p.add(DNNL_ARG_DST, pd.dst_desc());
  return p;
}

Primitive::Primitive(const dnnl::primitive &p, const memory::desc &scratchpad) : primitive_(p) {
  add(DNNL_ARG_SCRATCHPAD, scratchpad);
}

void Primitive::add(int arg, const memory::desc &desc) {
  memories_.push_back(memory(desc, engine(), DNNL_MEMORY_NONE));
  args_.push_back({arg, memories_.back().get()});
  bound_.push_back(nullptr);
}

/// Setting a handle may clear the padding of a blocked format, so it is done only on change.
static void setHandle(memory &m, void *&bound, void *data) {
  if (bound == data)
    return;
  m.set_data_handle(data);
  bound = data;
}

void Primitive::bind(int place, void *data) { setHandle(memories_[place + 1], bound_[place + 1], data); }

void Primitive::run(void *scratchpad) {
  setHandle(memories_[0], bound_[0], scratchpad);
  error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream().get(), int(args_.size()), args_.data()),
                    "a primitive failed");
}

void Scratch::prepare(const zccrt_call *c, int64_t bytes) {
  if (bytes <= c->scratch_bytes)
    return;
  own_ = static_cast<char *>(std::aligned_alloc(64, aligned(bytes)));
  if (!own_)
    zccrt_fail(c->node, "no memory for %lld bytes of scratch", (long long)bytes);
}

void keepFreedMemory() {
#ifdef M_MMAP_THRESHOLD
  static const bool done = [] {
    mallopt(M_MMAP_THRESHOLD, 32 << 20); // bytes, the most it takes
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    return true;
  }();
  (void)done;
#endif
}

void expectMultiplied(dnnl_status_t status) {
  if (status != dnnl_success)
    zccrt_fail(nullptr, "oneDNN's sgemm failed (status %d%s)", int(status),
               status == dnnl_out_of_memory ? ", out of memory" : "");
}

void failDnnl(const zccrt_call *c, const error &e) {
  zccrt_fail(c->node, "oneDNN cannot compute %s: %s (status %d)", c->name, e.what(), int(e.status));
}

} // namespace zccrt::cpu
