// Short rows in blocks. Compilers take what is left behind the last whole block of a row a few elements at a time, and where
// truth values, which are bytes, are among what a short loop reads, all of it. Here the row's last elements are a whole block,
// too, of which the first ones are known from the block before: they join no sum and are not stored.
#include "codegen/LoopEmitter.h"
#include "codegen/ScalarCode.h"
#include "ir/Op.h"
#include "llvm/Support/MathExtras.h"

using namespace zcc;

/// From so many lanes on compilers take whole vectors of bytes.
constexpr int64_t kManyLanes = 64;

/// Whether a pass goes over its rows in blocks.
bool LoopEmitter::takesBlocks(const LoopPass &w) const {
  const size_t inner = p.innermost();
  if (p.form != LoopPlan::Rows || p.lanes == 1 || p.isTurning || isOpen(inner) || !w.columns.empty() || !w.angles.empty() ||
      !w.draws.empty())
    return false;
  auto isLine = [&](unsigned a) { return p.accesses[a].strides[inner] == 1; };
  auto isByte = [&](unsigned a) { return p.accesses[a].isTruth(); };
  std::vector<unsigned> all = w.moving;
  for (unsigned r : w.results)
    all.push_back(p.resultAccess[r]);
  return llvm::all_of(all, isLine) && llvm::any_of(all, isByte) &&
         (p.lanes < kManyLanes || (p.dims[inner] % p.lanes && !w.sums.empty()));
}

void LoopEmitter::rowBlocks(const LoopPass &w) {
  const int64_t n = p.dims[p.innermost()], rest = n % p.lanes;
  // What is left comes first, since results may lie where operands do; its sums are added last, as everywhere.
  const int64_t width = llvm::alignTo(rest, std::min(p.lanes, kStrip)), known = width - rest;
  const auto sums = accumulator;
  if (rest) {
    for (const Node *x : w.sums)
      out.line("alignas(64) " + computeType(x->result()->type.elem) + " " + (accumulator[x] = fresh("p")) + "[" + num(width) +
               "];");
    isAlone = true;
    block(w, num(n - width), width, known);
    isAlone = false;
  }
  const auto ofRest = std::exchange(accumulator, sums);
  if (rest < n) {
    const std::string j = fresh("j");
    out.open("for (int64_t " + j + " = 0; " + j + " < " + num(n - rest) + "; " + j + " += " + num(p.lanes) + ")");
    block(w, j, p.lanes, 0);
    out.close();
  }
  if (rest)
    for (const Node *x : w.sums)
      join(*x, num(rest), ofRest.lookup(x) + "[" + num(known) + " + l]");
}

/// `width` elements of the innermost axis from `first` on, of which the first `known` are not stored. What is narrower than a
/// float is widened before the loop and narrowed behind it.
void LoopEmitter::block(const LoopPass &w, const std::string &first, int64_t width, int64_t known) {
  const std::string i = axisName(p.innermost()), l = fresh("l"), at = "const int64_t " + i + " = " + first;
  auto wideOf = [&](unsigned a) { return width % kStrip == 0 && width < kManyLanes ? wideTypeOf(a) : ""; };
  std::map<unsigned, std::string> apart;
  auto add = [&](unsigned a, const std::string &type) {
    out.line("alignas(64) " + type + " " + (apart[a] = fresh("w")) + "[" + num(width) + "];");
  };
  auto memory = [&](unsigned a, const std::string &from) { return "&" + LoopValues::element(p.accesses[a]) + " + " + from; };
  out.open("");
  out.line(at + ";");
  for (unsigned a : w.moving)
    if (const std::string wide = wideOf(a); !wide.empty()) {
      add(a, wide);
      out.line("for (int l = 0; l < " + num(width) + "; l += kZStrip) z_widen(" + apart[a] + " + l, " + memory(a, "l") + ");");
    }
  for (unsigned r : w.results) {
    const unsigned a = p.resultAccess[r];
    if (const std::string wide = wideOf(a); !wide.empty())
      add(a, wide);
    else if (known)
      add(a, storageType(p.accesses[a].value->type.elem));
  }
  arrays = apart;
  place = l;
  out.text += kNoAlias;
  out.open("for (int " + l + " = 0; " + l + " < " + num(width) + "; ++" + l + ")");
  out.line(at + " + " + l + ";");
  bodyOf(w, l);
  out.close();
  arrays.clear();
  for (unsigned r : w.results) {
    const unsigned a = p.resultAccess[r];
    if (apart.count(a))
      out.line("z_give<" + num(known) + ", " + num(width) + ">(" + memory(a, num(known)) + ", " + apart[a] + ");");
  }
  out.close();
}
