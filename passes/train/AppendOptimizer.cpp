// Accumulation, clipping and the optimizer as ordinary nodes.
//
//   assign %w.grad, %d.w
// becomes (AdamW, one micro-batch a step; the state %w.grad is dropped)
//   %p1 = mul %w, %decay                    // 1 - lr * weight_decay
//   %m1 = %w.m + (%d.w - %w.m) * (1 - beta1)
//   %v1 = %w.v * beta2 + (1 - beta2) * %d.w * %d.w
//   %p2 = %p1 - %step_size * %m1 / (sqrt %v1 * %root_factor + eps)   // 1 / sqrt(1 - beta2^t)
//   assign %w.m, %m1
//   assign %w.v, %v1
//   assign %w, %p2
// behind both the gradient and the last node that reads %w. With K micro-batches @micro accumulates and @update does this; with
// more than one rank each gradient is summed over them first. Formulas, their order and defaults are PyTorch's
// (whose division by sqrt(1 - beta2^t) is a product here).
#include "passes/Pass.h"
#include "passes/Refusal.h"
#include "passes/memory/Activations.h"
#include "passes/train/LossScale.h"
#include "passes/train/Optimizer.h"
#include "passes/train/Sweep.h"
#include "passes/zero/Zero.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

using namespace zcc;

namespace {
struct Gradient {
  GlobalValue *param, *state;
  Node *assign;
  Value *value;           ///< what assign stores; later the sum over ranks and micro-batches
  Node *before = nullptr; ///< where the update goes; nullptr: the function's end
};

class Appender {
public:
  Appender(Module &m, PassContext &ctx) : m_(m), ctx_(ctx), o_(ctx.options), loc_(makeLoc("optimizer")), scale_(m, o_, loc_) {}
  llvm::Error run();

private:
  llvm::Error collect();
  llvm::Error checkElements();
  llvm::Error updateInMicro();
  llvm::Error accumulate();
  llvm::Error runAlgorithm(Function &f, const Optimizer &opt);
  llvm::Error checkAlgorithm() const;
  void placeUpdates();
  void delayUpdates();
  void joinBoxes();
  void measure(Function &f, Optimizer &opt);
  Value *clip(Builder &b, Value *norm);
  Value *sumOverRanks(Builder &b, const GlobalValue &param, Value *v, bool isAddend);
  Value *meanOf(Builder &b, const Gradient &g, Value *sum, bool isAddend);
  GlobalValue *stepState(llvm::StringRef name, Type t);

  Module &m_;
  PassContext &ctx_;
  const Options &o_;
  Loc loc_;
  LossScale scale_;
  Function *micro_ = nullptr;
  std::vector<Gradient> gradients_; ///< in the order of their assigns
};
} // namespace

/// While this many elements of later gradients are computed, a sum over ranks is under way before
/// its update waits.
static constexpr int64_t kOverlapElements = 1 << 20;

llvm::Error Appender::collect() {
  micro_ = m_.function("micro");
  if (!micro_)
    return refuse("there is no function '@micro'");
  for (auto &n : micro_->nodes) {
    if (GlobalValue *param = paramOfGradient(*n))
      gradients_.push_back({param, static_cast<GlobalValue *>(n->operand(0)), n.get(), n->operand(1)});
  }
  return llvm::Error::success();
}

/// The optimizers' formulas are of f32; an algorithm of the model's own computes in what it likes.
llvm::Error Appender::checkElements() {
  for (const Gradient &g : gradients_) {
    const GlobalValue *master = m_.global(g.param->attrs.s("master"));
    if (Elem e = (master ? master : g.param)->type.elem; e != Elem::F32)
      return refuseAt(g.param->loc, "the weight '" + llvm::Twine(g.param->name) + "' is " + elemName(e) +
                                        " in the file, and optimizers update f32: export the model as model.float(); "
                                        "--dtype=bf16 and --dtype=fp16 train it in 16 bits");
  }
  return llvm::Error::success();
}

Value *Appender::sumOverRanks(Builder &b, const GlobalValue &param, Value *v, bool isAddend) {
  if (m_.ranks == 1)
    return v;
  Value *a = isAddend ? v : b.make(ops::addend, {v});
  return b.make(ops::sum_ranks, {a}, {{"mean", int64_t(1)}, {"of", param.name}}, v->name + ".sum");
}

