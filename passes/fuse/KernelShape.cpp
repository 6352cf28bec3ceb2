// Finds the common domain of a group: the refinement of its members' shapes, and which axes are reduced.
#include "passes/fuse/KernelShape.h"
#include "ir/Op.h"
#include "ir/View.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <algorithm>

using namespace zcc;
using llvm::ArrayRef;

bool zcc::isGenerated(const Node &n) { return n.op->isElementwise() || n.op->reduction || n.op == &ops::reshape; }

Dims zcc::iterationDims(const Node &n) { return (n.op->reduction ? n.operand(0) : n.result())->type.localDims(); }

/// The reduced axes of iterationDims(): a shard has one.
static std::vector<int64_t> axesOf(const Node &reduction) {
  return reduction.operand(0)->type.isPartitioned() ? std::vector<int64_t>{0} : reduction.attrs.ints("axes");
}

int64_t KernelShape::keptCount() const {
  int64_t n = 1;
  for (size_t i = 0; i < dims.size(); ++i)
    if (!reduced[i])
      n *= dims[i];
  return n;
}

/// Products of the trailing dims: where axes begin, counted in elements from the right.
static void addCuts(ArrayRef<int64_t> dims, std::vector<int64_t> &cuts) {
  int64_t p = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    p *= dims[i];
    if (std::find(cuts.begin(), cuts.end(), p) == cuts.end())
      cuts.push_back(p);
  }
}

/// The coarsest dims that every given shape is a merging of; nullopt if their axes cross.
static std::optional<Dims> refine(std::vector<int64_t> cuts) {
  std::sort(cuts.begin(), cuts.end());
  Dims dims;
  int64_t below = 1;
  for (int64_t c : cuts) {
    if (c == below)
      continue;
    if (c % below)
      return std::nullopt;
    dims.insert(dims.begin(), c / below);
    below = c;
  }
  return dims;
}

/// Adds the axes of what is computed once a row, so that its operands may have strides over each of them. Only where the
/// reduced axes come last: elsewhere such values are vectors over a single kept axis.
static void addRowCuts(const KernelShape &s, ArrayRef<Node *> nodes, std::vector<int64_t> &cuts) {
  size_t firstReduced = s.dims.size();
  while (firstReduced > 0 && s.reduced[firstReduced - 1])
    --firstReduced;
  for (size_t i = 0; i < firstReduced; ++i)
    if (s.reduced[i])
      return;
  int64_t row = s.count() / s.keptCount();
  for (Node *n : nodes) {
    std::vector<int64_t> own;
    if (!n->op->reduction && n->result()->type.localCount() == s.keptCount() && row > 1)
      addCuts(iterationDims(*n), own);
    for (int64_t c : own)
      if (!llvm::is_contained(cuts, c * row))
        cuts.push_back(c * row);
  }
}

/// Marks which axes of the domain a reduction over `axes` of `dims` reduces.
static std::vector<bool> reducedAxes(ArrayRef<int64_t> domain, ArrayRef<int64_t> dims, ArrayRef<int64_t> axes) {
  std::vector<bool> out(domain.size(), false);
  size_t a = domain.size();
  for (size_t i = dims.size(); i-- > 0;) {
    bool isReduced = llvm::is_contained(axes, int64_t(i));
    for (int64_t left = dims[i]; left > 1; left /= domain[a])
      out[--a] = isReduced;
  }
  return out;
}

static Dims keptDims(const KernelShape &s) {
  Dims d;
  for (size_t i = 0; i < s.dims.size(); ++i)
    if (!s.reduced[i])
      d.push_back(s.dims[i]);
  return d;
}

/// Strides over `dims` of a tensor with `from` dims and `strides`, broadcast as numpy does.
static std::optional<Dims> broadcastStrides(ArrayRef<int64_t> from, ArrayRef<int64_t> strides, ArrayRef<int64_t> dims) {
  if (from.size() > dims.size())
    return std::nullopt;
  Dims out(dims.size(), 0);
  size_t shift = dims.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] == dims[shift + i])
      out[shift + i] = from[i] == 1 ? 0 : strides[i];
    else if (from[i] != 1)
      return std::nullopt;
  }
  return out;
}

