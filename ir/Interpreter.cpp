// Evaluation of nodes and functions on whole tensors.
#include "ir/Interpreter.h"
#include "ir/Builder.h"
#include "ir/Control.h"
#include "ir/Epilogue.h"
#include "ir/Philox.h"
#include "ir/Scalar.h"
#include "llvm/ADT/DenseMap.h"
#include <cmath>

using namespace zcc;
using llvm::ArrayRef;

// ---- reading through strides

/// Elements first .. first + n - 1 (row-major) of the view `offset + sum(i * stride)` over `dims`.
template <typename T>
static void readStrided(const T *src, int64_t offset, ArrayRef<int64_t> strides, ArrayRef<int64_t> dims, int64_t first, int64_t n,
                        T *to) {
  Dims at(dims.size(), 0);
  for (int i = int(dims.size()) - 1; i >= 0; --i) {
    at[i] = first % dims[i];
    first /= dims[i];
    offset += at[i] * strides[i];
  }
  int last = int(dims.size()) - 1;
  while (n > 0) {
    int64_t run = last < 0 ? n : std::min(n, dims[last] - at[last]);
    int64_t stride = last < 0 ? 0 : strides[last];
    for (int64_t k = 0; k < run; ++k)
      *to++ = src[offset + k * stride];
    n -= run;
    if (last < 0 || n <= 0)
      return;
    offset += run * stride;
    at[last] += run;
    for (int i = last; i > 0 && at[i] == dims[i]; --i) {
      offset += strides[i - 1] - dims[i] * strides[i];
      at[i] = 0;
      ++at[i - 1];
    }
  }
}

void zcc::copyStrided(const Tensor &src, int64_t offset, ArrayRef<int64_t> strides, Tensor &dst) {
  int64_t n = dst.count();
  if (n == 0)
    return;
  if (dst.isFloat())
    readStrided(src.f.data(), offset, strides, dst.type.dims, 0, n, dst.f.data());
  else
    readStrided(src.i.data(), offset, strides, dst.type.dims, 0, n, dst.i.data());
}

// ---- elementwise operators

namespace {
/// An operand of an elementwise operator, read in blocks of the result's elements.
class BlockReader {
public:
  BlockReader(const Tensor &t, const Type &result) : t(t), dims(result.dims) {
    size_t lead = dims.size() - t.type.ndim();
    Dims own = denseStrides(t.type.dims);
    strides.assign(dims.size(), 0);
    for (size_t i = lead; i < dims.size(); ++i)
      strides[i] = t.type.dims[i - lead] == dims[i] ? own[i - lead] : 0;
    direct = t.count() == result.count();
    if (!direct)
      buffer.resize(ScalarProgram::kBlock * sizeof(double));
  }
  const void *block(int64_t first, int64_t n) { return t.isFloat() ? read(t.f, first, n) : read(t.i, first, n); }

private:
  const Tensor &t;
  ArrayRef<int64_t> dims;
  Dims strides;
  bool direct; ///< the result's elements are the operand's, in this order
  std::vector<std::byte> buffer;

  template <typename T> const void *read(const std::vector<T> &v, int64_t first, int64_t n) {
    if (direct)
      return v.data() + first;
    readStrided(v.data(), 0, strides, dims, first, n, reinterpret_cast<T *>(buffer.data()));
    return buffer.data();
  }
};
} // namespace

static void evalCast(const Tensor &x, Tensor &y) {
  Elem to = y.type.elem;
  int64_t n = y.count();
  for (int64_t e = 0; e < n; ++e) {
    if (y.isFloat())
      y.f[e] = x.isFloat() ? x.f[e] : x.type.elem == Elem::U64 ? double(uint64_t(x.i[e])) : double(x.i[e]);
    else if (to == Elem::Bool)
      y.i[e] = x.isFloat() ? x.f[e] != 0 : x.i[e] != 0;
    else if (!x.isFloat())
      y.i[e] = x.i[e];
    else if (std::isnan(x.f[e]))
      y.i[e] = 0;
    else if (to == Elem::U64 && x.f[e] >= 0x1p63)
      y.i[e] = int64_t(uint64_t(std::min(x.f[e], 0x1.fffffffffffffp63)));
    else
      y.i[e] = int64_t(std::clamp(x.f[e], -0x1p63, 0x1.fffffffffffffp62));
  }
}

