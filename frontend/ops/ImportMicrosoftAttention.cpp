// Attention of com.microsoft in its forms and its rotary embedding, as ONNX Runtime's ContribOperators.md defines them. Caches
// are ordinary operands and results here.
#include "frontend/ops/Attention.h"
#include <cmath>

using namespace zcc;

namespace {
namespace microsoft_attention_ops {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Queries over keys and values, [B, heads, S or T, D] each, and what limits them.
struct Heads {
  Val q, k, v;
  Val bias;    ///< added to the scores; broadcasts to [B, heads, S, T]
  Val allowed; ///< who attends to whom; broadcasts likewise
  bool causal = false;
  double scale = 0; ///< 0: 1 / sqrt(D)
  double softcap = 0;
};

/// [B, S, heads * D]
Val attend(Emitter &e, Heads h) {
  int64_t S = h.q.dim(2), T = h.k.dim(2);
  double scale = h.scale == 0 ? 1 / std::sqrt(double(h.q.dim(3))) : h.scale;
  if (h.softcap == 0) {
    Val mask = h.allowed;
    if (h.bias)
      mask = mask ? e.select(mask, h.bias, e.like(-kInfinity, h.bias)) : h.bias;
    Vals operands{h.q, h.k, h.v};
    if (mask)
      operands.push_back(mask);
    return joinHeads(e, e.emitAll(ops::attention, operands, {{"scale", scale}, {"causal", int64_t(h.causal)}})[0]);
  }
  int64_t heads = h.q.dim(1);
  Val x = e.mul(e.matmul(h.q, e.swapAxes(repeatHeads(e, h.k, heads), -1, -2)), scale);
  x = e.mul(e(ops::tanh, e.mul(x, 1 / h.softcap)), h.softcap);
  if (h.bias)
    x = e.add(x, h.bias);
  if (h.causal)
    h.allowed = both(e, h.allowed, e(ops::le, e.iota({1, 1, S, T}, 3), e.add(e.iota({1, 1, S, T}, 2), double(T - S))));
  if (h.allowed)
    x = e.select(h.allowed, x, e.like(-kInfinity, x));
  return joinHeads(e, e.matmul(softmaxOrZero(e, x), repeatHeads(e, h.v, heads)));
}

Val sumOf(Emitter &e, const Val &a, const Val &b) { return !a ? b : !b ? a : e.add(a, b); }

/// Past keys or values before the new ones. A cache without a past is empty.
Val withPast(Emitter &e, const Val &past, const Val &now) { return past && past.dim(2) > 0 ? e.concat({past, now}, 2) : now; }

/// An integer mask as a bias: `filter` where it is 0. By its shape: [B] lengths, [2B] ends and
/// starts, [B, T], [B, S, T] or [B, 1, M, M].
Val maskBias(Emitter &e, const Val &mask, const Heads &h, double filter) {
  int64_t B = h.q.dim(0), S = h.q.dim(2), T = h.k.dim(2);
  Val keep, key = e.iota({1, 1, 1, T}, 3);
  Val m = e.cast(mask, Elem::I64);
  if (m.rank() == 1 && (m.dim(0) == B || m.dim(0) == 2 * B)) {
    keep = e(ops::lt, key, e.reshape(e.slice(m, 0, 0, B), {B, 1, 1, 1}));
    if (m.dim(0) == 2 * B)
      keep = both(e, keep, e(ops::ge, key, e.reshape(e.slice(m, 0, B, 2 * B), {B, 1, 1, 1})));
  } else if (m.rank() == 2 && m.dim(1) == T) {
    keep = e(ops::gt, e.unsqueeze(m, {1, 2}), e.like(0, m));
  } else if (m.rank() == 3 && m.dim(1) == S && m.dim(2) == T) {
    keep = e(ops::gt, e.unsqueeze(m, {1}), e.like(0, m));
  } else if (m.rank() == 4 && m.dim(2) >= T && m.dim(3) >= T) {
    keep = e(ops::gt, e.slice(e.slice(m, 2, T - S, T), 3, 0, T), e.like(0, m));
  } else {
    unsupported("a mask of " + mask.type.str());
  }
  return e.select(keep, e.like(0, h.q), e.like(filter, h.q));
}

/// [B, heads, S, T] of an attention bias whose first axes may be 1.
Val scoreBias(const Val &bias) {
  if (bias && bias.rank() != 4)
    unsupported("an attention bias of " + bias.type.str());
  return bias;
}

/// [B, S, heads, parts, D] -> parts of [B, heads, S, D]
Vals unpacked(Emitter &e, const Val &x, int64_t parts) {
  Vals r;
  for (int64_t i = 0; i < parts; ++i)
    r.push_back(e.transpose(e.squeeze(e.slice(x, 3, i, i + 1), {3}), {0, 2, 1, 3}));
  return r;
}

/// Adds a slice of the projections' joint bias to [B, heads, S, D].
Val withBias(Emitter &e, const Val &x, const Val &bias, int64_t &at) {
  if (!bias)
    return x;
  int64_t width = x.dim(1) * x.dim(3);
  Val own = e.reshape(e.slice(bias, 0, at, at + width), {1, x.dim(1), 1, x.dim(3)});
  at += width;
  return e.add(x, own);
}

void refuse(NodeImport &n, std::initializer_list<const char *> names) {
  for (const char *name : names)
    if (n.i(name, 0) != 0)
      unsupported("attribute '" + llvm::Twine(name) + "'");
}

void multiHeadAttention(NodeImport &n) {
  Emitter &e = n.e;
  int64_t heads = n.i("num_heads");
  Val query = n.in(0), key = n.optional(1), value = n.optional(2);
  Heads h;
  if (query.rank() == 5) {
    Vals all = unpacked(e, query, 3);
    h.q = all[0], h.k = all[1], h.v = all[2];
  } else {
    h.q = splitHeads(e, query, heads);
    if (key && key.rank() == 5) {
      Vals both = unpacked(e, key, 2);
      h.k = both[0], h.v = both[1];
    } else if (!key || !value) {
      invalid("keys and values are missing");
    } else { // with four axes they have their heads already
      h.k = splitHeads(e, key, heads);
      h.v = splitHeads(e, value, heads);
    }
  }
  int64_t at = 0;
  h.q = withBias(e, h.q, n.optional(3), at);
  h.k = withBias(e, h.k, n.optional(3), at);
  h.v = withBias(e, h.v, n.optional(3), at);
  h.k = withPast(e, n.optional(6), h.k);
  h.v = withPast(e, n.optional(7), h.v);
  h.bias = scoreBias(n.optional(5));
  double filter = n.f("mask_filter_value", -10000);
  if (n.has(4))
    h.bias = sumOf(e, h.bias, maskBias(e, n.in(4), h, filter));
  h.causal = n.i("unidirectional") != 0;
  h.scale = n.f("scale", 0);
  if (n.has(9))
    unsupported("cache_indirection");
  n.out(1, h.k);
  n.out(2, h.v);
  n.out(0, attend(e, h));
}

/// One matrix projects the input to queries, keys and values.
void attention(NodeImport &n) {
  Emitter &e = n.e;
  refuse(n, {"do_rotary", "past_present_share_buffer"});
  n.ignore({"rotary_embedding_dim"});
  int64_t heads = n.i("num_heads");
  Val x = n.in(0), w = n.in(1);
  auto sizes = n.ints("qkv_hidden_sizes");
  if (sizes.empty())
    sizes.assign(3, w.dim(1) / 3);
  if (sizes.size() != 3 || sizes[0] + sizes[1] + sizes[2] != w.dim(1))
    invalid("a projection of " + w.type.str() + " does not hold queries, keys and values");
  Val all = e.matmul(x, w);
  if (n.has(2))
    all = e.add(all, n.in(2));
  int64_t at = 0;
  Vals parts;
  for (int64_t size : sizes) {
    parts.push_back(splitHeads(e, e.slice(all, 2, at, at + size), heads));
    at += size;
  }
  Heads h;
  h.q = parts[0], h.k = parts[1], h.v = parts[2];
  if (n.has(4)) { // [2, B, heads, P, D]
    const Val &past = n.in(4);
    h.k = withPast(e, e.squeeze(e.slice(past, 0, 0, 1), {0}), h.k);
    h.v = withPast(e, e.squeeze(e.slice(past, 0, 1, 2), {0}), h.v);
  }
  h.bias = scoreBias(n.optional(5));
  double filter = n.f("mask_filter_value", -10000);
  if (n.has(3))
    h.bias = sumOf(e, h.bias, maskBias(e, n.in(3), h, filter));
  h.causal = n.i("unidirectional") != 0;
  h.scale = n.f("scale", 0);
  if (n.wants(1))
    n.out(1, e.concat({e.unsqueeze(h.k, {0}), e.unsqueeze(h.v, {0})}, 0));
  n.out(0, attend(e, h));
}

/// Rows of the cosine or sine table for the positions: [B or 1, 1, S, width / 2].
Val angles(NodeImport &n, const Val &table, const Val &positions, int64_t S) {
  Emitter &e = n.e;
  if (!positions)
    return e.unsqueeze(e.slice(table, 0, 0, S), {0, 1});
  Val p = e.cast(positions, Elem::I64);
  if (p.count() == 1 && S > 1) // an offset
    p = e.add(e.iota({1, S}, 1), e.reshape(p, {1, 1}));
  else if (p.rank() != 2)
    p = e.reshape(p, {1, p.count()});
  return e.unsqueeze(e.gather(table, p, 0), {1});
}

void rotaryEmbedding(NodeImport &n) {
  Emitter &e = n.e;
  refuse(n, {"is_packed_batching"});
  if (n.f("scale", 1) != 1)
    unsupported("attribute 'scale'");
  Val x = n.in(0), cos = n.in(2), sin = n.in(3);
  bool flat = x.rank() == 3;
  int64_t width = n.i("rotary_embedding_dim", 0), heads = n.i("num_heads", 0);
  if (flat && heads == 0)
    heads = x.dim(2) / std::max<int64_t>(1, 2 * cos.dim(1));
  Val v = splitHeads(e, x, heads);
  Val y = rotate(e, v, angles(n, cos, n.in(1), v.dim(2)), angles(n, sin, n.in(1), v.dim(2)), width ? width : v.dim(3),
                 n.i("interleaved") != 0);
  n.out(flat ? joinHeads(e, y) : y);
}

/// Causal attention of query heads in groups that share a key head.
void groupQueryAttention(NodeImport &n) {
  Emitter &e = n.e;
  refuse(n, {"smooth_softmax", "qk_output", "kv_cache_bit_width"});
  n.ignore({"k_quant_type", "v_quant_type"});
  int64_t heads = n.i("num_heads"), own = n.i("kv_num_heads"), window = n.i("local_window_size", -1);
  Val query = n.in(0), key = n.optional(1), value = n.optional(2);
  if (!key) { // packed along the last axis
    if (heads < 1 || own < 1 || query.dim(2) % (heads + 2 * own))
      invalid(llvm::Twine(heads) + " and twice " + llvm::Twine(own) + " heads of " + query.type.str());
    int64_t D = query.dim(2) / (heads + 2 * own), all = query.dim(2);
    value = e.slice(query, 2, (heads + own) * D, all);
    key = e.slice(query, 2, heads * D, (heads + own) * D);
    query = e.slice(query, 2, 0, heads * D);
  }
  Heads h;
  h.q = splitHeads(e, query, heads);
  h.k = splitHeads(e, key, own);
  h.v = splitHeads(e, value, own);
  if ((n.has(3) && n.in(3).dim(2) > 0) || n.has(11))
    unsupported(n.has(11) ? "attention sinks" : "past keys");
  int64_t S = h.q.dim(2);
  if (n.i("do_rotary")) {
    Val cos = angles(n, n.in(7), n.optional(9), S), sin = angles(n, n.in(8), n.optional(9), S);
    int64_t width = 2 * cos.dim(-1);
    bool interleaved = n.i("rotary_interleaved") != 0;
    h.q = rotate(e, h.q, cos, sin, width, interleaved);
    h.k = rotate(e, h.k, cos, sin, width, interleaved);
  }
  n.ignore({"rotary_interleaved"});
  // Lengths of the rows limit nothing that the causal limit does not, where the output counts.
  h.causal = true;
  if (window > 0)
    h.allowed = e(ops::gt, e.iota({1, 1, S, S}, 3), e.add(e.iota({1, 1, S, S}, 2), double(-window)));
  h.bias = scoreBias(n.optional(10));
  h.scale = n.f("scale", 0);
  h.softcap = n.f("softcap", 0);
  n.out(1, h.k);
  n.out(2, h.v);
  n.out(0, attend(e, h));
}

const OnnxOp kOps[] = {
    {"Attention", attention},
    {"MultiHeadAttention", multiHeadAttention},
    {"GroupQueryAttention", groupQueryAttention},
    {"RotaryEmbedding", rotaryEmbedding},
};

} // namespace microsoft_attention_ops
} // namespace

llvm::ArrayRef<OnnxOp> zcc::microsoftAttentionOps() { return microsoft_attention_ops::kOps; }
