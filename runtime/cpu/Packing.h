// Weights that the program keeps as a primitive of oneDNN wants them: a call's attribute "packed" says in which layout its weight
// is, by oneDNN's name of the format. The kernel `pack` makes one; what reads it computes what it would by reordering it itself.
#pragma once

#include "runtime/zccrt.h"
#include <cstdint>
#include <optional>
#include <string>

namespace zccrt::cpu {

/// How a call wants its weight.
struct Packing {
  std::string layout; ///< oneDNN's name: "ABcd16b16a2b"
};

/// Of a kernel: how many reads of a packed weight pay at least. To ask for the packing itself takes its time.
int64_t leastPackedReads(const char *kernel);
/// nullopt: it reads the weight as it lies. `kernel`: its name.
std::optional<Packing> packingOf(const char *kernel, const zccrt_call *c);

/// In blocks of how many channels the primitives for a forward convolution and its gradients have their input and result, as far
/// as these have whole blocks; 1: they would be reordered, or there is no telling.
int64_t convBlock(const zccrt_call *c);

/// Of a convolution or the gradient of its input; of a product.
std::optional<Packing> convPacking(const char *kernel, const zccrt_call *c);
std::optional<Packing> productPacking(const zccrt_call *c);

} // namespace zccrt::cpu
