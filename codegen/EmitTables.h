// The tables of an emitted program: library calls, globals and their files, inputs, outputs, pieces of the exported file.
#pragma once

#include "codegen/EmitProgram.h"
#include "codegen/KernelCall.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/raw_ostream.h"

namespace zcc {

/// A C string literal.
std::string cString(llvm::StringRef text);
/// What may stand behind "//": names come from files, and no end of a line, or backslash before it, may be in them.
std::string inComment(llvm::StringRef text);
/// An initializer of zccrt_tensor.
std::string tensorText(const zccrt_tensor &t);

/// The zccrt_call records, one a node, and the pools they point into.
class CallTable {
public:
  /// Adds a call and returns its number. `target`: what the kernel's function and its table are named after.
  unsigned add(const KernelCall &c, llvm::StringRef target);
  bool empty() const { return calls.empty(); }
  /// The number of a call's first tensor in `tensors`.
  unsigned firstTensor(unsigned call) const { return firstTensors[call]; }
  /// The tables, and `TARGET_NAME` for each kernel.
  void print(llvm::raw_ostream &os) const;
  /// `prepare`: finds the kernels and calls each once without an arena.
  void printPrepare(llvm::raw_ostream &os) const;

private:
  std::string intPool, floatPool, attrPool, tensorPool;
  unsigned ints = 0, floats = 0, tensors = 0, attrs = 0;
  llvm::StringMap<unsigned> knownInts, knownAttrs;                                ///< texts in the pools: equal layers share them
  llvm::MapVector<std::pair<llvm::StringRef, llvm::StringRef>, unsigned> kernels; ///< by target and name
  std::vector<std::string> calls;
  std::vector<unsigned> kernelOf, firstTensors;
  bool isMoving = false; ///< a tensor lies elsewhere in each iteration of a scan

  std::string intsText(llvm::ArrayRef<int64_t> v);
};

/// `files` and `globals`; adds the model's files to `out`, and to its weights what none of them holds raw.
llvm::Error printGlobals(const Module &m, const ProgramInfo &info, llvm::raw_ostream &os, EmittedProgram &out);
/// `inputs`: by name, of all functions. `outputs`: what @eval returns.
llvm::Error printInputsAndOutputs(const Module &m, llvm::raw_ostream &os);
void printMetrics(const Module &m, llvm::raw_ostream &os);
/// A zccrt_piece table; the literal bytes are appended to `literals`.
void printPieces(llvm::StringRef table, llvm::ArrayRef<ExportPart> pieces, const Module &m, llvm::raw_ostream &os,
                 std::string &literals);
/// `weights`: the tensors of the exported safetensors file.
void printWeights(llvm::ArrayRef<ExportWeight> weights, const Module &m, llvm::raw_ostream &os, std::string &literals);

} // namespace zcc
