// Which of its ways a library takes for a node is what calibration found fastest for what is most like it. A way is a function of
// shapes, layouts, elements, threads and the profile, so that a node that is computed again, elsewhere, has the same bits.
#include "ir/Control.h"
#include "ir/Op.h"
#include "passes/Pass.h"
#include "passes/Target.h"

using namespace zcc;

llvm::Expected<bool> zcc::chooseWays(Module &m, PassContext &c) {
  bool changed = false;
  if (!c.target)
    return changed;
  for (auto &f : m.functions)
    for (auto &n : f->nodes) {
      if (f->isKernel || n->attrs.has("way"))
        continue;
      if (std::string way = c.target->wayOf(*n); !way.empty()) {
        n->attrs.set("way", way);
        changed = true;
      }
    }
  return changed;
}
