// Formats errors and ends the job with one message.
#include "runtime/Fail.h"
#include "runtime/OutFile.h"
#include "runtime/zccrt.h"
#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <unistd.h>
#include <utility>

namespace zccrt {

Where where;
void (*tellRanks)() = nullptr;
void (*abortRanks)() = nullptr;
void (*lastWords)(const std::string &error) = nullptr;

static void sayLastWords(const std::string &error) {
  if (auto say = std::exchange(lastWords, nullptr))
    say(error);
  if (tellRanks)
    tellRanks();
}

static std::string formatList(const char *text, va_list list) {
  va_list again;
  va_copy(again, list);
  int n = vsnprintf(nullptr, 0, text, list);
  std::string out(n > 0 ? n : 0, '\0');
  if (n > 0)
    vsnprintf(out.data(), n + 1, text, again);
  va_end(again);
  return out;
}

std::string format(const char *text, ...) {
  va_list list;
  va_start(list, text);
  std::string out = formatList(text, list);
  va_end(list);
  return out;
}

std::vector<std::string> linesOf(const std::string &text) {
  std::vector<std::string> lines;
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
  }
  return lines;
}

void fail(const char *text, ...) {
  va_list list;
  va_start(list, text);
  std::string out = formatList(text, list);
  va_end(list);
  throw Failure(out);
}

void failErrno(const char *text, ...) {
  int code = errno;
  va_list list;
  va_start(list, text);
  std::string out = formatList(text, list);
  va_end(list);
  throw Failure(out + ": " + strerror(code));
}

volatile int isDrawing = 0;

void endDrawing() {
  if (isDrawing) [[maybe_unused]]
    ssize_t n = write(STDOUT_FILENO, "\n", 1);
  isDrawing = 0;
}

static std::string lineText(const char *kind, const std::string &text, About about) {
  std::string at;
  if (where.ranks > 1 && about == About::ThisRank)
    at = format("rank %d", where.rank);
  if (where.step >= 0)
    at += format("%sstep %lld", at.empty() ? "" : ", ", static_cast<long long>(where.step));
  return where.program + ": " + kind + ": " + at + (at.empty() ? "" : ": ") + text + "\n";
}

std::string errorText(const std::string &text, About about) { return lineText("error", text, about); }

std::string warningText(const std::string &text) { return lineText("warning", text, About::ThisRank); }

void endSilently() {
  sayLastWords("another rank has failed");
  removeUnfinishedFiles();
  _exit(1);
}

void endJob(const std::string &text, About about) {
  std::string line = errorText(text, about);
  endDrawing();
  // One write, so that the ranks' lines do not mix.
  [[maybe_unused]] ssize_t n = write(STDERR_FILENO, line.data(), line.size());
  sayLastWords(text);
  removeUnfinishedFiles(); // MPI's end does not come back
  if (abortRanks)
    abortRanks();
  endSilently();
}

} // namespace zccrt

void zccrt_fail(const char *node, const char *text, ...) {
  va_list list;
  va_start(list, text);
  std::string out = zccrt::formatList(text, list);
  va_end(list);
  if (node && *node)
    out = zccrt::format("node '%s': ", node) + out;
  zccrt::endJob(out);
}
