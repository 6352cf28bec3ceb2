#include "tools/ProfileFile.h"
#include "ir/Diag.h"
#include "runtime/Fail.h"
#include "runtime/OutFile.h"
#include "llvm/Support/FileSystem.h"
#include <cmath>

using namespace zcc;

/// More digits are noise.
static void round(Profile::Rates &rates) {
  for (auto &[rate, value] : rates) {
    double unit = std::pow(10, std::floor(std::log10(value)) - 2);
    value = std::round(value / unit) * unit;
  }
}

static llvm::Expected<Profile> known(const std::string &path) {
  if (!llvm::sys::fs::exists(path))
    return Profile();
  auto old = readProfile(path);
  if (!old)
    return error(llvm::toString(old.takeError()) + "\nnote: remove it, or name another file with --profile=FILE");
  return old;
}

llvm::Expected<std::string> zcc::updateProfile(const std::string &path, llvm::function_ref<Profile()> measure) {
  auto profile = known(path);
  if (!profile)
    return profile.takeError();
  try {
    zccrt::OutFile file(path);
    Profile measured = measure();
    round(measured.whole);
    for (auto &[threads, rates] : measured.byThreads)
      round(rates);
    profile->merge(measured);
    std::string text = profile->json();
    file.write(text.data(), text.size());
    file.commit();
    return text;
  } catch (const zccrt::Failure &e) {
    return error(e.what());
  }
}
