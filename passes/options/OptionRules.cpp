// Reads and prints the values of options.
#include "passes/options/OptionRules.h"
#include "ir/Pattern.h"
#include "llvm/ADT/StringSet.h"
#include <charconv>
#include <cmath>

using namespace zcc;
using llvm::StringRef;
using llvm::Twine;

std::string zcc::dashed(StringRef name) { return (name.size() == 1 ? "-" : "--") + name.str(); }

llvm::Error zcc::mustBe(StringRef name, const Twine &what, StringRef text) {
  return error("--" + name + " must be " + what + ", not '" + text + "'");
}

std::string zcc::anyOf(llvm::ArrayRef<std::string> words) {
  std::string s = llvm::join(words.drop_back(), ", ");
  return s + (s.empty() ? "" : " or ") + words.back();
}

llvm::Error Switch::read(StringRef, StringRef text, bool &to) const {
  to = text == "on";
  return llvm::Error::success();
}

llvm::Error OnOff::read(StringRef name, StringRef text, bool &to) const {
  to = text == "on";
  return to || text == "off" ? llvm::Error::success() : mustBe(name, "on or off", text);
}

llvm::Error Text::read(StringRef name, StringRef text, std::string &to) const {
  if (text.empty()) // such as a shell's variable that is not set
    return error(dashed(name) + " is given no text");
  to = text.str();
  return llvm::Error::success();
}

static bool parseNumber(StringRef s, double &v) {
  auto [end, err] = std::from_chars(s.begin(), s.end(), v);
  return err == std::errc() && end == s.end() && std::isfinite(v);
}

llvm::Error Number::read(StringRef name, StringRef text, double &to) const {
  return parseNumber(text, to) && to >= 0 ? llvm::Error::success() : mustBe(name, "a number, 0 or more", text);
}

llvm::Error Fraction::read(StringRef name, StringRef text, double &to) const {
  return parseNumber(text, to) && to >= 0 && to <= 1 ? llvm::Error::success() : mustBe(name, "a number from 0 to 1", text);
}

std::string Number::print(double v) const {
  char s[32];
  return v < 0 ? "" : std::string(s, std::to_chars(s, s + sizeof s, v).ptr);
}

llvm::Error Size::read(StringRef name, StringRef text, int64_t &to) const {
  constexpr std::pair<StringRef, int> kUnits[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}, {"B", 0}};
  StringRef number = text;
  int shift = 0;
  for (auto [unit, bits] : kUnits)
    if (number.consume_back(unit)) {
      shift = bits;
      break;
    }
  double v;
  if (!parseNumber(number, v) || v * double(int64_t(1) << shift) < 1 || v * double(int64_t(1) << shift) > double(kMostElements))
    return mustBe(name, "a size such as 12GiB, 512MiB or a number of bytes", text);
  to = int64_t(v * double(int64_t(1) << shift));
  return llvm::Error::success();
}

llvm::Error Blocks::read(StringRef name, StringRef text, int64_t &to) const {
  to = text == "auto" ? Options::kAuto : 0;
  if (text == "none" || text == "auto" || (!text.getAsInteger(10, to) && to >= 1 && to <= kMost))
    return llvm::Error::success();
  return mustBe(name, "none, auto or a number of blocks from 1 on", text);
}

llvm::Error PerhapsOneOf::read(StringRef name, StringRef text, std::optional<std::string> &to) const {
  if (!text.empty() && !llvm::is_contained(words, text))
    return error("--" + name + " takes nothing, " + anyOf(words) + ", not '" + text + "'");
  to = text.str();
  return llvm::Error::success();
}

llvm::Error PerhapsText::read(StringRef, StringRef text, std::optional<std::string> &to) const {
  to = text.str();
  return llvm::Error::success();
}

llvm::Error Texts::read(StringRef, StringRef text, std::vector<std::string> &to) const {
  to.push_back(text.str());
  return llvm::Error::success();
}

