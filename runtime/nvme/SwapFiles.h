// The files behind an Nvme: made at full size, nameless, one in each folder; together one range of bytes, dealt out in stripes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zccrt {

class SwapFiles {
public:
  /// Throws a Failure. `stripeBytes` is what one file has before the next one's turn.
  SwapFiles(const std::vector<std::string> &paths, uint64_t bytes, uint64_t stripeBytes, bool direct);
  ~SwapFiles();
  SwapFiles(const SwapFiles &) = delete;
  SwapFiles &operator=(const SwapFiles &) = delete;

  struct File {
    std::string path; ///< its folder
    int fd = -1;
    bool isDirect = false;
  };
  /// Where a byte lies, and how many follow it there.
  struct Place {
    uint32_t file;
    uint64_t offset, bytes;
  };
  Place place(uint64_t offset) const;

  const std::vector<File> &files() const { return all; }
  uint64_t bytes() const { return size; }
  bool areDirect() const;
  /// Returns when everything written is on the disks.
  void flush() const;

  std::vector<std::string> notes;

private:
  void expectRoom(uint64_t each) const;
  void open(File &f, uint64_t bytes, bool direct);

  std::vector<File> all;
  uint64_t size, stripe;
};

} // namespace zccrt
