// zcc --calibrate: what this machine does, measured once and kept.
#pragma once

#include "tools/ZccOptions.h"

namespace zcc {

/// The cores that this process may run on.
int ownCores();
/// Measures, adds what is new to the profile's file, and prints it; after readToolOptions().
llvm::Error calibrate(const Request &r);

} // namespace zcc
