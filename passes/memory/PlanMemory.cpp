// Gives every value an offset in its space's arena, in bytes.
//
//   param %w : f32[64] ...                      param %w : f32[64] ... {offset = 0}
//   %h = fused %x {kernel = "k0"}      ->       %h = fused %x {kernel = "k0", offsets = [256]}
//   %y = matmul %h, %w                          %y = matmul %h, %w {offsets = [512],
//                                                     scratch = 768, scratch_bytes = 64}
//
// An arena is [globals | inputs and results of @micro | values]: the last part is shared by the functions, which never run at
// once. The values of a body are the workspace of the node that names it; its arguments and results lie in that node's operands
// and results, slices and rows at a step of their size. A result is written over an operand that dies there, or into the memory
// of the global that it is assigned to, where the node's record or `inplace` attribute allows it.
#include "passes/memory/PlanMemory.h"
#include "ir/Control.h"
#include "ir/Equal.h"
#include "ir/Op.h"
#include "passes/Target.h"
#include "passes/memory/Liveness.h"
#include "passes/memory/OccupiedMemory.h"
#include "runtime/DeviceMemory.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <array>
#include <map>

using namespace zcc;

namespace {
/// Bytes of each space.
using PerSpace = std::array<int64_t, kSpaces>;

/// Memory for one value, or for several written over one another, or for a node's workspace.
struct Buffer {
  int64_t bytes = 0; ///< a multiple of align
  Lifetime life;
  int64_t align = 0;
  Space space = Space::Device;
  int64_t offset = -1;
};

/// One function's buffers.
struct FunctionPlan {
  FunctionPlan(Function &f, Liveness l) : fn(f), live(std::move(l)) {}
  Function &fn;
  Liveness live;
  std::vector<Buffer> buffers;
  llvm::DenseMap<const Value *, unsigned> bufferOf;
  llvm::DenseMap<const Value *, const Node *> inGlobal; ///< the assign in whose global's memory it is made
  llvm::MapVector<Value *, unsigned> inResult;          ///< of a body: made where results are left
  PerSpace bytes = {};                                  ///< what the buffers take
  llvm::DenseMap<const Node *, unsigned> scratchOf;
};
/// The plans of bodies, before those of what names them.
using Plans = std::map<const Function *, FunctionPlan>;
} // namespace

// ---- what shares memory

/// Where elements of a global begin in its memory, bytes.
static int64_t inGlobal(Range range, const GlobalValue &g) { return range.begin * elemBytes(g.type.elem); }

/// The value that may be written right into the memory of the global that `assign` writes, or
/// nullptr.
static Value *producedInGlobal(const FunctionPlan &p, const Node &assign, const Extents &extents) {
  auto *g = static_cast<GlobalValue *>(assign.operand(0));
  auto source = storageOf(assign.operand(1));
  if (!source || !source->isDense() || !source->base->def || !ownsMemory(*source->base->def))
    return nullptr;
  Value *v = source->base;
  const Node &def = *v->def;
  Range range = assigned(assign);
  if (v->type.space != g->type.space || v->type.localCount() != range.end - range.begin || v->type.elem != g->type.elem ||
      extents.alignment(*v) > extents.alignment(*g) || inGlobal(range, *g) % extents.alignment(*v))
    return nullptr;
  // Nobody may read the old value once it is overwritten; what reads %g after the assignment means the new one.
  if (p.inGlobal.count(v) || !isWrittenOnce(p.live, *g, assign) || !readsInPlaceOnly(def, v->index, g, range) ||
      readerBetween(p.live, *g, range, def, assign))
    return nullptr;
  return v;
}

