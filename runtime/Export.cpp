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
#include <vector>

namespace zccrt {

constexpr int64_t kBandBytes = 32 << 20; // where a band's rows are short reads: the fewer the better

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
  Writer(const zccrt_program &p, const Arenas &arenas, Comm &comm, OutFile &file, ModelFiles &files)
      : program(p), arenas(arenas), comm(comm), file(file), files(files) {}

  void bytes(const char *data, int64_t n) {
    if (comm.rank == 0)
      file.write(data, n);
  }

  /// The whole tensor, its pieces gathered, its last two axes swapped if the model's file has them so.
  void tensor(const zccrt_global &g, bool transposed) {
    if (isFromFile(g))
      return comm.rank == 0 ? copyFromFile(g, transposed) : void();
    if (g.role == ZCCRT_WHOLE)
      return fromBoxes(g, transposed);
    if (g.shards > 1)
      gather(g, gathered);
    if (comm.rank != 0)
      return;
    const int64_t size = elemBytes(g.t.elem);
    const char *inPlace = g.shards > 1 ? gathered.data() : arenas[g.space].onHost(g.t.offset);
    if (inPlace && !swapsAxes(g, transposed) && g.export_elem == g.t.elem)
      return file.write(inPlace, globalBytes(g));
    elements(g, transposed, inPlace ? kChunkBytes : kBandBytes, [&](int64_t at, int64_t n, char *to) {
      if (inPlace)
        std::memcpy(to, inPlace + at * size, n * size);
      else
        arenas[g.space].copyFrom(to, g.t.offset + at * size, n * size);
    });
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
  /// What of a tensor lies in one of its boxes: in an arena, or gathered.
  struct Part {
    const zccrt_global *box;
    std::vector<char> gathered;
  };

  void fromBoxes(const zccrt_global &g, bool transposed) {
    std::vector<Part> parts;
    for (int i = 0; i < program.nglobals; ++i)
      if (const zccrt_global &box = program.globals[i]; box.init == ZCCRT_INIT_BOX && &program.globals[box.copy_of] == &g) {
        parts.push_back({&box, {}});
        if (box.shards > 1)
          gather(box, parts.back().gathered);
      }
    if (comm.rank != 0)
      return;
    const std::vector<int64_t> dims = dimsOf(g.t);
    const int64_t size = elemBytes(g.t.elem);
    elements(g, transposed, kBandBytes, [&](int64_t at, int64_t n, char *to) {
      for (const Part &part : parts) {
        const Run all = {runOf(program, *part.box, comm.rank).box, 0, elementCount(part.box->t)};
        forEachCommon(dims, {Box::whole(dims), at, n}, all, [&](int64_t i, int64_t j, int64_t count) {
          if (part.box->shards > 1)
            std::memcpy(to + i * size, &part.gathered[j * size], count * size);
          else
            arenas[part.box->space].copyFrom(to + i * size, part.box->t.offset + j * size, count * size);
        });
      }
    });
  }

  /// All of what is partitioned, on rank 0.
  void gather(const zccrt_global &g, std::vector<char> &all) {
    const int64_t size = elemBytes(g.t.elem);
    const char *data = arenas[g.space].read(g.t.offset, pieceOf(g, comm.rank).count * size, aside);
    all.resize(comm.rank == 0 ? std::max<int64_t>(elementCount(g.t) * size, 1) : 0);
    comm.gather(data, all.data(), elementCount(g.t), g.t.elem);
  }

  /// Writes a tensor without ever having all of it; read(element, count, to) reads some. A band of what is transposed takes so
  /// many bytes, twice.
  template <class Fn> void elements(const zccrt_global &g, bool transposed, int64_t bandBytes, Fn read) {
    if (swapsAxes(g, transposed))
      inBands(g, bandBytes, read);
    else
      inChunks(g, g.t.elem, read);
  }

  /// All elements in their order; they are read as `elem`.
  template <class Fn> void inChunks(const zccrt_global &g, int elem, Fn read) {
    const int64_t size = elemBytes(elem), most = kChunkBytes / size, count = elementCount(g.t);
    buffer.resize(std::min(count, most) * size);
    for (int64_t at = 0; at < count; at += most) {
      const int64_t n = std::min(most, count - at);
      read(at, n, buffer.data());
      put(g, elem, n);
    }
  }

  /// Matrices with their axes swapped.
  template <class Fn> void inBands(const zccrt_global &g, int64_t bandBytes, Fn read) {
    const int64_t size = elemBytes(g.t.elem), rows = g.t.dims[g.t.ndim - 2], cols = g.t.dims[g.t.ndim - 1];
    const int64_t band = std::max<int64_t>(1, bandBytes / (std::max<int64_t>(rows, 1) * size));
    for (int64_t done = 0, total = elementCount(g.t); done < total; done += rows * cols)
      for (int64_t c = 0; c < cols; c += band) {
        const int64_t n = std::min(band, cols - c);
        lines.resize(rows * n * size);
        buffer.resize(rows * n * size);
        for (int64_t r = 0; r < rows; ++r)
          read(done + r * cols + c, n, &lines[r * n * size]);
        transposeCopy(lines.data(), n, buffer.data(), rows, n, rows, size);
        put(g, g.t.elem, n * rows);
      }
  }

  void copyFromFile(const zccrt_global &g, bool transposed) {
    const File &from = files[g.file];
    TensorInFile t{g.file_offset, g.file_elem, dimsOf(g.t), transposed != bool(g.transposed)};
    if (swapsAxes(g, transposed))
      std::swap(t.dims[g.t.ndim - 2], t.dims.back());
    inChunks(g, g.export_elem,
             [&](int64_t at, int64_t n, char *to) { runs.read(from, t, {Box::whole(t.dims), at, n}, g.export_elem, to); });
    expectUnchanged(g, from);
  }

  /// What is in the buffer.
  void put(const zccrt_global &g, int elem, int64_t n) {
    if (elem == g.export_elem)
      return file.write(buffer.data(), n * elemBytes(elem));
    converted.resize(n * elemBytes(g.export_elem));
    convert(buffer.data(), elem, converted.data(), g.export_elem, n);
    file.write(converted.data(), converted.size());
  }

  const zccrt_program &program;
  const Arenas &arenas;
  Comm &comm;
  OutFile &file;
  ModelFiles &files;
  RunReader runs;
  std::vector<char> gathered, lines, buffer, converted, aside;
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
                   const GraphPart *part) {
  Writer writer(p, arenas, comm, file, files);
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
