// The folding builder of the importer.
#include "frontend/Emitter.h"
#include "ir/Control.h"
#include "ir/Interpreter.h"
#include "ir/Verifier.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>

using namespace zcc;
using llvm::ArrayRef;
using llvm::StringRef;

void zcc::unsupported(const llvm::Twine &what) { throw NodeError{NodeError::Unsupported, what.str()}; }
void zcc::notConstant(const llvm::Twine &what) { throw NodeError{NodeError::NotConstant, what.str()}; }
void zcc::invalid(const llvm::Twine &what) { throw NodeError{NodeError::Invalid, what.str()}; }

int64_t Known::loaded = 0;

const Tensor &Known::tensor() {
  if (!tensor_) {
    tensor_ = load();
    load = nullptr;
    loaded += tensor_->type.count();
  }
  return *tensor_;
}

Known::~Known() { loaded -= tensor_ ? tensor_->type.count() : 0; }

int64_t Val::dim(int64_t i) const {
  int64_t a = i < 0 ? i + rank() : i;
  if (a < 0 || a >= rank())
    invalid(type.str() + " has too few axes");
  return type.dims[a];
}

void zcc::checkTableSize(double elements) {
  constexpr double kMost = 1 << 26; // 512 MiB as doubles
  if (!(elements <= kMost))
    unsupported("a table of more than 2^26 elements");
  if (elements > double(Emitter::roomForKnown()))
    unsupported("more than 2^27 elements of tables in all");
}

int64_t zcc::normalAxis(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank)
    invalid("axis " + llvm::Twine(axis) + " of a tensor with " + llvm::Twine(rank) + " axes");
  return axis < 0 ? axis + rank : axis;
}

Dims zcc::normalAxes(ArrayRef<int64_t> axes, int64_t rank) {
  Dims r;
  if (rank == 0 && llvm::all_of(axes, [](int64_t a) { return a == 0 || a == -1; }))
    return r; // what PyTorch calls the axis of a tensor without axes
  for (int64_t a : axes)
    r.push_back(normalAxis(a, rank));
  llvm::sort(r);
  if (std::adjacent_find(r.begin(), r.end()) != r.end())
    invalid("an axis is given twice");
  return r;
}

Dims zcc::allAxes(int64_t from, int64_t to) {
  Dims r;
  for (int64_t i = from; i < to; ++i)
    r.push_back(i);
  return r;
}

// ---- emitting

/// Folded results up to this many elements: larger masks and tables stay views of what makes them.
constexpr int64_t kMostFoldedElements = int64_t(1) << 22;
/// Shapes and their like are folded whatever else is known.
constexpr int64_t kAlwaysFolded = int64_t(1) << 12;

Val Emitter::of(Value *v) {
  Val r;
  r.type = v->type;
  r.value = v;
  return r;
}

int64_t Emitter::roomForKnown() {
  constexpr int64_t kMost = int64_t(1) << 27; // 1 GiB as doubles
  return std::max<int64_t>(kMost - Known::loaded, 0);
}

std::optional<Vals> Emitter::fold(const OpDef &op, ArrayRef<Val> operands, const Attrs &attrs) {
  if (op.random || !op.isPure() || callsBodies(op))
    return std::nullopt;
  for (const Val &v : operands)
    if (v && !v.known)
      return std::nullopt;
  llvm::SmallVector<const Type *, 4> types;
  for (const Val &v : operands)
    types.push_back(v ? &v.type : nullptr);
  auto results = inferTypes(op, types, attrs);
  if (!results)
    invalid(llvm::toString(results.takeError()));
  for (const Type &t : *results)
    if (t.count() > std::min(kMostFoldedElements, std::max(kAlwaysFolded, roomForKnown())))
      return std::nullopt;
  Function scratch;
  scratch.name = "fold";
  llvm::SmallVector<Value *, 4> values;
  for (const Val &v : operands)
    values.push_back(v ? scratch.addArg("", v.type) : nullptr);
  Builder b(scratch, nullptr, loc);
  auto node = b.tryMake(op, values, attrs);
  if (!node)
    invalid(llvm::toString(node.takeError()));
  llvm::SmallVector<const Tensor *, 4> in;
  for (const Val &v : operands)
    in.push_back(v ? &v.known->tensor() : nullptr);
  auto out = evalNode(**node, in);
  if (!out)
    invalid(llvm::toString(out.takeError()));
  Vals r;
  for (Tensor &t : *out)
    r.push_back(known(std::move(t)));
  return r;
}

