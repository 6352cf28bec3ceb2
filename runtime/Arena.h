// The arena: one buffer that holds every tensor of the program at offsets fixed when it was compiled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace zccrt {

constexpr int64_t kPage = 4096; ///< bytes

/// What lies outside the step (data, weights, export, the log) reaches the bytes of an arena by this interface alone: they may
/// lie where the host has no address for them. They are zeros at first. Offsets are in bytes.
class Arena {
public:
  virtual ~Arena() = default;
  Arena(const Arena &) = delete;
  Arena &operator=(const Arena &) = delete;

  /// What the program's functions get: an address of the machine that runs them.
  virtual char *base() const = 0;
  /// Where the host reads and writes in place what lies from `offset` on; nullptr: it has to copy.
  virtual char *onHost(int64_t offset) const = 0;
  virtual void copyTo(int64_t offset, const void *from, int64_t bytes) = 0;
  virtual void copyFrom(void *to, int64_t offset, int64_t bytes) const = 0;

  /// Bytes for the host to read: in place, or copied to `aside`, where they stay as long as that does.
  const char *read(int64_t offset, int64_t bytes, std::vector<char> &aside) const {
    if (const char *inPlace = onHost(offset))
      return inPlace;
    aside.resize(std::max<int64_t>(bytes, 1)); // of no bytes, too, there is an address
    copyFrom(aside.data(), offset, bytes);
    return aside.data();
  }
  /// Calls fill(char *) for the host to write bytes: in place, or aside. It must write all of them.
  template <typename Fn> void write(int64_t offset, int64_t bytes, std::vector<char> &aside, Fn fill) {
    if (char *inPlace = onHost(offset))
      return void(fill(inPlace));
    aside.resize(std::max<int64_t>(bytes, 1));
    fill(aside.data());
    copyTo(offset, aside.data(), bytes);
  }
  template <typename T> void set(int64_t offset, T value) { copyTo(offset, &value, sizeof value); }
  template <typename T> T get(int64_t offset) const {
    T value;
    copyFrom(&value, offset, sizeof value);
    return value;
  }
  /// A value of a float tensor.
  double floatAt(int64_t offset, int elem, int64_t i = 0) const;

protected:
  Arena() = default;
};

/// The numbers of zccrt_global::space.
enum Space { kDevice, kHost, kNvme };

/// A rank's arenas by memory space; nullptr of a space that the program does not use.
struct Arenas {
  Arena *of[3] = {};
  Arena &operator[](int space) const { return *of[space]; }
};

/// Memory of the host, which belongs to somebody else.
class HostArena : public Arena {
public:
  explicit HostArena(char *start) : start(start) {}
  char *base() const override { return start; }
  char *onHost(int64_t offset) const override { return start + offset; }
  void copyTo(int64_t offset, const void *from, int64_t bytes) override { std::memcpy(start + offset, from, bytes); }
  void copyFrom(void *to, int64_t offset, int64_t bytes) const override { std::memcpy(to, start + offset, bytes); }

protected:
  char *start;
};

/// The CPU's.
class MappedArena : public HostArena {
public:
  /// Maps `bytes` of zeros, in huge pages where the system gives them, and touches every page with
  /// the threads that will use them. Throws a Failure if there is not enough memory.
  explicit MappedArena(int64_t bytes);
  ~MappedArena() override;

private:
  void *mapping;
  int64_t mappedBytes;
};

} // namespace zccrt
