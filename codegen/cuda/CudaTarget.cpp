// GPUs: cuBLASLt, and kernels that nvcc, or for the emulation the host's compiler, makes.
#include "codegen/cuda/CudaTarget.h"
#include "codegen/EmitKernels.h"
#include "codegen/Workspaces.h"
#include "codegen/cuda/CudaPrinter.h"
#include "codegen/cuda/Launches.h"
#include "ir/Op.h"
#include "passes/memory/Liveness.h"
#include "runtime/DeviceMemory.h"
#include "runtime/nvme/Nvme.h"
#include "runtime/zccrt.h"

using namespace zcc;

/// Whether operand `i` is a row that a product's library adds to each of the result's.
static bool isBias(const Node &n, unsigned i, const View &v) {
  return n.is(ops::add_matmul) && i == 0 && v.strides.back() == 1 &&
         llvm::all_of(llvm::ArrayRef(v.strides).drop_back(), [](int64_t s) { return s == 0; });
}

namespace {

class CudaTarget : public Target {
public:
  CudaTarget(llvm::StringRef arch, CudaDevice device, std::unique_ptr<Target> host, std::optional<Profile> profile, bool tf32)
      : arch_(arch), device_(device), host_(std::move(host)), profile_(std::move(profile)), tf32_(tf32) {}

  llvm::StringRef name() const override { return "cuda"; }
  int threads() const override { return host_->threads(); }
  /// As many units as have each of a hundred processors busy.
  int64_t leastRowsToSum() const override { return 128 * kGridRows; }
  bool computesWhatItCouldRead() const override { return true; }
  Machine machine() const override;
  std::string ratesFrom() const override { return profile_ ? profile_->path : "what is published of " + model().name.str(); }
  llvm::StringRef deviceSymbol() const override {
    return device_ == CudaDevice::Gpu ? "zccrt_cuda_device" : "zccrt_emulated_device";
  }
  bool multipliesInTf32() const override { return tf32_; }
  /// Tensor cores are fed by loads of 16 bytes.
  int64_t columnMultiple(Elem e) const override {
    return e == Elem::F16 || e == Elem::BF16 ? 8 : e == Elem::F32 && tf32_ ? 4 : 1;
  }
  bool addsBiases() const override { return true; }
  bool reads(const Node &n, unsigned i, const View &v) const override { return isBias(n, i, v) || isCommonLayout(n, i, v); }
  bool checksKernels() const override { return device_ == CudaDevice::Checked; }
  llvm::StringRef gpu() const override { return device_ == CudaDevice::Gpu ? arch_ : llvm::StringRef(); }
  const zccrt_kernel_def *findKernel(llvm::StringRef name) const override;
  int64_t workspaceBytes(const Node &n) const override;
  int64_t launches(const Node &n) const override;
  int64_t libraryBytes(const Module &m) const override;
  int64_t deviceLibraryBytes(const Module &m) const override;
  const Target &host() const override { return *host_; }
  std::unique_ptr<CodePrinter> printer(const Module &m, llvm::ArrayRef<Space> spaces) const override {
    return std::make_unique<CudaPrinter>(m, spaces, *this, device_);
  }

private:
  /// What a vendor says of a GPU, per second.
  struct Model {
    llvm::StringRef arch, name;
    double f32, tf32, low; ///< products and sums together: of f32 without tensor cores; with them dense ones, of TF32 and 16 bits
    double bytes;          ///< memory
    double link;           ///< NVLink or PCIe one way
    double host;           ///< PCIe with 16 lanes one way
  };
  const Model &model() const;

  std::string arch_;
  CudaDevice device_;
  std::unique_ptr<Target> host_;
  std::optional<Profile> profile_;
  bool tf32_;
  mutable Workspaces workspaces_{*this}; ///< it only remembers
};

} // namespace

std::unique_ptr<Target> zcc::cudaTarget(llvm::StringRef arch, CudaDevice device, std::unique_ptr<Target> host,
                                        std::optional<Profile> profile, bool tf32) {
  return std::make_unique<CudaTarget>(arch, device, std::move(host), std::move(profile), tf32);
}

const CudaTarget::Model &CudaTarget::model() const {
  // From NVIDIA's data sheets and white papers of each: A100 80GB SXM, H100 SXM, B200 SXM; 16-bit rates without sparsity.
  static constexpr Model kModels[] = {{"sm_75", "a T4", 8.1e12, 8.1e12, 65e12, 320e9, 16e9, 16e9},
                                      {"sm_80", "an A100", 19.5e12, 156e12, 312e12, 2039e9, 300e9, 32e9},
                                      {"sm_86", "an A10", 31.2e12, 62.5e12, 125e12, 600e9, 32e9, 32e9},
                                      {"sm_89", "an L40", 90.5e12, 90.5e12, 181e12, 864e9, 32e9, 32e9},
                                      {"sm_90", "an H100", 67e12, 494e12, 989e12, 3350e9, 450e9, 64e9},
                                      {"sm_100", "a B200", 75e12, 1100e12, 2250e12, 7700e9, 900e9, 64e9},
                                      {"sm_120", "an RTX 5090", 104.8e12, 104.8e12, 209.5e12, 1792e9, 64e9, 64e9}};
  auto number = [](llvm::StringRef arch) {
    int n = 0;
    arch.substr(3).getAsInteger(10, n);
    return n;
  };
  const Model *found = kModels; // the newest that is not newer
  for (const Model &m : kModels)
    if (number(m.arch) <= number(arch_))
      found = &m;
  return *found;
}