Vals Emitter::emitAll(const OpDef &op, ArrayRef<Val> operands, Attrs attrs) {
  for (const Val &v : operands)
    if (v.list)
      invalid("a sequence is used where a tensor is needed");
  if (std::string broken = checkAttrs(op, attrs); !broken.empty())
    invalid(withoutRule(broken));
  if (auto folded = fold(op, operands, attrs))
    return *folded;
  llvm::SmallVector<Value *, 4> values;
  for (const Val &v : operands)
    values.push_back(v ? materialize(v) : nullptr);
  Builder b(current(), nullptr, loc);
  auto node = b.tryMake(op, values, std::move(attrs));
  if (!node)
    invalid(llvm::toString(node.takeError()));
  Vals r;
  for (auto &v : (*node)->results)
    r.push_back(of(v.get()));
  if (r.empty())
    r.push_back({}); // assign
  return r;
}

Value *Emitter::materialize(const Val &v) {
  if (v.value)
    return bodies_.empty() ? v.value : inside(bodies_.back(), v.value);
  if (!v.known)
    invalid("a value is missing");
  if (v.known->global)
    return v.known->global;
  Value *&slot = (bodies_.empty() ? materialized_ : bodies_.back().materialized)[v.known.get()];
  if (slot)
    return slot;
  alive_.push_back(v.known);
  return slot = Builder(current(), nullptr, loc).constant(v.known->tensor());
}

// ---- bodies

/// The value by which a body reads `v`: its own, a constant, or an argument for a value of outside.
Value *Emitter::inside(Body &body, Value *v) {
  if (v->isGlobal() && static_cast<GlobalValue *>(v)->role == GlobalValue::Const)
    return v;
  bool isOwn = v->def ? v->def->parent() == body.fn
                      : v->kind == Value::Argument && v->index < body.fn->args.size() && body.fn->args[v->index].get() == v;
  if (isOwn)
    return v;
  Value *&arg = body.args[v];
  if (!arg) {
    arg = body.fn->addArg(v->name, v->type);
    body.captured.push_back(v);
    origins_[arg] = v;
  }
  return arg;
}

BodyScope::BodyScope(Emitter &e, StringRef name, Runs runs) : e_(e), fn_(e.module.addBody(name)) {
  Emitter::Body &body = e.bodies_.emplace_back();
  body.fn = fn_;
  body.isSometimes = runs == Runs::Sometimes;
}

BodyScope::~BodyScope() {
  if (!isOpen_)
    return;
  e_.bodies_.pop_back();
  for (auto &a : fn_->args)
    e_.origins_.erase(a.get());
  e_.module.eraseFunction(fn_);
}

Val BodyScope::arg(StringRef name, const Type &t) { return Emitter::of(fn_->addArg(name, t)); }

Val BodyScope::slice(StringRef name, const Val &of) {
  Type t = of.type;
  t.dims.erase(t.dims.begin());
  Val v = arg(name, t);
  if (of.value)
    e_.origins_[v.value] = of.value;
  return v;
}

Function *BodyScope::finish(ArrayRef<Val> results, std::vector<Value *> &captured) {
  for (const Val &v : results) {
    if (v.list)
      unsupported("a sequence that a body returns");
    fn_->results.push_back(e_.materialize(v));
  }
  captured = std::move(e_.bodies_.back().captured);
  e_.bodies_.pop_back();
  isOpen_ = false;
  return fn_;
}

Vals Emitter::scan(const Function &body, ArrayRef<Val> carried, ArrayRef<Val> scanned, ArrayRef<Value *> captured, int64_t trips,
                   Direction direction) {
  Vals operands(carried.begin(), carried.end());
  operands.append(scanned.begin(), scanned.end());
  for (Value *v : captured)
    operands.push_back(of(v));
  Attrs attrs{{"body", body.name},
              {"carried", int64_t(carried.size())},
              {"scanned", int64_t(scanned.size())},
              {"reverse", int64_t(direction == Direction::Backward)}};
  if (scanned.empty())
    attrs.set("trips", trips);
  return emitAll(ops::scan, operands, attrs);
}

void zcc::takeCaptured(Function &body, ArrayRef<Value *> has, ArrayRef<Value *> wanted) {
  size_t first = body.args.size() - has.size();
  std::vector<std::unique_ptr<Value>> own(std::make_move_iterator(body.args.begin() + first),
                                          std::make_move_iterator(body.args.end()));
  body.args.resize(first);
  for (Value *v : wanted) {
    auto at = llvm::find(has, v);
    if (at == has.end())
      body.addArg(v->name, v->type);
    else
      body.args.push_back(std::move(own[at - has.begin()]));
    body.args.back()->index = body.args.size() - 1;
  }
}

