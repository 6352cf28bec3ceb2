// What differs between machines that a program may run on. Passes ask about memory and cost; what prints code for the machine
// comes from it, too.
#pragma once

#include "ir/View.h"
#include "passes/CostModel.h"
#include <memory>

struct zccrt_kernel_def; // runtime/zccrt.h

namespace zcc {

class CodePrinter; // codegen/CodePrinter.h
class Target;

/// Whether libraries commonly read operand `i` of a node where it lies in larger memory: of a matrix product, a matrix one of
/// whose last two axes is contiguous; of attention, contiguous rows.
bool isCommonLayout(const Node &n, unsigned i, const View &v);

/// The rates of a target, or of one core where none is known.
Machine machineOf(const Target *target);

/// One machine, with the threads that a rank has. Answers depend on the arguments and on what it was made with, alone, and may be
/// asked for by several threads.
class Target {
public:
  virtual ~Target() = default;

  /// "cpu": what its kernels are called by.
  virtual llvm::StringRef name() const = 0;
  virtual int threads() const = 0;
  /// From how many rows on their kernel may have sums over them, too (passes/fuse/KernelShape.h).
  virtual int64_t leastRowsToSum() const { return INT64_MAX; }
  /// Whether kernels may pass over strips of columns more than once (passes/fuse/KernelShape.h).
  virtual bool passesOverStrips() const { return false; }
  /// Whether kernels wait for memory, so that one computes a tensor again from what it reads anyway rather than read it, too.
  virtual bool computesWhatItCouldRead() const { return false; }
  virtual Machine machine() const = 0;
  /// Where those rates are from: a profile's file, or "shipped defaults".
  virtual std::string ratesFrom() const = 0;

  /// What makes the device that programs compute on (zccrt_program::device); "": the host computes.
  virtual llvm::StringRef deviceSymbol() const { return ""; }
  /// The GPU that nvcc makes its kernels for ("sm_90"); "": the host's compiler makes them.
  virtual llvm::StringRef gpu() const { return ""; }

  /// Whether the emulation of a device looks at every access of its kernels.
  virtual bool checksKernels() const { return false; }
  /// Whether the device may round the factors of f32 products to TF32.
  virtual bool multipliesInTf32() const { return false; }

  /// The library kernel of a record (OpDef::kernel) and which of its tensors may be strided, or nullptr.
  virtual const zccrt_kernel_def *findKernel(llvm::StringRef name) const = 0;
  /// Whether the library kernel of a node reads operand `i`, which is not dense, with these strides. Without a target the common
  /// layouts are taken.
  virtual bool reads(const Node &n, unsigned i, const View &v) const { return isCommonLayout(n, i, v); }
  /// Bytes of workspace that the code of a node needs, be it a library's or generated.
  virtual int64_t workspaceBytes(const Node &n) const = 0;
  /// Elements of the largest update that is joined with others: where a start costs little, what is in a cache is dearer.
  virtual int64_t mostJoinedElements() const { return INT64_MAX; }
  /// How often a device is given work for a node; 0: the host computes.
  virtual int64_t launches(const Node &n) const { return 0; }
  /// In which of its ways a library computes a node the fastest, by measurement; "": by a rule of its own.
  virtual std::string wayOf(const Node &n) const { return ""; }
  /// How a node's weight (OpDef::packs) is best packed, and how many readers of one that is packed repay this; nullopt: it is
  /// read as it lies, or there are too few `reads` of it.
  struct Packing {
    Layout layout;
    int64_t leastReads;
  };
  virtual std::optional<Packing> packingOf(const Node &n, double reads) const { return std::nullopt; }
  /// In blocks of how many channels a convolution's library has its input and result (ir/ops/Window.h); 1: it need not.
  virtual int64_t channelBlock(const Node &n) const { return 1; }
  /// Of how many columns a product's result of that element best has a multiple (passes/fuse/AlignColumns.cpp); 1: of any number.
  virtual int64_t columnMultiple(Elem) const { return 1; }
  /// Whether its library adds a row to each of a product's (passes/fuse/AddBiases.cpp).
  virtual bool addsBiases() const { return false; }
  /// Resident bytes that a rank needs besides the arena: code, MPI, thread stacks, packing buffers of matrix products.
  virtual int64_t libraryBytes(const Module &m) const = 0;

  /// Bytes of a device's memory that libraries take: workspaces of products, what collectives receive.
  virtual int64_t deviceLibraryBytes(const Module &m) const { return 0; }

  /// What runs what computes in host memory: this, or the CPU that the device hangs on.
  virtual const Target &host() const { return *this; }
  const Target &of(Space s) const { return s == Space::Host ? host() : *this; }

  /// Prints a planned module's kernels and statements, of what computes in these spaces (computeSpace).
  virtual std::unique_ptr<CodePrinter> printer(const Module &m, llvm::ArrayRef<Space> spaces) const = 0;
};

} // namespace zcc
