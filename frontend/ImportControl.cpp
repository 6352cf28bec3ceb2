// Control flow that is decided while compiling: If with a constant condition, Loop and Scan
// unrolled.
#include "frontend/Importer.h"
#include "onnx.pb.h"

using namespace zcc;

namespace {

void ifElse(NodeImport &n) {
  bool yes = Emitter::asInt(n.in(0), "conditions") != 0;
  auto *branch = n.subgraph(yes ? "then_branch" : "else_branch");
  n.ignore({"then_branch", "else_branch"});
  if (!branch)
    invalid("a branch is missing");
  Vals r = n.graph.importSubgraph(*branch, {}, n.scope);
  for (size_t i = 0; i < r.size(); ++i)
    n.out(unsigned(i), r[i]);
}

/// More iterations than this are not unrolled: the program would be larger than it is fast.
constexpr int64_t kMostIterations = 1024;

/// Joins one value per iteration along a new axis.
Val stacked(Emitter &e, const Vals &parts, int64_t axis) {
  Vals v;
  for (const Val &p : parts)
    v.push_back(e.unsqueeze(p, {axis}));
  return e.concat(v, axis);
}

void loop(NodeImport &n) {
  auto *body = n.subgraph("body");
  if (!body)
    invalid("the body is missing");
  int64_t most = n.has(0) ? Emitter::asInt(n.in(0), "trip counts") : INT64_MAX;
  Val condition = n.has(1) ? n.in(1) : Emitter::number(1, Elem::Bool);
  Vals state;
  for (unsigned i = 2; i < n.inputs(); ++i)
    state.push_back(n.in(i));
  if (size_t(body->output_size()) < 1 + state.size())
    invalid("the body has too few outputs");
  size_t outputs = size_t(body->output_size()) - 1 - state.size();
  std::vector<Vals> scanned(outputs);
  for (int64_t k = 0; k < most && Emitter::asInt(condition, "conditions"); ++k) {
    if (k == kMostIterations)
      unsupported("more than " + llvm::Twine(kMostIterations) + " iterations");
    Vals in{Emitter::number(double(k), Elem::I64), condition};
    in.append(state.begin(), state.end());
    Vals out = n.graph.importSubgraph(*body, in, n.scope);
    condition = out[0];
    for (size_t i = 0; i < state.size(); ++i)
      state[i] = out[i + 1];
    for (size_t i = 0; i < outputs; ++i)
      scanned[i].push_back(out[i + 1 + state.size()]);
  }
  for (size_t i = 0; i < state.size(); ++i)
    n.out(unsigned(i), state[i]);
  for (size_t i = 0; i < outputs; ++i) {
    if (scanned[i].empty() && n.wants(unsigned(state.size() + i)))
      unsupported("no iteration");
    if (!scanned[i].empty())
      n.out(unsigned(state.size() + i), stacked(n.e, scanned[i], 0));
  }
}

void scan(NodeImport &n) {
  auto *body = n.subgraph("body");
  if (!body)
    invalid("the body is missing");
  if (n.opset < 9)
    unsupported("opset 8's batched form");
  int64_t scanInputs = n.i("num_scan_inputs");
  if (scanInputs < 0 || scanInputs > int64_t(n.inputs()))
    invalid(llvm::Twine(scanInputs) + " scanned inputs");
  size_t scans = size_t(scanInputs), states = n.inputs() - scans;
  if (size_t(body->output_size()) < states)
    invalid("the body has too few outputs");
  size_t outputs = size_t(body->output_size()) - states;
  auto inAxes = n.ints("scan_input_axes"), outAxes = n.ints("scan_output_axes"),
       inReversed = n.ints("scan_input_directions"), outReversed = n.ints("scan_output_directions");
  inAxes.resize(scans, 0);
  inReversed.resize(scans, 0);
  outAxes.resize(outputs, 0);
  outReversed.resize(outputs, 0);
  Vals state;
  for (size_t i = 0; i < states; ++i)
    state.push_back(n.in(unsigned(i)));
  for (size_t i = 0; i < scans; ++i)
    inAxes[i] = normalAxis(inAxes[i], n.in(unsigned(states + i)).rank());
  int64_t steps = scans ? n.in(unsigned(states)).dim(inAxes[0]) : 0;
  if (steps > kMostIterations)
    unsupported("more than " + llvm::Twine(kMostIterations) + " iterations");
  std::vector<Vals> scanned(outputs);
  for (int64_t k = 0; k < steps; ++k) {
    Vals in = state;
    for (size_t i = 0; i < scans; ++i) {
      int64_t t = inReversed[i] ? steps - 1 - k : k;
      in.push_back(
          n.e.squeeze(n.e.slice(n.in(unsigned(states + i)), inAxes[i], t, t + 1), {inAxes[i]}));
    }
    Vals out = n.graph.importSubgraph(*body, in, n.scope);
    for (size_t i = 0; i < states; ++i)
      state[i] = out[i];
    for (size_t i = 0; i < outputs; ++i)
      scanned[i].insert(outReversed[i] ? scanned[i].begin() : scanned[i].end(), out[states + i]);
  }
  for (size_t i = 0; i < states; ++i)
    n.out(unsigned(i), state[i]);
  for (size_t i = 0; i < outputs && steps; ++i)
    n.out(unsigned(states + i),
          stacked(n.e, scanned[i], normalAxis(outAxes[i], scanned[i][0].rank() + 1)));
}

const OnnxOp kOps[] = {{"If", ifElse}, {"Loop", loop}, {"Scan", scan}};

} // namespace

llvm::ArrayRef<OnnxOp> zcc::controlOps() { return kOps; }
