// Any text is a configuration, or refused. JSON means what it means to others, and flags come out that are there.
#include "passes/options/Config.h"
#include "passes/options/ConfigText.h"
#include "passes/options/PassOptions.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdlib>

using namespace zcc;

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  llvm::errs().SetUnbuffered();
  declareOptions(sharedOptions());
  return 0;
}

/// JSON as a printer writes it means the same to our reader, which refuses nothing of it but what is too deep or no object.
static void compareWithJson(llvm::StringRef text) {
  auto json = llvm::json::parse(text); // takes more than JSON
  if (!json)
    return llvm::consumeError(json.takeError());
  auto ours = parseConfigText(llvm::formatv("{0:2}", *json).str());
  if (!ours)
    return llvm::consumeError(ours.takeError());
  if (*ours != *json)
    abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  llvm::StringRef text(reinterpret_cast<const char *>(data), size);
  compareWithJson(text);
  static const std::vector<std::string> flags = optionNames();
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
