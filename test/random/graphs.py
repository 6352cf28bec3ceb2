#!/usr/bin/env python3
"""Random small graphs of random operators: what a compiled program computes against the naive interpreter.

    graphs.py ZCC ZCC_OPT TMP [--graphs 300] [--programs 1] [--seed 0] [--gradients] [--flags "--threads=2"] [--jobs 1]

Each program is one module of that many independent graphs: of @eval, on shared inputs, or, with --gradients, of @micro, each
on parameters of its own, whose gradients are what one step of SGD takes away from them. Results agree to 2e-5 relative to the
largest magnitude of the result (or 0.05, if that is more: numbers of order 1 cancel), to 50 times what the interpreter's own
single and double precision differ by, and to 10 times what inputs that are off by a few roundings change in its result; what is
not finite must be so in both.
Nothing but Python's own library is needed.
"""
import argparse, ast, concurrent.futures, json, math, os, random, shlex, struct, subprocess, sys, zipfile

UNARY = "neg abs sign exp tanh sigmoid relu gelu gelu_tanh silu softplus sin cos atan erf expm1 floor ceil".split()
BINARY = "add sub mul max min".split()
COMPARE = "lt le gt ge eq ne".split()
TYPES = {"f32": ("<f4", "f"), "f64": ("<f8", "d"), "i64": ("<i8", "q"), "i32": ("<i4", "i"), "u8": ("|u1", "B"), "bool": ("|b1", "?")}


def count(dims):
    return math.prod(dims)


def text(kind, dims):
    return f"{kind}[{'x'.join(map(str, dims))}]"


