// Whether what a run writes would take the place of what it reads.
#pragma once

#include "runtime/Options.h"
#include "runtime/zccrt.h"

namespace zccrt {

/// Throws a Failure where a file that is written is one that is read, or is written for two options: by any name that it has.
void checkOverwrites(const zccrt_program &p, const Options &o);

} // namespace zccrt
