// A matrix product whose only reader is an elementwise kernel over its elements, and that kernel, become one node
// (ir/Epilogue.h).
//
//   %p = matmul %x, %w : f32[8x64]
//   %y = fused @k3 %p, %b {!inplace = [0, 0]} : f32[8x64]   ->   %y = fused_matmul @k3 %x, %w, %b {!product_in = 0} : f32[8x64]
//
// The kernel moves up to the product over views and updates; so lifetimes stay as they were. What stays apart: kernels that
// reduce or update, kernels over other shapes, products that others read, too, that add to what is there or are computed in host
// memory (which a queue starts), and what reads shards or addends.
#include "ir/Epilogue.h"
#include "passes/Pass.h"
#include "passes/fuse/KernelShape.h"
#include "passes/memory/Liveness.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace zcc;

namespace {
struct Epilogue {
  Node *product, *kernel;
  unsigned argument; ///< of the kernel, which is the product
};
} // namespace

/// The only use of a value, if it is not returned.
static const Value::Use *onlyUse(const Value &v) { return v.uses.size() == 1 && !v.isReturned() ? &v.uses.front() : nullptr; }

/// Whether a kernel has one element of each result for each of so many, and reduces nothing.
static bool isElementwise(const Function &kernel, int64_t count) {
  for (auto &n : kernel.nodes)
    if (n->op->reduction || n->op->leaf == Leaf::Counter)
      return false;
  return llvm::all_of(kernel.results, [&](const Value *r) { return r->type.count() == count; });
}

static bool isWholeOnDevice(const Value *v) {
  const Type &t = v->type;
  return t.space == Space::Device && !t.isPartitioned() && !t.isAddend();
}

/// Whether all between the two are views, which move along, and updates of what the kernel does not read.
static bool canMoveUp(const Epilogue &e) {
  llvm::SmallPtrSet<const Value *, 8> changed;
  for (Node *n = e.product->next(); n != e.kernel; n = n->next()) {
    if (!n->op->view && !assigns(*n) && n->phase != Phase::Update)
      return false;
    if (!n->op->view)
      for (auto &r : n->results)
        changed.insert(r.get());
    if (assigns(*n))
      changed.insert(n->operand(0));
  }
  auto stays = [&](Value *v) {
    auto view = viewOf(v);
    return view && !changed.contains(view->base);
  };
  for (unsigned i = 0; i < e.kernel->numOperands(); ++i)
    if (i != e.argument && !stays(e.kernel->operand(i)))
      return false;
  return true;
}

/// The kernel that alone reads a product, as it is or in other dims.
static std::optional<Epilogue> epilogueOf(Node &product) {
  if (!product.is(ops::matmul))
    return std::nullopt;
  const Value::Use *use = onlyUse(*product.result());
  while (use && use->node->op->reshapes)
    use = onlyUse(*use->node->result());
  if (!use || !use->node->op->isFused() || use->node->phase != product.phase || product.phase == Phase::Update)
    return std::nullopt;
  Epilogue e{&product, use->node, use->index};
  const Function *kernel = product.parent()->module->function(e.kernel->attrs.s("kernel"));
  if (!kernel || !isElementwise(*kernel, product.result()->type.count()) ||
      !llvm::all_of(llvm::concat<Value *const>(product.operands(), e.kernel->operands()), isWholeOnDevice) || !canMoveUp(e))
    return std::nullopt;
  return e;
}

/// Whether a result becomes a global's, in whose memory it may be made.
static bool isStored(const Value &v) {
  return llvm::any_of(v.uses, [](auto &u) { return assigns(*u.node) || (u.node->op->view && isStored(*u.node->result())); });
}

/// Notes where the product lies: in the first result that may be written over it; not in what a body may make over what it
/// carries, nor in a global's memory. That result cannot be written over other operands, which are read later than the product is
/// written.
static void placeProduct(const Epilogue &e, Node &node) {
  auto pairs = inplacePairs(*e.kernel);
  auto overOthers = [&](unsigned r) {
    return llvm::any_of(pairs, [&](auto &p) { return p.first == r && p.second != e.argument; });
  };
  int64_t in = -1;
  for (auto [r, operand] : pairs)
    if (operand == e.argument && in < 0 && !isStored(*node.result(r)) && !(node.parent()->isBody && overOthers(r)))
      in = r;
  std::vector<int64_t> others;
  for (auto [r, operand] : pairs)
    if (operand != e.argument && r != in)
      others.insert(others.end(), {r, operand + 2 - (operand > e.argument)});
  if (in >= 0)
    node.attrs.set("product_in", in);
  if (!others.empty())
    node.attrs.set("inplace", others);
}

/// Moves the views that a value is taken by, of those behind the product, in front of it; each once.
static void moveUp(Value *v, llvm::SmallPtrSet<Node *, 8> &between, Node *product) {
  if (!v->def || !between.erase(v->def))
    return;
  moveUp(v->def->operand(0), between, product);
  v->def->moveBefore(product);
}

static void attach(const Epilogue &e) {
  llvm::SmallPtrSet<Node *, 8> between;
  for (Node *n = e.product->next(); n != e.kernel; n = n->next())
    between.insert(n);
  for (unsigned i = 0; i < e.kernel->numOperands(); ++i)
    if (i != e.argument)
      moveUp(e.kernel->operand(i), between, e.product);
  auto made = std::make_unique<Node>(&ops::fused_matmul, mergeLocs(e.product->loc, e.kernel->loc));
  made->phase = e.product->phase;
  made->attrs.set("kernel", e.kernel->attrs.s("kernel"));
  if (e.argument)
    made->attrs.set("product", int64_t(e.argument));
  if (const Attr *way = e.product->attrs.find("way")) // its bits do not depend on what follows
    made->attrs.set("way", *way);
  for (Value *v : e.product->operands())
    made->addOperand(v);
  for (unsigned i = 0; i < e.kernel->numOperands(); ++i)
    if (i != e.argument)
      made->addOperand(e.kernel->operand(i));
  Node *node = e.product->parent()->insert(std::move(made), e.product);
  node->results = std::move(e.kernel->results);
  e.kernel->results.clear();
  for (auto &r : node->results)
    r->def = node;
  placeProduct(e, *node);
  for (Node *n = e.kernel; n;) { // up to the product, over its reshapes
    Value *read = n->operand(n == e.kernel ? e.argument : 0);
    Node *before = n == e.product ? nullptr : read->def;
    n->erase();
    n = before;
  }
}

llvm::Expected<bool> zcc::attachEpilogues(Module &m, PassContext &) {
  bool changed = false;
  for (auto &f : m.functions) {
    if (f->isKernel)
      continue;
    std::vector<Epilogue> all;
    for (auto &n : f->nodes)
      if (auto e = epilogueOf(*n))
        all.push_back(*e);
    for (const Epilogue &e : all)
      attach(e);
    changed |= !all.empty();
  }
  return changed;
}
