// Computes when each value is live, and checks a plan of memory against it.
#include "passes/memory/Liveness.h"
#include "ir/Control.h"
#include "ir/Epilogue.h"
#include "ir/Op.h"
#include "ir/Steps.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <map>

using namespace zcc;

// ---- where values lie

bool zcc::ownsMemory(const Node &n) {
  return !n.op->view && !n.op->forwards && n.op->leaf != Leaf::Constant && !n.results.empty();
}

std::optional<View> zcc::storageOf(Value *v) {
  std::optional<View> view = viewOf(v);
  while (view && view->base->def && view->base->def->op->forwards) {
    std::optional<View> below = viewOf(view->base->def->operand(view->base->index));
    if (!below || below->strides != denseStrides(below->dims))
      return std::nullopt;
    view->base = below->base;
    view->offset += below->offset;
  }
  return view;
}

/// Whether a value's memory may be another's.
static bool isLookedThrough(const Value *v) { return v->def && (v->def->op->view || v->def->op->forwards); }

Value *zcc::baseOf(Value *v) {
  if (!isLookedThrough(v))
    return v;
  std::optional<View> s = storageOf(v);
  return s ? s->base : nullptr;
}

std::vector<std::pair<unsigned, unsigned>> zcc::inplacePairs(const Node &n) {
  std::vector<std::pair<unsigned, unsigned>> pairs;
  std::vector<int64_t> flat = n.attrs.ints("inplace");
  for (size_t i = 0; i + 1 < flat.size(); i += 2)
    pairs.push_back({unsigned(flat[i]), unsigned(flat[i + 1])});
  uint32_t mask = performed(n)->inPlace;
  for (unsigned i = 0; i < (mask ? n.results.size() : carriedBy(n)); ++i)
    if (!mask || hasOperand(mask, i))
      pairs.push_back({i, i});
  return pairs;
}

// ---- how much they take

Extents::Extents(const Module &m) {
  for (auto &f : m.functions)
    for (auto &n : f->nodes) {
      const OpDef *op = performed(*n);
      for (unsigned i = 0; op && op->structural == Structural::Transfer && i < n->numOperands(); ++i) {
        if (n->operand(i)->type.space != Space::Nvme && n->result(i)->type.space != Space::Nvme)
          continue;
        transferred_.insert(n->result(i));
        if (Value *base = baseOf(n->operand(i)))
          transferred_.insert(base);
      }
    }
}

int64_t Extents::alignment(const Value &v) const {
  return v.type.space == Space::Nvme || transferred_.contains(&v) ? kDiskBlock : kLine;
}

int64_t zcc::wholeBytes(const Type &t, int64_t unit) { return llvm::alignTo(std::max<int64_t>(t.localBytes(), 1), unit); }

int64_t Extents::bytes(const Value &v) const { return wholeBytes(v.type, alignment(v)); }

static std::string ofSpace(Space s, const char *what) { return (s == Space::Device ? "" : spaceName(s).str() + "_") + what; }
std::string zcc::arenaBytesAttr(Space s) { return ofSpace(s, "arena_bytes"); }
std::string zcc::persistentBytesAttr(Space s) { return ofSpace(s, "persistent_bytes"); }
int64_t zcc::arenaBytes(const Module &m, Space s) { return m.attrs.i(arenaBytesAttr(s)); }
int64_t zcc::persistentBytes(const Module &m, Space s) { return m.attrs.i(persistentBytesAttr(s)); }

std::string zcc::argOffsetsAttr(const Function &f) { return f.name + "_args"; }
std::string zcc::argStepsAttr(const Function &f) { return f.name + "_steps"; }

Place zcc::placeOf(const Function &f, Value *v) {
  std::optional<View> s = storageOf(v);
  if (!s)
    return {};
  Place p;
  Value *b = s->base;
  p.space = b->type.space;
  auto take = [&](const std::vector<int64_t> &offsets, const std::vector<int64_t> &steps) {
    if (b->index < offsets.size())
      p.offset = offsets[b->index];
    if (b->index < steps.size())
      p.step = steps[b->index];
  };
  if (b->kind == Value::Global)
    p.offset = static_cast<GlobalValue *>(b)->attrs.i("offset", -1);
  else if (b->kind == Value::Argument)
    take(f.module->attrs.ints(argOffsetsAttr(f)), f.module->attrs.ints(argStepsAttr(f)));
  else
    take(b->def->attrs.ints("offsets"), b->def->attrs.ints("steps"));
  if (p.offset < 0)
    return {};
  p.offset += s->offset * elemBytes(b->type.elem);
  return p;
}

