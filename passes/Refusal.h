// What passes say about the user's request or model, as against what is wrong with zcc.
#pragma once

#include "ir/Diag.h"

namespace zcc {

/// An error of a pass that did what it should: the model or an option asks for what cannot be. Any
/// other error of a pass is a fault of zcc's, for which PassManager leaves a reproducer.
class Refusal : public llvm::ErrorInfo<Refusal, llvm::StringError> {
public:
  static char ID;
  explicit Refusal(const llvm::Twine &text) : ErrorInfo(text, std::make_error_code(std::errc::invalid_argument)) {}
};

/// error() and errorAt() of ir/Diag.h, as refusals.
llvm::Error refuse(const llvm::Twine &msg);
llvm::Error refuseAt(const Loc &loc, const llvm::Twine &msg);

} // namespace zcc
