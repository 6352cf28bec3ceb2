#!/usr/bin/env python3
"""Compiles ONNX's own backend node tests with zcc, runs them, and compares; prints what passed and why the rest did not.

    node-tests.py [--zcc build/bin/zcc] [--from DIR] [--only REGEX] [--failed-in OLD.json] [--jobs 2] [--json OUT] [--flags "..."]

Needs numpy, ml_dtypes and onnx. The tests are those of the installed onnx package, or, with --from, of a folder of
test_*/model.onnx with test_data_set_*/ (Debian: libonnx-testdata, /usr/share/libonnx-testdata/data/node).
Each test is compiled with --loss=none and run with --outputs; its own tolerances apply. Shapes are static in zcc: where a test
feeds what decides a shape or an axis as a graph input, that input is made an initializer (integers first, all if that is not
enough; the table says how often). Tests of operators that draw random numbers compare types and shapes.
16-bit results may be off by one unit in the last place of the largest element: references round at every step, zcc once.
"""
import argparse, collections, concurrent.futures, glob, json, os, re, shlex, subprocess, sys, tempfile, warnings
import numpy as np, onnx, ml_dtypes
from onnx import helper, numpy_helper, TensorProto as T

TYPES = {T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16, T.BOOL, T.INT8, T.INT16, T.INT32, T.INT64, T.UINT8, T.UINT16, T.UINT32, T.UINT64}
QUANTIZED = re.compile("QuantizeLinear|QLinear|ConvInteger|MatMulInteger")
RANDOM = {"Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"}
SEQUENCE_TYPES = ("sequence_type", "optional_type", "map_type", "sparse_tensor_type")


# ---- the tests

class Case:
    def __init__(self, name, model, sets, rtol=1e-3, atol=1e-7):
        self.name, self.model, self.sets, self.rtol, self.atol = name, model, sets, rtol, atol


def installed():
    from onnx.backend.test.loader import load_model_tests
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [Case(t.name, t.model, t.data_sets, t.rtol, t.atol) for t in load_model_tests(kind="node")]
    array = lambda v: numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v
    for c in cases:
        c.sets = [tuple([array(v) for v in side] for side in s) for s in c.sets if not excluded(c)]
    return cases


def in_folder(folder):
    def values(protos, infos):
        out = []
        for path, info in zip(protos, infos):
            if not info.type.HasField("tensor_type"):
                out.append(None)
                continue
            t = onnx.TensorProto()
            t.ParseFromString(open(path, "rb").read())
            v = numpy_helper.to_array(t)
            if info.type.tensor_type.elem_type == T.BFLOAT16 and v.dtype == np.uint16:  # stored so by older versions
                v = v.view(ml_dtypes.bfloat16)
            out.append(v)
        return out
    number = lambda p: int(re.findall(r"(\d+)\.pb$", p)[0])
    cases = []
    for path in sorted(glob.glob(os.path.join(folder, "test_*", "model.onnx"))):
        d = os.path.dirname(path)
        model = onnx.load(path)
        sets = []
        for s in sorted(glob.glob(os.path.join(d, "test_data_set_*"))):
            ins, outs = (sorted(glob.glob(os.path.join(s, k + "_*.pb")), key=number) for k in ("input", "output"))
            sets.append((values(ins, model.graph.input), values(outs, model.graph.output)))
        cases.append(Case(os.path.basename(d), model, sets))
    return cases


def nodes_of(graph):
    for n in graph.node:
        yield n
        for a in n.attribute:
            for g in ([a.g] if a.type == onnx.AttributeProto.GRAPH else a.graphs):
                yield from nodes_of(g)


