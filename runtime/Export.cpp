// Gathers, transposes and writes the trained tensors, piece by piece.
#include "runtime/Export.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/Json.h"
#include "runtime/Npy.h"
#include "runtime/Safetensors.h"
#include "runtime/Transpose.h"
#include "runtime/Weights.h"
#include "runtime/weights/RunReader.h"
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

namespace zccrt {

constexpr int64_t kBandBytes = 32 << 20; // where a band's rows are short reads: the fewer the better; but no more
constexpr int64_t kLeastBytes = 1 << 20;

/// Whether a tensor that the model's file has transposed has two axes to swap.
static bool swapsAxes(const zccrt_global &g, bool transposed) { return transposed && g.t.ndim >= 2; }

/// What is computed in 16 bits and never written is exported from its file; so is what lies in no arena.
static bool isFromFile(const zccrt_global &g) {
  return g.init == ZCCRT_INIT_FILE && !g.saved && (g.file_elem != g.t.elem || g.t.offset < 0);
}

static int64_t globalBytes(const zccrt_global &g) { return elementCount(g.t) * elemBytes(g.export_elem); }

static bool isSafetensors(ExportForm form) { return form == ExportForm::Safetensors || form == ExportForm::SafetensorsFirst; }

/// The tensors of a safetensors file.
static std::vector<const zccrt_weight *> weightsOf(const zccrt_program &p, ExportForm form) {
  std::vector<const zccrt_weight *> all;
  for (int i = 0; i < p.nweights; ++i)
    if (form == ExportForm::Safetensors || !p.weights[i].another)
      all.push_back(&p.weights[i]);
  return all;
}

static int weightElem(const zccrt_program &p, const zccrt_weight &w) {
  return w.data.global >= 0 ? p.globals[w.data.global].export_elem : w.t.elem;
}

static int64_t weightBytes(const zccrt_program &p, const zccrt_weight &w) {
  return elementCount(w.t) * elemBytes(weightElem(p, w));
}

namespace {

struct Pieces {
  const zccrt_piece *list;
  int count;
};

class Writer {
public:
  Writer(const zccrt_program &p, const Arenas &arenas, Comm &comm, OutFile &file, ModelFiles &files, Scratch scratch)
      : program(p), arenas(arenas), comm(comm), file(file), files(files),
        isConverted(std::any_of(p.globals, p.globals + p.nglobals, [](auto &g) { return g.export_elem != g.t.elem; })),
        buffers(kBrought + (comm.ranks > 1) + isConverted),
        most(scratch.base ? std::clamp(scratch.bytes / buffers / kPage * kPage, kLeastBytes, kBandBytes) : kBandBytes),
        memory(scratch.bytes < buffers * most ? nullptr : scratch.base) {}

  void bytes(const char *data, int64_t n) {
    if (comm.rank == 0)
      file.write(data, n);
  }

  /// The whole tensor, its pieces gathered, its last two axes swapped if the model's file has them so.
  void tensor(const zccrt_global &g, bool transposed) {
    if (isFromFile(g))
      return comm.rank == 0 ? copyFromFile(g, transposed) : void();
    const std::vector<const zccrt_global *> parts = partsOf(g);
    const bool isPartitioned = std::any_of(parts.begin(), parts.end(), [](const zccrt_global *part) { return part->shards > 1; });
    if (comm.rank != 0 && !isPartitioned)
      return;
    const bool isWhole = g.role != ZCCRT_WHOLE && !isPartitioned;
    const char *inPlace = isWhole ? arenas[g.space].onHost(g.t.offset) : nullptr;
    if (inPlace && !swapsAxes(g, transposed) && g.export_elem == g.t.elem)
      return file.write(inPlace, globalBytes(g));
    auto read = [&](const Run &run, char *to) { bring(g, parts, run, to); };
    if (swapsAxes(g, transposed))
      inBands(g, inPlace ? std::min(kChunkBytes, most) : most, read);
    else
      inChunks(g, g.t.elem, read);
  }

  void piece(const zccrt_piece &p) {
    bytes(p.bytes, p.nbytes);
    if (p.global >= 0)
      tensor(program.globals[p.global], p.transposed);
  }

