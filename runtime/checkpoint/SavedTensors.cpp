// Reads the program's table of globals.
#include "runtime/checkpoint/SavedTensors.h"
#include "runtime/Elem.h"
#include "runtime/Hash.h"
#include "runtime/Weights.h"
#include <algorithm>

namespace zccrt {

/// What every rank has is cut into as many parts as there are ranks, unless it is smaller.
constexpr int64_t kCutBytes = 1 << 16;

bool isAlias(const zccrt_program &p, const zccrt_global &g) {
  if (g.init != ZCCRT_INIT_COPY)
    return false;
  const zccrt_global &from = p.globals[g.copy_of];
  return from.space == g.space && from.t.offset == g.t.offset;
}

std::vector<HeldRun> heldRuns(const zccrt_program &p, int rank) {
  std::vector<HeldRun> held;
  for (int i = 0; i < p.nglobals; ++i) {
    const zccrt_global &g = p.globals[i];
    if (!g.saved || g.role == ZCCRT_WHOLE || isAlias(p, g))
      continue;
    HeldRun h;
    h.saved.tensor = g.saved;
    h.saved.rank = g.saved_flags & ZCCRT_SAVED_OWN ? rank : -1;
    h.saved.elem = g.t.elem;
    h.saved.dims = dimsOf(wholeOf(p, g).t);
    h.saved.run = runOf(p, g, rank);
    h.global = i;
    h.space = g.space;
    h.offset = g.t.offset;
    held.push_back(std::move(h));
  }
  return held;
}

/// Leaves of a run that every rank has what this one writes.
static void takeShare(HeldRun &h, int rank, int ranks) {
  const int64_t size = elemBytes(h.saved.elem), count = h.saved.run.count;
  if (count * size <= kCutBytes) {
    h.saved.run.count = h.global % ranks == rank ? count : 0;
    return;
  }
  int64_t part = (count + ranks - 1) / ranks, begin = std::min(count, rank * part);
  h.saved.run.begin += begin;
  h.saved.run.count = std::min(part, count - begin);
  h.offset += begin * size;
}

std::vector<HeldRun> runsToWrite(const zccrt_program &p, int rank) {
  std::vector<int> order(p.nglobals, p.nwritten);
  for (int i = 0; i < p.nwritten; ++i)
    order[p.written[i]] = i;
  std::vector<HeldRun> runs;
  for (HeldRun &h : heldRuns(p, rank)) {
    const zccrt_global &g = p.globals[h.global];
    if (g.saved_flags & ZCCRT_SAVED_CAST)
      continue;
    if (g.shards <= 1 && !(g.saved_flags & ZCCRT_SAVED_OWN))
      takeShare(h, rank, p.ranks);
    if (h.saved.run.count)
      runs.push_back(std::move(h));
  }
  std::stable_sort(runs.begin(), runs.end(), [&](auto &a, auto &b) { return order[a.global] < order[b.global]; });
  return runs;
}

uint64_t graphHash(const zccrt_program &p) {
  uint64_t h = 0;
  for (int i = 0; i < p.npieces; ++i)
    h = hashMix(h ^ hashBytes(p.onnx[i].bytes, p.onnx[i].nbytes)) + 1;
  return h;
}

uint64_t modelHash(const zccrt_program &p) {
  std::vector<std::string> parameters;
  for (int i = 0; i < p.nglobals; ++i)
    if (const zccrt_global &g = p.globals[i]; g.saved && g.role == ZCCRT_PARAM) {
      std::string text = g.saved;
      for (int64_t d : dimsOf(wholeOf(p, g).t))
        text += " " + std::to_string(d);
      parameters.push_back(text);
    }
  std::sort(parameters.begin(), parameters.end());
  parameters.erase(std::unique(parameters.begin(), parameters.end()), parameters.end()); // of the boxes of one
  std::string all;
  for (const std::string &s : parameters)
    all += s + "\n";
  return hashBytes(all.data(), all.size());
}

} // namespace zccrt
