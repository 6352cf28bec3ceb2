// The process before the real work: OpenMP's environment, cores, malloc, CPU features.
#pragma once

#include "runtime/zccrt.h"
#include <string>

namespace zccrt {

/// What mpirun's environment says; one rank without mpirun.
struct Launch {
  bool underMpi = false;
  int ranks = 1; ///< 0: the launcher does not say
  int ranksOnNode = 1;
  int rankOnNode = 0;
};
Launch readLaunch();

/// Cores this process may run on.
int availableCores();

/// Threads each rank computes with: the program's, or its share of the node's cores.
int threadsPerRank(const zccrt_program &p, const Launch &launch);

/// Whether the node has a core left for a communication thread of every rank.
bool hasSpareCore(const zccrt_program &p, const Launch &launch);

/// libgomp reads its settings before main: sets OMP_NUM_THREADS and OMP_WAIT_POLICY, widens the
/// affinity mask if mpirun bound the rank to fewer cores than it has threads, and starts the
/// program over, once, if that changed anything.
void prepareProcess(const zccrt_program &p, char **argv);

/// Lets the calling thread run on every core that the system allows.
void useAllCores();
/// Makes the calling thread's OpenMP team, so that a step does not.
void gatherThreads();

/// Throws a Failure naming what the code needs and this CPU lacks.
void checkCpu(const char *isa);
/// Whether this CPU has a feature, by its name in the compiler ("avx2", "avx512bf16") or in
/// /proc/cpuinfo ("avx512_bf16").
bool cpuHas(const std::string &feature);

} // namespace zccrt
