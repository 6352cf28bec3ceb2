// NVIDIA's libraries, loaded when they are needed: programs start without them.
#pragma once

#include "runtime/Library.h"

namespace zccrt::cuda {

/// Opens the first of the names that is found: as the loader finds it, in CUDA_HOME, in the toolkit that the runtime was built
/// with, where tools/install-deps and pip put it. nullptr: nowhere.
void *openLibrary(std::initializer_list<const char *> names);

} // namespace zccrt::cuda
