#include "runtime/Schedule.h"
#include <algorithm>
#include <cmath>

namespace zccrt {

double Schedule::at(int64_t step) const {
  if (step < warmupSteps)
    return lr * double(step + 1) / double(warmupSteps);
  if (kind == Constant)
    return lr;
  int64_t length = totalSteps - warmupSteps;
  if (length <= 0)
    return lr;
  double done = double(std::min(step - warmupSteps, length)) / double(length);
  if (kind == Linear)
    return lr + (min - lr) * done;
  return min + (lr - min) * (1 + std::cos(M_PI * done)) / 2;
}

bool scheduleFromName(const std::string &name, Schedule::Kind &kind) {
  constexpr const char *names[] = {"constant", "linear", "cosine"};
  for (int i = 0; i < 3; ++i) {
    if (name != names[i])
      continue;
    kind = static_cast<Schedule::Kind>(i);
    return true;
  }
  return false;
}

} // namespace zccrt
