// Gives libzip the file through pread, and sees from what it reads where members lie.
#include "runtime/Zip.h"
#include "runtime/Library.h"
#include "runtime/ZipLibrary.h"
#include <algorithm>
#include <exception>
#include <utility>

namespace zccrt {

ZipLibrary::ZipLibrary() {
  void *file = openFirst({ZCC_ZIP_SONAME, ZCC_ZIP_FILE});
  if (!file)
    fail("archives are read and written by %s (libzip), which is not found: install it, or give arrays as .npy files",
         ZCC_ZIP_SONAME);
#define ZCC_LOAD(NAME) load(NAME, file, #NAME);
  ZCC_LIBZIP(ZCC_LOAD)
#undef ZCC_LOAD
}

const ZipLibrary &libzip() {
  static const ZipLibrary library;
  return library;
}

/// The file as libzip's source. No exception may pass through libzip: it waits here.
struct ZipArchive::Reader {
  explicit Reader(const File &file) : file(file) { libzip().zip_error_init(&error); }
  ~Reader() { libzip().zip_error_fini(&error); }

  static zip_int64_t call(void *self, void *data, zip_uint64_t length, zip_source_cmd_t command) {
    return static_cast<Reader *>(self)->answer(data, length, command);
  }
  void rethrow() {
    if (failure)
      std::rethrow_exception(std::exchange(failure, nullptr));
  }

  const File &file;
  int64_t at = 0;
  int64_t lastRead = 0; ///< where the last read began
  zip_error_t error;
  std::exception_ptr failure;

private:
  zip_int64_t answer(void *data, zip_uint64_t length, zip_source_cmd_t command) {
    switch (command) {
    case ZIP_SOURCE_OPEN:
      at = 0;
      return 0;
    case ZIP_SOURCE_READ:
      return read(data, length);
    case ZIP_SOURCE_SEEK: {
      zip_int64_t to = libzip().zip_source_seek_compute_offset(at, file.bytes(), data, length, &error);
      at = to < 0 ? at : to;
      return to < 0 ? -1 : 0;
    }
    case ZIP_SOURCE_TELL:
      return at;
    case ZIP_SOURCE_STAT: {
      auto *stat = static_cast<zip_stat_t *>(data);
      libzip().zip_stat_init(stat);
      stat->size = file.bytes();
      stat->valid = ZIP_STAT_SIZE;
      return sizeof *stat;
    }
    case ZIP_SOURCE_ERROR:
      return libzip().zip_error_to_data(&error, data, length);
    case ZIP_SOURCE_SUPPORTS:
      return ZIP_SOURCE_SUPPORTS_SEEKABLE;
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE:
      return 0;
    default:
      libzip().zip_error_set(&error, ZIP_ER_OPNOTSUPP, 0);
      return -1;
    }
  }

  zip_int64_t read(void *data, zip_uint64_t length) try {
    const int64_t n = std::min<uint64_t>(length, std::max<int64_t>(0, file.bytes() - at));
    file.read(at, n, data);
    lastRead = at;
    at += n;
    return n;
  } catch (...) {
    failure = std::current_exception();
    libzip().zip_error_set(&error, ZIP_ER_READ, 0);
    return -1;
  }
};

ZipArchive::ZipArchive(std::shared_ptr<const File> f) : file(std::move(f)), reader(std::make_unique<Reader>(*file)) {}

ZipArchive::~ZipArchive() {
  if (archive)
    libzip().zip_discard(archive);
}

std::shared_ptr<ZipArchive> ZipArchive::open(std::shared_ptr<const File> file) {
  if (!file->bytes())
    return nullptr; // to libzip an archive without members
  std::shared_ptr<ZipArchive> a(new ZipArchive(std::move(file)));
  zip_error_t error;
  libzip().zip_error_init(&error);
  zip_source_t *source = libzip().zip_source_function_create(&Reader::call, a->reader.get(), &error);
  a->archive = source ? libzip().zip_open_from_source(source, ZIP_RDONLY, &error) : nullptr;
  const int code = libzip().zip_error_code_zip(&error);
  const std::string why = libzip().zip_error_strerror(&error);
  libzip().zip_error_fini(&error);
  if (a->archive)
    return a;
  if (source)
    libzip().zip_source_free(source);
  a->reader->rethrow();
  if (code == ZIP_ER_NOZIP)
    return nullptr;
  fail("'%s': damaged archive: %s", a->file->path().c_str(), why.c_str());
}

int64_t ZipArchive::count() const { return libzip().zip_get_num_entries(archive, 0); }

ZipArchive::Member ZipArchive::member(int64_t i) const {
  zip_stat_t s;
  // The name as it is in the file: what is no text by its flags need not be one of code page 437.
  const char *name = libzip().zip_get_name(archive, i, ZIP_FL_ENC_RAW);
  constexpr zip_uint64_t kNeeded = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  if (!name || libzip().zip_stat_index(archive, i, 0, &s) != 0 || (s.valid & kNeeded) != kNeeded)
    fail("'%s': damaged archive: %s", file->path().c_str(), libzip().zip_strerror(archive));
  Member m{uint64_t(i), name, int64_t(s.size), int64_t(s.comp_size), s.comp_method, s.encryption_method != ZIP_EM_NONE};
  if (m.bytes < 0 || m.packed < 0 || m.packed > file->bytes() ||
      (m.method == ZIP_CM_STORE && !m.isEncrypted && m.bytes != m.packed))
    damaged(m);
  return m;
}

void ZipArchive::damaged(const Member &m, const char *why) const {
  fail("'%s' in '%s': damaged archive%s%s", m.name.c_str(), file->path().c_str(), *why ? ": " : "", why);
}

/// libzip does not say where; but the first byte that it is asked for it reads from there.
int64_t ZipArchive::dataOf(const Member &m) const {
  if (!m.bytes)
    return 0;
  zip_file_t *f = libzip().zip_fopen_index(archive, m.index, ZIP_FL_COMPRESSED);
  char first;
  const bool isRead = f && libzip().zip_fread(f, &first, 1) == 1 && reader->at == reader->lastRead + 1;
  if (f)
    libzip().zip_fclose(f);
  reader->rethrow();
  if (!isRead || m.packed > file->bytes() - reader->lastRead)
    damaged(m);
  return reader->lastRead;
}

// ---- members

ZipArchive::Stream::Stream(const ZipArchive &archive, const Member &m)
    : archive(archive), member(m), file(libzip().zip_fopen_index(archive.archive, m.index, 0)), left(m.bytes) {
  archive.reader->rethrow();
  if (!file)
    archive.damaged(m, libzip().zip_strerror(archive.archive));
}

ZipArchive::Stream::~Stream() { libzip().zip_fclose(file); }

void ZipArchive::Stream::read(void *to, int64_t n) {
  auto take = [&](void *data, int64_t bytes) {
    const zip_int64_t got = libzip().zip_fread(file, data, std::min<int64_t>(bytes, 1 << 30));
    archive.reader->rethrow();
    if (got < 0)
      archive.damaged(member, libzip().zip_file_strerror(file));
    return got;
  };
  left -= n;
  for (auto *p = static_cast<char *>(to); n > 0;) {
    const int64_t got = take(p, n);
    if (!got)
      archive.damaged(member, "it holds less than it says");
    p += got;
    n -= got;
  }
  char more; // where it finds the end, libzip compares the checksum
  if (!left && take(&more, 1))
    archive.damaged(member, "it holds more than it says");
}

} // namespace zccrt
