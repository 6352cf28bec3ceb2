// The safetensors format: a reader that every exported file must pass before it appears under its name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zccrt {

struct SafetensorsEntry {
  std::string name, dtype;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0; ///< of its data, behind the header
};

/// "F32" for a zccrt_elem.
const char *safetensorsType(int elem);

/// The entries of a header (the JSON text), in its order. Throws a Failure if it is not one.
std::vector<SafetensorsEntry> parseSafetensors(const std::string &header);

/// Throws a Failure unless names differ, each entry's bytes are those of its type and shape, and the entries tile
/// `dataBytes` bytes.
void checkEntries(std::vector<SafetensorsEntry> entries, int64_t dataBytes);

/// Reads a file back; `name` is for the message.
void checkSafetensors(int descriptor, const std::string &name);

} // namespace zccrt
