#include "passes/fuse/KernelBuilder.h"
#include "ir/Op.h"
#include "ir/View.h"
#include "passes/fuse/Operands.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/raw_ostream.h"

using namespace zcc;
using llvm::ArrayRef;

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
  } else if (v->def && v->def->op->leaf == Leaf::Counter) {
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
  // Of its first result: the forward may be computed again in the backward, which may hold updates.
  call->phase = outputs.empty() ? g.nodes.front()->phase : Phase::Update;
  for (const Value *v : outputs)
    call->phase = std::min(call->phase, v->def->phase);
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
