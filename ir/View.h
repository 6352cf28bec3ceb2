// Strided views: where the elements of a view operator's result lie in a dense buffer.
#pragma once

#include "ir/Graph.h"

namespace zcc {

/// Element (i0, i1, ...) of `value` is element `offset + sum(i * stride)` of the dense buffer of
/// `base`, a value that owns memory. A broadcast axis has stride 0.
struct View {
  Value *base = nullptr;
  int64_t offset = 0;
  Dims dims, strides; ///< in elements
  /// Whether it is the whole buffer, row-major; the strides of axes of extent 1 mean nothing.
  bool isDense() const;
  /// Whether it is a run of the buffer, row-major, wherever that begins.
  bool isRun() const;
};

/// Of a shard: its elements, as one axis. Looks through reshape, transpose, slice and broadcast down to what owns memory. A
/// reshape of strides that cannot be expressed (torch.view would refuse) has no view: it must read a `copy`; nullopt then.
std::optional<View> viewOf(Value *v);
/// The attribute whose bit i says that result i of an attention, [batch, heads, length, width], lies as [batch, length, heads,
/// width], and has these dims.
inline constexpr const char *kRowsFirst = "rows_first";
inline bool hasRowsFirst(const Attrs &a, unsigned result) { return a.i(kRowsFirst) >> result & 1; }

/// Whether broadcasting adds the one to each row of the other: it is as long as its last axis, of the same elements.
bool isRowOf(const Value &row, const Value &of);
/// What a value is a reshape of.
Value *behindReshapes(Value *v);
/// The result of a view operator whose operand lies as `in`.
std::optional<View> viewThrough(const Node &n, const View &in);
/// The strides of `v` seen with other dims, as torch.view: nullopt if they do not exist.
std::optional<Dims> reshapeStrides(llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<int64_t> strides,
                                   llvm::ArrayRef<int64_t> newDims);

} // namespace zcc
