// Finds nvcc, and asks the driver which GPU is here.
#include "codegen/cuda/Toolkit.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include <cstdlib>
#include <dlfcn.h>

using namespace zcc;
using llvm::StringRef;
namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

// ---- architectures

llvm::ArrayRef<StringRef> zcc::knownGpus() {
  static constexpr StringRef kKnown[] = {"sm_75", "sm_80",  "sm_86",  "sm_87",  "sm_88",  "sm_89",
                                         "sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121"};
  return kKnown;
}

/// "sm_90" of the first GPU here; "": there is none, or no driver.
static std::string gpuHere() {
  constexpr int kMajor = 75, kMinor = 76; // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver)
    return "";
  auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  auto get = reinterpret_cast<int (*)(int *, int)>(dlsym(driver, "cuDeviceGet"));
  auto attribute = reinterpret_cast<int (*)(int *, int, int)>(dlsym(driver, "cuDeviceGetAttribute"));
  int device = 0, major = 0, minor = 0;
  if (!init || !get || !attribute || init(0) || get(&device, 0) || attribute(&major, kMajor, device) ||
      attribute(&minor, kMinor, device))
    return "";
  return "sm_" + std::to_string(major) + std::to_string(minor);
}

llvm::Expected<std::string> zcc::gpuOf(StringRef march) {
  if (march.empty())
    return "sm_80";
  std::string gpu = march == "native" ? gpuHere() : march.str();
  if (gpu.empty())
    return error("--march=native: there is no GPU here, or no driver for one; name one: --march=sm_80, sm_90, ...");
  if (!llvm::is_contained(knownGpus(), gpu))
    return error("--march=" + gpu + ": --target=cuda makes kernels for " + llvm::join(knownGpus(), ", "));
  return gpu;
}

// ---- the toolkit

/// The first nvcc of CUDA_HOME, of where the runtime was built, of PATH, of the usual folder; "": none.
static std::string findNvcc() {
  const char *home = getenv("CUDA_HOME");
  std::string inHome = home ? std::string(home) + "/bin/nvcc" : "";
  auto inPath = llvm::sys::findProgramByName("nvcc");
  for (const std::string &file :
       {inHome, std::string(ZCC_NVCC), inPath ? *inPath : std::string(), std::string("/usr/local/cuda/bin/nvcc")})
    if (fs::can_execute(file))
      return file;
  return "";
}

/// A file of the toolkit's libraries; "": it has none.
static std::string findLibrary(StringRef name) {
  for (StringRef folder : {"lib64", "lib", "targets/x86_64-linux/lib", "lib/x86_64-linux-gnu"}) {
    llvm::SmallString<256> file(StringRef(ZCC_CUDA_ROOT));
    path::append(file, folder, name);
    if (fs::exists(file))
      return file.str().str();
  }
  return "";
}

llvm::Error zcc::checkToolkit() {
  const char *otherwise = "\nnote: --emulate makes a program that runs without a GPU";
  if (!*ZCC_CUDA_LIB)
    return error(std::string("--target=cuda: this zcc was built without CUDA; tools/install-deps --cuda installs compiler and "
                             "libraries, no driver: then build zcc again") +
                 otherwise);
  if (findNvcc().empty())
    return error(std::string("--target=cuda: nvcc is neither in CUDA_HOME nor in PATH; tools/install-deps --cuda installs it") +
                 otherwise);
  if (findLibrary("libcudart_static.a").empty())
    return error("--target=cuda: libcudart_static.a is missing in '" ZCC_CUDA_ROOT "', the toolkit that zcc was built with");
  return llvm::Error::success();
}

bool zcc::hasCheckedKernels() { return *ZCC_CHECKED_LIB; }

/// Code for later GPUs goes with that for this one. Nothing is contracted to fused operations, so that a sum has the same bits in
/// whichever kernel it is.
std::vector<std::string> zcc::nvccFor(StringRef gpu) {
  std::string ptx = "compute_" + gpu.drop_front(3).str();
  return {findNvcc(),
          "-ccbin",
          ZCC_CXX,
          "-std=c++20",
          "-O3",
          "-fmad=false",
          "--expt-relaxed-constexpr",
          "--extended-lambda",
          "-gencode=arch=" + ptx + ",code=[" + gpu.str() + "," + ptx + "]",
          "-I" ZCC_SOURCE_DIR,
          "-c"};
}

std::vector<std::string> zcc::cudaLibraries() { return {findLibrary("libcudart_static.a"), "-ldl", "-lrt"}; }
