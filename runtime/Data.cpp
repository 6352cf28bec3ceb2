// Opens data files, matches them with inputs, shuffles, and copies samples into the arena.
#include "runtime/Data.h"
#include "runtime/DataParts.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/Hash.h"
#include <algorithm>
#include <exception>
#include <numeric>
#include <omp.h>
#include <span>

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

static std::string expected(const zccrt_io &input) {
  return format("input '%s' is %s", input.name, typeText(input.t.elem, input.t.dims, input.t.ndim).c_str());
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

/// How data of that type and shape become the input's: what to do in numpy; "" if nobody knows.
static std::string remedy(const zccrt_tensor &t, const Array &a) {
  size_t rank = a.dims.size(), wanted = t.ndim;
  // The axis that one has and the other has not, where all behind the samples agree otherwise.
  auto extraAxis = [](const int64_t *longer, size_t n, const int64_t *shorter) {
    for (size_t at : {n - 1, size_t(1)}) {
      bool fits = n > 1;
      for (size_t i = 1; i + 1 < n; ++i)
        fits &= shorter[i] == longer[i < at ? i : i + 1];
      if (fits)
        return at;
    }
    return size_t(0);
  };
  if (isInteger(t.elem) && wanted && rank == wanted + 1)
    if (size_t axis = extraAxis(a.dims.data(), rank, t.dims); axis && a.dims[axis] > 1)
      return format("the input takes numbers of classes; of one-hot rows they are "
                    "array.argmax(axis=%zu)",
                    axis);
  if (isFloat(t.elem) && isInteger(a.elem) && rank && wanted == rank + 1)
    if (size_t axis = extraAxis(t.dims, wanted, a.dims.data()); axis == wanted - 1)
      return format("the input takes one number for each class; of numbers of classes they are "
                    "numpy.eye(%lld, dtype='%s')[array]",
                    static_cast<long long>(t.dims[axis]), elemName(t.elem));
  return "";
}

/// Whether every sample of the data is one of the input's; dims has at least one axis.
static bool fitsRows(const zccrt_tensor &t, const std::vector<int64_t> &dims) {
  size_t rank = t.ndim ? t.ndim : 1;
  return dims.size() == rank && std::equal(dims.begin() + 1, dims.end(), t.dims + 1, t.dims + rank);
}

/// The data must have the input's type, or one that stands for it, and its shape but for the number of samples.
static void expectMatch(const zccrt_io &input, const Array &a) {
  const zccrt_tensor &t = input.t;
  bool same = std::equal(a.dims.begin(), a.dims.end(), t.dims, t.dims + t.ndim);
  bool fits = same || fitsRows(t, a.dims), isElem = converts(a.elem, t.elem);
  if (fits && isElem)
    return;
  std::string what =
      format("%s, its data are %s", expected(input).c_str(), typeText(a.elem, a.dims.data(), a.dims.size()).c_str());
  if (fits)
    fail("%s; convert them with numpy: array.astype('%s')", what.c_str(), elemName(t.elem));
  std::string how = remedy(t, a);
  if (how.empty())
    how = format("the data may have any number of samples along the first axis, the other axes must agree%s",
                 isElem ? "" : ", and so must the type");
  fail("%s; %s", what.c_str(), how.c_str());
}

/// Refuses data that lack inputs, all of them named. `others`: what the archives hold besides.
static void expectAll(const std::vector<const zccrt_io *> &missing, const std::vector<std::string> &others) {
  if (missing.empty())
    return;
  std::string what, arrays, had;
  for (const zccrt_io *in : missing) {
    const char *between = in == missing.front() ? "" : in == missing.back() ? " and " : ", ";
    what += format("%s'%s', which is %s", between, in->name, typeText(in->t.elem, in->t.dims, in->t.ndim).c_str());
    arrays += format("%s'%s'", between, in->name);
  }
  for (const std::string &name : others)
    had += (had.empty() ? "; the archive also has '" : ", '") + name + "'";
  bool one = missing.size() == 1;
  fail("no data for input%s %s; give --data=FILE.npz with %s %s, or --data=%s=FILE.npy%s", one ? "" : "s", what.c_str(),
       one ? "an array" : "arrays", arrays.c_str(), one ? missing[0]->name : "NAME", had.c_str());
}

DataSet::DataSet(const zccrt_program &p, const DataFiles &files, const Options &o, Rest rest)
    : staging(kStagingBytes), rest(rest), seed(o.seed), shuffle(o.shuffle && rest == Rest::LeaveOut) {
  std::vector<std::string> others;
  for (InputParts &in : openParts(p, files, others))
    bindArray(*in.input, joinArrays(in.parts));
  if (!files.tokens.empty())
    bindTokens(files.tokens, o, p);
  std::vector<const zccrt_io *> missing;
  for (int i = 0; i < p.ninputs; ++i)
    if (std::none_of(bindings.begin(), bindings.end(), [&](auto &b) { return b.input == &p.inputs[i]; }))
      missing.push_back(&p.inputs[i]);
  expectAll(missing, others);
  settle(p);
}

void DataSet::bindArray(const zccrt_io &input, Array array) {
  const zccrt_tensor &t = input.t;
  expectMatch(input, array);
  if (isFloat(t.elem) && t.elem != array.elem && elemBytes(t.elem) <= elemBytes(array.elem))
    note(format("'%s' is rounded from %s to %s", input.name, elemName(array.elem), elemName(t.elem)));
  Binding b{&input, std::move(array), 1, 0, elementCount(t), 0};
  const std::vector<int64_t> &dims = b.array.dims;
  bool same = std::equal(dims.begin(), dims.end(), t.dims, t.dims + t.ndim);
  if (t.ndim && t.dims[0] > 0) {
    b.rows = t.dims[0];
    b.rowElements /= b.rows;
  }
  b.rowStride = b.rowElements;
  if (!same) {
    b.samples = dims[0];
    b.batches = b.samples / b.rows;
    if (!b.samples || (!b.batches && rest == Rest::LeaveOut))
      fail("%s, its data have only %lld sample%s; one batch needs %lld", expected(input).c_str(),
           static_cast<long long>(b.samples), b.samples == 1 ? "" : "s", static_cast<long long>(b.rows));
  }
  if (const std::string why = b.array.source->onlyInOrder(); !why.empty()) {
    const char *how =
        "an array that is stored stays in its file, however large: save it with numpy.savez, not numpy.savez_compressed";
    if (shuffle)
      fail("%s, and --shuffle reads it in no order; %s", why.c_str(), how);
    note(format("%s: it is inflated anew in each round through the data; %s", why.c_str(), how));
  }
  memory += b.array.inMemory;
  bindings.push_back(std::move(b));
}

/// Settles how many batches there are, and whether rows can be shuffled.
void DataSet::settle(const zccrt_program &p) {
  // Whichever order they come in, rows are the samples of which @eval's loss is a mean, if any input has them.
  const Binding *first = nullptr;
  for (const Binding &b : bindings)
    if (b.samples && (!first || (first->rows != p.batch && b.rows == p.batch)))
      first = &b;
  bool equalRows = true;
  for (const Binding &b : bindings) {
    for (uint64_t x : {uint64_t(b.array.elem), uint64_t(b.rows), uint64_t(b.batches), uint64_t(b.rowElements)})
      sizes = hashMix(sizes ^ x) + 1;
    if (!b.samples)
      continue;
    equalRows &= b.rows == first->rows;
    if (b.batches != first->batches)
      fail("input '%s' has data for %lld batches, input '%s' for %lld", first->input->name,
           static_cast<long long>(first->batches), b.input->name, static_cast<long long>(b.batches));
    if (b.rows == first->rows && b.samples != first->samples)
      fail("input '%s' has data for %lld samples, input '%s' for %lld", first->input->name,
           static_cast<long long>(first->samples), b.input->name, static_cast<long long>(b.samples));
  }
  if (first) {
    batchCount = first->batches;
    sampleCount = first->samples;
    rowsPerBatch = first->rows;
    shuffleRows = equalRows;
    settleRest(p, *first);
  } else if (!bindings.empty()) {
    rowsPerBatch = p.batch ? p.batch : bindings[0].rows;
  }
  if (shuffle && first && !equalRows)
    note("--shuffle permutes whole batches: the inputs differ in their first dimension");
}

/// What becomes of the samples behind the last whole batch. They are evaluated where every input that changes has the rows
/// of which @eval's loss is a mean.
void DataSet::settleRest(const zccrt_program &p, const Binding &first) {
  auto number = [](int64_t n) { return static_cast<long long>(n); };
  bool alike = rest == Rest::Pad && first.rows == p.batch;
  for (const Binding &b : bindings)
    alike &= !b.samples || (b.rows == first.rows && b.samples == first.samples);
  int64_t left = first.samples - first.batches * first.rows;
  isCut = left && !alike;
  if (alike)
    restRows = left;
  else if (!first.batches)
    fail("there are only %lld samples; one batch needs %lld", number(first.samples), number(first.rows));
  else if (left)
    note(format(shuffle && shuffleRows ? "%lld of %lld samples are left out of each epoch: %lld make a batch"
                                       : "the last %lld of %lld samples are left out: %lld make a batch",
                number(left), number(first.samples), number(first.rows)));
}

int64_t DataSet::rowsOf(int64_t index) const {
  if (index < std::max<int64_t>(batchCount, !restRows))
    return rowsPerBatch;
  return index == batchCount ? restRows : 0;
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
    return position % (restRows ? b.samples : total);
  if (shuffleRows) // of all samples: what fills no batch is left out of this epoch alone
    return Permutation(b.samples, seed, position / total)(position % total);
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

void DataSet::copyBatch(const Binding &b, int64_t index, char *to) {
  constexpr int64_t kLeastBytes = 32 << 10; // of a thread: below, starting it takes longer
  const int64_t rowBytes = b.rowElements * elemBytes(b.input->t.elem);
  const bool isPadded = restRows && index == batchCount, isWhole = !b.samples || (!shuffle && !isPadded);
  auto copy = [&](int64_t first, int64_t end) {
    if (isWhole)
      return copyRows(b, (b.samples ? index % b.batches * b.rows : 0) + first, end - first, to + first * rowBytes);
    for (int64_t r = first; r < end; ++r)
      copyRows(b, sampleOf(b, index * b.rows + r), 1, to + r * rowBytes);
  };
  const bool anyOrder = b.samples && b.array.elem == b.input->t.elem && b.array.source->onlyInOrder().empty();
  const int64_t team = omp_get_max_threads(); // all or none: a team of another size is made anew
  if (!anyOrder || team < 2 || b.rows * rowBytes < 2 * kLeastBytes)
    return copy(0, b.rows);
  std::exception_ptr failure; // the first one's
#pragma omp parallel for num_threads(int(team)) schedule(static)
  for (int64_t t = 0; t < team; ++t) {
    try {
      copy(b.rows * t / team, b.rows * (t + 1) / team);
    } catch (...) {
#pragma omp critical(batch)
      failure = failure ? failure : std::current_exception();
    }
  }
  if (failure)
    std::rethrow_exception(failure);
}

void DataSet::load(Arena &arena, int64_t index, int64_t slot) {
  for (const Binding &b : bindings) {
    const int64_t bytes = b.rows * b.rowElements * elemBytes(b.input->t.elem);
    arena.write(b.input->t.offset + slot * bytes, bytes, aside, [&](char *to) {
      copyBatch(b, index, to);
      checkRange(b, to, index);
      limitLabels(b, to, index);
    });
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
        int64_t sample = b.samples ? sampleOf(b, index * b.rows + row) : row;
        std::string also = in.ignore == INT64_MIN ? "" : format(" (or %lld)", static_cast<long long>(in.ignore));
        const int64_t at = b.array.offset + sample * b.rowStride * elemBytes(b.array.elem);
        fail("input '%s', sample %lld%s: value %lld is not in [%lld, %lld)%s, which node '%s' needs%s", in.name,
             static_cast<long long>(sample), b.array.source->fileOf(at).c_str(), static_cast<long long>(v),
             static_cast<long long>(in.lo), static_cast<long long>(in.hi), also.c_str(), in.node ? in.node : "",
             b.advice.c_str());
      }
    }
  });
}

void DataSet::limitLabels(const Binding &b, char *data, int64_t index) const {
  const zccrt_io &in = *b.input;
  if (!in.most || !isInteger(in.t.elem))
    return;
  withType(in.t.elem, [&](auto type) {
    using T = decltype(type);
    if constexpr (std::is_integral_v<T>) {
      const std::span values(reinterpret_cast<T *>(data), b.rows * b.rowElements);
      if (b.samples && restRows && index == batchCount)
        std::ranges::fill(values.subspan(restRows * b.rowElements), T(in.ignore));
      const int64_t found = std::ranges::count_if(values, [&](T v) { return int64_t(v) != in.ignore; });
      if (found > in.most)
        fail("input '%s', batch %lld: %lld of %zu labels are not %lld; the program computes at most %lld rows with a label (zcc "
             "--labelled-rows)",
             in.name, static_cast<long long>(index), static_cast<long long>(found), values.size(),
             static_cast<long long>(in.ignore), static_cast<long long>(in.most));
    }
  });
}

} // namespace zccrt
