// Notes what --tile splits, and into how many tiles: of @micro and @eval, products with what is computed from their results row
// by row, which tile-operators does, and parameters, which split-parameters does: what a parameter's name is given for, what a
// product's is given for whose rows do not become tiles, and without a name what is large and read by no product in tiles.
//
//   %l = matmul %h, %w            : f32[512x50257]
//   %c, %s = cross_entropy %l, %t : f32[512], f32[512x1]
// becomes, with --tile=4
//   %l = matmul %h, %w {!tiles = 4} : f32[512x50257]
//
//   param %w : f32[1024x1024] = ... {trained}
// becomes, with --tile=^w$:4
//   param %w : f32[1024x1024] = ... {tiles = [4, 1], trained}
//
// Notes that are there already hold. What is in tiles is never whole, so it is no result of @eval.
#include "ir/Pattern.h"
#include "passes/Pass.h"
#include "passes/Refusal.h"
#include "passes/memory/Activations.h"
#include "passes/memory/Budget.h"
#include "passes/tile/ParameterTiles.h"
#include "passes/tile/RowRegion.h"
#include "llvm/ADT/DenseMap.h"
#include <set>

using namespace zcc;
using llvm::StringRef;

namespace {
class Choice {
public:
  Choice(Module &m, PassContext &c) : m(m), ctx(c), large(largeBytes(m, c)) {}
  llvm::Expected<bool> run();

private:
  /// Without a name: every large one.
  struct Rule {
    int64_t count;
    std::optional<llvm::Regex> pattern;
    std::string text;
    bool isUsed = false;
  };

  static int64_t largeBytes(const Module &m, const PassContext &ctx);
  llvm::Error readRules();
  /// How many tiles, and for whose name.
  struct Wanted {
    int64_t count = 0;
    enum { Size, Node, Param } by = Size;
  };
  int64_t bytesOf(const Type &t) const;
  Wanted wanted(llvm::ArrayRef<StringRef> nodes, llvm::ArrayRef<StringRef> params, int64_t bytes);
  bool note(Function &f);
  bool noteParams();
  llvm::Error checkUsed() const;

  Module &m;
  PassContext &ctx;
  const int64_t large; ///< bytes, from which on something is
  std::vector<Rule> rules;
  std::set<std::string> known;                  ///< names of all that could be split
  llvm::DenseMap<GlobalValue *, int64_t> named; ///< parameters of products that are named and whose rows do not become tiles
  llvm::DenseSet<GlobalValue *> inRows;         ///< of products whose rows do
  llvm::DenseSet<GlobalValue *> besideRows;     ///< of other products of the same rows: boxes only by their name
};
} // namespace

/// An eighth of the budget, or of what libraries take: with less nothing fits, however small its pieces.
int64_t Choice::largeBytes(const Module &m, const PassContext &ctx) {
  constexpr int64_t kLarge = int64_t(64) << 20;
  const int64_t budget = ctx.options.memoryBudget;
  if (!budget)
    return kLarge;
  return (ctx.target ? std::max(budget, needsOf(m, ctx.options, ctx.target).memory) : budget) / 8;
}

