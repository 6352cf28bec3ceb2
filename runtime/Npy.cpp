// Reads and checks .npy headers, and reads arrays with pread.
#include "runtime/Npy.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/resource.h>
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

static const char *kindOf(mode_t mode) {
  return S_ISDIR(mode) ? "a folder" : S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

/// Lets the process have as many open files as the system allows it: data may be thousands of them.
static bool raiseFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
    return false;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

File::File(const std::string &path) : name(path) {
  // Without blocking: a pipe that nobody writes to must not keep the ranks waiting.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  fd = open(path.c_str(), kFlags);
  if (fd < 0 && errno == EMFILE && raiseFileLimit())
    fd = open(path.c_str(), kFlags);
  if (fd < 0)
    failErrno("cannot read '%s'", path.c_str());
  struct stat info = {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    fail("cannot read '%s': it is %s, not a regular file", path.c_str(), kindOf(info.st_mode));
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

zccrt_elem elemFromDescr(const std::string &descr, const std::string &where) {
  for (const ElemDef &e : kElems)
    if (descr == e.descr)
      return zccrt_elem(&e - kElems);
  if (descr == "|V2") // another spelling of two bytes that numpy has no number for
    return ZCCRT_BF16;
  if (!descr.empty() && descr[0] == '>')
    fail("%s: its numbers are big-endian (dtype '%s'); save "
         "array.astype(array.dtype.newbyteorder('<'))",
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
         shapeText(header.dims.data(), header.dims.size()).c_str(), elemName(header.elem), static_cast<long long>(bytes),
         static_cast<long long>(available));
}

} // namespace

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
  constexpr size_t kAlign = 64, kBefore = 10; // bytes: where the data begin, as numpy has it; of the magic and the length
  std::string text = std::string("{'descr': '") + kElems[elem].descr +
                     "', 'fortran_order': False, 'shape': " + shapeText(dims.data(), dims.size()) + ", }";
  text.resize((kBefore + text.size() + 1 + kAlign - 1) / kAlign * kAlign - kBefore - 1, ' ');
  text += '\n';
  uint16_t length = text.size();
  std::string out("\x93NUMPY\x01\x00", 8);
  out.append(reinterpret_cast<const char *>(&length), 2);
  return out + text;
}

Array openNpy(const std::string &path) {
  auto file = std::make_shared<File>(path);
  Array a = arrayAt(file, 0, file->bytes(), path, format("'%s'", path.c_str()));
  a.file = path;
  return a;
}

// ---- several files

namespace {

class Joined : public Source {
public:
  explicit Joined(const std::vector<Array> &parts) {
    for (const Array &a : parts) {
      const int64_t bytes = a.elements() * elemBytes(a.elem);
      if (!bytes)
        continue;
      pieces.push_back({size, a.offset, a.source, a.file});
      size += bytes;
    }
  }
  void read(int64_t at, int64_t n, void *to) const override {
    char *p = static_cast<char *>(to);
    for (const Piece *piece = pieceAt(at); n > 0; ++piece) {
      const int64_t end = piece == &pieces.back() ? size : piece[1].begin, part = std::min(n, end - at);
      piece->source->read(piece->offset + at - piece->begin, part, p);
      p += part;
      at += part;
      n -= part;
    }
  }
  std::string fileOf(int64_t at) const override { return " of '" + pieceAt(at)->file + "'"; }
  std::string onlyInOrder() const override {
    for (const Piece &p : pieces)
      if (std::string why = p.source->onlyInOrder(); !why.empty())
        return why;
    return "";
  }

private:
  struct Piece {
    int64_t begin, offset; ///< bytes: in the whole, in its source
    std::shared_ptr<const Source> source;
    std::string file;
  };
  const Piece *pieceAt(int64_t at) const {
    auto behind = std::upper_bound(pieces.begin(), pieces.end(), at, [](int64_t x, const Piece &p) { return x < p.begin; });
    return &*behind - 1;
  }

  std::vector<Piece> pieces;
  int64_t size = 0;
};

} // namespace

Array joinArrays(const std::vector<Array> &parts) {
  if (parts.size() == 1)
    return parts[0];
  Array all = parts[0];
  all.source = std::make_shared<Joined>(parts);
  all.offset = 0;
  all.dims[0] = all.inMemory = 0;
  for (const Array &a : parts) {
    all.dims[0] += a.dims[0];
    all.inMemory += a.inMemory;
  }
  return all;
}

} // namespace zccrt
