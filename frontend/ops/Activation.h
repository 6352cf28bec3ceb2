// Activations that an attribute names: of recurrent operators, and of com.microsoft's fused ones.
#pragma once

#include "frontend/Importer.h"

namespace zcc {

/// By ONNX's name, in whatever case, with parameters in the order of ONNX's attributes; those left out are that operator's
/// defaults. Throws if there is none of the name.
Val activation(Emitter &e, const Val &x, llvm::StringRef name, llvm::ArrayRef<double> parameters);

} // namespace zcc
