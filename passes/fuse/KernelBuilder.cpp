#include "passes/fuse/KernelBuilder.h"
#include "ir/Op.h"
#include "ir/View.h"
#include "passes/fuse/Operands.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/raw_ostream.h"

using namespace zcc;
using llvm::ArrayRef;
using llvm::StringRef;

/// Whether the shape of a node's result comes from its constant operands. Reductions run over their operand's axes.
static bool isShapedByConstants(const Node &n) {
  if (n.op->reduction)
    return true;
  Dims dims;
  for (Value *v : n.operands())
    if (!splatConstant(v))
      dims = broadcastDims(dims, v->type.dims).value_or(dims);
  return n.op->isElementwise() && dims != n.result()->type.dims;
}

int KernelBuilder::add(const Node &of, Type type) {
  parts.push_back({&of, std::move(type), {}});
  return ~int(parts.size() - 1);
}

int KernelBuilder::leaf(Value *v, const Node &user) {
  Node *c = splatConstant(v);
  // A scalar, so that equal kernels are equal, where its shape makes no difference.
  if (c && isShapedByConstants(user))
    return add(*c, Type(v->type.elem, v->type.dims));
  auto [at, isNew] = places.try_emplace(v);
  if (!isNew)
    return at->second;
  if (c)
    return at->second = add(*c, Type(v->type.elem, Dims()));
  if (v->def && v->def->op->leaf == Leaf::Counter)
    return at->second = add(*v->def, v->type);
  operands.push_back(v);
  return at->second = int(operands.size() - 1);
}

/// What is computed again in a kernel may stand in it already: it is one part then, unless it is stored.
void KernelBuilder::addMember(const Node &n, bool isStored) {
  llvm::SmallVector<int, 4> read;
  for (Value *v : n.operands())
    read.push_back(leaf(v, n));
  const Type &type = n.result()->type;
  auto isSame = [&](const Part &p) { return p.of->op == n.op && p.operands == read && p.type == type && p.of->attrs == n.attrs; };
  const auto same = isStored ? parts.end() : llvm::find_if(parts, isSame);
  if (same != parts.end()) {
    places[n.result()] = ~int(same - parts.begin());
    return;
  }
  places[n.result()] = add(n, type);
  parts.back().operands = std::move(read);
}

static void printAttr(llvm::raw_ostream &os, const Attr &a) {
  std::visit(
      [&](auto &v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::vector<int64_t>>)
          for (int64_t x : v)
            os << x << ',';
        else if constexpr (std::is_same_v<T, std::vector<double>>)
          for (double x : v)
            os << llvm::bit_cast<uint64_t>(x) << ',';
        else if constexpr (std::is_same_v<T, double>)
          os << llvm::bit_cast<uint64_t>(v);
        else
          os << v;
      },
      a);
}

/// Equal for equal bodies only.
std::string KernelBuilder::key(ArrayRef<Value *> outputs) const {
  std::string s;
  llvm::raw_string_ostream os(s);
  for (Value *v : operands)
    os << v->type << ';';
  for (const Part &p : parts) {
    os << p.of->op->name << '(';
    for (int at : p.operands)
      os << at << ',';
    os << ')';
    for (auto &[name, a] : p.of->attrs)
      if (p.of->op->leaf != Leaf::Constant || name != "dims") { // of which the type is, here
        os << name << '=';
        printAttr(os, a);
      }
    os << p.type << ';';
  }
  for (Value *v : outputs)
    os << places.lookup(v) << ' ';
  return s;
}

std::unique_ptr<Function> KernelBuilder::body(ArrayRef<Value *> outputs) const {
  auto out = std::make_unique<Function>();
  out->isKernel = true;
  for (size_t i = 0; i < operands.size(); ++i)
    out->addArg("a" + std::to_string(i), operands[i]->type);
  std::vector<Value *> made;
  auto at = [&](int place) { return place < 0 ? made[~place] : out->args[place].get(); };
  for (const Part &p : parts) {
    Node *n = out->insert(std::make_unique<Node>(p.of->op, p.of->loc));
    n->attrs = p.of->attrs;
    Leaf::Kind leaf = p.of->op->leaf;
    if (leaf == Leaf::Constant)
      n->attrs.set("dims", std::vector<int64_t>(p.type.dims.begin(), p.type.dims.end()));
    for (int place : p.operands)
      n->addOperand(at(place));
    StringRef name = leaf == Leaf::Constant ? "c" : leaf == Leaf::Counter ? "i" : "v";
    n->results.push_back(std::make_unique<Value>(Value::Result, out->unique(name), p.type));
    n->results[0]->def = n;
    made.push_back(n->result());
  }
  for (Value *v : outputs)
    out->results.push_back(at(places.lookup(v)));
  return out;
}

