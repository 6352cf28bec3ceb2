// Libraries that not every run needs, loaded by the first that does: programs start on machines without them.
#pragma once

#include "runtime/Fail.h"
#include <dlfcn.h>
#include <initializer_list>

namespace zccrt {

/// Opens the first of these, names as the loader looks for them or paths, that is there; nullptr: none is. `scope`: RTLD_GLOBAL
/// where the library's own plugins look for its functions.
inline void *openFirst(std::initializer_list<const char *> names, int scope = RTLD_LOCAL) {
  for (const char *name : names)
    if (void *library = dlopen(name, RTLD_NOW | scope))
      return library;
  return nullptr;
}

/// What a library calls so. Throws a Failure where it has none of that name.
template <typename F> void load(F *&symbol, void *library, const char *name) {
  symbol = reinterpret_cast<F *>(dlsym(library, name));
  if (!symbol)
    fail("a library has no '%s': it is older than what this program was built with", name);
}

} // namespace zccrt
