// Prints the plan as text, and says what does not fit the budgets.
#include "codegen/Plan.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>

using namespace zcc;
using llvm::formatv;

// ---- budgets

std::string zcc::sizeText(int64_t bytes) {
  const char *units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double v = double(bytes);
  int u = 0;
  for (; v >= 1024 && u < 4; ++u)
    v /= 1024;
  return u ? formatv("{0:f2} {1}", v, units[u]).str() : formatv("{0} bytes", bytes).str();
}

/// "a rank needs 2.00 GiB, --memory is 1.00 GiB: 1.00 GiB too little".
static std::string shortage(const char *what, int64_t need, const char *flag, int64_t budget) {
  return formatv("{0} {1}, --{2} is {3}: {4} too little", what, sizeText(need), flag, sizeText(budget), sizeText(need - budget));
}

/// The ten largest of what is there at the peak.
static void addLargest(std::string &s, const Plan &p) {
  constexpr size_t kMost = 10;
  std::vector<LiveItem> all = p.live;
  all.insert(all.end(), p.residents.begin(), p.residents.end());
  llvm::stable_sort(all, [](const LiveItem &a, const LiveItem &b) { return a.bytes > b.bytes; });
  for (size_t i = 0; i < std::min(all.size(), kMost); ++i)
    s += formatv("\nnote: {0} of it: {1}{2}{3}", sizeText(all[i].bytes), all[i].name, all[i].node.empty() ? "" : ", node ",
                 all[i].node);
}

llvm::Error zcc::checkBudget(const Plan &p, const Options &o) {
  if (fits(p.needs, o))
    return llvm::Error::success();
  Needs over = excessOf(p.needs, o);
  std::vector<std::string> shortages;
  if (over.memory)
    shortages.push_back(shortage("a rank needs", p.needs.memory, "memory", o.memoryBudget) +
                        formatv(" ({0} model state, {1} values most at {2}, {3} libraries, {4} for checkpoints)",
                                sizeText(p.modelStateBytes), sizeText(p.peakBytes), p.peakAt,
                                sizeText(p.deviceLibraryBytes ? p.deviceLibraryBytes : p.libraryBytes),
                                sizeText(p.deviceLibraryBytes ? 0 : p.saveBytes))
                            .str());
  if (over.host)
    shortages.push_back(shortage("a rank needs of host memory", p.needs.host, "host-memory", o.hostBudget));
  if (over.disk)
    shortages.push_back(shortage("a rank needs on disks", p.needs.disk, "nvme", o.nvmeBudget));
  std::string s = llvm::join(shortages, "\nnote: ");
  if (over.memory)
    addLargest(s, p);
  for (const std::string &line : p.search ? p.search->advice : std::vector<std::string>())
    s += "\nnote: " + line;
  return error(s);
}

// ---- text

double zcc::aboveBound(const PlanReport &r) {
  return double(r.taken.ns - r.bound.ns()) / double(std::max<int64_t>(r.bound.ns(), 1));
}

double zcc::terabytesADay(const Plan &p) {
  return p.step.seconds > 0 ? p.ranks * p.step.diskWrites() / p.step.seconds * 86400 / 1e12 : 0;
}

static void printNames(llvm::raw_ostream &os, llvm::ArrayRef<std::string> names) {
  constexpr size_t kMost = 8;
  os << names.size() << (names.size() == 1 ? " tensor" : " tensors");
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i)
    os << (i ? ", " : ": ") << names[i];
  if (names.size() > kMost)
    os << ", and " << names.size() - kMost << " more";
  os << '\n';
}

std::string zcc::durationText(double seconds) {
  bool isShort = seconds < 0.1;
  return formatv("{0:f3} {1}", seconds * (isShort ? 1e3 : 1), isShort ? "ms" : "s");
}

/// What was chosen, what came next, and how far that is from what no plan avoids.
static void printSearch(const PlanReport &r, llvm::raw_ostream &os) {
  auto needs = [](const PlanChoice &c) {
    std::string s = formatv("{0}, {1} of memory", durationText(secondsOf(c.ns)), sizeText(c.needs.memory));
    if (c.needs.host)
      s += ", " + sizeText(c.needs.host) + " of host memory";
    return c.needs.disk ? s + ", " + sizeText(c.needs.disk) + " on disks" : s;
  };
  auto list = [&](const char *what, const PlanChoice &c) {
    os << formatv("    {0,-13} {1}\n", what, needs(c));
    for (const std::string &d : c.decisions)
      os << "      " << d << '\n';
  };
  os << formatv("\n  the plan, of {0} that were tried\n", r.tried);
  if (r.taken.decisions.empty()) {
    list("choice", r.taken);
    os << "      all else is kept, and stays on the device\n";
  } else {
    list("without", r.plain);
    list("choice", r.taken);
  }
  if (r.second)
    list("runner-up", *r.second);
  os << formatv("    no plan takes less than {0}", durationText(secondsOf(r.bound.ns())));
  const char *sep = ": ";
  for (size_t e = 0; e < kEngines; ++e)
    if (r.bound.busyNs[e]) {
      os << sep << engineName(EngineKind(e)) << ' ' << durationText(secondsOf(r.bound.busyNs[e]));
      sep = ", ";
    }
  if (r.bound.bytesAway)
    os << formatv(" (at least {0} cannot stay)", sizeText(r.bound.bytesAway));
  size_t compute = size_t(EngineKind::Compute);
  os << formatv("\n    the choice takes {0:f1} % more: {1} of it is computed again, in smaller pieces or taken by transfers, "
                "{2} waits for other engines\n",
                100 * aboveBound(r),
                durationText(secondsOf(std::max<int64_t>(r.taken.busyNs[compute] - r.bound.busyNs[compute], 0))),
                durationText(secondsOf(std::max<int64_t>(r.taken.ns - r.taken.busyNs[compute], 0))));
  for (const std::string &why : r.gap)
    os << "      " << why << '\n';
}