Place zcc::productPlace(const Function &f, const Node &n) {
  if (n.attrs.has("product_in"))
    return placeOf(f, n.result(unsigned(n.attrs.i("product_in"))));
  Place p;
  p.space = computeSpace(n);
  p.offset = n.attrs.i("scratch");
  return p;
}

int64_t zcc::productScratch(const Node &n) {
  if (!performed(n)->feedsKernel || n.attrs.has("product_in"))
    return 0;
  return llvm::alignTo(productType(n).localBytes(), kLine);
}

int64_t zcc::plannedOffset(const Function &f, Value *v) { return placeOf(f, v).offset; }

Range zcc::rangeOf(const View &v) {
  Range r{v.offset, v.offset + 1};
  for (size_t i = 0; i < v.dims.size(); ++i)
    (v.strides[i] < 0 ? r.begin : r.end) += (std::max<int64_t>(v.dims[i], 1) - 1) * v.strides[i];
  return r;
}

// ---- lifetimes

/// Views of a global are taken when they are read, so one taken before an assignment must not be
/// read after it.
static llvm::Error checkViewsOfGlobals(const Liveness &l) {
  for (auto &[global, nodes] : l.writes)
    for (const Node *write : nodes) {
      int at = l.number.lookup(write);
      auto reads = l.reads.find(global);
      if (reads == l.reads.end())
        continue;
      for (auto &[reader, when] : reads->second) {
        if (!reader || when <= at)
          continue;
        for (Value *v : reader->operands()) {
          if (!v || !isLookedThrough(v) || l.number.lookup(v->def) >= at)
            continue;
          auto s = storageOf(v);
          if (s && s->base == global && rangeOf(*s).overlaps(assigned(*write)))
            return errorAt(reader->loc, "'%" + v->name + "' is a view of '%" + global->name + "' from before it is assigned");
        }
      }
    }
  return llvm::Error::success();
}

int zcc::endOf(const Node &n, const Liveness &l) {
  // Whatever is waited for first, all of the bucket is there then.
  int end = n.op->structural == Structural::Start ? int(l.number.size()) : l.number.lookup(&n);
  for (auto &r : n.results)
    for (const Value::Use &u : r->uses)
      if (r->type.isFuture)
        end = std::min(end, l.number.lookup(u.node));
  return end;
}

llvm::Expected<Liveness> zcc::computeLiveness(const Function &f) {
  Liveness l;
  int count = 0;
  for (auto &n : f.nodes)
    l.number[n.get()] = count++;
  for (auto &a : f.args)
    l.values[a.get()] = {-1, -1};

  auto read = [&](Value *v, const Node *n, int when) -> llvm::Error {
    if (isConstant(v))
      return llvm::Error::success();
    Value *base = baseOf(v);
    if (!base) {
      std::string what = "'%" + v->name + "' is a view without constant strides";
      return n ? errorAt(n->loc, what) : error("@" + f.name + ": " + what);
    }
    auto i = l.values.find(base);
    if (i != l.values.end())
      i->second.last = std::max(i->second.last, when);
    l.reads[base].push_back({n, when});
    return llvm::Error::success();
  };

  for (auto &n : f.nodes) {
    int at = l.number[n.get()];
    if (ownsMemory(*n))
      for (auto &r : n->results)
        l.values[r.get()] = {at, at};
    if (n->op->view)
      continue; // reads happen where the view is read
    int until = endOf(*n, l);
    for (unsigned i = 0; i < n->numOperands(); ++i) {
      if (assigns(*n) && i == 0) {
        l.writes[n->operand(0)].push_back(n.get());
        continue;
      }
      if (Value *v = n->operand(i))
        if (auto e = read(v, n.get(), until))
          return e;
    }
  }
  for (Value *v : f.results)
    if (auto e = read(v, nullptr, count))
      return e;
  if (auto e = checkViewsOfGlobals(l))
    return e;
  return l;
}