llvm::Error SymbolSize::read(StringRef name, StringRef text, Sizes &to) const {
  auto [symbol, size] = text.rsplit('=');
  int64_t n;
  if (symbol.empty() || size.getAsInteger(10, n) || n < 1)
    return error("--" + name + "=" + text + " must be NAME=N, N above 0");
  if (int64_t before = to.try_emplace(symbol.str(), n).first->second; before != n)
    return error("--" + name + "=" + text + ": '" + symbol + "' is " + llvm::Twine(before) + " already");
  return llvm::Error::success();
}

llvm::Error TwoDecays::read(StringRef name, StringRef text, Options::Betas &to) const {
  auto [first, second] = text.split(',');
  auto isDecay = [](StringRef s, double &v) { return parseNumber(s, v) && v >= 0 && v < 1; };
  if (isDecay(first, to.first) && isDecay(second, to.second))
    return llvm::Error::success();
  return error("--" + name + " must be two numbers from 0 to below 1, like 0.9,0.999");
}

std::string TwoDecays::print(const Options::Betas &v) const { return Number().print(v.first) + "," + Number().print(v.second); }

llvm::Error Groups::read(StringRef name, StringRef text, std::vector<Options::ParamGroup> &to) const {
  auto [regex, settings] = text.rsplit(':');
  auto fail = [&, name = name](const Twine &msg) { return error("--" + name + "=" + text + ": " + msg); };
  if (settings.empty() || regex.empty())
    return fail("expected REGEX:weight-decay=X,lr-scale=X");
  Options::ParamGroup g;
  g.regex = regex.str();
  if (auto pattern = readPattern(regex); !pattern)
    return fail(llvm::toString(pattern.takeError()));
  llvm::StringSet<> seen;
  for (StringRef p : llvm::split(settings, ',')) {
    auto [setting, value] = p.split('=');
    double v;
    if (!seen.insert(setting).second)
      return fail("'" + setting + "' is given twice");
    if (!parseNumber(value, v) || v < 0)
      return fail("'" + p + "' needs a number that is not negative");
    if (setting == "weight-decay")
      g.weightDecay = v;
    else if (setting == "lr-scale")
      g.lrScale = v;
    else
      return fail("unknown setting '" + setting + "'; there are weight-decay and lr-scale");
  }
  to.push_back(g);
  return llvm::Error::success();
}

std::string Groups::print(const Options::ParamGroup &g) const {
  std::string decay = Number().print(g.weightDecay);
  return g.regex + ":lr-scale=" + Number().print(g.lrScale) + (decay.empty() ? "" : ",weight-decay=" + decay);
}

llvm::Error Tiles::read(StringRef name, StringRef text, std::vector<Options::TileRule> &to) const {
  auto fail = [&, name = name](const Twine &msg) { return error("--" + name + "=" + text + ": " + msg); };
  Options::TileRule r;
  if (text == "auto") {
    r.count = Options::kAuto;
    to.push_back(r);
    return llvm::Error::success();
  }
  auto [regex, count] = text.contains(':') ? text.rsplit(':') : std::pair<StringRef, StringRef>("", text);
  if (count != "none" && (count.getAsInteger(10, r.count) || r.count < 1 || r.count > kMost))
    return mustBe(name, "none, auto, a number of tiles from 1 on, or REGEX:K", text);
  if (text.contains(':') && regex.empty())
    return fail("expected REGEX:K");
  if (!regex.empty())
    if (auto pattern = readPattern(regex); !pattern)
      return fail(llvm::toString(pattern.takeError()));
  r.regex = regex.str();
  to.push_back(r);
  return llvm::Error::success();
}

std::string Tiles::print(const Options::TileRule &r) const {
  std::string count = r.count == Options::kAuto ? "auto" : r.count ? std::to_string(r.count) : "none";
  return r.regex.empty() ? count : r.regex + ":" + count;
}