static llvm::Error evalElementwise(Node &n, ArrayRef<const Tensor *> in, Tensor &out) {
  if (n.op->converts()) {
    evalCast(*in[0], out);
    return llvm::Error::success();
  }
  if (n.op->resultElem == ResultElem::ToOfEqualSize) {
    out = tensorFromBytes(out.type, tensorToBytes(*in[0]));
    return llvm::Error::success();
  }
  llvm::SmallVector<ScalarName, 4> names;
  std::vector<BlockReader> readers;
  for (size_t i = 0; i < in.size(); ++i) {
    names.push_back({n.op->operands[i].name, scalarKind(in[i]->type.elem)});
    readers.emplace_back(*in[i], out.type);
  }
  auto program = ScalarProgram::compile(scalarOf(*n.op), names);
  if (!program)
    return errorAt(n.loc, llvm::toString(program.takeError()));
  std::vector<const void *> blocks(in.size());
  int64_t count = out.count();
  for (int64_t first = 0; first < count; first += ScalarProgram::kBlock) {
    int64_t size = std::min(ScalarProgram::kBlock, count - first);
    for (size_t i = 0; i < in.size(); ++i)
      blocks[i] = readers[i].block(first, size);
    void *to = out.isFloat() ? (void *)(out.f.data() + first) : out.i.data() + first;
    program->run(blocks, to, size);
  }
  return llvm::Error::success();
}

// ---- nodes

using Tensors = std::vector<Tensor>;

/// Evaluates an operator by its body of primitives, in a function of its own.
static llvm::Expected<Tensors> evalExpanded(Node &n, ArrayRef<const Tensor *> in, Compute c) {
  Module m;
  Function *f = m.addFunction("expanded");
  Node *copy = f->insert(std::make_unique<Node>(n.op, n.loc));
  copy->attrs = n.attrs;
  Tensors args;
  for (const Tensor *t : in) {
    copy->addOperand(t ? f->addArg("x", t->type) : nullptr);
    if (t)
      args.push_back(*t);
  }
  for (auto &r : n.results) {
    copy->results.push_back(std::make_unique<Value>(Value::Result, r->name, r->type));
    copy->results.back()->def = copy;
  }
  Builder b(*f, copy, n.loc);
  for (Value *v : n.op->expand(b, *copy))
    f->results.push_back(v);
  copy->erase();
  Memory none;
  return runFunction(*f, args, none, c);
}

llvm::Expected<Tensors> zcc::evalNode(Node &n, ArrayRef<const Tensor *> in, Compute c) {
  if (!n.op->scalar && !n.op->eval && n.op->expand)
    return evalExpanded(n, in, c);
  if (!n.op->scalar && !n.op->eval)
    return errorAt(n.loc, "'" + llvm::Twine(n.op->name) + "' has no value of its own");
  Tensors results;
  std::vector<Tensor *> out;
  results.reserve(n.results.size());
  for (auto &r : n.results) {
    results.emplace_back(r->type);
    out.push_back(&results.back());
  }
  if (auto e = n.op->scalar ? evalElementwise(n, in, results[0]) : n.op->eval(n, in, out))
    return e;
  for (Tensor &t : results)
    roundAll(t, c);
  return results;
}

// ---- functions

namespace {
class Run {
public:
  Run(Function &f, Memory &m, Compute c) : f(f), memory(m), compute(c) {}
  llvm::Expected<Tensors> run(ArrayRef<Tensor> args);

private:
  Function &f;
  Memory &memory;
  Compute compute;
  /// Of arguments and results of nodes, until their last use.
  llvm::DenseMap<const Value *, Tensor> values;
  /// Uses that are still to come.
  llvm::DenseMap<const Value *, unsigned> uses;

  void countUses();
  void used(const Value *v);
  llvm::Expected<const Tensor *> value(Value *v);
  llvm::Expected<Tensor> initial(const GlobalValue &g);
  llvm::Expected<Tensors> call(Node &n, ArrayRef<const Tensor *> in);
  llvm::Expected<Tensors> started(Node &n, ArrayRef<const Tensor *> in);
  llvm::Expected<Tensors> fused(Node &n, ArrayRef<const Tensor *> in);
  llvm::Expected<Tensors> fusedProduct(Node &n, ArrayRef<const Tensor *> in);
  llvm::Expected<Tensors> scan(Node &n, ArrayRef<const Tensor *> in);
  llvm::Expected<Tensors> cond(Node &n, ArrayRef<const Tensor *> in);
  llvm::Error execute(Node &n);
};
} // namespace

void Run::countUses() {
  for (auto &n : f.nodes)
    for (Value *v : n->operands())
      ++uses[v];
  for (Value *v : f.results)
    ++uses[v];
}

void Run::used(const Value *v) {
  if (v && !v->isGlobal() && --uses[v] == 0)
    values.erase(v);
}

