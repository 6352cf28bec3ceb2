// Updates by one kernel become one node that runs it over all of them, part by part: on a device one launch, on the host one
// team.
//
//   %a.new, %a.m.new = fused @k9 %a, %da, %a.m             %a.new, %a.m.new, %b.new, %b.m.new =
//   assign %a, %a.new ...                          ->          fused @k9 %a, %da, %a.m, %b, %db, %b.m {parts = 2}
//   %b.new, %b.m.new = fused @k9 %b, %db, %b.m             assign %a, %a.new ...
//   assign %b, %b.new ...                                  assign %b, %b.new ...
//
// They run where the last of them stands, and what only passes their results on (views, assignments) follows them. Nothing else
// between them may use what they make, and none of them is put off behind something that Compute waits for: a collective or a
// transfer, beside which it can run. Gradients live until then, so the memory that is planned decides how many wait: the module
// has its plan already, and gets another one, which takes no byte more.
#include "ir/Control.h"
#include "ir/Op.h"
#include "ir/Steps.h"
#include "passes/Target.h"
#include "passes/fuse/KernelShape.h"
#include "passes/memory/Liveness.h"
#include <map>

using namespace zcc;

/// Of one node, so that what looks at each operand for each result stays short.
constexpr size_t kMostParts = 64;

namespace {
struct UpdateGroup {
  std::vector<Node *> members;
  std::vector<std::pair<int, Node *>> followers;       ///< with their numbers
  llvm::DenseMap<const Value *, size_t> made;          ///< results of members and followers, by the number of the member
  llvm::DenseMap<const Value *, size_t> read, written; ///< the last member that reads it; globals that followers assign
  bool isBroken = false;                               ///< one of them would change what another reads
  int last = 0;
};

class Joiner {
public:
  /// `most`: bytes that may live at once. `fits`: whether an update is small enough to be joined with others.
  Joiner(Function &f, Liveness live, int64_t most, int64_t mostElements)
      : f(f), l(std::move(live)), bytes(liveBytes(f, l)), extents(*f.module), most(most), mostElements(mostElements) {}
  /// Whether there was anything to join.
  bool run();

private:
  Function &f;
  const Liveness l;
  std::vector<int64_t> bytes; ///< live at each node
  const Extents extents;
  const int64_t most, mostElements;
  std::map<std::string, UpdateGroup> open; ///< by kernel
  std::vector<UpdateGroup> groups;
  llvm::DenseMap<const Function *, bool> flat;    ///< kernels that have been looked at
  llvm::DenseMap<const Value *, int> lastOf;      ///< of what lives longer than it did
  llvm::DenseSet<const Value *> changed, guarded; ///< made or written, read or written, by what has not been closed

  bool isFlat(const Node &n);
  void close(const std::string &kernel);
  void closeWhere(llvm::function_ref<bool(const UpdateGroup &)> isTouched);
  bool follows(Node &n, int at);
  void meet(const Node &n);
  int64_t heldBytes(const UpdateGroup &g, int at) const;
  bool extend(UpdateGroup &g, int at);
  void add(Node &n, int at);
  void join(UpdateGroup &g);
};
} // namespace

/// What a node reads or writes, but for constants.
static const Value *touched(Value *v) { return v && !isConstant(v) ? baseOf(v) : nullptr; }

/// Whether a kernel steps through all its tensors together, or through one element of them, and sums all or nothing.
static bool isFlatKernel(const Function &k) {
  std::vector<Node *> generated;
  for (auto &n : k.nodes) {
    if (n->op->leaf == Leaf::Counter)
      return false;
    if (isGenerated(*n))
      generated.push_back(n.get());
  }
  auto shape = kernelShape(generated);
  if (!shape || k.args.empty() || (shape->form != KernelShape::Pointwise && shape->form != KernelShape::Total))
    return false;
  auto isWhole = [&](const Value *v) { return v->type.localCount() == shape->count(); };
  return llvm::all_of(k.args, [&](auto &a) { return isWhole(a.get()) || a->type.localCount() == 1; }) &&
         llvm::all_of(k.results, [&](Value *r) { return isWhole(r) || shape->form == KernelShape::Total; });
}

bool Joiner::isFlat(const Node &n) {
  if (!n.op->isFused() || n.phase != Phase::Update || n.attrs.i("parts", 1) != 1 || computeSpace(n) != Space::Device)
    return false;
  const Function *k = f.module->function(n.attrs.s("kernel"));
  auto [known, isNew] = flat.try_emplace(k, false);
  if (isNew)
    known->second = isFlatKernel(*k);
  return known->second && llvm::all_of(n.operands(), [&](Value *v) {
           auto view = viewOf(v);
           return view && view->isDense() && v->type.localCount() <= mostElements;
         });
}

