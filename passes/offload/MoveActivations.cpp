// What the forward keeps for the backward lives in another space in between (--offload-activations): it is transferred there
// behind its last use in the forward, and back in front of its first one in the backward; no more than compute hides.
//
//   %h = fused @k1 %x                            %h = fused @k1 %x
//   %y = matmul %h, %w                           %y = matmul %h, %w
//   ...                                          %h.away = transfer %h {to = "nvme"}
//   %ht = transpose %h                    ->     ...
//   %d.w = matmul %ht, %d.y                      %h.back = transfer %h.away {to = "device"}
//                                                %ht = transpose %h.back
//                                                %d.w = matmul %ht, %d.y
//
// What is kept longest is chosen first, as long as it is away before the backward begins to fetch, and is back in time, at the
// rate that other transfers leave (SSDTrain, arXiv 2408.10013, moves what the bandwidth hides). Behind fuse, so that what is
// moved is what is really kept. schedule-transfers starts and waits.
#include "ir/Builder.h"
#include "ir/Control.h"
#include "passes/CostModel.h"
#include "passes/Target.h"
#include "passes/memory/Activations.h"
#include "passes/memory/Liveness.h"
#include "passes/zero/Zero.h"
#include "llvm/Support/FormatVariadic.h"

using namespace zcc;

namespace {
/// A value that the backward reads again.
struct Kept {
  Value *value;
  Node *lastRead, *firstAgain; ///< in the forward, and in the backward
  double from, until;          ///< when it may go, and when it must be back, seconds
  double away, back;           ///< seconds of either transfer
};

class ActivationOffloader {
public:
  ActivationOffloader(Function &f, Space to, PassContext &ctx) : f_(f), to_(to), ctx_(ctx), at_(positions(f)) {}
  bool run();

private:
  double freePart();
  void collect(double part);
  std::vector<Kept *> choose();
  void move(const Kept &k);

  Function &f_;
  Space to_;
  PassContext &ctx_;
  const Machine machine_ = machineOf(ctx_.target);
  const Rate there_ = rateOfMove(Space::Device, to_), back_ = rateOfMove(to_, Space::Device);
  const Positions at_;
  std::vector<double> begins_; ///< when each node begins
  std::vector<Kept> kept_;
};
} // namespace

/// Whether it brings a parameter: that is no activation, and goes where it is said to be released.
static bool isBrought(const Node &n) { return n.is(ops::wait) || isTransfer(n) || n.op->collective != Collective::None; }

/// The part of the time that other transfers leave to this one's engine, with the clock of compute.
double ActivationOffloader::freePart() {
  double now = 0, others = 0;
  for (auto &n : f_.nodes) {
    NodeCost c = costOf(*n, f_.module->ranks);
    begins_.push_back(now);
    if (performed(*n)->structural == Structural::Transfer)
      others += c[back_] / machine_[back_] + (there_ == back_ ? 0 : c[there_] / machine_[there_]);
    else
      now += c.seconds(machine_);
  }
  return now > 0 ? std::max(0.0, 1 - others / now) : 0;
}

void ActivationOffloader::collect(double part) {
  for (auto &n : f_.nodes) {
    if (n->phase != Phase::Forward || !ownsMemory(*n) || isBrought(*n))
      continue;
    for (auto &r : n->results) {
      int64_t bytes = r->type.localBytes();
      if (bytes < kLeastMoved || r->type.space != Space::Device || r->type.isFuture || llvm::is_contained(f_.results, r.get()))
        continue;
      Kept k{
          r.get(), n.get(), nullptr, 0, 0, double(bytes) / (machine_[there_] * part), double(bytes) / (machine_[back_] * part)};
      for (Node *reader : readersOf(*r)) {
        Node *&end = reader->phase == Phase::Forward ? k.lastRead : k.firstAgain;
        bool isLast = reader->phase == Phase::Forward;
        if (!end || (at_.lookup(reader) > at_.lookup(end)) == isLast)
          end = reader;
      }
      if (!k.firstAgain || at_.lookup(k.firstAgain) < at_.lookup(k.lastRead))
        continue;
      Node *behind = k.lastRead->next();
      k.from = behind ? begins_[at_.lookup(behind)] : begins_.back();
      k.until = begins_[at_.lookup(k.firstAgain)];
      if (k.until > k.from)
        kept_.push_back(k);
    }
  }
  llvm::stable_sort(kept_, [](const Kept &a, const Kept &b) { return a.until - a.from > b.until - b.from; });
}

