// The table of optimizers, what they share, and the update of each.
#include "passes/train/Optimizer.h"
#include "ir/Pattern.h"
#include "passes/Refusal.h"
#include "llvm/ADT/StringExtras.h"

using namespace zcc;

llvm::ArrayRef<OptimizerDef> zcc::optimizers() {
  using D = OptimizerDef;
  constexpr unsigned kAdam = D::Betas | D::Eps | D::BiasCorrection;
  static constexpr OptimizerDef all[] = {
      {"adamw", 1e-3, 1e-8, 1e-2, kAdam},        {"adam", 1e-3, 1e-8, 0, kAdam},
      {"sgd", 1e-3, 0, 0, D::Momentum},          {"adagrad", 1e-2, 1e-10, 0, D::Eps | D::Accumulator},
      {"lamb", 1e-3, 1e-8, 0, kAdam | D::Coeff}, {"lion", 1e-3, 0, 0, D::Betas},
  };
  return all;
}

const OptimizerDef *zcc::findOptimizer(llvm::StringRef name) {
  for (const OptimizerDef &d : optimizers())
    if (name == d.name)
      return &d;
  return nullptr;
}

static const OptimizerDef &definition(const Options &o) {
  const OptimizerDef *d = findOptimizer(o.optimizer);
  assert(d && "checkOptimizer() comes first");
  return *d;
}

double zcc::baseLr(const Options &o) { return o.lr >= 0 ? o.lr : definition(o).lr; }

llvm::Error zcc::checkOptimizer(const Options &o) {
  const OptimizerDef *d = findOptimizer(o.optimizer);
  if (!d) {
    std::vector<std::string> known;
    for (const OptimizerDef &def : optimizers())
      known.push_back(def.name);
    std::string n = nearest(o.optimizer, known);
    return refuse("optimizer '" + o.optimizer + "' is not available" +
                  (n.empty() ? "; there are " + llvm::join(known, ", ") : "; did you mean '" + n + "'?"));
  }
  if (o.nesterov && (!(d->uses & OptimizerDef::Momentum) || o.momentum <= 0))
    return refuse("nesterov needs sgd with a momentum");
  if (o.cycleMomentum && !(d->uses & OptimizerDef::Betas))
    return refuse("a cycled momentum needs an optimizer with betas, which " + o.optimizer + " has not");
  if (o.optimizer == "lamb" && o.eps == 0)
    return refuse("lamb's eps must be above 0: what fills up the shards of a norm would be no number");
  if (o.minCoeff > o.maxCoeff)
    return refuse("lamb's min-coeff is above its max-coeff");
  return llvm::Error::success();
}

llvm::Error zcc::applyGroups(const Module &m, llvm::ArrayRef<GlobalValue *> params, const Options &o) {
  std::vector<bool> grouped(params.size());
  for (const auto &group : o.groups) {
    auto regex = readPattern(group.regex);
    if (!regex)
      return refuse("'" + group.regex + "' is no regular expression: " + llvm::toString(regex.takeError()));
    bool found = false;
    for (size_t i = 0; i < params.size(); ++i) {
      GlobalValue &p = *params[i];
      const GlobalValue &whole = m.wholeOf(p);
      if (!regex->match(whole.name) && (whole.onnxName.empty() || !regex->match(whole.onnxName)))
        continue;
      found = true;
      if (grouped[i])
        continue;
      grouped[i] = true;
      if (group.weightDecay >= 0)
        p.attrs.set("weight_decay", group.weightDecay);
      if (group.lrScale != 1)
        p.attrs.set("lr_scale", group.lrScale);
    }
    if (!found)
      return refuse("no trained parameter is called like '" + group.regex + "'");
  }
  return llvm::Error::success();
}

Elem zcc::elemOfSums(Elem gradient) { return isFloat16(gradient) ? Elem::F32 : gradient; }

Value *zcc::addUp(Builder &b, Value *sum, Value *d, Value *isFirst, llvm::StringRef name) {
  d = b.cast(d, sum->type.elem);
  return b.make(ops::select, {isFirst, d, b.make(ops::add, {sum, d})}, {}, name);
}

