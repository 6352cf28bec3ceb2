// How the globals get their first values: read from the model's files, set, or drawn.
#pragma once

#include "runtime/Arena.h"
#include "runtime/Npy.h"
#include "runtime/checkpoint/Boxes.h"
#include "runtime/comm/Comm.h"
#include "runtime/zccrt.h"
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace zccrt {

/// The files that a program's weights are in, each opened once: what is read of one later is of the file that was read at first,
/// whatever its name leads to by then.
class ModelFiles {
public:
  /// `weightsDir`: as in weightsPath().
  explicit ModelFiles(const zccrt_program &p, std::string weightsDir = {}) : program(p), dir(std::move(weightsDir)) {}
  std::string path(int index) const;
  /// Opens it where nobody has. Throws a Failure.
  const File &operator[](int index);
  void close() { open.clear(); }

private:
  const zccrt_program &program;
  const std::string dir;
  std::map<int, std::unique_ptr<File>> open;
};

/// Fills every global in the arena. A partitioned global's rank reads only its own piece; files are
/// read in chunks. Random values are keyed by the seed, the global's name and the element's index
/// in the whole tensor, so that every partitioning draws the same. Throws a Failure if a file is
/// missing or cut short. Returns, for each global, this rank's part of the sum of its file's block
/// hashes.
/// `skipped`: globals that get their values elsewhere; empty: none.
std::vector<uint64_t> loadWeights(const zccrt_program &p, const Arenas &arenas, const Comm &comm, ModelFiles &files, int64_t seed,
                                  const std::vector<bool> &skipped = {});

/// Adds up the ranks' hashes and throws a Failure, on every rank, if a file has changed since the
/// program was compiled.
void checkHashes(const zccrt_program &p, const std::vector<uint64_t> &sums, Comm &comm, const ModelFiles &files,
                 const std::vector<bool> &skipped = {});

/// Throws a Failure where the bytes of a global in its file are not those with which the program was compiled, or the file is too
/// short.
void expectUnchanged(const zccrt_global &g, const File &file);

/// Where file `index` of the program is: in weightsDir if given, else relative to the program's
/// folder; -1 is OUT.weights.
std::string weightsPath(const zccrt_program &p, int index, const std::string &weightsDir);

/// The first element and the number of elements of a global that rank `rank` holds.
struct Piece {
  int64_t begin, count;
};
/// The tensor that a global is a box of; itself, if it is none.
inline const zccrt_global &wholeOf(const zccrt_program &p, const zccrt_global &g) {
  return g.init == ZCCRT_INIT_BOX ? p.globals[g.copy_of] : g;
}
Piece pieceOf(const zccrt_global &g, int rank);
/// The same as elements of a box of the tensor, which is all of it where the global is none.
Run runOf(const zccrt_program &p, const zccrt_global &g, int rank);
inline std::vector<int64_t> dimsOf(const zccrt_tensor &t) { return {t.dims, t.dims + t.ndim}; }

/// Fills out[count] with elements [begin, begin + count) of a random global (ZCCRT_INIT_UNIFORM or
/// _NORMAL).
void drawRandom(const zccrt_global &g, int64_t seed, int64_t begin, int64_t count, void *out);

} // namespace zccrt
