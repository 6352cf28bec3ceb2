// Writes one record a step.
#include "runtime/TensorBoard.h"
#include "runtime/Fail.h"
#include "runtime/Line.h"
#include "runtime/OutFile.h"
#include <array>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <sys/uio.h>
#include <unistd.h>

namespace zccrt {

// ---- checksums

static constexpr std::array<uint32_t, 256> crcTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit)
      c = c & 1 ? c >> 1 ^ 0x82f63b78 : c >> 1;
    table[i] = c;
  }
  return table;
}

/// CRC-32C, turned and moved, as these files have it.
static uint32_t checksum(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crcTable();
  uint32_t c = ~0u;
  for (unsigned char b : bytes)
    c = kTable[(c ^ b) & 0xff] ^ c >> 8;
  c = ~c;
  return (c >> 15 | c << 17) + 0xa282ead8;
}

// ---- messages

void TensorBoard::Message::add(const void *data, size_t n) {
  if (n > sizeof buffer - length)
    return;
  memcpy(buffer + length, data, n);
  length += n;
}

void TensorBoard::Message::varint(uint64_t n) {
  for (; n >= 0x80; n >>= 7) {
    const char b = static_cast<char>(n | 0x80);
    add(&b, 1);
  }
  const char b = static_cast<char>(n);
  add(&b, 1);
}

void TensorBoard::Message::number(int field, uint64_t n) {
  varint(field << 3);
  varint(n);
}

void TensorBoard::Message::real(int field, double x) {
  varint(field << 3 | 1);
  add(&x, sizeof x);
}

void TensorBoard::Message::single(int field, float x) {
  varint(field << 3 | 5);
  add(&x, sizeof x);
}

void TensorBoard::Message::bytes(int field, std::string_view text) {
  varint(field << 3 | 2);
  varint(text.size());
  add(text.data(), text.size());
}

// ---- events

namespace {
enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum SummaryField { kValue = 1 };
enum ValueField { kTag = 1, kSimpleValue = 2 };
enum SessionLogField { kStatus = 1 };
constexpr uint64_t kStart = 1; // of SessionLog.SessionStatus: what is there of this step and later ones is dropped
} // namespace

TensorBoard::TensorBoard(const std::string &dir, int64_t first, bool trains) : trains(trains) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error)
    fail("--tensorboard: cannot make the folder '%s': %s", dir.c_str(), error.message().c_str());
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  name = format("%s/events.out.tfevents.%lld.%s.%d.%lld", dir.c_str(), static_cast<long long>(time(nullptr)), host,
                static_cast<int>(getpid()), static_cast<long long>(first));
  fd = open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0)
    failErrno("cannot write '%s'", name.c_str());
  begin(0);
  event.bytes(kFileVersion, "brain.Event:2");
  bool isWritten = write();
  if (first && trains) {
    begin(first);
    value.clear();
    value.number(kStatus, kStart);
    event.bytes(kSessionLog, value.view());
    isWritten &= write();
  }
  if (!isWritten)
    failErrno("cannot write '%s'", name.c_str());
}

TensorBoard::~TensorBoard() {
  if (fd >= 0)
    close(fd);
}

void TensorBoard::begin(int64_t step) {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  event.clear();
  event.real(kWallTime, t.tv_sec + t.tv_nsec * 1e-9);
  event.number(kStep, step);
}

void TensorBoard::scalar(const char *prefix, const char *tag, double x) {
  Line text;
  text.add("%s%s", prefix, tag);
  value.clear();
  value.bytes(kTag, {text.data(), size_t(text.size())});
  value.single(kSimpleValue, static_cast<float>(x));
  summary.bytes(kValue, value.view());
}

bool TensorBoard::step(const StepReport &r) {
  begin(r.step);
  summary.clear();
  if (trains) {
    scalar("", "loss", r.loss);
    for (const MetricValue &m : r.metrics)
      scalar("", m.name, m.value);
  }
  if (r.lr)
    scalar("", "lr", *r.lr);
  if (r.gradNorm)
    scalar("", "grad_norm", *r.gradNorm);
  if (r.lossScale)
    scalar("", "loss_scale", *r.lossScale);
  if (r.seconds > 0 && trains)
    scalar("", "samples_per_s", r.samples / r.seconds);
  if (r.evalLoss)
    scalar("eval/", "loss", *r.evalLoss);
  for (const MetricValue &m : r.evalMetrics)
    scalar("eval/", m.name, m.value);
  event.bytes(kSummary, summary.view());
  return write();
}

bool TensorBoard::write() {
  const std::string_view data = event.view();
  struct {
    uint64_t length;
    uint32_t sum;
  } __attribute__((packed)) head = {data.size(), 0};
  head.sum = checksum({reinterpret_cast<const char *>(&head.length), sizeof head.length});
  uint32_t sum = checksum(data);
  char record[sizeof head + sizeof(Message) + sizeof sum];
  memcpy(record, &head, sizeof head);
  memcpy(record + sizeof head, data.data(), data.size());
  memcpy(record + sizeof head + data.size(), &sum, sizeof sum);
  return writeAll(fd, record, sizeof head + data.size() + sizeof sum);
}

} // namespace zccrt
