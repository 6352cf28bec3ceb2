// The CPU: oneDNN, Open MPI, and kernels that the host's compiler makes.
#include "codegen/CpuTarget.h"
#include "codegen/CpuPrinter.h"
#include "codegen/EmitKernels.h"
#include "codegen/KernelCall.h"
#include "codegen/Workspaces.h"
#include "ir/Epilogue.h"
#include "passes/memory/Liveness.h"
#include "runtime/cpu/Wide.h"
#include "runtime/nvme/Nvme.h"
#include "runtime/zccrt.h"
#include <algorithm>
#include <cmath>

using namespace zcc;

namespace {

class CpuTarget : public Target {
public:
  CpuTarget(llvm::StringRef isa, int threads, std::optional<Profile> profile, int ranks)
      : isa_(isa), threads_(threads), ranks_(ranks), profile_(std::move(profile)) {}

  llvm::StringRef name() const override { return "cpu"; }
  int threads() const override { return threads_; }
  int64_t leastRowsToSum() const override { return kBlocksOfThread * threads() * kColumnBlock; }
  bool passesOverStrips() const override { return true; }
  Machine machine() const override;
  std::string ratesFrom() const override { return profile_ ? profile_->path : "shipped defaults"; }
  const zccrt_kernel_def *findKernel(llvm::StringRef name) const override;
  std::string wayOf(const Node &n) const override;
  std::optional<Packing> packingOf(const Node &n, double reads) const override {
    return performed(n)->packs ? workspaces_.packing(n, reads) : std::nullopt;
  }
  int64_t channelBlock(const Node &n) const override { return workspaces_.channelBlock(n); }
  int64_t workspaceBytes(const Node &n) const override;
  int64_t mostJoinedElements() const override { return 1 << 16; }
  int64_t libraryBytes(const Module &m) const override;
  std::unique_ptr<CodePrinter> printer(const Module &m, llvm::ArrayRef<Space> spaces) const override;

private:
  std::string isa_;
  int threads_, ranks_;
  std::optional<Profile> profile_;
  mutable Workspaces workspaces_{*this}; ///< it only remembers
};

} // namespace

Machine CpuTarget::machine() const {
  // Without a profile: one core of a Sapphire Rapids: dnnl_sgemm 185 GFLOP/s with AVX-512, 90 when held to AVX2, 25
  // with SSE; streams 12 GB/s a thread until about eight of them fill the memory's channels;
  // collectives in shared memory 5 GB/s; copies 6 GB/s; an NVMe disk 1.5 GB/s, of whose transfers a core
  // begins and ends 20,000 a second and moves and sums up 12 GB/s.
  double core = llvm::StringRef(isa_).contains("avx512f") ? 185e9 : llvm::StringRef(isa_).contains("avx2") ? 90e9 : 25e9;
  Machine m(core * threads_, 12e9 * std::min(threads_, 8), 5e9);
  m[Rate::HostCopy] = 6e9;
  m[Rate::Disk] = m[Rate::DiskWrites] = 1.5e9;
  m[Rate::DiskCores] = 12e9;
  m[Rate::DiskStarts] = 2e4;
  if (profile_)
    profile_->apply(m, threads_, ranks_);
  // The same cores compute in host memory.
  for (auto [host, own] : {std::pair(Rate::HostFlops, Rate::Large),
                           {Rate::HostTranscendentals, Rate::Transcendentals},
                           {Rate::HostBytes, Rate::Bytes}})
    if (std::isinf(m[host]))
      m[host] = m[own];
  return m;
}

std::unique_ptr<CodePrinter> CpuTarget::printer(const Module &m, llvm::ArrayRef<Space> spaces) const {
  return std::make_unique<CpuPrinter>(m, spaces, *this);
}

std::unique_ptr<Target> zcc::cpuTarget(llvm::StringRef isa, int threads, std::optional<Profile> profile, int ranks) {
  return std::make_unique<CpuTarget>(isa, threads, std::move(profile), ranks);
}

const zccrt_kernel_def *CpuTarget::findKernel(llvm::StringRef name) const {
  for (int i = 0; i < zccrt_cpu_kernel_count; ++i)
    if (name == zccrt_cpu_kernels[i].name)
      return &zccrt_cpu_kernels[i];
  return nullptr;
}

std::string CpuTarget::wayOf(const Node &n) const {
  if (!profile_ || profile_->waysByThreads.empty() || !performed(n)->kernel || runsKernel(n))
    return "";
  return workspaces_.way(n, [&](const KernelCall &call) {
    auto c = zccrt::cpu::wayCase(call.kernel->name, &call.call);
    return c ? profile_->wayOf(*c, threads_) : "";
  });
}

// ---- memory

int64_t CpuTarget::workspaceBytes(const Node &n) const {
  if (performed(n)->kernel)
    return productScratch(n) + workspaces_.bytes(n);
  return runsKernel(n) ? KernelEmitter::scratchBytes(n, threads_) : 0;
}

/// Whether sgemm reads the operands of a result of so many rows or columns as they lie (oneDNN 2.6, by the memory that 130
/// products took: of AVX-512 and, told to be it, of AVX2).
static bool readsInPlace(int64_t rows, int64_t columns, llvm::StringRef isa) {
  constexpr double kMost512 = 0.00196, kMost2 = 0.0038;
  constexpr int64_t kBadRow = 1024; // elements: such rows are copied, unless they are columns
  double few = 1.0 / double(rows) + 1.0 / double(columns);
  if (isa.contains("avx512f"))
    return few >= kMost512 && columns % kBadRow;
  return isa.contains("avx2") && few >= kMost2;
}

