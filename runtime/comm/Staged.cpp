// Copies down, communicates, copies up.
#include "runtime/comm/Staged.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"

namespace zccrt {

void StagedCollectives::start(int slot, const std::vector<StagedPart> &parts,
                              std::function<void(const std::vector<Part> &parts)> communicate) {
  constexpr auto kStream = Device::Collectives;
  int64_t bytes = 0;
  for (const StagedPart &p : parts)
    bytes += aligned(p.inBytes) + aligned(p.outBytes);
  if (bytes > room)
    endJob(format("a bucket of %lld bytes of the %lld that are staged", static_cast<long long>(bytes),
                  static_cast<long long>(room)));
  on.wait(kStream, on.mark(Device::Compute));
  std::vector<Part> staged;
  char *at = memory.base();
  for (const StagedPart &p : parts) {
    staged.push_back({at, at + aligned(p.inBytes), p.part.count});
    on.copy(kStream, at, p.part.in, p.inBytes);
    at += aligned(p.inBytes) + aligned(p.outBytes);
  }
  on.call(kStream, [staged, communicate = std::move(communicate)] { communicate(staged); });
  for (size_t i = 0; i < parts.size(); ++i)
    on.copy(kStream, parts[i].part.out, staged[i].out, parts[i].outBytes);
  marks[slot] = on.mark(kStream);
}

void StagedCollectives::wait(int slot) {
  if (marks[slot].number)
    on.wait(Device::Compute, marks[slot]);
  marks[slot] = {};
}

} // namespace zccrt
