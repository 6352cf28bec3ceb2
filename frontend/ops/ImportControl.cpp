// Control flow: If, Loop and Scan as cond and scan, or decided and unrolled where that folds away while compiling.
#include "frontend/Importer.h"
#include "onnx.pb.h"

using namespace zcc;
using Direction = Emitter::Direction;

namespace {
namespace control_ops {

// ---- If

void chosen(NodeImport &n, const onnx_pb::GraphProto &branch) {
  Vals r = n.graph.importSubgraph(branch, {}, n.scope);
  for (size_t i = 0; i < r.size(); ++i)
    n.out(unsigned(i), r[i]);
}

void ifElse(NodeImport &n) {
  auto *yes = n.subgraph("then_branch"), *no = n.subgraph("else_branch");
  if (!yes || !no)
    invalid("a branch is missing");
  if (n.in(0).count() != 1)
    invalid("the condition is " + n.in(0).type.str() + ", not one value");
  if (Emitter::tensorOf(n.in(0)))
    return chosen(n, Emitter::asInt(n.in(0), "conditions") != 0 ? *yes : *no);
  Function *bodies[2];
  std::vector<Value *> captured[2];
  bool failed = false; // what is wrong with the second branch is told as well
  for (int k : {0, 1}) {
    BodyScope body(n.e, k ? "else" : "then", BodyScope::Runs::Sometimes);
    try {
      Vals r = n.graph.importSubgraph(k ? *no : *yes, {}, n.scope);
      bodies[k] = body.finish(r, captured[k]);
    } catch (const NodeError &e) {
      if (e.kind != NodeError::Failed)
        throw;
      failed = true;
    }
  }
  if (failed)
    throw NodeError{NodeError::Failed, ""};
  auto &results = bodies[0]->results, &others = bodies[1]->results;
  if (results.size() != others.size())
    invalid("the branches have " + llvm::Twine(results.size()) + " and " + llvm::Twine(others.size()) + " outputs");
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i]->type != others[i]->type)
      unsupported("a condition that depends on data and branches that give " + results[i]->type.str() + " and " +
                  others[i]->type.str());
  std::vector<Value *> both = captured[0];
  for (Value *v : captured[1])
    if (!llvm::is_contained(both, v))
      both.push_back(v);
  Vals operands{n.e.reshape(n.in(0), {})};
  for (Value *v : both)
    operands.push_back(Emitter::of(v));
  for (int k : {0, 1})
    takeCaptured(*bodies[k], captured[k], both);
  Vals r = n.e.emitAll(ops::cond, operands, {{"then", bodies[0]->name}, {"else", bodies[1]->name}});
  for (size_t i = 0; i < r.size(); ++i)
    n.out(unsigned(i), r[i]);
}

// ---- Loop and Scan

/// Up to so many iterations are unrolled: each folds what its number decides.
constexpr int64_t kFewIterations = 4;
/// More than these never are: the program would be larger than it is fast.
constexpr int64_t kMostIterations = 1024;

/// A loop in the form of ir/Control.h: scanned along axis 0, all forward or all backward.
struct Iteration {
  const onnx_pb::GraphProto &body;
  int64_t trips;
  Vals state, scanned;
  bool isLoop; ///< the body also takes the iteration's number and a condition, and returns one
  Direction direction = Direction::Forward;
  size_t outputs() const { return size_t(body.output_size()) - isLoop - state.size(); }
};
/// Last states, then outputs stacked along axis 0.
using Results = Vals;

void checkOutputs(const Iteration &it) {
  if (size_t(it.body.output_size()) < it.isLoop + it.state.size())
    invalid("the body has too few outputs");
}

/// What decides how often a loop runs.
int64_t decided(const Val &v, const char *what) {
  if (!Emitter::tensorOf(v))
    notConstant(llvm::Twine(what) + " that depends on data");
  return Emitter::asInt(v, what);
}
bool goesOn(const Val &condition) { return decided(condition, "an end") != 0; }

