#include "runtime/Log.h"
#include "runtime/Fail.h"
#include "runtime/OutFile.h"
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

namespace zccrt {

static std::string number(double x) {
  if (std::isnan(x))
    return "NaN";
  if (std::isinf(x))
    return x < 0 ? "-Infinity" : "Infinity";
  return format("%.9g", x);
}

std::string durationText(double seconds) {
  long long s = std::llround(seconds);
  return s >= 3600 ? format("%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60)
                   : format("%lld:%02lld", s / 60, s % 60);
}

std::string jsonLine(const zccrt_program &p, const StepReport &r) {
  std::string s = format("{\"step\": %lld, \"loss\": %s", static_cast<long long>(r.step),
                         number(r.loss).c_str());
  if (r.lr)
    s += ", \"lr\": " + number(*r.lr);
  if (r.gradNorm)
    s += ", \"grad_norm\": " + number(*r.gradNorm);
  s += format(", \"time_s\": %.6f, \"samples_per_s\": %s", r.seconds,
              number(r.seconds > 0 ? r.samples / r.seconds : 0).c_str());
  s += format(", \"peak_bytes\": {\"device\": %lld, \"host\": %lld, \"nvme\": %lld}",
              static_cast<long long>(p.arena_bytes[0]), static_cast<long long>(p.arena_bytes[1]),
              static_cast<long long>(p.arena_bytes[2]));
  if (r.evalLoss)
    s += ", \"eval_loss\": " + number(*r.evalLoss);
  return s + "}\n";
}

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

void Log::say(const std::string &line) {
  if (quiet)
    return;
  std::string text = line + "\n";
  // A reader that went away does not end the training; what counts is in the log.
  writeAll(STDOUT_FILENO, text.data(), text.size());
}

void Log::write(const StepReport &r) {
  if (fd < 0)
    return;
  std::string line = jsonLine(program, r);
  if (!writeAll(fd, line.data(), line.size()))
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
  double rate = r.seconds > 0 ? r.samples / r.seconds : 0;
  std::string line = format("step %lld  ", static_cast<long long>(r.step));
  line += format("loss %.6g", r.loss);
  if (r.lr)
    line += format("  lr %.4g", *r.lr);
  if (r.gradNorm)
    line += format("  grad norm %.4g", *r.gradNorm);
  line += format("  %.4g samples/s", rate);
  if (r.evalLoss)
    line += format("  eval loss %.6g", *r.evalLoss);
  if (terminal)
    line += format("  %lld/%lld, %s left", static_cast<long long>(r.step + 1),
                   static_cast<long long>(steps),
                   durationText(secondsSoFar / done * (steps - r.step - 1)).c_str());
  say(line);
}

} // namespace zccrt
