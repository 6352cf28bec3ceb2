// zcc-nvme: measures the disk engine of compiled programs in a folder, over block sizes and depths, as fio does.
#include "passes/options/CommandLine.h"
#include "passes/options/Help.h"
#include "runtime/Fail.h"
#include "runtime/OutFile.h"
#include "tools/DiskRates.h"
#include "tools/Process.h"
#include "tools/ProfileFile.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <climits>

using namespace zcc;
using llvm::StringRef;
namespace cl = llvm::cl;

static cl::opt<std::string> folders(cl::Positional, cl::desc("DIR[,DIR]"), cl::cat(optionCategory()));
static cl::opt<std::string> size("size", cl::desc("of the file that is made, read and written"), cl::value_desc("SIZE"),
                                 cl::init("1GiB"), cl::cat(optionCategory()));
static cl::opt<std::string> blocks("block", cl::desc("block sizes"), cl::value_desc("SIZE[,SIZE]"), cl::init("128KiB,1MiB,4MiB"),
                                   cl::cat(optionCategory()));
static cl::opt<std::string> depths("depth", cl::desc("blocks in flight, for each folder"), cl::value_desc("N[,N]"),
                                   cl::init("1,4,16,32"), cl::cat(optionCategory()));
static cl::opt<std::string> memory("memory", cl::desc("that each direction goes through: what caches hold may be faster"),
                                   cl::value_desc("SIZE"), cl::init("64MiB"), cl::cat(optionCategory()));
static cl::opt<std::string> engine("engine", cl::desc("auto, uring or threads"), cl::value_desc("ENGINE"), cl::init("auto"),
                                   cl::cat(optionCategory()));
static cl::opt<std::string> checksum("checksum", cl::desc("on or off"), cl::value_desc("on|off"), cl::init("on"),
                                     cl::cat(optionCategory()));
static cl::opt<std::string> json("json", cl::desc("file for what was measured"), cl::value_desc("FILE"),
                                 cl::cat(optionCategory()));
static cl::opt<std::string> profile("profile", cl::desc("profile of zcc (--calibrate) that gets the rates of the disk"),
                                    cl::value_desc("FILE"), cl::cat(optionCategory()));

namespace {
struct Cell {
  uint64_t blockBytes;
  unsigned depth;
  DiskRates rates;
};
} // namespace

// ---- options

/// "512KiB", "1MiB", "4096".
static llvm::Expected<uint64_t> readSize(StringRef option, StringRef text) {
  StringRef digits = text.take_while(llvm::isDigit), unit = text.drop_front(digits.size());
  const int shift = llvm::StringSwitch<int>(unit).Cases("", "B", 0).Case("KiB", 10).Case("MiB", 20).Case("GiB", 30).Default(-1);
  uint64_t n;
  if (shift < 0 || digits.getAsInteger(10, n) || n > uint64_t(LLONG_MAX) >> shift)
    return error("--" + option + "=" + text + ": a size is a number with KiB, MiB or GiB");
  n <<= shift;
  if (!n || n % zccrt::kNvmePage)
    return error("--" + option + "=" + text + ": it must be a multiple of 4 KiB");
  return n;
}

static llvm::Expected<std::vector<uint64_t>> readBlocks() {
  std::vector<uint64_t> out;
  for (StringRef text : llvm::split(blocks, ',')) {
    auto n = readSize("block", text);
    if (!n)
      return n.takeError();
    if (*n > uint64_t(1) << 30)
      return error("--block=" + text + ": a block has 1 GiB at most");
    out.push_back(*n);
  }
  return out;
}

static llvm::Expected<std::vector<unsigned>> readDepths() {
  constexpr unsigned kMost = 1024;
  std::vector<unsigned> out;
  for (StringRef text : llvm::split(depths, ',')) {
    unsigned n;
    if (text.getAsInteger(10, n) || !n || n > kMost)
      return error("--depth=" + text + ": a depth is a number from 1 to 1024");
    out.push_back(n);
  }
  return out;
}

/// What is the same for all cells.
static llvm::Expected<zccrt::NvmeOptions> readCommon() {
  zccrt::NvmeOptions o;
  if (folders.empty())
    return error("no folder; usage: zcc-nvme [options] DIR[,DIR]");
  for (StringRef f : llvm::split(folders, ','))
    o.paths.push_back(f.str());
  auto bytes = readSize("size", size);
  if (!bytes)
    return bytes.takeError();
  o.bytes = *bytes;
  if (engine != "auto" && engine != "uring" && engine != "threads")
    return error("--engine=" + engine + ": it is auto, uring or threads");
  o.engine = engine == "auto"    ? zccrt::NvmeEngine::Auto
             : engine == "uring" ? zccrt::NvmeEngine::Uring
                                 : zccrt::NvmeEngine::Threads;
  if (checksum != "on" && checksum != "off")
    return error("--checksum=" + checksum + ": it is on or off");
  o.checksum = checksum == "on";
  return o;
}

// ---- what is printed