Results scanned(NodeImport &n, const Iteration &it) {
  Emitter &e = n.e;
  Val numbers = e.iota({it.trips}, 0);
  Vals all = it.scanned;
  all.push_back(numbers);
  BodyScope body(e, it.isLoop ? "loop" : "scan");
  Vals in, states;
  for (const Val &s : it.state)
    states.push_back(body.arg("state", s.type));
  Vals slices;
  for (const Val &s : it.scanned)
    slices.push_back(body.slice("slice", s));
  Val number = body.slice("iteration", numbers);
  if (it.isLoop)
    in = {number, Emitter::number(1, Elem::Bool)};
  in.append(states.begin(), states.end());
  in.append(slices.begin(), slices.end());
  n.graph.iterations.push_back(number);
  Vals out;
  try {
    out = n.graph.importSubgraph(it.body, in, n.scope);
  } catch (const NodeError &) {
    n.graph.iterations.pop_back();
    throw;
  }
  n.graph.iterations.pop_back();
  if (it.isLoop) {
    if (!goesOn(out[0]))
      unsupported("an end before the trip count");
    out.erase(out.begin());
  }
  for (size_t i = 0; i < states.size(); ++i)
    if (out[i].list || out[i].type != states[i].type)
      unsupported("a carried value that changes from " + states[i].type.str() + " to " +
                  (out[i].list ? "a sequence" : out[i].type.str()));
  std::vector<Value *> captured;
  Function *f = body.finish(out, captured);
  return e.scan(*f, it.state, all, captured, it.trips, it.direction);
}

Results unrolled(NodeImport &n, const Iteration &it) {
  Emitter &e = n.e;
  Val condition = Emitter::number(1, Elem::Bool);
  Vals state = it.state;
  std::vector<Vals> rows(it.outputs());
  int64_t k = 0;
  for (; k < it.trips && goesOn(condition); ++k) {
    if (k == kMostIterations)
      unsupported("more than " + llvm::Twine(kMostIterations) + " iterations");
    int64_t t = it.direction == Direction::Backward ? it.trips - 1 - k : k;
    Vals in;
    if (it.isLoop)
      in = {Emitter::number(double(k), Elem::I64), condition};
    in.append(state.begin(), state.end());
    for (const Val &s : it.scanned)
      in.push_back(e.squeeze(e.slice(s, 0, t, t + 1), {0}));
    Vals out = n.graph.importSubgraph(it.body, in, n.scope);
    if (it.isLoop) {
      condition = out[0];
      out.erase(out.begin());
    }
    for (size_t i = 0; i < state.size(); ++i)
      state[i] = out[i];
    for (size_t i = 0; i < rows.size(); ++i)
      rows[i].insert(it.direction == Direction::Backward ? rows[i].begin() : rows[i].end(),
                     e.unsqueeze(out[i + state.size()], {0}));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (k == 0 && n.wants(unsigned(state.size())))
      unsupported("no iteration");
    state.push_back(k == 0 ? Val() : e.concat(rows[i], 0));
  }
  return state;
}

/// A scan where its form can be had; unrolled where there is little to unroll, where everything may fold (loops over
/// shapes), and where only known numbers of iterations make the body's shapes known.
Results iterate(NodeImport &n, const Iteration &it) {
  auto isKnown = [](const Val &v) { return v.list || Emitter::tensorOf(v); };
  bool folds = (!it.state.empty() || !it.scanned.empty()) && llvm::all_of(it.state, isKnown) && llvm::all_of(it.scanned, isKnown);
  bool hasList = llvm::any_of(it.state, [](const Val &v) { return v.list != nullptr; });
  if (it.trips <= kFewIterations || hasList || (folds && it.trips <= kMostIterations))
    return unrolled(n, it);
  GraphImporter::Notes before = n.graph.notes();
  try {
    return scanned(n, it);
  } catch (const NodeError &) {
    if (it.trips > kMostIterations)
      throw;
    n.graph.restore(std::move(before));
  }
  return unrolled(n, it);
}

void loop(NodeImport &n) {
  auto *body = n.subgraph("body");
  if (!body)
    invalid("the body is missing");
  int64_t most = n.has(0) ? decided(n.in(0), "a trip count") : INT64_MAX;
  bool enters = !n.has(1) || goesOn(n.in(1));
  Iteration it{*body, enters ? std::max<int64_t>(most, 0) : 0, {}, {}, /*isLoop=*/true};
  for (unsigned i = 2; i < n.inputs(); ++i)
    it.state.push_back(n.in(i));
  checkOutputs(it);
  // Without a number of trips only what folds can be run to its end.
  Results r = most == INT64_MAX ? unrolled(n, it) : iterate(n, it);
  for (size_t i = 0; i < r.size(); ++i)
    if (r[i])
      n.out(unsigned(i), r[i]);
}

/// Axis `axis` first.
Val axisFirst(Emitter &e, const Val &v, int64_t axis) {
  Dims perm{normalAxis(axis, v.rank())};
  for (int64_t a = 0; a < v.rank(); ++a)
    if (a != perm[0])
      perm.push_back(a);
  return e.transpose(v, perm);
}

