// .zir: the text form of a module, both ways. The grammar is in ir/README.md.
#pragma once

#include "ir/Graph.h"

namespace zcc {

struct PrintOptions {
  bool locs = false;
  /// Folder in which the text will lie; empty: the current one. The folder of the weights is named
  /// in the text unless it is this one.
  std::string folder;
};

/// Prints kernels first, then the other functions. Names that collide are made unique in the text.
/// Constants are written out, in hexadecimal above 8 elements.
void print(const Module &m, llvm::raw_ostream &os, PrintOptions o = {});
std::string toText(const Module &m, PrintOptions o = {});
/// Writes `header` and the text to `path`, and constants above 8 elements to `path.data`. Both
/// files appear whole or not at all. The options' folder is set here.
llvm::Error writeText(const Module &m, llvm::StringRef path, PrintOptions o = {}, llvm::StringRef header = "");

/// Parses and verifies; errors are printed to stderr in clang's manner with caret and name `file`,
/// and the returned error is the first, without position. Constant data and weights are found
/// relative to `folder`.
llvm::Expected<std::unique_ptr<Module>> parse(llvm::StringRef text, llvm::StringRef file = "<text>", llvm::StringRef folder = "");

/// The names of the properties, in the order of their bits.
llvm::ArrayRef<const char *> propertyNames();

} // namespace zcc
