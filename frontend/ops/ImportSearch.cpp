// Finding equal things: Unique of what is known while compiling, and counting n-grams of integers.
#include "frontend/Importer.h"
#include "onnx.pb.h"
#include <cmath>
#include <map>

using namespace zcc;
using llvm::ArrayRef;

namespace {
namespace search_ops {

/// The distinct slices of a constant along an axis (its distinct elements without one), with where each is first, which
/// one every slice is, and how often it comes.
void unique(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  auto values = Emitter::asFloats(x, "operands");
  bool sorted = n.i("sorted", 1) != 0;
  bool flat = !n.hasAttr("axis");
  int64_t axis = flat ? 0 : normalAxis(n.i("axis"), x.rank());
  Val shaped = flat ? e.reshape(x, {x.count()}) : x;
  int64_t count = shaped.dim(axis), inner = elementCount(shaped.dims().drop_front(axis + 1)),
          outer = elementCount(shaped.dims().take_front(axis));
  std::map<std::vector<double>, int64_t> seen; // ordered as the result is
  std::vector<int64_t> first, each(count), times;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<double> key;
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t k = 0; k < inner; ++k)
        key.push_back(values[(o * count + i) * inner + k]);
    auto [at, isNew] = seen.insert({key, int64_t(first.size())});
    if (isNew) {
      first.push_back(i);
      times.push_back(0);
    }
    each[i] = at->second;
    ++times[at->second];
  }
  if (sorted) {
    std::vector<int64_t> place(first.size()), sortedFirst, sortedTimes;
    for (auto &[key, old] : seen) {
      place[old] = int64_t(sortedFirst.size());
      sortedFirst.push_back(first[old]);
      sortedTimes.push_back(times[old]);
    }
    for (int64_t &i : each)
      i = place[i];
    first = sortedFirst;
    times = sortedTimes;
  }
  n.out(0, e.gather(shaped, Emitter::integers(first), axis));
  n.out(1, Emitter::integers(first));
  n.out(2, Emitter::integers(each));
  n.out(3, Emitter::integers(times));
}

/// One n-gram of the pool.
struct Gram {
  std::vector<int64_t> items;
  int64_t column;
};

/// The pool's n-grams of the lengths asked for. `starts[i]` is where those of length i + 1 begin.
std::vector<Gram> gramsOf(ArrayRef<int64_t> pool, ArrayRef<int64_t> starts, ArrayRef<int64_t> columns, int64_t least,
                          int64_t most) {
  std::vector<Gram> grams;
  size_t index = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    int64_t length = int64_t(i) + 1, end = i + 1 < starts.size() ? starts[i + 1] : int64_t(pool.size());
    if (starts[i] < 0 || end > int64_t(pool.size()))
      invalid("attribute 'ngram_counts' reaches beyond the pool");
    for (int64_t at = starts[i]; at + length <= end; at += length, ++index) {
      if (index >= columns.size())
        invalid("attribute 'ngram_indexes' is too short");
      if (length >= least && length <= most)
        grams.push_back({{pool.begin() + at, pool.begin() + at + length}, columns[index]});
    }
  }
  return grams;
}

/// How often each n-gram of the pool is in each row, its items up to max_skip_count apart; then weighed.
void tfIdfVectorizer(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  int64_t least = n.i("min_gram_length"), most = n.i("max_gram_length"), skips = n.i("max_skip_count");
  std::string mode = n.s("mode");
  auto starts = n.ints("ngram_counts"), columns = n.ints("ngram_indexes"), pool = n.ints("pool_int64s");
  auto weights = n.floats("weights");
  if (!n.strings("pool_strings").empty())
    unsupported("attribute 'pool_strings'");
  if (x.rank() < 1 || x.rank() > 2 || columns.empty())
    invalid("n-grams of " + x.type.str());
  if (llvm::any_of(columns, [](int64_t c) { return c < 0; }))
    invalid("attribute 'ngram_indexes' is below zero");
  if (llvm::any_of(columns, [](int64_t c) { return c >= 1 << 20; }))
    unsupported("attribute 'ngram_indexes' of 2^20 or more");
  int64_t width = *llvm::max_element(columns) + 1, rows = x.rank() == 2 ? x.dim(0) : 1, length = x.dim(-1);
  Val items = e.reshape(e.cast(x, Elem::I64), {rows, length});
  Vals counts(width);
  for (const Gram &g : gramsOf(pool, starts, columns, least, most)) {
    int64_t size = int64_t(g.items.size());
    // With one item there is nothing to skip.
    for (int64_t step = 1; step <= (size == 1 ? 1 : skips + 1); ++step) {
      int64_t places = length - (size - 1) * step;
      if (places < 1)
        break;
      Val hit;
      for (int64_t i = 0; i < size; ++i) {
        Val here = e.slice(items, 1, i * step, i * step + places);
        Val same = e(ops::eq, here, e.like(double(g.items[i]), here));
        hit = hit ? e(ops::and_, hit, same) : same;
      }
      Val found = e.sum(e.cast(hit, Elem::F32), {1});
      Val &sum = counts[g.column];
      sum = sum ? e.add(sum, found) : found;
    }
  }
  for (Val &c : counts)
    if (!c)
      c = e.expand(Emitter::number(0, Elem::F32), {rows, 1});
  Val y = e.concat(counts, 1);
  if (mode == "IDF")
    y = e.cast(e(ops::gt, y, e.like(0, y)), Elem::F32);
  else if (mode != "TF" && mode != "TFIDF")
    unsupported("mode '" + mode + "'");
  if (mode != "TF" && !weights.empty()) {
    std::vector<double> byColumn(width, 1);
    for (size_t i = 0; i < std::min(weights.size(), columns.size()); ++i)
      byColumn[columns[i]] = weights[i];
    y = e.mul(y, Emitter::floats(byColumn, Type(Elem::F32, {1, width})));
  }
  n.out(x.rank() == 2 ? y : e.reshape(y, {width}));
}

const OnnxOp kOps[] = {{"Unique", unique}, {"TfIdfVectorizer", tfIdfVectorizer}};

} // namespace search_ops
} // namespace

ArrayRef<OnnxOp> zcc::searchOps() { return search_ops::kOps; }
