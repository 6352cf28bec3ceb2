// Spools each rank's rows to a file and packs them into an .npz at the end.
#include "runtime/Outputs.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/Npy.h"
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <minizip/zip.h>
#include <unistd.h>

namespace zccrt {

Outputs::Outputs(const zccrt_program &p, const std::string &path, Comm &comm) : comm(comm), path(path) {
  int64_t largest = 0;
  for (int i = 0; i < p.noutputs; ++i) {
    const zccrt_io &out = p.outputs[i];
    if (!out.name || !*out.name)
      continue;
    members.push_back({&out, elementCount(out.t) * elemBytes(out.t.elem)});
    largest = std::max(largest, members.back().bytes);
  }
  if (comm.rank != 0)
    return;
  file = OutFile(path);
  gathered.resize(largest * comm.ranks);
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
    comm.gather(arena.read(m.output->t.offset, m.bytes, aside), gathered.data(), m.bytes * comm.ranks, ZCCRT_U8);
    int64_t bytes = count * m.bytes;
    if (rows < batch && m.output->by_rows)
      bytes -= m.bytes / batch * (batch - rows);
    m.written += bytes;
    if (comm.rank == 0 && !writeAll(m.spool, gathered.data(), bytes))
      failErrno("cannot write '%s'", path.c_str());
  }
  batches += count;
}

// ---- the archive: minizip writes through an OutFile

static uLong writeFile(void *, void *stream, const void *data, uLong bytes) {
  return writeAll(static_cast<OutFile *>(stream)->descriptor(), data, bytes) ? bytes : 0;
}
static uLong readFile(void *, void *stream, void *data, uLong bytes) {
  ssize_t n = read(static_cast<OutFile *>(stream)->descriptor(), data, bytes);
  return n < 0 ? 0 : n;
}
static ZPOS64_T tellFile(void *, void *stream) { return lseek(static_cast<OutFile *>(stream)->descriptor(), 0, SEEK_CUR); }
static long seekFile(void *, void *stream, ZPOS64_T to, int origin) {
  int whence = origin == ZLIB_FILEFUNC_SEEK_SET ? SEEK_SET : origin == ZLIB_FILEFUNC_SEEK_CUR ? SEEK_CUR : SEEK_END;
  return lseek(static_cast<OutFile *>(stream)->descriptor(), to, whence) < 0 ? -1 : 0;
}
static void *openFile(void *opaque, const void *, int) { return opaque; }
static int closeFile(void *, void *) { return 0; }
static int fileError(void *, void *) { return 0; }

void Outputs::pack(void *zip, const Member &m) {
  std::vector<int64_t> dims(m.output->t.dims, m.output->t.dims + m.output->t.ndim);
  if (dims.empty() && batches != 1)
    dims.push_back(batches);
  else if (!dims.empty())
    dims[0] = m.bytes ? m.written / (m.bytes / dims[0]) : dims[0] * batches;
  std::string header = npyHeader(m.output->t.elem, dims), name = std::string(m.output->name) + ".npy";
  int64_t total = m.written;
  zip_fileinfo info = {};
  info.tmz_date.tm_year = 1980; // the same bytes whenever it is written
  info.tmz_date.tm_mday = 1;
  bool ok = zipOpenNewFileInZip64(zip, name.c_str(), &info, nullptr, 0, nullptr, 0, nullptr,
                                  /*method=*/0, /*level=*/0, total >= (int64_t(1) << 31)) == ZIP_OK;
  ok = ok && zipWriteInFileInZip(zip, header.data(), header.size()) == ZIP_OK;
  std::vector<char> chunk(std::min<int64_t>(total, 4 << 20));
  for (int64_t at = 0; ok && at < total;) {
    int64_t n = std::min<int64_t>(chunk.size(), total - at);
    ok = pread(m.spool, chunk.data(), n, at) == n && zipWriteInFileInZip(zip, chunk.data(), n) == ZIP_OK;
    at += n;
  }
  if (!ok || zipCloseFileInZip(zip) != ZIP_OK)
    failErrno("cannot write '%s'", path.c_str());
}

void Outputs::finish() {
  if (comm.rank != 0)
    return;
  zlib_filefunc64_def functions = {openFile, readFile, writeFile, tellFile, seekFile, closeFile, fileError, &file};
  errno = 0;
  zipFile zip = zipOpen2_64(path.c_str(), APPEND_STATUS_CREATE, nullptr, &functions);
  if (!zip)
    failErrno("cannot write '%s'", path.c_str());
  for (const Member &m : members)
    pack(zip, m);
  if (zipClose(zip, nullptr) != ZIP_OK)
    failErrno("cannot write '%s'", path.c_str());
  file.commit();
}

} // namespace zccrt
