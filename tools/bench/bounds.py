#!/usr/bin/env python3
"""How far a training step is from what this machine could do, and which kernels are furthest: prints two tables.

    bounds.py MODEL.onnx DATA.npz [--zcc build/bin/zcc] [--flags "--dtype=bf16 .."] [--threads N] [--top 15] [--share]

Run by a Python that has PyTorch. The bound of a step is the sum over its kernels: products, convolutions and attention at the best time that zcc's
libraries or PyTorch's (its own oneDNN and BLAS, plain and channels-last) need for that very shape, type and layout; every other kernel the
bytes it must move from and to memory (`memory_bytes` of `--plan=json`) at the rate of a large copy. What hides in caches costs nothing there.
"""
import argparse, collections, json, math, os, re, shlex, statistics, subprocess, sys, tempfile, time

Value = collections.namedtuple("Value", "op operands attributes type")
Kernel = collections.namedtuple("Kernel", "node op what seconds predicted bound by")
DTYPES = dict(f32="float32", bf16="bfloat16", f16="float16", f64="float64")
PRODUCTS = ("matmul", "fused_matmul")
LIBRARY = (*PRODUCTS, "conv", "conv_grad_input", "conv_grad_weight", "attention", "attention_grad")


def read_type(text):
    elem, _, dims = text.strip().partition("[")
    return elem, [int(d) for d in dims.rstrip("]").split("x") if d]


def read_values(zir):
    """Every value that the module's text defines, by name."""
    values = {}
    for line in zir.splitlines():
        if re.match(r"\s*(param|state|func)\b", line):
            for name, t in re.findall(r"(%\S+) : (\w+\[[\dx]*\])", line):
                values[name] = Value("global", [], "", read_type(t))
        elif m := re.match(r"\s+((?:%\S+, )*%\S+) = (\w+) ?([^{]*)(\{.*\})? : (.*)$", line):
            operands = [o.strip() for o in re.sub(r"^@\S+", "", m[3]).split(",") if o.strip()]
            for name, t in zip(m[1].split(", "), re.findall(r"\w+\[[\dx]*\]", m[5])):
                values[name] = Value(m[2], operands, m[4] or "", read_type(t))
    return values


def ints(value, name, default):
    m = re.search(rf"\b{name} = \[([^\]]*)\]", value.attributes)
    return [int(i) for i in m[1].split(",")] if m else default


def one(value, name, default):
    m = re.search(rf"\b{name} = ([-\d.e]+)", value.attributes)
    return type(default)(float(m[1])) if m else default


def operand(values, name):
    """A random tensor laid out as the operand is: a transposed one as a view."""
    import torch
    v = values[name]
    elem, dims = v.type
    if v.op == "transpose" and (perm := ints(v, "perm", None)):
        back = [perm.index(i) for i in range(len(perm))]
        return torch.randn([dims[i] for i in back], dtype=torch.float32).to(getattr(torch, DTYPES[elem])).permute(perm)
    return torch.randn(dims, dtype=torch.float32).to(getattr(torch, DTYPES[elem]))


def best(run):
    run()
    times, start = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - start < 0.06:
        t = time.perf_counter()
        run()
        times.append(time.perf_counter() - t)
    return min(times)


def conv_seconds(values, v):
    """Of images in blocks of channels (`block-channels`), what PyTorch takes for plain ones."""
    import torch
    elem = getattr(torch, DTYPES[values[v.operands[0]].type[0]])
    first, second = (values[n].type[1] for n in v.operands[:2])
    dims = ints(v, "dims", None)
    x, w, dy = dict(conv=(first, second, None), conv_grad_input=(dims, second, first), conv_grad_weight=(first, dims, second))[v.op]
    axes = len(w) - 2
    plain = lambda d: [d[0], d[1] * d[-1], *d[2:-1]] if len(d) > axes + 2 else d
    x, w, dy = (d and torch.randn(plain(d)).to(elem) for d in (x, w, dy))
    lo, hi = (ints(v, k, [0] * axes) for k in ("pads_lo", "pads_hi"))
    if lo != hi:
        return None
    rest = [ints(v, "strides", [1] * axes), lo, ints(v, "dilations", [1] * axes), False, [0] * axes, one(v, "group", 1)]
    times = []
    for form in [torch.contiguous_format] + ([torch.channels_last] if axes == 2 else []):
        x, w = x.contiguous(memory_format=form), w.contiguous(memory_format=form)
        if v.op == "conv":
            times.append(best(lambda: torch.ops.aten.convolution(x, w, None, *rest)))
        else:
            dy = dy.contiguous(memory_format=form)
            mask = [v.op == "conv_grad_input", v.op == "conv_grad_weight", False]
            times.append(best(lambda: torch.ops.aten.convolution_backward(dy, x, w, None, *rest, mask)))
    return min(times)


def attention_seconds(values, v):
    import torch
    import torch.nn.functional as F
    backward = v.op == "attention_grad"
    names = v.operands[1:] if backward else v.operands
    q, k, s = (operand(values, n).requires_grad_(backward) for n in names[:3])
    mask = operand(values, names[3]) if len(names) > 3 and names[3] != "_" and values[names[3]].type[0] in DTYPES else None
    attend = lambda: F.scaled_dot_product_attention(q, k, s, attn_mask=mask, is_causal=bool(one(v, "causal", 0)), enable_gqa=q.shape[1] != k.shape[1])
    if not backward:
        return best(attend)
    y = attend()
    dy = torch.randn_like(y)
    return best(lambda: torch.autograd.grad(y, (q, k, s), dy, retain_graph=True))


