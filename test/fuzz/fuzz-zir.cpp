// Any text is parsed, or refused; what parses prints to text that parses again.
#include "ir/Text.h"
#include "llvm/Support/Error.h"
#include <cstdlib>
#include <unistd.h>

using namespace zcc;

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  llvm::errs().SetUnbuffered();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  llvm::StringRef text(reinterpret_cast<const char *>(data), size);
  auto m = parse(text);
  if (!m) {
    llvm::consumeError(m.takeError());
    return 0;
  }
  auto again = parse(toText(**m));
  if (!again) {
    llvm::consumeError(again.takeError());
    abort();
  }
  return 0;
}