/// Of a sum over micro-batches, over them and the ranks. Between ranks a gradient has its parameter's element.
Value *Appender::meanOf(Builder &b, const Gradient &g, Value *sum, bool isAddend) {
  auto mean = [&](Value *v) { // a scaled loss has been divided
    return scale_.scale() ? v : b.make(ops::mul, {v, b.scalar(1.0 / o_.gradAccum, v->type.elem)});
  };
  bool isWider = m_.ranks > 1 && sum->type.elem != g.param->type.elem;
  return isWider ? sumOverRanks(b, *g.param, b.cast(mean(sum), g.param->type.elem), isAddend)
                 : mean(sumOverRanks(b, *g.param, sum, isAddend));
}

/// Each update goes behind its gradient and behind what still reads the parameter, also through
/// views.
void Appender::placeUpdates() {
  llvm::DenseMap<const Node *, size_t> order;
  for (auto &n : micro_->nodes)
    order.insert({n.get(), order.size()});
  for (Gradient &g : gradients_) {
    Node *last = g.assign;
    llvm::SmallVector<Value *> work{g.param};
    while (!work.empty()) {
      Value *v = work.pop_back_val();
      for (auto &u : v->uses) {
        if (u.node->parent() != micro_)
          continue;
        if (order[u.node] > order[last])
          last = u.node;
        if (u.node->op->view)
          work.push_back(u.node->result());
      }
    }
    g.before = last->next();
  }
}

/// With several ranks an update waits for a sum over them: it goes further down, so that others
/// overlap the sum.
void Appender::delayUpdates() {
  llvm::DenseMap<const Node *, size_t> order;
  for (auto &n : micro_->nodes)
    order.insert({n.get(), order.size()});
  auto at = [&](Node *n) { return n ? order[n] : order.size(); };
  for (size_t i = 0; i < gradients_.size(); ++i) {
    int64_t elements = 0;
    size_t j = i + 1;
    for (; j < gradients_.size() && elements < kOverlapElements; ++j)
      elements += gradients_[j].param->type.count();
    Node *later = j < gradients_.size() ? gradients_[j].assign->next() : nullptr;
    if (at(later) > at(gradients_[i].before))
      gradients_[i].before = later;
  }
}

/// LAMB's norms are of a whole tensor: its boxes are updated where the last of them is.
void Appender::joinBoxes() {
  llvm::DenseMap<const Node *, size_t> order;
  for (auto &n : micro_->nodes)
    order.insert({n.get(), order.size()});
  auto at = [&](Node *n) { return n ? order[n] : order.size(); };
  llvm::DenseMap<const GlobalValue *, Node *> last;
  for (Gradient &g : gradients_)
    if (g.param->isBox()) {
      auto [known, isNew] = last.try_emplace(&m_.wholeOf(*g.param), g.before);
      if (!isNew && at(g.before) > at(known->second))
        known->second = g.before;
    }
  for (Gradient &g : gradients_)
    if (g.param->isBox())
      g.before = last[&m_.wholeOf(*g.param)];
}

/// The squared norms of all gradients, where somebody wants them: clipping, and the search for what is not finite.
void Appender::measure(Function &f, Optimizer &opt) {
  const bool looks = o_.isLow() || scale_.skips();
  if (gradients_.empty() || (o_.clipGradNorm <= 0 && !looks))
    return;
  bool waits = o_.clipGradNorm > 0 || scale_.skips();
  Builder b(f, nullptr, loc_);
  std::vector<Value *> values;
  std::vector<Node *> before;
  llvm::DenseMap<const GlobalValue *, Gradient *> of;
  for (Gradient &g : gradients_)
    of[g.param] = &g;
  for (auto &p : m_.globals)
    if (Gradient *g = of.lookup(p.get())) {
      g->before = waits ? nullptr : g->before;
      values.push_back(g->value);
      before.push_back(g->before);
    }
  Value *squares = squaredNorms(b, values, before);
  if (looks)
    b.node(ops::assign, {stepState("grad_squares", squares->type), squares});
  Value *total = b.reshape(b.reduceSum(squares, {0}), {});
  Value *norm = b.make(ops::sqrt, {total});
  if (scale_.scale())
    norm = b.make(ops::div, {norm, scale_.scale()});
  b.node(ops::assign, {stepState("grad_norm", Type(Elem::F32, {})), norm});
  if (o_.clipGradNorm > 0)
    opt.coefficient = clip(b, norm);
  if (scale_.scale()) {
    Value *one = opt.coefficient ? opt.coefficient : b.scalar(1, Elem::F32);
    opt.coefficient = b.make(ops::div, {one, scale_.scale()}, {}, "unscale");
  }
  if (scale_.skips())
    opt.taken = scale_.adjust(b, total);
}