static void printCell(const Cell &c) {
  auto rate = [](double bytes) { return llvm::formatv("{0:f2}", bytes / 1e9).str(); };
  const std::string block =
      c.blockBytes % (1 << 20) ? std::to_string(c.blockBytes >> 10) + " KiB" : std::to_string(c.blockBytes >> 20) + " MiB";
  llvm::outs() << llvm::formatv("{0,10}{1,8}{2,11}{3,11}{4,11}\n", block, c.depth, rate(c.rates.read), rate(c.rates.write),
                                rate(c.rates.mixed));
  llvm::outs().flush();
}

/// The cell that says what a program gets: that of the runtime's own block and depth, or else the fastest.
static const Cell &typical(const std::vector<Cell> &cells) {
  const zccrt::NvmeOptions own;
  for (const Cell &c : cells)
    if (c.blockBytes == own.blockBytes && c.depth == own.depth)
      return c;
  return *std::max_element(cells.begin(), cells.end(), [](auto &a, auto &b) { return a.rates.mixed < b.rates.mixed; });
}

static llvm::json::Object rowOf(const Cell &c) {
  return llvm::json::Object{{"block_bytes", c.blockBytes},
                            {"depth", c.depth},
                            {"read_bytes_per_s", int64_t(c.rates.read)},
                            {"write_bytes_per_s", int64_t(c.rates.write)},
                            {"mixed_bytes_per_s", int64_t(c.rates.mixed)},
                            {"read_latency_s", c.rates.readLatency},
                            {"write_latency_s", c.rates.writeLatency},
                            {"bytes_per_core_s", int64_t(c.rates.bytesPerCore)},
                            {"moves_per_core_s", int64_t(c.rates.movesPerCore)}};
}

static void writeJson(const zccrt::NvmeOptions &o, const std::vector<Cell> &cells) {
  llvm::json::Object all = rowOf(typical(cells));
  all["folders"] = llvm::json::Array(o.paths);
  all["file_bytes"] = o.bytes;
  all["engine"] = cells[0].rates.isUring ? "io_uring" : "threads";
  all["registered"] = cells[0].rates.isRegistered;
  all["checksum"] = o.checksum;
  llvm::json::Array rows;
  for (const Cell &c : cells)
    rows.push_back(rowOf(c));
  all["measured"] = std::move(rows);
  const std::string text = llvm::formatv("{0:2}\n", llvm::json::Value(std::move(all))).str();
  zccrt::OutFile file(json);
  file.write(text.data(), text.size());
  file.commit();
}

// ---- main

/// Of all block sizes and depths, printed row by row.
static std::vector<Cell> measured(zccrt::NvmeOptions o, const std::vector<uint64_t> &blockSizes,
                                  const std::vector<unsigned> &depthList, uint64_t memoryBytes) {
  std::vector<Cell> cells;
  for (uint64_t block : blockSizes)
    for (unsigned depth : depthList) {
      o.blockBytes = block;
      o.depth = depth;
      cells.push_back({block, depth, measureDisk(o, memoryBytes)});
      if (cells.size() == 1) {
        const DiskRates &r = cells[0].rates;
        for (const std::string &note : r.notes)
          llvm::errs() << "zcc-nvme: note: " << note << '\n';
        llvm::outs() << (r.isUring ? "io_uring" : "threads") << (r.isRegistered ? ", registered memory" : "")
                     << (o.checksum ? ", checksums" : "") << "; GB/s\n"
                     << llvm::formatv("{0,10}{1,8}{2,11}{3,11}{4,11}\n", "block", "depth", "read", "write", "mixed");
      }
      printCell(cells.back());
    }
  const DiskRates &r = typical(cells).rates;
  llvm::outs() << llvm::formatv("one page: read in {0:f0} us, written in {1:f0} us\n", r.readLatency * 1e6, r.writeLatency * 1e6)
               << llvm::formatv("of cores: {0:f3} s a GB, {1:f0} us a page\n", 1e9 / r.bytesPerCore, 1e6 / r.movesPerCore);
  return cells;
}

static llvm::Error measure() {
  auto o = readCommon();
  if (!o)
    return o.takeError();
  auto blockSizes = readBlocks();
  if (!blockSizes)
    return blockSizes.takeError();
  auto depthList = readDepths();
  if (!depthList)
    return depthList.takeError();
  auto memoryBytes = readSize("memory", memory);
  if (!memoryBytes)
    return memoryBytes.takeError();
  std::vector<Cell> cells;
  auto measureAll = [&] {
    cells = measured(*o, *blockSizes, *depthList, *memoryBytes);
    Profile p;
    p.cpu = cpuName();
    typical(cells).rates.addTo(p);
    return p;
  };
  if (profile.empty())
    measureAll();
  else if (auto text = updateProfile(profile, measureAll); !text)
    return text.takeError();
  if (!json.empty())
    writeJson(*o, cells);
  return llvm::Error::success();
}

static int run(int argc, char **argv) {
  if (!parseCommandLine(argc, argv, "zcc-nvme: measures how fast compiled programs read and write their state on a disk"))
    return 1;
  if (printHelp(/*inGroups=*/false))
    return 0;
  try {
    return report("zcc-nvme", measure());
  } catch (const zccrt::Failure &e) {
    return report("zcc-nvme", error(e.what()));
  }
}

int main(int argc, char **argv) {
  return zcc::runTool(argc, argv, run, [] {});
}
