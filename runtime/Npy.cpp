#include "runtime/Npy.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <minizip/unzip.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace zccrt {

// No real header is longer; numpy itself refuses more than 10,000 bytes unless told otherwise.
constexpr int64_t kMaxHeaderBytes = 1 << 20;

int64_t Array::elements() const {
  int64_t n = 1;
  for (int64_t d : dims)
    n *= d;
  return n;
}

// ---- files

File::File(const std::string &path) : name(path) {
  fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    failErrno("cannot read '%s'", path.c_str());
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    fail("cannot read '%s': it is not a regular file", path.c_str());
  }
  size = info.st_size;
}

File::~File() { close(fd); }

void File::read(int64_t at, int64_t n, void *to) const {
  char *p = static_cast<char *>(to);
  while (n > 0) {
    ssize_t got = pread(fd, p, std::min<int64_t>(n, 1 << 30), at);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      failErrno("cannot read '%s'", name.c_str());
    if (got == 0)
      fail("'%s' ends after %lld bytes; it is cut short or changed while the program ran", name.c_str(),
           static_cast<long long>(at));
    p += got;
    at += got;
    n -= got;
  }
}

// ---- the header

namespace {

/// Reads the Python literal {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class HeaderParser {
public:
  HeaderParser(std::string_view text, const std::string &where) : rest(text), where(where) {}

  std::string descr;
  bool fortran = false, hasShape = false, hasOrder = false;
  std::vector<int64_t> dims;

  void parse() {
    expect('{');
    while (!take('}')) {
      std::string key = string();
      expect(':');
      if (key == "descr") {
        skip();
        if (rest.empty() || (rest[0] != '\'' && rest[0] != '"'))
          fail("%s: structured arrays are not supported", where.c_str());
        descr = string();
      } else if (key == "fortran_order") {
        fortran = boolean();
        hasOrder = true;
      } else if (key == "shape") {
        shape();
        hasShape = true;
      } else {
        bad();
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip();
    if (!rest.empty() || descr.empty() || !hasShape || !hasOrder)
      bad();
  }

private:
  [[noreturn]] void bad() { fail("%s: not a .npy array: its header is malformed", where.c_str()); }
  void skip() {
    while (!rest.empty() && (rest[0] == ' ' || rest[0] == '\n' || rest[0] == '\t'))
      rest.remove_prefix(1);
  }
  bool take(char c) {
    skip();
    if (rest.empty() || rest[0] != c)
      return false;
    rest.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!take(c))
      bad();
  }
  std::string string() {
    skip();
    if (rest.empty() || (rest[0] != '\'' && rest[0] != '"'))
      bad();
    size_t end = rest.find(rest[0], 1);
    if (end == std::string_view::npos)
      bad();
    std::string s(rest.substr(1, end - 1));
    rest.remove_prefix(end + 1);
    return s;
  }
  bool boolean() {
    skip();
    for (bool value : {false, true}) {
      std::string_view word = value ? "True" : "False";
      if (rest.substr(0, word.size()) != word)
        continue;
      rest.remove_prefix(word.size());
      return value;
    }
    bad();
  }
  void shape() {
    expect('(');
    while (!take(')')) {
      skip();
      int64_t n = 0;
      size_t digits = 0;
      for (; digits < rest.size() && rest[digits] >= '0' && rest[digits] <= '9'; ++digits)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, rest[digits] - '0', &n))
          bad();
      if (!digits || dims.size() == 32)
        bad();
      rest.remove_prefix(digits);
      dims.push_back(n);
      if (!take(',')) {
        expect(')');
        break;
      }
    }
  }

  std::string_view rest;
  const std::string &where;
};

constexpr struct { const char *descr; zccrt_elem elem; } kDescr[] = {
    {"<f4", ZCCRT_F32}, {"<f8", ZCCRT_F64}, {"<f2", ZCCRT_F16}, {"<V2", ZCCRT_BF16}, {"|V2", ZCCRT_BF16},
    {"<i8", ZCCRT_I64}, {"<i4", ZCCRT_I32}, {"<i2", ZCCRT_I16}, {"|i1", ZCCRT_I8},
    {"<u8", ZCCRT_U64}, {"<u4", ZCCRT_U32}, {"<u2", ZCCRT_U16}, {"|u1", ZCCRT_U8}, {"|b1", ZCCRT_BOOL}};

zccrt_elem elemFromDescr(const std::string &descr, const std::string &where) {
  for (auto &d : kDescr)
    if (descr == d.descr)
      return d.elem;
  if (!descr.empty() && descr[0] == '>')
    fail("%s: its numbers are big-endian (dtype '%s'); save array.astype(array.dtype.newbyteorder('<'))",
         where.c_str(), descr.c_str());
  fail("%s: dtype '%s' is not supported", where.c_str(), descr.c_str());
}

