// Collectives by messages: each rank gets everyone's addends of its part and adds them up. For ranks on several nodes, and for
// devices.
#pragma once

#include "runtime/Fail.h"
#include "runtime/comm/Comm.h"
#include <vector>

namespace zccrt {

/// What ranks add up: rank r's addend lies at others + r * step, this rank's own somewhere else.
struct Addends {
  const char *own, *others;
  int64_t step; ///< bytes
  int rank, ranks;

  constexpr const char *of(int r) const { return r == rank ? own : others + r * step; }
};

/// What carries messages between ranks, and works on what they bring: at once, or in the order of a device's stream.
class Transport {
public:
  virtual ~Transport() = default;

  /// Memory that messages are received in.
  virtual char *allocate(int64_t bytes) = 0;
  /// Bytes above 0. What one rank sends another, that one receives, in the same order.
  virtual void send(const char *data, int64_t bytes, int to) = 0;
  virtual void receive(char *data, int64_t bytes, int from) = 0;
  /// What comes behind it runs when all messages since the last time have arrived.
  virtual void finish() = 0;
  /// Whether gather() is there, which messages' staging does not bound.
  virtual bool gathersAtOnce() const { return false; }
  /// To every rank: rank r's piece of bytes[r], at all + r * step; this rank's lies at `mine`, which may be its place there.
  virtual void gather(const char *mine, char *all, int64_t step, const std::vector<int64_t> &bytes) {
    fail("internal: these messages gather nothing at once");
  }

  virtual void copy(char *to, const char *from, int64_t bytes) = 0;
  virtual void zero(char *to, int64_t bytes) = 0;
  /// As sumInOrder; out may be the own addend.
  virtual void sum(char *out, const Addends &parts, int64_t count, int elem, bool mean) = 0;
};

/// A chunk is a message to and from each rank, or one for each tensor of a bucket that it cuts, all under way at once.
class MessageComm : public Comm {
public:
  /// The staging buffer holds a message of `messageBytes` from every rank.
  MessageComm(int rank, int ranks, std::unique_ptr<Transport> by, int64_t messageBytes)
      : Comm(rank, ranks), by(std::move(by)), messageBytes(messageBytes), staging(this->by->allocate(messageBytes * ranks)) {}

  void allReduce(Parts tensors, int elem, bool mean) override;
  void allGather(Parts tensors, int elem) override;
  void reduceScatter(Parts tensors, int elem, bool mean) override;
  void bring(int from, const void *data, void *to, int64_t bytes) override;
  void abort() override {}

private:
  void gatherAtOnce(Parts tensors, int64_t elemBytes);
  void send(const char *data, int64_t bytes, int to) {
    if (bytes)
      by->send(data, bytes, to);
  }
  void receive(char *data, int64_t bytes, int from) {
    if (bytes)
      by->receive(data, bytes, from);
  }
  /// What rank r sent.
  char *staged(int r) { return staging + r * messageBytes; }
  /// What others have sent lies `behind` bytes from the begin of their messages.
  void addUp(const char *own, int64_t behind, char *to, int64_t count, int elem, bool mean) {
    if (count)
      by->sum(to, {own, staging + behind, messageBytes, rank, ranks}, count, elem, mean);
  }

  std::unique_ptr<Transport> by;
  const int64_t messageBytes;
  char *const staging;
};

/// By MPI, in memory of the host.
std::unique_ptr<Transport> mpiTransport();

} // namespace zccrt
