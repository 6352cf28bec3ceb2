// Groups elementwise operators, broadcasts and reductions into kernels.
//
//   %m = reduce_max %x {axes = [1]}           kernel @k3(%a : f32[8x512]) -> (f32[8x512]) {
//   %d = sub %x, %m                             %m = reduce_max %a {axes = [1]} ...
//   %e = exp %d                       ->        ...
//   %s = reduce_sum %e {axes = [1]}             return %y
//   %y = div %e, %s                           }
//                                             %y = fused %x {kernel = "k3"}
//
// Composites (softmax, norms, cross-entropy) are expanded to primitives first. A group is what kernelShape() finds loops for; it
// grows from each operator towards its producers, then over siblings that read the same tensor. Values that are cheap to compute
// again from what is kept anyway are computed again instead of stored. Equal bodies become one kernel. What a library kernel
// reads, it reads dense or with the strides that its record allows: a `copy` is put in otherwise.
#include "ir/Builder.h"
#include "ir/Control.h"
#include "ir/Interpreter.h"
#include "ir/View.h"
#include "passes/Pass.h"
#include "passes/fuse/FuseGroups.h"
#include "passes/fuse/KernelShape.h"
#include "passes/memory/Liveness.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/raw_ostream.h"

using namespace zcc;
using llvm::ArrayRef;

// ---- before grouping: primitives, and operands that library kernels can read

static void expandComposites(Function &f) {
  for (Node *n = f.first(); n;) {
    Node *at = n;
    n = n->next();
    if (!at->op->expand)
      continue;
    Node *before = at->prev();
    Builder b(f, at, at->loc);
    auto values = at->op->expand(b, *at);
    for (unsigned i = 0; i < at->results.size(); ++i)
      if (values[i])
        at->result(i)->replaceAllUsesWith(values[i]);
    // What was put in may hold composites itself.
    n = before ? before->next() : f.first();
    at->erase();
  }
}

/// A reduction over axes of extent 1 changes nothing.
static void dropTrivialReductions(Function &f) {
  for (Node *n = f.first(); n;) {
    Node *at = n;
    n = n->next();
    if (!at->op->reduction)
      continue;
    const Type &from = at->operand(0)->type;
    if (!from.isPartitioned() && from.dims == at->result()->type.dims) {
      at->result()->replaceAllUsesWith(at->operand(0));
      at->erase();
    }
  }
}

/// Each reader of a 16-bit value converts it by itself, behind views and broadcasts: a load does that for free, an f32 copy
/// would be stored.
static void sinkCasts(Function &f) {
  for (Node *n = f.first(); n; n = n->next()) {
    if (n->op != &ops::cast || n->result()->type.elem != Elem::F32 || elemBytes(n->operand(0)->type.elem) != 2 ||
        !isFloat(n->operand(0)->type.elem))
      continue;
    std::list<Value::Use> uses = n->result()->uses;
    for (auto &u : uses) {
      Node &user = *u.node;
      Builder b(f, &user, n->loc);
      Value *narrow = n->operand(0);
      if (user.op->view)
        narrow = b.make(*user.op, {narrow}, user.attrs);
      else if (user.op->isElementwise())
        narrow = b.expand(narrow, user.result()->type.dims);
      if (uses.size() == 1 && narrow == n->operand(0))
        continue;
      Value *wide = b.make(ops::cast, {narrow}, n->attrs);
      if (user.op->view)
        user.result()->replaceAllUsesWith(wide);
      else
        user.setOperand(u.index, wide);
    }
  }
}

static Node *splatConstant(Value *v) {
  while (v->def && (v->def->op == &ops::broadcast || v->def->op == &ops::reshape || v->def->op == &ops::transpose))
    v = v->def->operand(0);
  if (!v->def || v->def->op != &ops::constant)
    return nullptr;
  const Attr *a = v->def->attrs.find("value");
  if (!a)
    return nullptr;
  if (auto *i = std::get_if<std::vector<int64_t>>(a))
    return i->size() == 1 ? v->def : nullptr;
  if (auto *d = std::get_if<std::vector<double>>(a))
    return d->size() == 1 ? v->def : nullptr;
  return v->def; // a single number
}

static Value *copyOf(Function &f, Node *before, Value *v) {
  Loc loc = before          ? before->loc
            : v->def        ? v->def->loc
            : v->isGlobal() ? static_cast<GlobalValue *>(v)->loc
            : f.isBody      ? callersOf(f)[0]->loc
                            : makeLoc(v->name);
  Builder b(f, before, loc ? loc : makeLoc(v->name));
  return b.make(ops::copy, {v}, {}, v->name);
}