/// Whether all go, one after the other, and come back, each as late as may be, without anything waiting: one engine writes, and
/// then reads.
static bool fits(llvm::ArrayRef<Kept *> going, llvm::ArrayRef<Kept *> coming) {
  double clock = 0;
  for (Kept *k : going)
    clock = std::max(clock, k->from) + k->away;
  double gone = clock;
  clock = coming.front()->until;
  for (Kept *k : coming)
    clock = std::min(clock, k->until) - k->back;
  return clock >= gone;
}

std::vector<Kept *> ActivationOffloader::choose() {
  std::vector<Kept *> going, coming; // in the order of the forward, and in that opposite to the backward's
  auto isEarlier = [](Kept *a, Kept *b) { return a->from < b->from; };
  auto isLater = [](Kept *a, Kept *b) { return a->until > b->until; };
  for (Kept &k : kept_) {
    size_t i = llvm::upper_bound(going, &k, isEarlier) - going.begin(),
           j = llvm::upper_bound(coming, &k, isLater) - coming.begin();
    going.insert(going.begin() + i, &k);
    coming.insert(coming.begin() + j, &k);
    if (fits(going, coming))
      continue;
    going.erase(going.begin() + i);
    coming.erase(coming.begin() + j);
  }
  return going;
}

void ActivationOffloader::move(const Kept &k) {
  Builder out(f_, k.lastRead->next(), k.value->def->loc), back(f_, k.firstAgain, k.value->def->loc);
  out.phase = Phase::Forward;
  Value *away = out.make(ops::transfer, {k.value}, {{"to", spaceName(to_).str()}}, k.value->name + ".away");
  Value *again = back.make(ops::transfer, {away}, {{"to", spaceName(Space::Device).str()}}, k.value->name + ".back");
  llvm::DenseMap<Value *, Value *> views;
  for (Node *reader : readersOf(*k.value))
    for (unsigned i = 0; i < reader->numOperands() && reader->phase != Phase::Forward; ++i) {
      Value *base = reader->operand(i);
      while (base && base != k.value && base->def && base->def->op->view)
        base = base->def->operand(0);
      if (base == k.value)
        reader->setOperand(i, viewsAgain(reader->operand(i), k.value, again, k.firstAgain, views));
    }
}

bool ActivationOffloader::run() {
  const double part = freePart();
  if (part > 0)
    collect(part);
  std::vector<Kept *> chosen = choose();
  int64_t bytes = 0, all = 0;
  for (const Kept &k : kept_)
    all += k.value->type.localBytes();
  for (const Kept *k : chosen) {
    bytes += k->value->type.localBytes();
    move(*k);
  }
  if (!chosen.empty())
    eraseDeadNodes(f_); // views of what has gone
  auto mib = [](int64_t b) { return double(b) / (1 << 20); };
  ctx_.remarks.push_back(
      llvm::formatv("of {0:f1} MiB that the forward keeps for the backward, {1:f1} MiB in {2} tensors go to @{3}: "
                    "compute hides no more",
                    mib(all), mib(bytes), chosen.size(), spaceName(to_)));
  return !chosen.empty();
}

llvm::Expected<bool> zcc::moveActivations(Module &m, PassContext &ctx) {
  Space to = ctx.options.away(ctx.options.offloadActivations);
  auto noted = spaceFromName(m.attrs.s("activations_place")); // by choose-plan
  if (noted)
    to = *noted;
  m.attrs.erase("activations_place");
  Function *micro = m.function("micro");
  bool moves = to != Space::Device && micro && ActivationOffloader(*micro, to, ctx).run();
  return moves || noted;
}
