// Reads, converts, scatters and hashes weights from the model's files.
#include "runtime/Weights.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/Hash.h"
#include "runtime/weights/RunReader.h"
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <set>
#include <unistd.h>
#include <vector>

namespace zccrt {

Piece pieceOf(const zccrt_global &g, int rank) {
  int64_t total = elementCount(g.t);
  if (g.shards <= 1)
    return {0, total};
  int64_t whole = (total + g.shards - 1) / g.shards, begin = std::min(total, rank * whole);
  return {begin, std::min(whole, total - begin)};
}

Run runOf(const zccrt_program &p, const zccrt_global &g, int rank) {
  Box box = Box::whole(dimsOf(g.t));
  if (&wholeOf(p, g) != &g)
    box.start.assign(g.start, g.start + g.t.ndim);
  Piece piece = pieceOf(g, rank);
  return {std::move(box), piece.begin, piece.count};
}

/// The program's file. It is asked for as the run begins: that of one that has been compiled anew since is " (deleted)".
static const std::string &programPath() {
  static const std::string path = [] {
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    return std::string(self, n > 0 ? n : 0);
  }();
  return path;
}

std::string weightsPath(const zccrt_program &p, int index, const std::string &weightsDir) {
  const std::string &program = programPath();
  std::string name = index < 0 ? program + ".weights" : p.files[index];
  std::string base = name.substr(name.rfind('/') + 1);
  if (!weightsDir.empty()) {
    // Below DIR as it was below the program's folder, or right in it.
    std::string nested = weightsDir + "/" + name;
    return index >= 0 && name[0] != '/' && access(nested.c_str(), F_OK) == 0 ? nested : weightsDir + "/" + base;
  }
  if (name[0] == '/')
    return name;
  return program.substr(0, program.rfind('/') + 1) + name;
}

static bool isChecked(const zccrt_global &g) { return g.init == ZCCRT_INIT_FILE && g.hash != 0; }

static const char *label(const zccrt_global &g) { return g.onnx_name && *g.onnx_name ? g.onnx_name : g.name; }

std::string ModelFiles::path(int index) const { return weightsPath(program, index, dir); }

const File &ModelFiles::operator[](int index) {
  auto &f = open[index];
  if (!f)
    f = std::make_unique<File>(path(index));
  return *f;
}

/// Blocks [begin, end) of a global's bytes in its file.
static uint64_t hashOfBlocks(const zccrt_global &g, const File &file, int64_t begin, int64_t end, std::vector<char> &buffer) {
  uint64_t sum = 0;
  buffer.resize(kHashBlockBytes);
  for (int64_t b = begin; b < end; ++b) {
    const int64_t at = b * kHashBlockBytes, n = std::min<int64_t>(kHashBlockBytes, g.file_bytes - at);
    file.read(g.file_offset + at, n, buffer.data());
    sum += hashBlock(buffer.data(), n, b);
  }
  return sum;
}

static int64_t blocksOf(const zccrt_global &g) { return (g.file_bytes + kHashBlockBytes - 1) / kHashBlockBytes; }

static void expectHash(const zccrt_global &g, uint64_t sum, const std::string &path) {
  if (hashFinish(sum, g.file_bytes) != g.hash)
    fail("'%s' has changed since the program was compiled (tensor '%s'); compile again", path.c_str(), label(g));
}

void expectUnchanged(const zccrt_global &g, const File &file) {
  std::vector<char> buffer;
  if (isChecked(g))
    expectHash(g, hashOfBlocks(g, file, 0, blocksOf(g), buffer), file.path());
}

namespace {

class Loader {
public:
  Loader(const zccrt_program &p, const Arenas &arenas, const Comm &comm, ModelFiles &files, int64_t seed,
         const std::vector<bool> &skipped)
      : program(p), arenas(arenas), comm(comm), files(files), seed(seed), skipped(skipped) {}

