// .npz archives: stored members are read where they lie, deflated ones are inflated once.
#include "runtime/Fail.h"
#include "runtime/Npy.h"
#include <algorithm>
#include <cstring>
#include <minizip/unzip.h>
#include <sys/mman.h>

namespace zccrt {

namespace {

class Inflated : public Source {
public:
  explicit Inflated(int64_t bytes) : size(bytes) {
    data = mmap(nullptr, std::max<int64_t>(bytes, 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
      failErrno("cannot get %lld bytes of memory", static_cast<long long>(bytes));
  }
  ~Inflated() override { munmap(data, std::max<int64_t>(size, 1)); }
  Inflated(const Inflated &) = delete;
  Inflated &operator=(const Inflated &) = delete;
  void read(int64_t at, int64_t n, void *to) const override { memcpy(to, static_cast<char *>(data) + at, n); }

  void *data;
  int64_t size;
};

struct Archive {
  explicit Archive(const std::string &path) : zip(unzOpen64(path.c_str())) {}
  ~Archive() {
    if (zip)
      unzClose(zip);
  }
  unzFile zip;
};

Array openMember(unzFile zip, const unz_file_info64 &info, const std::shared_ptr<File> &file, const std::string &name,
                 const std::string &where) {
  if (info.flag & 1)
    fail("%s: encrypted archives are not supported", where.c_str());
  if (info.compression_method != 0 && info.compression_method != 8)
    fail("%s: compressed by method %lu; only stored and deflated members are supported", where.c_str(), info.compression_method);
  if (unzOpenCurrentFile(zip) != UNZ_OK)
    fail("%s: damaged archive", where.c_str());
  if (info.compression_method == 0) {
    uint64_t at = unzGetCurrentFileZStreamPos64(zip);
    unzCloseCurrentFile(zip);
    if (at > uint64_t(file->bytes()) || info.uncompressed_size > file->bytes() - at)
      fail("%s: damaged archive", where.c_str());
    return arrayAt(file, at, info.uncompressed_size, name, where);
  }
  // Deflate makes bytes at most 1032 times fewer: a member that claims more lies.
  if (info.compressed_size > uint64_t(file->bytes()) || info.uncompressed_size / 1033 > info.compressed_size)
    fail("%s: damaged archive", where.c_str());
  auto memory = std::make_shared<Inflated>(info.uncompressed_size);
  for (int64_t done = 0; done < memory->size;) {
    int n = unzReadCurrentFile(zip, static_cast<char *>(memory->data) + done, std::min<int64_t>(memory->size - done, 1 << 24));
    if (n <= 0)
      fail("%s: damaged archive", where.c_str());
    done += n;
  }
  if (unzCloseCurrentFile(zip) != UNZ_OK)
    fail("%s: damaged archive: the checksum differs", where.c_str());
  Array a = arrayAt(memory, 0, memory->size, name, where);
  a.inMemory = memory->size;
  return a;
}

} // namespace

std::vector<Array> openNpz(const std::string &path, const std::vector<std::string> &wanted, std::vector<std::string> &others) {
  auto file = std::make_shared<File>(path);
  Archive archive(path);
  if (!archive.zip)
    fail("'%s' is not an .npz archive", path.c_str());
  std::vector<Array> arrays;
  int at = unzGoToFirstFile(archive.zip);
  for (; at == UNZ_OK; at = unzGoToNextFile(archive.zip)) {
    unz_file_info64 info;
    char raw[4096];
    if (unzGetCurrentFileInfo64(archive.zip, &info, raw, sizeof raw, nullptr, 0, nullptr, 0) != UNZ_OK ||
        info.size_filename >= sizeof raw)
      fail("'%s': damaged archive", path.c_str());
    std::string name(raw, strnlen(raw, sizeof raw));
    if (name.size() < 4 || name.compare(name.size() - 4, 4, ".npy") != 0)
      continue;
    name.resize(name.size() - 4);
    if (std::find(wanted.begin(), wanted.end(), name) == wanted.end()) {
      others.push_back(name);
      continue;
    }
    arrays.push_back(openMember(archive.zip, info, file, name, format("'%s' in '%s'", name.c_str(), path.c_str())));
  }
  if (at != UNZ_END_OF_LIST_OF_FILE)
    fail("'%s': damaged archive", path.c_str());
  return arrays;
}

} // namespace zccrt