Value *zcc::squaredNorms(Builder &end, llvm::ArrayRef<Value *> values, llvm::ArrayRef<Node *> before) {
  bool isSplit = end.fn.module->ranks > 1;
  std::vector<Value *> sums;
  for (size_t i = 0; i < values.size(); ++i) {
    Value *v = values[i];
    Builder b(end.fn, before.empty() ? end.before : before[i], v->def ? v->def->loc : end.loc);
    if (isSplit && v->type.isScalar())
      v = b.reshape(v, {1}); // scalars are never shards
    Value *x = b.cast(isSplit ? b.make(ops::shard, {v}) : v, Elem::F32);
    Dims axes;
    for (unsigned i = 0; i < x->type.ndim(); ++i)
      axes.push_back(i);
    sums.push_back(b.reshape(b.reduceSum(b.make(ops::mul, {x, x}), axes), {1}));
  }
  Value *all = sums.size() == 1 ? sums[0] : end.make(ops::concat, sums, {{"axis", int64_t(0)}});
  return isSplit ? end.make(ops::sum_ranks, {all}, {{"mean", int64_t(0)}}, "squares") : all;
}

Optimizer::Optimizer(Module &m, const Options &o, Function &f, Node *top, Loc loc)
    : m_(m), o_(o), def_(definition(o)), top_(f, top, std::move(loc)) {
  GlobalValue *rate = scalarState("lr", Elem::F32, baseLr(o));
  rate->attrs.set("optimizer", o.optimizer);
  lr_ = rate;
  if (o.optimizer == "sgd")
    return;
  lr_ = top_.cast(lr_, Elem::F64);
  scaleRate();
}

/// Bias corrections and decays in f64, as Python computes them.
void Optimizer::scaleRate() {
  Value *one = top_.scalar(1, Elem::F64), *beta1 = nullptr;
  if (o_.cycleMomentum)
    beta1 = top_.cast(scalarState("beta1", Elem::F32, o_.betas.first), Elem::F64);
  else if (def_.uses & OptimizerDef::Betas)
    beta1 = top_.scalar(o_.betas.first, Elem::F64);
  bool mixes = o_.optimizer == "lion"; // the others add what the gradient differs by
  if (o_.cycleMomentum) {
    beta1_ = mixes ? top_.cast(beta1, Elem::F32) : nullptr;
    rest1_ = top_.cast(top_.make(ops::sub, {one, beta1}), Elem::F32);
  } else if (beta1) {
    beta1_ = mixes ? number(o_.betas.first) : nullptr;
    rest1_ = number(1 - o_.betas.first);
  }
  bool corrects = (def_.uses & OptimizerDef::BiasCorrection) && o_.biasCorrection;
  if (!corrects && o_.lrDecay == 0)
    return;
  Value *step = scalarState("step", Elem::I64, 0);
  if (GlobalValue *skipped = m_.global("skipped"))
    step = top_.make(ops::sub, {step, skipped});
  if (!corrects) { // Adagrad: lr / (1 + step * decay)
    Value *decays = top_.make(ops::mul, {top_.cast(step, Elem::F64), top_.scalar(o_.lrDecay, Elem::F64)});
    divisor_ = top_.make(ops::add, {one, decays});
    return;
  }
  Value *count = top_.make(ops::add, {step, top_.scalar(1, Elem::I64)});
  Value *t = top_.cast(count, Elem::F64);
  auto correction = [&](Value *beta) { return top_.make(ops::sub, {one, top_.make(ops::pow, {beta, t})}); };
  divisor_ = correction(beta1);
  Value *root = top_.make(ops::sqrt, {correction(top_.scalar(o_.betas.second, Elem::F64))});
  if (o_.optimizer == "lamb")
    numerator_ = root;
  else
    rootFactor_ = top_.cast(top_.make(ops::div, {one, root}), Elem::F32);
}

GlobalValue *Optimizer::scalarState(llvm::StringRef name, Elem e, double value) {
  if (GlobalValue *g = m_.global(name))
    return g;
  Init init;
  init.kind = value == 0 ? Init::Zero : Init::Splat;
  init.a = value;
  GlobalValue *g = m_.addGlobal(GlobalValue::State, name, Type(e, {}), init);
  g->loc = top_.loc;
  return g;
}

