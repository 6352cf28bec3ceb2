// Marks are a number's index between two '$', which C++ text has nowhere else.
#include "codegen/OpenNumbers.h"
#include "llvm/ADT/STLExtras.h"

using namespace zcc;
using llvm::StringRef;

constexpr char kMark = '$';

std::string OpenNumbers::mark(OpenNumber n) {
  size_t i = llvm::find(numbers, n) - numbers.begin();
  if (i == numbers.size())
    numbers.push_back(std::move(n));
  return kMark + std::to_string(i) + kMark;
}

std::string zcc::replaceMarks(StringRef text, llvm::ArrayRef<std::string> texts) {
  std::string out;
  while (true) {
    auto [before, rest] = text.split(kMark);
    out += before;
    if (rest.empty())
      return out;
    auto [index, after] = rest.split(kMark);
    size_t i = 0;
    bool failed = index.getAsInteger(10, i);
    assert(!failed && "a mark is no number");
    (void)failed;
    out += texts[i];
    text = after;
  }
}
