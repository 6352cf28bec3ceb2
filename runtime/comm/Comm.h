// Collectives over the ranks of a job. Every rank calls the same ones in the same order; each blocks until this rank's part is
// done. Sums have one association, rank 0 + rank 1 + ..., whichever way the bytes go, so that every path gives the same bits.
#pragma once

#include "runtime/Environment.h"
#include "runtime/Options.h"
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace zccrt {

/// A tensor of a bucket: count elements of it whole.
struct Part {
  const void *in;
  void *out;
  int64_t count;
};
using Parts = std::span<const Part>;

class Comm {
public:
  Comm(int rank, int ranks) : rank(rank), ranks(ranks) {}
  virtual ~Comm() = default;

  const int rank, ranks;

  /// out[count] = the sum (mean: divided by ranks) of every rank's in[count]; out may be in.
  void allReduce(const void *in, void *out, int64_t count, int elem, bool mean) {
    const Part part = {in, out, count};
    allReduce(Parts(&part, 1), elem, mean);
  }
  /// out[count] = the ranks' in[piece(count)] in rank order. in may be this rank's piece of out.
  void allGather(const void *in, void *out, int64_t count, int elem) {
    const Part part = {in, out, count};
    allGather(Parts(&part, 1), elem);
  }
  /// out[piece(count)] = this rank's piece of the sum of every rank's in[count], zero beyond its
  /// end; out may be in.
  void reduceScatter(const void *in, void *out, int64_t count, int elem, bool mean) {
    const Part part = {in, out, count};
    reduceScatter(Parts(&part, 1), elem, mean);
  }
  /// The same for the tensors of a bucket, each with pieces of its own.
  virtual void allReduce(Parts parts, int elem, bool mean) = 0;
  virtual void allGather(Parts parts, int elem) = 0;
  virtual void reduceScatter(Parts parts, int elem, bool mean) = 0;
  /// to[bytes] on rank 0 = data[bytes] of rank `from`, another one; every rank calls it.
  virtual void bring(int from, const void *data, void *to, int64_t bytes) = 0;
  /// Tells the other ranks that this one has failed. Ranks of a node then wait a second at most until rank 0, which has a run's
  /// page to write, has ended: a launcher kills them all once the first has.
  virtual void abort() = 0;
  /// Returns when every rank has called it.
  virtual void barrier() = 0;
  /// Throws PeerFailure or RankDied where it is known that another rank is gone, while this one waits for something else of it.
  virtual void look() {}

  /// Elements a rank holds of a partitioned tensor, the last ranks fewer.
  int64_t piece(int64_t count) const { return (count + ranks - 1) / ranks; }
  /// What rank r has of the `length` elements from `at` on in its piece of a tensor of count
  /// elements.
  int64_t pieceLength(int64_t count, int r, int64_t at, int64_t length) const;
  /// all[ranks * bytes] = every rank's record, in rank order.
  void exchange(const void *mine, int64_t bytes, void *all) { allGather(mine, all, bytes * ranks, ZCCRT_U8); }
  /// data[bytes] = rank 0's, on every rank. For small data: each rank receives all ranks'.
  void broadcast(void *data, int64_t bytes);
  /// Every rank's text, in rank order, cut to 8 KiB.
  std::vector<std::string> exchangeText(const std::string &mine);
  /// Hands every rank's error ("" for none) round; if there is one, rank 0 prints each once and all
  /// ranks throw AgreedFailure.
  void agree(const std::string &error);
};

/// Joins the job: MPI if the program was started by mpirun, one rank otherwise. Ranks that share a
/// node use a shared-memory window of fixed size. Which ranks share this one's node is MPI's word: not every launcher says it in
/// the environment. Throws a Failure.
/// `command`: a hash of the command line. Where a rank has another than the first one, whose collectives would be others,
/// throws an AgreedFailure on all of them, which has been said.
std::unique_ptr<Comm> joinJob(Launch &launch, CommKind kind, uint64_t command);

/// Ends MPI if joinJob began it; every rank calls it.
void leaveJob();

/// A job of one rank.
std::unique_ptr<Comm> singleRank();

struct CollectiveOptions {
  int slots = 0, mostParts = 0; ///< as zccrt_program has them
  bool ownThread = false;       ///< lets communication run beside compute; without one a collective runs when it is started
  CommKind kind = CommKind::Auto;
  int64_t stagingBytes = 0; ///< as zccrt_program has them
};
/// Makes `comm` what zccrt_all_reduce_start and its like use. Between devices messages go directly, or with CommKind::Mpi by way
/// of the host; returns why they have to, "": they have not, or were asked to. Every rank calls it.
std::string startCollectives(Comm &comm, const CollectiveOptions &o);
void stopCollectives();

/// Bytes that this rank has sent to others since startCollectives, by collective.
struct Traffic {
  int64_t allReduce = 0, allGather = 0, reduceScatter = 0;
};
Traffic traffic();
/// What a device has sent again without being told of each collective.
void addTraffic(const Traffic &more);
/// Whether they go between devices by way of the host's memory.
bool collectivesAreStaged();

} // namespace zccrt
