// Spools each rank's rows to a file and packs them into an .npz at the end.
#include "runtime/Outputs.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/Npy.h"
#include "runtime/ZipLibrary.h"
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <unistd.h>

namespace zccrt {

Outputs::Outputs(const zccrt_program &p, const std::string &path, Comm &comm) : comm(comm), path(path) {
  for (int i = 0; i < p.noutputs; ++i) {
    const zccrt_io &out = p.outputs[i];
    if (!out.name || !*out.name)
      continue;
    members.push_back({&out, elementCount(out.t) * elemBytes(out.t.elem)});
  }
  if (comm.rank != 0)
    return;
  file = OutFile(path);
  for (Member &m : members)
    m.spool = openSpool();
}

Outputs::~Outputs() {
  for (Member &m : members)
    if (m.spool >= 0)
      close(m.spool);
}

int Outputs::openSpool() const {
  std::string name = path + ".XXXXXX";
  int fd = mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0)
    failErrno("cannot write '%s'", path.c_str());
  unlink(name.c_str());
  return fd;
}

const char *Outputs::mixed(const zccrt_program &p) {
  for (int i = p.has_loss; i < p.noutputs; ++i)
    if (p.outputs[i].name && *p.outputs[i].name && !p.outputs[i].by_rows)
      return p.outputs[i].name;
  return nullptr;
}

void Outputs::add(const Arena &arena, int64_t count, int64_t rows, int64_t batch) {
  for (Member &m : members) {
    int64_t bytes = count * m.bytes;
    if (rows < batch && m.output->by_rows)
      bytes -= m.bytes / batch * (batch - rows);
    m.written += bytes;
    for (int r = 0; r < comm.ranks; ++r)
      addRank(arena, m, r, std::clamp<int64_t>(bytes - r * m.bytes, 0, m.bytes));
  }
  batches += count;
}

/// The first bytes of what a rank has of an output, piece by piece.
void Outputs::addRank(const Arena &arena, const Member &m, int r, int64_t bytes) {
  constexpr int64_t kPiece = 1 << 20;
  for (int64_t at = 0; at < bytes; at += kPiece) {
    const int64_t n = std::min(kPiece, bytes - at);
    const char *piece = comm.rank == r ? arena.read(m.output->t.offset + at, n, aside) : nullptr;
    if (r != 0) {
      brought.resize(comm.rank == 0 ? n : 0);
      comm.bring(r, piece, brought.data(), n);
      piece = brought.data();
    }
    if (comm.rank == 0 && !writeAll(m.spool, piece, n))
      failErrno("cannot write '%s'", path.c_str());
  }
}

// ---- the archive: libzip writes through an OutFile

namespace {

/// What libzip reads or writes; its functions must not throw.
struct ZipEnd {
  ZipEnd() { libzip().zip_error_init(&error); }
  virtual ~ZipEnd() { libzip().zip_error_fini(&error); }
  virtual zip_int64_t answer(void *data, zip_uint64_t length, zip_source_cmd_t command) = 0;

  zip_source_t *source(zip_error_t *error) { return libzip().zip_source_function_create(&call, this, error); }
  zip_int64_t give(zip_stat_t *stat, int64_t bytes) {
    libzip().zip_stat_init(stat);
    stat->size = bytes;
    stat->valid = ZIP_STAT_SIZE;
    return sizeof *stat;
  }
  zip_int64_t unless(bool failed, int code) {
    if (failed)
      libzip().zip_error_set(&error, code, errno);
    return failed ? -1 : 0;
  }

