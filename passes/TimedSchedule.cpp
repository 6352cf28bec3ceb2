// Lists what a step does, walks it with a clock for each engine, and sums it up.
#include "passes/TimedSchedule.h"
#include "ir/Op.h"
#include "passes/offload/LateNodes.h"
#include <algorithm>

using namespace zcc;

// ---- what is to be done

namespace {
/// Which of the bytes that the compute engine touches caches may hold: they hold what was touched shortly before, in this step or
/// at the end of the one before, and take what is written, up to some size.
class Caches {
public:
  explicit Caches(TimedSchedule &s) : schedule_(s) {}
  /// By a span, the last one of the last function.
  void touch(const Node &n);
  /// The step begins again.
  void repeat();

private:
  struct First {
    std::vector<Span> *spans;
    size_t span;
    const Value *memory;
    double bytes, at; ///< what had come before
  };
  static void keep(NodeCost &work, double bytes);

  TimedSchedule &schedule_;
  double touched_ = 0;                         ///< bytes that came into caches
  llvm::DenseMap<const Value *, double> last_; ///< of memory: what had come when it was touched
  std::vector<First> firsts_;
};

class Lister {
public:
  Lister(TimedFunction &f, Caches &caches, int ranks) : spans(f.spans), caches(caches), ranks(ranks) {}
  void add(const Node &n);

private:
  int run(const Node &n, EngineKind e, const NodeCost &work, unsigned part = 0);
  void wait(const Node &n, int span);
  void move(const Node &n);

  std::vector<Span> &spans;
  Caches &caches;
  int ranks;
  llvm::DenseMap<const Value *, int> started; ///< futures, and the spans in which they are made
};
} // namespace

void Caches::keep(NodeCost &work, double bytes) {
  for (auto [far, near] : {std::pair(Rate::Bytes, Rate::NearBytes), std::pair(Rate::ShortLink, Rate::NearLink)}) {
    const double kept = std::min(bytes, work[far]);
    work[far] -= kept;
    work[near] += kept;
  }
}

void Caches::touch(const Node &n) {
  std::vector<Span> &spans = schedule_.functions.back().spans;
  NodeCost &work = spans.back().work;
  const double begin = touched_;
  const std::vector<Touched> all = touchedBy(n);
  for (size_t i = 0; i < all.size(); ++i) {
    auto [memory, bytes] = all[i];
    auto [before, isFirst] = last_.try_emplace(memory, 0);
    const bool isResult = i + n.results.size() >= all.size();
    if (isFirst)
      firsts_.push_back({&spans, spans.size() - 1, memory, bytes, touched_});
    const bool isNear =
        isFirst ? isResult && bytes <= kNearBytes / 2 : before->second > begin || touched_ - before->second + bytes <= kNearBytes;
    if (isNear && !(isResult && movesBetweenRanks(n))) // of what is sent, once
      keep(work, bytes);
    if (isFirst && isNear)
      firsts_.pop_back();
    if (isFirst || !isNear) // what is there puts nothing out
      touched_ += bytes;
    before->second = touched_;
  }
}

void Caches::repeat() {
  for (const First &f : firsts_)
    if (touched_ - last_.lookup(f.memory) + f.at + f.bytes <= kNearBytes)
      keep((*f.spans)[f.span].work, f.bytes);
}

int Lister::run(const Node &n, EngineKind e, const NodeCost &work, unsigned part) {
  Span s;
  s.node = &n;
  s.engine = e;
  s.part = part;
  s.work = work;
  spans.push_back(s);
  return int(spans.size()) - 1;
}

void Lister::wait(const Node &n, int span) {
  Span s;
  s.node = &n;
  s.waitsFor = span;
  spans.push_back(s);
}

/// A collective, a transfer or work of the host, started or not.
void Lister::move(const Node &n) {
  std::vector<int> made;
  if (transfers(n)) {
    for (unsigned i = 0; i < n.numOperands(); ++i)
      made.push_back(run(n, moverOf(n, i), costOfMove(n, i), i));
  } else {
    EngineKind e = movesBetweenRanks(n) ? EngineKind::Collectives : EngineKind::Host;
    made.assign(n.results.size(), run(n, e, costOf(n, ranks)));
    if (e == EngineKind::Collectives)
      caches.touch(n);
  }
  for (size_t i = 0; i < n.results.size(); ++i)
    if (n.result(i)->type.isFuture)
      started[n.result(i)] = made[i];
    else
      wait(n, made[i]);
}

void Lister::add(const Node &n) {
  if (n.op->structural == Structural::Wait) {
    if (auto s = started.find(n.operand(0)); s != started.end())
      wait(n, s->second);
  } else if (movesBetweenRanks(n) || transfers(n)) {
    move(n);
  } else {
    NodeCost work = costOf(n, ranks);
    bool isAny = llvm::any_of(work.all, [](double amount) { return amount != 0; });
    if (isAny && computeSpace(n) == Space::Host) {
      move(n);
    } else if (isAny) {
      run(n, EngineKind::Compute, work);
      caches.touch(n);
    }
  }
}

