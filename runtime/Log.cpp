// Writes the JSON lines of the log and passes what people should see to the progress display.
#include "runtime/Log.h"
#include "runtime/Device.h"
#include "runtime/Fail.h"
#include "runtime/Interrupt.h"
#include "runtime/OutFile.h"
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

namespace zccrt {

/// Whether a log is a file of its own, of which lines may be taken away: no device or pipe, nor what an open file's name under
/// /dev leads to, where others' lines may be.
static bool isOwnFile(const std::string &path) {
  struct stat s;
  auto begins = [&](const char *with) { return path.rfind(with, 0) == 0; };
  return !begins("/dev/std") && !begins("/dev/fd/") && !begins("/proc/") && stat(path.c_str(), &s) == 0 && S_ISREG(s.st_mode);
}

Log::Log(const zccrt_program &p, const Options &o, int64_t first, int64_t steps, const Epochs &epochs, bool trains)
    : program(p), first(first), steps(steps), path(o.log), quiet(o.quiet), exports(!o.exportFile.empty()), saves(!o.save.empty()),
      progress(o, steps, epochs) {
  if (!o.tensorboard.empty())
    tensorBoard.emplace(o.tensorboard, first, trains);
  if (path.empty())
    return;
  struct stat before;
  const bool isThere = isOwnFile(path);
  isOwn = isThere || stat(path.c_str(), &before) != 0;
  isCut = isThere && (trains || !first);
  fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0)
    failErrno("cannot write the log '%s'", path.c_str());
}

void Log::begin() {
  if (first && isCut)
    keepBefore(first);
  if (isCut && ftruncate(fd, wholeLines) != 0)
    failErrno("cannot write the log '%s'", path.c_str());
}

/// Finds the end of the lines of earlier steps.
void Log::keepBefore(int64_t step) {
  std::ifstream file(path);
  long long of;
  for (std::string text; std::getline(file, text) && !file.eof(); wholeLines += text.size() + 1)
    if (sscanf(text.c_str(), "{\"step\": %lld", &of) != 1 || of >= step)
      return;
}

Log::~Log() {
  if (fd >= 0)
    close(fd);
}

void Log::addNumber(const char *key, double x) {
  if (std::isfinite(x))
    line.add(", \"%s\": %.9g", key, x);
  else
    line.add(", \"%s\": null", key);
}

/// With the fewest digits that read back exactly.
void Log::addExact(const char *key, double x) {
  if (!std::isfinite(x))
    return addNumber(key, x);
  char digits[32];
  auto [end, error] = std::to_chars(digits, digits + sizeof digits, x);
  line.add(", \"%s\": %.*s", key, static_cast<int>(end - digits), digits);
}

void Log::addMetrics(const char *prefix, std::span<const MetricValue> metrics) {
  for (const MetricValue &m : metrics) {
    Line key;
    key.add("%s%s", prefix, m.name);
    addNumber(key.data(), m.value);
  }
}

void Log::say(const std::string &text) {
  if (!quiet)
    progress.say(text);
}

bool Log::write(const StepReport &r) {
  if (fd < 0)
    return true;
  line.clear();
  line.add("{\"step\": %lld", static_cast<long long>(r.step));
  addNumber("loss", r.loss);
  addMetrics("", r.metrics);
  if (r.lr)
    addExact("lr", *r.lr);
  if (r.gradNorm)
    addNumber("grad_norm", *r.gradNorm);
  if (r.lossScale)
    addExact("loss_scale", *r.lossScale);
  if (r.skipped)
    line.add(", \"skipped\": %s", *r.skipped ? "true" : "false");
  line.add(", \"time_s\": %.6f", r.seconds);
  addNumber("samples_per_s", r.seconds > 0 ? r.samples / r.seconds : 0);
  line.add(", \"peak_bytes\": {\"device\": %lld, \"host\": %lld, \"nvme\": %lld}",
           static_cast<long long>(device() ? device()->reserved() : program.arena_bytes[0]),
           static_cast<long long>(program.arena_bytes[1]), static_cast<long long>(program.arena_bytes[2]));
  if (collectivesAreStaged())
    line.add(", \"staging_bytes\": %lld", static_cast<long long>(program.staging_bytes));
  if (program.ranks > 1)
    line.add(", \"sent_bytes\": {\"all_reduce\": %lld, \"all_gather\": %lld, "
             "\"reduce_scatter\": %lld}",
             static_cast<long long>(r.sent.allReduce), static_cast<long long>(r.sent.allGather),
             static_cast<long long>(r.sent.reduceScatter));
  if (program.arena_bytes[2])
    line.add(", \"nvme_bytes\": {\"read\": %llu, \"written\": %llu}", static_cast<unsigned long long>(r.disk.read),
             static_cast<unsigned long long>(r.disk.written));
  if (r.evalLoss)
    addNumber("eval_loss", *r.evalLoss);
  addMetrics("eval_", r.evalMetrics);
  line.add("}\n");
  if (!writeAll(fd, line.data(), line.size()))
    return false;
  wholeLines += line.size();
  return true;
}

