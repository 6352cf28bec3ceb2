// What the importers of attention in its forms share.
#pragma once

#include "frontend/Importer.h"

namespace zcc {

/// [B, S, heads * D] -> [B, heads, S, D]; four axes stay. Throws if the heads do not divide it.
Val splitHeads(Emitter &e, const Val &x, int64_t heads);
/// [B, heads, S, D] -> [B, S, heads * D]
Val joinHeads(Emitter &e, const Val &x);
/// [B, own, S, D] -> [B, heads, S, D]: key or value heads repeated for their group of query heads.
Val repeatHeads(Emitter &e, const Val &x, int64_t heads);
/// softmax over the last axis; a row of -inf gives 0, without a NaN that its gradient would meet.
Val softmaxOrZero(Emitter &e, const Val &scores);
/// a and b, either of which may be absent.
Val both(Emitter &e, const Val &a, const Val &b);
/// Rotates the first `width` elements of the rows of [B, heads, S, D] by the angles whose cosines
/// and sines are [B or 1, 1, S, width / 2]; pairs are neighbours if interleaved, else half a width
/// apart (RoFormer, Su et al. 2021).
Val rotate(Emitter &e, const Val &x, const Val &cos, const Val &sin, int64_t width, bool interleaved);

} // namespace zcc
