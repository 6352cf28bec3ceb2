// Any text is a configuration, or refused. What JSON's own reader takes means the same to ours, and flags come out that are
// there.
#include "passes/options/Config.h"
#include "passes/options/ConfigText.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdlib>

using namespace zcc;

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  llvm::errs().SetUnbuffered();
  return 0;
}

/// Ours refuses a key that an object has twice, and brackets too deep; it changes nothing.
static void compareWithJson(llvm::StringRef text) {
  auto ours = parseConfigText(text);
  auto json = llvm::json::parse(text);
  bool isSame = !ours || !json || *ours == *json;
  if (!ours)
    llvm::consumeError(ours.takeError());
  if (!json)
    llvm::consumeError(json.takeError());
  if (!isSame)
    abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  llvm::StringRef text(reinterpret_cast<const char *>(data), size);
  compareWithJson(text);
  static const std::vector<std::string> flags = flagNames();
  for (const FlagValues &given : {FlagValues{}, FlagValues{{"ranks", "4"}, {"zero", "3"}, {"lr", "0.5"}}}) {
    auto config = resolveConfig(text, given, flags);
    if (!config) {
      llvm::consumeError(config.takeError());
      continue;
    }
    for (auto &[flag, value] : config->flags)
      if (!llvm::is_contained(flags, flag))
        abort();
    addFlags(config->settings, given);
    llvm::consumeError(checkBatch(*config, /*modelBatch=*/4, /*dimGiven=*/false));
  }
  return 0;
}