/// How the state of a box starts, in the tensor of all such states of the box's tensor, which starts by `init`.
Init Optimizer::boxOfStates(const GlobalValue &param, llvm::StringRef suffix, const Init &init) {
  const GlobalValue &whole = m_.wholeOf(param);
  GlobalValue *&tensor = tensorsOfStates_[{&whole, suffix.str()}];
  if (!tensor) {
    tensor = m_.addGlobal(GlobalValue::Tensor, whole.name + suffix.str(), Type(Elem::F32, whole.type.dims), init);
    tensor->loc = param.loc;
  }
  Init box;
  box.kind = Init::Box;
  box.from = tensor->name;
  box.start = param.init.start;
  return box;
}

GlobalValue *Optimizer::state(GlobalValue &param, llvm::StringRef suffix, double initial) {
  Type t = param.type.withElem(Elem::F32);
  Init init;
  init.kind = initial == 0 ? Init::Zero : Init::Splat;
  init.a = initial;
  if (param.isBox()) // of the same box of a tensor of states
    init = boxOfStates(param, suffix, init);
  GlobalValue *g = m_.addGlobal(GlobalValue::State, param.name + suffix.str(), t, init);
  g->attrs.set("of", param.name);
  g->loc = param.loc;
  return g;
}

/// What the direction is multiplied with: lr * scale * numerator / divisor.
Value *Optimizer::rate(double scale) {
  Value *&v = rates_[scale];
  if (v)
    return v;
  v = scale == 1 ? lr_ : top_.make(ops::mul, {lr_, top_.scalar(scale, lr_->type.elem)});
  if (numerator_)
    v = top_.make(ops::mul, {v, numerator_});
  if (divisor_)
    v = top_.make(ops::div, {v, divisor_});
  return v = top_.cast(v, Elem::F32);
}

/// 1 - lr * scale * weightDecay
Value *Optimizer::decay(double scale, double weightDecay) {
  Value *&v = decays_[{scale, weightDecay}];
  if (v)
    return v;
  Value *part = top_.make(ops::mul, {lr_, top_.scalar(scale * weightDecay, Elem::F64)});
  v = top_.cast(top_.make(ops::sub, {top_.scalar(1, Elem::F64), part}), Elem::F32);
  return v;
}

Value *Optimizer::number(double x) {
  Value *&v = numbers_[x];
  return v = v ? v : top_.scalar(x, Elem::F32);
}

static Value *add(Builder &b, Value *x, Value *y) { return b.make(ops::add, {x, y}); }
static Value *sub(Builder &b, Value *x, Value *y) { return b.make(ops::sub, {x, y}); }
static Value *mul(Builder &b, Value *x, Value *y) { return b.make(ops::mul, {x, y}); }
static Value *div(Builder &b, Value *x, Value *y) { return b.make(ops::div, {x, y}); }

/// m + (g - m) * (1 - beta1), or from the gradient's side where that is nearer, as torch.lerp: with beta1 0 it is the gradient.
Value *Optimizer::moment(Builder &b, GlobalValue &param, Value *g) {
  GlobalValue *m = state(param, ".m");
  Value *difference = sub(b, g, m);
  const bool isNearGradient = !o_.cycleMomentum && o_.betas.first <= 0.5;
  Value *m1 = isNearGradient ? sub(b, g, mul(b, difference, number(o_.betas.first))) : add(b, m, mul(b, difference, rest1_));
  assigns_.push_back({m, m1});
  return m1;
}

/// v * beta2 + (1 - beta2) * g * g
Value *Optimizer::secondMoment(Builder &b, GlobalValue &param, Value *g) {
  GlobalValue *v = state(param, ".v");
  Value *square = mul(b, mul(b, g, number(1 - o_.betas.second)), g);
  Value *v1 = add(b, mul(b, v, number(o_.betas.second)), square);
  assigns_.push_back({v, v1});
  return v1;
}

static double epsilon(const Options &o, const OptimizerDef &d) { return o.eps >= 0 ? o.eps : d.eps; }

/// Where a processor divides, a root and two quotients take longer than what they are computed from takes to come from a cache,
/// so the one by the bias correction is a product.
Value *Optimizer::adam(Builder &b, const Update &u) {
  Value *m = moment(b, u.param, u.g), *v = secondMoment(b, u.param, u.g);
  Value *root = b.make(ops::sqrt, {v});
  if (rootFactor_)
    root = mul(b, root, rootFactor_);
  Value *denominator = add(b, root, number(epsilon(o_, def_)));
  return sub(b, u.p, div(b, mul(b, m, rate(u.scale)), denominator));
}