llvm::Expected<Tensor> Run::initial(const GlobalValue &g) {
  const Init &init = g.init;
  if (init.kind == Init::Copy) {
    GlobalValue *from = f.module->global(init.from);
    if (!from)
      return errorAt(g.loc, llvm::Twine("there is no global '") + init.from + "' to copy");
    auto t = value(from);
    if (!t)
      return t.takeError();
    Tensor copy = **t;
    copy.type = g.type;
    roundAll(copy, compute);
    return copy;
  }
  if (g.isBox()) {
    const GlobalValue &tensor = f.module->wholeOf(g);
    auto whole = initial(tensor);
    if (!whole)
      return whole;
    Tensor t(g.type);
    int64_t to = 0;
    forRows(g, tensor.type, [&](int64_t at, int64_t n) {
      copyElements(*whole, at, t, to, n);
      to += n;
    });
    return t;
  }
  if (init.kind != Init::Uniform && init.kind != Init::Normal) {
    auto bytes = f.module->bytesOf(g);
    if (!bytes)
      return bytes.takeError();
    return tensorFromBytes(g.type, *bytes);
  }
  Tensor t(g.type);
  uint32_t id = philoxId((init.from.empty() ? g.name : init.from).c_str());
  GlobalValue *seedValue = f.module->global("seed");
  uint64_t seed = 0;
  if (seedValue) {
    auto s = value(seedValue);
    if (!s)
      return s.takeError();
    seed = uint64_t((*s)->i[0]);
  }
  for (int64_t e = 0; e < t.count(); ++e)
    t.f[e] = init.kind == Init::Uniform ? init.a + (init.b - init.a) * philoxUniform(seed, e, id, kPhiloxInit)
                                        : init.a + init.b * philoxNormal(seed, e, id, kPhiloxInit);
  roundAll(t, compute);
  return t;
}

llvm::Expected<const Tensor *> Run::value(Value *v) {
  if (!v->isGlobal()) {
    auto found = values.find(v);
    if (found == values.end())
      return error(llvm::Twine("'%") + v->name + "' is used before it is computed");
    return &found->second;
  }
  auto found = memory.find(v);
  if (found == memory.end()) {
    auto t = initial(*static_cast<GlobalValue *>(v));
    if (!t)
      return t.takeError();
    found = memory.emplace(v, std::move(*t)).first;
  }
  return &found->second;
}

/// What `start` starts happens at once.
llvm::Expected<Tensors> Run::started(Node &n, ArrayRef<const Tensor *> in) {
  Node body(performed(n), n.loc);
  body.attrs = n.attrs;
  for (auto &r : n.results) {
    Type t = r->type;
    t.isFuture = false;
    body.results.push_back(std::make_unique<Value>(Value::Result, r->name, t));
  }
  if (runsKernel(n))
    return performed(n)->feedsKernel ? fusedProduct(n, in) : fused(n, in);
  return evalNode(body, in, compute);
}

/// Row t of `stack`, or the place in it.
template <typename F> static void withRow(Tensor &stack, Tensor &row, int64_t t, F f) {
  int64_t n = row.count();
  if (row.isFloat())
    f(stack.f.begin() + t * n, row.f.begin(), n);
  else
    f(stack.i.begin() + t * n, row.i.begin(), n);
}

llvm::Expected<Tensors> Run::scan(Node &n, ArrayRef<const Tensor *> in) {
  Function *body = bodiesOf(n)[0];
  if (!body)
    return errorAt(n.loc, llvm::Twine("there is no body '@") + n.attrs.s("body") + "'");
  ScanForm form(n);
  Tensors args, results;
  for (size_t i = 0; i < in.size(); ++i)
    args.push_back(form.isSlice(unsigned(i)) ? Tensor(body->args[i]->type) : *in[i]);
  for (auto &r : n.results)
    results.emplace_back(r->type);
  for (int64_t k = 0; k < form.trips; ++k) {
    int64_t t = form.reverse ? form.trips - 1 - k : k;
    for (unsigned i = form.carried; i < form.carried + form.scanned; ++i)
      withRow(const_cast<Tensor &>(*in[i]), args[i], t, [](auto from, auto to, int64_t count) { std::copy_n(from, count, to); });
    auto out = runFunction(*body, args, memory, compute);
    if (!out)
      return out;
    for (unsigned i = form.carried; i < out->size(); ++i)
      withRow(results[i], (*out)[i], t, [](auto to, auto from, int64_t count) { std::copy_n(from, count, to); });
    for (unsigned i = 0; i < form.carried; ++i)
      args[i] = std::move((*out)[i]);
  }
  std::move(args.begin(), args.begin() + form.carried, results.begin());
  return results;
}

llvm::Expected<Tensors> Run::cond(Node &n, ArrayRef<const Tensor *> in) {
  Function *body = bodiesOf(n)[in[0]->i[0] ? 0 : 1];
  if (!body)
    return errorAt(n.loc, "a body of 'cond' is missing");
  Tensors args;
  for (const Tensor *t : in.drop_front())
    args.push_back(*t);
  return runFunction(*body, args, memory, compute);
}

