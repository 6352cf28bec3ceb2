#include "passes/Optimizer.h"
#include "llvm/Support/Regex.h"

using namespace zcc;

static double defaultDecay(const Options &o) {
  return o.weightDecay >= 0 ? o.weightDecay : o.optimizer == "adamw" ? 1e-2 : 0;
}

llvm::Error zcc::checkOptimizer(const Options &o) {
  if (o.optimizer != "adamw" && o.optimizer != "adam" && o.optimizer != "sgd")
    return error("optimizer '" + o.optimizer + "' is not supported; adamw, adam and sgd are");
  if (o.nesterov && (o.optimizer != "sgd" || o.momentum <= 0))
    return error("nesterov needs sgd with a momentum");
  return llvm::Error::success();
}

llvm::Error zcc::applyGroups(llvm::ArrayRef<GlobalValue *> params, const Options &o) {
  std::vector<bool> grouped(params.size());
  for (const auto &group : o.groups) {
    llvm::Regex regex(group.regex);
    std::string why;
    if (!regex.isValid(why))
      return error("'" + group.regex + "' is no regular expression: " + why);
    bool found = false;
    for (size_t i = 0; i < params.size(); ++i) {
      GlobalValue &p = *params[i];
      if (!regex.match(p.name) && (p.onnxName.empty() || !regex.match(p.onnxName)))
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
      return error("no trained parameter is called like '" + group.regex + "'");
  }
  return llvm::Error::success();
}

/// Bias corrections in f64, as Python computes them.
Optimizer::Optimizer(Module &m, const Options &o, Function &f, Node *top, Loc loc)
    : m_(m), o_(o), top_(f, top, std::move(loc)) {
  lr_ = scalarState("lr", Elem::F32, o.lr >= 0 ? o.lr : 1e-3);
  if (o.optimizer == "sgd")
    return;
  lr_ = top_.cast(lr_, Elem::F64);
  GlobalValue *step = scalarState("step", Elem::I64, 0);
  Value *count = top_.make(ops::add, {step, top_.scalar(1, Elem::I64)});
  Value *t = top_.cast(count, Elem::F64);
  Value *one = top_.scalar(1, Elem::F64);
  auto correction = [&](double beta) {
    Value *power = top_.make(ops::pow, {top_.scalar(beta, Elem::F64), t});
    return top_.make(ops::sub, {one, power});
  };
  correction1_ = correction(o.beta1);
  Value *root = top_.make(ops::sqrt, {correction(o.beta2)});
  rootCorrection2_ = top_.cast(root, Elem::F32);
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

GlobalValue *Optimizer::state(GlobalValue &param, llvm::StringRef suffix) {
  Type t = param.type.withElem(Elem::F32);
  GlobalValue *g = m_.addGlobal(GlobalValue::State, param.name + suffix.str(), t, Init());
  g->attrs.set("of", param.name);
  g->loc = param.loc;
  return g;
}

/// What the direction is multiplied with: lr * scale, over the first bias correction for Adam.
Value *Optimizer::rate(double scale) {
  Value *&v = rates_[scale];
  if (v)
    return v;
  v = scale == 1 ? lr_ : top_.make(ops::mul, {lr_, top_.scalar(scale, lr_->type.elem)});
  if (correction1_)
    v = top_.cast(top_.make(ops::div, {v, correction1_}), Elem::F32);
  return v;
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

/// Returns the parameter less its Adam step; assigns the moments.
Value *Optimizer::adam(Builder &b, GlobalValue &param, Value *p, Value *g, double scale) {
  GlobalValue *m = state(param, ".m"), *v = state(param, ".v");
  Value *m1 = add(b, m, mul(b, sub(b, g, m), number(1 - o_.beta1)));
  Value *square = mul(b, mul(b, g, number(1 - o_.beta2)), g);
  Value *v1 = add(b, mul(b, v, number(o_.beta2)), square);
  Value *root = div(b, b.make(ops::sqrt, {v1}), rootCorrection2_);
  Value *direction = div(b, mul(b, m1, rate(scale)), add(b, root, number(o_.eps)));
  Value *p1 = sub(b, p, direction);
  b.node(ops::assign, {m, m1});
  b.node(ops::assign, {v, v1});
  return p1;
}

/// The momentum starts as 0, so that the first step's is the gradient itself.
Value *Optimizer::sgd(Builder &b, GlobalValue &param, Value *p, Value *g, double scale) {
  if (o_.momentum > 0) {
    GlobalValue *m = state(param, ".m");
    Value *m1 = add(b, mul(b, m, number(o_.momentum)), g);
    b.node(ops::assign, {m, m1});
    g = o_.nesterov ? add(b, g, mul(b, m1, number(o_.momentum))) : m1;
  }
  return sub(b, p, mul(b, g, rate(scale)));
}

void Optimizer::update(Builder &b, GlobalValue &param, Value *gradient) {
  double scale = param.attrs.f("lr_scale", 1);
  double weightDecay = param.attrs.f("weight_decay", defaultDecay(o_));
  Value *p = &param, *g = b.cast(gradient, Elem::F32);
  if (coefficient)
    g = mul(b, g, coefficient);
  if (weightDecay != 0 && o_.optimizer == "adamw")
    p = mul(b, p, decay(scale, weightDecay));
  else if (weightDecay != 0)
    g = add(b, g, mul(b, p, number(weightDecay)));
  Value *updated = o_.optimizer == "sgd" ? sgd(b, param, p, g, scale) : adam(b, param, p, g, scale);
  b.node(ops::assign, {&param, updated});
}
