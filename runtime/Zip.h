// Zip archives, through libzip: what members there are, where the bytes of stored ones lie, and what compressed ones hold.
#pragma once

#include "runtime/Npy.h"
#include <memory>
#include <string>

struct zip;
struct zip_file;
struct zip_source;

namespace zccrt {

class ZipArchive {
public:
  struct Member {
    uint64_t index;
    std::string name;
    int64_t bytes;  ///< of what it holds
    int64_t packed; ///< in the file
    int method;     ///< 0: stored, 8: deflated
    bool isEncrypted;
  };

  /// Throws a Failure that names a damaged file. nullptr: it is no archive.
  static std::shared_ptr<ZipArchive> open(std::shared_ptr<const File> file);
  ~ZipArchive();
  ZipArchive(const ZipArchive &) = delete;
  ZipArchive &operator=(const ZipArchive &) = delete;

  int64_t count() const;
  Member member(int64_t i) const;
  /// Where the bytes of a stored member begin in the file, all of which are there.
  int64_t dataOf(const Member &m) const;

  /// Reads a member's bytes one after the other, whatever its compression, and compares their checksum at the end.
  class Stream {
  public:
    Stream(const ZipArchive &archive, const Member &m);
    ~Stream();
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;
    void read(void *to, int64_t n);

  private:
    const ZipArchive &archive;
    const Member &member;
    zip_file *file;
    int64_t left;
  };

private:
  struct Reader;
  explicit ZipArchive(std::shared_ptr<const File> file);
  [[noreturn]] void damaged(const Member &m, const char *why = "") const;

  std::shared_ptr<const File> file;
  std::unique_ptr<Reader> reader;
  zip *archive = nullptr;
};

} // namespace zccrt
