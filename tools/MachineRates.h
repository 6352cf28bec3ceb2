// How fast this machine computes what compiled programs compute, by the kernels that they call.
#pragma once

#include "codegen/Profile.h"

namespace zcc {

/// With so many threads, in about `seconds`, in the ways of a profile.
Profile::Rates measureRates(int threads, double seconds, const Profile &ways);
/// Bytes per second that one thread copies.
double measureCopy(double seconds);

} // namespace zcc
