// Standard files that a process was started without. Tools and programs both use it.
#pragma once

#include <fcntl.h>
#include <initializer_list>
#include <unistd.h>

namespace zccrt {

/// What becomes of messages where there is no standard error: writing them fails, or nobody hears them.
enum class UnheardErrors { Fail, AreLost };

/// A file must not get the number of a standard one that is not there: what is printed would land in it. Opened so that printing
/// to standard output still fails.
inline void holdStandardFiles(UnheardErrors errors) {
  const int modes[] = {O_WRONLY, O_RDONLY, errors == UnheardErrors::Fail ? O_RDONLY : O_WRONLY}; // by number
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", modes[fd]) < 0)
      return;
}

} // namespace zccrt
