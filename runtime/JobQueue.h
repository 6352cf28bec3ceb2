// Work in the order of its starts, on a thread of its own or at once. Everything is allocated when the queue is made: a step only
// moves numbers.
#pragma once

#include "runtime/Environment.h"
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace zccrt {

template <class Job> class JobQueue {
public:
  /// At most `most` jobs are under way at once; `make` makes room for one. `run` must not throw.
  JobQueue(int most, bool ownThread, const std::function<Job()> &make, std::function<void(const Job &)> run)
      : run(std::move(run)) {
    ring.reserve(most);
    for (int i = 0; i < most; ++i)
      ring.push_back(make());
    if (ownThread)
      worker = std::thread([this] { work(); });
  }

  ~JobQueue() {
    if (!worker.joinable())
      return;
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    worker.join();
  }

  /// `fill` makes a job of the one that had its place before. Returns what to wait for.
  template <class Fill> uint64_t start(Fill fill) {
    Job &job = ring[started % ring.size()];
    fill(job);
    if (!worker.joinable()) {
      run(job);
      return 0;
    }
    {
      std::lock_guard lock(mutex);
      ++started;
    }
    wake.notify_one();
    return started;
  }

  void wait(uint64_t turn) {
    if (turn == 0)
      return;
    std::unique_lock lock(mutex);
    progress.wait(lock, [&] { return finished >= turn; });
  }

private:
  void work() {
    // mpirun binds a rank to the cores it computes on.
    useAllCores();
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [&] { return stopping || finished < started; });
      if (finished == started)
        return;
      const Job &job = ring[finished % ring.size()];
      lock.unlock();
      run(job);
      lock.lock();
      ++finished;
      progress.notify_all();
    }
  }

  std::vector<Job> ring; ///< as many as can be under way
  std::function<void(const Job &)> run;
  uint64_t started = 0, finished = 0; ///< `started` is written by the thread that starts, alone
  bool stopping = false;
  std::mutex mutex;
  std::condition_variable wake, progress;
  std::thread worker; ///< last: it uses all of the above
};

} // namespace zccrt
