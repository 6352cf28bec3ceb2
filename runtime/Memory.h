// How much memory the process may have: the machine's, its control groups', its address space's.
#pragma once

#include <cstdint>
#include <string>

namespace zccrt {

/// Throws a Failure if the node has less memory left than its ranks need together, or this process may map less than it needs.
/// `held`: bytes that each of them has taken already, which count towards a control group's limit.
void checkMemory(int64_t bytesPerRank, int64_t held, int ranksOnNode);
/// Bytes that this rank will take later, and those that it may have in all by zcc's --memory; 0: as many as there are.
void setAside(int64_t bytes, int64_t budget = 0);
/// Bytes of memory that it can still have besides: of the machine's and of what control groups, `ulimit -v` and the budget allow,
/// shared with the node's other ranks.
int64_t memoryLeft(int ranksOnNode);
/// The same of the budget alone; INT64_MAX: there is none.
int64_t budgetLeft();
/// That it has taken of them now.
void takeMemory(int64_t bytes);

/// The least limit of the process's control groups and all of their parents, of both versions;
/// INT64_MAX where none is set. `root`: of the file system, another one in tests.
int64_t groupLimit(const std::string &root = "");
/// What the process may still map (ulimit -v); INT64_MAX without a limit.
int64_t addressSpaceLeft();

} // namespace zccrt