/// The buffer of a dying operand that result `r` of `n` may be written over, or -1.
static int dyingOperand(const FunctionPlan &p, const Node &n, unsigned r, llvm::ArrayRef<unsigned> taken,
                        const Extents &extents) {
  const Value &to = *n.result(r);
  for (auto [result, operand] : inplacePairs(n)) {
    auto s = result == r && n.operand(operand) ? storageOf(n.operand(operand)) : std::nullopt;
    if (!s || !s->isDense() || !p.bufferOf.count(s->base) || s->base->kind != Value::Result ||
        s->base->type.localBytes() != to.type.localBytes())
      continue;
    unsigned b = p.bufferOf.lookup(s->base);
    if (p.buffers[b].space != to.type.space || p.buffers[b].align < extents.alignment(to))
      continue;
    if (!llvm::is_contained(taken, b) && isLastReader(p.live, s->base, n) && readsInPlaceOnly(n, r, s->base))
      return b;
  }
  return -1;
}

/// `kept`: values that get memory of their own outside the shared part.
static void makeBuffers(FunctionPlan &p, const PassContext &ctx, const llvm::DenseMap<const Value *, int64_t> &kept,
                        const Plans &plans, const Extents &extents) {
  for (auto &[g, nodes] : p.live.writes)
    for (const Node *n : nodes)
      if (Value *v = producedInGlobal(p, *n, extents))
        if (!kept.count(v))
          p.inGlobal[v] = n;

  for (auto &node : p.fn.nodes) {
    const Node &n = *node;
    int at = p.live.number.lookup(&n);
    llvm::SmallVector<unsigned, 4> taken;
    for (unsigned r = 0; ownsMemory(n) && r < n.results.size(); ++r) {
      Value *v = n.result(r);
      if (kept.count(v) || p.inGlobal.count(v) || p.inResult.count(v))
        continue;
      Lifetime life = p.live.values.lookup(v);
      int b = dyingOperand(p, n, r, taken, extents);
      if (b < 0) {
        b = p.buffers.size();
        p.buffers.push_back({extents.bytes(*v), life, extents.alignment(*v), v->type.space});
      } else {
        p.buffers[b].life.last = std::max(p.buffers[b].life.last, life.last);
        taken.push_back(b);
      }
      p.bufferOf[v] = b;
    }
    Space space = computeSpace(n);
    int64_t scratch = ctx.target ? ctx.target->of(space).workspaceBytes(n) : productScratch(n);
    if (!ctx.target && !callsBodies(*n.op)) // as it was with one
      scratch = std::max(scratch, n.attrs.i("scratch_bytes"));
    for (const Function *body : bodiesOf(n))
      scratch = std::max(scratch, plans.find(body)->second.bytes[int(Space::Device)]);
    if (scratch > 0) {
      p.scratchOf[&n] = p.buffers.size();
      p.buffers.push_back({int64_t(llvm::alignTo(scratch, kLine)), {at, endOf(n, p.live)}, kLine, space});
    }
  }
}

// ---- offsets

/// Places the buffers in this order, each at the lowest offset that is free during its life. Returns the end, or INT64_MAX as
/// soon as it is not below `most`; `highest`: where in the order that is which ends there.
static int64_t placeInOrder(std::vector<Buffer> &buffers, llvm::ArrayRef<unsigned> order, int64_t most, size_t &highest) {
  int64_t end = 0;
  int last = 0;
  for (const Buffer &b : buffers)
    last = std::max(last, b.life.last);
  OccupiedMemory occupied(last + 1);
  for (size_t i = 0; i < order.size(); ++i) {
    Buffer &b = buffers[order[i]];
    int64_t least = occupied.lowestFree(b.life.first, b.life.last, b.bytes + b.align - kLine);
    b.offset = llvm::alignTo(least, b.align);
    occupied.add(b.life.first, b.life.last, b.offset, b.offset + b.bytes);
    if (b.offset + b.bytes <= end)
      continue;
    end = b.offset + b.bytes;
    highest = i;
    if (end >= most)
      return INT64_MAX;
  }
  return end;
}

