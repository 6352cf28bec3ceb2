// Activations that an attribute names: of recurrent operators, and of com.microsoft's fused ones.
#pragma once

#include "frontend/Importer.h"

namespace zcc {

/// By ONNX's name, in whatever case, with parameters in the order of ONNX's attributes; those left out are that operator's
/// defaults. Throws if there is none of the name.
Val activation(Emitter &e, const Val &x, llvm::StringRef name, llvm::ArrayRef<std::optional<double>> parameters);
/// How many parameters it takes of a recurrent operator's attributes: none, `activation_alpha`'s, or that of both.
size_t activationParameters(llvm::StringRef name);

} // namespace zcc
