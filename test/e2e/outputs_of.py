#!/usr/bin/env python3
"""outputs_of.py ZCC FOLDER [ort]: trains models that end in their losses, exports them up to what the loss compares with the
labels, and gets the loss of those values from another program, compiled from the exported file: it is that of the first one.
ort: ONNX Runtime computes the same values."""
import json, os, re, subprocess, sys

zcc, folder, ort = sys.argv[1], sys.argv[2], "ort" in sys.argv[3:]
models = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models")
os.chdir(folder)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def eval_loss(log):
    return [e["eval_loss"] for e in map(json.loads, open(log)) if "eval_loss" in e][-1]


for model, variant in [("gpt", "dyn"), ("gpt", "ts"), ("gpt", "noopt"), ("convnet", "dyn"), ("convnet", "ts")]:
    data = os.path.join(models, model, "data.npz")
    run(zcc, os.path.join(models, model, variant + ".onnx"), "-o", "trained")
    out = run("./trained", "--data=" + data, "--steps=2", "--eval-data=" + data, "--log=a.jsonl", "--export=part.onnx",
              "--outputs-of=auto")
    value, inputs = re.search(r"note: part.onnx will compute '(.*?)' from (.*)", out).groups()
    assert inputs == ("'tokens'" if model == "gpt" else "'x'"), inputs
    run(zcc, "part.onnx", f"--loss=cross_entropy({value}, labels, axis=-1)", "-o", "part")
    run("./part", "--data=" + data, "--eval", "--log=b.jsonl", "--outputs=out.npz")
    mine, other = eval_loss("a.jsonl"), eval_loss("b.jsonl")
    assert abs(mine - other) <= 1e-6 * mine, f"{model}/{variant}: {mine}, from '{value}' {other}"
    if ort:
        import numpy, onnxruntime
        session = onnxruntime.InferenceSession("part.onnx", providers=["CPUExecutionProvider"])
        assert [o.name for o in session.get_outputs()] == [value]
        arrays, want, rows = numpy.load(data), numpy.load("out.npz")[value], session.get_inputs()[0].shape[0]
        got = session.run(None, {i.name: arrays[i.name][:rows] for i in session.get_inputs()})[0]
        assert numpy.allclose(got, want[:rows], rtol=1e-5, atol=1e-5), f"{model}/{variant}: {abs(got - want[:rows]).max()}"
    print(model, variant, value)
