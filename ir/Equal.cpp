// Whether two modules say the same: found in the time of one walk, without printing either.
#include "ir/Equal.h"
#include "ir/Op.h"
#include "llvm/ADT/bit.h"

using namespace zcc;

/// NaN is equal to itself here.
static bool equal(double a, double b) { return llvm::bit_cast<uint64_t>(a) == llvm::bit_cast<uint64_t>(b); }

static bool equal(const Attr &a, const Attr &b) {
  auto *x = std::get_if<double>(&a), *y = std::get_if<double>(&b);
  if (x && y)
    return equal(*x, *y);
  auto *xs = std::get_if<std::vector<double>>(&a), *ys = std::get_if<std::vector<double>>(&b);
  if (xs && ys)
    return llvm::equal(*xs, *ys, [](double p, double q) { return equal(p, q); });
  return a == b;
}

static bool equal(const Attrs &a, const Attrs &b) {
  return llvm::equal(a, b, [](auto &x, auto &y) { return x.first == y.first && equal(x.second, y.second); });
}

static bool equal(const Init &a, const Init &b) {
  return a.kind == b.kind && equal(a.a, b.a) && equal(a.b, b.b) && a.file == b.file && a.offset == b.offset &&
         a.bytes == b.bytes && a.encoding == b.encoding && a.elem == b.elem && a.from == b.from;
}

static bool equal(const GlobalValue &a, const GlobalValue &b) {
  return a.name == b.name && a.type == b.type && a.role == b.role && a.trained == b.trained && a.exported == b.exported &&
         a.onnxName == b.onnxName && equal(a.init, b.init) && equal(a.attrs, b.attrs);
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
         llvm::equal(a.results, b.results, isDefinedAlike) && equal(a.attrs, b.attrs);
}

static bool equal(const Function &a, const Function &b) {
  return a.name == b.name && a.isKernel == b.isKernel && a.isBody == b.isBody && a.resultNames == b.resultNames &&
         llvm::equal(a.args, b.args, isDefinedAlike) && llvm::equal(a.results, b.results, isNamedAlike) &&
         llvm::equal(a.nodes, b.nodes, [](auto &x, auto &y) { return equal(*x, *y); });
}

bool zcc::areEqual(const Module &a, const Module &b) {
  return a.name == b.name && a.ranks == b.ranks && a.properties == b.properties && a.constData == b.constData &&
         equal(a.attrs, b.attrs) && llvm::equal(a.globals, b.globals, [](auto &x, auto &y) { return equal(*x, *y); }) &&
         llvm::equal(a.functions, b.functions, [](auto &x, auto &y) { return equal(*x, *y); });
}
