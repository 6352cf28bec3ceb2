#include "passes/LossScale.h"

using namespace zcc;

// DeepSpeed's defaults (runtime/fp16/loss_scaler.py, DynamicLossScaler).
constexpr double kFactor = 2, kMinimum = 1, kWindow = 1000, kHysteresis = 2;

static GlobalValue *counter(Module &m, llvm::StringRef name, double start, const Loc &loc) {
  Init init;
  init.kind = start == 0 ? Init::Zero : Init::Splat;
  init.a = start;
  GlobalValue *g = m.addGlobal(GlobalValue::State, name, Type(Elem::I64, {}), init);
  g->loc = loc;
  return g;
}

LossScale::LossScale(Module &m, const Loc &loc) : scale_(m.global("loss_scale")) {
  if (!scale_)
    return;
  hysteresis_ = counter(m, "loss_scale.hysteresis", kHysteresis, loc);
  good_ = counter(m, "loss_scale.good_steps", 0, loc);
  skipped_ = counter(m, "skipped", 0, loc);
  overflow_ = counter(m, "overflow", 0, loc);
}

Value *LossScale::adjust(Builder &b, Value *total) {
  auto i = [&](double x) { return b.scalar(x, Elem::I64); };
  auto f = [&](double x) { return b.scalar(x, Elem::F32); };
  auto set = [&](GlobalValue *g, Value *v) { b.node(ops::assign, {g, v}); };
  auto both = [&](Value *x, Value *y) { return b.make(ops::and_, {x, y}); };
  auto choose = [&](Value *c, Value *x, Value *y) { return b.make(ops::select, {c, x, y}); };

  Value *bad = b.make(ops::or_, {b.make(ops::isnan, {total}), b.make(ops::isinf, {total})}, {}, "overflows");
  Value *taken = b.make(ops::not_, {bad}, {}, "taken");
  Value *patience = b.make(ops::le, {hysteresis_, i(1)});
  Value *shrinks = both(bad, patience);
  Value *atLeast = both(shrinks, b.make(ops::le, {scale_, f(kMinimum)}));
  Value *good = choose(bad, i(0), b.make(ops::add, {good_, i(1)}));
  Value *grows = both(taken, b.make(ops::eq, {b.make(ops::mod, {good, i(kWindow)}), i(0)}));
  Value *smaller = b.make(ops::max, {b.make(ops::div, {scale_, f(kFactor)}), f(kMinimum)});
  Value *larger = b.make(ops::mul, {scale_, f(kFactor)});
  Value *less = b.make(ops::max, {b.make(ops::sub, {hysteresis_, i(1)}), i(1)});
  Value *skips = b.cast(bad, Elem::I64);
  Value *hysteresis = choose(bad, less, choose(grows, i(kHysteresis), hysteresis_));
  Value *skipped = b.make(ops::add, {skipped_, skips});
  Value *overflow = b.make(ops::add, {skips, b.cast(atLeast, Elem::I64)});
  set(scale_, choose(shrinks, smaller, choose(grows, larger, scale_)));
  set(hysteresis_, hysteresis);
  set(good_, good);
  set(skipped_, skipped);
  set(overflow_, overflow);
  return taken;
}
