// --outputs: the graph's outputs as an .npz, the batches of every rank joined along axis 0 in the order of the data.
#pragma once

#include "runtime/Arena.h"
#include "runtime/OutFile.h"
#include "runtime/comm/Comm.h"
#include "runtime/zccrt.h"
#include <string>
#include <vector>

namespace zccrt {

/// Each output's bytes are collected in a file without a name beside the .npz and packed at the
/// end, so that outputs of any size take no memory.
class Outputs {
public:
  /// Every rank makes one; rank 0 opens the file. Throws a Failure if it cannot be written.
  Outputs(const zccrt_program &p, const std::string &path, Comm &comm);
  ~Outputs();
  Outputs(const Outputs &) = delete;
  Outputs &operator=(const Outputs &) = delete;

  /// Every rank calls it after its eval: adds the outputs of ranks 0 to batches - 1, of the last of these only the first
  /// `rows` of `batch` rows.
  void add(const Arena &arena, int64_t batches, int64_t rows, int64_t batch);
  /// The name of an output that cannot be cut into rows; nullptr if each can.
  static const char *mixed(const zccrt_program &p);
  /// Writes and commits the .npz.
  void finish();

private:
  struct Member {
    const zccrt_io *output;
    int64_t bytes; ///< of one batch
    int spool = -1;
    int64_t written = 0; ///< bytes
  };

  std::string headerOf(const Member &m) const;
  int openSpool() const;
  void addRank(const Arena &arena, const Member &m, int r, int64_t bytes);

  Comm &comm;
  std::string path;
  OutFile file; ///< of rank 0
  std::vector<Member> members;
  std::vector<char> brought, aside;
  int64_t batches = 0;
};

} // namespace zccrt
