// Signals that ask a run to end: SIGINT, SIGTERM, SIGHUP, and SIGUSR2, the one that mpirun passes on without killing its ranks a
// second later. And SIGUSR1, which asks for a checkpoint.
#pragma once

namespace zccrt {

enum class OnSignal {
  EndAtOnce, ///< after unfinished output files are removed
  FinishStep ///< the first is noted in signalSeen(), a second ends the process at once
};

/// What the signals do from here on.
void onSignals(OnSignal what);

/// Another rank got a signal, and the run is ending: this one's own, which may still come, is the same and ends nothing.
void awaitSignal();

/// From here on SIGUSR1 asks for a checkpoint.
void takeSaveSignals();
/// How many have come.
int saveSignalsSeen();

/// The first signal that came since FinishStep; 0: none.
int signalSeen();

/// "SIGINT"
const char *signalName(int number);

/// 130 after SIGINT, 143 after SIGTERM and after SIGUSR2, which stands for it.
int exitStatusOf(int number);

} // namespace zccrt
