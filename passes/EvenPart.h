// A part of a list, by weight.
#pragma once

#include <cstdint>

namespace zcc {

/// Takes `part` of `whole` parts of a list's weight, as evenly between the others as its members allow.
class EvenPart {
public:
  EvenPart(int64_t part, int64_t whole) : part_(part), whole_(whole) {}
  /// Whether the next member is taken.
  bool takes(int64_t weight) {
    due_ += weight * part_;
    if (!part_ || 2 * due_ < weight * whole_)
      return false;
    due_ -= weight * whole_;
    return true;
  }

private:
  int64_t part_, whole_;
  int64_t due_ = 0; ///< weight times parts, of what should have been taken so far
};

} // namespace zcc
