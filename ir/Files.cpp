// Writes beside the place of a file, and renames.
#include "ir/Files.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
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

NewFiles::~NewFiles() {
  for (const File &f : files_) {
    fs::remove(f.temp);
    llvm::sys::DontRemoveFileOnSignal(f.temp);
  }
  for (const std::string &folder : llvm::reverse(folders_))
    fs::remove(folder); // unless it has something
}

llvm::Error NewFiles::add(StringRef out, unsigned mode, llvm::function_ref<std::error_code(StringRef path)> write) {
  llvm::SmallString<128> temp;
  int fd;
  if (auto ec = fs::createUniqueFile(out + ".%%%%%%", fd, temp))
    return error("cannot write '" + out + "': " + ec.message());
  ::close(fd);
  llvm::sys::RemoveFileOnSignal(temp);
  files_.push_back({temp.str().str(), out.str()});
  std::error_code ec = write(temp);
  if (!ec)
    ec = fs::setPermissions(temp, fs::perms(mode & ~fs::getUmask()));
  return ec ? error("cannot write '" + out + "': " + ec.message()) : llvm::Error::success();
}

llvm::Error NewFiles::addFolder(StringRef path) {
  if (path.empty() || fs::is_directory(path))
    return llvm::Error::success();
  if (auto e = addFolder(llvm::sys::path::parent_path(path)))
    return e;
  if (auto ec = fs::create_directory(path))
    return error("cannot make the folder '" + path + "': " + ec.message());
  folders_.push_back(path.str());
  return llvm::Error::success();
}

llvm::Error NewFiles::putInPlace() {
  for (size_t i = 0; i < files_.size(); ++i) {
    if (auto ec = fs::rename(files_[i].temp, files_[i].out)) {
      files_.erase(files_.begin(), files_.begin() + i);
      return error("cannot write '" + files_[0].out + "': " + ec.message());
    }
    llvm::sys::DontRemoveFileOnSignal(files_[i].temp);
  }
  files_.clear();
  folders_.clear();
  return llvm::Error::success();
}

llvm::Error zcc::replaceFile(StringRef out, unsigned mode, llvm::function_ref<std::error_code(StringRef path)> write) {
  NewFiles file;
  if (auto e = file.add(out, mode, write))
    return e;
  return file.putInPlace();
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