llvm::DenseSet<const Value *> zcc::gradientsOf(const Function &f, const Liveness &l) {
  llvm::DenseSet<const Value *> out;
  auto updates = [](const Node &n) { return n.phase == Phase::Update; };
  for (auto &[v, life] : llvm::reverse(l.values)) { // readers first
    auto reads = l.reads.find(v);
    bool isMade = v->def && (v->def->phase == Phase::Backward || performed(*v->def)->isReduction());
    if (!isMade || v->type.count() == 1 || reads == l.reads.end())
      continue;
    bool isGradient = llvm::any_of(reads->second, [&](auto &read) {
      const Node *n = read.first;
      if (!n || updates(*n))
        return n != nullptr;
      return llvm::any_of(n->results, [&](auto &r) {
        return out.contains(r.get()) && (movesBetweenRanks(*n) || plannedOffset(f, r.get()) == plannedOffset(f, v));
      });
    });
    if (isGradient)
      out.insert(v);
  }
  return out;
}

std::vector<int64_t> zcc::liveBytes(const Function &f, const Liveness &l, Space space, const llvm::DenseSet<const Value *> &but) {
  // Values written over one another share bytes, so what counts is the union of ranges at each
  // node.
  struct Range {
    int64_t begin, end;
    Lifetime life;
  };
  std::vector<Range> ranges;
  int64_t below = persistentBytes(*f.module, space);
  Extents extents(*f.module);
  auto add = [&](int64_t offset, int64_t bytes, Lifetime life) {
    if (offset >= below)
      ranges.push_back({offset, offset + bytes, life});
  };
  for (auto &[v, life] : l.values)
    if (v->type.space == space && !but.contains(v))
      add(plannedOffset(f, v), extents.bytes(*v), life);
  for (auto &n : f.nodes)
    if (n->attrs.has("scratch") && computeSpace(*n) == space)
      add(n->attrs.i("scratch"), n->attrs.i("scratch_bytes"), {l.number.lookup(n.get()), endOf(*n, l)});
  llvm::sort(ranges, [](const Range &a, const Range &b) { return a.begin < b.begin; });
  std::vector<int64_t> live(f.nodes.size() + 1), end(f.nodes.size() + 1, 0);
  for (const Range &r : ranges)
    for (int i = std::max(r.life.first, 0); i <= r.life.last && i < int(live.size()); ++i) {
      live[i] += std::max<int64_t>(0, r.end - std::max(r.begin, end[i]));
      end[i] = std::max(end[i], r.end);
    }
  return live;
}

// ---- rule V7

namespace {
struct Placed {
  const Value *value; ///< nullptr: workspace of `node`
  const Node *node;
  int64_t begin, end;
  Lifetime life;
  std::string name() const { return value ? "'%" + value->name + "'" : "the workspace of " + describe(node->loc); }
};
} // namespace

bool zcc::isLastReader(const Liveness &l, const Value *v, const Node &n) {
  auto reads = l.reads.find(v);
  int at = l.number.lookup(&n);
  steps += reads != l.reads.end() ? reads->second.size() : 0;
  return reads != l.reads.end() && llvm::all_of(reads->second, [&](auto &r) { return r.first == &n || r.second < at; });
}

bool zcc::readsInPlaceOnly(const Node &n, unsigned result, const Value *v, Range range) {
  auto pairs = inplacePairs(n);
  for (unsigned i = 0; i < n.numOperands(); ++i) {
    if (!n.operand(i) || baseOf(n.operand(i)) != v)
      continue;
    auto s = storageOf(n.operand(i));
    Range read = rangeOf(*s);
    bool isHere = s->strides == denseStrides(s->dims) && read.begin == range.begin && read.end == range.end;
    if (!(isHere && llvm::is_contained(pairs, std::make_pair(result, i))) && read.overlaps(range))
      return false;
  }
  return true;
}

bool zcc::readsInPlaceOnly(const Node &n, unsigned result, const Value *v) {
  return readsInPlaceOnly(n, result, v, {0, v->type.localCount()});
}

bool zcc::isWrittenOnce(const Liveness &l, const GlobalValue &g, const Node &write) {
  auto writes = l.writes.find(&g);
  return writes == l.writes.end() ||
         llvm::none_of(writes->second, [&](const Node *n) { return n != &write && assigned(*n).overlaps(assigned(write)); });
}