  zip_error_t error;

private:
  static zip_int64_t call(void *self, void *data, zip_uint64_t length, zip_source_cmd_t command) {
    auto *end = static_cast<ZipEnd *>(self);
    if (command == ZIP_SOURCE_ERROR)
      return libzip().zip_error_to_data(&end->error, data, length);
    return end->answer(data, length, command);
  }
};

/// The archive.
struct ZipOutput : ZipEnd {
  explicit ZipOutput(const OutFile &file) : fd(file.descriptor()) {}
  zip_int64_t answer(void *data, zip_uint64_t length, zip_source_cmd_t command) override {
    switch (command) {
    case ZIP_SOURCE_SUPPORTS:
      return ZIP_SOURCE_SUPPORTS_WRITABLE | ZIP_SOURCE_MAKE_COMMAND_BITMASK(ZIP_SOURCE_ACCEPT_EMPTY);
    case ZIP_SOURCE_ACCEPT_EMPTY:
      return 1;
    case ZIP_SOURCE_STAT:
      return give(static_cast<zip_stat_t *>(data), 0);
    case ZIP_SOURCE_WRITE:
      return unless(!writeAll(fd, data, length), ZIP_ER_WRITE) < 0 ? -1 : zip_int64_t(length);
    case ZIP_SOURCE_SEEK_WRITE: {
      const auto *to = length < sizeof(zip_source_args_seek_t) ? nullptr : static_cast<const zip_source_args_seek_t *>(data);
      return unless(!to || lseek(fd, to->offset, to->whence) < 0, ZIP_ER_SEEK);
    }
    case ZIP_SOURCE_TELL_WRITE:
    case ZIP_SOURCE_TELL:
      return lseek(fd, 0, SEEK_CUR);
    default:
      return 0;
    }
  }
  const int fd;
};

/// A member: a header, and what was collected in a file.
struct ZipMember : ZipEnd {
  ZipMember(std::string header, int spool, int64_t bytes) : header(std::move(header)), spool(spool), bytes(bytes) {}
  zip_int64_t answer(void *data, zip_uint64_t length, zip_source_cmd_t command) override {
    const int64_t front = header.size(), total = front + bytes;
    switch (command) {
    case ZIP_SOURCE_SUPPORTS:
      return ZIP_SOURCE_SUPPORTS_READABLE;
    case ZIP_SOURCE_STAT:
      return give(static_cast<zip_stat_t *>(data), total);
    case ZIP_SOURCE_OPEN:
      at = 0;
      return 0;
    case ZIP_SOURCE_READ: {
      int64_t n = std::min<int64_t>(length, (at < front ? front : total) - at);
      if (at < front)
        header.copy(static_cast<char *>(data), n, at);
      else if (n > 0)
        n = pread(spool, data, n, at - front);
      at += std::max<int64_t>(n, 0);
      return unless(n < 0, ZIP_ER_READ) < 0 ? -1 : n;
    }
    default:
      return 0;
    }
  }
  const std::string header;
  const int spool;
  const int64_t bytes;
  int64_t at = 0;
};

} // namespace

std::string Outputs::headerOf(const Member &m) const {
  std::vector<int64_t> dims(m.output->t.dims, m.output->t.dims + m.output->t.ndim);
  if (dims.empty() && batches != 1)
    dims.push_back(batches);
  else if (!dims.empty())
    dims[0] = m.bytes ? m.written / (m.bytes / dims[0]) : dims[0] * batches;
  return npyHeader(m.output->t.elem, dims);
}

void Outputs::finish() {
  if (comm.rank != 0)
    return;
  ZipOutput out(file);
  std::vector<std::unique_ptr<ZipMember>> ends;
  zip_source_t *to = out.source(nullptr);
  zip_t *zip = to ? libzip().zip_open_from_source(to, ZIP_CREATE | ZIP_TRUNCATE, nullptr) : nullptr;
  bool ok = zip;
  for (const Member &m : members) {
    ends.push_back(std::make_unique<ZipMember>(headerOf(m), m.spool, m.written));
    zip_source_t *from = ends.back()->source(nullptr);
    const zip_int64_t i =
        ok ? libzip().zip_file_add(zip, (std::string(m.output->name) + ".npy").c_str(), from, ZIP_FL_ENC_UTF_8) : -1;
    constexpr int kFirstOfJanuary1980 = 1 << 5 | 1; // the same bytes whenever it is written
    ok = i >= 0 && libzip().zip_set_file_compression(zip, i, ZIP_CM_STORE, 0) == 0 &&
         libzip().zip_file_set_dostime(zip, i, 0, kFirstOfJanuary1980, 0) == 0;
  }
  if (!ok || libzip().zip_close(zip) != 0) {
    const int code = zip ? libzip().zip_error_code_system(libzip().zip_get_error(zip)) : ENOMEM;
    if (zip)
      libzip().zip_discard(zip);
    errno = code;
    failErrno("cannot write '%s'", path.c_str());
  }
  file.commit();
}

} // namespace zccrt
