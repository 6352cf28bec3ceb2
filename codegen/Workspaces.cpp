#include "codegen/Workspaces.h"
#include "codegen/KernelCall.h"
#include "ir/Op.h"
#include "runtime/cpu/Packing.h"
#include "runtime/cpu/ProductShape.h"
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

/// What a map has for a node's call, or what `ask` says then.
template <typename T, typename F>
static T lookUp(const Node &n, const Target &target, std::shared_mutex &mutex, llvm::StringMap<T> &known, F ask) {
  auto call = KernelCall::make(*n.parent(), n, target);
  if (!call) {
    llvm::consumeError(call.takeError()); // the emitter reports it
    return T();
  }
  std::string key = keyOf(**call);
  {
    std::shared_lock lock(mutex);
    if (auto at = known.find(key); at != known.end())
      return at->second;
  }
  std::unique_lock lock(mutex);
  auto [at, isNew] = known.try_emplace(key);
  if (isNew)
    at->second = ask(**call);
  return at->second;
}

int64_t Workspaces::bytes(const Node &n) {
  return lookUp(n, target_, mutex_, known_, [](const KernelCall &c) { return c.workspace(); });
}

std::optional<Target::Packing> Workspaces::packing(const Node &n, double reads) {
  if (reads < double(zccrt::cpu::leastPackedReads(performed(n)->kernel)))
    return std::nullopt;
  return lookUp(n, target_, mutex_, packings_, [](const KernelCall &c) -> std::optional<Target::Packing> {
    auto p = zccrt::cpu::packingOf(c.kernel->name, &c.call);
    if (!p)
      return std::nullopt;
    llvm::StringRef text = p->layout;
    auto layout = Layout::parse(text); // those of more blocks or axes are left
    return layout && text.empty() ? std::optional(Target::Packing{*layout, zccrt::cpu::leastPackedReads(c.kernel->name)})
                                  : std::nullopt;
  });
}

int64_t Workspaces::channelBlock(const Node &n) {
  return std::max<int64_t>(
      1, lookUp(n, target_, mutex_, blocks_, [](const KernelCall &c) { return zccrt::cpu::convBlock(&c.call); }));
}

bool Workspaces::avoidsSgemm(const Node &n) {
  return lookUp(n, target_, mutex_, avoids_, [](const KernelCall &c) { return zccrt::cpu::avoidsSgemm(&c.call); });
}

std::string Workspaces::way(const Node &n, llvm::function_ref<std::string(const KernelCall &)> ask) {
  return lookUp(n, target_, mutex_, ways_, ask);
}
