// Memory for the small objects that modules are made of, of which passes make and drop millions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace zcc {

/// FreePieces<...>::sort of each size of which the thread has made pieces.
inline thread_local std::vector<void (*)()> sortsOfPieces;

/// What the thread makes next lies side by side, in the order in which it is made. Passes give pieces back in any order, and what
/// is made of them then lies here and there, where each step of a walk waits for memory.
inline void sortFreePieces() {
  for (void (*sort)() : sortsOfPieces)
    sort();
}

/// Pieces of equal size. What is given back is the next that is given out on the same thread; nothing goes back to the heap,
/// where neighbours would be merged and split again. What a thread has at its end is left to the others.
template <size_t Bytes> class FreePieces {
public:
  static void *get() {
    if (!free)
      refill();
    return std::exchange(free, free->next);
  }
  static void put(void *p) { free = new (p) Piece{free}; }
  /// Lets get() give out what this thread has by rising addresses.
  static void sort() {
    std::vector<Piece *> pieces;
    for (Piece *p = free; p; p = p->next)
      pieces.push_back(p);
    std::sort(pieces.begin(), pieces.end(), std::greater<>());
    free = nullptr;
    for (Piece *p : pieces)
      put(p);
  }

private:
  static constexpr size_t kPieces = 256;
  struct Piece {
    Piece *next;
    Piece *nextList; ///< of the first piece of a list that a thread has left
  };
  static_assert(Bytes % alignof(std::max_align_t) == 0 && Bytes >= sizeof(Piece));

  /// Of a thread that has made pieces, which it leaves.
  struct Leaving {
    Leaving() { sortsOfPieces.push_back(sort); }
    ~Leaving() {
      if (!free)
        return;
      std::lock_guard lock(mutex);
      free->nextList = std::exchange(left, free);
      free = nullptr;
    }
  };

  static void refill() {
    static thread_local Leaving leaving;
    {
      std::lock_guard lock(mutex);
      if (left) {
        free = std::exchange(left, left->nextList);
        return;
      }
    }
    auto *block = static_cast<char *>(::operator new(kPieces * Bytes));
    for (size_t i = kPieces; i-- > 0;)
      put(block + i * Bytes);
  }

  static inline thread_local Piece *free = nullptr;
  static inline std::mutex mutex;
  static inline Piece *left = nullptr;
};

// A sanitizer has to see each object by itself.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kUsesPools = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kUsesPools = false;
#else
constexpr bool kUsesPools = true;
#endif
#else
constexpr bool kUsesPools = true;
#endif

constexpr size_t pooledBytes(size_t bytes) {
  constexpr size_t kAlign = alignof(std::max_align_t);
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

/// For containers that allocate element by element.
template <typename T> struct PoolAllocator {
  using value_type = T;
  PoolAllocator() = default;
  template <typename U> PoolAllocator(const PoolAllocator<U> &) {}
  T *allocate(size_t n) {
    if (!kUsesPools || n != 1)
      return std::allocator<T>().allocate(n);
    return static_cast<T *>(FreePieces<pooledBytes(sizeof(T))>::get());
  }
  void deallocate(T *p, size_t n) {
    if (!kUsesPools || n != 1)
      std::allocator<T>().deallocate(p, n);
    else
      FreePieces<pooledBytes(sizeof(T))>::put(p);
  }
  bool operator==(const PoolAllocator &) const { return true; }
};

/// Base of classes whose objects are made one by one with `new`, if T is the whole object.
template <typename T> struct Pooled {
  static void *operator new(size_t bytes) {
    return kUsesPools && bytes == sizeof(T) ? FreePieces<pooledBytes(sizeof(T))>::get() : ::operator new(bytes);
  }
  static void operator delete(void *p, size_t bytes) {
    if (kUsesPools && bytes == sizeof(T))
      FreePieces<pooledBytes(sizeof(T))>::put(p);
    else
      ::operator delete(p);
  }
  static void *operator new(size_t, void *at) { return at; }
};

} // namespace zcc
