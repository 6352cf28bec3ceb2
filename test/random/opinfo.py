#!/usr/bin/env python3
"""PyTorch's operator database (OpInfo) through both exporters and zcc: losses and gradients against PyTorch's.

    opinfo.py ZCC TMP [--samples 0] [--only REGEX] [--exporter dynamo|torchscript|both] [--group 96] [--shard 0/1]
                      [--compiled 0] [--seconds 0] [--json OUT.jsonl]
    opinfo.py --table OUT.jsonl...

Needs torch, onnx, onnxscript, expecttest, numpy and safetensors. Of every differentiable operator all small float32 samples of the
database (or the first --samples; with 3,0 first three of each, then all) are taken. The floats that require gradients become
parameters, other tensors buffers; the loss is the sum of ((y + 0.3)^2 w) over the elements y of all results, with numbers w of
many values. Samples, --group at most, are one program with one loss, compiled and run: its results are compared, and the gradients,
which are what one step of SGD takes away. What is not exported or compiled is tried in smaller groups until the sample is found;
what differs is tried alone, with its loss in place of its results.

With --compiled N only the first N samples of each operator are compiled; of the others zcc-opt --run interprets what zcc made of
them after all passes (their reason is "interpreted"), unless they differ there or are alone.

Agreement is 1e-4 relative L2 for each result and parameter, or ten times what PyTorch's own float32 is off its float64; what is not
finite must be so in both. --json gets one line a sample as it is done: exporter, operator, number, status, reason; samples that are
in it already are not run again. Statuses: passed, differs, refused (with zcc's words), crashed, not exportable (also a sample that
calls an operator of which the exporter said before that it has none), exporter (ONNX Runtime, where installed, refuses the file as
well or computes zcc's loss), and not tried (random, no gradient, not run by PyTorch itself). --seconds ends the run after that time,
between two programs.
"""
import argparse, collections, contextlib, functools, io, json, os, re, signal, subprocess, sys, time, warnings

