// Collectives by messages: each rank gets everyone's addends of its part and adds them up. For ranks on several nodes, and for
// devices.
#pragma once

#include "runtime/comm/Comm.h"
#include <algorithm>

namespace zccrt {

/// What ranks add up: rank r's addend lies at others + r * step, this rank's own somewhere else.
struct Addends {
  const char *own, *others;
  int64_t step; ///< bytes
  int rank, ranks;

  constexpr const char *of(int r) const { return r == rank ? own : others + r * step; }
};

/// What ranks gather: rank r's piece of `length` bytes, at all + r * step, but what is at `all` + `end` and behind it.
struct Pieces {
  const char *mine; ///< may be this rank's place of `all`
  char *all;
  int64_t step, length, end;
  int rank, ranks;

  char *of(int r) const { return all + r * step; }
  int64_t bytes(int r) const { return std::clamp<int64_t>(end - r * step, 0, length); }
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
  /// Whether messages may be of any length: what is gathered needs no staging, and then is one chunk.
  virtual bool gathersAtOnce() const { return false; }
  /// To every rank; by messages, unless a library does.
  virtual void gather(const Pieces &p);

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
