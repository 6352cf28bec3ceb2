// RNN, GRU and LSTM: the input's products of all time steps at once, then a scan over time whose body is one step of primitives.
#include "frontend/ops/Activation.h"
#include "frontend/ops/GateOrder.h"
#include <numeric>

using namespace zcc;

namespace {
namespace recurrent_ops {

struct NamedActivation {
  std::string name;
  std::optional<double> alpha, beta;
};

/// What the attributes say of `count` activations of each of the directions up to one: `activation_alpha` and `activation_beta`
/// are used up in order, by those that take them.
std::vector<NamedActivation> activationsOf(NodeImport &n, int64_t direction, llvm::ArrayRef<const char *> defaults) {
  const auto names = n.strings("activations");
  const auto alpha = n.floats("activation_alpha"), beta = n.floats("activation_beta");
  auto a = alpha.begin(), b = beta.begin();
  std::vector<NamedActivation> all;
  for (size_t i = 0; i < size_t(direction + 1) * defaults.size(); ++i) {
    NamedActivation f{i < names.size() ? names[i] : defaults[i % defaults.size()], {}, {}};
    const size_t takes = activationParameters(f.name);
    if (takes > 0 && a != alpha.end())
      f.alpha = *a++;
    if (takes > 1 && b != beta.end())
      f.beta = *b++;
    all.push_back(f);
  }
  return {all.end() - int64_t(defaults.size()), all.end()};
}

/// One direction of a node: weights [G*H, ...], biases split in two, initial states.
class Cell {
public:
  /// The first `free` gates may be kept in any order among themselves.
  Cell(NodeImport &n, int64_t direction, int64_t gates, int64_t free, llvm::ArrayRef<const char *> defaults);
  /// One step: x W^T for all gates and the biases of biased() are given; updates h (and c).
  virtual void step(const Val &xw) = 0;
  /// Adds to x W^T [rows, G*H] the biases that do not depend on the state.
  virtual Val biased(const Val &xw) const { return plus(plus(xw, wb), rb); }
  virtual ~Cell() = default;

  Val h, c;
  Val w, r, wb, rb; ///< wb and rb may be absent

protected:
  Val act(size_t i, const Val &x) const {
    Val v = clip_ > 0 ? e.select(e(ops::lt, x, e.like(-clip_, x)), e.like(-clip_, x),
                                 e.select(e(ops::gt, x, e.like(clip_, x)), e.like(clip_, x), x))
                      : x;
    return activation(e, v, activations_[i].name, {activations_[i].alpha, activations_[i].beta});
  }
  /// Gate g of values [B, G*H].
  Val gate(const Val &v, int64_t g) const { return e.slice(v, 1, block_[g] * hidden_, (block_[g] + 1) * hidden_); }
  Val plus(const Val &v, const Val &bias) const { return bias ? e.add(v, bias) : v; }
  Val recurrent(const Val &state) const { return e.matmul(state, e.transpose(r, {1, 0})); }

