"""Prints a chain of products of 200 f32 inputs: more values to convert than a small table holds."""
N = 200
print("module @many {\n  func @micro(" + ", ".join(f"%a{i} : f32[8x8]" for i in range(N)) + ") -> (\"loss\" : f32[]) {")
print("    %s0 = matmul %a0, %a0 : f32[8x8]")
for i in range(1, N):
    print(f"    %s{i} = matmul %s{i - 1}, %a{i} : f32[8x8]")
print(f"    %loss = reduce_sum %s{N - 1} {{axes = [0, 1]}} : f32[1x1]\n    %l = reshape %loss {{dims = []}} : f32[]\n    return %l\n  }}\n}}")
