// For tests of the runtime: a folder of their own, a tiny program as the compiler would emit it, and running things in processes.
#pragma once

#include "runtime/Arena.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/zccrt.h"
#include <atomic>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

/// By new; of CountAllocations.cpp.
extern std::atomic<long> allocations;

namespace runtimetest {

/// A fresh folder, removed at the end.
class Folder {
public:
  Folder() {
    std::string name = testing::TempDir() + "zccrtXXXXXX";
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string &name) const { return path + "/" + name; }
  std::string path;
};

inline void writeFile(const std::string &path, const std::string &bytes) { std::ofstream(path, std::ios::binary) << bytes; }

inline std::string readFile(const std::string &path) {
  std::ostringstream s;
  s << std::ifstream(path, std::ios::binary).rdbuf();
  return s.str();
}

template <class T> std::string bytesOf(const std::vector<T> &v) {
  return std::string(reinterpret_cast<const char *>(v.data()), v.size() * sizeof(T));
}

/// A dense tensor at an offset of the arena.
inline zccrt_tensor tensor(int64_t offset, int elem, const std::vector<int64_t> &dims) {
  zccrt_tensor t = {};
  t.offset = offset;
  t.elem = elem;
  t.ndim = static_cast<int32_t>(dims.size());
  int64_t stride = 1;
  for (int i = t.ndim; i--; stride *= dims[i]) {
    t.dims[i] = dims[i];
    t.strides[i] = stride;
  }
  return t;
}

/// An arena in these bytes, of which it gives the host no address.
class FarArena : public zccrt::HostArena {
public:
  using HostArena::HostArena;
  char *base() const override { return nullptr; }
  char *onHost(int64_t) const override { return nullptr; }
};

inline zccrt_io io(const char *name, const zccrt_tensor &t) {
  zccrt_io i = {};
  i.name = name;
  i.t = t;
  i.ignore = INT64_MIN;
  i.node = "/node";
  return i;
}

/// What a Failure says, or "no failure".
inline std::string failureOf(const std::function<void()> &f) {
  try {
    f();
  } catch (const zccrt::Failure &e) {
    return e.what();
  }
  return "no failure";
}

#define EXPECT_FAILURE(code, part) EXPECT_PRED_FORMAT2(testing::IsSubstring, part, ::runtimetest::failureOf([&] { code; }))

/// Runs f in `ranks` processes; each must end with status 0. A failure inside ends the process with
/// status 1.
inline void inProcesses(int ranks, const std::function<void(int)> &f, std::vector<int> expected = {}) {
  std::vector<pid_t> pids;
  for (int r = 0; r < ranks; ++r) {
    pid_t pid = fork();
    if (pid == 0) {
      alarm(60);
      try {
        f(r);
      } catch (const std::exception &e) {
        fprintf(stderr, "rank %d: %s\n", r, e.what());
        _exit(1);
      }
      _exit(testing::Test::HasFailure() ? 2 : 0);
    }
    pids.push_back(pid);
  }
  for (int r = 0; r < ranks; ++r) {
    int status = 0;
    waitpid(pids[r], &status, 0);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    EXPECT_EQ(code, expected.empty() ? 0 : expected[r]) << "rank " << r;
  }
}

struct Result {
  int status;
  std::string out, err;
};

/// One word of a shell command, whatever a path holds but single quotes.
inline std::string shellWord(const std::string &path) { return "'" + path + "'"; }

/// The shell's words for one disabled test in a process of its own, whatever part of the tests this one runs.
inline std::string alone(const std::string &test) {
  char self[PATH_MAX] = {};
  EXPECT_GT(readlink("/proc/self/exe", self, sizeof self - 1), 0);
  return "env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX " + shellWord(self) +
         " --gtest_also_run_disabled_tests --gtest_filter=" + test;
}

/// Runs a shell command.
inline Result shell(const std::string &command) {
  Folder f;
  int status = std::system(("(" + command + ") >" + f / "out" + " 2>" + f / "err").c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, readFile(f / "out"), readFile(f / "err")};
}

/// Opens a safetensors file with the published package, where the tests' Python has it.
inline void expectOpensElsewhere(const std::string &path) {
  static const std::string python = shellWord(ZCC_PYTHON);
  static const bool hasPackage = shell(python + " -c 'import safetensors, numpy'").status == 0;
  if (!hasPackage)
    return;
  Result r = shell(python + " " + shellWord(ZCC_SOURCE_DIR "/test/check_safetensors.py") + " " + shellWord(path));
  EXPECT_EQ(r.status, 0) << r.out << r.err;
}

} // namespace runtimetest
