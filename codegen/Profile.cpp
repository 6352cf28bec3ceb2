// Reads, writes and looks into the profile of a machine.
#include "codegen/Profile.h"
#include "ir/Diag.h"
#include "passes/options/ConfigText.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include <cmath>
#include <cstdlib>
#include <map>

using namespace zcc;
using llvm::StringRef;
using llvm::Twine;

namespace {
/// How a rate goes with the threads of a rank.
enum class Scaling {
  Cores,    ///< more threads do more
  Channels, ///< as Cores up to what was measured; then memory gives no more
  Team,     ///< as measured with the nearest number of threads
  Whole,    ///< not at all
  Shared,   ///< not at all; the ranks on a machine's cores share it
  Taken     ///< not at all; without limit where the machine has cores that no thread computes on
};
struct RateRow {
  Rate rate;
  const char *key;
  Scaling scaling;
};
} // namespace

static constexpr RateRow kRows[] = {
#define ZCC_RATE(NAME, KEY, SCALING) {Rate::NAME, KEY, Scaling::SCALING},
#include "passes/Rates.def"
};
static constexpr int kVersion = 1, kMostThreads = 1 << 20;

static const RateRow *findRow(StringRef key) {
  const RateRow *row = llvm::find_if(kRows, [&](const RateRow &r) { return key == r.key; });
  return row == std::end(kRows) ? nullptr : row;
}
static bool isWhole(const RateRow &r) {
  return r.scaling == Scaling::Whole || r.scaling == Scaling::Shared || r.scaling == Scaling::Taken;
}

// ---- looking into it

/// The rate with `threads`, from what was measured with other numbers of them: (threads, rate), ascending.
static double rateFor(Scaling scaling, llvm::ArrayRef<std::pair<int, double>> measured, int threads) {
  auto [least, first] = measured.front();
  auto [most, last] = measured.back();
  if (threads <= least)
    return scaling == Scaling::Team ? first : first * threads / least;
  if (threads >= most)
    return scaling == Scaling::Cores ? last * threads / most : last;
  auto above = llvm::find_if(measured, [&](auto &p) { return p.first >= threads; });
  auto [n0, r0] = *std::prev(above);
  auto [n1, r1] = *above;
  return r0 + (r1 - r0) * (threads - n0) / (n1 - n0);
}

/// What stands for a rate that an older profile does not have.
static constexpr std::pair<Rate, Rate> kSubstitutes[] = {{Rate::ConvolutionInput, Rate::Convolution},
                                                         {Rate::ConvolutionWeight, Rate::Convolution},
                                                         {Rate::LowConvolutionInput, Rate::LowConvolution},
                                                         {Rate::LowConvolutionWeight, Rate::LowConvolution},
                                                         {Rate::Operations, Rate::Large},
                                                         {Rate::NearBytes, Rate::Bytes},
                                                         {Rate::ShortLink, Rate::Link},
                                                         {Rate::NearLink, Rate::ShortLink},
                                                         {Rate::DiskWrites, Rate::Disk}};

/// A rank's part of what the threads of all ranks get that were measured together.
static double partOfRate(Scaling scaling, llvm::ArrayRef<std::pair<int, double>> measured, int threads, int ranks) {
  double alone = rateFor(scaling, measured, threads);
  if (scaling != Scaling::Channels)
    return alone;
  const int all = int(std::min<int64_t>(int64_t(threads) * ranks, std::max(threads, measured.back().first)));
  return std::min(alone, rateFor(scaling, measured, all) * threads / all);
}

void Profile::apply(Machine &m, int threads, int ranks) const {
  std::array<bool, kRates> isKnown{};
  const int cores = byThreads.empty() ? threads : byThreads.rbegin()->first;
  const bool hasIdleCores = int64_t(threads) * ranks < cores;
  const int ranksHere = std::clamp(cores / threads, 1, std::max(1, ranks));
  for (const RateRow &row : kRows) {
    if (auto i = whole.find(row.rate); i != whole.end()) {
      m[row.rate] = i->second;
      if (row.scaling == Scaling::Taken && hasIdleCores)
        m[row.rate] = std::numeric_limits<double>::infinity();
      if (row.scaling == Scaling::Shared)
        m[row.rate] /= ranksHere;
      isKnown[size_t(row.rate)] = true;
    }
    std::vector<std::pair<int, double>> measured;
    for (auto &[n, rates] : byThreads)
      if (auto i = rates.find(row.rate); i != rates.end())
        measured.push_back({n, i->second});
    bool isAlone = row.rate == Rate::Teams && threads == 1;
    if (measured.empty() || isAlone)
      continue;
    m[row.rate] = partOfRate(row.scaling, measured, threads, ranks);
    isKnown[size_t(row.rate)] = true;
  }
  for (auto [rate, substitute] : kSubstitutes)
    if (isKnown[size_t(substitute)] && !isKnown[size_t(rate)]) {
      m[rate] = m[substitute];
      isKnown[size_t(rate)] = true; // for what it stands for in turn
    }
}