/// The data of `header` must lie within `available` bytes behind it.
void expectBytes(const NpyHeader &header, int64_t available, const std::string &where) {
  int64_t bytes = elemBytes(header.elem);
  for (int64_t d : header.dims)
    if (__builtin_mul_overflow(bytes, d, &bytes))
      fail("%s: its shape %s is too large", where.c_str(), shapeText(header.dims.data(), header.dims.size()).c_str());
  if (bytes > available)
    fail("%s: cut short: shape %s of %s takes %lld bytes, there are %lld", where.c_str(),
         shapeText(header.dims.data(), header.dims.size()).c_str(), elemName(header.elem),
         static_cast<long long>(bytes), static_cast<long long>(available));
}

/// Reads the header that begins at `at` of a source with `bytes` bytes from there.
Array arrayAt(std::shared_ptr<const Source> source, int64_t at, int64_t bytes, const std::string &name,
              const std::string &where) {
  // Enough for every header of version 1; later versions may be longer.
  std::string front(std::min<int64_t>(bytes, 65536 + 10), '\0');
  source->read(at, front.size(), front.data());
  uint32_t length = 0;
  if (front.size() >= 12 && front[6] >= 2)
    memcpy(&length, front.data() + 8, 4);
  if (length > 65536 - 12) {
    front.resize(std::min<int64_t>({bytes, kMaxHeaderBytes, int64_t(length) + 12}));
    source->read(at, front.size(), front.data());
  }
  NpyHeader header = parseNpyHeader(front, where);
  expectBytes(header, bytes - header.headerBytes, where);
  Array a;
  a.name = name;
  a.elem = header.elem;
  a.dims = header.dims;
  a.source = std::move(source);
  a.offset = at + header.headerBytes;
  return a;
}

} // namespace

NpyHeader parseNpyHeader(std::string_view front, const std::string &where) {
  if (front.size() < 10 || front.substr(0, 6) != "\x93NUMPY")
    fail("%s: not a .npy array", where.c_str());
  int major = static_cast<unsigned char>(front[6]);
  if (major < 1 || major > 3)
    fail("%s: version %d of the .npy format is not supported", where.c_str(), major);
  size_t start = major == 1 ? 10 : 12, length = 0;
  if (front.size() >= start)
    memcpy(&length, front.data() + 8, major == 1 ? 2 : 4);
  if (front.size() < start || length > front.size() - start)
    fail("%s: not a .npy array: its header is cut short", where.c_str());
  HeaderParser p(front.substr(start, length), where);
  p.parse();
  if (p.fortran && std::count_if(p.dims.begin(), p.dims.end(), [](int64_t d) { return d != 1; }) > 1)
    fail("%s: stored in Fortran order; save numpy.ascontiguousarray(array)", where.c_str());
  return {elemFromDescr(p.descr, where), p.dims, static_cast<int64_t>(start + length)};
}

std::string npyHeader(int elem, const std::vector<int64_t> &dims) {
  const char *descr = "";
  for (auto &d : kDescr)
    if (d.elem == elem && !*descr)
      descr = d.descr;
  std::string text = std::string("{'descr': '") + descr + "', 'fortran_order': False, 'shape': " +
                     shapeText(dims.data(), dims.size()) + ", }";
  // The data begin at a multiple of 64.
  text.resize((10 + text.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  text += '\n';
  uint16_t length = text.size();
  std::string out("\x93NUMPY\x01\x00", 8);
  out.append(reinterpret_cast<const char *>(&length), 2);
  return out + text;
}

Array openNpy(const std::string &path) {
  auto file = std::make_shared<File>(path);
  return arrayAt(file, 0, file->bytes(), path, format("'%s'", path.c_str()));
}

// ---- archives

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

Array openMember(unzFile zip, const unz_file_info64 &info, const std::shared_ptr<File> &file,
                 const std::string &name, const std::string &where) {
  if (info.flag & 1)
    fail("%s: encrypted archives are not supported", where.c_str());
  if (info.compression_method != 0 && info.compression_method != 8)
    fail("%s: compressed by method %lu; only stored and deflated members are supported", where.c_str(),
         info.compression_method);
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
    int n = unzReadCurrentFile(zip, static_cast<char *>(memory->data) + done,
                               std::min<int64_t>(memory->size - done, 1 << 24));
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

std::vector<Array> openNpz(const std::string &path, const std::vector<std::string> &wanted,
                           std::vector<std::string> &others) {
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
