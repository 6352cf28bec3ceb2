// The text of a configuration: Hjson, JSON as people write it, which is what DeepSpeed reads.
#pragma once

#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

namespace zcc {

using JsonValue = llvm::json::Value;

/// An object. Beside JSON: comments (#, //, /* */), trailing or no commas between lines, keys without quotes, strings in single
/// quotes or, to the end of their line, without quotes, no braces around the whole. Errors: what is neither, a key that an object
/// has twice (named with its path), brackets in brackets too deep, multi-line strings, anything but an object.
llvm::Expected<llvm::json::Value> parseConfigText(llvm::StringRef text);

} // namespace zcc
