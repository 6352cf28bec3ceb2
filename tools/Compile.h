// From a model to what is asked for: a program, its sources, a module in text, or a plan.
#pragma once

#include "tools/ZccOptions.h"

namespace zcc {

/// Compiles the request's model, after readToolOptions().
llvm::Error compile(const Request &r);

} // namespace zcc
