// Which samples a micro-batch gets, and how they come into the arena.
//
// Row b of rank r's micro-batch k of step s is sample ((s*K + k)*N + r)*B + b, modulo the number of samples (a multiple of B; the
// rest is dropped in training). An array with exactly the input's own shape is the same for every micro-batch. What several files
// hold of an input is one array, and the samples are numbered through all of them.
#pragma once

#include "runtime/Arena.h"
#include "runtime/Npy.h"
#include "runtime/Options.h"
#include "runtime/zccrt.h"
#include <algorithm>
#include <string>
#include <vector>

namespace zccrt {

/// A permutation of [0, n) without a table: a Feistel network on the next power of four, walked
/// until it lands inside.
class Permutation {
public:
  Permutation(uint64_t n, uint64_t seed, uint64_t epoch);
  uint64_t operator()(uint64_t i) const;

private:
  uint64_t n, keys[6];
  int halfBits;
};

/// What becomes of the samples behind the last whole batch.
enum class Rest {
  LeaveOut,
  Pad ///< a batch more, filled up with the first samples, where @eval can leave rows out
};

class DataSet {
public:
  /// Opens the files and matches them with the program's inputs. Throws a Failure that names what
  /// was expected and what was found. Inputs without data are an error.
  DataSet(const zccrt_program &p, const DataFiles &files, const Options &o, Rest rest = Rest::LeaveOut);

  /// Whole batches of B samples in the data; 0 if every input is the same for every micro-batch.
  int64_t batches() const { return batchCount; }
  /// Rows of a batch: what samples are counted in.
  int64_t batchRows() const { return rowsPerBatch; }
  /// Batches of a round through all the data, the padded one included; at least 1.
  int64_t rounds() const { return std::max<int64_t>(1, batchCount + (restRows > 0)); }
  /// Whether samples behind the last whole batch are left out.
  bool leftOut() const { return isCut; }
  /// How many rows of batch `index` of that round are samples; 0 behind the last.
  int64_t rowsOf(int64_t index) const;
  /// Samples in the data, all files together; 0 if every input is the same for every micro-batch.
  int64_t samples() const { return sampleCount; }
  /// Bytes that inflated arrays take.
  int64_t bytesInMemory() const { return memory; }
  /// What the user should know: dropped rows, conversions.
  const std::vector<std::string> &notes() const { return noteLines; }
  void note(const std::string &text) { noteLines.push_back(text); }
  /// Of types, sizes and values; equal on every rank that found the same. Of an array larger than 16 MiB, 256 blocks of
  /// 64 KiB from its first to its last are read.
  uint64_t hash();

  /// Fills the inputs with batch number `index` = (s*K + k)*N + r, or with the padded one behind the whole ones; of inputs that
  /// take several, as batch number `slot` of them. Throws if a value is outside its input's range.
  void load(Arena &arena, int64_t index, int64_t slot = 0);

private:
  struct Binding {
    const zccrt_io *input;
    Array array;
    int64_t rows;    ///< samples a batch takes
    int64_t batches; ///< whole ones
    int64_t rowElements;
    int64_t rowStride;   ///< elements from sample to sample
    int64_t samples = 0; ///< 0: the same every time
    std::string advice;  ///< ends the message about a value out of range
  };

  void bindArray(const zccrt_io &input, Array array);
  void bindTokens(const std::vector<std::string> &paths, const Options &o, const zccrt_program &p);
  void settle(const zccrt_program &p);
  void settleRest(const zccrt_program &p, const Binding &first);
  void copyBatch(const Binding &b, int64_t index, char *to);
  void copyRows(const Binding &b, int64_t sample, int64_t rows, char *to);
  void checkRange(const Binding &b, const char *data, int64_t index) const;
  /// Takes the labels from samples that only fill up the last batch. Throws if more labels are left than the program has rows
  /// for.
  void limitLabels(const Binding &b, char *data, int64_t index) const;
  int64_t sampleOf(const Binding &b, int64_t position) const;

  std::vector<Binding> bindings;
  std::vector<std::string> noteLines;
  std::vector<char> staging; ///< one piece of a conversion
  std::vector<char> aside;   ///< an input on its way into an arena that the host cannot write
  int64_t batchCount = 0, sampleCount = 0, rowsPerBatch = 1, restRows = 0, memory = 0;
  Rest rest;
  uint64_t sizes = 0, seed;
  bool shuffle, shuffleRows = false, isCut = false;
};

} // namespace zccrt