/// Places the buffers of a space one behind the other.
static int64_t placeApart(std::vector<Buffer> &buffers, Space space) {
  int64_t end = 0;
  for (Buffer &b : buffers)
    if (b.space == space) {
      b.offset = llvm::alignTo(end, b.align);
      end = b.offset + b.bytes;
    }
  return end;
}

/// The most that buffers of a space take at any time.
static int64_t livePeak(llvm::ArrayRef<Buffer> buffers, llvm::ArrayRef<unsigned> members) {
  int last = 0;
  for (unsigned i : members)
    last = std::max(last, buffers[i].life.last);
  std::vector<int64_t> change(last + 3, 0); // from the arguments on, which live before node 0
  for (unsigned i : members) {
    change[buffers[i].life.first + 1] += buffers[i].bytes;
    change[buffers[i].life.last + 2] -= buffers[i].bytes;
  }
  int64_t now = 0, most = 0;
  for (int64_t bytes : change)
    most = std::max(most, now += bytes);
  return most;
}

/// Places the buffers of a space. Largest first is within a few percent of the live peak on most graphs, but not on all: the best
/// of three orders is taken, or the first that ends at the peak. Where that is not near it, what lies highest goes to the head of
/// the order, again and again (D. Joslin, D. Clements, "Squeaky Wheel" Optimization, JAIR 10, 1999).
static int64_t placeBuffers(std::vector<Buffer> &buffers, Space space) {
  constexpr int64_t kNear = 32; // parts of the peak
  constexpr unsigned kTries = 6;
  auto size = [](const Buffer &b) { return double(b.bytes); };
  auto area = [](const Buffer &b) { return double(b.bytes) * (b.life.last - b.life.first + 1); };
  auto start = [](const Buffer &b) { return -double(b.life.first); };
  double (*keys[])(const Buffer &) = {size, area, start};
  std::vector<unsigned> members, order;
  for (unsigned i = 0; i < buffers.size(); ++i)
    if (buffers[i].space == space)
      members.push_back(i);
  if (members.empty())
    return 0;
  std::vector<Buffer> best;
  int64_t least = INT64_MAX;
  size_t highest = 0;
  auto isBetter = [&](llvm::ArrayRef<unsigned> inOrder) {
    std::vector<Buffer> trial = buffers;
    int64_t end = placeInOrder(trial, inOrder, least, highest);
    if (end >= least)
      return false;
    least = end;
    best = std::move(trial);
    return true;
  };
  const int64_t peak = livePeak(buffers, members);
  for (auto key : keys) {
    if (least == peak)
      break;
    std::vector<unsigned> sorted = members;
    llvm::stable_sort(sorted, [&](unsigned a, unsigned b) { return key(buffers[a]) > key(buffers[b]); });
    if (size_t before = highest; isBetter(sorted))
      order = std::move(sorted);
    else
      highest = before;
  }
  for (unsigned left = kTries; left > 0 && least > peak + peak / kNear; --left) {
    std::rotate(order.begin(), order.begin() + highest, order.begin() + highest + 1);
    isBetter(order);
  }
  buffers = std::move(best);
  return least;
}

static void writeBody(Node &caller, Function &body, Plans &plans, const llvm::DenseMap<const Value *, int64_t> &kept);