llvm::Error Choice::readRules() {
  if (ctx.options.hasAutoTiles())
    return refuse("--tile=auto is a choice of zcc, which plans with more and more tiles; give the number, K or REGEX:K");
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

/// As the program has it.
int64_t Choice::bytesOf(const Type &t) const {
  Elem e = t.elem == Elem::F32 ? ctx.options.dtype : t.elem;
  return t.count() * elemBytes(e);
}

/// How many tiles what has these names is split into, 0 if it is not. The first rule that fits holds.
Choice::Wanted Choice::wanted(llvm::ArrayRef<StringRef> nodes, llvm::ArrayRef<StringRef> params, int64_t bytes) {
  for (auto names : {nodes, params})
    for (StringRef name : names)
      if (!name.empty())
        known.insert(name.str());
  std::optional<Wanted> found;
  for (Rule &r : rules) {
    auto matches = [&](StringRef name) { return !name.empty() && r.pattern->match(name); };
    bool ofNode = r.pattern && llvm::any_of(nodes, matches), ofParam = r.pattern && llvm::any_of(params, matches);
    bool fits = r.pattern ? ofNode || ofParam : bytes > large;
    r.isUsed |= fits;
    if (fits && !found)
      found = {r.count, ofNode ? Wanted::Node : ofParam ? Wanted::Param : Wanted::Size};
  }
  return found.value_or(Wanted());
}

bool Choice::note(Function &f) {
  NodeOrder order = orderOf(f);
  std::vector<RowRegion> regions;
  for (auto &n : f.nodes) {
    if (!n->is(ops::matmul))
      continue;
    llvm::SmallVector<StringRef, 4> names{n->result()->name}, params;
    if (n->loc)
      names.append(n->loc->nodes.begin(), n->loc->nodes.end());
    auto *param = static_cast<GlobalValue *>(nullptr);
    for (Value *v : n->operands())
      if (Value *base = behindViews(v); base->isGlobal()) {
        param = static_cast<GlobalValue *>(base);
        params.append({param->name, param->onnxName});
      }
    Wanted w = wanted(names, params, bytesOf(n->result()->type));
    if (w.count < 2 || llvm::any_of(regions, [&](auto &r) { return r.contains(*n); }))
      continue;
    RowRegion region(*n, order);
    if (param && w.by != Wanted::Size && (w.by == Wanted::Param || !region.whyNot().empty())) {
      int64_t &count = named[param];
      count = std::max(count, w.count);
      continue;
    }
    if (!region.whyNot().empty()) {
      ctx.remarks.push_back("not split into tiles: " + describe(n->loc) + ", " + region.whyNot());
      continue;
    }
    if (param)
      inRows.insert(param);
    if (f.name == "eval")
      dropResults(f, region.returned(), "in tiles and never whole", ctx);
    else if (!region.returned().empty())
      continue;
    for (const Node *member : region.all())
      if (Value *base = member->is(ops::matmul) ? behindViews(member->operand(1)) : nullptr; base && base->isGlobal())
        besideRows.insert(static_cast<GlobalValue *>(base));
    n->attrs.set("tiles", std::min(w.count, region.rows()));
    regions.push_back(std::move(region));
  }
  return !regions.empty();
}

/// Behind the products.
bool Choice::noteParams() {
  bool changed = false;
  for (auto &g : m.globals) {
    if (g->role != GlobalValue::Param)
      continue;
    Wanted w = wanted({}, {g->name, g->onnxName}, bytesOf(g->type));
    const bool isInRows = inRows.contains(g.get()) || (w.by == Wanted::Size && besideRows.contains(g.get()));
    int64_t count = named.count(g.get()) ? named[g.get()] : isInRows ? 0 : w.count;
    if (count < 2)
      continue;
    if (ctx.options.isLow() && !g->trained && g->init.kind != Init::File) {
      ctx.remarks.push_back("not split into tiles: parameter '" + g->name + "', frozen and of no file, is f32");
      continue;
    }
    ParameterTiles tiles(m, *g);
    if (!tiles.whyNot().empty()) {
      if (g->type.ndim() > 1)
        ctx.remarks.push_back("not split into tiles: parameter '" + g->name + "', " + tiles.whyNot());
      continue;
    }
    const std::vector<int64_t> grid = tiles.grid(count);
    if (llvm::all_of(grid, [](int64_t boxes) { return boxes == 1; }))
      continue;
    g->attrs.set("tiles", grid);
    changed = true;
  }
  return changed;
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
  changed |= noteParams();
  if (auto e = checkUsed())
    return e;
  return changed;
}

llvm::Expected<bool> zcc::chooseTiles(Module &m, PassContext &ctx) {
  if (llvm::any_of(m.globals, [](auto &g) { return g->attrs.has("tiles"); }))
    return false;
  for (auto &f : m.functions)
    for (auto &n : f->nodes)
      if (n->attrs.has("tiles"))
        return false;
  return Choice(m, ctx).run();
}
