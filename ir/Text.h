// .zir: the text form of a module, both ways. The grammar is in ir/README.md.
#pragma once

#include "ir/Graph.h"

namespace zcc {

struct PrintOptions {
  bool locs = false;
};
/// Prints; constants above 8 elements and weights are file ranges, so constData is written to constPath first
/// (when it is not empty and a path is set).
void print(const Module &m, llvm::raw_ostream &os, PrintOptions o = {});
std::string toText(const Module &m, PrintOptions o = {});

/// Parses text; errors are printed in clang's manner with caret and name `file`, and the returned error is the first.
/// Constant data is read from the file the text names, relative to `folder`.
llvm::Expected<std::unique_ptr<Module>> parse(llvm::StringRef text, llvm::StringRef file = "<text>",
                                              llvm::StringRef folder = "");

} // namespace zcc
