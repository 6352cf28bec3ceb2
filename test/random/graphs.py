#!/usr/bin/env python3
"""Random small graphs of random operators: what a compiled program computes against the naive interpreter.

    graphs.py ZCC ZCC_OPT TMP [--graphs 300] [--programs 1] [--seed 0] [--flags "--threads=2"]

Each program is one module whose @eval holds that many independent graphs, on shared inputs. Results agree to 2e-5
relative to the largest magnitude of the result, and to 50 times what the interpreter's own single and double precision
differ by; what is not finite must be so in both.
Nothing but Python's own library is needed.
"""
import argparse, ast, math, os, random, shlex, struct, subprocess, sys, zipfile

UNARY = "neg abs sign exp tanh sigmoid relu gelu gelu_tanh silu softplus sin cos atan erf expm1 floor ceil".split()
BINARY = "add sub mul max min".split()
COMPARE = "lt le gt ge eq ne".split()
TYPES = {"f32": ("<f4", "f"), "f64": ("<f8", "d"), "i64": ("<i8", "q"), "bool": ("|b1", "?")}


def count(dims):
    return math.prod(dims)


def text(kind, dims):
    return f"{kind}[{'x'.join(map(str, dims))}]"


class Module:
    """Text of one @eval with many graphs."""

    def __init__(self, rng, graphs):
        self.rng, self.lines, self.results, self.number = rng, [], [], 0
        self.inputs = {}
        for i in range(12):
            dims = [rng.choice([1, 2, 3, 4, 5, 7, 8, 16, 17]) for _ in range(rng.randint(0, 4))]
            while count(dims) > 600:
                dims[dims.index(max(dims))] = 2
            self.inputs[f"x{i}"] = ("f32", dims)
        self.inputs["n"] = ("i64", [6])
        for _ in range(graphs):
            self.graph()

    def node(self, op, operands, kind, dims, attrs=""):
        name = f"v{self.number}"
        self.number += 1
        args = ", ".join("%" + o for o in operands)
        self.lines.append(f"    %{name} = {op} {args}{' {' + attrs + '}' if attrs else ''} : {text(kind, dims)}")
        self.values.append((name, kind, dims))
        return name

    def pick(self, kind="f32", test=lambda d: True):
        found = [v for v in self.values if v[1] == kind and test(v[2])]
        return self.rng.choice(found[-6:]) if found else None

    def graph(self):
        rng = self.rng
        names = rng.sample([k for k in self.inputs if k != "n"], 3)
        self.values = [(k, *self.inputs[k]) for k in names]
        for _ in range(rng.randint(2, 9)):
            getattr(self, rng.choice(STEPS))()
        used = {w.strip("%,") for l in self.lines for w in l.split(" = ")[1].split()[1:] if w.startswith("%")}
        last = [v for v in self.values if v[0].startswith("v") and v[0] not in used]
        self.results += last

    def unary(self):
        v, k, d = self.pick()
        self.node(self.rng.choice(UNARY), [v], k, d)

    def broadcast_of(self, dims):
        """dims with some axes 1 and some leading ones gone"""
        d = [1 if self.rng.random() < 0.3 else x for x in dims]
        return d[self.rng.randint(0, len(d)):] if self.rng.random() < 0.3 else d

    def like(self, dims):
        """a value that broadcasts to dims, sliced out of another or a constant"""
        d = self.broadcast_of(dims)
        for v, k, e in self.values:
            if k == "f32" and e == d and self.rng.random() < 0.7:
                return v
        x = round(self.rng.uniform(-2, 2), 3)
        return self.node("constant", [], "f32", d, f"dims = {d}, value = [{float(x)}]")

    def binary(self):
        v, k, d = self.pick()
        operands = [v, self.like(d)]
        self.rng.shuffle(operands)
        self.node(self.rng.choice(BINARY), operands, "f32", d)

    def compare(self):
        v, k, d = self.pick()
        self.node(self.rng.choice(COMPARE), [v, self.like(d)], "bool", d)

    def select(self):
        c = self.pick("bool")
        if c:
            self.node("select", [c[0], self.like(c[2]), self.node("cast", [c[0]], "f32", c[2], 'to = "f32"')], "f32", c[2])

    def reduce(self):
        v, k, d = self.pick()
        if not d:
            return
        axes = sorted(self.rng.sample(range(len(d)), self.rng.randint(1, len(d))))
        op = self.rng.choice(["reduce_sum", "reduce_sum", "reduce_max", "reduce_min"])
        self.node(op, [v], k, [1 if i in axes else x for i, x in enumerate(d)], f"axes = {axes}")

    def softmax(self):
        v, k, d = self.pick()
        if d:
            self.node(self.rng.choice(["softmax", "log_softmax"]), [v], k, d, f"axis = {self.rng.randrange(len(d))}")

    def reshape(self):
        v, k, d = self.pick()
        n, out = count(d), []
        while n > 1 and len(out) < 4:
            f = self.rng.choice([x for x in range(1, n + 1) if n % x == 0])
            out.append(f)
            n //= f
        self.node("reshape", [v], k, out + [n], f"dims = {out + [n]}")

    def transpose(self):
        v, k, d = self.pick()
        perm = self.rng.sample(range(len(d)), len(d))
        if d:
            self.node("transpose", [v], k, [d[p] for p in perm], f"perm = {perm}")

    def slice(self):
        v, k, d = self.pick()
        if not d:
            return
        axis = self.rng.randrange(len(d))
        start = self.rng.randrange(d[axis])
        step = self.rng.randint(1, 3)
        end = self.rng.randint(start + 1, d[axis])
        out = d[:axis] + [(end - start + step - 1) // step] + d[axis + 1:]
        starts, ends, steps = [0] * len(d), list(d), [1] * len(d)
        starts[axis], ends[axis], steps[axis] = start, end, step
        self.node("slice", [v], k, out, f"starts = {starts}, ends = {ends}, steps = {steps}")

    def broadcast(self):
        v, k, d = self.pick()
        out = [self.rng.choice([2, 3])] * self.rng.randint(0, 1) + [x if x > 1 else self.rng.choice([1, 4]) for x in d]
        if out != d and count(out) < 5000 and len(out) < 6:
            self.node("broadcast", [v], k, out, f"dims = {out}")

    def concat(self):
        v, k, d = self.pick()
        if not d:
            return
        axis = self.rng.randrange(len(d))
        same = [x[0] for x in self.values if x[1] == k and len(x[2]) == len(d)
                and all(a == b for i, (a, b) in enumerate(zip(x[2], d)) if i != axis)]
        parts = [self.rng.choice(same) for _ in range(self.rng.randint(1, 3))]
        sizes = {x[0]: x[2] for x in self.values}
        self.node("concat", parts, k, d[:axis] + [sum(sizes[p][axis] for p in parts)] + d[axis + 1:], f"axis = {axis}")

    def pad(self):
        v, k, d = self.pick()
        lo, hi = ([self.rng.randint(0, 2) for _ in d] for _ in range(2))
        if d and count(x + 4 for x in d) < 5000:
            self.node("pad", [v], k, [a + b + c for a, b, c in zip(lo, d, hi)], f"lo = {lo}, hi = {hi}, value = 0.5")

    def matmul(self):
        a = self.pick(test=lambda d: len(d) >= 2)
        if not a:
            return
        v, k, d = a
        perm = list(range(len(d) - 2)) + [len(d) - 1, len(d) - 2]
        t = self.node("transpose", [v], k, [d[p] for p in perm], f"perm = {perm}")
        pair = [v, t] if self.rng.random() < 0.5 else [t, v]
        n = d[-2] if pair[0] == v else d[-1]
        self.node("matmul", pair, k, d[:-2] + [n, n])

    def gather(self):
        v, k, d = self.pick()
        axes = [i for i, x in enumerate(d) if x >= 2]
        if axes:  # the indices are 0 and 1
            axis = self.rng.choice(axes)
            self.node("gather", [v, "n"], k, d[:axis] + [6] + d[axis + 1:], f"axis = {axis}")

    def cumsum(self):
        v, k, d = self.pick()
        if d:
            self.node("cumsum", [v], k, d, f"axis = {self.rng.randrange(len(d))}")

    def zir(self):
        args = ", ".join(f"%{n} : {text(*t)}" for n, t in self.inputs.items())
        outs = ", ".join(f'"{n}" : {text(k, d)}' for n, k, d in self.results)
        back = ", ".join("%" + n for n, _, _ in self.results)
        body = "\n".join(self.lines)
        return f"module @random {{\n  func @eval({args}) -> ({outs}) {{\n{body}\n    return {back}\n  }}\n}}\n"


STEPS = ["unary"] * 4 + ["binary"] * 5 + ["reduce"] * 3 + ["reshape", "transpose", "slice", "broadcast"] * 2 + [
    "compare", "select", "softmax", "concat", "pad", "matmul", "matmul", "gather", "cumsum"]


def npy(kind, dims, values):
    descr, code = TYPES[kind]
    shape = "(" + "".join(f"{d}," for d in dims) + ")"
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + struct.pack(f"<{len(values)}{code}", *values)


def read_npz(path):
    out = {}
    with zipfile.ZipFile(path) as z:
        for name in z.namelist():
            raw = z.read(name)
            size, start = (struct.unpack("<H", raw[8:10])[0], 10) if raw[6] == 1 else (struct.unpack("<I", raw[8:12])[0], 12)
            head = ast.literal_eval(raw[start:start + size].decode())
            code = {t[0]: t[1] for t in TYPES.values()}[head["descr"]]
            data = raw[start + size:]
            out[name.removesuffix(".npy")] = head["shape"], struct.unpack(f"<{count(head['shape'])}{code}", data)
    return out


def differs(got, want, exact):
    """the first difference that rounding does not explain, or None"""
    top = max([abs(w) for w in want if math.isfinite(w)], default=0)
    rounding = max([abs(w - x) for w, x in zip(want, exact) if math.isfinite(w) and math.isfinite(x)], default=0)
    for g, w in zip(got, want):
        if math.isfinite(w) and math.isfinite(g):
            if abs(g - w) > 2e-5 * max(top, 1e-3) + 50 * rounding:
                return f"{g!r}, the interpreter {w!r}"
        elif not (g == w or (g != g and w != w)):
            return f"{g!r}, the interpreter {w!r}"
    return None


def one(a, number):
    rng = random.Random(a.seed + number)
    m = Module(rng, a.graphs)
    base = os.path.join(a.tmp, f"random{a.seed + number}")
    with open(base + ".zir", "w") as f:
        f.write(m.zir())
    with zipfile.ZipFile(base + ".npz", "w") as z:
        for name, (kind, dims) in m.inputs.items():
            values = [rng.randint(0, 1) if kind == "i64" else rng.uniform(-2, 2) for _ in range(count(dims))]
            z.writestr(name + ".npy", npy(kind, dims, values))
    run = [a.zcc_opt, base + ".zir", f"--run={base}.npz", "--function=eval"]
    commands = [run + [f"--outputs={base}.want.npz"], run + ["--fp64", f"--outputs={base}.exact.npz"],
                [a.zcc, base + ".zir", "--loss=none", "-o", base, *shlex.split(a.flags)],
                [base, "--eval", f"--data={base}.npz", f"--outputs={base}.got.npz"]]
    for c in commands:
        p = subprocess.run(c, capture_output=True, text=True)
        if p.returncode:
            sys.exit(f"graphs.py: {' '.join(c)}: {p.stderr or p.stdout}")
    want, exact, got = (read_npz(f"{base}.{k}.npz") for k in ("want", "exact", "got"))
    bad = 0
    for name, kind, dims in m.results:
        why = differs(got[name][1], want[name][1], exact[name][1])
        if why:
            bad += 1
            print(f"{base}.zir: %{name} : {text(kind, dims)}: {why}")
    return bad, len(m.results)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("zcc"), p.add_argument("zcc_opt"), p.add_argument("tmp")
    p.add_argument("--graphs", type=int, default=300)
    p.add_argument("--programs", type=int, default=1)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--flags", default="--threads=2")
    a = p.parse_args()
    os.makedirs(a.tmp, exist_ok=True)
    bad = results = 0
    for k in range(a.programs):
        b, r = one(a, k)
        bad, results = bad + b, results + r
    print(f"{a.graphs * a.programs} graphs, {results} results, {bad} differ")
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