  void load() {
    for (int i = 0; i < program.nglobals; ++i)
      if (program.globals[i].init != ZCCRT_INIT_COPY && !skips(i))
        fill(program.globals[i]);
    for (int i = 0; i < program.nglobals; ++i)
      if (program.globals[i].init == ZCCRT_INIT_COPY && !skips(i))
        copy(program.globals[i]);
  }

  /// The hashes of this rank's part of every tensor's blocks.
  std::vector<uint64_t> hash() {
    std::vector<uint64_t> sums(program.nglobals);
    for (int i = 0; i < program.nglobals; ++i) {
      const zccrt_global &g = program.globals[i];
      if (!isChecked(g) || skips(i))
        continue;
      const int64_t blocks = blocksOf(g), mine = comm.piece(blocks), begin = comm.rank * mine;
      if (begin < blocks)
        sums[i] = hashOfBlocks(g, files[g.file], begin, std::min(blocks, begin + mine), buffer);
    }
    return sums;
  }

private:
  bool skips(int i) const { return !skipped.empty() && skipped[i]; }

  void fill(const zccrt_global &g) {
    Piece piece = pieceOf(g, comm.rank);
    // What a shard's buffer has beyond the tensor's end stays zero, as the whole arena is at the
    // start.
    if (g.role != ZCCRT_WHOLE && wholeOf(program, g).init != ZCCRT_INIT_ZERO)
      inParts(g, piece, [&](Piece part, int64_t offset) {
        arenas[g.space].write(offset, part.count * elemBytes(g.t.elem), aside, [&](char *to) { fillPiece(g, part, to); });
      });
  }

  /// All of a piece where the host writes it in place, else as much at a time as a chunk holds, with its offset in the arena.
  template <class Fn> void inParts(const zccrt_global &g, Piece piece, Fn fn) {
    const int64_t size = elemBytes(g.t.elem);
    int64_t most = arenas[g.space].onHost(g.t.offset) ? piece.count : kChunkBytes / size;
    for (int64_t at = 0; at < piece.count; at += most)
      fn(Piece{piece.begin + at, std::min(most, piece.count - at)}, g.t.offset + at * size);
  }

  void fillPiece(const zccrt_global &g, Piece piece, char *to) {
    switch (g.init) {
    case ZCCRT_INIT_SPLAT:
      splat(g, to, piece.count);
      break;
    case ZCCRT_INIT_FILE:
      read(g, {Box::whole(dimsOf(g.t)), piece.begin, piece.count}, to);
      break;
    case ZCCRT_INIT_UNIFORM:
    case ZCCRT_INIT_NORMAL:
      drawRandom(g, seed, piece.begin, piece.count, to);
      break;
    case ZCCRT_INIT_BOX:
      fillBox(g, piece, to);
      break;
    case ZCCRT_INIT_ZERO:
    case ZCCRT_INIT_COPY:
      break;
    }
  }

  /// Run by run of its tensor.
  void fillBox(const zccrt_global &g, Piece piece, char *to) {
    const zccrt_global &whole = wholeOf(program, g);
    const Run own = {runOf(program, g, comm.rank).box, piece.begin, piece.count};
    if (whole.init == ZCCRT_INIT_FILE)
      return read(whole, own, to);
    const std::vector<int64_t> dims = dimsOf(whole.t);
    forEachCommon(dims, own, {Box::whole(dims), 0, elementCount(whole.t)},
                  [&](int64_t i, int64_t j, int64_t n) { fillPiece(whole, {j, n}, to + i * elemBytes(g.t.elem)); });
  }

  static void splat(const zccrt_global &g, char *to, int64_t count) {
    withType(g.t.elem, [&](auto type) {
      using T = decltype(type);
      T value;
      if constexpr (std::is_same_v<T, Bf16> || std::is_same_v<T, F16>)
        value = T(static_cast<float>(g.a));
      else
        value = static_cast<T>(g.a);
      std::fill_n(reinterpret_cast<T *>(to), count, value);
    });
  }