/// What sgemm copies blocks of its operands into, for one thread: the blocks are at most 9984 columns and 384 rows of a result,
/// 384 deep, and where there would be two, each is half (oneDNN 2.6 for AVX-512; measured from 256x1024x1024 to 1024x50257x768,
/// and of 1024x32000x512). Of 16-bit products by blocks of rows, which use the columns once, only rows are.
static int64_t packingBytes(const Node &n, llvm::StringRef isa) {
  constexpr int64_t kRows = 384, kColumns = 9984, kDepth = 384;
  const Type y = productType(n);
  const Type &x = n.operand(firstFactor(n))->type;
  int64_t k = x.dims.back(), rows = y.dims[y.ndim() - 2], columns = y.dims.back();
  if (elemBytes(x.elem) == 2) {
    if (zccrt::cpu::computesNatively(int32_t(x.elem)))
      return 0;
    if (int64_t block = y.ndim() == 2 ? zccrt::cpu::wideBlockRows(rows, k, columns) : 0; block && block <= kRows)
      columns = 0;
  } else if (readsInPlace(rows, columns, isa)) {
    return 0;
  }
  const int64_t depth = k > kDepth && k < 2 * kDepth ? (k + 1) / 2 : std::min(k, kDepth);
  return (std::min(columns, kColumns) + std::min(rows, kRows)) * depth * int64_t(sizeof(float));
}

int64_t CpuTarget::libraryBytes(const Module &m) const {
  // Resident bytes less the arena, of programs on Debian 12 with oneDNN 2.6 and Open MPI 4.1.
  constexpr int64_t kKiB = 1 << 10, kMiB = 1 << 20;
  constexpr int64_t kProcess = 6 * kMiB;         // the program, libc, libstdc++, OpenMP, libzip with libcrypto
  constexpr int64_t kThread = 128 * kKiB;        // stack and OpenMP state of a worker
  constexpr int64_t kMpi = 6656 * kKiB;          // Open MPI after MPI_Init
  constexpr int64_t kWindow = kMiB;              // a rank's buffers in shared memory, which all ranks map
  constexpr int64_t kMostWindows = 64;           // ranks of one node
  constexpr int64_t kOneDnn = 10752 * kKiB;      // its code, and the kernels that it generates
  constexpr int64_t kSgemm = 2304 * kKiB;        // more of both, where products are sgemm's
  constexpr int64_t kProduct = 8 * kKiB;         // of each product
  constexpr int64_t kMostProducts = 200;         // from there on they are alike
  constexpr int64_t kConvolutions = 2560 * kKiB; // more of its code, where there are any
  constexpr int64_t kConvolution = 40 * kKiB;    // generated code of one primitive
  constexpr int64_t kFragments = 8 * kMiB;       // sgemm allocates in each call: the heap grows by as much again, at most by this
  constexpr int64_t kDisk = 2 * kMiB;            // the disk's queues and extents, and more generated code
  constexpr int64_t kHugePage = 2 * kMiB;        // the end of an arena of huge pages
  constexpr int64_t kHugeArena = 16 * kMiB;
  int64_t bytes = kProcess + threads_ * kThread, packing = 0, products = 0;
  bool usesOneDnn = false, usesSgemm = false, usesConvolutions = false, computesOnHost = false;
  for (auto &f : m.functions)
    for (auto &n : f->nodes) {
      computesOnHost |= !f->isKernel && computeSpace(*n) == Space::Host && performed(*n)->isWork();
      usesOneDnn |= n->op->library != Library::None;
      if (n->op->library == Library::Convolution) {
        usesConvolutions = true;
        usesSgemm |= elemBytes(n->operand(0)->type.elem) != 2;
        bytes += kConvolution;
      }
      if (n->op->library != Library::Product)
        continue;
      ++products;
      const Elem elem = n->operand(firstFactor(*n))->type.elem;
      const bool isNative = elemBytes(elem) == 2 ? zccrt::cpu::computesNatively(int32_t(elem)) : workspaces_.avoidsSgemm(*n);
      if (!isNative) {
        packing = std::max(packing, packingBytes(*n, isa_));
        usesSgemm = true;
      }
    }
  if (computesOnHost)
    bytes += threads_ * kThread; // a team of its own
  const int64_t ofProducts = usesSgemm * kSgemm + std::min(products, kMostProducts) * kProduct;
  if (usesOneDnn) // the heap that grows has room for what each product takes
    bytes += kOneDnn + packing * threads_ + std::max(ofProducts, std::min(packing * threads_, kFragments));
  if (usesConvolutions)
    bytes += kConvolutions;
  if (m.ranks > 1)
    bytes += kMpi + std::min<int64_t>(m.ranks, kMostWindows) * kWindow;
  if (m.attrs.i("arena_bytes") >= kHugeArena)
    bytes += kHugePage;
  if (const int64_t disk = arenaBytes(m, Space::Nvme))
    bytes += kDisk + int64_t(zccrt::Nvme::checksumBytes(disk));
  return bytes;
}
