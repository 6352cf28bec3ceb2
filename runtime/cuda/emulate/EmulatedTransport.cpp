// MPI's messages between emulated memories: those of a group are sent when the stream comes to its end.
#include "runtime/cuda/emulate/EmulatedTransport.h"
#include "runtime/cuda/Sum.h"
#include <utility>
#include <vector>

namespace zccrt::emulate {

namespace {

class EmulatedTransport : public Transport {
public:
  explicit EmulatedTransport(Device &on) : on(on), mpi(mpiTransport()) {}

  char *allocate(int64_t bytes) override { return on.take(bytes); }
  void send(const char *data, int64_t bytes, int to) override { sends.push_back({const_cast<char *>(data), bytes, to}); }
  void receive(char *data, int64_t bytes, int from) override { receives.push_back({data, bytes, from}); }
  void finish() override {
    if (sends.empty() && receives.empty())
      return;
    on.call(kStream, [this, sends = std::exchange(sends, {}), receives = std::exchange(receives, {})] {
      for (const Message &m : receives)
        mpi->receive(m.data, m.bytes, m.rank);
      for (const Message &m : sends)
        mpi->send(m.data, m.bytes, m.rank);
      mpi->finish();
    });
  }
  bool gathersAtOnce() const override { return true; } ///< as NCCL's

  void copy(char *to, const char *from, int64_t bytes) override { on.copy(kStream, to, from, bytes); }
  void zero(char *to, int64_t bytes) override { on.fill(kStream, to, 0, bytes); }
  void sum(char *out, const Addends &parts, int64_t count, int elem, bool mean) override {
    cuda::sumOnDevice(kStream, out, parts, count, elem, mean);
  }

private:
  static constexpr auto kStream = Device::Collectives;
  struct Message {
    char *data;
    int64_t bytes;
    int rank;
  };

  Device &on;
  std::unique_ptr<Transport> mpi;
  std::vector<Message> sends, receives;
};

} // namespace

std::unique_ptr<Transport> emulatedTransport(Device &on) { return std::make_unique<EmulatedTransport>(on); }

} // namespace zccrt::emulate