/// What is written over its operand (a scatter over its base) gets a constant one filled anew each time: a const global
/// would be kept all the time, and copied.
static void fillConstantBases(Function &f) {
  for (auto &n : f.nodes)
    for (auto [result, operand] : inplacePairs(*n))
      if (splatConstant(n->operand(operand)))
        n->setOperand(operand, copyOf(f, n.get(), n->operand(operand)));
}

/// A counter has no memory: what is no generated loop over it reads a copy.
static void copyCounters(Function &f) {
  for (Node *n = f.first(); n; n = n->next()) {
    if (n->op != &ops::iota)
      continue;
    Value *copy = nullptr;
    auto copied = [&] { return copy ? copy : copy = copyOf(f, n->next(), n->result()); };
    std::list<Value::Use> uses = n->result()->uses;
    for (auto &u : uses)
      if (!isGenerated(*u.node) || u.node->op->view)
        u.node->setOperand(u.index, copied());
    for (Value *&r : f.results)
      if (r == n->result())
        r = copied();
  }
}

/// Operands that a kernel call cannot take as they are: constants become const globals.
static llvm::Error globalizeConstants(Module &m, Function &f) {
  for (auto &n : f.nodes) {
    if (n->op != &ops::constant)
      continue;
    bool splat = splatConstant(n->result()) != nullptr;
    bool needed = false;
    for (auto &u : n->result()->uses)
      needed |= !isGenerated(*u.node) && !u.node->op->view;
    for (Value *r : f.results)
      needed |= r == n->result();
    if (splat && !needed)
      continue;
    auto t = evalNode(*n, {});
    if (!t)
      return t.takeError();
    GlobalValue *g;
    if (n->result()->type.count() == 0) {
      g = m.addGlobal(GlobalValue::Const, n->result()->name, n->result()->type, Init());
    } else if (splat && n->result()->type.count() > 8) {
      Init i;
      i.kind = Init::Splat;
      i.a = (*t)[0].isFloat() ? (*t)[0].f[0] : double((*t)[0].i[0]);
      g = m.addGlobal(GlobalValue::Const, n->result()->name, n->result()->type, i);
    } else {
      g = m.addConst(n->result()->name, n->result()->type, tensorToBytes((*t)[0]));
    }
    g->loc = n->loc;
    std::list<Value::Use> uses = n->result()->uses;
    for (auto &u : uses)
      if (!splat || (!isGenerated(*u.node) && !u.node->op->view))
        u.node->setOperand(u.index, g);
    for (Value *&r : f.results)
      if (r == n->result())
        r = g;
  }
  return llvm::Error::success();
}

/// Whether a library kernel takes operand `i` with these strides: OpDef::strided, a letter an operand. 'm': a matrix,
/// one of the last two axes contiguous; 'r': rows, the last axis contiguous; '-': dense.
static bool acceptsView(const Node &n, unsigned i, const View &v) {
  if (v.isDense() || (callsBodies(*n.op) && v.strides == denseStrides(v.dims)))
    return true;
  const char *s = n.op->strided;
  char rule = s && i < strlen(s) ? s[i] : '-';
  size_t d = v.dims.size();
  if (rule == '-' || d < 2)
    return false;
  auto unit = [&](size_t a, size_t other) {
    return (v.strides[a] == 1 || v.dims[a] == 1) && (v.strides[other] >= v.dims[a] || v.dims[other] == 1);
  };
  for (int64_t st : v.strides)
    if (st < 0)
      return false;
  return unit(d - 1, d - 2) || (rule == 'm' && unit(d - 2, d - 1));
}

/// A body that a body names is told where its operands lie once: they must not be slices.
static bool movesInto(const Node &n, const View &v) {
  if (!callsBodies(*n.op) || v.base->kind != Value::Argument || !n.parent()->isBody)
    return false;
  return llvm::any_of(callersOf(*n.parent()),
                      [&](Node *c) { return c->op == &ops::scan && ScanForm(*c).isSlice(v.base->index); });
}

/// What a body returns it has made, or it is what it carries unchanged: arguments may be overwritten before results are
/// left. They are copied first, so that new values of what is carried can be made in place.
static void copyReturnedArgs(Function &f) {
  bool carries = llvm::all_of(callersOf(f), [](Node *c) { return c->op == &ops::scan; });
  for (unsigned i = 0; i < f.results.size(); ++i) {
    Value *v = f.results[i];
    auto s = viewOf(v);
    bool isOwn = carries && i < f.args.size() && v == f.args[i].get() &&
                 llvm::all_of(callersOf(f), [&](Node *c) { return i < ScanForm(*c).carried; });
    if (s && s->base->kind == Value::Argument && !isOwn)
      f.results[i] = copyOf(f, v->def ? v->def->next() : f.first(), v);
  }
}

