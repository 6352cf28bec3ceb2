// Whether what a run writes would take the place of what it reads.
#pragma once

#include "runtime/Options.h"
#include "runtime/zccrt.h"

namespace zccrt {

/// Throws a Failure where a file that is written is one that is read, or is written for two options: by any name that it has.
/// `folder`: of the model's own files, as in weightsPath().
void checkOverwrites(const zccrt_program &p, const Options &o, const std::string &folder);

/// Whether two names are of one file, which need not be there.
bool areSameFile(const std::string &a, const std::string &b);

} // namespace zccrt
