// Older forms of operators become the newest: one table of (operator, opset it changed in, what to do).
#include "frontend/Importer.h"

using namespace zcc;

namespace {

/// An attribute of integers that became input `index`.
void intsToInput(NodeImport &n, const char *name, unsigned index) {
  if (n.hasAttr(name))
    n.setInput(index, Emitter::integers(n.ints(name)));
}
void intToInput(NodeImport &n, const char *name, unsigned index) {
  if (n.hasAttr(name))
    n.setInput(index, Emitter::integers({n.i(name)}));
}
void floatToInput(NodeImport &n, const char *name, unsigned index) {
  if (n.hasAttr(name))
    n.setInput(index, Emitter::number(n.f(name), n.in(0).elem()));
}

void axesInput(NodeImport &n) { intsToInput(n, "axes", 1); }
void clip(NodeImport &n) {
  floatToInput(n, "min", 1);
  floatToInput(n, "max", 2);
}
void dropoutRatio(NodeImport &n) {
  if (n.hasAttr("ratio"))
    n.setInput(1, Emitter::number(n.f("ratio"), Elem::F32));
}
void slice(NodeImport &n) {
  intsToInput(n, "starts", 1);
  intsToInput(n, "ends", 2);
  intsToInput(n, "axes", 3);
}
void splitSizes(NodeImport &n) { intsToInput(n, "split", 1); }
void pad(NodeImport &n) {
  intsToInput(n, "pads", 1);
  if (n.hasAttr("value"))
    n.setInput(2, Emitter::number(n.f("value"), n.in(0).elem()));
}
void topK(NodeImport &n) { intToInput(n, "k", 1); }
void dftAxis(NodeImport &n) { n.setInput(2, Emitter::integers({n.i("axis", 1)}, {})); }
void scatter(NodeImport &n) { n.op = "ScatterElements"; }

/// Upsample is Resize without its choices: coordinates divided by the scale, rounded down.
void upsample(NodeImport &n) {
  n.op = "Resize";
  Val scales = n.hasAttr("scales") ? [&] {
    auto s = n.floats("scales");
    return Emitter::floats(s, Type(Elem::F32, {int64_t(s.size())}));
  }()
                                   : n.in(1);
  n.dropInput(1);
  n.setInput(2, scales);
}
/// Resize with two inputs, X and scales.
void firstResize(NodeImport &n) {
  Val scales = n.in(1);
  n.dropInput(1);
  n.setInput(2, scales);
}

/// Scale and bias per group become per channel.
void groupScale(NodeImport &n) {
  Val x = n.in(0);
  for (unsigned i : {1u, 2u}) {
    Val s = n.in(i);
    int64_t each = x.dim(1) / std::max<int64_t>(1, s.count());
    n.setInput(i, n.e.reshape(n.e.expand(n.e.reshape(s, {s.count(), 1}), {s.count(), each}), {s.count() * each}));
  }
}

struct Change {
  const char *op;
  int64_t version; ///< nodes of an older opset have the old form
  void (*apply)(NodeImport &);
};
const Change kChanges[] = {
    {"Clip", 11, clip},
    {"DFT", 20, dftAxis},
    {"Dropout", 12, dropoutRatio},
    {"GroupNormalization", 21, groupScale},
    {"Pad", 11, pad},
    {"ReduceL1", 18, axesInput},
    {"ReduceL2", 18, axesInput},
    {"ReduceLogSum", 18, axesInput},
    {"ReduceLogSumExp", 18, axesInput},
    {"ReduceMax", 18, axesInput},
    {"ReduceMean", 18, axesInput},
    {"ReduceMin", 18, axesInput},
    {"ReduceProd", 18, axesInput},
    {"ReduceSum", 13, axesInput},
    {"ReduceSumSquare", 18, axesInput},
    {"Resize", 11, firstResize},
    {"Slice", 10, slice},
    {"Split", 13, splitSizes},
    {"Squeeze", 13, axesInput},
    {"TopK", 10, topK},
    {"Unsqueeze", 13, axesInput},
};

/// Operators that are gone, under any opset that still had them.
const Change kRenamed[] = {{"Scatter", 0, scatter}, {"Upsample", 0, upsample}};

} // namespace

bool zcc::isRenamed(llvm::StringRef op) {
  return llvm::any_of(kRenamed, [&](const Change &c) { return op == c.op; });
}

void zcc::upgrade(NodeImport &n) {
  for (const Change &c : kChanges)
    if (n.op == c.op && n.opset < c.version)
      c.apply(n);
  for (const Change &c : kRenamed)
    if (n.op == c.op) {
      c.apply(n);
      break;
    }
}
