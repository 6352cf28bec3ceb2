// Random numbers that depend on nothing but a seed and a position: Philox4x32-10 (Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3", 2011). The interpreter and the runtime's kernels both draw with it, so it includes neither.
//
// Element e of a draw is word e % 4 of the block with
//   key     = (seed, seed >> 32)
//   counter = (e / 4, e / 4 >> 32, id, time)        each the low 32 bits
// where `id` tells apart the draws of a program and `time` the micro-batches: step * 65536 + micro, whose bits above 32 change
// the seed. Initial values have time = kPhiloxInit and id = philoxId(name of the global).
#pragma once

#include <stdint.h>

namespace zcc {

struct PhiloxBlock {
  uint32_t word[4];
};

constexpr uint32_t kPhiloxInit = 0xffffffff;

/// One round. A Word is 32 or 64 bits, whose upper ones mean nothing.
template <typename Word> constexpr void philoxRound(Word &c0, Word &c1, Word &c2, Word &c3, uint32_t k0, uint32_t k1) {
  const uint64_t a = uint64_t(0xD2511F53) * uint32_t(c0), b = uint64_t(0xCD9E8D57) * uint32_t(c2);
  c0 = Word(b >> 32) ^ c1 ^ k0;
  c1 = Word(b);
  c2 = Word(a >> 32) ^ c3 ^ k1;
  c3 = Word(a);
}

/// What the parts of the key grow by from round to round.
constexpr int kPhiloxRounds = 10;
constexpr uint32_t kPhiloxKey0 = 0x9E3779B9, kPhiloxKey1 = 0xBB67AE85;

constexpr PhiloxBlock philox(uint64_t seed, uint64_t block, uint32_t id, uint32_t time) {
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  PhiloxBlock c{{uint32_t(block), uint32_t(block >> 32), id, time}};
  for (int round = 0; round < kPhiloxRounds; ++round) {
    philoxRound(c.word[0], c.word[1], c.word[2], c.word[3], k0, k1);
    k0 += kPhiloxKey0;
    k1 += kPhiloxKey1;
  }
  return c;
}

constexpr uint32_t philoxTime(int64_t step, int64_t micro) { return uint32_t(step * 65536 + micro); }
/// The seed of a step: `seed` up to step 65535.
constexpr uint64_t philoxSeed(int64_t seed, int64_t step) { return uint64_t(seed) ^ uint64_t(step >> 16) << 32; }

/// The id of a name: FNV-1a of its bytes up to the 0.
constexpr uint32_t philoxId(const char *name) {
  uint32_t h = 2166136261u;
  for (; *name; ++name)
    h = (h ^ uint8_t(*name)) * 16777619u;
  return h;
}

/// A word as one of 2^24 numbers in [0, 1); exact in float.
constexpr float philoxUnit(uint32_t word) { return float(word >> 8) * 0x1p-24f; }

/// Element e of a uniform draw from [0, 1).
constexpr float philoxUniform(uint64_t seed, uint64_t e, uint32_t id, uint32_t time) {
  return philoxUnit(philox(seed, e / 4, id, time).word[e % 4]);
}

/// Element e of a draw from the normal distribution: by Box and Muller, elements 2i and 2i+1 from
/// words 2i and 2i+1 of the same draw.
inline double philoxNormal(uint64_t seed, uint64_t e, uint32_t id, uint32_t time) {
  PhiloxBlock b = philox(seed, e / 4, id, time);
  double u = philoxUnit(b.word[e % 4 & ~1u]), v = philoxUnit(b.word[e % 4 | 1u]);
  double radius = __builtin_sqrt(-2 * __builtin_log(1 - u)), angle = 6.283185307179586 * v;
  return radius * (e % 2 ? __builtin_sin(angle) : __builtin_cos(angle));
}

} // namespace zcc
