// What of a module's globals goes into checkpoints, under which names, and where a step writes it first.
#pragma once

#include "ir/Op.h"
#include "llvm/ADT/DenseSet.h"
#include <vector>

namespace zcc {

/// How checkpoints hold a global.
struct SavedAs {
  std::string name; ///< of the logical tensor; empty: they do not
  int flags = 0;    ///< ZCCRT_SAVED_...
  explicit operator bool() const { return !name.empty(); }
};

/// Parameters, and what steps write and a later step reads. A parameter's f32 master has the parameter's name: a run may go on in
/// another precision.
SavedAs savedAs(const Module &m, const GlobalValue &g);

/// Bytes of the buffer through which a rank saves.
int64_t saveBytes(const Module &m);

/// Finds the first writes of a planned module's saved globals, function by function, node by node.
class FirstWrites {
public:
  explicit FirstWrites(const Module &m);
  /// The globals that the node's statement writes and none before it did.
  std::vector<int> of(const Function &f, const Node &n);

private:
  struct Placed {
    Space space;
    int64_t begin, end; ///< bytes of the arena
    int global;
  };
  void add(Space space, int64_t begin, int64_t bytes, std::vector<int> &out);

  std::vector<Placed> ranges_;
  int64_t end_[3] = {}; ///< of the last, by space
  llvm::DenseSet<int> written_;
};

} // namespace zcc
