// Reads rows, or bands of columns, through a buffer.
#include "runtime/weights/RunReader.h"
#include "runtime/Elem.h"
#include "runtime/Transpose.h"
#include <algorithm>

namespace zccrt {

void RunReader::read(const File &file, const TensorInFile &t, const Run &run, int elem, char *to) {
  if (t.isTransposed && t.dims.size() >= 2)
    return readTransposed(file, t, run, elem, to);
  const Box whole = Box::whole(t.dims);
  const int64_t size = elemBytes(elem);
  forEachCommon(t.dims, {whole, 0, whole.elements()}, run,
                [&](int64_t from, int64_t at, int64_t n) { readRow(file, t, from, n, elem, to + at * size); });
}

void RunReader::readRow(const File &file, const TensorInFile &t, int64_t first, int64_t count, int elem, char *to) {
  const int64_t from = elemBytes(t.elem), size = elemBytes(elem), chunk = kChunkBytes / from;
  if (t.elem == elem) {
    file.read(t.offset + first * from, count * from, to);
    return elem == ZCCRT_BOOL ? makeBools(to, count) : void();
  }
  buffer.resize(std::min(chunk, count) * from);
  for (int64_t at = 0; at < count; at += chunk) {
    int64_t n = std::min(chunk, count - at);
    file.read(t.offset + (first + at) * from, n * from, buffer.data());
    convert(buffer.data(), t.elem, to + at * size, elem, n);
  }
}

/// The number of the matrix of the whole tensor that is number `matrix` of the box.
static int64_t matrixOf(const TensorInFile &t, const Box &box, int64_t matrix) {
  int64_t number = 0, weight = 1;
  for (size_t axis = t.dims.size() - 2; axis-- > 0;) {
    number += (box.start[axis] + matrix % box.shape[axis]) * weight;
    matrix /= box.shape[axis];
    weight *= t.dims[axis];
  }
  return number;
}

/// The file has [.., cols, rows] where the tensor has [.., rows, cols]: for each matrix the wanted rows, which are columns of the
/// file, as many of the file's rows at a time as a chunk holds.
void RunReader::readTransposed(const File &file, const TensorInFile &t, const Run &run, int elem, char *to) {
  const size_t axes = t.dims.size();
  const int64_t rows = run.box.shape[axes - 2], cols = run.box.shape[axes - 1], end = run.begin + run.count;
  const int64_t width = t.dims[axes - 2], height = t.dims[axes - 1], size = elemBytes(t.elem), out = elemBytes(elem);
  for (int64_t at = run.begin; at < end;) {
    // Whole rows of one matrix, or part of a row where the run begins or ends inside one.
    int64_t row = at / cols, c0 = at % cols, matrix = row / rows;
    int64_t wanted = 1, c1 = std::min(cols, c0 + end - at);
    if (c0 == 0 && end - at >= cols)
      wanted = std::min((end - at) / cols, (matrix + 1) * rows - row);
    int64_t base = t.offset + matrixOf(t, run.box, matrix) * width * height * size;
    int64_t first = row - matrix * rows + run.box.start[axes - 2];
    int64_t band = std::max<int64_t>(1, kChunkBytes / (wanted * size));
    for (int64_t c = c0; c < c1; c += band) {
      int64_t n = std::min(band, c1 - c);
      readColumns(file, base, run.box.start[axes - 1] + c, n, first, wanted, width, size);
      transposeCopy(inElement(t.elem, elem, n * wanted), wanted, to + (at - run.begin + c - c0) * out, cols, wanted, n, out);
    }
    at += c0 == 0 && c1 == cols ? wanted * cols : c1 - c0;
  }
}

/// The buffer's values as the element that is asked for.
const char *RunReader::inElement(int from, int to, int64_t count) {
  if (from == to)
    return buffer.data();
  converted.resize(count * elemBytes(to));
  convert(buffer.data(), from, converted.data(), to, count);
  return converted.data();
}

/// buffer[rows][columns] = part of a matrix of the file, `width` wide.
void RunReader::readColumns(const File &file, int64_t base, int64_t row, int64_t rows, int64_t column, int64_t columns,
                            int64_t width, int64_t size) {
  buffer.resize(rows * columns * size);
  if (columns == width)
    return file.read(base + row * width * size, rows * width * size, buffer.data());
  for (int64_t k = 0; k < rows; ++k)
    file.read(base + ((row + k) * width + column) * size, columns * size, &buffer[k * columns * size]);
}

} // namespace zccrt
