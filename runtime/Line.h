// A line of text in fixed memory: the step loop allocates nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace zccrt {

class Line {
public:
  /// printf behind what the line holds; what does not fit is cut off.
  __attribute__((format(printf, 2, 3))) void add(const char *text, ...) {
    va_list list;
    va_start(list, text);
    int room = static_cast<int>(sizeof buffer) - length;
    int n = vsnprintf(buffer + length, room, text, list);
    va_end(list);
    length += std::clamp(n, 0, room - 1);
  }
  /// 0:42, 1:02:03
  void addDuration(double seconds) {
    long long s = std::llround(seconds);
    if (s >= 3600)
      add("%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
      add("%lld:%02lld", s / 60, s % 60);
  }
  /// Shortens the line to whole fields, which two spaces part.
  void cutTo(int width) {
    if (length <= width)
      return;
    length = std::max(width, 0);
    for (int i = length; i-- > 1;)
      if (buffer[i] == ' ' && buffer[i - 1] == ' ')
        return static_cast<void>(length = i - 1);
  }
  void clear() { length = 0; }
  const char *data() const { return buffer; }
  int size() const { return length; }

private:
  char buffer[4096];
  int length = 0;
};

} // namespace zccrt