/// What bounds the nodes that a device computes, and how often it is given work.
static void printDevice(const Plan &p, llvm::raw_ostream &os) {
  for (auto &[name, seconds] : p.step.bound)
    os << formatv("      {0,-24} {1}\n", "bound by " + name, durationText(seconds));
  os << formatv("    launches                   {0:f0}, {1}\n", p.launches,
                p.noGraph.empty() ? "by CUDA graphs" : "one by one: " + p.noGraph);
}

void zcc::print(const Plan &p, llvm::raw_ostream &os) {
  os << formatv("{0}: {1} rank{2}, {3} thread{4} each, stage {5}\n", p.model, p.ranks, p.ranks > 1 ? "s" : "", p.threads,
                p.threads > 1 ? "s" : "", p.zero);
  os << formatv("  parameters  {0} elements\n", p.parameters);
  os << "    trained   ";
  printNames(os, p.trained);
  if (!p.frozen.empty()) {
    os << "    frozen    ";
    printNames(os, p.frozen);
  }
  os << formatv("\n  memory of a rank, device: {0} ({1} bytes)\n", sizeText(p.arenaBytes), p.arenaBytes);
  os << formatv("    model state   {0}\n", sizeText(p.modelStateBytes));
  if (p.persistingBytes)
    os << formatv("    persisting    {0}, small parameters kept whole\n", sizeText(p.persistingBytes));
  os << formatv("    constants     {0}\n", sizeText(p.constantBytes));
  if (p.packedBytes)
    os << formatv("    packed        {0}, weights as libraries want them\n", sizeText(p.packedBytes));
  os << formatv("    inputs, loss  {0}\n", sizeText(p.inputBytes));
  os << formatv("    values        {0}, most at {1}\n", sizeText(p.peakBytes), p.peakAt);
  constexpr size_t kMost = 12;
  for (size_t i = 0; i < std::min(p.live.size(), kMost); ++i)
    os << formatv("      {0,-12} {1}{2}\n", sizeText(p.live[i].bytes), p.live[i].name,
                  p.live[i].node.empty() ? "" : "  " + p.live[i].node);
  if (p.live.size() > kMost) {
    int64_t rest = 0;
    for (size_t i = kMost; i < p.live.size(); ++i)
      rest += p.live[i].bytes;
    os << formatv("      {0,-12} in {1} more\n", sizeText(rest), p.live.size() - kMost);
  }
  if (p.gradientBytes)
    os << formatv("      of them gradients of parameters {0}; of all else {1} at the most\n", sizeText(p.gradientBytes),
                  sizeText(p.activationBytes));
  if (p.deviceLibraryBytes)
    os << formatv("    libraries     {0}, workspace of products and what collectives receive\n", sizeText(p.deviceLibraryBytes));
  int64_t total =
      p.modelStateBytes + p.persistingBytes + p.constantBytes + p.packedBytes + p.inputBytes + p.peakBytes + p.deviceLibraryBytes;
  if (p.gatheredBytes)
    os << formatv("    of the values, gathered parameters alive at once: {0}\n", sizeText(p.gatheredBytes));
  if (p.arenaBytes > total)
    os << formatv("    gaps          {0}\n", sizeText(p.arenaBytes - total));
  for (auto &[space, s] : p.elsewhere) {
    os << formatv("  memory of a rank, {0}: {1} ({2} bytes)\n", spaceName(space), sizeText(s.arenaBytes), s.arenaBytes);
    os << formatv("    model state   {0}\n", sizeText(s.modelStateBytes));
    if (s.peakBytes)
      os << formatv("    values        {0}, most at {1}\n", sizeText(s.peakBytes), s.peakAt);
  }
  os << formatv("  libraries, besides: {0}\n", sizeText(p.libraryBytes));
  if (p.stagingBytes)
    os << formatv("  where ranks share a device or NCCL is not used (--comm=mpi), besides: {0} of pinned memory\n",
                  sizeText(p.stagingBytes));
  os << formatv("  with --save, besides: {0}\n", sizeText(p.saveBytes));
  os << formatv("\n  a step\n    floating-point operations  {0:e3}\n", p.step.flops);
  for (auto &[name, bytes] : p.step.sent)
    os << formatv("    {0,-26} {1} {2} by a rank\n", name, sizeText(int64_t(bytes)),
                  llvm::StringRef(name).contains(' ') ? "moved" : "sent");
  os << formatv("    predicted                  {0}, bound by {1}\n", durationText(p.step.seconds), p.step.boundBy);
  if (llvm::count_if(p.step.busy, [](double s) { return s > 0; }) > 1)
    for (size_t e = 0; e < kEngines; ++e)
      if (double seconds = p.step.busy[e])
        os << formatv("      {0,-24} busy {1}\n", engineName(EngineKind(e)), durationText(seconds));
  if (p.launches)
    printDevice(p, os);
  os << formatv("    by the rates of            {0}\n", p.ratesFrom);
  if (p.step.diskWrites())
    os << formatv("    written to disks           {0:f1} TB a day at that speed\n", terabytesADay(p));
  if (p.search)
    printSearch(*p.search, os);
  auto list = [&](const char *head, llvm::ArrayRef<std::string> lines) {
    if (!lines.empty())
      os << "\n  " << head << '\n';
    for (const std::string &l : lines)
      os << "    " << l << '\n';
  };
  if (!p.settings.empty())
    os << "\n  settings\n";
  for (const Setting &s : p.settings)
    os << formatv("    {0} = {1}  ({2})\n", s.key, s.value, s.reason);
  list("decisions", p.decisions);
  list("remarks", p.remarks);
}
