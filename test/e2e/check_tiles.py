#!/usr/bin/env python3
"""check_tiles.py ZCC MODEL DATA RANKS NAME COMMON... -- FLAGS...: ten steps of the model with these flags beside ten without:
the losses to 1e-6 at step 0 and 1e-5 later, and the weights' way from the start to 1e-4 of its length (what the losses
follow from; a gradient's last bits are another order of sums, and a weight's own last bits are left out of it)."""
import json, math, struct, subprocess, sys

zcc, model, data, ranks, name, *rest = sys.argv[1:]
common, flags = rest[:rest.index("--")], rest[rest.index("--") + 1:]
program = [f for f in flags if f.startswith("--nvme-path")]


def tensors(path):
    raw = open(path, "rb").read()
    size = int.from_bytes(raw[:8], "little")
    for key, t in json.loads(raw[8:8 + size]).items():
        if key != "__metadata__" and t["dtype"] == "F32":
            begin, end = (8 + size + o for o in t["data_offsets"])
            yield key, struct.unpack(f"<{(end - begin) // 4}f", raw[begin:end])


def build(out, more):
    subprocess.run([zcc, model, "-o", out, f"--ranks={ranks}", "--threads=1", *common, *more], check=True)


def run(out, steps, more):
    subprocess.run(["mpirun", "-n", ranks, f"./{out}", f"--data={data}", f"--steps={steps}", f"--log={out}.jsonl", "--quiet",
                    f"--export={out}.safetensors", *more], check=True)
    return [json.loads(line)["loss"] for line in open(out + ".jsonl")], dict(tensors(out + ".safetensors"))


build(name + ".whole", [])
build(name + ".tiled", [f for f in flags if f not in program])
_, start = run(name + ".whole", 0, [])
losses, weights = run(name + ".whole", 10, [])
tiled, others = run(name + ".tiled", 10, program)
# In 16 bits each tile's sum is rounded, and a small weight's way is a few roundings long.
tolerance = 1e-1 if any("16" in f for f in common) else 1e-4
assert len(losses) == len(tiled) == 10
for step, (x, y) in enumerate(zip(losses, tiled)):
    limit = 5e-3 if tolerance > 1e-3 and step else 1e-5 if step else 1e-6
    assert abs(x - y) <= limit * abs(x), f"step {step}: {x!r}, in tiles {y!r}"
assert weights.keys() == others.keys() == start.keys()
for key, w in weights.items():
    way = math.dist(w, start[key])
    rounding = 1e-7 * math.sqrt(sum(x * x for x in w)) * 4
    assert math.dist(w, others[key]) <= tolerance * way + rounding, f"{key}: {math.dist(w, others[key])} of {way}"