// ---- known values

Val Emitter::known(Tensor t) {
  Val v;
  v.type = t.type;
  v.known = std::make_shared<Known>();
  v.known->load = [t = std::move(t)]() mutable { return std::move(t); };
  v.known->tensor();
  return v;
}

/// Throws if it has a negative dimension or too many elements to be made while compiling.
static Tensor tableOf(const Type &type) {
  if (llvm::any_of(type.dims, [](int64_t d) { return d < 0; }))
    invalid("a tensor " + type.str());
  double elements = 1;
  for (int64_t d : type.dims)
    elements *= double(d);
  checkTableSize(elements);
  return Tensor(type);
}

Val Emitter::full(double x, const Type &type) {
  Tensor t = tableOf(type);
  if (t.isFloat())
    std::fill(t.f.begin(), t.f.end(), roundTo(type.elem, x));
  else
    std::fill(t.i.begin(), t.i.end(), int64_t(x));
  return known(std::move(t));
}

Val Emitter::number(double x, Elem e) { return full(x, Type(e, {})); }

Val Emitter::byNumber(const OpDef &op, const Val &a, double b) {
  if (!isFloat16(a.elem()) || roundTo(a.elem(), b) == b)
    return emit(op, {a, like(b, a)});
  return cast(emit(op, {cast(a, Elem::F32), number(b, Elem::F32)}), a.elem());
}

Val Emitter::integers(ArrayRef<int64_t> v, ArrayRef<int64_t> dims, Elem e) {
  Dims d(dims.begin(), dims.end());
  if (d.size() == 1 && d[0] == -1)
    d[0] = v.size();
  Tensor t = tableOf(Type(e, d));
  if (t.i.size() != v.size())
    invalid(llvm::Twine(v.size()) + " numbers for " + t.type.str());
  t.i.assign(v.begin(), v.end());
  return known(std::move(t));
}

Val Emitter::floats(ArrayRef<double> v, const Type &type) {
  Tensor t = tableOf(type);
  if (t.f.size() != v.size())
    invalid(llvm::Twine(v.size()) + " numbers for " + type.str());
  for (size_t i = 0; i < v.size(); ++i)
    t.f[i] = roundTo(type.elem, v[i]);
  return known(std::move(t));
}

const Tensor *Emitter::tensorOf(const Val &v) { return v.known ? &v.known->tensor() : v.peek ? &v.peek->tensor() : nullptr; }

static const Tensor &needed(const Val &v, const char *what) {
  if (const Tensor *t = Emitter::tensorOf(v))
    return *t;
  notConstant(llvm::Twine(what) + " that are not constant");
}

std::vector<int64_t> Emitter::asInts(const Val &v, const char *what) {
  const Tensor &t = needed(v, what);
  return t.isFloat() ? std::vector<int64_t>(t.f.begin(), t.f.end()) : t.i;
}

std::vector<double> Emitter::asFloats(const Val &v, const char *what) {
  const Tensor &t = needed(v, what);
  return t.isFloat() ? t.f : std::vector<double>(t.i.begin(), t.i.end());
}

int64_t Emitter::asInt(const Val &v, const char *what) {
  auto r = asInts(v, what);
  if (r.size() != 1)
    invalid(llvm::Twine(what) + ": one number expected, got " + llvm::Twine(r.size()));
  return r[0];
}

double Emitter::asFloat(const Val &v, const char *what) {
  auto r = asFloats(v, what);
  if (r.size() != 1)
    invalid(llvm::Twine(what) + ": one number expected, got " + llvm::Twine(r.size()));
  return r[0];
}

// ---- shapes

static std::vector<int64_t> vec(ArrayRef<int64_t> v) { return v.vec(); }

Val Emitter::cast(const Val &v, Elem e) { return v.elem() == e ? v : emit(ops::cast, {v}, {{"to", elemName(e).str()}}); }

Val Emitter::reshape(const Val &v, ArrayRef<int64_t> dims) {
  if (v.dims() == dims)
    return v;
  if (elementCount(dims) != v.count())
    invalid("cannot reshape " + v.type.str() + " to " + v.type.withDims(dims).str());
  return emit(ops::reshape, {v}, {{"dims", vec(dims)}});
}

Val Emitter::squeeze(const Val &v, ArrayRef<int64_t> axes) {
  Dims d;
  for (int64_t i = 0; i < v.rank(); ++i)
    if (!llvm::is_contained(axes, i))
      d.push_back(v.dim(i));
    else if (v.dim(i) != 1)
      invalid("axis " + llvm::Twine(i) + " of " + v.type.str() + " is not 1");
  return reshape(v, d);
}