static void legalizeViews(Function &f) {
  if (f.isBody && !callersOf(f).empty())
    copyReturnedArgs(f);
  for (Node *n = f.first(); n; n = n->next()) {
    if (n->op == &ops::reshape && !viewOf(n->result()))
      n->setOperand(0, copyOf(f, n, n->operand(0)));
    if (n->op->view || isGenerated(*n))
      continue;
    for (unsigned i = 0; i < n->numOperands(); ++i) {
      Value *v = n->operand(i);
      if (!v || !(v->def ? v->def->op->view : f.isBody))
        continue;
      if (auto view = viewOf(v); !acceptsView(*n, i, *view) || movesInto(*n, *view))
        n->setOperand(i, copyOf(f, n, v));
    }
  }
  for (Value *&r : f.results)
    if ((r->isGlobal() && r->type.count() > 0) || (r->def && r->def->op->view && !viewOf(r)->isDense()))
      r = copyOf(f, nullptr, r);
}

// ---- kernels from groups

namespace {
/// Makes the kernel function of one group and the node that calls it.
class KernelBuilder {
  Module &m;
  Function &f;
  llvm::StringMap<std::string> &known; ///< body text -> kernel name

public:
  KernelBuilder(Module &mod, Function &fn, llvm::StringMap<std::string> &k) : m(mod), f(fn), known(k) {}

  /// Inserts the call before `before`, replaces the group's values and returns the call.
  Node *build(const FuseGroup &g, Node *before);

private:
  Function *body = nullptr;
  llvm::DenseMap<Value *, Value *> inside;
  std::vector<Value *> operands;

  Value *leaf(Value *v, const Node &user);
  void cloneInto(Node &n);
  std::string key() const;
};
} // namespace

/// Whether the shape of a node's result comes from its constant operands.
static bool isShapedByConstants(const Node &n) {
  Dims dims;
  for (Value *v : n.operands())
    if (!splatConstant(v))
      dims = broadcastDims(dims, v->type.dims).value_or(dims);
  return n.op->isElementwise() && dims != n.result()->type.dims;
}

Value *KernelBuilder::leaf(Value *v, const Node &user) {
  Node *c = splatConstant(v);
  bool isShape = c && isShapedByConstants(user);
  if (Value *known = inside.lookup(v); known && !isShape)
    return known;
  Value *in = nullptr;
  if (c) {
    // A scalar, so that equal kernels are equal, where its shape makes no difference.
    Dims dims = isShape ? v->type.dims : Dims();
    Node *k = body->insert(std::make_unique<Node>(c->op, c->loc));
    k->attrs = c->attrs;
    k->attrs.set("dims", std::vector<int64_t>(dims.begin(), dims.end()));
    k->results.push_back(std::make_unique<Value>(Value::Result, body->unique("c"), Type(v->type.elem, dims)));
    k->results[0]->def = k;
    in = k->result();
  } else if (v->def && v->def->op == &ops::iota) {
    Node *k = body->insert(std::make_unique<Node>(v->def->op, v->def->loc));
    k->attrs = v->def->attrs;
    k->results.push_back(std::make_unique<Value>(Value::Result, body->unique("i"), v->type));
    k->results[0]->def = k;
    in = k->result();
  } else {
    in = body->addArg("a" + std::to_string(operands.size()), v->type);
    operands.push_back(v);
  }
  if (!isShape)
    inside[v] = in;
  return in;
}

void KernelBuilder::cloneInto(Node &n) {
  std::vector<Value *> ops;
  for (Value *v : n.operands())
    ops.push_back(leaf(v, n));
  Node *k = body->insert(std::make_unique<Node>(n.op, n.loc));
  k->attrs = n.attrs;
  for (Value *v : ops)
    k->addOperand(v);
  k->results.push_back(std::make_unique<Value>(Value::Result, body->unique("v"), n.result()->type));
  k->results[0]->def = k;
  inside[n.result()] = k->result();
}

