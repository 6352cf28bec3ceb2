#!/usr/bin/env python3
"""check_metrics.py data OUT: 22 samples of the mlp, some labels ignored; the last batch of 8 is not full.
check_metrics.py record [FILE]: what scikit-learn and PyTorch make of them, as onnxruntime computes the logits; compared with FILE, or printed.
check_metrics.py check FILE WIDTH LOG...: logs of runs at lr 0 whose steps take WIDTH batches of 8, against the record.
check_metrics.py same LOG LOG...: logs that tell the same metrics.
check_metrics.py line PROGRAM: errors of a linear model.
check_metrics.py events DIR LOG: TensorBoard's events against the log."""
import glob
import json
import math
import os
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
from split_samples import read, write

MODEL = os.path.join(os.path.dirname(__file__), "../models/mlp")
BATCH, SAMPLES, CLASSES = 8, 22, 7
NAMES = "accuracy", "top2", "top3", "perplexity"


def samples():
    """Rows of x as bytes, labels."""
    x = read(f"{MODEL}/data.npz")["x"]
    labels = [-100 if i % 7 == 3 else (i * i + 1) % CLASSES for i in range(SAMPLES)]
    return x, [x[2][i * 5 % len(x[2])] for i in range(SAMPLES)], labels


def data(out):
    (descr, shape, _), rows, labels = samples()
    write(out, {"x": (descr, shape, rows), "labels": ("<i8", (), [struct.pack("<q", n) for n in labels])})


def record(path=None):
    import numpy as np
    import onnx
    import onnxruntime
    import torch
    from sklearn.metrics import accuracy_score, top_k_accuracy_score
    model = onnx.load(f"{MODEL}/noopt.onnx")
    model.graph.output.append(onnx.helper.make_tensor_value_info("linear_2", 1, [BATCH, CLASSES]))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    _, rows, labels = samples()
    x = np.frombuffer(b"".join(rows + rows[:BATCH]), np.float32).reshape(SAMPLES + BATCH, -1)
    labels = np.array(labels)
    logits = np.concatenate([session.run(["linear_2"], {"x": x[i:i + BATCH], "labels": np.zeros(BATCH, np.int64)})[0]
                             for i in range(0, SAMPLES, BATCH)])[:SAMPLES]

    def of(first, last):
        valid = labels[first:last] != -100
        y, t = logits[first:last][valid], labels[first:last][valid]
        ranks = {f"top{k}": top_k_accuracy_score(t, y, k=k, labels=np.arange(CLASSES)) for k in (2, 3)}
        loss = torch.nn.functional.cross_entropy(torch.tensor(y, dtype=torch.float64), torch.tensor(t))
        return {"accuracy": accuracy_score(t, y.argmax(1)), **ranks, "perplexity": math.exp(loss), "count": int(valid.sum())}

    found = {"all": of(0, SAMPLES), "batches": [of(i, i + BATCH) for i in range(0, SAMPLES - BATCH + 1, BATCH)]}
    if not path:
        return print(json.dumps(found, indent=1))
    known = json.load(open(path))
    for a, b in zip([found["all"]] + found["batches"], [known["all"]] + known["batches"]):
        assert all(math.isclose(a[k], b[k], rel_tol=1e-5) for k in a), (a, b)


def lines(log):
    return [json.loads(line) for line in open(log)]


def check(path, width, *logs):
    known = json.load(open(path))
    for log in logs:
        for row in lines(log):
            batches = [known["batches"][(row["step"] * int(width) + i) % len(known["batches"])] for i in range(int(width))]
            count = sum(b["count"] for b in batches)
            for name in NAMES:
                mean = [math.log(b[name]) if name == "perplexity" else b[name] for b in batches]
                want = sum(m * b["count"] for m, b in zip(mean, batches)) / count
                got = math.log(row[name]) if name == "perplexity" else row[name]
                assert math.isclose(got, want, rel_tol=1e-5, abs_tol=1e-6), (log, row, name, want)
                if "eval_loss" in row:
                    assert math.isclose(row["eval_" + name], known["all"][name], rel_tol=1e-5), (log, row, known["all"])
            assert "eval_loss" not in row or math.isclose(row["eval_perplexity"], math.exp(row["eval_loss"]), rel_tol=1e-5)