Val Emitter::unsqueeze(const Val &v, ArrayRef<int64_t> axes) {
  Dims d(v.dims().begin(), v.dims().end());
  Dims sorted(axes.begin(), axes.end());
  llvm::sort(sorted);
  for (int64_t a : sorted) {
    if (a < 0 || a > int64_t(d.size()))
      invalid("axis " + llvm::Twine(a) + " of " + v.type.str());
    d.insert(d.begin() + a, 1);
  }
  return reshape(v, d);
}

Val Emitter::transpose(const Val &v, ArrayRef<int64_t> perm) {
  if (perm == ArrayRef<int64_t>(allAxes(0, v.rank())))
    return v;
  return emit(ops::transpose, {v}, {{"perm", vec(perm)}});
}

Val Emitter::swapAxes(const Val &v, int64_t a, int64_t b) {
  Dims p = allAxes(0, v.rank());
  std::swap(p[normalAxis(a, v.rank())], p[normalAxis(b, v.rank())]);
  return transpose(v, p);
}

Val Emitter::expand(const Val &v, ArrayRef<int64_t> dims) {
  return v.dims() == dims ? v : emit(ops::broadcast, {v}, {{"dims", vec(dims)}});
}

Val Emitter::slice(const Val &v, int64_t axis, int64_t start, int64_t end, int64_t step) {
  if (start == 0 && end == v.dim(axis) && step == 1)
    return v;
  std::vector<int64_t> starts(v.rank(), 0), ends = vec(v.dims()), steps(v.rank(), 1);
  starts[axis] = start;
  ends[axis] = end;
  steps[axis] = step;
  return emit(ops::slice, {v}, {{"starts", starts}, {"ends", ends}, {"steps", steps}});
}

Val Emitter::concat(ArrayRef<Val> parts, int64_t axis) {
  if (parts.empty())
    invalid("nothing to join");
  // Empty parts say nothing, even of another rank, unless all are: then the extents add up.
  bool allEmpty = llvm::all_of(parts, [](const Val &p) { return p.count() == 0; });
  int64_t rank = 0;
  for (const Val &p : parts)
    rank = std::max(rank, p.rank());
  axis = normalAxis(axis, rank);
  Vals kept;
  for (const Val &p : parts)
    if (allEmpty ? p.rank() == rank : p.count() != 0)
      kept.push_back(p);
  if (kept.size() == 1)
    return kept[0];
  return emit(ops::concat, kept, {{"axis", axis}});
}

Val Emitter::pad(const Val &v, ArrayRef<int64_t> lo, ArrayRef<int64_t> hi, double value, StringRef mode) {
  auto zero = [](int64_t x) { return x == 0; };
  if (llvm::all_of(lo, zero) && llvm::all_of(hi, zero))
    return v;
  return emit(ops::pad, {v}, {{"lo", vec(lo)}, {"hi", vec(hi)}, {"value", value}, {"mode", mode.str()}});
}

Val Emitter::iota(ArrayRef<int64_t> dims, int64_t axis, Elem e) {
  return emit(ops::iota, {}, {{"dims", vec(dims)}, {"axis", axis}, {"elem", elemName(e).str()}});
}

Val Emitter::numbers(ArrayRef<int64_t> dims) {
  return of(Builder(current(), nullptr, loc).make(ops::iota, {}, {{"dims", vec(dims)}, {"axis", kEveryAxis}}));
}

Val Emitter::gather(const Val &x, const Val &index, int64_t axis) { return emit(ops::gather, {x, index}, {{"axis", axis}}); }

// ---- reductions

Val Emitter::reduce(const OpDef &op, const Val &v, ArrayRef<int64_t> axes, Keep keep) {
  if (axes.empty())
    return v;
  Val r = emit(op, {v}, {{"axes", vec(axes)}});
  return keep == Keep::Axes ? r : squeeze(r, axes);
}

Val Emitter::mean(const Val &v, ArrayRef<int64_t> axes, Keep keep) {
  double n = 1;
  for (int64_t a : axes)
    n *= double(v.dim(a));
  if (n == 1 || !isFloat16(v.elem())) {
    Val s = sum(v, axes, keep);
    return n == 1 ? s : div(s, like(n, s));
  }
  return cast(mean(cast(v, Elem::F32), axes, keep), v.elem()); // neither the sum nor the number need fit 16 bits
}
