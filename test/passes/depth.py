"""Graphs of n layers, and of one layer n operators wide: what the passes look at must grow as n does, not as its square.

    depth.py ZCC-OPT

For each graph two sizes, the second four times the first. A pass may count 6.5 times the steps (--time-passes): n log n is 5,
n squared 16; plan-memory tries one to three orders, and join-updates plans memory up to three times. The sizes are such that the smaller one meets the bounds of all searches that have one.
"""
import re, subprocess, sys, tempfile


def module(params, body, loss):
    lines = [f"  param %{p} : f32[{d}] = normal(0.0, 0.1) {{trained}}" for p, d in params]
    lines += ["  func @micro(%x : f32[4x8]) -> (f32[]) {"] + ["    " + b for b in body]
    lines += [f"    %sum = reduce_sum %{loss} {{axes = [0, 1]}} : f32[1x1]", "    %l = reshape %sum {dims = []} : f32[]",
              "    return %l", "  }"]
    return "\n".join(["module @m {"] + lines + ["}"])


def blocks(n):
    """Residual blocks of product, tanh, product, sum."""
    params, body, x = [], [], "x"
    for i in range(n):
        params += [(f"a{i}", "8x8"), (f"b{i}", "8x8")]
        body += [f"%h{i} = matmul %{x}, %a{i} : f32[4x8]", f"%t{i} = tanh %h{i} : f32[4x8]",
                 f"%o{i} = matmul %t{i}, %b{i} : f32[4x8]", f"%y{i} = add %{x}, %o{i} : f32[4x8]"]
        x = f"y{i}"
    return module(params, body, x)


def chain(n):
    """Elementwise operators that do not simplify away."""
    ops = ["tanh", "sin", "sigmoid", "cos"]
    body, x = ["%x0 = mul %x, %w : f32[4x8]"], "x0"
    for i in range(n):
        body.append(f"%x{i + 1} = {ops[i % 4]} %{x} : f32[4x8]")
        x = f"x{i + 1}"
    return module([("w", "8")], body, x)


def wide(n):
    """A sum of many operands, each of which reads one value and a parameter of its own."""
    body, x = ["%x0 = mul %x, %w : f32[4x8]"], "x0"
    for i in range(n):
        body += [f"%p{i} = mul %x0, %w{i} : f32[4x8]", f"%t{i} = tanh %p{i} : f32[4x8]", f"%s{i} = add %{x}, %t{i} : f32[4x8]"]
        x = f"s{i}"
    return module([("w", "8")] + [(f"w{i}", "8") for i in range(n)], body, x)


def total(n):
    """A sum of one value and many parameters, small beside it: each partial sum is cheap to compute again."""
    body, x = ["%x0 = mul %x, %w : f32[4x8]"], "x0"
    for i in range(n):
        body.append(f"%s{i} = add %{x}, %w{i} : f32[4x8]")
        x = f"s{i}"
    return module([("w", "8")] + [(f"w{i}", "8") for i in range(n)], body + [f"%t = tanh %{x} : f32[4x8]"], "t")


def values(n):
    """A sum of the values along a chain: all are read again at its end."""
    body, x = ["%x0 = mul %x, %w : f32[4x8]"], "x0"
    body += [f"%x{i + 1} = {['tanh', 'sin', 'sigmoid', 'cos'][i % 4]} %x{i} : f32[4x8]" for i in range(n)]
    for i in range(n):
        body.append(f"%s{i} = add %{x}, %x{i + 1} : f32[4x8]")
        x = f"s{i}"
    return module([("w", "8")], body, x)


def tower(n):
    """Beside a product in tiles, a tower of residual blocks that does not depend on it: there are 2^n ways through."""
    body, v = ["%p = matmul %x, %w {!tiles = 2} : f32[4x16]", "%v0 = broadcast %u {dims = [4, 16]} : f32[4x16]"], "v0"
    for i in range(n):
        body += [f"%t{i} = tanh %{v} : f32[4x16]", f"%v{i + 1} = add %{v}, %t{i} : f32[4x16]"]
        v = f"v{i + 1}"
    return module([("w", "8x16"), ("u", "16")], body + [f"%y = add %p, %{v} : f32[4x16]", "%r = reduce_sum %y {axes = [1]} : f32[4x1]"], "r")