def library_seconds(values, name, known):
    """PyTorch's best time for a library kernel; None where it has no such one."""
    import torch
    v = values[name]
    shapes = [(values[o].type, values[o].op == "transpose" and values[o].attributes) if o in values else o for o in v.operands]
    key = repr((v.op, shapes, re.sub(r"!\w+ = (\[[^\]]*\]|\S+)", "", v.attributes)))
    if key not in known:
        try:
            if v.op in PRODUCTS:
                a, b = (operand(values, o) for o in v.operands[:2])
                known[key] = best(lambda: torch.matmul(a, b))
            else:
                known[key] = (attention_seconds if v.op.startswith("attention") else conv_seconds)(values, v)
        except (RuntimeError, KeyError) as e:
            print(f"bounds.py: {name}: {str(e).splitlines()[0]}", file=sys.stderr)
            known[key] = None
    return known[key]


def kernel_bytes(values, v):
    """What the kernel of a product's node reads besides the product."""
    types = [values[o].type for o in v.operands[2:] if o in values]
    return sum(math.prod(dims) * (8 if elem == "f64" else 4 if elem == "f32" else 2) for elem, dims in types if elem in DTYPES)


def copy_rate():
    """Bytes a second that a large copy reads and writes."""
    import torch
    x = torch.randn(64 << 20)
    y = torch.empty_like(x)
    return 2 * x.numel() * 4 / best(lambda: y.copy_(x))


def traced(program, data, runs=3):
    """Of each kernel (phase, node, operator, value) the seconds in a step, in several runs, and what was predicted; and the step's median."""
    seconds, predicted, steps = collections.defaultdict(list), {}, []
    for _ in range(runs):
        subprocess.run([program, f"--data={data}", "--steps=6", "--quiet", f"--trace={program}.json"], check=True)
        events = [e for e in json.load(open(program + ".json"))["traceEvents"] if e.get("ph") == "X"]
        took = [e["dur"] / 1e6 for e in events if e["name"].startswith("step ")]
        once = collections.defaultdict(float)
        for e in events:
            if (args := e.get("args", {})).get("op"):
                key = e["cat"], e["name"], args["op"], args["value"]
                once[key] += e["dur"] / 1e6 / len(took)
                predicted[key] = args.get("predicted_us", 0) / 1e6
        for key, t in once.items():
            seconds[key].append(t)
        steps += took
    return seconds, predicted, statistics.median(steps)


def measure(zcc, model, data, flags, threads, tmp):
    """The kernels of a step, each with its bound, and the step's seconds."""
    import torch
    torch.set_num_threads(threads)
    program, known = os.path.join(tmp, "bounded"), {}
    run = lambda *more: subprocess.run([zcc, model, *flags, f"--threads={threads}", *more], check=True, capture_output=True, text=True).stdout
    run("-o", program)
    run("--emit=zir", "-o", program + ".zir")
    values, plan = read_values(open(program + ".zir").read()), json.loads(run("--plan=json"))
    moved = {(s["op"], s["name"]): s.get("work", {}).get("memory_bytes", 0) for f in plan["schedule"]["functions"] for s in f["spans"]}
    measured, predicted, step = traced(program, data)
    rate, kernels = copy_rate(), []
    for (phase, node, op, name), times in measured.items():
        seconds, bound, by = statistics.median(times), moved.get((op, name), 0) / rate, "bytes"
        if op in LIBRARY and name in values:
            theirs = library_seconds(values, name, known)
            if theirs and op == "fused_matmul":
                theirs += kernel_bytes(values, values[name]) / rate
            bound, by = (min(times), "zcc") if theirs is None or min(times) < theirs else (theirs, "PyTorch")
        what = "x".join(map(str, values[name].type[1])) if name in values else ""
        kernels.append(Kernel(f"{node} ({phase})", op, what, seconds, predicted[phase, node, op, name], min(bound, seconds), by))
    return kernels, step


def share(kernels, step):
    """The bound over the step's time."""
    return sum(k.bound for k in kernels) / step


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model"); p.add_argument("data"); p.add_argument("--zcc", default="build/bin/zcc"); p.add_argument("--flags", default="--optimizer=adamw")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0))); p.add_argument("--top", type=int, default=15)
    p.add_argument("--share", action="store_true", help="print the bound's share of the step alone")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        kernels, step = measure(os.path.abspath(a.zcc), a.model, os.path.abspath(a.data), shlex.split(a.flags), a.threads, tmp)
    if a.share:
        return print(share(kernels, step))
    kinds = collections.defaultdict(lambda: [0, 0.0, 0.0, 0.0])
    for k in kernels:
        kinds[k.op] = [x + y for x, y in zip(kinds[k.op], (1, k.seconds, k.predicted, k.bound))]
    print("| kernels | count | ms | predicted ms | bound ms |\n|---|---|---|---|---|")
    for op, (n, t, predicted, bound) in sorted(kinds.items(), key=lambda i: -i[1][1]):
        print(f"| {op} | {n} | {t * 1e3:.2f} | {predicted * 1e3:.2f} | {bound * 1e3:.2f} |")
    between = step - sum(k.seconds for k in kernels)
    print(f"| between kernels | | {between * 1e3:.2f} | | 0 |\n| **step** | | {step * 1e3:.2f} | | {share(kernels, step) * step * 1e3:.2f} ({share(kernels, step):.2f} of it) |\n")
    print("| furthest from its bound | kernel | result | ms | predicted ms | bound ms | by |\n|---|---|---|---|---|---|---|")
    for k in sorted(kernels, key=lambda k: k.bound - k.seconds)[:a.top]:
        print(f"| {k.node} | {k.op} | {k.what} | {k.seconds * 1e3:.2f} | {k.predicted * 1e3:.2f} | {k.bound * 1e3:.2f} | {k.by} |")


if __name__ == "__main__":
    main()
