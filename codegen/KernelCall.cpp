// Fills a zccrt_call from a node, and asks the kernel for its workspace.
#include "codegen/KernelCall.h"
#include "ir/Epilogue.h"
#include "ir/View.h"
#include "passes/Target.h"
#include "passes/memory/Liveness.h"
#include <cstring>

using namespace zcc;
using llvm::StringRef;

static zccrt_tensor tensorAt(Elem e, llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<int64_t> strides, int64_t offset) {
  zccrt_tensor t{};
  t.offset = offset;
  t.elem = int32_t(e);
  t.ndim = int32_t(dims.size());
  std::copy(dims.begin(), dims.end(), t.dims);
  std::copy(strides.begin(), strides.end(), t.strides);
  return t;
}

zccrt_tensor zcc::denseTensor(const Type &t, int64_t offset) { return tensorAt(t.elem, t.dims, denseStrides(t.dims), offset); }

/// Attributes that passes wrote for the compiler itself.
static bool isInternal(StringRef attr) {
  return attr == "offsets" || attr == "steps" || attr == "scratch" || attr == "scratch_bytes" || attr == "inplace" ||
         attr == "product_in" || attr == "once" || attr == kRowsFirst;
}

void KernelCall::addAttr(const std::string &name, const Attr &a) {
  zccrt_attr out{};
  strings_.push_back(name);
  out.name = strings_.back().c_str();
  auto ints = [&](std::vector<int64_t> v) {
    ints_.push_back(std::move(v));
    out.ints = ints_.back().data();
    out.n = int32_t(ints_.back().size());
  };
  auto floats = [&](std::vector<double> v) {
    floats_.push_back(std::move(v));
    out.floats = floats_.back().data();
    out.n = int32_t(floats_.back().size());
  };
  if (auto *i = std::get_if<int64_t>(&a))
    ints({*i});
  else if (auto *d = std::get_if<double>(&a))
    floats({*d});
  else if (auto *v = std::get_if<std::vector<int64_t>>(&a))
    ints(*v);
  else if (auto *v = std::get_if<std::vector<double>>(&a))
    floats(*v);
  else {
    strings_.push_back(std::get<std::string>(a));
    out.str = strings_.back().c_str();
    out.n = 1;
  }
  attrs.push_back(out);
}

llvm::Error KernelCall::addTensor(const Function &f, const Node &n, Value *v) {
  if (!v) {
    zccrt_tensor none{};
    none.offset = -1;
    tensors.push_back(none);
    return llvm::Error::success();
  }
  if (v->type.ndim() > ZCCRT_MAX_DIMS)
    return errorAt(n.loc, "'%" + v->name + "' has " + llvm::Twine(v->type.ndim()) + " axes; kernels take at most " +
                              llvm::Twine(int(ZCCRT_MAX_DIMS)));
  auto s = storageOf(v);
  bool isOperand = v->def != &n;
  size_t i = tensors.size();
  if (!s || (isOperand && !s->isDense() && s->strides != denseStrides(s->dims) && !hasOperand(kernel->strided, unsigned(i))))
    return errorAt(n.loc, "'" + StringRef(n.op->name) + "' does not take '%" + v->name + "' as a strided view");
  Place place = f.module->has(Property::Planned) ? placeOf(f, v) : Place{0, 0};
  if (place.step)
    moving.push_back({i, place.step});
  tensors.push_back(tensorAt(v->type.elem, s->dims, s->strides, place.offset));
  return llvm::Error::success();
}

/// What the kernel of the same node reads.
void KernelCall::addProduct(const Function &f, const Node &n) {
  Place place = f.module->has(Property::Planned) ? productPlace(f, n) : Place{0, 0};
  if (place.step)
    moving.push_back({tensors.size(), place.step});
  tensors.push_back(denseTensor(productType(n), place.offset));
}

llvm::Expected<std::unique_ptr<KernelCall>> KernelCall::make(const Function &f, const Node &n, const Target &target) {
  auto c = std::make_unique<KernelCall>();
  const OpDef &op = *performed(n);
  c->kernel = target.findKernel(op.kernel);
  if (!c->kernel)
    return errorAt(n.loc, "operator '" + StringRef(op.name) + "' has no kernel for target '" + target.name() + "'");
  for (Value *v : productOperands(n))
    if (auto e = c->addTensor(f, n, v))
      return e;
  c->call.nin = int32_t(c->tensors.size());
  if (op.feedsKernel)
    c->addProduct(f, n);
  else
    for (unsigned i = 0; i < n.results.size(); ++i) {
      if (auto e = c->addTensor(f, n, n.result(i)))
        return e;
      if (!hasRowsFirst(n.attrs, i))
        continue;
      zccrt_tensor &t = c->tensors.back(); // kernels have [batch, heads, length, width], at strides
      std::swap(t.dims[1], t.dims[2]);
      std::swap(t.strides[1], t.strides[2]);
    }
  c->call.nout = int32_t(c->tensors.size()) - c->call.nin;
  for (auto &[name, a] : n.attrs)
    if (op.feedsKernel ? name == "way" : !isInternal(name) && !(name == "op" && &op != n.op)) // others are its kernel's
      c->addAttr(name, a);
  for (Value *v : productOperands(n))
    if (v && v->type.isPacked())
      c->addAttr("packed", v->type.layout.str());
  c->call.t = c->tensors.data();
  c->call.attrs = c->attrs.data();
  c->call.nattrs = int32_t(c->attrs.size());
  c->strings_.push_back(n.results.empty() ? "" : "%" + n.result()->name);
  c->call.name = c->strings_.back().c_str();
  c->strings_.push_back(n.loc && !n.loc->nodes.empty() ? n.loc->nodes[0] : "");
  c->call.node = c->strings_.back().c_str();
  const int64_t product = productScratch(n);
  c->call.scratch = n.attrs.i("scratch", -1) + (n.attrs.has("scratch") ? product : 0);
  c->call.scratch_bytes = n.attrs.i("scratch_bytes") - product;
  c->call.threads = target.threads();
  return c;
}

int64_t KernelCall::workspace() const { return kernel->workspace ? kernel->workspace(&call) : 0; }
