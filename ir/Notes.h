// The table of what passes note on nodes, globals and the module (Notes.def).
#pragma once

#include "ir/Op.h"

namespace zcc {

struct NoteDef {
  enum Of { Node, Global, Module };
  const char *name; ///< a `*` in it stands for any text
  Of of;
  AttrKind kind;
  const char *writer, *readers, *summary;
};

llvm::ArrayRef<NoteDef> allNotes();
/// What is wrong with a note, or "".
std::string checkNote(NoteDef::Of of, llvm::StringRef name, const Attr &value);

} // namespace zcc
