// Locations and errors. Every node carries a Loc: the ONNX nodes it came from, the PyTorch source line if the exporter recorded
// it, or the line of a .zir file. Errors are llvm::Error; their text is clang's manner: lower case, no final period, names in
// single quotes.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <memory>
#include <string>
#include <vector>

namespace zcc {

struct LocInfo {
  std::vector<std::string> nodes; ///< ONNX node names, the first the most telling one
  std::string opType;             ///< ONNX operator of nodes[0]
  std::string source;             ///< "train.py:57" or empty
  std::string code;               ///< the source line itself, or empty
  std::string scope;              ///< module path of the exporter's name scopes, "h.0.attn", or empty
  int line = 0, column = 0;       ///< in a .zir file, from 1; 0 if from elsewhere
};
using Loc = std::shared_ptr<const LocInfo>;

/// A location that names one ONNX node.
Loc makeLoc(llvm::StringRef node, llvm::StringRef opType = "", llvm::StringRef source = "", llvm::StringRef code = "",
            llvm::StringRef scope = "");
/// The location of a node made from two: a's, then b's node names.
Loc mergeLocs(const Loc &a, const Loc &b);
/// "'/h.0/MatMul' (MatMul)", for messages; "line 3" for text.
std::string describe(const Loc &l);

/// An error at a location: "node '/h.0/MatMul' (MatMul): MSG", with the note "created here" behind it.
llvm::Error errorAt(const Loc &loc, const llvm::Twine &msg);
/// An error without a location.
llvm::Error error(const llvm::Twine &msg);

/// Prints "PREFIX: error: TEXT" and the notes to stderr; returns true if there was an error.
bool report(llvm::StringRef prefix, llvm::Error e);

/// The name among `names` nearest to `name` (edit distance at most a third), or empty.
std::string nearest(llvm::StringRef name, const std::vector<std::string> &names);

} // namespace zcc