/// How far extents are apart, in factors of two.
static double distance(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) {
  double sum = 0;
  for (auto [x, y] : llvm::zip_equal(a, b))
    sum += std::abs(std::log2(double(std::max<int64_t>(1, x))) - std::log2(double(std::max<int64_t>(1, y))));
  return sum;
}

/// "conv f32 points 64 256 196" -> ("conv f32 points", {64, 256, 196}).
static zccrt::cpu::WayCase parseCase(StringRef text) {
  zccrt::cpu::WayCase c;
  int64_t extent;
  for (auto [head, last] = text.rsplit(' '); !last.getAsInteger(10, extent); std::tie(head, last) = text.rsplit(' ')) {
    c.extents.insert(c.extents.begin(), extent);
    text = head;
  }
  c.kind = text.str();
  return c;
}

std::string zcc::textOf(const zccrt::cpu::WayCase &c) {
  std::string text = c.kind;
  for (int64_t extent : c.extents)
    text += " " + std::to_string(extent);
  return text;
}

std::string Profile::wayOf(const zccrt::cpu::WayCase &c, int threads) const {
  auto measured = waysByThreads.upper_bound(threads);
  if (measured == waysByThreads.begin())
    return "";
  std::string nearest;
  double least = std::numeric_limits<double>::infinity();
  for (auto &[text, way] : std::prev(measured)->second) {
    const zccrt::cpu::WayCase sample = parseCase(text);
    if (sample.kind != c.kind || sample.extents.size() != c.extents.size())
      continue;
    if (double d = distance(sample.extents, c.extents); d < least) {
      least = d;
      nearest = way;
    }
  }
  return nearest == kOwnWay ? "" : nearest;
}

void Profile::merge(const Profile &newer) {
  cpu = newer.cpu;
  for (auto &[rate, value] : newer.whole)
    whole[rate] = value;
  for (auto &[threads, rates] : newer.byThreads)
    for (auto &[rate, value] : rates)
      byThreads[threads][rate] = value;
  for (auto &[threads, ways] : newer.waysByThreads)
    waysByThreads[threads] = ways;
}

// ---- reading

static llvm::Error readRates(const llvm::json::Value &v, StringRef where, bool wantsWhole, Profile::Rates &to) {
  const llvm::json::Object *o = v.getAsObject();
  if (!o)
    return error("'" + where + "' must be an object of rates");
  for (auto &[key, value] : *o) {
    std::string path = (where + "." + StringRef(key)).str();
    const RateRow *row = findRow(key);
    if (!row)
      return error("there is no rate '" + path + "'");
    if (isWhole(*row) != wantsWhole)
      return error("'" + path + "' belongs into '" + (wantsWhole ? "threads.N" : "rates") + "'");
    auto rate = value.getAsNumber();
    if (!rate || !std::isfinite(*rate) || *rate <= 0)
      return error("'" + path + "' must be a number above 0");
    to[row->rate] = *rate;
  }
  return llvm::Error::success();
}

static llvm::Error readWays(const llvm::json::Value &v, StringRef where, Profile::Ways &to) {
  const llvm::json::Object *o = v.getAsObject();
  if (!o)
    return error("'" + where + "' must be an object of ways");
  for (auto &[key, value] : *o) {
    const zccrt::cpu::WayCase sample = parseCase(key);
    const std::vector<std::string> ways = zccrt::cpu::waysOf(sample.kind);
    const auto way = value.getAsString();
    if (ways.empty() || sample.extents.empty() || *llvm::min_element(sample.extents) < 1)
      return error("'" + where + "." + StringRef(key) + "' is nothing that has ways");
    if (!way || (*way != Profile::kOwnWay && !llvm::is_contained(ways, *way)))
      return error("'" + where + "." + StringRef(key) + "' must be " + Profile::kOwnWay + ", " + llvm::join(ways, ", "));
    to[StringRef(key).str()] = way->str();
  }
  return llvm::Error::success();
}