/// Whether a pass over a row behind that of `phase` reads an operand: what has been stored it reads instead of what that is
/// computed from (codegen/LoopPlan.h).
static bool isReadBehind(const Function &k, const KernelShape &s, const Value &operand, int phase) {
  auto isFull = [&](const Node *n) { return s.extents.lookup(n) == Extent::Full; };
  for (auto &root : k.nodes) {
    const bool isSum = root->op->reduction, isResult = isFull(root.get()) && llvm::is_contained(k.results, root->result());
    const int pass = s.phases.lookup(root.get()) - (isSum && s.extents.lookup(root.get()) == Extent::Reduced ? 1 : 0);
    if (!(isSum || isResult) || pass <= phase)
      continue;
    llvm::SmallVector<const Node *, 16> work = {root.get()};
    llvm::SmallPtrSet<const Node *, 16> seen;
    while (!work.empty())
      for (const Value *v : work.pop_back_val()->operands()) {
        if (v == &operand)
          return true;
        bool isStored = v->def && s.phases.lookup(v->def) < pass && llvm::is_contained(k.results, v);
        if (v->def && isFull(v->def) && !isStored && seen.insert(v->def).second)
          work.push_back(v->def);
      }
  }
  return false;
}

/// Pairs (result, operand) whose memory may be one if the operand is dense: the kernel has read the operand's element for the
/// last time when it writes the result's. That holds for results that lie as the operand does, if no later pass reads it.
static std::vector<std::pair<unsigned, unsigned>> inPlacePairs(const Function &k, const KernelShape &s) {
  int last = 0;
  for (auto &[n, p] : s.phases)
    if (s.extents.lookup(n) == Extent::Full)
      last = std::max(last, p);
  std::vector<std::pair<unsigned, unsigned>> pairs;
  for (unsigned r = 0; r < k.results.size(); ++r) {
    const Node *def = k.results[r]->def;
    const int phase = s.phases.lookup(def);
    if (s.extents.lookup(def) != Extent::Full || (phase != last && s.form != KernelShape::Row))
      continue;
    Dims want = resultStrides(s, *def);
    for (unsigned a = 0; a < k.args.size(); ++a) {
      const Type &t = k.args[a]->type;
      if (elemBytes(t.elem) != elemBytes(k.results[r]->type.elem) || t.localCount() != s.count() ||
          isReadBehind(k, s, *k.args[a], phase))
        continue;
      if (llvm::all_of(k.args[a]->uses,
                       [&](auto &u) { return domainStrides(s, *u.node, t.localDims(), denseStrides(t.localDims())) == want; }))
        pairs.push_back({r, a});
    }
  }
  return pairs;
}

void KernelBuilder::define(KnownKernel &k, ArrayRef<Value *> outputs) {
  auto kernel = body(outputs);
  std::vector<Node *> generated;
  for (auto &n : kernel->nodes)
    if (isGenerated(*n))
      generated.push_back(n.get());
  auto shape = kernelShape(generated);
  assert(shape && "a group without loops");
  k.inPlace = inPlacePairs(*kernel, *shape);
  for (unsigned i = known.size() - 1; k.name.empty() || m.function(k.name); ++i)
    k.name = "k" + std::to_string(i);
  kernel->name = k.name;
  m.addKernel(std::move(kernel));
}

Node *KernelBuilder::call(const KnownKernel &k, ArrayRef<Value *> outputs, Loc loc, Phase phase, Node *before) {
  auto call = std::make_unique<Node>(&ops::fused, std::move(loc));
  call->phase = phase;
  call->attrs.set("kernel", k.name);
  std::vector<int64_t> pairs;
  for (auto [r, a] : k.inPlace)
    if (auto view = viewOf(operands[a]); view && view->isRun())
      pairs.insert(pairs.end(), {r, a});
  if (!pairs.empty())
    call->attrs.set("inplace", pairs);
  for (Value *v : operands)
    call->addOperand(v);
  Node *node = f.insert(std::move(call), before);
  for (Value *v : outputs) {
    node->results.push_back(std::make_unique<Value>(Value::Result, v->name, v->type));
    node->results.back()->def = node;
    node->results.back()->index = node->results.size() - 1;
    v->replaceAllUsesWith(node->results.back().get());
  }
  return node;
}

/// Of members in the order of their definitions, those that outputs are computed from: what each reader computes by itself is no
/// output any more.
static std::vector<Node *> neededFor(ArrayRef<Value *> outputs, ArrayRef<Node *> members) {
  llvm::DenseSet<const Value *> read(outputs.begin(), outputs.end());
  std::vector<Node *> needed;
  for (Node *n : llvm::reverse(members))
    if (llvm::any_of(n->results, [&](auto &r) { return read.contains(r.get()); })) {
      needed.push_back(n);
      for (Value *v : n->operands())
        read.insert(v);
    }
  std::reverse(needed.begin(), needed.end());
  return needed;
}

Node *KernelBuilder::build(const FuseGroup &g, Node *before) {
  parts.clear();
  operands.clear();
  places.clear();
  Loc loc;
  std::vector<Value *> outputs = g.outputs();
  if (outputs.empty()) // its readers compute all of it by themselves
    return nullptr;
  for (Node *n : neededFor(outputs, g.withReshapes())) {
    addMember(*n, llvm::is_contained(outputs, n->result()));
    loc = mergeLocs(loc, n->loc);
  }
  KnownKernel &k = known[key(outputs)];
  if (k.name.empty())
    define(k, outputs);
  // Of its first result: the forward may be computed again in the backward, which may hold updates.
  Phase phase = Phase::Update;
  for (const Value *v : outputs)
    phase = std::min(phase, v->def->phase);
  return call(k, outputs, std::move(loc), phase, before);
}
