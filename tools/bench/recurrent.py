#!/usr/bin/env python3
"""Times recurrent language models of PTB size beside PyTorch, in turn: 2 layers of 650, 20 sequences of 35, vocabulary 10,000, AdamW.

    recurrent.py [--zcc build/bin/zcc] [--kinds LSTM,GRU] [--dtype fp32|bf16] [--modes eager,compile] [--threads 2] [--rounds 5] [--steps 12]

Run by a Python that has PyTorch and onnx. `scan` is a kind, too: the LSTM written as ONNX' Scan, which no peer runs. bf16 is autocast there.
Prints a line a program: the median over the rounds of each round's median step, in seconds, and that over zcc's.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile
import numpy as np
import steps as bench
import workloads

SIZES = dict(steps=35, batch=20, hidden=650, layers=2, vocab=10000)


def cell(layer, last):
    """The body of one layer's Scan; the last one's makes the logits, too."""
    from onnx import helper as h, TensorProto as t
    b, n, v = SIZES["batch"], SIZES["hidden"], SIZES["vocab"]
    ops = [("MatMul", f"x w{layer}", "xw"), ("MatMul", f"hp r{layer}", "hr"), ("Add", "xw hr", "s"), ("Add", f"s b{layer}", "g"),
           ("Split", "g", "gi gf gg go"), ("Sigmoid", "gi", "i"), ("Sigmoid", "gf", "f"), ("Tanh", "gg", "k"), ("Sigmoid", "go", "o"),
           ("Mul", "f cp", "fc"), ("Mul", "i k", "ik"), ("Add", "fc ik", "c"), ("Tanh", "c", "tc"), ("Mul", "o tc", "h")]
    ops += [("MatMul", "h head", "hw"), ("Add", "hw bias", "y")] if last else [("Identity", "h", "y")]
    nodes = [h.make_node(op, i.split(), o.split(), **(dict(axis=1, num_outputs=4) if op == "Split" else {})) for op, i, o in ops]
    value = lambda name, width: h.make_tensor_value_info(name, t.FLOAT, [b, width])
    return h.make_graph(nodes, f"cell{layer}", [value("hp", n), value("cp", n), value("x", n)],
                        [value("h", n), value("c", n), value("y", v if last else n)])


def export_scan(path):
    import onnx
    from onnx import helper as h, numpy_helper, TensorProto as t
    b, s, n, v, layers = (SIZES[k] for k in ("batch", "steps", "hidden", "vocab", "layers"))
    r = np.random.default_rng(0)
    shapes = dict(emb=(v, n), head=(n, v), bias=(v,))
    for i in range(layers):
        shapes.update({f"w{i}": (n, 4 * n), f"r{i}": (n, 4 * n), f"b{i}": (4 * n,)})
    known = {k: r.uniform(-.04, .04, d).astype(np.float32) for k, d in shapes.items()}
    known.update(zero=np.zeros((b, n), np.float32), flat=np.array([-1]), rows=np.array([-1, v]))
    nodes = [h.make_node("Gather", ["emb", "in0"], ["y"])]
    for i in range(layers):
        nodes.append(h.make_node("Scan", ["zero", "zero", "y" + str(i - 1) if i else "y"], [f"h{i}", f"c{i}", f"y{i}"],
                                 body=cell(i, i == layers - 1), num_scan_inputs=1))
    nodes += [h.make_node("Reshape", [f"y{layers - 1}", "rows"], ["logits"]), h.make_node("Reshape", ["in1", "flat"], ["labels"]),
              h.make_node("SoftmaxCrossEntropyLoss", ["logits", "labels"], ["loss"], reduction="mean")]
    inputs = [h.make_tensor_value_info(k, t.INT64, [s, b]) for k in ("in0", "in1")]
    graph = h.make_graph(nodes, "scan", inputs, [h.make_tensor_value_info("loss", t.FLOAT, [])],
                         [numpy_helper.from_array(a, k) for k, a in known.items()])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)]), path)


def compiled(a, kind, tmp):
    """A function that runs the program and returns the median of its steps."""
    name, data, prog = "lstm" if kind == "scan" else kind.lower(), os.path.join(tmp, "data.npz"), os.path.join(tmp, kind)
    export_scan(prog + ".onnx") if kind == "scan" else workloads.export(name, prog + ".onnx", 1)
    workloads.save_data(name, data)
    subprocess.run([a.zcc, prog + ".onnx", f"--dtype={a.dtype}", f"--threads={a.threads}", *bench.ADAMW, "-o", prog], check=True)
    return lambda: statistics.median(bench.zcc_run(prog, data, a.steps, ["--quiet"])[0])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--zcc", default="build/bin/zcc")
    p.add_argument("--kinds", default="LSTM,GRU")
    p.add_argument("--dtype", default="fp32")
    p.add_argument("--modes", default="eager,compile")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=12)
    a = p.parse_args()
    a.zcc = os.path.abspath(a.zcc)
    with tempfile.TemporaryDirectory() as tmp:
        for kind in a.kinds.split(","):
            modes = [] if kind == "scan" else a.modes.split(",")
            run, times = compiled(a, kind, tmp), {m: [] for m in ["zcc", *modes]}
            for _ in range(a.rounds):
                times["zcc"].append(run())
                for m in modes:
                    times[m].append(bench.pytorch(sys.executable, kind.lower(), m, a.dtype, a.steps, "--threads", str(a.threads))["median"])
            medians = {m: statistics.median(t) for m, t in times.items()}
            for m, t in medians.items():
                print(f"{kind} {a.dtype} {m}: {t:.4f} s, {t / medians['zcc']:.2f}", flush=True)


if __name__ == "__main__":
    main()
