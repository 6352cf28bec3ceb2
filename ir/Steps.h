// A count of what is looked at by the loops whose length is not that of one node's operands: searches through users, groups,
// memory and globals. --time-passes prints it for each pass; a test holds it against the size of the graph.
#pragma once

#include <cstdint>

namespace zcc {

/// Of this thread, since it began.
extern thread_local uint64_t steps;

} // namespace zcc
