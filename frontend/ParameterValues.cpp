// What the values of an initializer say about it.
#include "frontend/Decision.h"
#include <cmath>

using namespace zcc;
using llvm::StringRef;

constexpr int64_t kMostBytes = int64_t(256) << 20; ///< nothing larger is looked into

/// Its elements; nullopt if they are not in the file or too many.
std::optional<std::vector<double>> Decision::valuesOf(const Initializer &t) const {
  if (t.place == Initializer::Missing || t.bytes > kMostBytes || !t.elem)
    return std::nullopt;
  auto bytes = file_.read(t);
  if (!bytes) {
    llvm::consumeError(bytes.takeError());
    return std::nullopt;
  }
  return tensorFromBytes(t.type(), *bytes).f;
}

/// Whether it has values that only masks have.
bool Decision::isMask(const Initializer &t) const {
  auto v = valuesOf(t);
  constexpr double kMasking = -1e30; // finfo(float32).min and -inf; no weight is there
  return v && llvm::any_of(*v, [](double x) { return x <= kMasking; });
}

/// Whether each row along the last axis is sines and cosines of the same angles, in turn or one half after the other:
/// the fixed positions of "Attention Is All You Need", section 3.5, which are no weights.
bool Decision::isSinusoidal(const Initializer &t) const {
  constexpr int64_t kFewestRows = 4, kFewestColumns = 4;
  int64_t columns = t.dims.size() < 2 ? 0 : t.dims.back();
  if (columns < kFewestColumns || columns % 2 || t.count() / columns < kFewestRows)
    return false;
  auto v = valuesOf(t);
  bool alternates = v.has_value(), halves = v.has_value();
  int64_t zeroRows = 0; // of padding
  for (int64_t at = 0; at < t.count() && (alternates || halves); at += columns) {
    llvm::ArrayRef<double> row(&(*v)[size_t(at)], size_t(columns));
    if (llvm::all_of(row, [](double x) { return x == 0; })) {
      ++zeroRows;
      continue;
    }
    for (int64_t i = 0; i < columns / 2; ++i) {
      constexpr double kRounding = 1e-3; // of 16-bit tables too
      auto onCircle = [](double s, double c) { return std::abs(s * s + c * c - 1) <= kRounding; };
      alternates &= onCircle(row[2 * i], row[2 * i + 1]);
      halves &= onCircle(row[i], row[i + columns / 2]);
    }
  }
  return (alternates || halves) && zeroRows <= 1;
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
  auto v = valuesOf(t);
  if (!v)
    return false;
  for (double x : *v)
    if (!llvm::is_contained(seen, x)) {
      seen.push_back(x);
      if (seen.size() > 2)
        return false;
    }
  return true;
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
  return StringRef(*bytes).drop_front(row) ==
         StringRef(*bytes).drop_back(row); // each row equals the next
}