const Node *zcc::readerBetween(const Liveness &l, const GlobalValue &g, Range range, const Node &from, const Node &to) {
  auto reads = l.reads.find(&g);
  if (reads == l.reads.end())
    return nullptr;
  int first = l.number.lookup(&from), last = l.number.lookup(&to);
  for (auto &[n, when] : reads->second) {
    if (!n || n == &from || when < first || l.number.lookup(n) >= last)
      continue;
    for (Value *v : n->operands())
      if (v && baseOf(v) == &g && rangeOf(*storageOf(v)).overlaps(range))
        return n;
  }
  return nullptr;
}

/// Whether `later` is written over `earlier` by the node that reads `earlier` last.
static bool isHandedOver(const Liveness &l, const Placed &earlier, const Placed &later) {
  return earlier.value && later.value && later.value->def && earlier.begin == later.begin &&
         isLastReader(l, earlier.value, *later.value->def) &&
         readsInPlaceOnly(*later.value->def, later.value->index, earlier.value);
}

/// A value in a global's own memory must be what is assigned to it, with no reader of the old value
/// in between.
static llvm::Error checkInGlobal(const Liveness &l, const Placed &p, const Placed &global) {
  const auto &g = *static_cast<const GlobalValue *>(global.value);
  const Node *write = nullptr;
  if (auto writes = l.writes.find(&g); writes != l.writes.end())
    for (const Node *n : writes->second)
      if (auto s = storageOf(n->operand(1)); s && s->base == p.value)
        write = n;
  if (!write || p.begin != global.begin + assigned(*write).begin * elemBytes(g.type.elem) || !isWrittenOnce(l, g, *write))
    return errorAt(p.node->loc, "[V7] " + p.name() + " overlaps global " + global.name());
  Range range = assigned(*write);
  if (!readsInPlaceOnly(*p.node, p.value->index, &g, range))
    return errorAt(p.node->loc, "[V7] " + p.name() + " overwrites global " + global.name() + " while it is read");
  if (const Node *n = readerBetween(l, g, range, *p.node, *write))
    return errorAt(n->loc, "[V7] reads global " + global.name() + ", already overwritten by " + p.name());
  return llvm::Error::success();
}

/// What lies in a function's memory: values and workspaces. Of a body, what it makes where results are left is told
/// apart.
static llvm::Error collectPlaced(const Function &f, const Liveness &l, const Extents &extents, Space space,
                                 std::vector<Placed> &values) {
  std::vector<Node *> callers = f.isBody ? callersOf(f) : std::vector<Node *>();
  if (f.isBody && callers.size() != 1)
    return error("[V7] body '@" + f.name + "' is named by " + llvm::Twine(callers.size()) + " nodes, not by one");
  auto inPlace = f.isBody ? producedInPlace(f, *callers[0], l) : llvm::MapVector<Value *, unsigned>();
  for (auto &[v, life] : l.values) {
    if (v->type.space != space)
      continue;
    Place p = placeOf(f, v);
    std::string what = "[V7] '%" + v->name + "' of @" + f.name;
    if (p.offset < 0)
      return error(what + " has no offset");
    if (f.isBody && v->kind == Value::Argument) {
      if (!(p == argPlace(*callers[0], v->index)))
        return error(what + " does not lie where its operand does");
      continue;
    }
    auto result = inPlace.find(v);
    if (result != inPlace.end() && p == resultPlace(*callers[0], result->second))
      continue;
    if (p.step != 0)
      return error(what + " moves and is no slice or row");
    if (p.offset % extents.alignment(*v))
      return error(what + " is not aligned to " + llvm::Twine(extents.alignment(*v)) + " bytes");
    // What a disk reads and writes is its own up to the end of the last block.
    bool isPaged = extents.alignment(*v) > kLine;
    values.push_back({v, v->def, p.offset, p.offset + (isPaged ? extents.bytes(*v) : v->type.localBytes()), life});
  }
  for (auto &n : f.nodes)
    if (n->attrs.has("scratch") && computeSpace(*n) == space) {
      int64_t o = n->attrs.i("scratch");
      values.push_back({nullptr, n.get(), o, o + n->attrs.i("scratch_bytes"), {l.number.lookup(n.get()), endOf(*n, l)}});
    }
  return llvm::Error::success();
}