llvm::Expected<Tensors> Run::call(Node &n, ArrayRef<const Tensor *> in) {
  if (n.op->feedsKernel)
    return fusedProduct(n, in);
  switch (n.op->structural) {
  case Structural::Scan:
    return scan(n, in);
  case Structural::Cond:
    return cond(n, in);
  case Structural::Start:
    return started(n, in);
  case Structural::Fused:
    return fused(n, in);
  case Structural::After:
  case Structural::Wait:
    return Tensors{*in[0]};
  case Structural::Release:
    return Tensors{};
  case Structural::Assign: // execute()
  case Structural::None:
  case Structural::Addend:
  case Structural::Shard:
  case Structural::SumRanks:
  case Structural::Collective:
  case Structural::Transfer:
  case Structural::Insert:
    return evalNode(n, in, compute);
  }
  llvm_unreachable("a structural operator without a rule");
}

llvm::Expected<Tensors> Run::fused(Node &n, ArrayRef<const Tensor *> in) {
  Function *kernel = f.module->function(n.attrs.s("kernel"));
  if (!kernel)
    return errorAt(n.loc, llvm::Twine("there is no kernel '@") + n.attrs.s("kernel") + "'");
  Tensors results;
  for (size_t begin = 0, count = kernel->args.size(); begin < in.size() || begin == 0; begin += std::max<size_t>(count, 1)) {
    Tensors args;
    for (const Tensor *t : in.slice(begin, count))
      args.push_back(*t);
    auto part = runFunction(*kernel, args, memory, compute);
    if (!part)
      return part.takeError();
    llvm::move(*part, std::back_inserter(results));
  }
  return results;
}

/// A product, and the kernel that reads it.
llvm::Expected<Tensors> Run::fusedProduct(Node &n, ArrayRef<const Tensor *> in) {
  Node alone(&ops::matmul, n.loc);
  alone.results.push_back(std::make_unique<Value>(Value::Result, "product", productType(n)));
  auto product = evalNode(alone, in.take_front(2), compute);
  if (!product)
    return product;
  size_t at = size_t(n.attrs.i("product"));
  (*product)[0].type = f.module->function(n.attrs.s("kernel"))->args[at]->type;
  llvm::SmallVector<const Tensor *> args(in.drop_front(2));
  args.insert(args.begin() + at, &(*product)[0]);
  return fused(n, args);
}

llvm::Error Run::execute(Node &n) {
  if (assigns(n)) {
    auto from = value(n.operand(1));
    if (!from)
      return from.takeError();
    Tensor copy = **from;
    if (n.operand(1)->type != n.operand(0)->type) { // a run of it
      auto old = value(n.operand(0));
      if (!old)
        return old.takeError();
      Tensor whole = **old;
      copyElements(copy, 0, whole, assigned(n).begin, copy.count());
      copy = std::move(whole);
    }
    memory.insert_or_assign(n.operand(0), std::move(copy));
    used(n.operand(1));
    return llvm::Error::success();
  }
  std::vector<const Tensor *> in;
  for (Value *v : n.operands()) {
    in.push_back(nullptr);
    if (!v)
      continue;
    auto t = value(v);
    if (!t)
      return t.takeError();
    in.back() = *t;
  }
  auto out = call(n, in);
  if (!out)
    return out.takeError();
  for (Value *v : n.operands())
    used(v);
  for (size_t i = 0; i < out->size(); ++i)
    if (uses.lookup(n.result(i)))
      values[n.result(i)] = std::move((*out)[i]);
  return llvm::Error::success();
}

llvm::Expected<Tensors> Run::run(ArrayRef<Tensor> args) {
  if (args.size() != f.args.size())
    return error(llvm::Twine("'@") + f.name + "' takes " + llvm::Twine(f.args.size()) + " arguments, got " +
                 llvm::Twine(args.size()));
  countUses();
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].type != f.args[i]->type)
      return error(llvm::Twine("argument '%") + f.args[i]->name + "' is " + f.args[i]->type.str() + ", got " +
                   args[i].type.str());
    values[f.args[i].get()] = args[i];
  }
  for (auto &n : f.nodes)
    if (auto e = execute(*n))
      return e;
  Tensors results;
  for (Value *v : f.results) {
    auto t = value(v);
    if (!t)
      return t.takeError();
    results.push_back(**t);
  }
  return results;
}

llvm::Expected<Tensors> zcc::runFunction(Function &f, ArrayRef<Tensor> args, Memory &memory, Compute c) {
  return Run(f, memory, c).run(args);
}
