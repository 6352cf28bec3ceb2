#include "runtime/Data.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/Hash.h"
#include <algorithm>
#include <numeric>

namespace zccrt {

constexpr int64_t kStagingBytes = 1 << 16;
constexpr int64_t kHashedBlocks = 256; // of an array, 16 MiB
static_assert(kStagingBytes >= int64_t(kHashBlockBytes));

// ---- shuffling

Permutation::Permutation(uint64_t n, uint64_t seed, uint64_t epoch) : n(n), halfBits(1) {
  while (halfBits < 32 && (uint64_t(1) << (2 * halfBits)) < n)
    ++halfBits;
  for (int i = 0; i < 6; ++i)
    keys[i] = hashMix(hashMix(seed + 1) ^ hashMix(epoch * 8 + i + 2));
}

uint64_t Permutation::operator()(uint64_t i) const {
  const uint64_t mask = (uint64_t(1) << halfBits) - 1;
  do {
    uint64_t left = i >> halfBits, right = i & mask;
    for (uint64_t key : keys) {
      uint64_t next = left ^ (hashMix(right ^ key) & mask);
      left = right;
      right = next;
    }
    i = left << halfBits | right;
  } while (i >= n);
  return i;
}

// ---- matching files and inputs

static std::string typeText(int elem, const int64_t *dims, int ndim) {
  return std::string(elemName(elem)) + " " + shapeText(dims, ndim);
}

static std::string expected(const zccrt_io &input) {
  return format("input '%s' is %s", input.name,
                typeText(input.t.elem, input.t.dims, input.t.ndim).c_str());
}

/// Whether numbers of one type may stand for those of another: every value must have its own, or be
/// rounded once (floats).
static bool converts(int from, int to) {
  if (from == to)
    return true;
  if (isFloat(from) && isFloat(to))
    return true;
  if (!isInteger(from) || !isInteger(to))
    return false;
  bool fromSigned = from <= ZCCRT_I8, toSigned = to <= ZCCRT_I8;
  if (elemBytes(to) <= elemBytes(from))
    return false;
  return toSigned || !fromSigned;
}

DataSet::DataSet(const zccrt_program &p, const DataFiles &files, const Options &o)
    : staging(kStagingBytes), seed(o.seed), shuffle(o.shuffle) {
  std::vector<std::string> names, found, others;
  for (int i = 0; i < p.ninputs; ++i)
    names.push_back(p.inputs[i].name);
  auto bind = [&](std::string name, Array array) {
    if (std::find(found.begin(), found.end(), name) != found.end())
      fail("input '%s' is given twice", name.c_str());
    found.push_back(name);
    bindArray(p.inputs[std::find(names.begin(), names.end(), name) - names.begin()],
              std::move(array));
  };
  for (const std::string &path : files.npz)
    for (const Array &a : openNpz(path, names, others))
      bind(a.name, a);
  for (const DataFiles::Named &f : files.npy) {
    if (std::find(names.begin(), names.end(), f.input) == names.end()) {
      std::string near = nearest(f.input, names);
      if (near.empty() && !names.empty())
        near = names[0];
      fail("--data=%s=%s: the model has no input '%s'%s", f.input.c_str(), f.file.c_str(),
           f.input.c_str(),
           near.empty() ? "" : format("; did you mean '%s'?", near.c_str()).c_str());
    }
    bind(f.input, openNpy(f.file));
  }
  if (!files.tokens.empty())
    bindTokens(files.tokens, o, p);
  for (int i = 0; i < p.ninputs; ++i) {
    if (std::any_of(bindings.begin(), bindings.end(),
                    [&](auto &b) { return b.input == &p.inputs[i]; }))
      continue;
    std::string had;
    for (const std::string &name : others)
      had += (had.empty() ? "; the archive also has '" : ", '") + name + "'";
    fail("no data for %s; give --data=FILE.npz with an array '%s', or --data=%s=FILE.npy%s",
         expected(p.inputs[i]).c_str(), p.inputs[i].name, p.inputs[i].name, had.c_str());
  }
  settle();
}

void DataSet::bindArray(const zccrt_io &input, Array array) {
  const zccrt_tensor &t = input.t;
  std::string have = typeText(array.elem, array.dims.data(), array.dims.size());
  if (!converts(array.elem, t.elem))
    fail("%s, its data are %s; convert them with numpy: array.astype('%s')",
         expected(input).c_str(), have.c_str(), elemName(t.elem));
  if (isFloat(t.elem) && t.elem != array.elem && elemBytes(t.elem) <= elemBytes(array.elem))
    note(format("'%s' is rounded from %s to %s", input.name, elemName(array.elem),
                elemName(t.elem)));
  Binding b{&input, std::move(array), 1, 0, elementCount(t), 0};
  const std::vector<int64_t> &dims = b.array.dims;
  bool same = std::equal(dims.begin(), dims.end(), t.dims, t.dims + t.ndim);
  size_t rank = t.ndim ? t.ndim : 1;
  if (!same &&
      (dims.size() != rank || !std::equal(dims.begin() + 1, dims.end(), t.dims + 1, t.dims + rank)))
    fail("%s, its data are %s; the data may have any number of samples along the first axis, the "
         "other axes must agree",
         expected(input).c_str(), have.c_str());
  if (t.ndim && t.dims[0] > 0) {
    b.rows = t.dims[0];
    b.rowElements /= b.rows;
  }
  b.rowStride = b.rowElements;
  if (!same) {
    b.batches = dims[0] / b.rows;
    if (!b.batches)
      fail("%s, its data have only %lld sample%s; one batch needs %lld", expected(input).c_str(),
           static_cast<long long>(dims[0]), dims[0] == 1 ? "" : "s",
           static_cast<long long>(b.rows));
    if (dims[0] % b.rows)
      note(format("the last %lld of %lld samples of '%s' are left out: %lld make a batch",
                  static_cast<long long>(dims[0] % b.rows), static_cast<long long>(dims[0]),
                  input.name, static_cast<long long>(b.rows)));
  }
  memory += b.array.inMemory;
  bindings.push_back(std::move(b));
}

/// Settles how many batches there are, and whether rows can be shuffled.
void DataSet::settle() {
  const Binding *first = nullptr;
  bool equalRows = true;
  for (const Binding &b : bindings) {
    for (uint64_t x :
         {uint64_t(b.array.elem), uint64_t(b.rows), uint64_t(b.batches), uint64_t(b.rowElements)})
      sizes = hashMix(sizes ^ x) + 1;
    if (!b.batches)
      continue;
    if (!first)
      first = &b;
    equalRows &= b.rows == first->rows;
    if (b.batches != first->batches)
      fail("input '%s' has data for %lld batches, input '%s' for %lld", first->input->name,
           static_cast<long long>(first->batches), b.input->name,
           static_cast<long long>(b.batches));
  }
  if (first) {
    batchCount = first->batches;
    rowsPerBatch = first->rows;
    shuffleRows = equalRows;
  } else if (!bindings.empty()) {
    rowsPerBatch = bindings[0].rows;
  }
  if (shuffle && first && !equalRows)
    note("--shuffle permutes whole batches: the inputs differ in their first dimension");
}

uint64_t DataSet::hash() {
  uint64_t h = sizes;
  for (const Binding &b : bindings) {
    const int64_t block = kHashBlockBytes, bytes = b.array.elements() * elemBytes(b.array.elem);
    const int64_t blocks = (bytes + block - 1) / block, looked = std::min(blocks, kHashedBlocks);
    uint64_t sum = 0;
    for (int64_t i = 0; i < looked; ++i) {
      int64_t at = i * (blocks - 1) / std::max<int64_t>(1, looked - 1);
      int64_t n = std::min(block, bytes - at * block);
      b.array.source->read(b.array.offset + at * block, n, staging.data());
      sum += hashBlock(staging.data(), n, at);
    }
    h = hashMix(h ^ hashFinish(sum, bytes)) + 1;
  }
  return h;
}

// ---- loading

int64_t DataSet::sampleOf(const Binding &b, int64_t position) const {
  int64_t total = b.batches * b.rows;
  if (!shuffle)
    return position % total;
  if (shuffleRows)
    return Permutation(total, seed, position / total)(position % total);
  Permutation batchOrder(b.batches, seed, position / total);
  return batchOrder(position % total / b.rows) * b.rows + position % b.rows;
}

void DataSet::copyRows(const Binding &b, int64_t sample, int64_t rows, char *to) {
  int64_t from = elemBytes(b.array.elem), into = elemBytes(b.input->t.elem);
  int64_t at = b.array.offset + sample * b.rowStride * from, left = rows * b.rowElements;
  if (b.array.elem == b.input->t.elem) {
    b.array.source->read(at, left * from, to);
    if (b.array.elem == ZCCRT_BOOL)
      makeBools(to, left);
    return;
  }
  while (left) {
    int64_t n = std::min(left, kStagingBytes / from);
    b.array.source->read(at, n * from, staging.data());
    convert(staging.data(), b.array.elem, to, b.input->t.elem, n);
    at += n * from;
    to += n * into;
    left -= n;
  }
}

void DataSet::load(char *arena, int64_t index) {
  for (const Binding &b : bindings) {
    char *to = arena + b.input->t.offset;
    int64_t rowBytes = b.rowElements * elemBytes(b.input->t.elem);
    if (!b.batches || !shuffle) {
      copyRows(b, b.batches ? index % b.batches * b.rows : 0, b.rows, to);
    } else {
      for (int64_t r = 0; r < b.rows; ++r)
        copyRows(b, sampleOf(b, index * b.rows + r), 1, to + r * rowBytes);
    }
    checkRange(b, to, index);
  }
}

void DataSet::checkRange(const Binding &b, const char *data, int64_t index) const {
  const zccrt_io &in = *b.input;
  if (in.lo >= in.hi || !isInteger(in.t.elem))
    return;
  withType(in.t.elem, [&](auto type) {
    using T = decltype(type);
    if constexpr (std::is_integral_v<T>) {
      auto *values = reinterpret_cast<const T *>(data);
      for (int64_t i = 0; i < b.rows * b.rowElements; ++i) {
        int64_t v = values[i];
        if ((v >= in.lo && v < in.hi) || v == in.ignore)
          continue;
        int64_t row = i / b.rowElements;
        int64_t sample = b.batches ? sampleOf(b, index * b.rows + row) : row;
        std::string also =
            in.ignore == INT64_MIN ? "" : format(" (or %lld)", static_cast<long long>(in.ignore));
        fail("input '%s', sample %lld: value %lld is not in [%lld, %lld)%s, which node '%s' needs",
             in.name, static_cast<long long>(sample), static_cast<long long>(v),
             static_cast<long long>(in.lo), static_cast<long long>(in.hi), also.c_str(),
             in.node ? in.node : "");
      }
    }
  });
}

} // namespace zccrt
