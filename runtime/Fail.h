// How the runtime ends on an error: exceptions up to the step loop, which prints one message naming the rank and the step and
// ends the job. Code that cannot throw (kernels, worker threads) uses zccrt_fail or endJob.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace zccrt {

/// printf into a string.
__attribute__((format(printf, 1, 2))) std::string format(const char *text, ...);

/// The lines of a text, without their ends.
std::vector<std::string> linesOf(const std::string &text);

/// An error for the user: lower case, what is wrong, then what to do. Lines after the first are
/// notes.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Another rank failed and has said so; this one ends without a word.
struct PeerFailure : Failure {
  using Failure::Failure;
};

/// Another rank has died, and this one says so.
struct RankDied : Failure {
  using Failure::Failure;
};

/// Every rank knows that one of them failed; it has been printed, and all end in good order.
struct AgreedFailure : Failure {
  using Failure::Failure;
};

/// Throws a Failure with the formatted text.
[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char *text, ...);

/// The same with ": " and the text of errno behind it.
[[noreturn]] __attribute__((format(printf, 1, 2))) void failErrno(const char *text, ...);

/// Where the program is, for messages.
struct Where {
  std::string program; ///< its name on the command line
  int rank = 0, ranks = 1;
  int64_t step = -1; ///< -1: not in the step loop
};
extern Where where;

/// Whom a message is about.
enum class About { ThisRank, AnotherRank };

/// "gpt2: error: rank 1, step 3: TEXT\n"
std::string errorText(const std::string &text, About about = About::ThisRank);

/// The same of what does not end the run: "gpt2: warning: rank 1, step 3: TEXT\n"
std::string warningText(const std::string &text);

/// Whether a terminal shows a line that is drawn again and again; endDrawing() ends it before another
/// message. Async-signal-safe.
extern volatile int isDrawing;
void endDrawing();

/// What is still to be done on this rank when an error ends the job, on whatever thread. May be empty.
extern void (*lastWords)(const std::string &error);

/// Set by joinJob: tells the other ranks that this one ends, and gives the first of them time for its last words. May be empty.
extern void (*tellRanks)();
/// Set by joinJob: ends the job (MPI_Abort). May be empty.
extern void (*abortRanks)();

/// Prints the error, removes unfinished output files, ends the job with status 1. Safe on every
/// thread.
[[noreturn]] void endJob(const std::string &text, About about = About::ThisRank);
/// Ends this rank only, without a message: another one has failed and said so.
[[noreturn]] void endSilently();

} // namespace zccrt
