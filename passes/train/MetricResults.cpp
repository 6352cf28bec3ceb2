// Finds results by their names: their places change where passes drop outputs.
#include "passes/train/MetricResults.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace zcc;
using llvm::StringRef;

static Value *resultNamed(const Function &f, const std::string &name) {
  auto at = llvm::find(f.resultNames, name);
  return at == f.resultNames.end() ? nullptr : f.results[at - f.resultNames.begin()];
}

bool zcc::isMetricResult(const Module &m, StringRef name) {
  const std::string names = m.attrs.s("metrics");
  if (!name.consume_front("metric."))
    return false;
  auto has = [&](StringRef n) { return llvm::is_contained(llvm::split(names, ' '), n); };
  return has(name) || (name.consume_back(".weight") && has(name));
}

std::vector<MetricResults> zcc::metricsOf(const Module &m, const Function &f) {
  std::vector<MetricResults> all;
  const std::string names = m.attrs.s("metrics");
  const std::vector<int64_t> exponentials = m.attrs.ints("metrics_exp");
  for (StringRef name : llvm::split(names, ' ')) {
    if (name.empty())
      continue;
    const std::string result = "metric." + name.str();
    all.push_back({name.str(), llvm::is_contained(exponentials, int64_t(all.size())), resultNamed(f, result),
                   resultNamed(f, result + ".weight")});
  }
  return all;
}
