// The safetensors format: one reader for weights that are given, and for every exported file before it appears under its name.
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

/// The zccrt_elem of a type's name; -1: one that zcc has not.
int safetensorsElem(const std::string &dtype);

/// Throws a Failure unless names differ, each entry's bytes are those of its type (where it is known) and shape, and the entries
/// tile `dataBytes` bytes.
void checkEntries(std::vector<SafetensorsEntry> entries, int64_t dataBytes);

class File;
/// The checked entries of a file, begin and end counted from the file's. Throws a Failure that names it.
std::vector<SafetensorsEntry> readSafetensors(const File &file);

/// Reads a file back; `name` is for the message.
void checkSafetensors(int descriptor, const std::string &name);

} // namespace zccrt
