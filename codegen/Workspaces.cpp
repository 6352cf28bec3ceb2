#include "codegen/Workspaces.h"
#include "codegen/KernelCall.h"
#include "ir/Op.h"
#include <cstring>
#include <mutex>

using namespace zcc;

/// All that a kernel's answer may depend on.
static std::string keyOf(const KernelCall &c) {
  std::string key = c.kernel->name;
  auto add = [&](const auto *p, size_t count) {
    size_t size = count * sizeof *p;
    key.append(reinterpret_cast<const char *>(&size), sizeof size);
    key.append(reinterpret_cast<const char *>(p), size);
  };
  add(c.tensors.data(), c.tensors.size());
  for (const zccrt_attr &a : c.attrs) {
    add(a.name, strlen(a.name));
    if (a.ints)
      add(a.ints, a.n);
    if (a.floats)
      add(a.floats, a.n);
    if (a.str)
      add(a.str, strlen(a.str));
  }
  return key;
}

int64_t Workspaces::bytes(const Node &n) {
  auto call = KernelCall::make(*n.parent(), n, target_);
  if (!call) {
    llvm::consumeError(call.takeError()); // the emitter reports it
    return 0;
  }
  std::string key = keyOf(**call);
  {
    std::shared_lock lock(mutex_);
    if (auto at = known_.find(key); at != known_.end())
      return at->second;
  }
  std::unique_lock lock(mutex_);
  auto [at, isNew] = known_.try_emplace(key, 0);
  if (isNew)
    at->second = (*call)->workspace();
  return at->second;
}
