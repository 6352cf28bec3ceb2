// Whether two modules say the same: found in the time of one walk, without printing either. What is compared here is hashed
// below: what a module gains is put into both.
#include "ir/Equal.h"
#include "ir/Op.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/xxhash.h"

using namespace zcc;

/// NaN is equal to itself here.
static bool equal(double a, double b) { return llvm::bit_cast<uint64_t>(a) == llvm::bit_cast<uint64_t>(b); }

bool zcc::areEqual(const Attr &a, const Attr &b) {
  auto *x = std::get_if<double>(&a), *y = std::get_if<double>(&b);
  if (x && y)
    return equal(*x, *y);
  auto *xs = std::get_if<std::vector<double>>(&a), *ys = std::get_if<std::vector<double>>(&b);
  if (xs && ys)
    return llvm::equal(*xs, *ys, [](double p, double q) { return equal(p, q); });
  return a == b;
}

bool zcc::areEqual(const Attrs &a, const Attrs &b) {
  return llvm::equal(a, b, [](auto &x, auto &y) { return x.first == y.first && areEqual(x.second, y.second); });
}

static bool equal(const Init &a, const Init &b) {
  return a.kind == b.kind && equal(a.a, b.a) && equal(a.b, b.b) && a.file == b.file && a.offset == b.offset &&
         a.bytes == b.bytes && a.encoding == b.encoding && a.elem == b.elem && a.from == b.from && a.start == b.start;
}

static bool equal(const GlobalValue &a, const GlobalValue &b) {
  return a.name == b.name && a.type == b.type && a.role == b.role && a.trained == b.trained && a.exported == b.exported &&
         a.onnxName == b.onnxName && equal(a.init, b.init) && areEqual(a.attrs, b.attrs);
}

/// Where values are defined their types are compared, too.
static bool isNamedAlike(const Value *a, const Value *b) {
  return a && b ? a->isGlobal() == b->isGlobal() && a->name == b->name : a == b;
}
static bool isDefinedAlike(const std::unique_ptr<Value> &a, const std::unique_ptr<Value> &b) {
  return a->name == b->name && a->type == b->type;
}

static bool equal(const Node &a, const Node &b) {
  return a.op == b.op && (a.op->leaf || a.phase == b.phase) && llvm::equal(a.operands(), b.operands(), isNamedAlike) &&
         llvm::equal(a.results, b.results, isDefinedAlike) && areEqual(a.attrs, b.attrs);
}

static bool equal(const Function &a, const Function &b) {
  return a.name == b.name && a.isKernel == b.isKernel && a.isBody == b.isBody && a.resultNames == b.resultNames &&
         llvm::equal(a.args, b.args, isDefinedAlike) && llvm::equal(a.results, b.results, isNamedAlike) &&
         llvm::equal(a.nodes, b.nodes, [](auto &x, auto &y) { return equal(*x, *y); });
}

bool zcc::areEqual(const Module &a, const Module &b) {
  return a.name == b.name && a.ranks == b.ranks && a.properties == b.properties && a.constData == b.constData &&
         areEqual(a.attrs, b.attrs) && llvm::equal(a.globals, b.globals, [](auto &x, auto &y) { return equal(*x, *y); }) &&
         llvm::equal(a.functions, b.functions, [](auto &x, auto &y) { return equal(*x, *y); });
}

// ---- hashing

namespace {
class Hasher {
public:
  uint64_t of(const Module &m);
  uint64_t of(const Type &t) { return add(t), h_; }
  uint64_t of(const Attrs &a) { return add(a), h_; }
  uint64_t of(const Attr &a) { return addAttr(a), h_; }

private:
  uint64_t h_ = 0;

  void add(uint64_t x) { // the finaliser of MurmurHash3
    h_ = (h_ ^ x) * 0xff51afd7ed558ccdULL;
    h_ = (h_ ^ (h_ >> 33)) * 0xc4ceb9fe1a85ec53ULL;
    h_ ^= h_ >> 29;
  }
  void add(int64_t x) { add(uint64_t(x)); }
  void add(double x) { add(llvm::bit_cast<uint64_t>(x)); }
  void add(llvm::StringRef s) { add(llvm::xxh3_64bits(s)); }
  template <typename T> void addAll(const T &list) {
    add(uint64_t(list.size()));
    for (auto &x : list)
      add(x);
  }
  void add(const std::vector<int64_t> &v) { addAll(v); }
  void add(const std::vector<double> &v) { addAll(v); }
  void add(const Type &t) {
    add(uint64_t(t.elem) | uint64_t(t.space) << 8 | uint64_t(t.isFuture) << 16 | uint64_t(t.shards) << 32);
    add(uint64_t(t.addends));
    addAll(t.dims);
  }
  void addAttr(const Attr &a) {
    add(uint64_t(a.index()));
    std::visit([&](auto &x) { add(x); }, a);
  }
  void add(const Attrs &attrs) {
    for (auto &[name, a] : attrs) {
      add(llvm::StringRef(name));
      addAttr(a);
    }
  }
  void addName(const Value *v) {
    add(uint64_t(!v ? 0 : v->isGlobal() ? 1 : 2));
    if (v)
      add(llvm::StringRef(v->name));
  }
  void add(const std::unique_ptr<Value> &v) {
    add(llvm::StringRef(v->name));
    add(v->type);
  }
  void add(const Init &i);
  void add(const GlobalValue &g);
  void add(const Node &n);
  void add(const Function &f);
};
} // namespace

void Hasher::add(const Init &i) {
  add(uint64_t(i.kind) | uint64_t(i.elem ? int(*i.elem) + 1 : 0) << 8);
  add(i.a);
  add(i.b);
  add(i.offset);
  add(i.bytes);
  add(i.start);
  for (llvm::StringRef s : {i.file, i.encoding, i.from})
    add(s);
}

void Hasher::add(const GlobalValue &g) {
  add(llvm::StringRef(g.name));
  add(g.type);
  add(uint64_t(g.role) | uint64_t(g.trained) << 8 | uint64_t(g.exported) << 16);
  add(llvm::StringRef(g.onnxName));
  add(g.init);
  add(g.attrs);
}

void Hasher::add(const Node &n) {
  add(uint64_t(llvm::bit_cast<uintptr_t>(n.op)));
  add(uint64_t(n.op->leaf ? Phase::Forward : n.phase));
  add(uint64_t(n.numOperands()));
  for (const Value *v : n.operands())
    addName(v);
  addAll(n.results);
  add(n.attrs);
}

void Hasher::add(const Function &f) {
  add(llvm::StringRef(f.name));
  add(uint64_t(f.isKernel) | uint64_t(f.isBody) << 1);
  addAll(f.resultNames);
  addAll(f.args);
  add(uint64_t(f.results.size()));
  for (const Value *v : f.results)
    addName(v);
  add(uint64_t(f.nodes.size()));
  for (auto &n : f.nodes)
    add(*n);
}

uint64_t Hasher::of(const Module &m) {
  add(llvm::StringRef(m.name));
  add(uint64_t(m.ranks));
  add(llvm::StringRef(m.constData));
  add(m.attrs);
  add(uint64_t(m.globals.size()));
  for (auto &g : m.globals)
    add(*g);
  add(uint64_t(m.functions.size()));
  for (auto &f : m.functions)
    add(*f);
  return h_;
}

uint64_t zcc::hashOf(const Attr &a) { return Hasher().of(a); }
uint64_t zcc::hashOf(const Attrs &a) { return Hasher().of(a); }
uint64_t zcc::hashOf(const Type &t) { return Hasher().of(t); }
uint64_t zcc::hashOf(const Module &m) { return Hasher().of(m); }