static void writeOffsets(FunctionPlan &p, const PerSpace &base, Plans &plans,
                         const llvm::DenseMap<const Value *, int64_t> &kept) {
  const Node *caller = p.fn.isBody ? callersOf(p.fn)[0] : nullptr;
  for (auto &n : p.fn.nodes) {
    auto scratch = p.scratchOf.find(n.get());
    if (scratch != p.scratchOf.end()) {
      const Buffer &b = p.buffers[scratch->second];
      n->attrs.set("scratch", base[int(b.space)] + b.offset);
      n->attrs.set("scratch_bytes", b.bytes);
    } else {
      n->attrs.erase("scratch");
      n->attrs.erase("scratch_bytes");
    }
    if (!ownsMemory(*n))
      continue;
    std::vector<int64_t> offsets, steps;
    for (auto &r : n->results) {
      steps.push_back(0);
      if (auto i = kept.find(r.get()); i != kept.end()) {
        offsets.push_back(i->second);
      } else if (auto i = p.inResult.find(r.get()); i != p.inResult.end()) {
        Place at = resultPlace(*caller, i->second);
        offsets.push_back(at.offset);
        steps.back() = at.step;
      } else if (const Node *assign = p.inGlobal.lookup(r.get())) {
        auto &g = *static_cast<GlobalValue *>(assign->operand(0));
        offsets.push_back(g.attrs.i("offset") + inGlobal(assigned(*assign), g));
      } else {
        const Buffer &b = p.buffers[p.bufferOf.lookup(r.get())];
        offsets.push_back(base[int(b.space)] + b.offset);
      }
    }
    n->attrs.set("offsets", std::move(offsets));
    if (llvm::any_of(steps, [](int64_t s) { return s != 0; }))
      n->attrs.set("steps", std::move(steps));
  }
  for (auto &n : p.fn.nodes)
    for (Function *body : bodiesOf(*n))
      writeBody(*n, *body, plans, kept);
}

static void writeBody(Node &caller, Function &body, Plans &plans, const llvm::DenseMap<const Value *, int64_t> &kept) {
  std::vector<int64_t> offsets, steps;
  for (unsigned i = 0; i < body.args.size(); ++i) {
    Place p = argPlace(caller, i);
    offsets.push_back(p.offset);
    steps.push_back(p.step);
  }
  Module &m = *body.module;
  m.attrs.set(argOffsetsAttr(body), std::move(offsets));
  if (llvm::any_of(steps, [](int64_t s) { return s != 0; }))
    m.attrs.set(argStepsAttr(body), std::move(steps));
  writeOffsets(plans.find(&body)->second, {caller.attrs.i("scratch")}, plans, kept);
}

// ---- the pass

static int64_t largestAlignment(const Plans &plans, Space space) {
  int64_t most = kLine;
  for (auto &[f, p] : plans)
    for (const Buffer &b : p.buffers)
      most = b.space == space ? std::max(most, b.align) : most;
  return most;
}

/// Inputs have one place by name in all functions, so that the data loader need not know which
/// function runs next.
static int64_t placeArguments(Module &m, int64_t at, const Extents &extents) {
  llvm::StringMap<std::pair<int64_t, const Value *>> byName; // offset, and the largest of all functions
  auto entries = llvm::make_filter_range(m.functions, [](auto &f) { return f->isEntry(); });
  for (auto &f : entries)
    for (auto &a : f->args)
      if (const Value *&v = byName[a->name].second; !v || v->type.localBytes() < a->type.localBytes())
        v = a.get();
  for (auto &f : entries)
    for (auto &a : f->args)
      if (auto &[offset, v] = byName[a->name]; v == a.get()) {
        offset = at;
        at += extents.bytes(*a);
      }
  for (auto &f : m.functions) {
    if (!f->isEntry())
      continue;
    std::vector<int64_t> offsets;
    for (auto &a : f->args)
      offsets.push_back(byName[a->name].first);
    if (!offsets.empty())
      m.attrs.set(argOffsetsAttr(*f), offsets);
  }
  return at;
}

/// What libraries use of a device lies behind all else.
static void addDeviceLibraries(Module &m, const PassContext &ctx) {
  int64_t bytes = ctx.target ? ctx.target->deviceLibraryBytes(m) : 0;
  m.attrs.erase(kDeviceLibraryBytes);
  if (!bytes)
    return;
  m.attrs.set(kDeviceLibraryBytes, bytes);
  m.attrs.set(arenaBytesAttr(Space::Device),
              int64_t(llvm::alignTo(arenaBytes(m, Space::Device), zccrt::kDeviceAlignment)) + bytes);
}

