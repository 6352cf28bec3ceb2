// NVIDIA's libraries, loaded when they are needed: programs start without them.
#pragma once

#include <initializer_list>

namespace zccrt::cuda {

/// Opens the first of the names that is found: as the loader finds it, in CUDA_HOME, in the toolkit that the runtime was built
/// with, where tools/install-deps and pip put it. nullptr: nowhere.
void *openLibrary(std::initializer_list<const char *> names);

void *functionOf(void *library, const char *name);
/// A function of it. Throws a Failure where it has none of that name.
template <typename F> void load(F *&function, void *library, const char *name) {
  function = reinterpret_cast<F *>(functionOf(library, name));
}

} // namespace zccrt::cuda
