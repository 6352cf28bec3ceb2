// Which layouts libraries commonly read.
#include "passes/Target.h"
#include "ir/Op.h"

using namespace zcc;

/// Elements of axis `a` lie side by side, those of the other axis not among them.
static bool isContiguous(const View &v, size_t a, size_t other) {
  return (v.strides[a] == 1 || v.dims[a] == 1) && (v.strides[other] >= v.dims[a] || v.dims[other] == 1);
}

/// The query, key, value, result and gradient of attention: not the mask and the log-sums.
static bool hasHeads(const OpDef &op, unsigned i) { return op.library == Library::Attention && !op.operands[i].flags; }

bool zcc::isCommonLayout(const Node &n, unsigned i, const View &v) {
  if (n.is(ops::concat) || n.is(ops::pad)) // copies of boxes, row by row
    return !v.strides.empty() && v.strides.back() == 1 && llvm::all_of(v.strides, [](int64_t s) { return s >= 0; });
  bool isProduct = n.op->library == Library::Product && i >= firstFactor(n);
  if (!isProduct && !hasHeads(*n.op, i))
    return false;
  size_t d = v.dims.size();
  if (d < 2 || llvm::any_of(v.strides, [](int64_t s) { return s < 0; }))
    return false;
  return isContiguous(v, d - 1, d - 2) || (isProduct && isContiguous(v, d - 2, d - 1));
}

Machine zcc::machineOf(const Target *target) {
  if (target)
    return target->machine();
  Machine m(1e11, 1e10, 5e9);
  m[Rate::HostCopy] = 5e9;
  m[Rate::Disk] = m[Rate::DiskWrites] = 1e9;
  return m;
}
