// Notes what --tile splits, and into how many tiles: of @micro and @eval, products with what is computed from their results row
// by row. tile-operators does it.
//
//   %l = matmul %h, %w            : f32[512x50257]
//   %c, %s = cross_entropy %l, %t : f32[512], f32[512x1]
// becomes, with --tile=4
//   %l = matmul %h, %w {!tiles = 4} : f32[512x50257]
//
// Notes that are there already hold. What is in tiles is never whole, so it is no result of @eval.
#include "ir/Pattern.h"
#include "passes/Pass.h"
#include "passes/Refusal.h"
#include "passes/memory/Activations.h"
#include "passes/tile/RowRegion.h"
#include <set>

using namespace zcc;
using llvm::StringRef;

namespace {
class Choice {
public:
  Choice(Module &m, PassContext &c) : m(m), ctx(c) {}
  llvm::Expected<bool> run();

private:
  /// Without a name: every large one.
  struct Rule {
    int64_t count;
    std::optional<llvm::Regex> pattern;
    std::string text;
    bool isUsed = false;
  };

  llvm::Error readRules();
  int64_t countFor(llvm::ArrayRef<StringRef> names, const Type &t);
  bool note(Function &f);
  void dropResults(Function &f, std::vector<unsigned> results);
  llvm::Error checkUsed() const;

  Module &m;
  PassContext &ctx;
  std::vector<Rule> rules;
  std::set<std::string> known; ///< names of all that could be split
};
} // namespace

/// An eighth of the budget.
static int64_t largeBytes(const Options &o) {
  constexpr int64_t kLarge = int64_t(64) << 20;
  return o.memoryBudget ? o.memoryBudget / 8 : kLarge;
}

llvm::Error Choice::readRules() {
  for (const Options::TileRule &r : ctx.options.tileRules) {
    Rule &rule = rules.emplace_back(Rule{r.count, std::nullopt, r.regex});
    if (r.regex.empty())
      continue;
    auto pattern = readPattern(r.regex);
    if (!pattern)
      return refuse("'" + r.regex + "' is no regular expression: " + llvm::toString(pattern.takeError()));
    rule.pattern = std::move(*pattern);
  }
  return llvm::Error::success();
}

/// How many tiles what has these names is split into, 0 if it is not. The first rule that fits holds.
int64_t Choice::countFor(llvm::ArrayRef<StringRef> names, const Type &t) {
  for (StringRef name : names)
    if (!name.empty())
      known.insert(name.str());
  Elem e = t.elem == Elem::F32 ? ctx.options.dtype : t.elem;
  int64_t found = -1;
  for (Rule &r : rules) {
    bool fits = r.pattern ? llvm::any_of(names, [&](StringRef name) { return !name.empty() && r.pattern->match(name); })
                          : t.count() * elemBytes(e) > largeBytes(ctx.options);
    r.isUsed |= fits;
    found = fits && found < 0 ? r.count : found;
  }
  return std::max<int64_t>(found, 0);
}

void Choice::dropResults(Function &f, std::vector<unsigned> results) {
  llvm::sort(results, std::greater<unsigned>());
  for (unsigned i : results) {
    if (i < f.resultNames.size())
      ctx.remarks.push_back("output '" + f.resultNames[i] +
                            "' is computed in tiles and never whole: the program has no such output");
    f.eraseResult(i);
  }
}

bool Choice::note(Function &f) {
  NodeOrder order = orderOf(f);
  std::vector<RowRegion> regions;
  for (auto &n : f.nodes) {
    if (!n->is(ops::matmul))
      continue;
    llvm::SmallVector<StringRef, 4> names{n->result()->name};
    if (n->loc)
      names.append(n->loc->nodes.begin(), n->loc->nodes.end());
    for (Value *v : n->operands())
      if (Value *base = behindViews(v); base->isGlobal())
        names.append({base->name, static_cast<GlobalValue *>(base)->onnxName});
    int64_t count = countFor(names, n->result()->type);
    if (count < 2 || llvm::any_of(regions, [&](auto &r) { return r.contains(*n); }))
      continue;
    RowRegion region(*n, order);
    if (!region.whyNot().empty()) {
      ctx.remarks.push_back("not split into tiles: " + describe(n->loc) + ", " + region.whyNot());
      continue;
    }
    if (f.name == "eval")
      dropResults(f, region.returned());
    else if (!region.returned().empty())
      continue;
    n->attrs.set("tiles", std::min(count, region.rows()));
    regions.push_back(std::move(region));
  }
  return !regions.empty();
}

llvm::Error Choice::checkUsed() const {
  for (const Rule &r : rules) {
    if (r.isUsed || !r.pattern)
      continue;
    std::string near = nearest(r.text, {known.begin(), known.end()});
    return refuse("--tile: no matrix product, nor a parameter of one, is called like '" + r.text + "'" +
                  (near.empty() ? "" : "; did you mean '" + near + "'?"));
  }
  return llvm::Error::success();
}

llvm::Expected<bool> Choice::run() {
  if (auto e = readRules())
    return e;
  bool changed = false;
  for (const char *name : {"micro", "eval"})
    if (Function *f = m.function(name))
      changed |= note(*f);
  if (auto e = checkUsed())
    return e;
  return changed;
}

llvm::Expected<bool> zcc::chooseTiles(Module &m, PassContext &ctx) {
  for (auto &f : m.functions)
    for (auto &n : f->nodes)
      if (n->attrs.has("tiles"))
        return false;
  return Choice(m, ctx).run();
}
