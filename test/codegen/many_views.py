#!/usr/bin/env python3
"""many_views.py N: a module that joins every second column of N matrices, from the last to the first."""
import sys

n = int(sys.argv[1])
names = [f"%s{i}" for i in range(n)]
print(f"module @views {{\n  func @eval(%x : f32[4x{2 * n}]) -> (\"y\" : f32[4x{n}]) {{")
for i, name in enumerate(names):
    at = 2 * (n - i) - 1
    print(f"    {name} = slice %x {{starts = [0, {at}], ends = [4, {at + 1}], steps = [1, 1]}} : f32[4x1]")
print(f"    %y = concat {', '.join(names)} {{axis = 1}} : f32[4x{n}]\n    return %y\n  }}\n}}")