def same(first, *logs):
    keys = [k for k in lines(first)[0] if k.removeprefix("eval_") in NAMES]
    assert keys, lines(first)[0]
    for log in logs:
        for a, b in zip(lines(first), lines(log), strict=True):
            assert all(math.isclose(a[k], b[k], rel_tol=1e-5) for k in keys), (first, a, log, b)


def line(program):
    """Eleven rows of y = x w against a target that is 1: what the program tells are the means over the rows that there are."""
    w = ((1, 2, -3), (0.5, -1, 2))
    x = [(i % 5 - 2.0, i * 0.25) for i in range(11)]
    write("line.npz", {"x": ("<f4", (2,), [struct.pack("<2f", *r) for r in x]), "target": ("<f4", (3,), [struct.pack("<3f", 1, 1, 1)] * 11)})
    subprocess.run([program, "--data=line.npz", "--eval-data=line.npz", "--steps=2", "--quiet", "--log=line.jsonl"], check=True)
    errors = [[sum(a * b for a, b in zip(r, column)) - 1 for column in zip(*w)] for r in x]

    def mean(rows, power):
        return sum(abs(d)**power for r in rows for d in r) / (3 * len(rows))

    for i, row in enumerate(lines("line.jsonl")):
        batch = errors[4 * i:4 * i + 4]
        assert math.isclose(row["mae"], mean(batch, 1), rel_tol=1e-6) and math.isclose(row["mse"], row["loss"], rel_tol=1e-6), row
        assert math.isclose(row["mse"], mean(batch, 2), rel_tol=1e-6), row
    assert math.isclose(row["eval_mae"], mean(errors, 1), rel_tol=1e-6) and math.isclose(row["eval_mse"], mean(errors, 2), rel_tol=1e-6), row
    assert math.isclose(row["eval_mse"], row["eval_loss"], rel_tol=1e-6), row


def crc(data):
    c = 0xffffffff
    for b in data:
        c ^= b
        for _ in range(8):
            c = c >> 1 ^ (0x82f63b78 if c & 1 else 0)
    c ^= 0xffffffff
    return ((c >> 15 | c << 17) + 0xa282ead8) & 0xffffffff


def fields(message):
    """The fields of a protocol buffers message: number and value."""
    def varint():
        nonlocal at
        n = shift = 0
        while True:
            b = message[at]
            at += 1
            n |= (b & 127) << shift
            shift += 7
            if b < 128:
                return n
    at, found = 0, []
    while at < len(message):
        key = varint()
        if key & 7 == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            value = message[at:at + size]
            at += size
        found.append((key >> 3, value))
    return found


def events(folder, log):
    scalars, restarts = {}, []
    for path in sorted(glob.glob(folder + "/events.out.tfevents.*"), key=os.path.getmtime):
        raw, at = open(path, "rb").read(), 0
        while at < len(raw):
            size, head = struct.unpack_from("<QI", raw, at)
            event, (tail,) = raw[at + 12:at + 12 + size], struct.unpack_from("<I", raw, at + 12 + size)
            assert crc(raw[at:at + 8]) == head and crc(event) == tail, path
            at += 16 + size
            of = dict(fields(event))
            restarts += [of[2]] if 7 in of else []
            for _, value in fields(of.get(5, b"")):
                v = dict(fields(value))
                scalars[of[2], v[1].decode()] = struct.unpack("<f", v[2])[0]
    for row in lines(log):
        for key, x in row.items():
            tag = key.replace("eval_", "eval/")
            if isinstance(x, float) and key not in ("time_s",):
                assert math.isclose(scalars[row["step"], tag], x, rel_tol=1e-5), (row, tag)
    print(len(scalars), "numbers, begun again at", restarts)
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        return
    seen = EventAccumulator(folder)
    seen.Reload()
    for tag in seen.Tags()["scalars"]:
        for e in seen.Scalars(tag):
            assert e.value == scalars[e.step, tag], (tag, e)
    assert len(lines(log)) == len(seen.Scalars("loss"))


if __name__ == "__main__":
    {"data": data, "record": record, "check": check, "same": same, "events": events, "line": line}[sys.argv[1]](*sys.argv[2:])
