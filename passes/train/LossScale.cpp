// Adds the states of loss scaling and the nodes that set them.
#include "passes/train/LossScale.h"

using namespace zcc;

constexpr double kFactor = 2;     // DeepSpeed's (runtime/fp16/loss_scaler.py, DynamicLossScaler)
constexpr double kMost = 0x1p127; // the last that a float holds: gradients of 0 never overflow, and infinity halved stays
constexpr double kNone = -1;      // of good steps: the first behind the start or an overflow counts as 0

static GlobalValue *counter(Module &m, llvm::StringRef name, double start, const Loc &loc) {
  Init init;
  init.kind = start == 0 ? Init::Zero : Init::Splat;
  init.a = start;
  GlobalValue *g = m.addGlobal(GlobalValue::State, name, Type(Elem::I64, {}), init);
  g->loc = loc;
  return g;
}

LossScale::LossScale(Module &m, const Options &o, const Loc &loc) : o_(o), scale_(m.global("loss_scale")) {
  if (scale_) {
    hysteresis_ = counter(m, "loss_scale.hysteresis", o.lossScaleHysteresis, loc);
    good_ = counter(m, "loss_scale.good_steps", kNone, loc);
  } else if (!o.skipsOverflows()) {
    return;
  }
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
  Value *skips = b.cast(bad, Elem::I64);
  Value *skipped = b.make(ops::add, {skipped_, skips});
  if (!scale_ || o_.lossScale > 0) {
    set(skipped_, skipped);
    set(overflow_, skips);
    return taken;
  }
  Value *patience = b.make(ops::le, {hysteresis_, i(1)});
  Value *shrinks = both(bad, patience);
  Value *atLeast = both(shrinks, b.make(ops::eq, {scale_, f(o_.minLossScale)}));
  Value *good = choose(bad, i(kNone), b.make(ops::add, {good_, i(1)}));
  Value *isWindow = b.make(ops::eq, {b.make(ops::mod, {good, i(o_.lossScaleWindow)}), i(0)});
  Value *grows = both(isWindow, b.make(ops::lt, {i(0), good}));
  Value *smaller = b.make(ops::max, {b.make(ops::div, {scale_, f(kFactor)}), f(o_.minLossScale)});
  Value *larger = b.make(ops::min, {b.make(ops::mul, {scale_, f(kFactor)}), f(kMost)});
  Value *less = b.make(ops::max, {b.make(ops::sub, {hysteresis_, i(1)}), i(1)});
  Value *hysteresis = choose(bad, less, choose(grows, i(o_.lossScaleHysteresis), hysteresis_));
  Value *overflow = b.make(ops::add, {skips, b.cast(atLeast, Elem::I64)});
  set(scale_, choose(shrinks, smaller, choose(grows, larger, scale_)));
  set(hysteresis_, hysteresis);
  set(good_, good);
  set(skipped_, skipped);
  set(overflow_, overflow);
  return taken;
}
