// Writes beside the place of a file, and renames.
#include "ir/Files.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/raw_ostream.h"
#include <unistd.h>

using namespace zcc;
using llvm::StringRef;
namespace fs = llvm::sys::fs;

std::error_code zcc::writeFile(StringRef path, StringRef bytes) {
  std::error_code ec;
  llvm::raw_fd_ostream os(path, ec);
  if (ec)
    return ec;
  os << bytes;
  os.close();
  ec = os.error();
  os.clear_error();
  return ec;
}

llvm::Error zcc::replaceFile(StringRef out, unsigned mode, llvm::function_ref<std::error_code(StringRef path)> write) {
  llvm::SmallString<128> temp;
  int fd;
  if (auto ec = fs::createUniqueFile(out + ".%%%%%%", fd, temp))
    return error("cannot write '" + out + "': " + ec.message());
  ::close(fd);
  llvm::sys::RemoveFileOnSignal(temp);
  std::error_code ec = write(temp);
  if (!ec)
    ec = fs::setPermissions(temp, fs::perms(mode & ~fs::getUmask()));
  if (!ec)
    ec = fs::rename(temp, out);
  if (ec)
    fs::remove(temp);
  llvm::sys::DontRemoveFileOnSignal(temp);
  return ec ? error("cannot write '" + out + "': " + ec.message()) : llvm::Error::success();
}

llvm::Error zcc::writeWhole(StringRef out, StringRef bytes) {
  if (out == "-") {
    llvm::outs() << bytes;
    return llvm::Error::success();
  }
  if (out == "/dev/null")
    return llvm::Error::success();
  return replaceFile(out, 0666, [&](StringRef path) { return writeFile(path, bytes); });
}
