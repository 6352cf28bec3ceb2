// A fast 64-bit hash of a tensor's bytes, by which a program notices that a weights file changed. The compiler and the runtime
// both use it. It is not cryptographic.
//
// The bytes are cut into blocks of 64 KiB; the hash is finished from the sum of the blocks' hashes, each of which is keyed by its
// number. So ranks can each hash a part of the blocks and add up what they found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace zccrt {

inline constexpr size_t kHashBlockBytes = 65536;

/// Spreads every bit of x over the result.
inline uint64_t hashMix(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x7fb5d329728ea185u;
  x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44du;
  return x ^ (x >> 33);
}

/// The hash of block `index`; all blocks but the last have kHashBlockBytes.
inline uint64_t hashBlock(const void *data, size_t bytes, uint64_t index) {
  constexpr uint64_t kMul = 0x9e3779b97f4a7c15u;
  // Four chains, so that the multiplications overlap.
  uint64_t lane[4] = {hashMix(index + 1), hashMix(index + 2) ^ kMul, ~hashMix(index + 3), hashMix(index + 4) + kMul};
  auto round = [&](const unsigned char *p) {
    uint64_t word[4];
    std::memcpy(word, p, sizeof(word));
    for (int i = 0; i < 4; ++i) {
      lane[i] = (lane[i] ^ word[i]) * kMul;
      lane[i] ^= lane[i] >> 32;
    }
  };
  const auto *p = static_cast<const unsigned char *>(data);
  size_t left = bytes;
  for (; left >= 32; left -= 32, p += 32)
    round(p);
  if (left) {
    unsigned char tail[32] = {};
    std::memcpy(tail, p, left);
    round(tail);
  }
  uint64_t h = bytes;
  for (uint64_t l : lane)
    h = hashMix(h ^ l) + kMul;
  return h;
}

/// The hash of a tensor, of the sum (modulo 2^64) of its blocks' hashes. Never 0, which means "not
/// checked".
inline uint64_t hashFinish(uint64_t sumOfBlocks, uint64_t totalBytes) {
  uint64_t h = hashMix(sumOfBlocks + hashMix(totalBytes + 1));
  return h ? h : 1;
}

/// The sum of the hashes of blocks side by side, the first of which has number `first`.
inline uint64_t hashBlocks(const void *data, size_t bytes, uint64_t first) {
  uint64_t sum = 0;
  for (size_t at = 0; at < bytes; at += kHashBlockBytes, ++first) {
    size_t n = bytes - at < kHashBlockBytes ? bytes - at : kHashBlockBytes;
    sum += hashBlock(static_cast<const char *>(data) + at, n, first);
  }
  return sum;
}

/// The hash of bytes in memory.
inline uint64_t hashBytes(const void *data, size_t bytes) { return hashFinish(hashBlocks(data, bytes, 0), bytes); }

} // namespace zccrt