std::optional<Dims> zcc::domainStrides(const KernelShape &s, const Node &user, ArrayRef<int64_t> dims,
                                       ArrayRef<int64_t> strides) {
  Dims own = iterationDims(user);
  // A member reshape reads its operand in the operand's own dims.
  if (user.op == &ops::reshape)
    own = user.operand(0)->type.dims;
  auto over = broadcastStrides(dims, strides, own);
  if (!over)
    return std::nullopt;
  auto e = s.extents.find(&user);
  if (user.op->reduction || e == s.extents.end() || e->second == Extent::Full)
    return reshapeStrides(own, *over, s.dims);
  auto kept = reshapeStrides(own, *over, keptDims(s));
  if (!kept)
    return std::nullopt;
  Dims out;
  for (size_t i = 0, k = 0; i < s.dims.size(); ++i)
    out.push_back(s.reduced[i] ? 0 : (*kept)[k++]);
  return out;
}

Dims zcc::resultStrides(const KernelShape &s, const Node &member) {
  if (s.extents.lookup(&member) == Extent::Full)
    return denseStrides(s.dims);
  Dims kept = denseStrides(keptDims(s)), out;
  for (size_t i = 0, k = 0; i < s.dims.size(); ++i)
    out.push_back(s.reduced[i] ? 0 : kept[k++]);
  return out;
}

std::optional<KernelShape> zcc::kernelShape(ArrayRef<Node *> nodes) {
  KernelShape s;
  int64_t count = 1;
  for (Node *n : nodes)
    count = std::max(count, elementCount(iterationDims(*n)));
  std::vector<int64_t> cuts;
  for (Node *n : nodes)
    if (elementCount(iterationDims(*n)) == count)
      addCuts(iterationDims(*n), cuts);
  bool any = false;
  for (bool withRows : {false, true}) {
    if (withRows && !any)
      break;
    if (withRows)
      addRowCuts(s, nodes, cuts);
    auto dims = refine(cuts);
    if (!dims)
      return std::nullopt;
    s.dims = *dims;
    s.reduced.assign(s.dims.size(), false);
    any = false;
    for (Node *n : nodes) {
      if (!n->op->reduction)
        continue;
      if (elementCount(iterationDims(*n)) != count)
        return std::nullopt;
      auto r = reducedAxes(s.dims, iterationDims(*n), axesOf(*n));
      if (any && r != s.reduced)
        return std::nullopt;
      s.reduced = r;
      any = true;
    }
  }

  llvm::SmallPtrSet<const Node *, 32> members(nodes.begin(), nodes.end());
  int64_t kept = s.keptCount();
  bool fullAfterReduction = false;
  for (Node *n : nodes) {
    int64_t c = n->result()->type.localCount();
    int phase = 0;
    bool needsFull = false;
    for (Value *v : n->operands()) {
      if (!v || !v->def || !members.count(v->def))
        continue;
      phase = std::max(phase, s.phases.lookup(v->def));
      needsFull |= s.extents.lookup(v->def) == Extent::Full;
    }
    Extent e;
    if (n->op->reduction) {
      // A reduction of what is reduced already would need loops of its own.
      for (Value *v : n->operands())
        if (v->def && members.count(v->def) && s.extents.lookup(v->def) == Extent::Reduced)
          return std::nullopt;
      e = Extent::Reduced;
      ++phase;
    } else if (c == count && (!any || kept != count || needsFull)) {
      e = Extent::Full;
    } else if (any && c == kept && !needsFull) {
      e = Extent::Reduced;
    } else {
      return std::nullopt;
    }
    s.extents[n] = e;
    s.phases[n] = phase;
    if (e == Extent::Full && phase > 0)
      fullAfterReduction = true;
  }

  if (any) {
    if (kept == 1)
      s.form = KernelShape::Total;
    else
      s.form = s.reduced.back() ? KernelShape::Row : KernelShape::Column;
  }
  if (fullAfterReduction && s.form != KernelShape::Row && s.form != KernelShape::Total)
    return std::nullopt;
  if (fullAfterReduction && s.form == KernelShape::Total) {
    // One row: worth it only while one core keeps it in its cache.
    constexpr int64_t kOneRow = 1 << 14;
    if (count > kOneRow)
      return std::nullopt;
    s.form = KernelShape::Row;
  }

  // Members find each other's values at the same place of the domain, and operands have strides over it.
  for (Node *n : nodes)
    for (Value *v : n->operands()) {
      if (!v)
        continue;
      bool inside = v->def && members.count(v->def);
      auto view = inside ? std::nullopt : viewOf(v);
      Dims dims = v->type.localDims();
      auto st = domainStrides(s, *n, dims, view ? view->strides : denseStrides(dims));
      if (!st)
        return std::nullopt;
      if (!inside)
        continue;
      Dims want = resultStrides(s, *v->def);
      for (size_t i = 0; i < s.dims.size(); ++i)
        if ((*st)[i] != want[i])
          return std::nullopt;
    }
  return s;
}
