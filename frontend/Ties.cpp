// Which initializers are one parameter: the metadata of their uses names it, their values agree
// where one side is anonymous, or --tie says so.
#include "frontend/Decision.h"
#include "onnx.pb.h"

using namespace zcc;
using llvm::StringRef;

/// The values of a matrix (or stack of them) with the last two axes swapped.
static std::string transposedBytes(const std::string &bytes, llvm::ArrayRef<int64_t> dims,
                                   int64_t elem) {
  int64_t rows = dims[dims.size() - 2], cols = dims.back(),
          count = elementCount(dims) / std::max<int64_t>(1, rows * cols);
  std::string out(bytes.size(), 0);
  for (int64_t m = 0; m < count; ++m)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        memcpy(&out[((m * cols + c) * rows + r) * elem], &bytes[((m * rows + r) * cols + c) * elem],
               elem);
  return out;
}

/// Lets the uses of `from` mean the parameter of `to`, if shapes (and values) fit.
bool Decision::tie(Fact &to, Fact &from, const std::string &why, bool mustEqual) {
  const Initializer &a = *to.source, &b = *from.source;
  if (to.pieces > 1 || from.pieces > 1)
    return false;
  if (a.elem != b.elem || a.dims.size() != b.dims.size())
    return false;
  Dims swapped = b.dims;
  if (swapped.size() >= 2)
    std::swap(swapped[swapped.size() - 1], swapped[swapped.size() - 2]);
  bool plain = a.dims == b.dims, turned = swapped.size() >= 2 && a.dims == swapped;
  if (!plain && !turned)
    return false;
  bool known = a.place != Initializer::Missing && b.place != Initializer::Missing;
  if (known && (mustEqual || (plain && turned))) {
    auto x = file_.read(a), y = file_.read(b);
    if (!x || !y) {
      llvm::consumeError(x.takeError());
      llvm::consumeError(y.takeError());
      return false;
    }
    bool same = plain && *x == *y;
    bool sameTurned = !same && turned && *x == transposedBytes(*y, b.dims, elemBytes(*b.elem));
    if (mustEqual && !same && !sameTurned)
      return false;
    turned = sameTurned || (!plain && turned);
  } else {
    turned = !plain;
  }
  Parameter *p = out_.uses_[a.name].parameter, *old = out_.uses_[b.name].parameter;
  bool base = out_.uses_[a.name].transposed;
  out_.uses_[b.name] = {p, turned != base};
  llvm::erase_if(out_.all_, [&](auto &x) { return x.get() == old; });
  remark("'" + b.name + "' is '" + a.name + "'" + (turned ? " transposed" : "") +
         ": one parameter (" + why + ")");
  return true;
}

void Decision::tieByName() {
  llvm::StringMap<Fact *> first;
  for (int pass = 0; pass < 2; ++pass) // initializers with the parameter's own name come first
    for (Fact &f : facts_) {
      if (f.role != Parameter::Trained && f.role != Parameter::Frozen)
        continue;
      if (f.named || unties(f) || f.meaning.empty() || (f.source->name == f.meaning) != (pass == 0))
        continue;
      Fact *&to = first[f.meaning];
      if (!to) {
        to = &f;
        continue;
      }
      if (!tie(*to, f, "the metadata of their uses names the same parameter", /*mustEqual=*/true))
        warn("'" + f.source->name + "' and '" + to->source->name + "' are both parameter " +
             f.meaning +
             " in the model, but differ in the file: they are trained apart; tie them with --tie=" +
             to->source->name + "," + f.source->name);
    }
}

void Decision::tieByValue() {
  if (!evidence_.hasFx)
    return;
  for (Fact &f : facts_) {
    if (f.role != Parameter::Trained || !f.isAnonymous || !f.meaning.empty() || f.named ||
        unties(f) || f.source->dims.size() < 2)
      continue;
    for (Fact &g : facts_)
      if (&g != &f && g.role == Parameter::Trained && !g.isAnonymous && !g.named && !unties(g) &&
          g.source->count() == f.source->count() &&
          tie(g, f, "equal values, and one has no name", /*mustEqual=*/true))
        break;
  }
}

llvm::Error Decision::applyTies() {
  for (const std::string &u : options_.unties)
    if (!fact(u))
      return error("--untie=" + u + ": the model has no initializer of that name");
  for (const std::string &t : options_.ties) {
    auto [a, b] = StringRef(t).split(',');
    Fact *to = fact(a.trim()), *from = fact(b.trim());
    if (!to || !from)
      return error(
          "--tie=" + t + ": " +
          (b.empty() ? "two names are needed, A,B"
                     : "the model has no initializer '" + (to ? b.trim() : a.trim()).str() + "'"));
    if (out_.uses_[to->source->name].parameter == out_.uses_[from->source->name].parameter)
      continue;
    if (!tie(*to, *from, "--tie", /*mustEqual=*/false))
      return error("--tie=" + t + ": shapes do not fit, " + to->source->type().str() + " and " +
                   from->source->type().str());
    out_.uses_[to->source->name].parameter->role = Parameter::Trained;
  }
  return llvm::Error::success();
}
