// Attention in its forms, rotary embeddings and linear attention.
#include "frontend/ops/Attention.h"
#include <cmath>

using namespace zcc;
using llvm::ArrayRef;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();

Val zcc::splitHeads(Emitter &e, const Val &x, int64_t heads) {
  if (x.rank() == 4)
    return x;
  if (x.rank() != 3 || heads < 1 || x.dim(2) % heads)
    invalid(llvm::Twine(heads) + " heads of " + x.type.str());
  return e.transpose(e.reshape(x, {x.dim(0), x.dim(1), heads, x.dim(2) / heads}), {0, 2, 1, 3});
}

Val zcc::joinHeads(Emitter &e, const Val &x) {
  return e.reshape(e.transpose(x, {0, 2, 1, 3}), {x.dim(0), x.dim(2), x.dim(1) * x.dim(3)});
}

Val zcc::repeatHeads(Emitter &e, const Val &x, int64_t heads) {
  int64_t own = x.dim(1);
  if (own == heads)
    return x;
  if (own < 1 || heads % own)
    invalid(llvm::Twine(heads) + " query heads over " + llvm::Twine(own) + " key heads");
  Val v = e.expand(e.reshape(x, {x.dim(0), own, 1, x.dim(2), x.dim(3)}), {x.dim(0), own, heads / own, x.dim(2), x.dim(3)});
  return e.reshape(v, {x.dim(0), heads, x.dim(2), x.dim(3)});
}

Val zcc::softmaxOrZero(Emitter &e, const Val &scores) {
  Val top = e.reduce(ops::reduce_max, scores, {scores.rank() - 1}, Emitter::Keep::Axes);
  Val none = e(ops::eq, top, e.like(-kInfinity, top));
  Val p = e.softmax(e.select(none, e.like(0, scores), scores), scores.rank() - 1);
  return e.select(none, e.like(0, p), p);
}

Val zcc::both(Emitter &e, const Val &a, const Val &b) { return !a ? b : !b ? a : e(ops::and_, a, b); }

Val zcc::rotate(Emitter &e, const Val &x, const Val &cos, const Val &sin, int64_t width, bool interleaved) {
  int64_t D = x.dim(3);
  if (width < 2 || width % 2 || width > D)
    invalid("a rotary width of " + llvm::Twine(width) + " in heads of " + llvm::Twine(D));
  Val turned = e.slice(x, 3, 0, width), rest = e.slice(x, 3, width, D), a, b;
  if (interleaved) {
    Val pairs = e.reshape(turned, {x.dim(0), x.dim(1), x.dim(2), width / 2, 2});
    a = e.squeeze(e.slice(pairs, 4, 0, 1), {4});
    b = e.squeeze(e.slice(pairs, 4, 1, 2), {4});
  } else {
    a = e.slice(turned, 3, 0, width / 2);
    b = e.slice(turned, 3, width / 2, width);
  }
  Val real = e.sub(e.mul(cos, a), e.mul(sin, b)), imaginary = e.add(e.mul(sin, a), e.mul(cos, b));
  Val y = interleaved ? e.reshape(e.concat({e.unsqueeze(real, {4}), e.unsqueeze(imaginary, {4})}, 4), turned.dims())
                      : e.concat({real, imaginary}, 3);
  return width < D ? e.concat({y, rest}, 3) : y;
}

