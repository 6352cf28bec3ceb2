// Arrays of .npz files: members by name, as NumPy saves them.
#pragma once

#include "ir/Type.h"
#include "llvm/Support/Error.h"
#include <map>

namespace zcc {

struct Array {
  Type type;
  std::string bytes; ///< row-major, little-endian
};

/// Reads all arrays; an error names file and member.
llvm::Expected<std::map<std::string, Array>> readNpz(llvm::StringRef path);
/// Writes uncompressed members; the file appears whole or not at all. bf16 is not known to NumPy
/// and must not occur.
llvm::Error writeNpz(llvm::StringRef path, const std::map<std::string, Array> &arrays);

} // namespace zcc
