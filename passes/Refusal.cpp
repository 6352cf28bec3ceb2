// Makes refusals with a node's location.
#include "passes/Refusal.h"

using namespace zcc;

char Refusal::ID = 0;

llvm::Error zcc::refuse(const llvm::Twine &msg) { return llvm::make_error<Refusal>(msg); }

llvm::Error zcc::refuseAt(const Loc &loc, const llvm::Twine &msg) {
  return llvm::make_error<Refusal>(llvm::toString(errorAt(loc, msg)));
}
