// scan and cond. Their types come from the bodies that they name (ir/Control.h); the interpreter and the emitter know how they
// run.
#include "ir/ops/Rules.h"

using namespace zcc;
using namespace zcc::rules;

static TypesOr inferByBodies(Operands, const Attrs &) { return error("the types of what names bodies are theirs"); }

constexpr OpDef ops::scan = defineOp({
    .name = "scan",
    .summary = "runs a body once per slice of tensors along axis 0, or `trips` times, carrying values from one to the next",
    .operands = {{{"x", OperandDef::Variadic}}},
    .attrs = {{{"body", AttrKind::Body, nullptr},
               {"carried", AttrKind::Int, "0"},
               {"scanned", AttrKind::Int, "0"},
               {"trips", AttrKind::Int, "0"},
               {"reverse", AttrKind::Int, "0"}}},
    .results = -1,
    .infer = inferByBodies,
    .structural = Structural::Scan,
    .noGrad = "differentiate generates bodies for it",
    .flops = noFlops,
});

constexpr OpDef ops::cond = defineOp({
    .name = "cond",
    .summary = "runs one of two bodies",
    .operands = {{{"condition"}, {"x", OperandDef::Variadic}}},
    .attrs = {{{"then", AttrKind::Body, nullptr}, {"else", AttrKind::Body, nullptr}}},
    .results = -1,
    .infer = inferByBodies,
    .structural = Structural::Cond,
    .noGrad = "differentiate generates bodies for it",
    .flops = noFlops,
});
