// The parser of .zir as one class: modules, functions and nodes in Parser.cpp, globals in ParseGlobals.cpp.
#pragma once

#include "ir/Reader.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/MemoryBuffer.h"

namespace zcc {

class Parser : Reader {
  std::unique_ptr<Module> m = std::make_unique<Module>();
  llvm::StringMap<Value *> locals;
  Function *fn = nullptr;
  llvm::DenseMap<const Node *, Phase> phases;           ///< that the function's text names
  llvm::DenseMap<const void *, const char *> positions; ///< of nodes, globals and functions
  std::string folder;

public:
  Parser(std::unique_ptr<llvm::MemoryBuffer> text, llvm::StringRef dir) : Reader(std::move(text)), folder(dir) {
    m->folder = folder;
  }
  llvm::Expected<std::unique_ptr<Module>> run();

private:
  bool module();
  bool properties();
  bool item();
  bool data();
  bool verify();
  std::string inFolder(llvm::StringRef path) const;

  bool global();
  bool init(const Type &t, Init &i);
  bool from(Init &i);
  bool box(const Type &t, Init &i);
  bool number(double &v);
  bool range(Init &i);
  bool hex(const Type &t, Init &i);
  bool listed(const Type &t, Init &i);
  void embed(llvm::StringRef bytes, Init &i);
  void encoding(Init &i);
  bool globalAttrs(GlobalValue &g);

  bool function();
  bool argument();
  bool resultList(std::vector<std::pair<Type, Token>> &types);
  bool returns(const std::vector<std::pair<Type, Token>> &types);
  bool node();
  bool operands(Node &n);
  bool nodeAttrs(Node &n);
  bool resultTypes(Node &n, const std::vector<Token> &names, const Token &opTok);
  bool define(Node &n, const Token &name, const Type &t);
  bool value(Value *&v);
  bool unused(const Token &name);
};

} // namespace zcc
