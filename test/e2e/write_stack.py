#!/usr/bin/env python3
"""write_stack.py LAYERS WIDTH ROWS OUT.zir DATA.npy: layers of a product and a tanh in a module of text, and samples for it. The first layer's weights are
read again behind all, and one parameter is read by nobody."""
import struct, sys

import write_head

layers, width, rows = map(int, sys.argv[1:4])


def body():
    yield f"func @NAME(%x : f32[{rows}x{width}]) -> (\"loss\" : f32[]) {{"
    last = "x"
    for i, weight in enumerate([*range(layers), 0]):
        yield f"  %y{i} = matmul %{last}, %w{weight} : f32[{rows}x{width}]"
        yield f"  %h{i} = tanh %y{i} : f32[{rows}x{width}]"
        last = f"h{i}"
    yield f"  %z = mul %{last}, %{last} : f32[{rows}x{width}]"
    yield "  %s = reduce_sum %z {axes = [0, 1]} : f32[1x1]"
    yield "  %loss = reshape %s {dims = []} : f32[]"
    yield "  return %loss"
    yield "}"


with open(sys.argv[4], "w") as f:
    print("module @stack {", file=f)
    bound = 1.5 / width**0.5
    for name in [*(f"w{i}" for i in range(layers)), "unread"]:
        print(f"  param %{name} : f32[{width}x{width}] = uniform(-{bound:.6f}, {bound:.6f}) {{trained}}", file=f)
    for name in ("micro", "eval"):
        for line in body():
            print("  " + line.replace("NAME", name), file=f)
    print("}", file=f)
count = 2 * rows * width
write_head.write(sys.argv[5], "<f4", (2 * rows, width), struct.pack(f"<{count}f", *(i % 13 / 13 - 0.5 for i in range(count))))
