// .npz archives: stored members are read where they lie, deflated ones are inflated once, where there is memory
// for them, else again and again as they are read.
#include "runtime/Environment.h"
#include "runtime/Fail.h"
#include "runtime/Memory.h"
#include "runtime/Npy.h"
#include "runtime/Zip.h"
#include <algorithm>
#include <cstring>
#include <sys/mman.h>
#include <unordered_map>

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

/// Inflates as it is read, from the beginning again where it is asked for what is behind it.
class Streamed : public Source {
public:
  Streamed(std::shared_ptr<const ZipArchive> archive, const ZipArchive::Member &member, std::string why)
      : archive(std::move(archive)), member(member), why(std::move(why)) {}
  void read(int64_t at, int64_t n, void *to) const override {
    if (!stream || at < done) {
      stream = std::make_unique<ZipArchive::Stream>(*archive, member);
      done = 0;
    }
    for (char piece[1 << 14]; done < at;) {
      const int64_t part = std::min<int64_t>(at - done, sizeof piece);
      stream->read(piece, part);
      done += part;
    }
    stream->read(to, n);
    done += n;
  }
  std::string onlyInOrder() const override { return why; }

private:
  std::shared_ptr<const ZipArchive> archive;
  ZipArchive::Member member;
  std::string why;
  mutable std::unique_ptr<ZipArchive::Stream> stream;
  mutable int64_t done = 0; ///< bytes of it that were read
};

/// Why what inflated does not fit into the memory that is left is not held there; "" where it fits.
std::string whyNoRoom(int64_t bytes, const std::string &where) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  const int64_t left = memoryLeft(readLaunch().ranksOnNode);
  if (bytes <= left)
    return "";
  return format("%s: compressed, and takes %.2f GiB of memory when it is inflated, of which %.2f GiB are left%s", where.c_str(),
                bytes / kGiB, left / kGiB, left == budgetLeft() ? " of zcc's --memory" : "");
}

Array openMember(const std::shared_ptr<ZipArchive> &archive, const ZipArchive::Member &m, const std::shared_ptr<File> &file,
                 const std::string &name) {
  const std::string where = format("'%s' in '%s'", name.c_str(), file->path().c_str());
  constexpr int kStored = 0, kDeflated = 8;
  if (m.isEncrypted)
    fail("%s: encrypted archives are not supported", where.c_str());
  if (m.method != kStored && m.method != kDeflated)
    fail("%s: compressed by method %d; only stored and deflated members are supported", where.c_str(), m.method);
  Array a;
  if (m.method == kStored) {
    a = arrayAt(file, archive->dataOf(m), m.bytes, name, where);
  } else {
    // Deflate makes bytes at most 1032 times fewer: a member that claims more lies.
    if (m.bytes / 1033 > m.packed)
      fail("%s: damaged archive", where.c_str());
    std::shared_ptr<const Source> source;
    if (std::string why = whyNoRoom(m.bytes, where); !why.empty()) {
      source = std::make_shared<Streamed>(archive, m, why);
    } else {
      auto memory = std::make_shared<Inflated>(m.bytes);
      takeMemory(m.bytes);
      ZipArchive::Stream(*archive, m).read(memory->data, m.bytes);
      source = memory;
    }
    a = arrayAt(source, 0, m.bytes, name, where);
    a.inMemory = source->onlyInOrder().empty() ? m.bytes : 0;
  }
  a.file = file->path();
  return a;
}

} // namespace

std::vector<Array> openNpz(const std::string &path, const std::vector<std::string> &wanted, std::vector<std::string> &others) {
  auto file = std::make_shared<File>(path);
  const std::shared_ptr<ZipArchive> archive = ZipArchive::open(file);
  if (!archive)
    fail("'%s' is not an .npz archive", path.c_str());
  std::vector<ZipArchive::Member> members;
  std::unordered_map<std::string, size_t> last; // of several of one name it counts, as for numpy
  for (int64_t i = 0; i < archive->count(); ++i) {
    members.push_back(archive->member(i));
    last[members.back().name] = members.size() - 1;
  }
  std::vector<Array> arrays;
  for (const ZipArchive::Member &m : members) {
    if (m.name.size() < 4 || m.name.compare(m.name.size() - 4, 4, ".npy") != 0 || &members[last[m.name]] != &m)
      continue;
    const std::string name = m.name.substr(0, m.name.size() - 4);
    if (std::find(wanted.begin(), wanted.end(), name) == wanted.end())
      others.push_back(name);
    else
      arrays.push_back(openMember(archive, m, file, name));
  }
  return arrays;
}

} // namespace zccrt
