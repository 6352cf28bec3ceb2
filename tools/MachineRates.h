// How fast this machine computes what compiled programs compute, by the kernels that they call.
#pragma once

#include "codegen/Profile.h"
#include <memory>

namespace zcc {

/// What calls with so many threads reach, in the ways of a profile. Rounds of several numbers of threads may alternate.
class RateRounds {
public:
  RateRounds(int threads, const Profile &ways);
  ~RateRounds();
  /// One round more, in about `seconds`.
  void measure(double seconds);
  /// As quiet rounds found them.
  Profile::Rates rates() const;

private:
  struct Parts;
  const int threads_;
  std::unique_ptr<Parts> parts_;
};
/// Bytes per second that one thread copies.
double measureCopy(double seconds);

} // namespace zcc