/// What scales all gradients so that their joint norm is at most the limit, as
/// torch.nn.utils.clip_grad_norm_.
Value *Appender::clip(Builder &b, Value *norm) {
  Value *guarded = b.make(ops::add, {norm, b.scalar(1e-6, Elem::F32)});
  Value *ratio = b.make(ops::div, {b.scalar(o_.clipGradNorm, Elem::F32), guarded});
  return b.make(ops::min, {ratio, b.scalar(1, Elem::F32)});
}

GlobalValue *Appender::stepState(llvm::StringRef name, Type t) {
  if (GlobalValue *g = m_.global(name))
    return g;
  GlobalValue *g = m_.addGlobal(GlobalValue::State, name, std::move(t), Init());
  g->loc = loc_;
  return g;
}

/// Settings of zcc's optimizers mean nothing to the model's own.
llvm::Error Appender::checkAlgorithm() const {
  const Options::Betas usual;
  const char *flag = o_.zero > 0                                                        ? "--zero"
                     : o_.isLow()                                                       ? "--dtype"
                     : o_.lr >= 0                                                       ? "--lr"
                     : o_.eps >= 0                                                      ? "--eps"
                     : o_.weightDecay >= 0                                              ? "--weight-decay"
                     : o_.momentum != 0                                                 ? "--momentum"
                     : o_.betas.first != usual.first || o_.betas.second != usual.second ? "--betas"
                     : !o_.biasCorrection                                               ? "--bias-correction"
                     : o_.cycleMomentum                                                 ? "--cycle-momentum"
                     : scale_.skips()                                                   ? "--check-grad-overflow"
                     : !o_.groups.empty()                                               ? "--param-group"
                                                                                        : nullptr;
  return flag ? refuse(llvm::Twine(flag) + " is no setting of the model's own training algorithm; "
                                           "--optimizer=NAME trains with zcc's")
              : llvm::Error::success();
}

/// The training algorithm that the model brings, put behind the gradients: `@algorithm` takes them
/// as "d.PARAM" and inputs of @micro by name, and returns what globals become.
llvm::Error Appender::runAlgorithm(Function &f, const Optimizer &opt) {
  Function &body = *m_.function("algorithm");
  for (Gradient &g : gradients_)
    if (opt.coefficient)
      g.value = Builder(f, nullptr, loc_).make(ops::mul, {g.value, opt.coefficient});
  llvm::DenseMap<Value *, Value *> now;
  for (auto &a : body.args) {
    for (Gradient &g : gradients_)
      if (a->name == "d." + g.param->name)
        now[a.get()] = g.value;
    if (!now.count(a.get()))
      if (Value *v = batchesPerCall(m_) == 1 ? f.arg(a->name) : nullptr) {
        if (m_.ranks > 1)
          return refuse("the model's training algorithm reads the input '" + a->name +
                        "', which ranks do not share: --ranks must be 1");
        now[a.get()] = v;
      }
    if (llvm::StringRef name = a->name; !now.count(a.get()) && name.consume_front("d.")) {
      Builder b(f, nullptr, loc_); // the loss does not depend on it
      now[a.get()] = b.splat(0, a->type);
    }
    if (!now.count(a.get()))
      return refuse("the model's training algorithm reads the input '" + a->name +
                    "', which micro-batches do not share: --grad-accum must be 1");
  }
  auto mapped = [&](Value *v) { return now.count(v) ? now[v] : v; };
  for (auto &n : body.nodes) {
    Builder b(f, nullptr, n->loc);
    llvm::SmallVector<Value *> operands;
    for (Value *v : n->operands())
      operands.push_back(v ? mapped(v) : nullptr);
    Node *copy = b.node(*n->op, operands, n->attrs);
    for (size_t i = 0; i < n->results.size(); ++i)
      now[n->result(i)] = copy->result(i);
  }
  llvm::SmallVector<Value *> values;
  for (Value *v : body.results) {
    Value *next = mapped(v);
    // What another update could change first is read before.
    values.push_back(behindViews(next)->isGlobal() ? Builder(f, nullptr, loc_).make(ops::copy, {next}) : next);
  }
  for (size_t i = 0; i < values.size(); ++i)
    Builder(f, nullptr, loc_).node(ops::assign, {m_.global(body.resultNames[i]), values[i]});
  m_.eraseFunction(&body);
  return llvm::Error::success();
}