/// Those with storage. On a disk a parameter's states lie behind it, so that what an update reads and writes lies side by side.
static std::vector<GlobalValue *> inOrderOfPlaces(Module &m) {
  llvm::StringMap<size_t> number;
  for (auto &g : m.globals)
    number.try_emplace(g->name, number.size());
  std::vector<std::pair<size_t, GlobalValue *>> all;
  for (auto &g : m.globals)
    if (g->hasStorage()) {
      auto owner = g->type.space == Space::Nvme ? number.find(g->attrs.s("of")) : number.end();
      all.push_back({owner != number.end() ? owner->second : number.lookup(g->name), g.get()});
    }
  llvm::stable_sort(all, llvm::less_first());
  std::vector<GlobalValue *> out;
  for (auto &[at, g] : all)
    out.push_back(g);
  return out;
}

static llvm::Error plan(Module &m, const PassContext &ctx, decltype(placeBuffers) placeInEntries) {
  unshareBodies(m); // a body lies at one place
  Extents extents(m);
  PerSpace at = {};
  // Takes what the value needs behind what its space has so far.
  auto take = [&](const Value &v) {
    int64_t &end = at[int(v.type.space)];
    int64_t offset = llvm::alignTo(end, extents.alignment(v));
    end = offset + extents.bytes(v);
    return offset;
  };
  for (GlobalValue *g : inOrderOfPlaces(m))
    g->attrs.set("offset", take(*g));
  int64_t &device = at[int(Space::Device)];
  device = placeArguments(m, device, extents);

  // What @micro returns is read after other functions may have run.
  llvm::DenseMap<const Value *, int64_t> kept;
  if (Function *micro = m.function("micro"))
    for (Value *v : micro->results)
      if (Value *base = baseOf(v); base && base->def && !kept.count(base))
        kept[base] = take(*base);

  PerSpace end = {};
  Plans plans;
  for (Function *f : calleesFirst(m)) {
    if (f->isKernel)
      continue;
    auto live = computeLiveness(*f);
    if (!live)
      return live.takeError();
    FunctionPlan &p = plans.try_emplace(f, *f, std::move(*live)).first->second;
    std::vector<Node *> callers = f->isBody ? callersOf(*f) : std::vector<Node *>();
    if (!callers.empty())
      p.inResult = producedInPlace(*f, *callers[0], p.live);
    makeBuffers(p, ctx, kept, plans, extents);
    for (int s = 0; s < kSpaces; ++s) {
      p.bytes[s] = (f->isBody ? placeBuffers : placeInEntries)(p.buffers, Space(s)); // what a body takes is a workspace
      end[s] = std::max(end[s], f->isBody ? 0 : p.bytes[s]);
    }
  }
  for (int s = 0; s < kSpaces; ++s) // offsets behind it stay aligned
    at[s] = end[s] ? llvm::alignTo(at[s], largestAlignment(plans, Space(s))) : at[s];
  for (auto &[f, p] : plans)
    if (f->isEntry())
      writeOffsets(p, at, plans, kept);
  for (int s = 0; s < kSpaces; ++s)
    if (at[s] + end[s] || Space(s) == Space::Device) {
      m.attrs.set(persistentBytesAttr(Space(s)), at[s]);
      m.attrs.set(arenaBytesAttr(Space(s)), at[s] + end[s]);
    }
  addDeviceLibraries(m, ctx);
  return llvm::Error::success();
}

llvm::Error zcc::planApart(Module &m, const PassContext &ctx) { return plan(m, ctx, placeApart); }

llvm::Expected<bool> zcc::planMemory(Module &m, PassContext &ctx) {
  std::unique_ptr<Module> before = m.has(Property::Planned) ? m.clone() : nullptr; // the same plan again changes nothing
  if (auto e = plan(m, ctx, placeBuffers))
    return e;
  return !before || !areEqual(*before, m);
}
