// What a checkpoint holds, as JSON: the manifest is of the whole, an index of each rank's file of it.
#pragma once

#include "runtime/checkpoint/Boxes.h"
#include <string>
#include <vector>

namespace zccrt {

/// Some of a tensor's elements, side by side in a file.
struct SavedRun {
  std::string tensor; ///< its logical name
  int rank = -1;      ///< whose own values they are; -1: everybody's
  int elem = 0;       ///< zccrt_elem
  std::vector<int64_t> dims;
  Run run;
  int64_t offset = 0; ///< bytes, in the file
  uint64_t hash = 0;  ///< of its bytes, by Hash.h
};

/// A file of a rank, and what it holds.
struct SavedFile {
  std::string data, index; ///< names
  int64_t bytes = 0;       ///< of data
  uint64_t indexHash = 0;
};

struct Manifest {
  std::string model;
  uint64_t modelHash = 0;  ///< of its parameters' names and shapes
  uint64_t graphHash = 0;  ///< of its ONNX graph; 0: it is not known
  std::string optimizer;   ///< "adamw"; "": it is not known, or none of zcc's
  int64_t step = 0;        ///< steps done
  int64_t skipped = 0;     ///< of them without an update
  int64_t samples = 0;     ///< rows that all ranks have taken from the data
  int64_t tokens = 0;      ///< likewise; 0: they are not counted
  int64_t dataSamples = 0; ///< in all of the data; 0: it is not known
  int64_t seed = 0;
  bool shuffle = false;
  int ranks = 1, zero = 0;
  std::vector<SavedFile> files;
  std::string exports;      ///< the file by which zcc-ckpt exports; "": there is none
  uint64_t exportsHash = 0; ///< of it
};

/// The text ends in a checksum of itself.
std::string toJson(const Manifest &m);
/// Throws a Failure that says what is wrong with the text.
Manifest readManifest(const std::string &text);

std::string toJson(const std::vector<SavedRun> &runs);
std::vector<SavedRun> readIndex(const std::string &text);

} // namespace zccrt