class Module:
    """Text of one @eval, or of one @micro on parameters, with many graphs."""

    def __init__(self, rng, graphs, gradients, weights):
        self.rng, self.lines, self.results, self.bodies, self.number = rng, [], [], [], 0
        self.gradients, self.weights, self.params = gradients, weights, {}
        self.inputs = {}
        for i in range(12):
            dims = [rng.choice([1, 2, 3, 4, 5, 7, 8, 16, 17]) for _ in range(rng.randint(0, 4))]
            while count(dims) > 600:
                dims[dims.index(max(dims))] = 2
            self.inputs[f"x{i}"] = ("f32", dims)
        self.inputs["n"] = ("i64", [6])
        for _ in range(graphs):
            self.graph()
        if gradients:
            self.inputs = {"n": self.inputs["n"]}
            self.loss()

    def nodes(self, op, operands, types, attrs=""):
        """Appends a node; the names of its results, of (kind, dims) each"""
        names = [f"v{self.number + i}" for i in range(len(types))]
        self.number += len(types)
        args = ", ".join("%" + o for o in operands)
        left, right = ", ".join("%" + n for n in names), ", ".join(text(*t) for t in types)
        self.lines.append(f"    {left} = {op} {args}{' {' + attrs + '}' if attrs else ''} : {right}")
        self.values += [(n, *t) for n, t in zip(names, types)]
        return names

    def node(self, op, operands, kind, dims, attrs=""):
        return self.nodes(op, operands, [(kind, dims)], attrs)[0]

    def pick(self, kind="f32", test=lambda d: True):
        found = [v for v in self.values if v[1] == kind and test(v[2])]
        return self.rng.choice(found[-6:]) if found else None

    def graph(self):
        rng = self.rng
        names = rng.sample([k for k in self.inputs if k != "n"], 3)
        self.values = [(k, *self.inputs[k]) for k in names]
        if self.gradients:
            first = len(self.params)
            self.values = [(f"p{first + i}", k, d) for i, (_, k, d) in enumerate(self.values)]
            self.params.update({n: d for n, k, d in self.values})
        self.given, first = list(self.values), len(self.lines)
        for _ in range(rng.randint(2, 9)):
            getattr(self, rng.choice(STEPS))()
        used = {w.strip("%,") for l in self.lines[first:] for w in l.split(" = ")[1].split()[1:] if w.startswith("%")}
        self.results += [v for v in self.values if v[0].startswith("v") and v[0] not in used]

    def loss(self):
        """the sum over all results, each element times a number of its own"""
        total = self.node("constant", [], "f32", [], "dims = [], value = [0.0]")
        for v, k, d in self.results:
            if k != "f32":
                continue
            p = self.node("mul", [v, self.wave(d)], k, d)
            r = self.node("reduce_sum", [p], k, [1] * len(d), f"axes = {list(range(len(d)))}") if d else p
            total = self.node("add", [total, self.node("reshape", [r], k, [], "dims = []")], k, [])
        self.results = [(total, "f32", [])]

    def hidden(make):
        """what it appends is no operand of other steps"""
        def wrapped(self, *args):
            n = len(self.values)
            name = make(self, *args)
            del self.values[n:]
            return name
        return wrapped

    @hidden
    def wave(self, dims):
        """constant numbers of many values"""
        if not dims:
            return self.node("constant", [], "f32", [], f"dims = [], value = [{round(self.rng.uniform(-2, 2), 3)}]")
        i = self.node("iota", [], "f32", dims, f'dims = {dims}, axis = {self.rng.randrange(len(dims))}, elem = "f32"')
        return self.node("sin", [self.node("add", [i, self.wave([])], "f32", dims)], "f32", dims)

    @hidden
    def positive(self, v, d):
        """at least 0.25"""
        return self.node("add", [self.node("abs", [v], "f32", d), self.node(
            "constant", [], "f32", [], "dims = [], value = [0.25]")], "f32", d)

    def unary(self):
        v, k, d = self.pick()
        self.node(self.rng.choice(UNARY), [v], k, d)

    def broadcast_of(self, dims):
        """dims with some axes 1 and some leading ones gone"""
        d = [1 if self.rng.random() < 0.3 else x for x in dims]
        return d[self.rng.randint(0, len(d)):] if self.rng.random() < 0.3 else d

    @hidden
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
        op = self.rng.choice(["reduce_sum", "reduce_sum", "reduce_max", "reduce_min", "reduce_prod"])
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

    def rooted(self):
        v, k, d = self.pick()
        op = self.rng.choice(["sqrt", "rsqrt", "log", "reciprocal", "pow", "div"])
        p = self.positive(v, d)
        if op == "pow":
            self.node(op, [p, self.like(d)], k, d)
        elif op == "div":
            self.node(op, [self.like(d), p], k, d)
        else:
            self.node(op, [p], k, d)

    def norm(self):
        v, k, d = self.pick()
        if not d:
            return
        axis = self.rng.randrange(len(d))
        op = self.rng.choice(["layer_norm", "rms_norm"])
        statistic = ("f32", d[:axis] + [1] * (len(d) - axis))
        scale = [self.wave(d[axis:])] if self.rng.random() < 0.5 else []
        self.nodes(op, [v] + scale, [(k, d)] + [statistic] * (2 if op == "layer_norm" else 1), f"axis = {axis}, eps = 0.01")

    def pool(self):
        found = self.pick(test=lambda d: len(d) in (3, 4) and min(d[2:]) >= 2)
        if not found:
            return
        v, k, d = found
        n = len(d) - 2
        kernel, strides = [2] * n, [self.rng.randint(1, 2) for _ in range(n)]
        out = d[:2] + [(x - 2) // s + 1 for x, s in zip(d[2:], strides)]
        attrs = f"kernel = {kernel}, strides = {strides}"
        if self.rng.random() < 0.5:
            self.node("avg_pool", [v], k, out, attrs)
        else:
            self.nodes("max_pool", [v], [(k, out), ("u8", out)], attrs)

    def conv(self):
        found = self.pick(test=lambda d: len(d) in (3, 4))
        if not found:
            return
        v, k, d = found
        kernel = [self.rng.randint(1, min(3, x)) for x in d[2:]]
        strides, pad = [self.rng.randint(1, 2) for _ in kernel], self.rng.randint(0, 1)
        m = self.rng.choice([1, 2, 5])
        out = [d[0], m] + [(x + pad - w) // s + 1 for x, w, s in zip(d[2:], kernel, strides)]
        self.node("conv", [v, self.wave([m, d[1]] + kernel)], k, out,
                  f"strides = {strides}, pads_lo = {[pad] * len(kernel)}")

    def order(self):
        """positions, of what is exact in both"""
        found = [x for x in self.given if x[2]]
        if not found:
            return
        v, k, d = self.rng.choice(found)
        axis = self.rng.randrange(len(d))
        if self.rng.random() < 0.3:
            self.node(self.rng.choice(["argmax", "argmin"]), [v], "i64", d[:axis] + [1] + d[axis + 1:], f"axis = {axis}")
            return
        n = self.rng.randint(1, d[axis])
        out = d[:axis] + [n] + d[axis + 1:]
        top = self.nodes("topk", [v], [(k, out), ("i64", out)], f"axis = {axis}, k = {n}")
        same = self.rng.choice([x[0] for x in self.values if x[1:] == (k, d)])
        self.node("gather_elements", [same, top[1]], k, out, f"axis = {axis}")

    def scatter(self):
        v, k, d = self.pick()
        axes = [i for i, x in enumerate(d) if x >= 2]
        if axes:
            axis = self.rng.choice(axes)
            updates = self.node("gather", [v, "n"], k, d[:axis] + [6] + d[axis + 1:], f"axis = {axis}")
            self.node("scatter_add", [self.wave(d), "n", updates], k, d, f"axis = {axis}")

    def body(self, args, results, d):
        """a body of elementwise nodes on values of the shape d"""
        name, names = f"b{len(self.bodies)}", [f"a{i}" for i in range(args)]
        lines = []
        for i in range(self.rng.randint(results, 4)):
            if self.rng.random() < 0.5:
                lines.append(f"    %t{i} = {self.rng.choice(UNARY)} %{self.rng.choice(names)} : {text('f32', d)}")
            else:
                x, y = self.rng.choice(names), self.rng.choice(names)
                lines.append(f"    %t{i} = {self.rng.choice(BINARY)} %{x}, %{y} : {text('f32', d)}")
            names.append(f"t{i}")
        given = ", ".join(f"%a{i} : {text('f32', d)}" for i in range(args))
        types = ", ".join([text("f32", d)] * results)
        back = ", ".join("%" + n for n in names[-results:])
        self.bodies.append(f"  body @{name}({given}) -> ({types}) {{\n" + "\n".join(lines) + f"\n    return {back}\n  }}\n")
        return name

    def scan(self):
        v, k, d = self.pick()
        if d:
            e = d[1:]
            carried, same = self.wave(e), self.wave(e)
            attrs = f'body = "{self.body(3, 2, e)}", carried = 1, scanned = 1, reverse = {self.rng.randint(0, 1)}'
            self.nodes("scan", [carried, v, same], [(k, e), (k, d)], attrs)

    def cond(self):
        v, k, d = self.pick()
        s = self.node("reduce_sum", [v], k, [1] * len(d), f"axes = {list(range(len(d)))}") if d else v
        c = self.node("lt", [self.node("reshape", [s], k, [], "dims = []"), self.wave([])], "bool", [])
        self.node("cond", [c, v], k, d, f'then = "{self.body(1, 1, d)}", else = "{self.body(1, 1, d)}"')

    def zir(self):
        args = ", ".join(f"%{n} : {text(*t)}" for n, t in self.inputs.items())
        names = ["loss"] if self.gradients else [n for n, _, _ in self.results]
        outs = ", ".join(f'"{n}" : {text(k, d)}' for n, (_, k, d) in zip(names, self.results))
        back = ", ".join("%" + n for n, _, _ in self.results)
        params, at = "", 0
        for name, d in self.params.items():
            params += (f'  param %{name} : {text("f32", d)} = "{os.path.basename(self.weights)}"[{at}, {4 * count(d)}] '
                       f'{{trained, exported, onnx = "{name}"}}\n')
            at += 4 * count(d)
        function = "micro" if self.gradients else "eval"
        return "".join([f"module @random {{\n{params}", *self.bodies, f"  func @{function}({args}) -> ({outs}) {{\n",
                        "\n".join(self.lines), f"\n    return {back}\n  }}\n}}\n"])


STEPS = ["unary"] * 4 + ["binary"] * 5 + ["reduce"] * 3 + ["reshape", "transpose", "slice", "broadcast"] * 2 + [
    "compare", "select", "softmax", "concat", "pad", "matmul", "matmul", "gather", "cumsum",
    "rooted", "norm", "pool", "conv", "order", "scatter", "scan", "cond"]


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


def read_safetensors(path):
    raw = open(path, "rb").read()
    size = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for name, t in json.loads(raw[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + o for o in t["data_offsets"])
            out[name] = struct.unpack(f"<{(end - begin) // 4}f", raw[begin:end])
    return out


def differs(got, want, exact, near, slack=0):
    """the first difference that rounding does not explain, or None; slack: how far `got` is off by itself"""
    distance = lambda a, b: max([abs(x - y) for x, y in zip(a, b) if math.isfinite(x) and math.isfinite(y)], default=0)
    top = max([abs(w) for w in want if math.isfinite(w)], default=0)
    allowed = 2e-5 * max(top, 0.05) + 50 * distance(want, exact) + 10 * distance(want, near) + slack
    for g, w in zip(got, want, strict=True):
        if abs(g - w) > allowed if math.isfinite(w) and math.isfinite(g) else not (g == w or (g != g and w != w)):
            return f"{g!r}, the interpreter {w!r}"
    return None


def call(*commands):
    for c in commands:
        p = subprocess.run(c, capture_output=True, text=True)
        if p.returncode:
            sys.exit(f"graphs.py: {' '.join(c)}: {p.stderr or p.stdout}")


def interpreted(a, base, *flags):
    """what the interpreter computes, in single and in double precision, and for inputs that are a little off"""
    out = []
    for kind, given, more in (("want", base, []), ("exact", base, ["--fp64"]), ("near", base + ".near", [])):
        call([a.zcc_opt, base + ".zir", *flags, f"--run={given}.npz", *more, f"--outputs={base}.{kind}.npz"])
        out.append(read_npz(f"{base}.{kind}.npz"))
    return out


def results_of(a, m, base):
    """(name, type, what the program computes, what the interpreter does in three ways, how far the first may be off)"""
    known = interpreted(a, base, "--function=eval")
    call([a.zcc, base + ".zir", "--loss=none", "-o", base, *shlex.split(a.flags)],
         [base, "--eval", f"--data={base}.npz", f"--outputs={base}.got.npz"])
    got = read_npz(base + ".got.npz")
    for name, kind, dims in m.results:
        assert list(got[name][0]) == list(dims), f"{base}: '{name}' is {got[name][0]}, not {dims}"
        yield name, text(kind, dims), got[name][1], *(k[name][1] for k in known), 0


def gradients_of(a, m, base, start):
    """the same for the gradients of all parameters"""
    known = interpreted(a, base, "--differentiate")
    call([a.zcc, base + ".zir", "--optimizer=sgd", "--lr=1", "-o", base, *shlex.split(a.flags)],
         [base, "--quiet", "--steps=1", f"--data={base}.npz", f"--export={base}.safetensors"])
    end = read_safetensors(base + ".safetensors")
    for name, dims in m.params.items():
        zero = [], (0.0,) * count(dims)  # no gradient: it does not influence the loss
        want, exact, near = (k.get(name + ".grad", zero)[1] for k in known)
        got = [b - e for b, e in zip(start[name], end[name], strict=True)]
        rounding = 2.0 ** -23 * (2 + max([abs(v) for v in want if math.isfinite(v)], default=0))
        yield "gradient of " + name, text("f32", dims), got, want, exact, near, rounding


def write_npz(path, arrays):
    with zipfile.ZipFile(path, "w") as z:
        for name, array in arrays.items():
            z.writestr(name + ".npy", npy(*array))


def one(a, number):
    rng = random.Random(a.seed + number)
    base = os.path.join(a.tmp, f"random{a.seed + number}")
    m = Module(rng, a.graphs, a.gradients, base + ".bin")
    with open(base + ".zir", "w") as f:
        f.write(m.zir())
    inputs, start = {}, {}
    for name, (kind, dims) in m.inputs.items():
        inputs[name] = kind, dims, [rng.randint(0, 1) if kind == "i64" else rng.uniform(-2, 2) for _ in range(count(dims))]
    write_npz(base + ".npz", inputs)
    with open(base + ".bin", "wb") as f:
        for name, dims in m.params.items():
            raw = struct.pack(f"<{count(dims)}f", *(rng.uniform(-2, 2) for _ in range(count(dims))))
            start[name] = struct.unpack(f"<{count(dims)}f", raw)
            f.write(raw)
    inputs.update({name: ("f32", dims, start[name]) for name, dims in m.params.items()})
    off = lambda v: v * (1 + rng.uniform(-4e-7, 4e-7))
    write_npz(base + ".near.npz", {n: (k, d, v if k == "i64" else [off(x) for x in v]) for n, (k, d, v) in inputs.items()})
    bad = results = 0
    for name, kind, *numbers in gradients_of(a, m, base, start) if a.gradients else results_of(a, m, base):
        results += 1
        why = differs(*numbers)
        if why:
            bad += 1
            print(f"{base}.zir: %{name} : {kind}: {why}", flush=True)
    return bad, results


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("zcc"), p.add_argument("zcc_opt"), p.add_argument("tmp")
    p.add_argument("--graphs", type=int, default=300)
    p.add_argument("--programs", type=int, default=1)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--gradients", action="store_true")
    p.add_argument("--flags", default="--threads=2")
    p.add_argument("--jobs", type=int, default=1)
    a = p.parse_args()
    os.makedirs(a.tmp, exist_ok=True)
    with concurrent.futures.ProcessPoolExecutor(a.jobs) as pool:
        counts = list(pool.map(one, [a] * a.programs, range(a.programs)))
    bad, results = (sum(c) for c in zip(*counts))
    print(f"{a.graphs * a.programs} graphs, {results} {'gradients' if a.gradients else 'results'}, {bad} differ")
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