EXPORTERS = ("dynamo", "torchscript")
RANDOM = {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
LR = 2.0 ** 20  # so large that w - lr g holds the digits of g


# ---- samples

def loss_of(results, weights):
    parts = []
    for y, w in zip(results, weights):
        z = y + 0.3
        parts.append((z * z * w.to(y.dtype)).sum())
    return functools.reduce(torch.add, parts)


class Case:
    """One sample: the operator's function with its tensors apart, those that are trained first."""

    def __init__(self, op, number, sample):
        self.op, self.number, self.sample = op, number, sample
        self.name = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
        leaves, self.tree = tree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
        self.leaves, self.called = leaves, None
        self.trained = [i for i, l in enumerate(leaves) if isinstance(l, torch.Tensor) and l.requires_grad]
        self.others = [i for i, l in enumerate(leaves) if isinstance(l, torch.Tensor) and not l.requires_grad]

    def tensors(self, which, kind=None):
        out = [self.leaves[i].detach().clone(memory_format=torch.contiguous_format) for i in which]
        return [t.to(kind) if kind and t.is_floating_point() else t for t in out]

    def results(self, trained, others):
        leaves = list(self.leaves)
        for i, t in zip(self.trained + self.others, list(trained) + list(others)):
            leaves[i] = t
        x, args, kwargs = tree.tree_unflatten(leaves, self.tree)
        y = self.sample.output_process_fn_grad(self.op(x, *args, **kwargs))
        flat = [t for t in tree.tree_flatten(y)[0] if isinstance(t, torch.Tensor)]
        flat = [torch.view_as_real(t) if t.is_complex() else t for t in flat]
        return [t for t in flat if t.is_floating_point() and t.numel()]

    def calls(self):
        """names of PyTorch's operators, composite ones apart"""
        if self.called is None:
            self.called = set()
            with CalledNames(self.called), torch.no_grad():
                self.results(self.tensors(self.trained), self.tensors(self.others))
        return self.called

    def loss(self, trained, others, weights):
        return loss_of(self.results(trained, others), weights)

    def reference(self, kind):
        """loss, gradients and results of PyTorch"""
        p = [t.requires_grad_() for t in self.tensors(self.trained, kind)]
        y = self.results(p, self.tensors(self.others, kind))
        self.weights = [torch.cos(torch.arange(t.numel()) * 1.7 + 0.3).reshape(t.shape) for t in y]
        loss = loss_of(y, self.weights)
        g = torch.autograd.grad(loss, p, allow_unused=True)
        g = [torch.zeros_like(t) if d is None else d.detach() for t, d in zip(p, g)]
        return loss.item(), g, [t.detach() for t in y]

    @functools.cached_property
    def exact(self):
        try:
            return self.reference(torch.float64)
        except Exception:
            return self.want

    def prepare(self):
        """Why the sample is not tried; '' if it is."""
        tensors = [l for l in self.leaves if isinstance(l, torch.Tensor)]
        if not self.trained:
            return "nothing that requires a gradient"
        if any(t.is_complex() or t.layout != torch.strided for t in tensors):
            return "complex or sparse"
        if sum(t.numel() for t in tensors) > 100000:
            return "more than 100,000 elements"
        with torch.no_grad():
            again = self.results(self.tensors(self.trained), self.tensors(self.others))
        if not again:
            return "no floating-point result"
        self.want = self.reference(torch.float32)
        if any(not torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(self.want[2], again)):
            return "random"
        return ""


def cases_of(op, count, isWanted):
    """(number, case or None, why not) of the samples whose numbers are wanted"""
    torch.manual_seed(0)
    for number, s in enumerate(op.sample_inputs("cpu", torch.float32, requires_grad=True)):
        if count and number >= count:
            return
        if not isWanted(number):
            continue
        try:
            c = Case(op, number, s)
            why = c.prepare()
        except Exception as e:
            c, why = None, "PyTorch: " + first_line(e)
        yield number, (None if why else c), why


# ---- one program

def group_module(cases):
    weights = [t for c in cases for t in c.weights]
    if len(cases) > 1:
        weights = [torch.cat([t.flatten() for t in weights])]

    class Group(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for i, c in enumerate(cases):
                for j, t in enumerate(c.tensors(c.trained)):
                    self.register_parameter(f"s{i}_p{j}", torch.nn.Parameter(t))
                for j, t in enumerate(c.tensors(c.others)):
                    self.register_buffer(f"s{i}_b{j}", t)
            for j, t in enumerate(weights):
                self.register_buffer(f"w{j}", t)

        def forward(self, scale):
            results = []
            for i, c in enumerate(cases):
                named = lambda kind, n: [getattr(self, f"s{i}_{kind}{j}") for j in range(n)]
                results += c.results(named("p", len(c.trained)), named("b", len(c.others)))
            if len(cases) == 1:  # in the precision of the results
                loss = loss_of(results, [getattr(self, f"w{j}") for j in range(len(weights))])
                return loss.float() * scale.sum(), loss
            return (loss_of([torch.cat([y.reshape(-1).float() for y in results])], [self.w0]) * scale.sum(), *results)

    return Group()


@contextlib.contextmanager
def quiet():
    """nothing is printed, by C++ neither"""
    sys.stdout.flush(), sys.stderr.flush()
    kept, null = [os.dup(1), os.dup(2)], os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1), os.dup2(null, 2)
    try:
        yield
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        for fd, k in zip((1, 2), kept):
            os.dup2(k, fd), os.close(k)
        os.close(null)


class Lacks:
    """Operators that an exporter has not, as failed exports said: the same samples need not be tried one by one."""

    def __init__(self):
        self.lacking, self.exported = {e: set() for e in EXPORTERS}, set()

    def ask_registry(self):
        from torch.onnx._internal.exporter import _decomp, _registration
        made = functools.cache(_registration.ONNXRegistry.from_torchlib)  # at each export it takes longer than a sample
        _registration.ONNXRegistry.from_torchlib = classmethod(lambda cls, *a, **k: made(*a, **k))
        ops = set(_decomp.get_onnx_implemented_overloads(made()))
        self.exported |= {str(o) for o in ops | set(_decomp.create_onnx_friendly_decomposition_table(ops))}

    def keys(self, c, exporter):
        """The older exporter may have a composite operator where it lacks a part, so it is asked anew for each of the database's."""
        return c.calls() if exporter == "dynamo" else {(c.name, name.rsplit(".", 1)[0]) for name in c.calls()}

    def of(self, c, exporter):
        return self.lacking[exporter] & self.keys(c, exporter)

    def learn(self, cases, exporter, message):
        """Whether an export failed for want of operators that were not known to lack."""
        if exporter == "dynamo":
            found = {f"{op}.{overload}" for op, overload in re.findall(
                r"No ONNX function found for <OpOverload\(op='([^']*)', overload='([^']*)'\)>. "
                r"Failure message: No decompositions registered for the real-valued", message)}
        else:
            found = {(c.name, op.replace("::", ".")) for c in cases if len(cases) == 1
                     for op in re.findall(r"Exporting the operator '([^']*)' to ONNX opset version \d+ is not supported", message)}
        found -= self.lacking[exporter]
        self.lacking[exporter] |= found
        return bool(found)

    def is_doubtful(self, c, exporter):
        if exporter != "dynamo":
            return False
        if not self.exported:
            self.ask_registry()
        return not c.calls() <= self.exported | self.lacking[exporter]


def called_names():
    from torch.utils._python_dispatch import TorchDispatchMode

    class CalledNames(TorchDispatchMode):
        def __init__(self, names):
            super().__init__()
            self.names = names

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names.add(str(func))
            return func(*args, **(kwargs or {}))

    return CalledNames


def export(cases, exporter, path):
    m, args = group_module(cases), (torch.ones(1),)
    outputs = ["s0"] if len(cases) == 1 else [f"s{i}_y{j}" for i, c in enumerate(cases) for j in range(len(c.weights))]
    names = dict(input_names=["scale"], output_names=["loss"] + outputs)
    with quiet():
        if exporter == "dynamo":
            torch.onnx.export(m, args, path, dynamo=True, optimize=False, verbose=False, external_data=False, **names)
        else:
            torch.onnx.export(m, args, path, dynamo=False, do_constant_folding=False,
                              training=torch.onnx.TrainingMode.PRESERVE, **names)


def call(cmd, cwd):
    """(status, what was said)"""
    try:
        p = subprocess.run(cmd, capture_output=True, text=True, errors="replace", cwd=cwd, timeout=200)
    except subprocess.TimeoutExpired:
        return "refused", "no answer in 200 s"
    lines = [l for l in (p.stderr + "\n" + p.stdout).splitlines() if l.strip()]
    at = next((i for i, l in enumerate(lines) if "error" in l), max(0, len(lines) - 1))
    status = "passed" if p.returncode == 0 else "crashed" if p.returncode < 0 or p.returncode > 2 else "refused"
    return status, " | ".join(lines[at:at + 3])


COMPILE = ["--loss=loss", "--optimizer=sgd", f"--lr={LR}", "--threads=1"]


def read_arrays(path):
    with np.load(path) as z:  # bfloat16 is numpy's void
        return {k: torch.tensor(z[k].view(np.int16)).view(torch.bfloat16) if z[k].dtype.kind == "V" else torch.tensor(z[k])
                for k in z.files}


def interpreted(a, path, tmp):
    """program() of what zcc made of the model after all passes, interpreted"""
    ir, data, out, trained = (os.path.join(tmp, f) for f in ("model.zir", "data.npz", "out.npz", "trained.npz"))
    np.savez(data, scale=np.ones(1, np.float32))
    run_ir = [os.path.join(os.path.dirname(a.zcc), "zcc-opt"), "--run=" + data, ir]
    for command in ([a.zcc, path, *COMPILE, "--emit=zir", "-o", ir],
                    [*run_ir, "--function=eval", "--outputs=" + out], [*run_ir, "--outputs=" + trained]):
        status, why = call(command, tmp)
        if status != "passed":
            return status, why, None, None
    return "passed", "", read_arrays(out), read_arrays(trained)


def program(a, cases, path, tmp):
    """(status, reason, losses, trained weights)"""
    prog, data, out, trained, log = (
        os.path.join(tmp, f) for f in ("prog", "data.npz", "out.npz", "trained.safetensors", "log.jsonl"))
    np.savez(data, scale=np.ones(1, np.float32))
    for command in ([a.zcc, path, *COMPILE, "-o", prog],
                    [prog, "--data=" + data, "--eval", "--outputs=" + out],
                    [prog, "--data=" + data, "--steps=1", "--export=" + trained, "--log=" + log]):
        status, why = call(command, tmp)
        if status != "passed":
            return status, why, None, None
    losses = read_arrays(out)
    if len(cases) == 1:  # the loss of training, where normalisation by the batch differs from evaluation
        with open(log) as f:
            loss = next(r["loss"] for r in map(json.loads, f) if "loss" in r)
        if loss is not None:  # not finite
            losses["s0"] = torch.tensor(float(loss))
    return "passed", "", losses, load_file(trained)


def off(got, want):
    """relative L2 of what is finite; infinite where one is finite and the other not"""
    g, w = got.double().flatten(), want.double().flatten()
    f = torch.isfinite(w)
    if not torch.equal(f, torch.isfinite(g)) or not torch.equal(g[~f].nan_to_num(1.5), w[~f].nan_to_num(1.5)):
        return float("inf")
    return ((g - w)[f].norm() / max(w[f].norm().item(), 1e-3)).item()


def judge(c, i, outputs, weights):
    """How sample `i` of a program differs; '' if it does not."""
    tensor = lambda v: torch.tensor(v, dtype=torch.float64)
    pairs = [("loss", "s0", tensor(c.want[0]), lambda: tensor(c.exact[0]))]
    if "s0" not in outputs:
        pairs = [(f"result {j}", f"s{i}_y{j}", y, lambda j=j: c.exact[2][j]) for j, y in enumerate(c.want[2])]
    pairs = [(what, outputs.get(name), want, exact) for what, name, want, exact in pairs]
    for j, start in enumerate(c.tensors(c.trained)):
        end = weights.get(f"s{i}_p{j}", start)
        if end.shape != start.shape:
            return f"parameter {j} has become {list(end.shape)}"
        gradient = torch.where(start == end, 0, (start.double() - end.double()) / LR)  # of an infinite number, too
        gradient = torch.where(start.isnan(), c.want[1][j].double(), gradient)  # what starts as NaN stays it: nothing to see
        pairs.append((f"gradient {j}", gradient, c.want[1][j], lambda j=j: c.exact[1][j]))
    for what, got, want, exact in pairs:
        if got is None or got.numel() != want.numel():
            return f"{what} is no output of {list(want.shape)}"
        if off(got, want) > 1e-4 and min(off(got, want), off(got, exact())) > 1e-4 + 10 * min(off(want, exact()), 1):
            show = lambda t: [float(f"{v:.5g}") for v in t.flatten()[:6].tolist()]
            return f"{what} of {list(want.shape)} off by {off(got, want):.2g}: {show(got)}, PyTorch {show(want)}"
    return ""


def smaller(a, cases, exporter, report):
    """Half of the operators; of one operator, whose samples are mostly refused alike, one by one until one passes, then halves."""
    names = list(dict.fromkeys(c.name for c in cases))
    if len(names) > 1:
        first = set(names[:len(names) // 2])
        parts = [c for c in cases if c.name in first], [c for c in cases if c.name not in first]
    else:
        cases = list(cases)
        while cases and not run(a, [cases.pop(0)], exporter, report):
            pass
        parts = cases[:len(cases) // 2], cases[len(cases) // 2:]
    for part in filter(None, parts):
        run(a, part, exporter, report)
    return False


def is_compiled(a, c):
    return not a.compiled or c.number < a.compiled


def place(a, exporter, name):
    tmp = os.path.join(a.tmp, f"{exporter}{a.shard.replace('/', 'of')}")
    os.makedirs(tmp, exist_ok=True)
    return os.path.join(tmp, name)


def exported(a, cases, exporter, report):
    """The cases that were exported together; the others are reported."""
    while True:
        lacking = [lacks.of(c, exporter) for c in cases]
        for c, names in zip(cases, lacking):
            if names:
                names = sorted(n if isinstance(n, str) else n[1] for n in names)
                report(c, "not exportable", f"the exporter has no {', '.join(names)}")
        cases = [c for c, names in zip(cases, lacking) if not names]
        if not cases:
            return []
        try:
            with limit(20 + 5 * len(cases)):
                export(cases, exporter, place(a, exporter, "model.onnx"))
            if exporter == "dynamo":
                lacks.exported.update(*(c.calls() for c in cases))
            return cases
        except Exception as e:
            if lacks.learn(cases, exporter, str(e)) and len(cases) > 1:
                continue
            if len(cases) > 1:
                smaller(a, cases, exporter, report)
            else:
                report(cases[0], "not exportable", first_line(e))
            return []


def run(a, cases, exporter, report):
    """Reports every case, and returns whether all passed; makes smaller groups of what cannot be exported or compiled as a whole."""
    path = place(a, exporter, "model.onnx")
    cases = exported(a, cases, exporter, report)
    if not cases:
        return False
    interprets = len(cases) > 1 and not is_compiled(a, cases[0])
    tmp = os.path.dirname(path)
    status, why, losses, weights = interpreted(a, path, tmp) if interprets else program(a, cases, path, tmp)
    if status != "passed" and len(cases) > 1:
        return smaller(a, cases, exporter, report)
    wrong = [judge(c, i, losses, weights) for i, c in enumerate(cases)] if status == "passed" else [why]
    if len(cases) > 1 and any(wrong):  # alone, so that it is the sample that differs and not the company
        for c, w in zip(cases, wrong):
            run(a, [c], exporter, report) if w else report(c, "passed", "interpreted" if interprets else "")
        return False
    if wrong[0] and RANDOM & {n.op_type for n in onnx.load(path).graph.node}:
        return report(cases[0], "not tried", "random")
    if wrong[0]:
        status, why = by_exporter(cases[0], path, losses) or (status if status != "passed" else "differs", wrong[0])
        os.replace(path, place(a, exporter, f"{cases[0].name}-{cases[0].number}.onnx"))
        return report(cases[0], status, why)
    for c in cases:
        report(c, "passed", "interpreted" if interprets else "")
    return True


def by_exporter(c, path, losses):
    """Whether ONNX Runtime, where it is installed, says that the file is not what PyTorch computed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    onnxruntime.set_default_logger_severity(4)
    try:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        got = torch.tensor(session.run(["s0"], {i.name: np.ones(1, np.float32) for i in session.get_inputs()})[0])
    except Exception as e:
        lost = "NOT_IMPLEMENTED" in str(e) or "NotImplemented" in type(e).__name__ or losses  # it has no such kernel
        return None if lost else ("exporter", "ONNX Runtime: " + first_line(e))
    want = torch.tensor(c.want[0], dtype=torch.float64)
    other = off(got, want)
    same = losses is None or off(losses["s0"], got) < other / 10
    return ("exporter", f"loss {got.item():.6g} in ONNX Runtime too, PyTorch {want.item():.6g}") if same and other > 1e-4 else None


# ---- all of them

def first_line(e):
    lines = [l for l in str(e).splitlines() if l.strip()] or [""]
    cause = next((l for l in lines if "Error" in l), lines[0])
    return f"{type(e).__name__}: {cause.strip()}"[:200]


@contextlib.contextmanager
def limit(seconds):
    def ring(*_):
        raise TimeoutError(f"no export in {seconds} s")
    signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def read_rows(paths):
    rows = {}
    for p in paths:
        if os.path.exists(p):
            for l in open(p):
                r = json.loads(l)
                rows[tuple(r[:3])] = r
    return rows


def table(rows):
    for exporter in EXPORTERS:
        mine = [r for r in rows if r[0] == exporter]
        if not mine:
            continue
        count = collections.Counter(r[3] for r in mine)
        of = lambda s: len({r[1] for r in mine if r[3] == s})
        print(f"{exporter}: " + ", ".join(f"{s} {n} ({of(s)} operators)" for s, n in count.most_common()))
        for status in ("crashed", "differs", "refused", "exporter"):
            groups = collections.defaultdict(list)
            for _, op, number, s, why in mine:
                if s == status:
                    why = re.sub(r"node '[^']*'|'[^']*onnx'|first '[^']*'|model.onnx: ", "", why)
                    groups[op if s in ("differs", "exporter") else re.sub(r"\d+", "N", why)[:150]].append((op, number, why))
            if groups:
                print(f"\n{exporter}, {status}{': the file is not what PyTorch computed' if status == 'exporter' else ''}:")
            for _, found in sorted(groups.items(), key=lambda g: -len(g[1])):
                ops = sorted({f"{op}-{n}" for op, n, _ in found})
                print(f"{len(found):4}  {found[0][2][:230]}  ({', '.join(ops[:4])}{', ...' if len(ops) > 4 else ''})")
        print()


def database(a):
    from torch.testing._internal.common_methods_invocations import op_db
    i, n = map(int, a.shard.split("/"))
    ops = [o for o in op_db if o.supports_autograd and torch.float32 in o.dtypes]
    return [o for k, o in enumerate(sorted(ops, key=lambda o: (o.name, o.variant_test_name)))
            if k % n == i and re.search(a.only, o.name + "." + o.variant_test_name)]


def work(a):
    begin, done = time.time(), read_rows([a.json])
    rows = list(done.values())  # of done only the keys are read
    log = open(a.json, "a") if a.json else io.StringIO()

    def add(*row):
        rows.append(list(row))
        print(json.dumps(row), file=log, flush=True)
        if row[3] in ("differs", "crashed"):
            print(*row, flush=True)

    exporters = [e for e in EXPORTERS if a.exporter in (e, "both")]
    waiting = {(e, isCompiled): [] for e in exporters for isCompiled in (True, False)}

    def report_to(e):
        return lambda c, status, why: add(e, c.name, c.number, status, why)

    def flush(least):
        for (e, _), cases in waiting.items():
            while len(cases) >= least and cases and not (a.seconds and time.time() - begin > a.seconds):
                now, cases[:] = cases[:a.group], cases[a.group:]
                run(a, now, e, report_to(e))

    for samples, op in ((n, op) for n in a.samples for op in database(a)):
        name = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
        for number, c, why in cases_of(op, samples, lambda n: any((e, name, n) not in done for e in exporters)):
            for e in exporters:
                if (e, name, number) in done:
                    continue
                done[e, name, number] = True
                if not c:
                    add(e, name, number, "not tried", why)
                elif not lacks.is_doubtful(c, e) or exported(a, [c], e, report_to(e)):
                    waiting[e, is_compiled(a, c)].append(c)
        flush(a.group)
        if a.seconds and time.time() - begin > a.seconds:
            break
    flush(1)
    table(rows)
    sys.exit(any(r[3] in ("differs", "crashed") for r in rows))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("zcc", nargs="?"), p.add_argument("tmp", nargs="?")
    p.add_argument("--samples", type=lambda v: [int(n) for n in v.split(",")], default=[0]), p.add_argument("--only", default="")
    p.add_argument("--exporter", choices=(*EXPORTERS, "both"), default="both")
    p.add_argument("--group", type=int, default=96), p.add_argument("--shard", default="0/1")
    p.add_argument("--compiled", type=int, default=0)
    p.add_argument("--seconds", type=float, default=0), p.add_argument("--json", default="")
    p.add_argument("--table", nargs="+")
    a = p.parse_args()
    if a.table:
        return table(list(read_rows(a.table).values()))
    if not a.tmp:
        p.error("ZCC and TMP are needed")
    global torch, tree, np, onnx, load_file, CalledNames, lacks
    import numpy as np, onnx, torch, torch.utils._pytree as tree
    from safetensors.torch import load_file
    import logging
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    CalledNames, lacks = called_names(), Lacks()
    a.zcc, a.tmp = os.path.abspath(a.zcc), os.path.abspath(a.tmp)
    os.makedirs(a.tmp, exist_ok=True)
    work(a)


if __name__ == "__main__":
    main()