void Joiner::close(const std::string &kernel) {
  auto g = open.find(kernel);
  if (g->second.members.size() > 1 && !g->second.isBroken)
    groups.push_back(std::move(g->second));
  open.erase(g);
}

void Joiner::closeWhere(llvm::function_ref<bool(const UpdateGroup &)> isTouched) {
  std::vector<std::string> touched;
  for (auto &[kernel, g] : open)
    if (isTouched(g))
      touched.push_back(kernel);
  for (const std::string &kernel : touched)
    close(kernel);
}

/// Whether a node only passes on what a member of an open group makes: it is moved with that.
bool Joiner::follows(Node &n, int at) {
  if (!n.op->view && !assigns(n))
    return false;
  const Value *source = n.operand(assigns(n) ? 1 : 0);
  if (!changed.contains(source))
    return false;
  for (auto &[kernel, g] : open) {
    auto made = g.made.find(source);
    if (made == g.made.end())
      continue;
    const size_t member = made->second;
    for (auto &r : n.results) {
      g.made[r.get()] = member;
      changed.insert(r.get());
    }
    g.followers.push_back({at, &n});
    if (!assigns(n))
      return true;
    const Value *to = n.operand(0);
    if (auto reader = g.read.find(to); reader != g.read.end() && reader->second != member)
      g.isBroken = true;
    closeWhere([&](const UpdateGroup &other) { return &other != &g && (other.read.count(to) || other.written.count(to)); });
    g.written[to] = member;
    changed.insert(to);
    guarded.insert(to);
    return true;
  }
  return false;
}

/// Closes what a node that follows none of it would see, change or take away.
void Joiner::meet(const Node &n) {
  const Structural::Kind kind = n.op->structural;
  if (kind == Structural::Wait || kind == Structural::Collective || kind == Structural::Transfer) {
    closeWhere([](const UpdateGroup &) { return true; });
    return;
  }
  for (unsigned i = 0; i < n.numOperands(); ++i) {
    const Value *v = touched(n.operand(i));
    if (!v)
      continue;
    const bool takesAway = (assigns(n) && i == 0) || kind == Structural::Release;
    if (changed.contains(v))
      closeWhere([&](const UpdateGroup &g) { return g.made.count(v) || g.written.count(v); });
    if (takesAway && guarded.contains(v))
      closeWhere([&](const UpdateGroup &g) { return g.read.count(v) || g.written.count(v); });
  }
}

/// Bytes that would live on if a group ran at a later node.
int64_t Joiner::heldBytes(const UpdateGroup &g, int at) const {
  int64_t sum = 0;
  for (auto &[v, member] : g.read)
    if (auto life = l.values.find(const_cast<Value *>(v)); life != l.values.end() && v->kind == Value::Result) {
      auto now = lastOf.find(v);
      if (v->type.space == Space::Device && (now == lastOf.end() ? life->second.last : now->second) < at)
        sum += extents.bytes(*v);
    }
  return sum;
}

/// Puts a group off until a later node, if the memory is there.
bool Joiner::extend(UpdateGroup &g, int at) {
  const int64_t held = heldBytes(g, at), scratch = g.members.size() * g.members[0]->attrs.i("scratch_bytes");
  for (int i = g.last + 1; held && i <= at; ++i)
    if (bytes[i] + held > most)
      return false;
  if (scratch && bytes[at] + held + scratch > most)
    return false;
  steps += held ? at - g.last : 0;
  for (int i = g.last + 1; i <= at; ++i)
    bytes[i] += held;
  bytes[at] += scratch;
  for (auto &[v, member] : g.read)
    if (auto life = l.values.find(const_cast<Value *>(v)); life != l.values.end())
      lastOf[v] = std::max({at, life->second.last, lastOf.lookup(v)});
  g.last = at;
  return true;
}

void Joiner::add(Node &n, int at) {
  const std::string kernel = n.attrs.s("kernel");
  if (auto g = open.find(kernel); g != open.end() && (g->second.members.size() == kMostParts || !extend(g->second, at)))
    close(kernel);
  UpdateGroup &g = open[kernel];
  g.last = at;
  const size_t member = g.members.size();
  g.members.push_back(&n);
  for (Value *v : n.operands())
    if (const Value *base = touched(v)) {
      g.read[base] = member;
      guarded.insert(base);
    }
  for (auto &r : n.results) {
    g.made[r.get()] = member;
    changed.insert(r.get());
  }
}