/// What programs are thought to sustain of the published rates: measured of a GPT-2 on an H100 (tools/bench/README.md) where that
/// is said, else assumptions. What a loop has of instructions is counted (tools/bench/sass.py): 0.7 to 1.9 for an operation, 20
/// to 23 for a transcendental function.
namespace share {
/// Of cuBLASLt, by the least extent (passes/CostModel.h); large ones of 16 bits measured 0.70.
constexpr double kProduct = 0.7, kNarrow = 0.3, kThin = 0.1;
/// Attention in tiles, of f32's rate: loops that shared memory feeds a factor for every four sums hardly reach half of it.
constexpr double kAttention = 0.15;
/// By tensor cores, whose instructions are every third to fifth; of causal ones half is counted. The gradient
/// multiplies seven times where five are counted. Of 1024 causal rows the forward measured 0.19, the gradient 0.14.
constexpr double kLowAttention = 0.15;
constexpr double kTf32Attention = 0.08; ///< alike, of TF32's rate; as many loads, and each factor is rounded, for half the terms
constexpr double kConvolution = 0.3;    ///< as products, besides what their columns take
constexpr double kMemory = 0.85, kLink = 0.8; ///< copies measured 0.95 of memory, norms 0.84
/// Of what counts a product and a sum as two. Norms, GELU and their gradients measured as if it were 0.4 to more than 0.8, which
/// is where memory bounds them.
constexpr double kLoop = 0.6;
constexpr double kExponential = 1.0 / 20; ///< of kLoop: so many operations
/// What further passes over a row read, which is in registers, in shared memory or, where it is too long, in the L2 cache.
constexpr double kNear = 4;
} // namespace share
constexpr double kLaunchSeconds = 2.5e-6; ///< between the ends of two small kernels on a stream

/// Rates of all products of one width, from the first one on.
static void setProducts(Machine &m, Rate first, double flops) {
  auto at = [&](Rate like) -> double & { return m[Rate(size_t(first) + size_t(like))]; };
  at(Rate::Large) = flops * share::kProduct;
  at(Rate::Narrow) = flops * share::kNarrow;
  at(Rate::Thin) = flops * share::kThin;
  for (size_t kind = 0; kind < kConvolutions; ++kind)
    m[Rate(size_t(first) + size_t(Rate::Convolution) + kind)] = flops * share::kConvolution;
}

Machine CudaTarget::machine() const {
  const Model &published = model();
  Machine m(published.f32, published.bytes * share::kMemory, published.link * share::kLink);
  setProducts(m, Rate::Large, tf32_ ? published.tf32 : published.f32);
  setProducts(m, Rate::LowLarge, published.low);
  m[Rate::Attention] = tf32_ ? published.tf32 * share::kTf32Attention : published.f32 * share::kAttention;
  m[Rate::LowAttention] = published.low * share::kLowAttention;
  m[Rate::Operations] = published.f32 * share::kLoop;
  m[Rate::Transcendentals] = m[Rate::Operations] * share::kExponential;
  m[Rate::NearBytes] = published.bytes * share::kNear;
  m[Rate::Launches] = 1 / kLaunchSeconds;
  m[Rate::HostCopy] = published.host * share::kLink;
  m[Rate::Disk] = m[Rate::DiskWrites] = 3e9;
  const Machine host = host_->machine();
  for (Rate r : {Rate::HostFlops, Rate::HostTranscendentals, Rate::HostBytes})
    m[r] = host[r];
  m.collectivesCompute = m.hostComputes = false;
  if (profile_)
    profile_->apply(m, threads());
  return m;
}

const zccrt_kernel_def *CudaTarget::findKernel(llvm::StringRef name) const {
  for (int i = 0; i < zccrt_cuda_kernel_count; ++i)
    if (name == zccrt_cuda_kernels[i].name)
      return &zccrt_cuda_kernels[i];
  return nullptr;
}

int64_t CudaTarget::workspaceBytes(const Node &n) const {
  if (n.op->kernel)
    return productScratch(n) + workspaces_.bytes(n);
  return n.op->isFused() ? KernelEmitter::scratchBytes(n, kGrid) : 0;
}

int64_t CudaTarget::deviceLibraryBytes(const Module &m) const {
  bool multiplies = false, communicates = false;
  for (auto &f : m.functions)
    for (auto &n : f->nodes) {
      multiplies |= n->op->library == Library::Product || n->op->library == Library::Convolution;
      communicates |= performed(*n)->collective != Collective::None;
    }
  return (multiplies ? zccrt::kProductWorkspace : 0) + (communicates ? m.ranks * zccrt::kDeviceMessage : 0);
}

int64_t CudaTarget::launches(const Node &n) const { return computeSpace(n) == Space::Device ? launchesOf(n, *this) : 0; }

/// Of the host: the process, MPI, what copies go through.
int64_t CudaTarget::libraryBytes(const Module &m) const {
  constexpr int64_t kMiB = 1 << 20;
  constexpr int64_t kProcess = 24 * kMiB, kMpi = 8 * kMiB;
  int64_t disk = arenaBytes(m, Space::Nvme);
  return kProcess + (m.ranks > 1 ? kMpi : 0) + (disk ? zccrt::kBounceBytes : 0) + int64_t(zccrt::Nvme::checksumBytes(disk));
}