def shared(n):
    """A scan over sums that share their terms, as many ways."""
    body, v = [], "u"
    for i in range(n):
        body += [f"%t{i} = transpose %{v} {{perm = [1, 0]}} : f32[4x4]", f"%v{i} = add %{v}, %t{i} : f32[4x4]"]
        v = f"v{i}"
    lines = ["  body @b(%h : f32[4x4], %u : f32[4x4]) -> (f32[4x4]) {"] + ["    " + b for b in body]
    lines += [f"    %m = matmul %h, %{v} : f32[4x4]", "    return %m", "  }"]
    text = module([("w", "4x4")], ['%s = scan %x, %w {body = "b", carried = 1, trips = 3} : f32[4x4]'], "s").replace("4x8", "4x4")
    return text.replace("  func @micro", "\n".join(lines) + "\n  func @micro")


def compiled(tool, text, *flags):
    return passed(tool, text, "--pipeline", "--optimizer=sgd", "--time-passes", *flags)


def passed(tool, text, *flags):
    with tempfile.NamedTemporaryFile("w", suffix=".zir") as f:
        f.write(text)
        f.flush()
        out = subprocess.run([tool, *flags, f.name], capture_output=True, text=True)
    if out.returncode:
        sys.exit(out.stderr)
    return out


def longest(tool, text):
    """The lines of the longest kernel."""
    kernels = re.findall(r"^  kernel @.*?^  }", compiled(tool, text).stdout, re.M | re.S)
    return max(k.count("\n") for k in kernels)


def steps(tool, text, *flags):
    """By pass; the same name in several places of the pipeline is told apart by its number."""
    out = compiled(tool, text, *flags)
    rows = re.findall(r"^ +[0-9.]+ +([0-9]+)  ([a-z-]+)$", out.stderr, re.M)
    return {f"{i} {name}": int(count) for i, (count, name) in enumerate(rows)}


def main():
    tool, wrong = sys.argv[1], 0
    again = "--checkpoint-activations=2"
    away = ["--offload-optimizer=nvme", "--offload-param=nvme", "--param-persistence-threshold=0", "--clip-grad-norm=1"]
    rows = ["--grad-accum=2", "--accum-order=blocks", "--offload-activations=nvme"]
    ranks = ["--ranks=2", "--zero=3", "--reduce-bucket-size=500000000", "--allgather-bucket-size=500000000", "--param-persistence-threshold=0"]
    for graph, n, *flags in (blocks, 400), (blocks, 200, again), (blocks, 100, *away), (blocks, 200, *rows), (blocks, 200, *ranks), (chain, 1200), (wide, 400), (wide, 200, again), (total, 800), (values, 1600):
        few, many = steps(tool, graph(n), *flags), steps(tool, graph(4 * n), *flags)
        for name, count in many.items():
            times = 3 if name.endswith(("plan-memory", "join-updates")) else 1
            if flags == ranks and name.endswith("plan-memory"):  # what is gathered at once lives at once, each beside all others
                continue
            if count > 6.5 * times * few[name] + 10 * n:
                print(f"{graph.__name__}: {name}: {few[name]} steps for {n}, {count} for {4 * n}")
                wrong += 1
    few, many = longest(tool, total(200)), longest(tool, total(800))
    if many > few:
        print(f"total: the longest kernel has {few} lines for 200 operands, {many} for 800")
        wrong += 1
    for graph, flag in (tower, "--tile-operators"), (shared, "--differentiate"):
        few, many = (passed(tool, graph(n), flag).stdout.count("\n") for n in (20, 80))
        if many > 4.5 * few:
            print(f"{graph.__name__}: {few} lines for 20, {many} for 80")
            wrong += 1
    print(f"{wrong} passes grow faster than the graph")


main()