/// The momentum starts as 0, so that the first step's is the gradient itself.
Value *Optimizer::sgd(Builder &b, const Update &u) {
  Value *g = u.g;
  if (o_.momentum > 0) {
    GlobalValue *m = state(u.param, ".m");
    Value *m1 = add(b, mul(b, m, number(o_.momentum)), g);
    assigns_.push_back({m, m1});
    g = o_.nesterov ? add(b, g, mul(b, m1, number(o_.momentum))) : m1;
  }
  return sub(b, u.p, mul(b, g, rate(u.scale)));
}

/// torch.optim.Adagrad.
Value *Optimizer::adagrad(Builder &b, const Update &u) {
  GlobalValue *s = state(u.param, ".sum", o_.initialAccumulator);
  Value *s1 = add(b, s, mul(b, u.g, u.g));
  assigns_.push_back({s, s1});
  Value *denominator = add(b, b.make(ops::sqrt, {s1}), number(epsilon(o_, def_)));
  return sub(b, u.p, div(b, mul(b, u.g, rate(u.scale)), denominator));
}

/// Elements that are added up as one: updates are cut between such pieces.
constexpr int64_t kPiece = 2048;

/// The squares of the norms of a parameter and its direction, each of a rank's shards. They are added up in pieces, so that the
/// sums are the same where an update is cut.
static Value *squaresOf(Builder &b, llvm::ArrayRef<Value *> values) {
  bool isSplit = b.fn.module->ranks > 1;
  llvm::SmallVector<Value *> sums;
  for (Value *v : values) {
    if (isSplit)
      v = b.make(ops::shard, {v->type.isScalar() ? b.reshape(v, {1}) : v}); // scalars are never shards
    sums.push_back(b.make(ops::sum_squares, {b.cast(v, Elem::F32)}, {{"piece", kPiece}}));
  }
  Value *all = b.cast(b.make(ops::concat, sums, {{"axis", int64_t(0)}}), Elem::F32);
  return isSplit ? b.make(ops::sum_ranks, {all}, {{"mean", int64_t(0)}}, "squares") : all;
}

/// LAMB (arXiv 1904.00962) as in DeepSpeed 0.19's FusedLamb: the bias corrections scale the rate,
/// not the moments, and the ratio of norms is clamped; it is 1 where one of them is 0.
Value *Optimizer::lamb(Builder &b, const Update &u) {
  Value *d = direction(b, u), *squares = squaresOf(b, {u.p, d});
  Value *ratio = trustRatio(b, squares);
  return sub(b, u.p, mul(b, d, mul(b, rate(u.scale), ratio)));
}

/// Writes the moments, before there are norms.
Value *Optimizer::direction(Builder &b, const Update &u) {
  Value *m = moment(b, u.param, u.g), *v = secondMoment(b, u.param, u.g);
  Value *d = div(b, m, add(b, b.make(ops::sqrt, {v}), number(epsilon(o_, def_))));
  keepStates(b);
  assignStates(b);
  return u.weightDecay != 0 ? add(b, d, mul(b, u.p, number(u.weightDecay))) : d;
}

/// From the squares of the norms of a parameter and of its direction.
Value *Optimizer::trustRatio(Builder &b, Value *squares) {
  Value *norms = b.make(ops::sqrt, {squares});
  Value *ofParam = b.reshape(b.slice(norms, 0, 0, 1), {});
  Value *ofDirection = b.reshape(b.slice(norms, 0, 1, 2), {});
  Value *zero = number(0);
  Value *isDefined = b.make(ops::and_, {b.make(ops::ne, {ofParam, zero}), b.make(ops::ne, {ofDirection, zero})});
  Value *ratio = b.make(ops::min, {div(b, ofParam, ofDirection), number(o_.maxCoeff)});
  ratio = b.make(ops::max, {ratio, number(o_.minCoeff)});
  return b.make(ops::select, {isDefined, ratio, number(1)});
}

