// What our tools ask of the process they run in: a stack of known size, one message where memory ends, and nothing left behind
// where a signal ends it.
#pragma once

namespace zcc {

/// Calls `body` on a stack whose size depends on no `ulimit -s`, and returns what it returns: what
/// recurses over a file's contents is bounded for this stack. Where memory ends, the process says so
/// in one line and ends with 1. Where SIGINT, SIGTERM or SIGHUP ends it, unfinished files are removed,
/// and `cleanUp` is called first, on a thread of its own.
int runTool(int argc, char **argv, int (*body)(int, char **), void (*cleanUp)());

} // namespace zcc