/// Axis 0 becomes axis `axis`.
Val axisBack(Emitter &e, const Val &v, int64_t axis) {
  Dims perm;
  for (int64_t a = 1; a < v.rank(); ++a)
    perm.push_back(a);
  perm.insert(perm.begin() + normalAxis(axis, v.rank()), 0);
  return e.transpose(v, perm);
}

Val flipped(Emitter &e, const Val &v) { return e.slice(v, 0, v.dim(0) - 1, -1, -1); }

/// The attributes of Scan that say along which axes it goes, and in which direction.
struct ScanAxes {
  std::vector<int64_t> in, out, inReversed, outReversed;
};

Results scanAlong(NodeImport &n, const onnx_pb::GraphProto &body, const Vals &state, const Vals &scans, const ScanAxes &axes) {
  Emitter &e = n.e;
  Iteration it{body, 0, state, {}, /*isLoop=*/false};
  checkOutputs(it);
  bool isBackward = !scans.empty() && llvm::all_of(axes.inReversed, [](int64_t d) { return d != 0; });
  it.direction = isBackward ? Direction::Backward : Direction::Forward;
  for (size_t i = 0; i < scans.size(); ++i) {
    Val v = axisFirst(e, scans[i], axes.in[i]);
    if (i && v.dim(0) != it.trips)
      invalid("scanned inputs have " + llvm::Twine(it.trips) + " and " + llvm::Twine(v.dim(0)) + " slices");
    it.trips = v.dim(0);
    it.scanned.push_back((axes.inReversed[i] != 0) == isBackward ? v : flipped(e, v));
  }
  Results r = iterate(n, it);
  for (size_t i = 0, first = it.state.size(); first + i < r.size(); ++i) {
    Val &v = r[first + i];
    if (!v)
      continue;
    if ((axes.outReversed[i] != 0) != isBackward)
      v = flipped(e, v);
    v = axisBack(e, v, axes.out[i]);
  }
  return r;
}

/// Opset 8: every sample of the batch by itself, a scan over scans.
Results scanBatch(NodeImport &n, const onnx_pb::GraphProto &body, const Vals &state, const Vals &scans, const ScanAxes &axes) {
  Emitter &e = n.e;
  Vals all = state;
  all.append(scans.begin(), scans.end());
  if (all.empty())
    invalid("nothing is scanned");
  BodyScope sample(e, "sample");
  Vals own, ownScans;
  for (const Val &v : state)
    own.push_back(sample.slice("state", v));
  for (const Val &v : scans)
    ownScans.push_back(sample.slice("scanned", v));
  Results r = scanAlong(n, body, own, ownScans, axes);
  std::vector<Value *> captured;
  Function *f = sample.finish(r, captured);
  return e.scan(*f, {}, all, captured, 0, Direction::Forward);
}

void scan(NodeImport &n) {
  auto *body = n.subgraph("body");
  if (!body)
    invalid("the body is missing");
  unsigned first = n.opset < 9 ? 1 : 0; // sequence_lens
  if (first && n.has(0))
    unsupported("lengths of sequences");
  int64_t scanInputs = n.i("num_scan_inputs");
  if (scanInputs < 0 || scanInputs > int64_t(n.inputs()) - first)
    invalid(llvm::Twine(scanInputs) + " scanned inputs");
  size_t scans = size_t(scanInputs), states = n.inputs() - first - scans;
  if (size_t(body->output_size()) < states)
    invalid("the body has too few outputs");
  size_t outputs = size_t(body->output_size()) - states;
  ScanAxes axes;
  if (first) {
    axes.inReversed = n.ints("directions");
  } else {
    axes.in = n.ints("scan_input_axes");
    axes.out = n.ints("scan_output_axes");
    axes.inReversed = n.ints("scan_input_directions");
    axes.outReversed = n.ints("scan_output_directions");
  }
  axes.in.resize(scans, 0);
  axes.inReversed.resize(scans, 0);
  axes.out.resize(outputs, 0);
  axes.outReversed.resize(outputs, 0);
  Vals state, scanned;
  for (size_t i = 0; i < states; ++i)
    state.push_back(n.in(unsigned(first + i)));
  for (size_t i = 0; i < scans; ++i)
    scanned.push_back(n.in(unsigned(first + states + i)));
  Results r = (first ? scanBatch : scanAlong)(n, *body, state, scanned, axes);
  for (size_t i = 0; i < r.size(); ++i)
    if (r[i])
      n.out(unsigned(i), r[i]);
}

const OnnxOp kOps[] = {{"If", ifElse}, {"Loop", loop}, {"Scan", scan}};

} // namespace control_ops
} // namespace

llvm::ArrayRef<OnnxOp> zcc::controlOps() { return control_ops::kOps; }
