#include "runtime/Log.h"
#include "runtime/Fail.h"
#include "runtime/OutFile.h"
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

namespace zccrt {

static double rate(const StepReport &r) { return r.seconds > 0 ? r.samples / r.seconds : 0; }

Log::Log(const zccrt_program &p, const Options &o, int64_t steps)
    : program(p), steps(steps), path(o.log), quiet(o.quiet), terminal(isatty(STDOUT_FILENO)) {
  if (path.empty())
    return;
  fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0)
    failErrno("cannot write the log '%s'", path.c_str());
}

Log::~Log() {
  if (fd >= 0)
    close(fd);
}

void Log::add(const char *text, ...) {
  va_list list;
  va_start(list, text);
  int room = static_cast<int>(sizeof line) - length;
  int n = vsnprintf(line + length, room, text, list);
  va_end(list);
  length += std::clamp(n, 0, room - 1);
}

void Log::addNumber(const char *key, double x) {
  if (std::isfinite(x))
    add(", \"%s\": %.9g", key, x);
  else
    add(", \"%s\": %s", key, std::isnan(x) ? "NaN" : x < 0 ? "-Infinity" : "Infinity");
}

void Log::addDuration(double seconds) {
  long long s = std::llround(seconds);
  if (s >= 3600)
    add("%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  else
    add("%lld:%02lld", s / 60, s % 60);
}

bool Log::flush(int to) {
  line[length++] = '\n';
  int n = length;
  length = 0;
  return writeAll(to, line, n);
}

void Log::say(const std::string &text) {
  if (quiet)
    return;
  std::string ended = text + "\n";
  // A reader that went away does not end the training; what counts is in the log.
  writeAll(STDOUT_FILENO, ended.data(), ended.size());
}

void Log::write(const StepReport &r) {
  if (fd < 0)
    return;
  add("{\"step\": %lld", static_cast<long long>(r.step));
  addNumber("loss", r.loss);
  if (r.lr) { // the fewest digits that read back exactly
    char digits[32];
    auto [end, error] = std::to_chars(digits, digits + sizeof digits, *r.lr);
    add(", \"lr\": %.*s", static_cast<int>(end - digits), digits);
  }
  if (r.gradNorm)
    addNumber("grad_norm", *r.gradNorm);
  if (r.lossScale)
    addNumber("loss_scale", *r.lossScale);
  if (r.skipped)
    add(", \"skipped\": %s", *r.skipped ? "true" : "false");
  add(", \"time_s\": %.6f", r.seconds);
  addNumber("samples_per_s", rate(r));
  add(", \"peak_bytes\": {\"device\": %lld, \"host\": %lld, \"nvme\": %lld}",
      static_cast<long long>(program.arena_bytes[0]),
      static_cast<long long>(program.arena_bytes[1]),
      static_cast<long long>(program.arena_bytes[2]));
  if (program.ranks > 1)
    add(", \"sent_bytes\": {\"all_reduce\": %lld, \"all_gather\": %lld, \"reduce_scatter\": %lld}",
        static_cast<long long>(r.sent.allReduce), static_cast<long long>(r.sent.allGather),
        static_cast<long long>(r.sent.reduceScatter));
  if (r.evalLoss)
    addNumber("eval_loss", *r.evalLoss);
  add("}");
  if (!flush(fd))
    failErrno("cannot write the log '%s'", path.c_str());
}

void Log::reportEval(const StepReport &r) {
  write(r);
  say(format("eval loss %.9g over %lld samples in %.1f s", r.loss,
             static_cast<long long>(r.samples), r.seconds));
}

void Log::report(const StepReport &r) {
  write(r);
  if (quiet)
    return;
  ++done;
  secondsSoFar += r.seconds;
  add("step %lld  loss %.6g", static_cast<long long>(r.step), r.loss);
  if (r.lr)
    add("  lr %.4g", *r.lr);
  if (r.gradNorm)
    add("  grad norm %.4g", *r.gradNorm);
  if (r.skipped.value_or(false)) {
    add("  skipped: gradients %s", r.lossScale ? "overflow" : "are not finite");
    if (r.lossScale)
      add(" at loss scale %g", *r.lossScale);
  }
  add("  %.4g samples/s", rate(r));
  if (r.evalLoss)
    add("  eval loss %.6g", *r.evalLoss);
  if (terminal) {
    add("  %lld/%lld, ", static_cast<long long>(r.step + 1), static_cast<long long>(steps));
    addDuration(secondsSoFar / done * (steps - r.step - 1));
    add(" left");
  }
  flush(STDOUT_FILENO);
}

} // namespace zccrt
