// Records spans, and writes them as events.
#include "runtime/Trace.h"
#include "runtime/Clock.h"
#include "runtime/Fail.h"
#include "runtime/Json.h"
#include <algorithm>
#include <map>

namespace zccrt {

// Spans that are kept at most: 48 MiB.
constexpr int64_t kMostEvents = 1 << 20;
// Without --trace-steps: the first steps find cold caches.
constexpr int64_t kWarmUp = 2, kSteps = 3;

static std::atomic<Trace *> currentTrace = nullptr;
/// Whether a step is being traced.
static std::atomic<bool> tracing = false;
static std::atomic<int> nodeAt = -1;

// ---- recording

static int64_t mostEvents(const zccrt_program &p, const Options &o) {
  int64_t steps = o.traceSteps.from < 0 ? kSteps : o.traceSteps.to - o.traceSteps.from;
  int64_t calls = p.grad_accum / p.batches_per_call;
  // Each node for itself, for what it starts, and for each tensor that it moves.
  int64_t perStep = calls * (2 * int64_t(p.nnodes) + int64_t(p.transfer_slots) * p.most_moves + 4) + 64;
  return std::min(kMostEvents, std::min(steps, kMostEvents) * perStep);
}

int64_t Trace::bytes(const zccrt_program &p, const Options &o) {
  return o.trace.empty() ? 0 : mostEvents(p, o) * static_cast<int64_t>(sizeof(Event));
}

Trace::Trace(const zccrt_program &p, const Options &o, int64_t first, int64_t steps)
    : program(p), range(o.traceSteps), events(mostEvents(p, o)) {
  if (range.from < 0) {
    range.from = std::clamp(first + kWarmUp, first, std::max(first, steps - 1));
    range.to = range.from + kSteps;
  } else if (range.from >= steps || range.to <= first)
    fail("--trace-steps=%lld:%lld: the run has the steps %lld to %lld", static_cast<long long>(range.from),
         static_cast<long long>(range.to), static_cast<long long>(first), static_cast<long long>(steps - 1));
}

void Trace::start() { origin = now(); }

void Trace::beginStep(int64_t s) {
  if (s < range.from || s >= range.to)
    return;
  step = s;
  stepBegan = now();
  tracing.store(true, std::memory_order_relaxed);
}

void Trace::pause() { tracing.store(false, std::memory_order_relaxed); }

void Trace::resume() { tracing.store(step >= 0, std::memory_order_relaxed); }

void Trace::endStep() {
  if (step < 0)
    return;
  if (Device *d = device()) {
    endNodeOnDevice(*d, nullptr);
    d->readTimes();
  }
  add(Lane::Program, "step", -1, step, stepBegan, now());
  tracing.store(false, std::memory_order_relaxed);
  step = -1;
}

void Trace::endNodeOnDevice(Device &d, Event *next) {
  if (onDevice || next)
    d.timeAt(Device::Compute, onDevice ? &onDevice->end : &next->begin, onDevice && next ? &next->begin : nullptr);
  onDevice = next;
}

void Trace::at(int node) {
  if (Device *d = device())
    return endNodeOnDevice(*d, node < 0 ? nullptr : add(Lane::Compute, nullptr, node, -1));
  double time = now();
  if (node_ >= 0)
    add(Lane::Compute, nullptr, node_, -1, nodeBegan, time);
  node_ = node;
  nodeBegan = time;
}

Trace::Event *Trace::add(Lane lane, const char *name, int node, int64_t number) {
  const size_t i = used.fetch_add(1, std::memory_order_relaxed);
  if (i >= events.size())
    return nullptr;
  events[i] = {name, node, lane, number, 0, 0};
  return &events[i];
}

void Trace::add(Lane lane, const char *name, int node, int64_t number, double begin, double end) {
  if (Event *e = add(lane, name, node, number)) {
    e->begin = begin;
    e->end = end;
  }
}

int64_t Trace::lost() const { return std::max<int64_t>(0, static_cast<int64_t>(used) - static_cast<int64_t>(events.size())); }

// ---- writing

constexpr struct {
  Lane lane;
  const char *name;
} kLanes[] = {{Lane::Program, "step"},           {Lane::Compute, "compute"},
              {Lane::Host, "host compute"},      {Lane::Collectives, "collectives"},
              {Lane::ToHost, "copies to host"},  {Lane::FromHost, "copies from host"},
              {Lane::Reads, "disk reads"},       {Lane::Writes, "disk writes"},
              {Lane::Checkpoints, "checkpoints"}};
constexpr int kMostRows = 64; // of a lane

/// By the time of their begin; what overlaps an event of the disk's is put a row below.
std::vector<Trace::Placed> Trace::place() const {
  std::vector<Placed> all;
  for (size_t i = 0; i < std::min<size_t>(used, events.size()); ++i)
    all.push_back({events[i], static_cast<int>(events[i].lane) * kMostRows});
  std::stable_sort(all.begin(), all.end(), [](auto &a, auto &b) {
    return a.event.begin != b.event.begin ? a.event.begin < b.event.begin : a.event.end > b.event.end;
  });
  std::map<int, double> free; // when a row is
  for (Placed &p : all) {
    if (p.event.lane != Lane::Reads && p.event.lane != Lane::Writes)
      continue;
    for (int last = p.row + kMostRows - 1; p.row < last && free[p.row] > p.event.begin; ++p.row)
      ;
    free[p.row] = p.event.end;
  }
  return all;
}

static std::string orElse(const char *text, const char *otherwise) { return *text ? text : otherwise; }

void Trace::print(std::string &s, int rank, const Placed &placed) const {
  const Event &e = placed.event;
  std::string name = e.name ? e.name : "", args;
  const char *category = kLanes[static_cast<int>(e.lane)].name;
  if (e.node >= 0) {
    const zccrt_node &n = program.nodes[e.node];
    name = orElse(n.node, *n.name ? n.name : n.op);
    if (e.lane != Lane::Compute)
      name = std::string(n.op) + " " + n.name;
    category = n.phase;
    args = format("\"op\": %s, \"value\": %s, \"predicted_us\": %.3f", jsonString(n.op).c_str(), jsonString(n.name).c_str(),
                  n.predicted_s * 1e6);
  }
  if (e.number >= 0 && e.lane == Lane::Program)
    name += format(" %lld", static_cast<long long>(e.number));
  else if (e.number >= 0)
    args += format("%s\"bytes\": %lld", args.empty() ? "" : ", ", static_cast<long long>(e.number));
  s += format(
      ",\n{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"name\": %s, \"cat\": \"%s\", \"ts\": %.3f, \"dur\": %.3f, \"args\": {%s}}",
      rank, placed.row, jsonString(name).c_str(), category, (e.begin - origin) * 1e6, (e.end - e.begin) * 1e6, args.c_str());
}

std::string Trace::json(int rank) const {
  std::vector<Placed> all = place();
  std::map<int, std::string> rows;
  for (const Placed &p : all) {
    int number = p.row % kMostRows;
    rows[p.row] = kLanes[p.row / kMostRows].name + (number ? format(" %d", number + 1) : "");
  }
  std::string s = format("{\"ph\": \"M\", \"pid\": %d, \"name\": \"process_name\", \"args\": {\"name\": \"rank %d\"}},\n"
                         "{\"ph\": \"M\", \"pid\": %d, \"name\": \"process_sort_index\", \"args\": {\"sort_index\": %d}}",
                         rank, rank, rank, rank);
  for (auto &[row, name] : rows)
    s += format(",\n{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_name\", \"args\": {\"name\": \"%s\"}},\n"
                "{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_sort_index\", \"args\": {\"sort_index\": %d}}",
                rank, row, name.c_str(), rank, row, row);
  for (const Placed &p : all)
    print(s, rank, p);
  return s;
}

// ---- who records

void useTrace(Trace *t) { currentTrace = t; }
double traceClock() { return currentTrace ? now() : 0; }
int nodeNow() { return nodeAt.load(std::memory_order_relaxed); }

void traceSpan(Lane lane, const char *name, int node, int64_t number, double begin) {
  if (!tracing.load(std::memory_order_relaxed))
    return;
  if (Trace *t = currentTrace)
    t->add(lane, name, node, number, begin, now());
}

StreamScope::StreamScope(Device::Stream s, Lane lane, const char *name, int64_t number, int node)
    : stream(s), event(tracing.load(std::memory_order_relaxed) ? currentTrace.load()->add(lane, name, node, number) : nullptr) {
  if (event)
    device()->timeAt(stream, &event->begin, nullptr);
}

StreamScope::~StreamScope() {
  if (event)
    device()->timeAt(stream, &event->end, nullptr);
}

} // namespace zccrt

void zccrt_at(int n) {
  zccrt::nodeAt.store(n, std::memory_order_relaxed);
  if (zccrt::tracing.load(std::memory_order_relaxed))
    zccrt::currentTrace.load()->at(n);
}
