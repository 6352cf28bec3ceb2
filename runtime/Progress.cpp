// Decides when a line is due and composes it within the terminal's width.
#include "runtime/Progress.h"
#include "runtime/Clock.h"
#include "runtime/Environment.h"
#include "runtime/Fail.h"
#include "runtime/OutFile.h"
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace zccrt {

// A terminal is drawn ten times a second at most. Elsewhere lines are two seconds apart, from 200
// seconds on a hundredth of the time so far: a day makes some 700 lines.
constexpr double kRedrawSeconds = 0.1, kLineSeconds = 2, kLineShare = 0.01;
// The rate is that of the last ten seconds or ten steps, the mean loss that of some 50 steps.
constexpr double kRateSeconds = 10, kRateSteps = 10, kLossSteps = 50;

static int parentOf(int pid) {
  std::ifstream file(format("/proc/%d/stat", pid));
  std::string text;
  std::getline(file, text, ')'); // "PID (NAME)"
  int parent = 0;
  return file >> text >> parent ? parent : 0;
}

/// Where the launcher's output goes: Open MPI gives a rank a terminal of its own, which says nothing
/// about the user's. -1 if that is no terminal, or unknown.
static int launchersTerminal() {
  struct stat own, other;
  if (fstat(STDOUT_FILENO, &own) != 0)
    return -1;
  for (int pid = getppid(), depth = 0; pid > 1 && depth < 16; pid = parentOf(pid), ++depth) {
    std::string path = format("/proc/%d/fd/1", pid);
    if (stat(path.c_str(), &other) != 0)
      return -1;
    if (other.st_rdev != own.st_rdev)
      return open(path.c_str(), O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  }
  return -1;
}

static int openTerminal() {
  const char *kind = getenv("TERM");
  if (!isatty(STDOUT_FILENO) || (kind && !strcmp(kind, "dumb")))
    return -1;
  int fd = readLaunch().underMpi ? launchersTerminal() : dup(STDOUT_FILENO);
  if (fd >= 0 && !isatty(fd)) {
    close(fd);
    return -1;
  }
  return fd;
}

Progress::Progress(const Options &o, int64_t steps, const Epochs &epochs)
    : steps(steps), every(o.printEvery), epochs(epochs), screen(o.quiet ? -1 : openTerminal()), began(now()) {}

Progress::~Progress() {
  endDrawing();
  if (screen >= 0)
    close(screen);
}

double Progress::seconds() const { return now() - began; }

int Progress::width() const {
  winsize size = {};
  return ioctl(screen, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

void Progress::tell(const std::string &text) {
  endDrawing();
  std::string ended = where.program + ": " + text + "\n";
  writeAll(STDERR_FILENO, ended.data(), ended.size());
}

/// A reader that went away is no news.
void Progress::warnOfOutput() {
  if (saidOutputFails || errno == EPIPE)
    return;
  saidOutputFails = true;
  warn(format("cannot write to standard output: %s", strerror(errno)));
}

bool Progress::say(const std::string &text) {
  endDrawing();
  std::string ended = text + "\n";
  return writeAll(STDOUT_FILENO, ended.data(), ended.size());
}

void Progress::learn(const StepReport &r) {
  if (r.step == 1)
    recent = {}; // the first step finds cold caches
  double keep = std::max(std::exp(-r.seconds / kRateSeconds), 1 - 1 / kRateSteps);
  recent.seconds = recent.seconds * keep + r.seconds;
  recent.samples = recent.samples * keep + r.samples;
  recent.steps = recent.steps * keep + 1;
  if (!std::isfinite(r.loss))
    return;
  loss = loss * (1 - 1 / kLossSteps) + r.loss;
  losses = losses * (1 - 1 / kLossSteps) + 1;
}

/// Whether a step's line is to stay.
bool Progress::isDue(int64_t step, double time) {
  if (every)
    return step % every == 0;
  if (screen >= 0 || time < due)
    return false;
  due = time + std::max(kLineSeconds, kLineShare * (time - began));
  return true;
}

/// What matters most comes first: a narrow terminal cuts the end off.
void Progress::compose(const StepReport &r) {
  line.clear();
  line.add("step %lld  loss %.6g", static_cast<long long>(r.step), r.loss);
  for (const MetricValue &m : r.metrics)
    line.add("  %s %.4g", m.name, m.value);
  if (r.evalLoss)
    line.add("  eval loss %.6g", *r.evalLoss);
  for (const MetricValue &m : r.evalMetrics)
    line.add("  eval %s %.4g", m.name, m.value);
  line.add("  %lld/%lld", static_cast<long long>(r.step + 1), static_cast<long long>(steps));
  if (r.step) {
    line.add(", ");
    line.addDuration(recent.seconds / recent.steps * (steps - r.step - 1));
    line.add(" left");
  }
  if (losses > 1)
    line.add("  mean loss %.4g", loss / losses);
  if (r.skipped.value_or(false))
    line.add("  skipped: gradients %s", r.lossScale ? "overflow" : "are not finite");
  if (r.skipped.value_or(false) && r.lossScale)
    line.add(" at loss scale %g", *r.lossScale);
  if (epochs.steps > 0)
    line.add("  epoch %.2f", epochs.before + (r.step + 1) / epochs.steps);
  line.add("  %.4g samples/s", recent.seconds > 0 ? recent.samples / recent.seconds : 0);
  if (r.lr)
    line.add("  lr %.4g", *r.lr);
  if (r.gradNorm)
    line.add("  grad norm %.4g", *r.gradNorm);
}

void Progress::step(const StepReport &r) {
  learn(r);
  double time = now();
  bool stays = isDue(r.step, time) || r.evalLoss || r.skipped.value_or(false) || r.last;
  if (!stays && (screen < 0 || time < drawn + kRedrawSeconds))
    return;
  drawn = time;
  compose(r);
  draw(stays);
}

/// One write: what a terminal shows is never half a line.
void Progress::draw(bool stays) {
  drawing.clear();
  if (screen >= 0)
    line.cutTo(width() - 1);
  drawing.add("%s%.*s%s%s", screen >= 0 ? "\r" : "", line.size(), line.data(), screen >= 0 ? "\x1b[K" : "", stays ? "\n" : "");
  isDrawing = !stays;
  if (!writeAll(STDOUT_FILENO, drawing.data(), drawing.size()))
    warnOfOutput();
}

} // namespace zccrt