def excluded(case):
    """Why a test is no test of a float, integer or bool operator on tensors; '' if it is one."""
    g = case.model.graph
    for v in list(g.input) + list(g.output):
        for kind in SEQUENCE_TYPES:
            if v.type.HasField(kind):
                return "a sequence or optional as input or output"
    elems = [v.type.tensor_type.elem_type for v in list(g.input) + list(g.output)]
    for n in nodes_of(g):
        if n.domain in ("ai.onnx.ml", "ai.onnx.preview.training", "ai.onnx.training"):
            return "domain " + n.domain
        if QUANTIZED.search(n.op_type):
            return "quantisation"
        for a in n.attribute:
            if n.op_type in ("Cast", "BitCast") and a.name == "to":
                elems.append(a.i)
            if a.type == onnx.AttributeProto.TENSOR:
                elems.append(a.t.data_type)
    elems += [t.data_type for t in g.initializer]
    for e in elems:
        if e == T.STRING:
            return "strings"
        if e not in TYPES:
            return "types that are no float of 16 bits or more, integer of 8 or more, or bool"
    return ""


def is_random(case):
    for n in nodes_of(case.model.graph):
        if n.op_type in RANDOM:
            return True
        if n.op_type == "Dropout" and len(n.input) > 2 and n.input[2]:
            return True
    return False


# ---- one test

def call(cmd, timeout=120):
    try:
        p = subprocess.run(cmd, capture_output=True, text=True, errors="replace", timeout=timeout)
    except subprocess.TimeoutExpired:
        return False, f"no answer in {timeout} s"
    lines = [l for l in (p.stderr + "\n" + p.stdout).splitlines() if l.strip()]
    what = next((l for l in lines if "error" in l), lines[-1] if lines else "")
    if p.returncode < 0:
        what = f"crashed with signal {-p.returncode}: {what}"
    if "not supported" in what:
        what += " | " + " | ".join(l for l in lines if "note" in l)
    return p.returncode == 0, re.sub(r"^(prog|model\.onnx|rank 0)?:? ?", "", what)


def frozen(case, inputs, level):
    """The model with inputs as initializers: 1 integers and bools of rank 0 and 1, 2 of any rank, 3 all."""
    m = onnx.ModelProto()
    m.CopyFrom(case.model)
    keep = []
    for info, value in zip(case.model.graph.input, inputs):
        small = value is not None and value.dtype.kind in "iub"
        if value is not None and (level == 3 or small and (level == 2 or level == 1 and value.ndim < 2)):
            m.graph.initializer.append(numpy_helper.from_array(value, info.name))
        else:
            keep.append((info, value))
    del m.graph.input[:]
    m.graph.input.extend(i for i, _ in keep)
    m.ir_version = max(m.ir_version, 4)
    return m, keep


def bits(a):
    return a.view(ml_dtypes.bfloat16) if a.dtype.kind == "V" and a.dtype.itemsize == 2 else a


def compare(case, want, got):
    for info, w in zip(case.model.graph.output, want):
        if info.name not in got:
            return f"output '{info.name}' is missing"
        g, w = bits(got[info.name]), np.asarray(w)
        if g.dtype != w.dtype:
            return f"type {g.dtype}, not {w.dtype}"
        if g.shape != w.shape:
            return f"shape {g.shape}, not {w.shape}"
        if is_random(case):
            continue
        if w.dtype.kind in "iub":
            if not np.array_equal(g, w) and not np.allclose(g.astype(np.float64), w.astype(np.float64), case.rtol, case.atol):
                return f"wrong integers in '{info.name}'"
            continue
        a, b = g.astype(np.float64), w.astype(np.float64)
        rtol, atol = case.rtol, case.atol
        if w.dtype.itemsize == 2 and w.size:
            unit = 2.0 ** -7 if w.dtype == ml_dtypes.bfloat16 else 2.0 ** -10
            finite = np.abs(b[np.isfinite(b)])
            rtol, atol = max(rtol, unit), max(atol, unit * finite.max(initial=0))
        if not np.allclose(a, b, rtol, atol, equal_nan=True):
            with np.errstate(all="ignore"):
                return f"wrong numbers in '{info.name}': off by {np.nanmax(np.abs(a - b)):.3g} of {np.nanmax(np.abs(b)):.3g}"
    return ""