  /// The whole file, or a part of it.
  void pieces(const Pieces &all, const GraphPart *part) {
    if (!part) {
      for (int i = 0; i < all.count; ++i)
        piece(all.list[i]);
      return;
    }
    bytes(all.list[0].bytes, part->modelBytes);
    bytes(part->header.data(), part->header.size());
    int64_t at = 0; // in the whole file
    for (int i = 0; i < all.count; ++i) {
      const zccrt_piece &p = all.list[i];
      for (auto [begin, end] : part->ranges)
        if (int64_t from = std::max(begin, at), to = std::min(end, at + p.nbytes); from < to)
          bytes(p.bytes + (from - at), to - from);
      at += p.nbytes;
      if (p.global < 0)
        continue;
      const zccrt_global &g = program.globals[p.global];
      if (part->keeps(at))
        tensor(g, p.transposed);
      at += globalBytes(g);
    }
    bytes(part->output.data(), part->output.size());
  }

private:
  /// The boxes that a tensor lies in; itself, if it has none.
  std::vector<const zccrt_global *> partsOf(const zccrt_global &g) const {
    if (g.role != ZCCRT_WHOLE)
      return {&g};
    std::vector<const zccrt_global *> boxes;
    for (int i = 0; i < program.nglobals; ++i)
      if (const zccrt_global &box = program.globals[i]; box.init == ZCCRT_INIT_BOX && &wholeOf(program, box) == &g)
        boxes.push_back(&box);
    return boxes;
  }

  /// Elements of a tensor, on rank 0: of its own, then what each of the others has of them, as one message.
  void bring(const zccrt_global &g, const std::vector<const zccrt_global *> &parts, const Run &run, char *to) {
    const std::vector<int64_t> dims = dimsOf(g.t);
    const int64_t size = elemBytes(g.t.elem);
    for (const zccrt_global *part : parts)
      for (int r = 0; r < (part->shards > 1 ? comm.ranks : 1); ++r) {
        const Run piece = runOf(program, *part, r);
        auto read = [&](char *at, int64_t j, int64_t n) {
          arenas[part->space].copyFrom(at, part->t.offset + j * size, n * size);
        };
        if (r == 0) {
          if (comm.rank == 0)
            forEachCommon(dims, run, piece, [&](int64_t i, int64_t j, int64_t n) { read(to + i * size, j, n); });
          continue;
        }
        char *const brought = buffer(kBrought);
        int64_t bytes = 0;
        forEachCommon(dims, run, piece, [&](int64_t, int64_t j, int64_t n) {
          if (comm.rank == r)
            read(brought + bytes, j, n);
          bytes += n * size;
        });
        comm.bring(r, brought, brought, bytes);
        const char *from = brought;
        if (comm.rank == 0)
          forEachCommon(dims, run, piece, [&](int64_t i, int64_t, int64_t n) {
            std::memcpy(to + i * size, from, n * size);
            from += n * size;
          });
      }
  }

  /// All elements in their order; read(run, to) reads them as `elem`.
  template <class Fn> void inChunks(const zccrt_global &g, int elem, Fn read) {
    const Box whole = Box::whole(dimsOf(g.t));
    const int64_t count = elementCount(g.t),
                  chunk = std::min(kChunkBytes, most) / std::max(elemBytes(elem), elemBytes(g.export_elem));
    for (int64_t at = 0; at < count; at += chunk) {
      const int64_t n = std::min(chunk, count - at);
      read(Run{whole, at, n}, comm.rank == 0 ? buffer(kTurned) : nullptr);
      put(g, elem, n);
    }
  }

  /// Matrices with their axes swapped, some of their columns at a time, or a part of one.
  template <class Fn> void inBands(const zccrt_global &g, int64_t bandBytes, Fn read) {
    const int64_t size = elemBytes(g.t.elem), rows = g.t.dims[g.t.ndim - 2], cols = g.t.dims[g.t.ndim - 1];
    const int64_t elements = bandBytes / std::max(size, elemBytes(g.export_elem));
    const int64_t mostRows = std::min(rows, elements), mostCols = mostRows ? elements / mostRows : 0;
    Box band = Box::whole(dimsOf(g.t));
    int64_t &r = band.start[g.t.ndim - 2], &c = band.start[g.t.ndim - 1];
    int64_t &m = band.shape[g.t.ndim - 2], &n = band.shape[g.t.ndim - 1];
    for (int64_t matrix = 0, total = elementCount(g.t); matrix * rows * cols < total; ++matrix) {
      int64_t rest = matrix;
      for (int axis = g.t.ndim - 3; axis >= 0; --axis) {
        band.start[axis] = rest % g.t.dims[axis];
        band.shape[axis] = 1;
        rest /= g.t.dims[axis];
      }
      for (c = 0; c < cols; c += n) {
        n = std::min(mostCols, cols - c);
        for (r = 0; r < rows; r += m) {
          m = std::min(mostRows, rows - r);
          read(Run{band, 0, m * n}, comm.rank == 0 ? buffer(kLines) : nullptr);
          if (comm.rank == 0)
            transposeCopy(buffer(kLines), n, buffer(kTurned), m, n, m, size);
          put(g, g.t.elem, m * n);
        }
      }
    }
  }

