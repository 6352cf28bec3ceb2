// Types of the IR: an element, static dimensions, and where and how the tensor lies over the ranks. Text: `f32[8x1024]/4@host`:
// one rank's quarter of the flattened tensor, in host memory; `f32[8]+4`: one rank's addend of a sum over four ranks that is
// still to be taken; `bf16[64x32]~AB16b64a2b`: packed for a library (ir/Layout.h); `future<T>`: started.
#pragma once

#include "ir/Layout.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>
#include <string>

namespace llvm {
class raw_ostream;
}

namespace zcc {

enum class Elem : uint8_t { F32, F64, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, Bool };

/// Bytes one element takes; a bool takes one.
int64_t elemBytes(Elem e);
/// "f32", "bool": the spelling in .zir.
llvm::StringRef elemName(Elem e);
std::optional<Elem> elemFromName(llvm::StringRef name);
bool isFloat(Elem e);
/// bf16 and f16.
bool isFloat16(Elem e);
/// Signed and unsigned integers, without bool.
bool isInteger(Elem e);

enum class Space : uint8_t { Device, Host, Nvme };
llvm::StringRef spaceName(Space s);
std::optional<Space> spaceFromName(llvm::StringRef name);
constexpr int kSpaces = 3;

using Dims = llvm::SmallVector<int64_t, 5>;

/// Product of the dimensions; 1 for a scalar.
int64_t elementCount(llvm::ArrayRef<int64_t> dims);
/// Row-major strides, in elements.
Dims denseStrides(llvm::ArrayRef<int64_t> dims);

struct Type {
  Elem elem = Elem::F32;
  Dims dims;       ///< of the whole tensor, also when this rank holds a shard
  int shards = 1;  ///< N of `/N`
  int addends = 1; ///< N of `+N`
  Layout layout;   ///< of what is packed, which is whole
  Space space = Space::Device;
  bool isFuture = false;

  Type() = default;
  Type(Elem e, llvm::ArrayRef<int64_t> d) : elem(e), dims(d.begin(), d.end()) {}

  bool operator==(const Type &o) const;
  bool operator!=(const Type &o) const { return !(*this == o); }

  unsigned ndim() const { return dims.size(); }
  bool isScalar() const { return dims.empty(); }
  bool isPartitioned() const { return shards > 1; }
  bool isAddend() const { return addends > 1; }
  bool isPacked() const { return bool(layout); }
  /// Elements of the whole tensor.
  int64_t count() const { return elementCount(dims); }
  /// Elements this rank holds: ceil(count / shards).
  int64_t localCount() const { return (count() + shards - 1) / shards; }
  /// What this rank holds, as loops see it: `dims`, or one axis of localCount() if it is a shard.
  Dims localDims() const { return isPartitioned() ? Dims{localCount()} : dims; }
  /// Bytes this rank holds.
  int64_t localBytes() const { return (isPacked() ? layout.count(dims) : localCount()) * elemBytes(elem); }

  Type withElem(Elem e) const {
    Type t = *this;
    t.elem = e;
    return t;
  }
  Type withDims(llvm::ArrayRef<int64_t> d) const {
    Type t = *this;
    t.dims.assign(d.begin(), d.end());
    return t;
  }
  Type withLayout(Layout l) const {
    Type t = *this;
    t.layout = l;
    return t;
  }
  Type withSpace(Space s) const {
    Type t = *this;
    t.space = s;
    return t;
  }
  std::string str() const;
};

llvm::raw_ostream &operator<<(llvm::raw_ostream &os, const Type &t);

/// Reads one type from the front of `text` and drops it from there; nullopt leaves `text` where the
/// error is.
std::optional<Type> parseType(llvm::StringRef &text);

/// numpy's broadcast of two shapes (aligned at the right); nullopt if they do not fit.
std::optional<Dims> broadcastDims(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b);

} // namespace zcc