void Joiner::join(UpdateGroup &g) {
  Node &last = *g.members.back();
  auto node = std::make_unique<Node>(last.op, last.loc);
  node->phase = last.phase;
  node->attrs.set("kernel", last.attrs.s("kernel"));
  node->attrs.set("parts", int64_t(g.members.size()));
  std::vector<int64_t> pairs;
  for (Node *n : g.members) {
    const int64_t result = node->results.size(), operand = node->numOperands();
    std::vector<int64_t> own = n->attrs.ints("inplace");
    for (size_t i = 0; i + 1 < own.size(); i += 2)
      pairs.insert(pairs.end(), {result + own[i], operand + own[i + 1]});
    for (Value *v : n->operands())
      node->addOperand(v);
    for (auto &r : n->results) {
      node->results.push_back(std::make_unique<Value>(Value::Result, r->name, r->type));
      node->results.back()->def = node.get();
      node->results.back()->index = node->results.size() - 1;
      r->replaceAllUsesWith(node->results.back().get());
    }
  }
  if (!pairs.empty())
    node->attrs.set("inplace", pairs);
  f.insert(std::move(node), &last);
  for (auto &[number, n] : g.followers)
    if (number < g.last)
      n->moveBefore(&last);
  for (Node *n : g.members)
    n->erase();
}

bool Joiner::run() {
  int at = 0;
  for (auto &n : f.nodes) {
    if (!follows(*n, at)) {
      meet(*n);
      if (isFlat(*n))
        add(*n, at);
    }
    ++at;
  }
  closeWhere([](const UpdateGroup &) { return true; });
  for (UpdateGroup &g : groups)
    join(g);
  return !groups.empty();
}

/// Joins what may be put off while so many bytes live. Whether there was anything.
static llvm::Expected<bool> joinIn(Module &m, int64_t most, int64_t mostElements) {
  bool changed = false;
  for (auto &f : m.functions) {
    if (!f->isEntry() || llvm::none_of(f->nodes, [](auto &n) { return n->op->isFused() && n->phase == Phase::Update; }))
      continue;
    auto live = computeLiveness(*f);
    if (!live)
      return live.takeError();
    changed |= Joiner(*f, std::move(*live), most, mostElements).run();
  }
  return changed;
}

static llvm::Expected<int64_t> mostLive(const Module &m) {
  int64_t most = 0;
  for (auto &f : m.functions) {
    if (!f->isEntry())
      continue;
    auto live = computeLiveness(*f);
    if (!live)
      return live.takeError();
    std::vector<int64_t> bytes = liveBytes(*f, *live);
    most = std::max(most, *llvm::max_element(bytes));
  }
  return most;
}

/// What plan-memory has noted of the same module.
static void takePlan(Module &m, const Module &planned) {
  m.attrs = planned.attrs;
  for (auto [to, from] : llvm::zip_equal(m.globals, planned.globals))
    to->attrs = from->attrs;
  for (auto [f, other] : llvm::zip_equal(m.functions, planned.functions))
    for (auto [to, from] : llvm::zip_equal(f->nodes, other->nodes))
      to->attrs = from->attrs;
}

llvm::Expected<bool> zcc::joinUpdates(Module &m, PassContext &ctx) {
  const int64_t elements = ctx.target ? ctx.target->mostJoinedElements() : INT64_MAX;
  auto live = mostLive(m);
  if (!live)
    return live.takeError();
  // Bytes in a plan lie less densely than they live: what does not fit waits for a place with more room beside what lives there,
  // in the end for none.
  for (int64_t most : {*live, *live / 8 * 7, int64_t(0)}) {
    auto trial = m.clone();
    auto joined = joinIn(*trial, most, elements);
    if (!joined || !*joined)
      return joined;
    trial->properties &= ~uint32_t(Property::Planned); // nobody asks what another plan changes
    if (auto planned = planMemory(*trial, ctx); !planned)
      return planned;
    if (llvm::any_of(std::array{Space::Device, Space::Host, Space::Nvme},
                     [&](Space s) { return arenaBytes(*trial, s) > arenaBytes(m, s); }))
      continue;
    joined = joinIn(m, most, elements);
    if (joined)
      takePlan(m, *trial);
    return joined;
  }
  return false;
}
