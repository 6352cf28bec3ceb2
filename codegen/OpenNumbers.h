// Numbers in a kernel's text that kernels with the same loops may have otherwise: outer extents and strides, long inner extents,
// factors. They are marks there, so that kernels that differ in nothing else have one text, hence one function that is given
// them.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <string>
#include <vector>

namespace zcc {

struct OpenNumber {
  std::string type, text; ///< "int64_t" and "240", "float" and "float(0.25)"
  bool operator==(const OpenNumber &) const = default;
};

class OpenNumbers {
public:
  /// What stands for a number in the text. Equal ones share it: the compiler shall see that two strides are the same.
  std::string mark(OpenNumber n);
  llvm::ArrayRef<OpenNumber> all() const { return numbers; }

private:
  std::vector<OpenNumber> numbers;
};

/// `text` with texts[i] instead of the mark of number i.
std::string replaceMarks(llvm::StringRef text, llvm::ArrayRef<std::string> texts);

} // namespace zcc