TimedSchedule zcc::scheduleOf(const Module &m, const Options &o) {
  TimedSchedule s;
  bool trains = m.function("micro");
  Caches caches(s);
  s.functions.reserve(m.functions.size() + 1); // whose spans are remembered
  const llvm::DenseSet<const Node *> first = nodesOfFirstCall(m);
  auto add = [&](const Function &f, double times, bool isFirst) {
    TimedFunction &timed = s.functions.emplace_back();
    timed.function = &f;
    timed.times = times;
    timed.isFirst = isFirst;
    Lister list(timed, caches, m.ranks);
    for (auto &n : f.nodes)
      if (isFirst || !first.contains(n.get()))
        list.add(*n);
  };
  for (auto &f : m.functions) {
    if (trains ? f->name != "micro" && f->name != "update" : f->name != "eval")
      continue;
    const double times = f->name == "micro" ? double(o.gradAccum) / batchesPerCall(m) : 1;
    const bool differ = f->name == "micro" && !first.empty() && times > 1;
    add(*f, differ ? 1 : times, true);
    if (differ)
      add(*f, times - 1, false);
  }
  caches.repeat();
  return s;
}

// ---- when

/// Whose clock a span takes.
static EngineKind clockOf(const Span &s, const Machine &m) {
  bool takesCores = s.engine == EngineKind::Collectives ? m.collectivesCompute : s.engine == EngineKind::Host && m.hostComputes;
  return takesCores ? EngineKind::Compute : s.engine;
}

void zcc::setTimes(TimedSchedule &s, const Machine &machine) {
  for (TimedFunction &f : s.functions) {
    std::array<double, kEngines> free{};
    double &now = free[size_t(EngineKind::Compute)];
    for (Span &span : f.spans) {
      double &clock = free[size_t(clockOf(span, machine))];
      span.begin = std::max(clock, now);
      span.end = span.waits() ? std::max(now, f.spans[span.waitsFor].end) : span.begin + span.work.seconds(machine);
      clock = span.end;
      now += span.work.takenSeconds(machine);
    }
    f.seconds = *std::max_element(free.begin(), free.end());
  }
}

// ---- its sum

static void addSent(StepCost &step, const Span &s, double times) {
  const Node &n = *s.node;
  if (transfers(n))
    step.sent[(spaceName(n.operand(s.part)->type.space) + " to " + spaceName(n.result(s.part)->type.space)).str()] +=
        times * movedBytes(n, s.part);
  else if (s.work.sentBytes() > 0)
    step.sent[performed(n)->name] += times * s.work.sentBytes();
}

double StepCost::diskWrites() const {
  double bytes = 0;
  for (auto &[name, count] : sent)
    if (llvm::StringRef(name).ends_with("to nvme"))
      bytes += count;
  return bytes;
}

/// The name of what is busy longest; of the compute engine's work, of what takes most of it.
static std::string boundBy(const StepCost &step) {
  auto longest = std::max_element(step.busy.begin(), step.busy.end()) - step.busy.begin();
  switch (EngineKind(longest)) {
  case EngineKind::Disk:
    return "disk";
  case EngineKind::ToHost:
  case EngineKind::FromHost:
    return "host copies";
  case EngineKind::Collectives:
    return "communication";
  case EngineKind::Host:
    return "host compute";
  case EngineKind::Compute:
    break;
  }
  std::string most = "compute";
  for (auto &[name, seconds] : step.bound)
    if (auto i = step.bound.find(most); i == step.bound.end() || seconds > i->second)
      most = name;
  return most;
}

/// What takes most of a node's time.
static const char *boundOf(const NodeCost &c, const Machine &m) {
  if (c.sentBytes() > 0)
    return "communication";
  const double compute = c.computeSeconds(m), memory = c.memorySeconds(m);
  return c.startSeconds(m) > std::max(compute, memory) && c[Rate::Launches] / m[Rate::Launches] > 0 ? "launches"
         : compute > memory                                                                         ? "compute"
                                                                                                    : "memory";
}

StepCost zcc::costOf(const TimedSchedule &s, const Machine &machine) {
  StepCost step;
  for (const TimedFunction &f : s.functions) {
    std::array<double, kEngines> busy{};
    for (const Span &span : f.spans) {
      if (span.waits())
        continue;
      const NodeCost &c = span.work;
      const double seconds = c.seconds(machine), taken = c.takenSeconds(machine);
      busy[size_t(clockOf(span, machine))] += seconds;
      busy[size_t(EngineKind::Compute)] += taken;
      step.taken += f.times * taken;
      step.flops += f.times * c.flops();
      addSent(step, span, f.times);
      if (transfers(*span.node) || (span.engine == EngineKind::Host && !machine.hostComputes))
        continue;
      step.bound[boundOf(c, machine)] += f.times * seconds;
    }
    step.seconds += f.times * f.seconds;
    for (size_t e = 0; e < kEngines; ++e)
      step.busy[e] += f.times * busy[e];
  }
  step.boundBy = boundBy(step);
  return step;
}

StepCost zcc::costOfStep(const Module &m, const Options &o, const Machine &machine) {
  TimedSchedule s = scheduleOf(m, o);
  setTimes(s, machine);
  return costOf(s, machine);
}
