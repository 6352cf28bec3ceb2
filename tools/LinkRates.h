// How fast two ranks of this machine send one another what collectives do.
#pragma once

#include "codegen/Profile.h"

namespace zcc {

/// In about `seconds`. To be called before anything starts threads: the other rank is a fork.
Profile::Rates measureLinks(double seconds);

} // namespace zcc