/// read(value, where, what belongs to so many threads), for each of them.
template <class T, class F>
static llvm::Error readByThreads(const llvm::json::Value &v, StringRef name, std::map<int, T> &to, F read) {
  const llvm::json::Object *o = v.getAsObject();
  if (!o)
    return error("'" + name + "' must be an object with an object for each number of threads");
  for (auto &[key, value] : *o) {
    int threads;
    StringRef text = key;
    if (text.getAsInteger(10, threads) || threads < 1 || threads > kMostThreads)
      return error("'" + name + "." + text + "' must be named by a number of threads");
    if (llvm::Error e = read(value, (name + "." + text).str(), to[threads]))
      return e;
  }
  return llvm::Error::success();
}

static llvm::Error readPart(StringRef name, const llvm::json::Value &v, Profile &p) {
  if (name == "rates")
    return readRates(v, name, /*wantsWhole=*/true, p.whole);
  if (name == "threads")
    return readByThreads(v, name, p.byThreads, [](auto &value, StringRef where, Profile::Rates &to) {
      return readRates(value, where, /*wantsWhole=*/false, to);
    });
  if (name == "ways")
    return readByThreads(v, name, p.waysByThreads, readWays);
  return error("a profile has no '" + name + "'; there are version, cpu, rates, threads and ways");
}

llvm::Expected<Profile> zcc::parseProfile(StringRef text) {
  auto root = parseConfigText(text);
  if (!root)
    return root.takeError();
  Profile p;
  const llvm::json::Object &o = *root->getAsObject();
  if (o.getInteger("version") != kVersion)
    return error("it has no \"version\": " + Twine(kVersion) + ", so it is no profile of this zcc; zcc --calibrate makes one");
  for (auto &[key, value] : o) {
    StringRef name = key;
    if (name == "version")
      continue;
    if (name == "cpu") {
      auto cpu = value.getAsString();
      if (!cpu)
        return error("'cpu' must be a text");
      p.cpu = cpu->str();
      continue;
    }
    if (llvm::Error e = readPart(name, value, p))
      return e;
  }
  return p;
}

llvm::Expected<Profile> zcc::readProfile(StringRef path) {
  constexpr uint64_t kMostBytes = 1 << 20;
  auto named = [&](const Twine &why) { return error("profile '" + path + "': " + why); };
  llvm::sys::fs::file_status status;
  if (std::error_code ec = llvm::sys::fs::status(path, status))
    return named(ec.message());
  if (status.type() != llvm::sys::fs::file_type::regular_file)
    return named("it is no file");
  if (status.getSize() > kMostBytes)
    return named("it is too large for a profile");
  auto text = llvm::MemoryBuffer::getFile(path);
  if (!text)
    return named(text.getError().message());
  auto p = parseProfile((*text)->getBuffer());
  if (!p)
    return named(llvm::toString(p.takeError()));
  p->path = path.str();
  return p;
}

// ---- writing

static llvm::json::Object toObject(const Profile::Rates &rates) {
  llvm::json::Object o;
  for (const RateRow &row : kRows)
    if (auto i = rates.find(row.rate); i != rates.end())
      o[row.key] = i->second;
  return o;
}

std::string Profile::json() const {
  llvm::json::Object threads;
  for (auto &[n, rates] : byThreads)
    threads[std::to_string(n)] = toObject(rates);
  llvm::json::Object o{{"version", kVersion}, {"cpu", cpu}, {"rates", toObject(whole)}, {"threads", std::move(threads)}};
  llvm::json::Object ways;
  for (auto &[n, table] : waysByThreads)
    for (auto &[sample, way] : table)
      ways.try_emplace(std::to_string(n), llvm::json::Object()).first->second.getAsObject()->insert({sample, way});
  if (!ways.empty())
    o["ways"] = std::move(ways);
  return llvm::formatv("{0:2}\n", llvm::json::Value(std::move(o)));
}

// ---- this machine

std::string zcc::cpuName() {
  auto text = llvm::MemoryBuffer::getFileAsStream("/proc/cpuinfo");
  if (!text)
    return "cpu";
  for (StringRef line : llvm::split((*text)->getBuffer(), '\n'))
    if (auto [key, value] = line.split(':'); key.trim() == "model name" && !value.trim().empty())
      return value.trim().str();
  return "cpu";
}

std::string zcc::ownProfilePath() {
  llvm::SmallString<128> path;
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (cache && llvm::sys::path::is_absolute(cache))
    path = cache;
  else if (home && *home)
    llvm::sys::path::append(path, home, ".cache");
  else
    return "";
  std::string name;
  for (char c : cpuName())
    if (llvm::isAlnum(c))
      name += c;
    else if (!name.empty() && name.back() != '-')
      name += '-';
  llvm::sys::path::append(path, "zcc", StringRef(name).rtrim('-') + ".json");
  return path.str().str();
}