/// The norms are of the whole tensor: the last of its boxes updates all of them.
void Optimizer::lambOfBox(Builder &b, const Update &u) {
  Value *d = direction(b, u), *squares = squaresOf(b, {u.p, d});
  const GlobalValue &whole = m_.wholeOf(u.param);
  std::vector<GlobalValue *> boxes = m_.boxesOf(whole);
  auto &pending = pending_[&whole];
  pending.emplace(&u.param, Pending{u, d, squares});
  if (pending.size() < boxes.size())
    return;
  Value *sum = nullptr;
  for (GlobalValue *box : boxes) {
    Value *own = pending.at(box).squares;
    sum = sum ? add(b, sum, own) : own;
  }
  Value *ratio = trustRatio(b, sum);
  for (GlobalValue *box : boxes) {
    const Pending &p = pending.at(box);
    store(b, *box, sub(b, p.update.p, mul(b, p.direction, mul(b, rate(p.update.scale), ratio))));
  }
}

/// Lion (arXiv 2302.06675). sign(0) is 0 as in the paper; DeepSpeed's two kernels disagree there.
Value *Optimizer::lion(Builder &b, const Update &u) {
  GlobalValue *m = state(u.param, ".m");
  Value *c = add(b, mul(b, m, beta1_), mul(b, u.g, rest1_));
  Value *m1 = add(b, mul(b, m, number(o_.betas.second)), mul(b, u.g, number(1 - o_.betas.second)));
  assigns_.push_back({m, m1});
  return sub(b, u.p, mul(b, b.make(ops::sign, {c}), rate(u.scale)));
}

void Optimizer::update(Builder &b, GlobalValue &param, Value *gradient) {
  struct Rule {
    const char *name;
    enum { OnWeight, OnGradient, Own } decay;
    Value *(Optimizer::*step)(Builder &, const Update &);
  };
  static constexpr Rule rules[] = {
      {"adamw", Rule::OnWeight, &Optimizer::adam}, {"adam", Rule::OnGradient, &Optimizer::adam},
      {"sgd", Rule::OnGradient, &Optimizer::sgd},  {"adagrad", Rule::OnGradient, &Optimizer::adagrad},
      {"lamb", Rule::Own, &Optimizer::lamb},       {"lion", Rule::OnWeight, &Optimizer::lion},
  };
  const Rule *rule = llvm::find_if(rules, [&](const Rule &r) { return o_.optimizer == r.name; });
  double otherwise = o_.weightDecay >= 0 ? o_.weightDecay : def_.weightDecay;
  GlobalValue *master = m_.global(param.attrs.s("master"));
  Update u{param, master ? master : &param, b.cast(gradient, Elem::F32), param.attrs.f("lr_scale", 1),
           param.attrs.f("weight_decay", otherwise)};
  if (coefficient)
    u.g = mul(b, u.g, coefficient);
  if (u.weightDecay != 0 && rule->decay == Rule::OnWeight)
    u.p = mul(b, u.p, decay(u.scale, u.weightDecay));
  else if (u.weightDecay != 0 && rule->decay == Rule::OnGradient)
    u.g = add(b, u.g, mul(b, u.p, number(u.weightDecay)));
  if (param.isBox() && rule->step == &Optimizer::lamb)
    return lambOfBox(b, u);
  store(b, param, (this->*rule->step)(b, u));
}

/// What becomes of a value, where steps may be left out.
static Value *kept(Builder &b, Value *taken, Value *old, Value *v) { return taken ? b.make(ops::select, {taken, v, old}) : v; }

void Optimizer::keepStates(Builder &b) {
  for (auto &[state, value] : assigns_)
    value = kept(b, taken, state, value);
}

void Optimizer::assignStates(Builder &b) {
  for (auto [state, value] : assigns_)
    b.node(ops::assign, {state, value});
  assigns_.clear();
}

void Optimizer::store(Builder &b, GlobalValue &param, Value *updated) {
  GlobalValue *master = m_.global(param.attrs.s("master"));
  if (master)
    assigns_.push_back({master, updated});
  keepStates(b);
  Value *stored = master ? assigns_.back().second : kept(b, taken, &param, updated);
  assignStates(b);
  b.node(ops::assign, {&param, b.cast(stored, param.type.elem)});
}