std::string KernelBuilder::key() const {
  std::string s;
  llvm::raw_string_ostream os(s);
  llvm::DenseMap<const Value *, unsigned> number;
  for (auto &a : body->args) {
    number[a.get()] = number.size();
    os << a->type << ';';
  }
  for (auto &n : body->nodes) {
    os << n->op->name << '(';
    for (Value *v : n->operands())
      os << number.lookup(v) << ',';
    os << ')';
    for (auto &[name, a] : n->attrs) {
      os << name << '=';
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
    number[n->result()] = number.size();
    os << n->result()->type << ';';
  }
  for (Value *r : body->results)
    os << number.lookup(r) << ' ';
  return os.str();
}

/// Pairs (result, operand) whose memory may be one: the kernel has read the operand's element for the last time
/// when it writes the result's. That holds for results of the last phase that lie as the operand does.
static std::vector<int64_t> inPlacePairs(const Function &k, const KernelShape &s, ArrayRef<Value *> operands) {
  int last = 0;
  for (auto &[n, p] : s.phases)
    if (s.extents.lookup(n) == Extent::Full)
      last = std::max(last, p);
  std::vector<int64_t> pairs;
  for (unsigned r = 0; r < k.results.size(); ++r) {
    const Node *def = k.results[r]->def;
    if (s.extents.lookup(def) != Extent::Full || s.phases.lookup(def) != last)
      continue;
    Dims want = resultStrides(s, *def);
    for (unsigned a = 0; a < k.args.size(); ++a) {
      const Type &t = k.args[a]->type;
      if (elemBytes(t.elem) != elemBytes(k.results[r]->type.elem) || t.localCount() != s.count())
        continue;
      auto view = viewOf(operands[a]);
      bool same = view && view->isDense();
      for (auto &u : k.args[a]->uses) {
        auto st = domainStrides(s, *u.node, t.localDims(), denseStrides(t.localDims()));
        same &= st && *st == want;
      }
      if (same)
        pairs.insert(pairs.end(), {r, a});
    }
  }
  return pairs;
}

Node *KernelBuilder::build(const FuseGroup &g, Node *before) {
  auto kernel = std::make_unique<Function>();
  body = kernel.get();
  body->isKernel = true;
  inside.clear();
  operands.clear();
  std::vector<Node *> members = g.withReshapes();
  Loc loc;
  for (Node *n : members) {
    cloneInto(*n);
    loc = mergeLocs(loc, n->loc);
  }
  std::vector<Value *> outputs = g.outputs();
  for (Value *v : outputs)
    body->results.push_back(inside.lookup(v));

  std::vector<Node *> generated;
  for (auto &n : body->nodes)
    if (isGenerated(*n))
      generated.push_back(n.get());
  auto shape = kernelShape(generated);
  assert(shape && "a group without loops");
  std::vector<int64_t> pairs = inPlacePairs(*body, *shape, operands);

  std::string text = key();
  std::string &name = known[text];
  if (name.empty()) {
    for (unsigned i = 0;; ++i) {
      name = "k" + std::to_string(i + known.size() - 1);
      if (!m.function(name))
        break;
    }
    body->name = name;
    m.addKernel(std::move(kernel));
  }
  auto call = std::make_unique<Node>(&ops::fused, loc);
  call->attrs.set("kernel", name);
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

/// Members are dead now, and the views between them, which may stand in any order.
static void eraseDead(Function &f) {
  llvm::DenseSet<const Value *> results(f.results.begin(), f.results.end());
  llvm::SetVector<Node *> work;
  for (auto &n : f.nodes)
    work.insert(n.get());
  while (!work.empty()) {
    Node *n = work.pop_back_val();
    bool isResult = llvm::any_of(n->results, [&](auto &r) { return results.contains(r.get()); });
    if (!n->op->isPure() || n->hasUses() || isResult)
      continue;
    for (Value *v : n->operands())
      if (v && v->def)
        work.insert(v->def);
    n->erase();
  }
}

static llvm::Error fuseFunction(Module &m, Function &f, llvm::StringMap<std::string> &known) {
  expandComposites(f);
  dropTrivialReductions(f);
  sinkCasts(f);
  fillConstantBases(f);
  if (llvm::Error e = globalizeConstants(m, f))
    return e;
  copyCounters(f);
  legalizeViews(f);
  FuseGroups groups(f);
  groups.grow();
  groups.joinSiblings();
  groups.recomputeCheap();
  KernelBuilder kernels(m, f, known);
  for (FuseGroup *g : groups.order()) // places single nodes too
    if (g->isKernel)
      kernels.build(*g, g->nodes.back());
  eraseDead(f);
  return llvm::Error::success();
}

llvm::Expected<bool> zcc::fuse(Module &m, PassContext &ctx) {
  llvm::StringMap<std::string> known;
  std::vector<Function *> functions;
  for (auto &f : m.functions)
    if (!f->isKernel)
      functions.push_back(f.get());
  for (Function *f : functions)
    if (llvm::Error e = fuseFunction(m, *f, known))
      return e;
  m.add(Property::Fused);
  return true;
}
