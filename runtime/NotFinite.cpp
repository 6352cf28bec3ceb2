// Losses that are not finite: what is said of them.
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/Session.h"
#include "runtime/Weights.h"
#include <climits>
#include <cmath>

namespace zccrt {

/// Whether this rank's piece of a parameter is.
static bool isFinite(const zccrt_global &g, const Arena &arena, const Comm &comm) {
  int64_t count = elementCount(g.t);
  if (g.shards > 1)
    count = comm.pieceLength(count, comm.rank, 0, count);
  std::vector<char> aside;
  const char *data = arena.read(g.t.offset, count * elemBytes(g.t.elem), aside);
  for (int64_t i = 0; i < count; ++i)
    if (!std::isfinite(floatAt(data, g.t.elem, i)))
      return false;
  return true;
}

/// The model's name of the first trained parameter that is not finite on some rank; nullptr: all
/// are. Every rank calls it.
const char *Session::firstParameterNotFinite() {
  double mine = INT_MAX;
  for (int i = p.nglobals; i--;)
    if (p.globals[i].trained && isFloat(p.globals[i].t.elem) &&
        !isFinite(p.globals[i], spaces->arenas()[p.globals[i].space], comm))
      mine = i;
  comm.exchange(&mine, sizeof mine, gathered.data());
  double first = *std::min_element(gathered.begin(), gathered.end());
  if (first == INT_MAX)
    return nullptr;
  const zccrt_global &g = wholeOf(p, p.globals[static_cast<int>(first)]);
  return g.onnx_name && *g.onnx_name ? g.onnx_name : g.name;
}

/// Skipped without a loss scale whose adjusting would explain it.
static bool isSkipped(const StepReport &r) { return r.skipped.value_or(false) && !r.lossScale; }

/// "the loss 'loss' is not a number, ..."
std::string Session::describeNotFinite(const StepReport &r) {
  if (std::isfinite(r.loss) && isSkipped(r)) {
    const char *name = firstNotFinite();
    return format("the gradient of '%s' is not finite, and the step is skipped", name ? name : "some parameters together");
  }
  bool isEval = std::isfinite(r.loss);
  double loss = isEval ? *r.evalLoss : r.loss;
  std::string text = isEval ? "the evaluation's loss" : "the loss";
  if (const char *name = p.noutputs && p.has_loss ? p.outputs[0].name : nullptr; name && *name)
    text += format(" '%s'", name);
  text += std::isnan(loss) ? " is not a number" : " is infinite";
  if (const char *name = firstNotFinite())
    text += format(", the gradient of '%s' is not finite", name);
  else if (const char *updated = firstParameterNotFinite())
    text += format(", parameter '%s' is not finite after the update", updated);
  return text;
}

bool Session::isWrong(const StepReport &r) const {
  return !std::isfinite(r.loss) || !std::isfinite(r.evalLoss.value_or(0)) || isSkipped(r);
}

/// One warning at the first loss or step's gradients that are not finite, or the end of the run. Every rank sees the same.
void Session::checkLoss(const StepReport &r) {
  if (!isWrong(r))
    return;
  if (o.stopOnNan) {
    std::string text = describeNotFinite(r);
    together([&] { fail("%s; lower the learning rate, or clip with zcc's --clip-grad-norm", text.c_str()); });
  }
  if (saidNotFinite)
    return;
  saidNotFinite = true;
  std::string text = describeNotFinite(r);
  if (comm.rank == 0)
    log->warnNotFinite(r.step, std::isfinite(r.loss) && isSkipped(r) ? "gradients" : "loss", text);
}

} // namespace zccrt
