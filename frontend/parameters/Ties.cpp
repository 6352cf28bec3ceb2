// Which initializers are one parameter: the metadata of their uses names it, their values agree where one side is anonymous, or
// --tie says so.
#include "frontend/parameters/Decision.h"
#include "onnx.pb.h"

using namespace zcc;
using llvm::StringRef;

std::string zcc::transposedBytes(const std::string &bytes, llvm::ArrayRef<int64_t> dims, int64_t elem) {
  int64_t rows = dims[dims.size() - 2], cols = dims.back(), count = elementCount(dims) / std::max<int64_t>(1, rows * cols);
  std::string out(bytes.size(), 0);
  for (int64_t m = 0; m < count; ++m)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        memcpy(&out[((m * cols + c) * rows + r) * elem], &bytes[((m * rows + r) * cols + c) * elem], elem);
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
  ParameterUse base = out_.uses_[a.name];
  Parameter *old = out_.uses_[b.name].parameter;
  if (old == base.parameter)
    return true;
  for (auto &u : out_.uses_) // whatever was tied to `from` follows it
    if (u.second.parameter == old)
      u.second = {base.parameter, (u.second.transposed != turned) != base.transposed};
  llvm::erase_if(out_.all_, [&](auto &x) { return x.get() == old; });
  remark("'" + b.name + "' is '" + a.name + "'" + (turned ? " transposed" : "") + ": one parameter (" + why + ")");
  return true;
}

void Decision::tieByName() {
  if (file_.training)
    return; // its algorithm says what each initializer is
  llvm::StringMap<Fact *> first;
  for (int pass = 0; pass < 2; ++pass) // initializers with the parameter's own name come first
    for (Fact &f : facts_) {
      if (f.role != Parameter::Trained && f.role != Parameter::Frozen)
        continue;
      if (unties(f) || f.meaning.empty() || (f.source->name == f.meaning) != (pass == 0))
        continue;
      Fact *&to = first[f.meaning];
      if (!to) {
        to = &f;
        continue;
      }
      if (!tie(*to, f, "the metadata of their uses names the same parameter", /*mustEqual=*/true))
        warn("'" + f.source->name + "' and '" + to->source->name + "' are both parameter " + f.meaning +
             " in the model, but differ in the file: they are trained apart; tie them with --tie=" + to->source->name + "," +
             f.source->name);
    }
}

void Decision::tieByValue() {
  if (!evidence_.hasFx)
    return;
  for (Fact &f : facts_) {
    if (f.role != Parameter::Trained || !f.isAnonymous || !f.meaning.empty() || f.named || unties(f) || f.source->dims.size() < 2)
      continue;
    for (Fact &g : facts_)
      if (&g != &f && g.role == Parameter::Trained && !g.isAnonymous && !g.named && !unties(g) &&
          g.source->count() == f.source->count() && tie(g, f, "equal values, and one has no name", /*mustEqual=*/true))
        break;
  }
}

/// A file without metadata is taken literally; what folding has duplicated in it is only pointed
/// out.
void Decision::suggestTies() {
  if (evidence_.hasFx)
    return;
  for (Fact &f : facts_) {
    const Initializer &t = *f.source;
    if (f.role != Parameter::Trained || f.named || !StringRef(t.name).starts_with("onnx::") || t.dims.size() != 2 ||
        hasFewValues(t))
      continue;
    for (Fact &g : facts_)
      if (&g != &f && g.role == Parameter::Trained && g.source->count() == t.count() &&
          !StringRef(g.source->name).starts_with("onnx::") && isSame(*g.source, t)) {
        std::string pair = g.source->name + "," + t.name;
        if (!llvm::is_contained(options_.ties, pair))
          warn("'" + t.name + "' has the values of '" + g.source->name +
               "' and is trained apart; if the model ties them, add --tie=" + pair);
        break;
      }
  }
}

/// Whether two matrices hold the same, one maybe transposed.
bool Decision::isSame(const Initializer &a, const Initializer &b) const {
  if (a.elem != b.elem || a.place == Initializer::Missing || b.place == Initializer::Missing)
    return false;
  auto x = file_.read(a), y = file_.read(b);
  if (!x || !y) {
    llvm::consumeError(x.takeError());
    llvm::consumeError(y.takeError());
    return false;
  }
  return *x == *y || (b.dims.size() >= 2 && *x == transposedBytes(*y, b.dims, elemBytes(*b.elem)));
}

/// --untie of an initializer that has no twin to part from: each of its uses is a parameter.
void Decision::splitByUse(Fact &f) {
  auto &uses = evidence_.uses(f.source->name);
  for (size_t i = 1; i < uses.size(); ++i) {
    if (out_.splitIndex_.count({uses[i].node, uses[i].index}))
      continue; // a buffer
    Parameter *p = add(f, f.source->name + "." + std::to_string(i));
    p->evidence = "--untie";
    out_.splitIndex_[{uses[i].node, uses[i].index}] = p;
    out_.splits_.push_back({uses[i].node, uses[i].index, f.source->name, p});
  }
}

llvm::Error Decision::applyTies() {
  for (const std::string &u : options_.unties) {
    Fact *f = fact(u);
    if (!f)
      return error("--untie=" + u + ": the model has no initializer of that name");
    bool hasTwin = llvm::any_of(facts_, [&](Fact &g) { return &g != f && !f->meaning.empty() && g.meaning == f->meaning; });
    if (hasTwin)
      continue;
    if (evidence_.uses(u).size() < 2)
      return error("--untie=" + u + ": it is tied to nothing and has one use");
    splitByUse(*f);
  }
  for (const std::string &t : options_.ties) {
    auto [a, b] = StringRef(t).split(',');
    Fact *to = fact(a.trim()), *from = fact(b.trim());
    if (!to || !from)
      return error(
          "--tie=" + t + ": " +
          (b.empty() ? "two names are needed, A,B" : "the model has no initializer '" + (to ? b.trim() : a.trim()).str() + "'"));
    if (out_.uses_[to->source->name].parameter == out_.uses_[from->source->name].parameter)
      continue;
    if (!tie(*to, *from, "--tie", /*mustEqual=*/false))
      return error("--tie=" + t + ": shapes do not fit, " + to->source->type().str() + " and " + from->source->type().str());
    out_.uses_[to->source->name].parameter->role = Parameter::Trained;
  }
  return llvm::Error::success();
}
