// Matrix products and determinants: MatMul, Gemm, Einsum, Det.
#include "frontend/Importer.h"
#include "llvm/ADT/StringExtras.h"
#include <map>

using namespace zcc;
using llvm::ArrayRef;
using llvm::StringRef;

namespace {
namespace linear_ops {

void expectFloats(const Val &v) {
  if (!v.isFloat())
    unsupported("products of element type " + elemName(v.elem()));
}

/// numpy.matmul: vectors become matrices and lose the axis again.
void matMul(NodeImport &n) {
  Emitter &e = n.e;
  Val a = n.in(0), b = n.in(1);
  expectFloats(a);
  if (a.rank() == 0 || b.rank() == 0)
    invalid("operands need an axis at least: " + a.type.str() + " and " + b.type.str());
  bool row = a.rank() == 1, column = b.rank() == 1;
  Val y = e.matmul(row ? e.unsqueeze(a, {0}) : a, column ? e.unsqueeze(b, {1}) : b);
  Dims gone;
  if (row)
    gone.push_back(y.rank() - 2);
  if (column)
    gone.push_back(y.rank() - 1);
  n.out(e.squeeze(y, gone));
}

void gemm(NodeImport &n) {
  Emitter &e = n.e;
  Val a = n.in(0), b = n.in(1);
  expectFloats(a);
  if (a.rank() != 2 || b.rank() != 2)
    invalid("matrices are needed, got " + a.type.str() + " and " + b.type.str());
  if (n.i("transA"))
    a = e.transpose(a, {1, 0});
  if (n.i("transB"))
    b = e.transpose(b, {1, 0});
  double alpha = n.f("alpha", 1), beta = n.f("beta", 1);
  Val y = e.mul(e.matmul(a, b), alpha);
  n.out(n.has(2) && beta != 0 ? e.add(y, e.mul(n.in(2), beta)) : y);
}

// ---- Einsum

/// An operand with one letter per axis.
struct Term {
  Val v;
  std::string letters;
  int64_t axis(char c) const { return int64_t(letters.find(c)); }
  bool has(char c) const { return letters.find(c) != std::string::npos; }
};

/// Sums over the axes whose letters nobody needs any more.
Term sumOver(Emitter &e, const Term &t, llvm::function_ref<bool(char)> isNeeded) {
  Term r;
  Dims axes;
  for (size_t i = 0; i < t.letters.size(); ++i)
    if (isNeeded(t.letters[i]))
      r.letters += t.letters[i];
    else
      axes.push_back(int64_t(i));
  r.v = e.sum(t.v, axes, Emitter::Keep::Nothing);
  return r;
}

/// The axes in the order of `letters`, all of which it has.
Val arranged(Emitter &e, const Term &t, StringRef letters) {
  Dims perm;
  for (char c : letters)
    perm.push_back(t.axis(c));
  return e.transpose(t.v, perm);
}

/// A repeated letter keeps the diagonal: multiplied by an identity matrix and summed over one of
/// the two axes.
Term diagonal(Emitter &e, Term t) {
  for (size_t i = 0; i < t.letters.size(); ++i) {
    size_t j = t.letters.find(t.letters[i], i + 1);
    if (j == std::string::npos)
      continue;
    Val same = e(ops::eq, e.iota(t.v.dims(), int64_t(i)), e.iota(t.v.dims(), int64_t(j)));
    t.v = e.sum(e.select(same, t.v, e.like(0, t.v)), {int64_t(j)}, Emitter::Keep::Nothing);
    t.letters.erase(j, 1);
    --i;
  }
  return t;
}

/// Two operands: shared letters that are needed are batch axes, the other shared ones are
/// contracted. An extent of 1 stands for any: its partner is summed first.
Term contract(Emitter &e, Term a, Term b, llvm::function_ref<bool(char)> isNeeded) {
  std::string batch, inner, left, right;
  for (char c : a.letters)
    (b.has(c) ? (isNeeded(c) ? batch : inner) : left) += c;
  for (char c : inner)
    for (auto [one, other] : {std::pair(&a, &b), std::pair(&b, &a)})
      if (one->v.dim(one->axis(c)) == 1 && other->v.dim(other->axis(c)) != 1)
        other->v = e.sum(other->v, {other->axis(c)});
  for (char c : b.letters)
    if (!a.has(c))
      right += c;
  auto extent = [](const Term &t, StringRef letters) {
    int64_t d = 1;
    for (char c : letters)
      d *= t.v.dim(t.axis(c));
    return d;
  };
  Dims dims;
  Dims da, db;
  for (char c : batch) {
    int64_t x = a.v.dim(a.axis(c)), y = b.v.dim(b.axis(c));
    dims.push_back(std::max(x, y));
    da.push_back(x);
    db.push_back(y);
  }
  da.append({extent(a, left), extent(a, inner)});
  db.append({extent(b, inner), extent(b, right)});
  Val y = e.matmul(e.reshape(arranged(e, a, batch + left + inner), da), e.reshape(arranged(e, b, batch + inner + right), db));
  for (char c : left)
    dims.push_back(a.v.dim(a.axis(c)));
  for (char c : right)
    dims.push_back(b.v.dim(b.axis(c)));
  return {e.reshape(y, dims), batch + left + right};
}

/// "..." becomes letters that no equation uses: '0' is the last axis it stands for.
std::string withoutDots(StringRef term, int64_t rank) {
  size_t at = term.find("...");
  if (at == StringRef::npos)
    return term.str();
  int64_t more = rank - int64_t(term.size() - 3);
  if (more < 0)
    invalid("an operand has fewer axes than its letters, '" + term + "'");
  std::string dots;
  for (int64_t i = more - 1; i >= 0; --i)
    dots += char('0' + i);
  return (term.take_front(at) + dots + term.drop_front(at + 3)).str();
}

void einsum(NodeImport &n) {
  Emitter &e = n.e;
  std::string equation = n.s("equation");
  llvm::erase(equation, ' ');
  auto [left, right] = StringRef(equation).split("->");
  llvm::SmallVector<StringRef, 4> names;
  left.split(names, ',');
  if (names.size() != n.inputs())
    invalid("the equation '" + equation + "' is not for " + llvm::Twine(n.inputs()) + " operands");
  if (n.inputs())
    expectFloats(n.in(0));
  std::vector<Term> terms;
  std::map<char, int> count;
  size_t dots = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    Term t{n.in(unsigned(i)), withoutDots(names[i], n.in(unsigned(i)).rank())};
    if (int64_t(t.letters.size()) != t.v.rank())
      invalid("operand " + llvm::Twine(i) + " is " + t.v.type.str() + ", the equation says '" + names[i] + "'");
    if (names[i].contains("..."))
      dots = std::max(dots, t.letters.size() - (names[i].size() - 3));
    for (char c : t.letters)
      ++count[c];
    terms.push_back(diagonal(e, t));
  }
  std::string result;
  if (StringRef(equation).contains("->")) {
    result = withoutDots(right, int64_t(dots + (right.contains("...") ? right.size() - 3 : 0)));
  } else { // what appears once, in alphabetical order, behind the dots
    for (int64_t i = int64_t(dots) - 1; i >= 0; --i)
      result += char('0' + i);
    for (auto [c, times] : count)
      if (times == 1 && !llvm::isDigit(c))
        result += c;
  }
  Term r = terms[0];
  for (size_t i = 1; i <= terms.size(); ++i) {
    auto isNeeded = [&](char c) {
      bool later = StringRef(result).contains(c);
      for (size_t j = i + 1; j < terms.size(); ++j)
        later |= terms[j].has(c);
      return later;
    };
    if (i == terms.size()) {
      r = sumOver(e, r, [&](char c) { return StringRef(result).contains(c); });
      break;
    }
    auto neededBy = [&](const Term &other) { return [&, isNeeded](char c) { return other.has(c) || isNeeded(c); }; };
    Term a = sumOver(e, r, neededBy(terms[i])), b = sumOver(e, terms[i], neededBy(r));
    r = contract(e, a, b, isNeeded);
  }
  if (r.letters.size() != result.size())
    invalid("the equation '" + equation + "' has a result that no operand has");
  n.out(arranged(e, r, result));
}

/// The determinant of small matrices, by cofactors along the first row.
Val cofactors(Emitter &e, const Val &x, ArrayRef<int64_t> rows, ArrayRef<int64_t> columns) {
  auto element = [&](int64_t r, int64_t c) {
    Val v = e.slice(e.slice(x, x.rank() - 2, r, r + 1), x.rank() - 1, c, c + 1);
    return e.reshape(v, x.dims().drop_back(2));
  };
  if (rows.size() == 1)
    return element(rows[0], columns[0]);
  Val sum;
  for (size_t k = 0; k < columns.size(); ++k) {
    Dims others(columns.begin(), columns.end());
    others.erase(others.begin() + k);
    Val term = e.mul(element(rows[0], columns[k]), cofactors(e, x, rows.drop_front(), others));
    sum = !sum ? term : k % 2 ? e.sub(sum, term) : e.add(sum, term);
  }
  return sum;
}

/// Eliminates the largest element of each matrix: what is left of [..., n, n] without its row and column, and (in
/// `factor`) the element with the sign of its place.
Val eliminateLargest(Emitter &e, const Val &x, Val &factor) {
  int64_t n = x.dim(-1), row = x.rank() - 2, column = x.rank() - 1;
  Dims flat(x.dims().drop_back(2)), one = flat;
  flat.push_back(n * n);
  one.append({1, 1});
  Val at = e.reshape(e.emit(ops::argmax, {e.reshape(e(ops::abs, x), flat)}, {{"axis", row}}), one);
  Val r = e.div(at, e.like(double(n), at)), c = e(ops::mod, at, e.like(double(n), at));
  auto indices = [&](int64_t extent, int64_t axis) {
    Dims d(x.rank(), 1);
    d[axis] = extent;
    return e.iota(d, axis);
  };
  auto along = [&](const Val &v, const Val &index, int64_t axis) {
    return e.sum(e.select(e(ops::eq, indices(n, axis), index), v, e.like(0, v)), {axis});
  };
  Val rowOf = along(x, r, row), columnOf = along(x, c, column), pivot = along(rowOf, c, column);
  // Of a matrix of zeros nothing is taken away.
  Val safe = e.select(e(ops::eq, pivot, e.like(0, pivot)), e.like(1, pivot), pivot);
  Val rest = e.sub(x, e.mul(columnOf, e.div(rowOf, safe)));
  auto without = [&](const Val &v, const Val &index, int64_t axis) {
    Val behind = e(ops::ge, indices(n - 1, axis), index);
    return e.select(behind, e.slice(v, axis, 1, n), e.slice(v, axis, 0, n - 1));
  };
  Val odd = e.cast(e(ops::mod, e.add(r, c), e.like(2, r)), Elem::Bool);
  factor = e.reshape(e.select(odd, e(ops::neg, pivot), pivot), x.dims().drop_back(2));
  return without(without(rest, r, row), c, column);
}

/// By elimination, in double precision, down to 4 x 4 and from there without a division: so the
/// gradient of a singular matrix is its cofactors, too, while its rank is n - 4 at least.
void det(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  constexpr int64_t kCofactors = 4; // they grow as n!
  constexpr int64_t kLargest = 64;  // each elimination is some 30 nodes
  if (x.rank() < 2 || x.dim(-1) != x.dim(-2))
    invalid("square matrices are needed, got " + x.type.str());
  if (x.dim(-1) > kLargest)
    unsupported("matrices larger than 64 x 64");
  if (x.dim(-1) == 0)
    return n.out(e.expand(e.like(1, x), x.dims().drop_back(2)));
  Val m = x.dim(-1) > kCofactors ? e.cast(x, Elem::F64) : x, product;
  while (m.dim(-1) > kCofactors) {
    Val factor;
    m = eliminateLargest(e, m, factor);
    product = product ? e.mul(product, factor) : factor;
  }
  Dims all = allAxes(0, m.dim(-1));
  Val rest = cofactors(e, m, all, all);
  n.out(e.cast(product ? e.mul(product, rest) : rest, x.elem()));
}

const OnnxOp kOps[] = {{"MatMul", matMul}, {"Gemm", gemm}, {"Einsum", einsum}, {"Det", det}};

} // namespace linear_ops
} // namespace

ArrayRef<OnnxOp> zcc::linearOps() { return linear_ops::kOps; }
