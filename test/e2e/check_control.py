#!/usr/bin/env python3
"""check_control.py ZCC MODULE.zir: three steps of the compiled program have the losses of the interpreter."""
import json, os, struct, subprocess, sys, zipfile

zcc, module = sys.argv[1:]
opt = zcc + "-opt"
base = os.path.splitext(module)[0]
sgd = ["--optimizer=sgd", "--lr=0.05"]
run = lambda *args: subprocess.run(args, check=True, stdout=subprocess.DEVNULL)

run(zcc, module, *sgd, "-o", base)
run(base, "--steps=3", f"--log={base}.jsonl")
compiled = [json.loads(line)["loss"] for line in open(f"{base}.jsonl")]

passes = ["fold-constants", "simplify", "eliminate-dead", "differentiate", "eliminate-dead", "append-optimizer"]
run(opt, *["--" + p for p in passes], *sgd, module, "-o", f"{base}.opt.zir")
values, losses = {}, []
for _ in compiled:
    given = []
    if losses:  # the params that the step before left
        with zipfile.ZipFile(f"{base}.in.npz", "w") as z:
            for name, data in values.items():
                z.writestr(name, data)
        given = [f"{base}.in.npz"]
    run(opt, "--run" + ("=" + given[0] if given else ""), f"--outputs={base}.out.npz", f"{base}.opt.zir")
    with zipfile.ZipFile(f"{base}.out.npz") as z:
        values = {n: z.read(n) for n in z.namelist()}
    losses.append(struct.unpack("<f", values.pop("loss.npy")[-4:])[0])
for a, b in zip(compiled, losses):
    if not abs(a - b) <= 2e-5 * abs(b):
        sys.exit(f"{base}: the program's losses are {compiled}, the interpreter's {losses}")
if losses[0] == losses[1]:
    sys.exit(f"{base}: nothing was trained")
print(os.path.basename(base), "agrees")
