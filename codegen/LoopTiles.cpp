// Loops in square tiles of two axes, where operands lie along the one and results along the other.
#include "codegen/LoopEmitter.h"
#include "codegen/ScalarCode.h"

using namespace zcc;

/// Copies of what lies along the tiled axis, so that the loops go along all that they read.
void LoopEmitter::turnOperands(llvm::function_ref<std::string(size_t)> end) {
  constexpr size_t kMost = 4; // that stay in the nearest cache
  const size_t inner = p.innermost();
  auto begin = [](size_t axis) { return "b" + num(axis); };
  auto within = [&](size_t axis) { return axisName(axis) + " - " + begin(axis); };
  place = "(" + within(p.tiledAxis) + ") * " + num(p.tile) + " + " + within(inner);
  for (unsigned i = 0; i < p.accesses.size() && arrays.size() < kMost; ++i) {
    const LoopAccess &a = p.accesses[i];
    const int64_t bytes = elemBytes(a.value->type.elem);
    if (a.kind != LoopAccess::Operand || a.strides[p.tiledAxis] != 1 || a.strides[inner] <= 1 || (bytes != 2 && bytes != 4))
      continue;
    const std::string name = fresh("t"), from = LoopValues::element(a);
    auto count = [&](size_t axis) { return p.dims[axis] % p.tile ? end(axis) + " - " + begin(axis) : num(p.tile); };
    out.line("alignas(64) " + storageType(a.value->type.elem) + " " + name + "[" + num(p.tile * p.tile) + "];");
    out.open("");
    for (size_t axis : {p.tiledAxis, inner})
      out.line("const int64_t " + axisName(axis) + " = " + begin(axis) + ";");
    out.line("z_turn(" + name + ", " + num(p.tile) + ", &" + from + ", " + stride(a, inner) + ", " + count(p.tiledAxis) + ", " +
             count(inner) + ");");
    out.close();
    arrays[i] = name;
  }
}

void LoopEmitter::tiles() {
  size_t inner = p.innermost();
  parallel(p.dims.size());
  for (size_t i = 0; i < p.dims.size(); ++i) {
    if (i != inner && i != p.tiledAxis) {
      openLoop(i);
      continue;
    }
    std::string b = "b" + num(i);
    out.open("for (int64_t " + b + " = 0; " + b + " < " + num(p.dims[i]) + "; " + b + " += " + num(p.tile) + ")");
  }
  auto end = [&](size_t i) {
    std::string e = "b" + num(i) + " + " + num(p.tile), d = num(p.dims[i]);
    return p.dims[i] % p.tile ? "(" + e + " < " + d + " ? " + e + " : " + d + ")" : e;
  };
  turnOperands(end);
  std::string o = axisName(p.tiledAxis);
  out.open("for (int64_t " + o + " = b" + num(p.tiledAxis) + "; " + o + " < " + end(p.tiledAxis) + "; ++" + o + ")");
  innerLoop(p.passes[0], 1, "b" + num(inner), end(inner));
  closeLoops(p.dims.size() + 1);
  arrays.clear();
}
