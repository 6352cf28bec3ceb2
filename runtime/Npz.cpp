// .npz archives: stored members are read where they lie, deflated ones are inflated once. Members may be larger than 4 GiB, which
// minizip's reader does not know.
#include "runtime/Environment.h"
#include "runtime/Fail.h"
#include "runtime/Memory.h"
#include "runtime/Npy.h"
#include <algorithm>
#include <cstring>
#include <functional>
#include <sys/mman.h>
#include <zlib.h>

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

// ---- the archive's directory

struct Member {
  std::string name;
  int method = 0, flags = 0;
  uint32_t sum = 0;
  int64_t packed = 0, size = 0; ///< bytes in the file; bytes of the member
  int64_t head = 0;             ///< where its local header is
};

template <class T> T numberAt(const std::string &s, size_t at) {
  T n;
  memcpy(&n, s.data() + at, sizeof n);
  return n;
}

class Directory {
public:
  explicit Directory(const File &file) : file(file) { findEnd(); }

  void forEach(const std::function<void(Member)> &fn) const {
    const std::string all = text(begin, bytes);
    size_t at = 0;
    for (int64_t i = 0; i < count; ++i) {
      constexpr size_t kFixed = 46;
      if (all.size() - at < kFixed || all.compare(at, 4, "PK\1\2") != 0)
        damaged();
      const size_t name = numberAt<uint16_t>(all, at + 28), extra = numberAt<uint16_t>(all, at + 30),
                   comment = numberAt<uint16_t>(all, at + 32);
      if (all.size() - at - kFixed < name + extra + comment)
        damaged();
      Member m;
      m.name = all.substr(at + kFixed, name);
      m.flags = numberAt<uint16_t>(all, at + 8);
      m.method = numberAt<uint16_t>(all, at + 10);
      m.sum = numberAt<uint32_t>(all, at + 16);
      m.packed = numberAt<uint32_t>(all, at + 20);
      m.size = numberAt<uint32_t>(all, at + 24);
      m.head = numberAt<uint32_t>(all, at + 42);
      widen(m, all.substr(at + kFixed + name, extra));
      if (m.packed < 0 || m.size < 0 || m.head < 0 || m.head > file.bytes() || m.packed > file.bytes() - m.head)
        damaged();
      fn(std::move(m));
      at += kFixed + name + extra + comment;
    }
  }

  /// Where a member's bytes begin.
  int64_t dataOf(const Member &m) const {
    constexpr int64_t kFixed = 30;
    const std::string head = m.head <= file.bytes() - kFixed ? text(m.head, kFixed) : "";
    if (head.compare(0, 4, "PK\3\4") != 0 || numberAt<uint16_t>(head, 8) != m.method)
      damaged();
    const int64_t at = m.head + kFixed + numberAt<uint16_t>(head, 26) + numberAt<uint16_t>(head, 28);
    if (at > file.bytes() || m.packed > file.bytes() - at)
      damaged();
    return at;
  }

private:
  [[noreturn]] void damaged() const { fail("'%s': damaged archive", file.path().c_str()); }
  std::string text(int64_t at, int64_t n) const {
    std::string s(n, '\0');
    file.read(at, n, s.data());
    return s;
  }

  void findEnd() {
    constexpr int64_t kEnd = 22, kComment = 65535, kLocator = 20, kEnd64 = 56;
    const int64_t from = std::max<int64_t>(0, file.bytes() - kEnd - kComment);
    const std::string tail = text(from, file.bytes() - from);
    const size_t end = tail.rfind("PK\5\6");
    if (end == std::string::npos || tail.size() - end < size_t(kEnd))
      fail("'%s' is not an .npz archive", file.path().c_str());
    count = numberAt<uint16_t>(tail, end + 10);
    bytes = numberAt<uint32_t>(tail, end + 12);
    begin = numberAt<uint32_t>(tail, end + 16);
    if (end >= size_t(kLocator) && tail.compare(end - kLocator, 4, "PK\6\7") == 0) {
      const int64_t at = numberAt<int64_t>(tail, end - kLocator + 8);
      if (at < 0 || at > file.bytes() - kEnd64)
        damaged();
      const std::string end64 = text(at, kEnd64);
      if (end64.compare(0, 4, "PK\6\6") != 0)
        damaged();
      count = numberAt<int64_t>(end64, 32);
      bytes = numberAt<int64_t>(end64, 40);
      begin = numberAt<int64_t>(end64, 48);
    }
    if (begin < 0 || bytes < 0 || begin > file.bytes() || bytes > file.bytes() - begin || bytes > (int64_t(1) << 30))
      damaged();
  }

