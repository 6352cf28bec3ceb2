// Files that appear whole or not at all.
#pragma once

#include "ir/Diag.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <string>
#include <vector>

namespace zcc {

/// Writes a file; what keeps it from being whole.
std::error_code writeFile(llvm::StringRef path, llvm::StringRef bytes);
/// Files that are made beside their places, on the same file systems, and take them once all of them are whole. What has not
/// been put in place is gone at the end, and everything is as it was.
class NewFiles {
public:
  NewFiles() = default;
  NewFiles(const NewFiles &) = delete;
  ~NewFiles();
  /// Lets `write` make a file that will be `out`; an error names that. `mode`: its permissions, before umask.
  llvm::Error add(llvm::StringRef out, unsigned mode, llvm::function_ref<std::error_code(llvm::StringRef path)> write);
  /// Makes a folder, and those around it, where there is none.
  llvm::Error addFolder(llvm::StringRef path);
  /// In the order in which they were added.
  llvm::Error putInPlace();

private:
  struct File {
    std::string temp, out;
  };
  std::vector<File> files_;
  std::vector<std::string> folders_; ///< that were made, the outer ones first
};

/// One such file.
llvm::Error replaceFile(llvm::StringRef out, unsigned mode, llvm::function_ref<std::error_code(llvm::StringRef path)> write);
/// The same of bytes; "-" is standard output, and /dev/null stays what it is.
llvm::Error writeWhole(llvm::StringRef out, llvm::StringRef bytes);

} // namespace zcc