/// Nothing that is live at once overlaps, but for what is handed over. Goes through time with what is live by offset: of
/// that only neighbours can overlap, because whatever overlapped others was refused or begins where they do.
static llvm::Error checkOverlaps(const Liveness &l, llvm::ArrayRef<Placed> values) {
  std::vector<const Placed *> starts, ends;
  for (const Placed &p : values)
    if (p.begin < p.end)
      starts.push_back(&p);
  ends = starts;
  llvm::stable_sort(starts, [](auto *a, auto *b) { return a->life.first < b->life.first; });
  llvm::stable_sort(ends, [](auto *a, auto *b) { return a->life.last < b->life.last; });
  std::multimap<int64_t, const Placed *> live; // by offset
  auto check = [&](const Placed &x, const Placed &y) -> llvm::Error {
    bool isFirst = std::make_pair(x.begin, &x) < std::make_pair(y.begin, &y);
    const Placed &p = isFirst ? x : y, &q = isFirst ? y : x;
    if (p.end <= q.begin || isHandedOver(l, p, q) || isHandedOver(l, q, p))
      return llvm::Error::success();
    return errorAt(y.node   ? y.node->loc // the later one
                   : x.node ? x.node->loc
                            : Loc(),
                   "[V7] " + p.name() + " and " + q.name() + " are live at once at offset " + llvm::Twine(q.begin));
  };
  size_t ended = 0;
  for (const Placed *p : starts) {
    for (; ended < ends.size() && ends[ended]->life.last < p->life.first; ++ended) {
      auto [i, end] = live.equal_range(ends[ended]->begin);
      live.erase(std::find_if(i, end, [&](auto &e) { return e.second == ends[ended]; }));
    }
    auto i = live.lower_bound(p->begin);
    if (i != live.begin())
      i = live.lower_bound(std::prev(i)->first); // all that begins at the nearest offset before
    for (; i != live.end() && i->first < p->end; ++i, ++steps)
      if (auto e = check(*i->second, *p))
        return e;
    live.emplace(p->begin, p);
  }
  return llvm::Error::success();
}

static llvm::Error verifySpace(const Function &f, const Liveness &l, const Extents &extents, Space space) {
  const Module &m = *f.module;
  const int64_t persistent = persistentBytes(m, space);
  std::vector<Placed> globals, values;
  for (auto &g : m.globals) {
    if (g->type.space != space || !g->hasStorage())
      continue;
    int64_t o = g->attrs.i("offset", -1);
    if (o < 0)
      return errorAt(g->loc, "[V7] global '%" + g->name + "' has no offset");
    globals.push_back({g.get(), nullptr, o, o + g->type.localBytes(), {}});
    if (globals.back().end > persistent)
      return errorAt(g->loc, "[V7] global '%" + g->name + "' lies behind what persists");
  }
  if (auto e = collectPlaced(f, l, extents, space, values))
    return e;

  auto byBegin = [](const Placed &a, const Placed &b) { return a.begin < b.begin; };
  llvm::sort(globals, byBegin);
  llvm::stable_sort(values, byBegin);
  for (size_t i = 0; i + 1 < globals.size(); ++i)
    if (globals[i].end > globals[i + 1].begin)
      return error("[V7] globals " + globals[i].name() + " and " + globals[i + 1].name() + " overlap");
  // A body has the workspace of the node that names it.
  int64_t begin = 0, end = arenaBytes(m, space);
  if (f.isBody && space == Space::Device) {
    const Node *caller = callersOf(f)[0];
    begin = caller->attrs.i("scratch");
    end = begin + caller->attrs.i("scratch_bytes");
  }
  for (const Placed &p : values) {
    if (p.begin < begin || p.end > end)
      return errorAt(p.node ? p.node->loc : Loc(),
                     "[V7] " + p.name() + " lies outside the " + (f.isBody ? "workspace of its body" : "arena"));
    auto g = llvm::partition_point(globals, [&](const Placed &g) { return g.end <= p.begin; });
    for (; g != globals.end() && g->begin < p.end; ++g)
      if (auto e = checkInGlobal(l, p, *g))
        return e;
  }
  return checkOverlaps(l, values);
}

llvm::Error zcc::verifyPlan(const Module &m) {
  Extents extents(m);
  for (auto &f : m.functions) {
    if (f->isKernel)
      continue;
    auto l = computeLiveness(*f);
    if (!l)
      return l.takeError();
    for (int s = 0; s < kSpaces; ++s)
      if (auto e = verifySpace(*f, *l, extents, Space(s)))
        return e;
  }
  return llvm::Error::success();
}