  /// The file of a tensor, which is as long as it should be.
  const File &expectFile(const zccrt_global &g) {
    int64_t size = elemBytes(g.file_elem);
    if (g.file_bytes != elementCount(g.t) * size)
      fail("tensor '%s' takes %lld bytes, its file entry has %lld; compile again", label(g),
           static_cast<long long>(elementCount(g.t) * size), static_cast<long long>(g.file_bytes));
    const File &f = files[g.file];
    if (g.file_offset < 0 || g.file_bytes > f.bytes() - g.file_offset)
      fail("'%s' is too short for tensor '%s'; it has changed since the program was compiled", f.path().c_str(), label(g));
    return f;
  }

  void read(const zccrt_global &g, const Run &run, char *to) {
    runs.read(expectFile(g), {g.file_offset, g.file_elem, dimsOf(g.t), bool(g.transposed)}, run, g.t.elem, to);
  }

  void copy(const zccrt_global &g) {
    const zccrt_global &from = program.globals[g.copy_of];
    if (from.space == g.space && from.t.offset == g.t.offset)
      return;
    if (from.init == ZCCRT_INIT_COPY && &from > &g)
      fail("tensor '%s' copies '%s', which is not yet filled", label(g), label(from));
    int64_t count = pieceOf(g, comm.rank).count;
    if (count != pieceOf(from, comm.rank).count)
      fail("tensor '%s' copies '%s' of another size", label(g), label(from));
    const int64_t size = elemBytes(g.t.elem), fromSize = elemBytes(from.t.elem);
    inParts(g, {0, count}, [&](Piece all, int64_t) {
      inParts(from, all, [&](Piece part, int64_t) {
        const char *data = arenas[from.space].read(from.t.offset + part.begin * fromSize, part.count * fromSize, asideFrom);
        arenas[g.space].write(g.t.offset + part.begin * size, part.count * size, aside,
                              [&](char *to) { convert(data, from.t.elem, to, g.t.elem, part.count); });
      });
    });
  }

  const zccrt_program &program;
  const Arenas &arenas;
  const Comm &comm;
  ModelFiles &files;
  int64_t seed;
  const std::vector<bool> &skipped;
  RunReader runs;
  std::vector<char> buffer, aside, asideFrom;
};

} // namespace

/// All files that the program needs must be there: one message names those that are not.
static void expectFiles(const zccrt_program &p, const ModelFiles &files, const std::vector<bool> &skipped) {
  std::string missing;
  std::set<int> needed;
  for (int i = 0; i < p.nglobals; ++i)
    if (p.globals[i].init == ZCCRT_INIT_FILE && (skipped.empty() || !skipped[i]))
      needed.insert(p.globals[i].file);
  for (int i : needed) {
    std::string path = files.path(i);
    if (access(path.c_str(), R_OK) != 0)
      missing += format("%s'%s': %s", missing.empty() ? "" : ", ", path.c_str(), strerror(errno));
  }
  if (!missing.empty())
    fail("cannot read the weights %s; put the files there, or all into one folder, and give --weights=DIR", missing.c_str());
}

std::vector<uint64_t> loadWeights(const zccrt_program &p, const Arenas &arenas, const Comm &comm, ModelFiles &files, int64_t seed,
                                  const std::vector<bool> &skipped) {
  expectFiles(p, files, skipped);
  Loader loader(p, arenas, comm, files, seed, skipped);
  loader.load();
  return loader.hash();
}

void checkHashes(const zccrt_program &p, const std::vector<uint64_t> &sums, Comm &comm, const ModelFiles &files,
                 const std::vector<bool> &skipped) {
  std::vector<uint64_t> total(sums.size());
  comm.allReduce(sums.data(), total.data(), sums.size(), ZCCRT_U64, /*mean=*/false);
  for (int i = 0; i < p.nglobals; ++i) {
    const zccrt_global &g = p.globals[i];
    bool isRead = skipped.empty() || !skipped[i];
    if (isRead && isChecked(g))
      expectHash(g, total[i], files.path(g.file));
  }
}

} // namespace zccrt