def one(a, case):
    """(status, reason, how much was made an initializer)"""
    if why := excluded(case):
        return "excluded", why, 0
    for index, (inputs, outputs) in enumerate(case.sets):
        with tempfile.TemporaryDirectory() as tmp:
            path, prog, out = (os.path.join(tmp, f) for f in ("model.onnx", "prog", "out.npz"))
            level, good = 0, False
            tried = None
            while not good and level <= 3:
                model, keep = frozen(case, inputs, level)
                raw = model.SerializeToString(deterministic=True)
                if raw == tried:
                    level += 1
                    continue
                tried = raw
                open(path, "wb").write(raw)
                good, what = call([a.zcc, path, "--loss=none", "--threads=1", *shlex.split(a.flags), "-o", prog])
                if good or not any(w in what for w in ("not constant", "given at run time", "depends on data")):
                    break
                level += 1
            if not good:
                return "compile", what, level
            np.savez(os.path.join(tmp, "in.npz"), **{i.name: v for i, v in keep if v is not None})
            data = ["--data=" + os.path.join(tmp, "in.npz")] if keep else []
            good, what = call([prog, "--eval", "--outputs=" + out] + data)
            if not good:
                return "run", what, level
            with np.load(out) as z:
                got = {k: z[k] for k in z.files}
            if wrong := compare(case, outputs, got):
                return "differs", wrong, level
    return "pass", "", level


def guarded(a, case):
    try:
        return one(a, case)
    except Exception as e:
        return "tool", f"{type(e).__name__}: {e}"[:200], 0


# ---- the table

def group(reason):
    """The same reason for other names and numbers is one group."""
    reason = re.sub(r"(first )?'[^']*\.onnx'|node '[^']*'|node #\d+", "node", reason)
    reason = re.sub(r"off by .*", "", reason)
    reason = re.sub(r"\(1 node, first '.*?'\)", "", reason)
    return re.sub(r"\d+(\.\d+)?(e[-+]\d+)?", "N", reason)[:150]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--zcc", default="build/bin/zcc"); p.add_argument("--from", dest="folder"); p.add_argument("--only", default="")
    p.add_argument("--failed-in", default=""); p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--json", default=""); p.add_argument("--flags", default="", help="for zcc besides: \"--target=cuda --emulate\"")
    a = p.parse_args()
    cases = [c for c in (in_folder(a.folder) if a.folder else installed()) if re.search(a.only, c.name)]
    if a.failed_in:
        bad = {n for n, s, *_ in json.load(open(a.failed_in)) if s not in ("pass", "excluded")}
        cases = [c for c in cases if c.name in bad]
    rows = []
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as ex:
        for c, (status, why, level) in zip(cases, ex.map(lambda c: guarded(a, c), cases)):
            rows.append((c.name, status, why, level))
            if status not in ("pass", "excluded"):
                print(f"{c.name:60} {status:8} {why}", flush=True)
    if a.json:
        json.dump(rows, open(a.json, "w"), indent=0)
    for title, chosen in (("not tests of float, integer or bool operators on tensors", ("excluded",)),
                          ("failed", ("compile", "run", "differs", "tool"))):
        groups = collections.defaultdict(list)
        for name, status, why, _ in rows:
            if status in chosen:
                groups[group(why)].append(name)
        if groups:
            print(f"\n{title}:")
        for why, names in sorted(groups.items(), key=lambda x: -len(x[1])):
            print(f"{len(names):5}  {why}  ({', '.join(names[:4])}{', ...' if len(names) > 4 else ''})")
    tried = [r for r in rows if r[1] != "excluded"]
    good = [r for r in tried if r[1] == "pass"]
    print(f"\n{len(good)} passed of {len(tried)}; {len(rows) - len(tried)} excluded; "
          f"{sum(r[3] > 0 for r in good)} with inputs that decide shapes as initializers")
    sys.exit(len(good) != len(tried))


if __name__ == "__main__":
    main()