  void copyFromFile(const zccrt_global &g, bool transposed) {
    const File &from = files[g.file];
    TensorInFile t{g.file_offset, g.file_elem, dimsOf(g.t), transposed != bool(g.transposed)};
    if (swapsAxes(g, transposed))
      std::swap(t.dims[g.t.ndim - 2], t.dims.back());
    inChunks(g, g.export_elem, [&](const Run &run, char *to) {
      runs.read(from, t, {Box::whole(t.dims), run.begin, run.count}, g.export_elem, to);
    });
    expectUnchanged(g, from);
  }

  /// Elements that have been read, in their order in the file.
  void put(const zccrt_global &g, int elem, int64_t n) {
    if (comm.rank != 0)
      return;
    if (elem == g.export_elem)
      return file.write(buffer(kTurned), n * elemBytes(elem));
    convert(buffer(kTurned), elem, buffer(kConverted), g.export_elem, n);
    file.write(buffer(kConverted), n * elemBytes(g.export_elem));
  }

  enum Buffer { kLines, kTurned, kBrought, kConverted };
  /// The third is of several ranks, the last of them of what is converted.
  char *buffer(Buffer b) {
    const int64_t at = b == kConverted ? buffers - 1 : int64_t(b);
    if (memory)
      return memory + at * most;
    if (!heap[at])
      heap[at].reset(new char[most]);
    return heap[at].get();
  }

  const zccrt_program &program;
  const Arenas &arenas;
  Comm &comm;
  OutFile &file;
  ModelFiles &files;
  RunReader runs;
  const bool isConverted;
  const int64_t buffers, most; ///< how many; bytes of each
  char *const memory;          ///< nullptr: they are the heap's
  std::unique_ptr<char[]> heap[kConverted + 1];
};

Pieces piecesOf(const zccrt_program &p, ExportForm form) {
  return form == ExportForm::Onnx ? Pieces{p.onnx, p.npieces} : Pieces{p.onnx_train, p.npieces_train};
}

} // namespace

std::string safetensorsHeader(const zccrt_program &p, ExportForm form) {
  std::string s = "{\"__metadata__\":{\"format\":\"pt\"}";
  int64_t at = 0;
  for (const zccrt_weight *w : weightsOf(p, form)) {
    std::string shape;
    for (int i = 0; i < w->t.ndim; ++i)
      shape += format(i ? ",%lld" : "%lld", static_cast<long long>(w->t.dims[i]));
    int64_t end = at + weightBytes(p, *w);
    s += format(",%s:{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%lld,%lld]}", jsonString(w->name).c_str(),
                safetensorsType(weightElem(p, *w)), shape.c_str(), static_cast<long long>(at), static_cast<long long>(end));
    at = end;
  }
  s += "}";
  s.resize((s.size() + 7) / 8 * 8, ' ');
  uint64_t length = s.size();
  return std::string(reinterpret_cast<const char *>(&length), 8) + s;
}

int64_t exportBytes(const zccrt_program &p, ExportForm form, const GraphPart *part) {
  if (part)
    return part->bytes();
  int64_t total = 0;
  if (isSafetensors(form)) {
    total = safetensorsHeader(p, form).size();
    for (const zccrt_weight *w : weightsOf(p, form))
      total += weightBytes(p, *w);
    return total;
  }
  Pieces pieces = piecesOf(p, form);
  for (int i = 0; i < pieces.count; ++i) {
    const zccrt_piece &piece = pieces.list[i];
    total += piece.nbytes + (piece.global >= 0 ? globalBytes(p.globals[piece.global]) : 0);
  }
  return total;
}

void exportWeights(const zccrt_program &p, ExportForm form, const Arenas &arenas, Comm &comm, OutFile &file, ModelFiles &files,
                   const GraphPart *part, Scratch scratch) {
  Writer writer(p, arenas, comm, file, files, scratch);
  if (isSafetensors(form)) {
    std::string header = safetensorsHeader(p, form);
    writer.bytes(header.data(), header.size());
    for (const zccrt_weight *w : weightsOf(p, form))
      writer.piece(w->data);
    if (comm.rank == 0)
      checkSafetensors(file.descriptor(), file.path());
  } else {
    writer.pieces(piecesOf(p, form), part);
  }
  if (comm.rank == 0)
    file.commit();
}

} // namespace zccrt
