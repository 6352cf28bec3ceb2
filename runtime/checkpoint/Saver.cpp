// The thread that saves, and how a step waits for it.
#include "runtime/checkpoint/Saver.h"
#include "runtime/Environment.h"
#include "runtime/Fail.h"
#include "runtime/Trace.h"
#include "runtime/checkpoint/Folder.h"
#include "runtime/checkpoint/RankFiles.h"
#include <climits>
#include <cstdlib>

namespace zccrt {

constexpr int kAll = INT_MAX;

void Saver::Free::operator()(char *p) const { std::free(p); }

Saver::Saver(const zccrt_program &p, const Arenas &arenas, int rank)
    : program(p), arenas(arenas), rank(rank), runs(runsToWrite(p, rank)), order(p.nglobals, p.nwritten),
      buffer(static_cast<char *>(std::aligned_alloc(kPage, std::max<size_t>(p.save_bytes, kPage)))), readUpTo(kAll) {
  for (int i = 0; i < p.nwritten; ++i)
    order[p.written[i]] = i;
  worker = std::thread([this] { work(); });
}

Saver::~Saver() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  wake.notify_all();
  worker.join();
}

void Saver::start(const std::string &folder) {
  wait();
  readUpTo.store(0, std::memory_order_release);
  startJob([this, folder] { save(folder); });
}

void Saver::startJob(std::function<void()> next) {
  wait();
  {
    std::lock_guard lock(mutex);
    why.clear();
    job = std::move(next);
    busy = true;
  }
  wake.notify_all();
}

void Saver::wait() {
  std::unique_lock lock(mutex);
  progress.wait(lock, [&] { return !busy; });
}

void Saver::waitUntilRead(int n) {
  std::unique_lock lock(mutex);
  progress.wait(lock, [&] { return n < readUpTo; });
}

void Saver::noteRead(int n) {
  {
    std::lock_guard lock(mutex);
    readUpTo.store(n, std::memory_order_release);
  }
  progress.notify_all();
}

void Saver::work() {
  useAllCores();
  std::unique_lock lock(mutex);
  while (true) {
    wake.wait(lock, [&] { return stopping || busy; });
    if (!busy)
      return;
    lock.unlock();
    std::string error;
    try {
      job();
    } catch (const std::exception &e) {
      error = e.what();
    }
    noteRead(kAll);
    lock.lock();
    why = error;
    busy = false;
    progress.notify_all();
  }
}

void Saver::save(const std::string &folder) {
  TraceScope span(Lane::Checkpoints, "save");
  makeFolder(folder);
  RankFiles files(folder, rank, {buffer.get(), std::max<size_t>(program.save_bytes, kPage)});
  for (const HeldRun &h : runs) {
    if (stopping)
      fail("the run has ended");
    noteRead(order[h.global]);
    files.append(arenas[h.space], h);
  }
  noteRead(kAll);
  written = files.finish();
}

// ---- what the program calls

static Saver *currentSaver;

void useSaver(Saver *s) { currentSaver = s; }

} // namespace zccrt

void zccrt_will_write(int n) {
  if (zccrt::currentSaver)
    zccrt::currentSaver->willWrite(n);
}
