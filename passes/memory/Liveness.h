// Which values need memory, and from which node to which. Nodes are numbered in the order of their function, from 0.
#pragma once

#include "ir/Op.h"
#include "ir/View.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

namespace zcc {

/// Looks through views, `wait` and `addend` down to the value whose memory is read: a result of a
/// node that writes memory of its own (for a collective, the result of its `start`), an argument,
/// or a global. nullopt if the elements do not lie at constant strides.
std::optional<View> storageOf(Value *v);
/// Its base alone, or nullptr: in no time where a value is no view, as most are.
Value *baseOf(Value *v);
/// Whether the results of a node have memory of their own.
bool ownsMemory(const Node &n);
/// Pairs of result and operand of a node: the result may be written over the operand, element by
/// element, when nobody reads the operand afterwards.
std::vector<std::pair<unsigned, unsigned>> inplacePairs(const Node &n);

/// First and last node that needs a value's memory, both included. Arguments live from -1; results
/// of the function live to the number of its nodes.
struct Lifetime {
  int first = 0, last = 0;
  bool overlaps(const Lifetime &o) const { return first <= o.last && o.first <= last; }
};

/// The least alignment, in bytes: one cache line, one AVX-512 register.
constexpr int64_t kLine = 64;
/// What disks move whole, in bytes: what O_DIRECT asks for at most.
constexpr int64_t kDiskBlock = 4096;
/// Of a type, in whole units of so many bytes, one at least.
int64_t wholeBytes(const Type &t, int64_t unit);

/// What values take in their space's arena: whole cache lines; whole disk blocks in @nvme, and in memory where a disk reads or
/// writes them (O_DIRECT).
class Extents {
public:
  explicit Extents(const Module &m);
  int64_t alignment(const Value &v) const;
  int64_t bytes(const Value &v) const; ///< a multiple of alignment(), not 0

private:
  llvm::DenseSet<const Value *> transferred_; ///< to or from a disk
};

/// Bytes of a space's arena, and of the part at its head that lives over the functions: notes of plan-memory.
int64_t arenaBytes(const Module &m, Space s);
int64_t persistentBytes(const Module &m, Space s);
std::string arenaBytesAttr(Space s);
/// The module attribute with the bytes at the end of the device's arena that libraries use.
constexpr char kDeviceLibraryBytes[] = "device_library_bytes";
std::string persistentBytesAttr(Space s);

struct Liveness {
  llvm::DenseMap<const Node *, int> number;
  llvm::MapVector<Value *, Lifetime> values; ///< arguments, and results of nodes that own memory

  /// Every node that reads a value or a view of it, with its number (`start` reads until it is
  /// waited for; nullptr: a result of the function). Globals too.
  llvm::DenseMap<const Value *, std::vector<std::pair<const Node *, int>>> reads;
  /// The `assign` nodes of the function, by the global they write.
  llvm::MapVector<const Value *, std::vector<const Node *>> writes;
};
/// An error where a value is read through a view that has no strides, or where a view of a global
/// is read after the global is assigned (the emitted program would see the new value).
llvm::Expected<Liveness> computeLiveness(const Function &f);

/// The last node at which a node needs its operands and workspace: itself, or of a start what waits for it.
int endOf(const Node &n, const Liveness &l);
/// Whether nobody but `n` reads `v` at `n` or after it.
bool isLastReader(const Liveness &l, const Value *v, const Node &n);
/// Whether `n` reads `v`, or these of its elements, at most through operands that its result may be written over, element by
/// element.
bool readsInPlaceOnly(const Node &n, unsigned result, const Value *v);
bool readsInPlaceOnly(const Node &n, unsigned result, const Value *v, Range range);
/// Whether no other `assign` than `write` writes what that writes of a global.
bool isWrittenOnce(const Liveness &l, const GlobalValue &g, const Node &write);
/// A node behind `from` and before `to` that reads these elements of a global, or that started before and has not ended; nullptr:
/// there is none.
const Node *readerBetween(const Liveness &l, const GlobalValue &g, Range range, const Node &from, const Node &to);
/// The elements of its base that a view reaches, from the first to the last.
Range rangeOf(const View &v);

/// Bytes of a space live at each node of a planned function: values, workspaces; globals and arguments are not
/// counted, nor what is left out.
std::vector<int64_t> liveBytes(const Function &f, const Liveness &l, Space s = Space::Device,
                               const llvm::DenseSet<const Value *> &but = {});
/// Of a planned function, gradients of parameters: what the backward makes and updates read, itself or written over by other
/// nodes of the backward, summed up over the ranks or not.
llvm::DenseSet<const Value *> gradientsOf(const Function &f, const Liveness &l);

/// Where element 0 of a value lies in its space's arena, in bytes: in the iteration at slice t of a scan, at offset + t * step.
struct Place {
  int64_t offset = -1, step = 0;
  Space space = Space::Device;
  bool operator==(const Place &o) const { return offset == o.offset && step == o.step && space == o.space; }
};
/// Of a value that a planned function uses, through views; offset -1 if it has none.
Place placeOf(const Function &f, Value *v);
/// Where a planned product lies for the kernel of its node, and how much of the node's workspace it takes, whose head it is.
Place productPlace(const Function &f, const Node &n);
int64_t productScratch(const Node &n);
/// Its offset alone.
int64_t plannedOffset(const Function &f, Value *v);
/// Names of the module attributes with the offsets of a function's arguments, and with their steps.
std::string argOffsetsAttr(const Function &f);
std::string argStepsAttr(const Function &f);

/// Where the arguments of a body lie, and where it leaves its results: in memory of the node that names it.
Place argPlace(const Node &caller, unsigned arg);
Place resultPlace(const Node &caller, unsigned result);
/// The values of a body that may be made right where results are left, with the result's number: nobody reads there any
/// more, and no other body has to be told a moving place.
llvm::MapVector<Value *, unsigned> producedInPlace(const Function &body, const Node &caller, const Liveness &l);

/// Rule V7: values whose lifetimes overlap have memory of their own, unless one is written in place
/// of the other.
llvm::Error verifyPlan(const Module &m);

} // namespace zcc