namespace {
namespace attention_ops {

/// Who attends to whom, from the limits of the node; absent if there are none. [B or 1, 1, S, T]
struct Limits {
  Val allowed;
  bool causal = false; ///< only a causal limit that the `attention` operator has itself
};

Limits limitsOf(NodeImport &n, int64_t S, int64_t T, int64_t past, const Val &lengths) {
  Emitter &e = n.e;
  Limits r;
  int64_t left = n.i("left_window_size", -1), right = n.i("right_window_size", -1);
  bool causal = n.i("is_causal") != 0;
  if (causal && left < 0 && right < 0 && !lengths && past == T - S) {
    r.causal = true;
    return r;
  }
  Val key = e.iota({1, 1, S, T}, 3), query = e.iota({1, 1, S, T}, 2);
  if (lengths) {
    Val each = e.reshape(lengths, {lengths.count(), 1, 1, 1});
    r.allowed = e(ops::lt, key, each);
    query = e.add(query, e.add(each, double(-S)));
  } else {
    query = e.add(query, double(past));
  }
  if (causal)
    r.allowed = both(e, r.allowed, e(ops::le, key, query));
  if (left >= 0)
    r.allowed = both(e, r.allowed, e(ops::ge, key, e.add(query, double(-std::min(left, S + T)))));
  if (right >= 0)
    r.allowed = both(e, r.allowed, e(ops::le, key, e.add(query, double(std::min(right, S + T)))));
  return r;
}

void attention(NodeImport &n) {
  Emitter &e = n.e;
  bool flat = n.in(0).rank() == 3;
  Val q = splitHeads(e, n.in(0), n.i("q_num_heads")), k = splitHeads(e, n.in(1), n.i("kv_num_heads")),
      v = splitHeads(e, n.in(2), n.i("kv_num_heads"));
  n.ignore({"q_num_heads", "kv_num_heads", "softmax_precision"}); // ours is computed in f32 at least
  int64_t past = n.has(4) ? n.in(4).dim(2) : 0;
  if (past) {
    k = e.concat({n.in(4), k}, 2);
    v = e.concat({n.in(5), v}, 2);
  }
  n.out(1, k);
  n.out(2, v);
  int64_t S = q.dim(2), T = k.dim(2);
  double scale = n.f("scale", 1 / std::sqrt(double(q.dim(3)))), softcap = n.f("softcap", 0);
  int64_t rawMode = n.i("qk_matmul_output_mode", 0);
  Val lengths = n.has(6) ? e.cast(n.in(6), Elem::I64) : Val();
  Limits limits = limitsOf(n, S, T, past, lengths);

  Val mask = n.optional(3), bias;
  if (mask && mask.dim(-1) < T) { // beyond its end nobody is attended
    Dims lo(mask.rank(), 0), hi(mask.rank(), 0);
    hi.back() = T - mask.dim(-1);
    bool isBool = mask.elem() == Elem::Bool;
    Val wide = e.pad(isBool ? e.cast(mask, Elem::I32) : mask, lo, hi, isBool ? 0 : -kInfinity);
    mask = isBool ? e.cast(wide, Elem::Bool) : wide;
  }
  if (mask && mask.elem() == Elem::Bool)
    limits.allowed = both(e, limits.allowed, mask);
  else if (mask)
    bias = e.cast(mask, q.elem());

  if (softcap == 0 && !n.wants(3)) {
    Val m = limits.allowed;
    if (bias)
      m = m ? e.select(m, bias, e.like(-kInfinity, bias)) : bias;
    Vals operands{q, k, v};
    if (m)
      operands.push_back(m);
    Val y = e.emitAll(ops::attention, operands, {{"scale", scale}, {"causal", int64_t(limits.causal)}})[0];
    return n.out(0, flat ? joinHeads(e, y) : y);
  }
  if (limits.causal)
    limits.allowed = both(e, limits.allowed, e(ops::le, e.iota({1, 1, S, T}, 3), e.add(e.iota({1, 1, S, T}, 2), double(T - S))));
  Val kk = repeatHeads(e, k, q.dim(1)), vv = repeatHeads(e, v, q.dim(1));
  Val scores = e.matmul(e.mul(q, std::sqrt(scale)), e.swapAxes(e.mul(kk, std::sqrt(scale)), -1, -2));
  Val raw = scores;
  if (softcap != 0)
    scores = e.mul(e(ops::tanh, e.mul(scores, 1 / softcap)), softcap);
  if (rawMode == 1)
    raw = scores;
  if (bias)
    scores = e.add(scores, bias);
  if (limits.allowed)
    scores = e.select(limits.allowed, scores, e.like(-kInfinity, scores));
  if (rawMode == 2)
    raw = scores;
  Val p = softmaxOrZero(e, scores);
  n.out(3, rawMode == 3 ? p : raw);
  Val y = e.matmul(p, vv);
  n.out(0, flat ? joinHeads(e, y) : y);
}

/// Scores and probabilities pass through subgraphs.
void flexAttention(NodeImport &n) {
  Emitter &e = n.e;
  Val q = n.in(0);
  int64_t heads = q.dim(1);
  double scale = n.f("scale", 1 / std::sqrt(double(q.dim(3))));
  Elem wide = n.elemOf("softmax_precision", q.elem() == Elem::F64 ? Elem::F64 : Elem::F32);
  Val k = repeatHeads(e, n.in(1), heads), v = repeatHeads(e, n.in(2), heads);
  Val x = e.cast(e.mul(e.matmul(q, e.swapAxes(k, -1, -2)), scale), wide);
  auto modified = [&](const char *name) {
    auto *g = n.subgraph(name);
    if (!g)
      return x;
    Vals r = n.graph.importSubgraph(*g, {x}, n.scope);
    if (r.size() != 1)
      invalid(llvm::Twine(name) + " has " + llvm::Twine(r.size()) + " outputs, not one");
    return r[0];
  };
  x = modified("score_mod");
  x = softmaxOrZero(e, x);
  x = modified("prob_mod");
  n.out(e.matmul(e.cast(x, q.elem()), v));
}

void rotaryEmbedding(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0), cos = n.in(1), sin = n.in(2);
  bool flat = x.rank() == 3;
  Val v = flat ? splitHeads(e, x, n.i("num_heads")) : x; // [B, H, S, D]
  n.ignore({"num_heads"});
  int64_t width = n.i("rotary_embedding_dim", 0), D = v.dim(3);
  width = width ? width : D;
  if (n.has(3)) {
    cos = e.gather(cos, e.cast(n.in(3), Elem::I64), 0);
    sin = e.gather(sin, e.cast(n.in(3), Elem::I64), 0);
  }
  cos = e.unsqueeze(cos, {1}); // [B, 1, S, width/2]
  sin = e.unsqueeze(sin, {1});
  Val y = rotate(e, v, cos, sin, width, n.i("interleaved") != 0);
  n.out(flat ? joinHeads(e, y) : y);
}

/// The recurrence, token by token: S_t = exp(g_t) S + k_t (beta_t (v_t - S^T k_t))^T, and o_t =
/// scale * q_t^T S_t.
void linearAttention(NodeImport &n) {
  Emitter &e = n.e;
  int64_t heads = n.i("q_num_heads"), own = n.i("kv_num_heads");
  std::string rule = n.s("update_rule", "gated_delta");
  n.ignore({"chunk_size"}); // only how it is computed
  bool gated = rule == "gated" || rule == "gated_delta", delta = rule == "delta" || rule == "gated_delta";
  if (!gated && !delta && rule != "linear")
    unsupported("update_rule '" + rule + "'");
  if (heads < 1 || own < 1)
    invalid(llvm::Twine(heads) + " query heads over " + llvm::Twine(own) + " key heads");
  Val q = splitHeads(e, n.in(0), heads), k = splitHeads(e, n.in(1), own), v = splitHeads(e, n.in(2), own);
  int64_t B = q.dim(0), T = q.dim(2), dk = q.dim(3), dv = v.dim(3);
  constexpr int64_t kMostTokens = 1 << 14; // each is nodes of its own
  if (T > kMostTokens)
    unsupported("more than " + llvm::Twine(kMostTokens) + " tokens");
  double scale = n.f("scale", 0);
  scale = scale == 0 ? 1 / std::sqrt(double(dk)) : scale;
  auto perHead = [&](unsigned input) { // [B, T, 1 or own or own * dk] -> [B, 1 or own, T, 1 or dk]
    const Val &x = n.in(input);
    return x.rank() == 4 ? x : splitHeads(e, x, x.dim(2) % own == 0 ? own : 1);
  };
  Val decay = gated ? e(ops::exp, perHead(4)) : Val(), beta = delta ? perHead(5) : Val();
  Val state = n.has(3) ? n.in(3) : e.expand(e.like(0, q), {B, own, dk, dv});
  auto at = [&](const Val &x, int64_t t) { return e.slice(x, 2, t, t + 1); }; // [B, own, 1, d]
  Vals outputs;
  for (int64_t t = 0; t < T; ++t) {
    Val key = e.swapAxes(at(k, t), 2, 3); // [B, own, dk, 1]
    if (gated)
      state = e.mul(state, e.swapAxes(at(decay, t), 2, 3));
    Val write = at(v, t);
    if (delta) {
      Val held = e.matmul(at(k, t), state); // [B, own, 1, dv]
      write = e.mul(e.sub(write, held), at(beta, t));
    }
    state = e.add(state, e.mul(key, write));
    Val whole = repeatHeads(e, state, heads);
    outputs.push_back(e.mul(e.matmul(at(q, t), whole), scale));
  }
  n.out(0, joinHeads(e, e.concat(outputs, 2)));
  n.out(1, state);
}

const OnnxOp kOps[] = {
    {"Attention", attention},
    {"FlexAttention", flexAttention},
    {"RotaryEmbedding", rotaryEmbedding},
    {"LinearAttention", linearAttention},
};

} // namespace attention_ops
} // namespace

ArrayRef<OnnxOp> zcc::attentionOps() { return attention_ops::kOps; }