  /// What does not fit into 32 bits is in an extra field, in this order.
  void widen(Member &m, const std::string &extra) const {
    for (size_t at = 0; at + 4 <= extra.size();) {
      const size_t id = numberAt<uint16_t>(extra, at), end = at + 4 + numberAt<uint16_t>(extra, at + 2);
      size_t field = at + 4;
      for (int64_t *n : {&m.size, &m.packed, &m.head}) {
        if (id != 1 || end > extra.size() || *n != UINT32_MAX)
          continue;
        if (field + 8 > end)
          damaged();
        *n = numberAt<int64_t>(extra, field);
        field += 8;
      }
      at = end;
    }
  }

  const File &file;
  int64_t count = 0, begin = 0, bytes = 0;
};

// ---- members

/// Refuses what inflated does not fit into the memory that is left.
void expectRoom(int64_t bytes, const std::string &where) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  const int64_t left = std::min(memoryLeft() / std::max(1, readLaunch().ranksOnNode), addressSpaceLeft());
  if (bytes > left)
    fail("%s: compressed, and takes %.2f GiB of memory when it is inflated, of which %.2f GiB are left; an array that is stored "
         "stays in its file, however large: save it with numpy.savez, not numpy.savez_compressed",
         where.c_str(), bytes / kGiB, left / kGiB);
}

/// Reads the packed bytes a piece at a time.
std::shared_ptr<Inflated> inflateMember(const File &file, int64_t at, const Member &m, const std::string &where) {
  constexpr int64_t kPiece = 1 << 20;
  auto memory = std::make_shared<Inflated>(m.size);
  std::vector<unsigned char> in(kPiece);
  z_stream z = {};
  if (inflateInit2(&z, -MAX_WBITS) != Z_OK) // no header: the archive has it
    fail("%s: out of memory", where.c_str());
  int status = Z_OK;
  uLong sum = crc32(0, nullptr, 0);
  auto *out = static_cast<unsigned char *>(memory->data);
  int64_t taken = 0, made = 0;
  while (status == Z_OK) {
    if (!z.avail_in && taken < m.packed) {
      const int64_t n = std::min(kPiece, m.packed - taken);
      file.read(at + taken, n, in.data());
      z.next_in = in.data();
      z.avail_in = static_cast<uInt>(n);
      taken += n;
    }
    const int64_t room = std::min(kPiece, m.size - made);
    z.next_out = out + made;
    z.avail_out = static_cast<uInt>(room);
    status = inflate(&z, Z_NO_FLUSH);
    const int64_t n = room - z.avail_out;
    sum = crc32(sum, out + made, static_cast<uInt>(n));
    made += n;
  }
  inflateEnd(&z);
  if (status != Z_STREAM_END || made != m.size)
    fail("%s: damaged archive", where.c_str());
  if (sum != m.sum)
    fail("%s: damaged archive: the checksum differs", where.c_str());
  return memory;
}

Array openMember(const Directory &directory, const Member &m, const std::shared_ptr<File> &file, const std::string &name) {
  const std::string where = format("'%s' in '%s'", name.c_str(), file->path().c_str());
  if (m.flags & 1)
    fail("%s: encrypted archives are not supported", where.c_str());
  if (m.method != 0 && m.method != 8)
    fail("%s: compressed by method %d; only stored and deflated members are supported", where.c_str(), m.method);
  const int64_t at = directory.dataOf(m);
  Array a;
  if (m.method == 0) {
    if (m.size != m.packed)
      fail("%s: damaged archive", where.c_str());
    a = arrayAt(file, at, m.size, name, where);
  } else {
    // Deflate makes bytes at most 1032 times fewer: a member that claims more lies.
    if (m.size / 1033 > m.packed)
      fail("%s: damaged archive", where.c_str());
    expectRoom(m.size, where);
    a = arrayAt(inflateMember(*file, at, m, where), 0, m.size, name, where);
    a.inMemory = m.size;
  }
  a.file = file->path();
  return a;
}

} // namespace

std::vector<Array> openNpz(const std::string &path, const std::vector<std::string> &wanted, std::vector<std::string> &others) {
  auto file = std::make_shared<File>(path);
  const Directory directory(*file);
  std::vector<Array> arrays;
  directory.forEach([&](Member m) {
    if (m.name.size() < 4 || m.name.compare(m.name.size() - 4, 4, ".npy") != 0)
      return;
    const std::string name = m.name.substr(0, m.name.size() - 4);
    if (std::find(wanted.begin(), wanted.end(), name) == wanted.end())
      others.push_back(name);
    else
      arrays.push_back(openMember(directory, m, file, name));
  });
  return arrays;
}

} // namespace zccrt
