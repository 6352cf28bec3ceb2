// The numbered rules of ir/README.md.
#pragma once

#include "ir/Op.h"

namespace zcc {

/// One broken rule; `text` begins with its number: "[V2] operand 'b' of 'matmul' is partitioned
/// (...)".
struct Violation {
  const Node *node = nullptr;          ///< where, if in a node
  const GlobalValue *global = nullptr; ///< where, if in a global
  const Function *function = nullptr;  ///< where, otherwise; nullptr: the module
  std::string text;
};
std::vector<Violation> violations(const Module &m);

/// The text of a violation without the rule's number, which tells only who knows the rules.
llvm::StringRef withoutRule(llvm::StringRef text);

/// All violations, each with its location: "node '/h.0/MatMul' (MatMul): [V2] operand 'b' ...".
llvm::Error verify(const Module &m);

// What the parser asks while it reads, so that the caret is where the mistake is. Empty: all is
// well.

/// An error for a negative dimension, and for more than 2^55 bytes: below, sums and what type rules
/// multiply do not overflow.
llvm::Error checkSize(const Type &t);
/// V1: number of operands, and names and kinds of attributes.
std::string checkForm(const Node &n);
/// V1: that the attributes a node of `op` needs are there, of their kinds, and in a range that type
/// rules can add and multiply.
std::string checkAttrs(const OpDef &op, const Attrs &attrs);
/// V2: partitioning, addends and spaces of the operands.
std::string checkPlacement(const Node &n);
/// V1: the types that the results must have; of a fused node, those of its kernel.
llvm::Expected<llvm::SmallVector<Type, 2>> expectedTypes(const Node &n, const Module &m);
/// Gives the results these types, behind a change of the operands.
llvm::Error retype(Node &n, const Module &m);

/// Whether a value is of a kind; integers are numbers too.
bool fits(AttrKind kind, const Attr &a);

/// The record of an attribute of a node, or nullptr if it is a note of a pass: `start` has the
/// attributes of the operator that it starts.
const AttrDef *attrDef(const Node &n, llvm::StringRef name);
/// Whether an attribute has the value that it has when left out.
bool isDefault(const AttrDef &d, const Attr &a);

} // namespace zcc
