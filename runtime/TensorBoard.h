// --tensorboard: the numbers of each step as an event file that TensorBoard reads.
#pragma once

#include "runtime/StepReport.h"
#include <string>
#include <string_view>

namespace zccrt {

/// A file of records: a length, its checksum, an Event (tensorflow/core/util/event.proto) and its checksum.
class TensorBoard {
public:
  /// Makes the folder, and in it a file of its own: TensorBoard joins those of one run. `first`: the step with which the run
  /// begins; what an earlier one wrote of later steps is taken back, unless the run only evaluates. Throws a Failure.
  TensorBoard(const std::string &dir, int64_t first, bool trains);
  ~TensorBoard();
  TensorBoard(const TensorBoard &) = delete;
  TensorBoard &operator=(const TensorBoard &) = delete;

  /// False, with errno, if it cannot be written.
  bool step(const StepReport &r);
  const std::string &path() const { return name; }

private:
  /// Protocol buffers' wire format, in fixed memory: the step loop allocates nothing.
  class Message {
  public:
    void clear() { length = 0; }
    void number(int field, uint64_t n);
    void real(int field, double x);
    void single(int field, float x);
    void bytes(int field, std::string_view text);
    std::string_view view() const { return {buffer, length}; }

  private:
    void add(const void *data, size_t n);
    void varint(uint64_t n);
    char buffer[8192];
    size_t length = 0;
  };

  void scalar(const char *prefix, const char *tag, double x);
  void begin(int64_t step);
  bool write();

  const bool trains;
  std::string name;
  int fd = -1;
  Message event, summary, value;
};

} // namespace zccrt