void Log::toTensorBoard(const StepReport &r) {
  if (!tensorBoard || tensorBoardFails || tensorBoard->step(r))
    return;
  tensorBoardFails = true;
  warn(format("step %lld: cannot write '%s': %s; the training goes on without it", static_cast<long long>(r.step),
              tensorBoard->path().c_str(), strerror(errno)));
}

/// Removes what was written of a line, so that the log goes on where there is room again.
void Log::dropLine(int64_t step) {
  int code = errno;
  [[maybe_unused]] int cut = isOwn ? ftruncate(fd, wholeLines) : 0;
  if (!lostLines++)
    warn(format("step %lld: cannot write the log '%s': %s; the training goes on", static_cast<long long>(step), path.c_str(),
                strerror(code)));
}

void Log::reportEval(const StepReport &r) {
  if (!write(r))
    failErrno("cannot write the log '%s'", path.c_str());
  toTensorBoard(r);
  std::string metrics;
  for (const MetricValue &m : r.evalMetrics)
    metrics += format(", %s %.9g", m.name, m.value);
  if (!quiet && !progress.say(format("eval loss %.9g%s over %lld samples in %.1f s", r.loss, metrics.c_str(),
                                     static_cast<long long>(r.samples), r.seconds)))
    failErrno("cannot write to standard output");
}

void Log::report(const StepReport &r) {
  ++done;
  if (!write(r))
    dropLine(r.step);
  toTensorBoard(r);
  if (!quiet)
    progress.step(r);
}

void Log::warnNotFinite(int64_t step, const char *what, const std::string &text) {
  warn(format("step %lld: %s; the training goes on (--stop-on-nan ends it)", static_cast<long long>(step), text.c_str()));
  notFinite = format("not finite at step %lld: the %s", static_cast<long long>(step), what);
}

void Log::finish(std::vector<std::string> wrote, int stoppedBy) {
  if (fd >= 0)
    wrote.push_back("'" + path + "' (log)");
  if (tensorBoard && !tensorBoardFails)
    wrote.push_back("'" + tensorBoard->path() + "' (TensorBoard)");
  std::string text;
  auto add = [&](const std::string &part) { text += (text.empty() ? "" : "; ") + part; };
  line.clear();
  if (stoppedBy)
    line.add("stopped by %s after %lld of %lld steps", signalName(stoppedBy), static_cast<long long>(first + done),
             static_cast<long long>(steps));
  else if (done)
    line.add("%lld step%s", static_cast<long long>(done), done == 1 ? "" : "s");
  if (done)
    line.add(" in ");
  if (done && progress.seconds() < 60)
    line.add("%.1f s", progress.seconds());
  else if (done)
    line.addDuration(progress.seconds());
  if (line.size())
    add(std::string(line.data(), line.size()));
  std::string list;
  for (const std::string &w : wrote)
    list += (list.empty() ? "wrote " : ", ") + w;
  if (!list.empty())
    add(list);
  if (stoppedBy && !exports && !saves)
    add("the weights are lost, as there was no --export");
  if (!notFinite.empty())
    add(notFinite);
  if (lostLines)
    add(format("the log lacks %lld step%s", static_cast<long long>(lostLines), lostLines == 1 ? "" : "s"));
  if (stoppedBy)
    progress.tell(text);
  else if (!text.empty())
    say(text);
}

} // namespace zccrt