  Emitter &e;
  int64_t hidden_;
  std::vector<int64_t> block_; ///< of each gate, in the weights
  double clip_;
  std::vector<NamedActivation> activations_;
};

/// Row `direction` of [D, ...].
Val ofDirection(Emitter &e, const Val &v, int64_t direction) {
  return e.reshape(e.slice(v, 0, direction, direction + 1), v.dims().drop_front());
}

Cell::Cell(NodeImport &n, int64_t direction, int64_t gates, int64_t free, llvm::ArrayRef<const char *> defaults)
    : e(n.e), block_(size_t(gates)) {
  hidden_ = n.in(2).dim(2);
  for (unsigned i : {1u, 2u})
    if (n.in(i).dim(1) != gates * hidden_)
      invalid("weights " + n.in(i).type.str() + " of a state of " + llvm::Twine(hidden_) + " need " +
              llvm::Twine(gates * hidden_) + " rows");
  std::iota(block_.begin(), block_.end(), 0);
  clip_ = n.f("clip", 0);
  activations_ = activationsOf(n, direction, defaults);
  w = ofDirection(e, n.in(1), direction);
  r = ofDirection(e, n.in(2), direction);
  auto keptW = keptGates(w, hidden_), keptR = keptGates(r, hidden_);
  if (keptW && keptR && keptW->block == keptR->block &&
      std::equal(block_.begin() + free, block_.end(), keptW->block.begin() + free)) {
    w = keptW->weights;
    r = keptR->weights;
    block_ = keptW->block;
  }
  if (n.has(3)) {
    Val b = ofDirection(e, n.in(3), direction);
    wb = asKept(e, e.slice(b, 0, 0, gates * hidden_), block_, hidden_);
    rb = asKept(e, e.slice(b, 0, gates * hidden_, 2 * gates * hidden_), block_, hidden_);
  }
}

class Rnn : public Cell {
public:
  static constexpr const char *kName = "rnn";
  Rnn(NodeImport &n, int64_t d) : Cell(n, d, 1, 1, {"Tanh"}) {}
  void step(const Val &xw) override { h = act(0, e.add(xw, recurrent(h))); }
};

class Gru : public Cell {
public:
  static constexpr const char *kName = "gru";
  Gru(NodeImport &n, int64_t d) : Cell(n, d, 3, 2, {"Sigmoid", "Tanh"}) { resetFirst_ = n.i("linear_before_reset") == 0; }
  /// The reset gate may apply to what the recurrent bias is added to.
  Val biased(const Val &xw) const override { return resetFirst_ ? Cell::biased(xw) : plus(xw, wb); }
  /// Gates z, r, h.
  void step(const Val &in) override {
    Val own = resetFirst_ ? e.matmul(h, e.transpose(e.slice(r, 0, 0, 2 * hidden_), {1, 0})) : plus(recurrent(h), rb);
    Val zr = e.add(e.slice(in, 1, 0, 2 * hidden_), resetFirst_ ? own : e.slice(own, 1, 0, 2 * hidden_));
    Val z = act(0, gate(zr, 0)), reset = act(0, gate(zr, 1)), fresh;
    if (resetFirst_)
      fresh = e.matmul(e.mul(reset, h), e.transpose(e.slice(r, 0, 2 * hidden_, 3 * hidden_), {1, 0}));
    else
      fresh = e.mul(reset, gate(own, 2));
    Val candidate = act(1, e.add(gate(in, 2), fresh));
    h = e.add(e.mul(e.sub(e.like(1, z), z), candidate), e.mul(z, h));
  }

private:
  bool resetFirst_;
};

class Lstm : public Cell {
public:
  static constexpr const char *kName = "lstm";
  Lstm(NodeImport &n, int64_t d) : Cell(n, d, 4, 4, {"Sigmoid", "Tanh", "Tanh"}) {
    coupled_ = n.i("input_forget") != 0;
    if (n.has(7)) {
      Val p = ofDirection(e, n.in(7), d);
      for (int64_t g = 0; g < 3; ++g)
        peepholes_.push_back(e.slice(p, 0, g * hidden_, (g + 1) * hidden_));
    }
  }
  /// Gates i, o, f, c.
  void step(const Val &xw) override {
    Val all = e.add(xw, recurrent(h));
    auto looking = [&](const Val &v, size_t p, const Val &cell) {
      return peepholes_.empty() ? v : e.add(v, e.mul(peepholes_[p], cell));
    };
    Val i = act(0, looking(gate(all, 0), 0, c));
    Val f = coupled_ ? e.sub(e.like(1, i), i) : act(0, looking(gate(all, 2), 2, c));
    Val candidate = act(1, gate(all, 3));
    c = e.add(e.mul(f, c), e.mul(i, candidate));
    Val o = act(0, looking(gate(all, 1), 1, c));
    h = e.mul(o, act(2, c));
  }

private:
  bool coupled_;
  Vals peepholes_;
};

/// What one direction gives: outputs of all steps [T, B, H], and the last states [B, H].
struct Direction {
  Val outputs, h, c;
};

/// One direction over the input's products [T, B, G*H]. `lengths` [B, 1]: of the samples, or absent.
template <typename C> Direction overTime(Emitter &e, C &cell, const Val &xw, const Val &lengths, bool isReverse) {
  int64_t steps = xw.dim(0);
  Vals carried{cell.h}, scanned{xw};
  if (cell.c)
    carried.push_back(cell.c);
  if (lengths)
    scanned.push_back(e.iota({steps}, 0));
  BodyScope body(e, llvm::StringRef(C::kName));
  Val h = cell.h = body.arg("h", cell.h.type), c;
  if (cell.c)
    c = cell.c = body.arg("c", cell.c.type);
  Val now = body.slice("xw", xw), t = lengths ? body.slice("t", scanned[1]) : Val();
  cell.step(now);
  Val y = cell.h;
  if (lengths) { // beyond a sample's end its state stays and its output is 0
    Val alive = e(ops::lt, t, lengths);
    y = e.select(alive, cell.h, e.like(0, h));
    cell.h = e.select(alive, cell.h, h);
    if (c)
      cell.c = e.select(alive, cell.c, c);
  }
  Vals results{cell.h};
  if (c)
    results.push_back(cell.c);
  results.push_back(y);
  std::vector<Value *> captured;
  Function *f = body.finish(results, captured);
  Vals out =
      e.scan(*f, carried, scanned, captured, steps, isReverse ? Emitter::Direction::Backward : Emitter::Direction::Forward);
  return {out.back(), out[0], c ? out[1] : Val()};
}

/// How many directions a node goes over; its weights, biases and states must be of as many.
int64_t directionsOf(NodeImport &n, const std::string &direction, bool batchFirst) {
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    invalid("direction '" + direction + "' is none of forward, reverse and bidirectional");
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  for (unsigned i : {1u, 2u, 3u, 5u, 6u, 7u}) {
    bool isState = i == 5 || i == 6;
    if (n.has(i) && n.in(i).dim(isState && batchFirst ? 1 : 0) != directions)
      invalid("input " + llvm::Twine(i) + " is " + n.in(i).type.str() + ", which is not of the " + llvm::Twine(directions) +
              (directions == 1 ? " direction" : " directions") + " of '" + direction + "'");
  }
  return directions;
}

/// All directions over all steps. `layout` 0: [T, B, I]; 1: [B, T, I].
template <typename C> void recurrent(NodeImport &n) {
  Emitter &e = n.e;
  n.ignore({"hidden_size"}); // the weights' own
  bool batchFirst = n.i("layout") != 0;
  Val x = batchFirst ? e.transpose(n.in(0), {1, 0, 2}) : n.in(0);
  std::string direction = n.s("direction", "forward");
  int64_t steps = x.dim(0), batch = x.dim(1), hidden = n.in(2).dim(2), directions = directionsOf(n, direction, batchFirst);
  if (hidden < 1)
    invalid("recurrent weights " + n.in(2).type.str() + " of an empty state");
  if (steps < 1)
    unsupported("an empty sequence");
  Val lengths = n.has(4) ? e.reshape(e.cast(n.in(4), Elem::I64), {batch, 1}) : Val();
  if (lengths.known && llvm::all_of(Emitter::asInts(lengths, "lengths"), [&](int64_t l) { return l == steps; }))
    lengths = Val(); // all are full
  auto initial = [&](unsigned input, int64_t d) {
    if (!n.has(input))
      return e.expand(e.like(0, x), {batch, hidden});
    Val all = batchFirst ? e.transpose(n.in(input), {1, 0, 2}) : n.in(input);
    if (all.dim(2) != hidden) // as PyTorch's exporter writes an LSTM with proj_size, of whose weights it takes the wrong rows
      invalid("an initial state " + all.type.str() + " for recurrent weights of " + llvm::Twine(hidden) +
              " columns; ONNX has no projected states");
    return ofDirection(e, all, d);
  };
  Vals outputs, lastH, lastC;
  for (int64_t d = 0; d < directions; ++d) {
    C cell(n, d);
    cell.h = initial(5, d);
    if (std::is_same_v<C, Lstm>)
      cell.c = initial(6, d);
    Val flat = e.reshape(x, {steps * batch, x.dim(2)});
    Val xw = cell.biased(e.matmul(flat, e.transpose(cell.w, {1, 0})));
    xw = e.reshape(xw, {steps, batch, cell.w.dim(0)});
    Direction r = overTime(e, cell, xw, lengths, direction == "reverse" || d == 1);
    outputs.push_back(e.reshape(r.outputs, {steps, 1, batch, hidden}));
    lastH.push_back(r.h);
    lastC.push_back(r.c);
  }
  if (n.wants(0)) {
    Val y = e.concat(outputs, 1);
    n.out(0, batchFirst ? e.transpose(y, {2, 0, 1, 3}) : y);
  }
  auto last = [&](Vals &states) {
    for (Val &s : states)
      s = e.reshape(s, {1, batch, hidden});
    Val all = e.concat(states, 0);
    return batchFirst ? e.transpose(all, {1, 0, 2}) : all;
  };
  if (n.wants(1))
    n.out(1, last(lastH));
  if (n.wants(2))
    n.out(2, last(lastC));
}

const OnnxOp kOps[] = {{"RNN", recurrent<Rnn>}, {"GRU", recurrent<Gru>}, {"LSTM", recurrent<Lstm>}};

} // namespace recurrent_ops
} // namespace

llvm::ArrayRef<OnnxOp> zcc::recurrentOps() { return recurrent_ops::kOps; }
