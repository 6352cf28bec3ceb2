// In which of its ways a library computes what, where this machine is fastest.
#pragma once

#include "codegen/Profile.h"

namespace zcc {

/// Of samples of all kinds that have ways, with so many threads, in about `seconds`.
Profile::Ways measureWays(int threads, double seconds);

} // namespace zcc
