// The arrays that the files of a data set hold of each input, in order.
#pragma once

#include "runtime/Npy.h"
#include "runtime/Options.h"
#include "runtime/zccrt.h"
#include <string>
#include <vector>

namespace zccrt {

/// What follows each other along axis 0.
struct InputParts {
  const zccrt_io *input;
  std::vector<Array> parts; ///< at least one
};

/// Opens the files. `others` gets the names of arrays that are no inputs. Throws a Failure that names the file, or all that keeps
/// the files from fitting together.
std::vector<InputParts> openParts(const zccrt_program &p, const DataFiles &files, std::vector<std::string> &others);

/// "float32 (2, 3)"
std::string typeText(int elem, const int64_t *dims, int ndim);

} // namespace zccrt
