// What the values of an initializer say about it.
#include "frontend/parameters/Decision.h"
#include <cmath>

using namespace zcc;
using llvm::StringRef;

constexpr int64_t kMostLookedInto = int64_t(256) << 20; ///< nothing larger is looked into

/// Its elements; nullopt if they are not in the file or too many.
std::optional<std::vector<double>> Decision::valuesOf(const Initializer &t) const {
  if (t.place == Initializer::Missing || t.bytes > kMostLookedInto || !t.elem)
    return std::nullopt;
  auto bytes = file_.read(t);
  if (!bytes) {
    llvm::consumeError(bytes.takeError());
    return std::nullopt;
  }
  return tensorFromBytes(t.type(), *bytes).f;
}

/// `count` of its elements from `begin` on; nullopt as in valuesOf.
std::optional<std::vector<double>> Decision::valuesOf(const Initializer &t, int64_t begin, int64_t count) const {
  Initializer part;
  part.name = t.name, part.elem = t.elem, part.dims = {count}, part.place = t.place, part.file = t.file;
  if (t.elem) {
    const int64_t each = elemBytes(*t.elem);
    part.bytes = count * each;
    part.offset = t.offset + begin * each;
    part.data = StringRef(t.data).substr(size_t(begin * each), size_t(part.bytes)).str(); // Inline
  }
  return valuesOf(part);
}

/// Whether `isFound` says so of some piece of its elements, one after the other; nullopt as in valuesOf.
std::optional<bool> Decision::finds(const Initializer &t, llvm::function_ref<bool(llvm::ArrayRef<double>)> isFound) const {
  constexpr int64_t kPiece = int64_t(1) << 16; // elements that caches hold
  if (t.bytes > kMostLookedInto)
    return std::nullopt;
  for (int64_t i = 0; i < t.count(); i += kPiece) {
    auto v = valuesOf(t, i, std::min(kPiece, t.count() - i));
    if (!v || isFound(*v))
      return v ? std::optional(true) : std::nullopt;
  }
  return false;
}

/// Whether it has values that only masks have.
bool Decision::isMask(const Initializer &t) const {
  constexpr double kMasking = -1e30; // finfo(float32).min and -inf; no weight is there
  auto isMasking = [](llvm::ArrayRef<double> v) { return llvm::any_of(v, [](double x) { return x <= kMasking; }); };
  return finds(t, isMasking).value_or(false);
}

/// How near each row's pairs of elements `distance` apart are to sine and cosine of an angle.
static Decision::Likeness likenessOf(llvm::ArrayRef<double> values, int64_t columns, int64_t distance) {
  constexpr double kRounding = 1e-3; // of 16-bit tables too
  constexpr double kMeanNear = 0.1, kWorstNear = 0.5;
  double sum = 0, worst = 0;
  int64_t zeroRows = 0, pairs = 0;
  for (; !values.empty(); values = values.drop_front(size_t(columns))) {
    auto row = values.take_front(size_t(columns));
    if (llvm::all_of(row, [](double x) { return x == 0; })) { // of padding, or of a class token
      ++zeroRows;
      continue;
    }
    for (int64_t i = 0; i < columns; ++i) {
      if (i % (2 * distance) >= distance)
        continue;
      double s = row[size_t(i)], c = row[size_t(i + distance)], off = std::abs(s * s + c * c - 1);
      sum += off;
      worst = std::max(worst, off);
      ++pairs;
    }
  }
  if (!pairs || zeroRows > 1 || !(worst <= kWorstNear) || !(sum <= kMeanNear * double(pairs)))
    return Decision::Likeness::None;
  return worst <= kRounding ? Decision::Likeness::Exact : Decision::Likeness::Near;
}

/// Whether each row along the last axis is sines and cosines of the same angles: in turn, one half
/// after the other, or so in each half (positions along two axes). These are the fixed positions of
/// "Attention Is All You Need", section 3.5.
Decision::Likeness Decision::sinusoidal(const Initializer &t) const {
  constexpr int64_t kFewestRows = 4, kFewestColumns = 4;
  int64_t columns = t.dims.size() < 2 ? 0 : t.dims.back();
  if (columns < kFewestColumns || columns % 2 || t.count() / columns < kFewestRows)
    return Likeness::None;
  auto best = [&](llvm::ArrayRef<double> values) {
    Likeness r = Likeness::None;
    for (int64_t distance : {int64_t(1), columns / 2, columns / 4})
      if (columns % (2 * distance) == 0)
        r = std::max(r, likenessOf(values, columns, distance));
    return r;
  };
  auto head = valuesOf(t, 0, kFewestRows * columns); // settles it for nearly all weights
  if (!head || best(*head) == Likeness::None)
    return Likeness::None;
  auto values = valuesOf(t);
  return values && !hasFewValues(t) ? best(*values) : Likeness::None;
}

/// Whether it is a list that rises or falls all the way: noise levels of diffusion, frequencies, distances. Weights may
/// start so, too (decays of state spaces).
bool Decision::isSchedule(const Initializer &t) const {
  constexpr int64_t kFewest = 8;
  if (t.dims.size() != 1 || t.count() < kFewest)
    return false;
  auto v = valuesOf(t);
  if (!v)
    return false;
  auto any = [&](auto compare) { return std::adjacent_find(v->begin(), v->end(), compare) != v->end(); };
  return !any(std::greater_equal<double>()) || !any(std::less_equal<double>());
}

/// Whether it holds two different numbers at most: ones, zeros, or a mask of 0 and -100.
bool Decision::hasFewValues(const Initializer &t) const {
  std::vector<double> seen;
  auto more = finds(t, [&](llvm::ArrayRef<double> v) {
    for (double x : v)
      if (!llvm::is_contained(seen, x)) {
        seen.push_back(x);
        if (seen.size() > 2)
          return true;
      }
    return false;
  });
  return more && !*more;
}

/// Whether it is one row of the batch over and over, which the exporter expanded.
bool Decision::repeatsRows(const Initializer &t) const {
  if (t.dims.size() < 2 || t.dims[0] < 2)
    return false;
  auto bytes = file_.read(t);
  if (!bytes) {
    llvm::consumeError(bytes.takeError());
    return false;
  }
  size_t row = bytes->size() / size_t(t.dims[0]);
  return StringRef(*bytes).drop_front(row) == StringRef(*bytes).drop_back(row); // each row equals the next
}
