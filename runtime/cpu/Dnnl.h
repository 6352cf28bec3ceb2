// oneDNN primitives that run without allocating: scratchpads are the caller's, memory objects are made once. The two API versions
// (2: descriptors, 3: none) meet only in makeX functions.
#pragma once

#include "runtime/Elem.h"
#include "runtime/cpu/Call.h"
#include <dnnl.hpp>
#include <string>
#include <vector>

namespace zccrt::cpu {

/// What a plan is made for: to say what it takes, or to be run.
enum class For { Workspace, Run };

const dnnl::engine &engine();
const dnnl::stream &stream();

dnnl::memory::data_type dnnlType(int32_t elem);

/// Attributes with the scratchpad given by the user.
dnnl::primitive_attr userScratchpad();

/// y = a b, or y + a b.
dnnl::matmul::primitive_desc makeProduct(const dnnl::memory::desc &a, const dnnl::memory::desc &b, const dnnl::memory::desc &y,
                                         bool adds);

/// A matrix that is stored in rows `ld` elements apart, or one of which the transpose is.
dnnl::memory::desc describeMatrix(int64_t rows, int64_t cols, dnnl::memory::data_type type, int64_t ld,
                                  bool isTransposed = false);

// ---- what is packed (runtime/cpu/Packing.h)

/// The layout of the call's weight; "": rows.
inline const char *packedLayout(const zccrt_call *c) { return attrString(c, "packed", ""); }
/// Throws where oneDNN has no format of that name.
dnnl::memory::desc packedDesc(const zccrt_tensor &t, const char *layout);
/// oneDNN's name of a format; "": it has none, or it is more than that.
std::string layoutName(const dnnl::memory::desc &d);

/// A primitive and its arguments.
class Primitive {
public:
  Primitive() = default;
  Primitive(const dnnl::primitive &p, const dnnl::memory::desc &scratchpad);
  /// Adds an argument (DNNL_ARG_*); its place is its number in add order, from 0.
  void add(int arg, const dnnl::memory::desc &desc);
  void bind(int place, void *data);
  /// The scratchpad's bytes may be given anew each time; 64-byte aligned.
  void run(void *scratchpad);
  explicit operator bool() const { return bool(primitive_); }

private:
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_; ///< the first is the scratchpad's
  std::vector<dnnl_exec_arg_t> args_;
  std::vector<void *> bound_;
};

/// Of a product; its arguments in their places: a, b, y.
Primitive productPrimitive(const dnnl::matmul::primitive_desc &pd);

/// A call's scratch: in the arena, or, where this machine's library needs more than the compiling
/// one's said, allocated in the prepare call and counted among the library's bytes.
class Scratch {
public:
  void prepare(const zccrt_call *c, int64_t bytes);
  char *get(char *arena, const zccrt_call *c) const { return own_ ? own_ : arena + c->scratch; }

private:
  char *own_ = nullptr;
};

/// Lets malloc keep what it is given back: dnnl_sgemm allocates the buffers that it packs into in
/// every call, and would otherwise pay for fresh pages each time. Once per process, by what calls
/// it.
void keepFreedMemory();

/// Ends the program with the library's error and the call's node.
[[noreturn]] void failDnnl(const zccrt_call *c, const dnnl::error &e);

/// Ends the program where a product failed. Threads may call it: an exception would not leave a parallel region.
void expectMultiplied(dnnl_status_t status);

/// f(), or the end of the program where the library throws.
template <typename F> auto orFail(const zccrt_call *c, F f) {
  try {
    return f();
  } catch (const dnnl::error &e) {
    failDnnl(c, e);
  }
}

} // namespace zccrt::cpu
