// --weights of zcc: first values from files that others have written, by the names of the model's state_dict.
#pragma once

#include "frontend/parameters/Parameters.h"

namespace zcc {

/// The folder of the model's external data that --weights means; "": it means files that go by names, or nothing. Errors: what is
/// neither.
llvm::Expected<std::string> dataFolderOf(const ImportOptions &options);

/// Gives every parameter the place of its values in these files, and constants their values. Errors: files that cannot be read;
/// all at once, what they lack (without --init) and what does not fit; a folder that has the model's external data, too.
llvm::Error takeWeights(OnnxFile &file, const ImportOptions &options, Parameters &parameters, ImportReport &report);

} // namespace zcc
