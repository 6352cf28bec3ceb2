// The text of a configuration: JSON with comments, as DeepSpeed reads it.
#pragma once

#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

namespace zcc {

/// An object. Comments (#, //, /* */) count as blanks. Errors: bad JSON, a key that an object has
/// twice (named with its path), anything but an object.
llvm::Expected<llvm::json::Value> parseConfigText(llvm::StringRef text);

} // namespace zcc