/// One call of @micro a step: the updates are in it, and no gradient is stored.
llvm::Error Appender::updateInMicro() {
  placeUpdates();
  if (m_.ranks > 1 && runsBeside(o_.overlap, ctx_.target))
    delayUpdates();
  if (o_.optimizer == "lamb")
    joinBoxes();
  Optimizer opt(m_, o_, *micro_, micro_->first(), loc_);
  for (Gradient &g : gradients_) {
    Builder b(*micro_, g.assign, g.assign->loc);
    g.value = batchesPerCall(m_) > 1 ? meanOf(b, g, g.value, /*isAddend=*/false)
                                     : sumOverRanks(b, *g.param, g.value, /*isAddend=*/false);
  }
  measure(*micro_, opt);
  if (m_.function("algorithm")) {
    if (auto e = runAlgorithm(*micro_, opt))
      return e;
  } else {
    for (Gradient &g : gradients_) {
      Builder b(*micro_, g.before, g.assign->loc);
      opt.update(b, *g.param, g.value);
    }
  }
  std::vector<GlobalValue *> states;
  for (Gradient &g : gradients_) {
    g.assign->erase();
    states.push_back(g.state);
  }
  m_.eraseGlobals(states);
  return llvm::Error::success();
}

/// K calls a step: @micro adds up in the states, @update takes their mean.
llvm::Error Appender::accumulate() {
  Builder top(*micro_, micro_->first(), loc_);
  Value *isFirst = top.make(ops::eq, {stepState("micro", Type(Elem::I64, {})), top.scalar(0, Elem::I64)}, {}, "is_first");
  for (Gradient &g : gradients_) {
    Builder b(*micro_, g.assign, g.assign->loc);
    g.state->type.elem = elemOfSums(g.value->type.elem);
    Value *d = g.value;
    if (m_.ranks > 1) {
      g.state->type.addends = m_.ranks;
      d = b.make(ops::addend, {d});
    }
    g.assign->setOperand(1, addUp(b, g.state, d, isFirst, g.param->name + ".acc"));
  }
  Function &f = *m_.addFunction("update");
  Builder b(f, nullptr, loc_);
  for (Gradient &g : gradients_) {
    b.loc = g.assign->loc;
    g.value = meanOf(b, g, g.state, /*isAddend=*/true);
  }
  Optimizer opt(m_, o_, f, f.first(), loc_);
  measure(f, opt);
  if (m_.function("algorithm"))
    return runAlgorithm(f, opt);
  for (Gradient &g : gradients_) {
    b.loc = g.assign->loc;
    opt.update(b, *g.param, g.value);
  }
  return llvm::Error::success();
}

llvm::Error Appender::run() {
  if (auto e = checkOptimizer(o_))
    return e;
  if (auto e = collect())
    return e;
  if (gradients_.empty()) // as in PyTorch: what rounds or compares has a gradient of zero
    ctx_.remarks.push_back("no parameter has a gradient: the loss follows from them only through what has none, such "
                           "as rounding, comparisons and integers; they stay as they are");
  if (auto e = m_.function("algorithm") ? checkAlgorithm() : checkElements())
    return e;
  // A module in text says how it trains.
  if (o_.gradAccum > 1)
    m_.attrs.set("grad_accum", o_.gradAccum);
  if (o_.zero > 0)
    m_.attrs.set("zero", int64_t(o_.zero));
  std::vector<GlobalValue *> params;
  for (Gradient &g : gradients_)
    params.push_back(g.param);
  if (auto e = applyGroups(m_, params, o_))
    return e;
  llvm::DenseSet<const Node *> before;
  for (auto &n : micro_->nodes)
    before.insert(n.get());
  if (auto e = o_.gradAccum > batchesPerCall(m_) ? accumulate() : updateInMicro())
    return e;
  for (Function *f : {micro_, m_.function("update")})
    for (Node *n = f ? f->first() : nullptr; n; n = n->next())
      if (!before.contains(n))
        n->phase = Phase::Update;
  return llvm::Error::success();
}

llvm::Expected<bool> zcc::appendOptimizer(Module &m, PassContext &ctx) {
  if (auto e = Appender(m, ctx).run())
    return e;
  return true;
}
