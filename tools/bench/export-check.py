#!/usr/bin/env python3
"""Runs exported models in ONNX Runtime and compares with the program's own --eval and --outputs; prints a table.

    export-check.py --zoo DIR [--only gpt2,resnet18,vit] [--zcc build/bin/zcc]       needs numpy and onnxruntime

DIR/NAME/ holds VARIANT.onnx, data.npz (two batches along the first axis) and ref.json (names the added loss of the logits.*
files and the batch of the dynbatch.* files). Each file is compiled, trained for 3 steps and exported; then both sides evaluate
the first batch with the trained weights: the loss if the file has one, its outputs if the loss was added.
"""
import argparse, json, os, subprocess, sys, tempfile
import numpy as np
from exported import variant_flags


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--zoo", required=True); p.add_argument("--only", default="gpt2,resnet18,vit")
    p.add_argument("--zcc", default="build/bin/zcc")
    a = p.parse_args()
    import onnxruntime as ort
    ort.set_default_logger_severity(3)
    worst = 0.0
    print("| model | file | compared | relative difference |\n|---|---|---|---|")
    for name in a.only.split(","):
        folder = os.path.join(a.zoo, name)
        ref = json.load(open(os.path.join(folder, "ref.json")))
        data = dict(np.load(os.path.join(folder, "data.npz")))
        half = {k: v[: len(v) // 2] for k, v in data.items()}
        for variant in ref["variants"]:
            with tempfile.TemporaryDirectory() as tmp:
                prog, out = os.path.join(tmp, "prog"), os.path.join(tmp, "trained.onnx")
                flags = variant_flags(ref, variant)
                run = lambda cmd: subprocess.run(cmd, check=True, capture_output=True, text=True)
                np.savez(os.path.join(tmp, "half.npz"), **half)
                onnx = os.path.join(folder, variant + ".onnx")
                run([a.zcc, onnx, "-o", prog, "--optimizer=sgd", "--lr=0.05", "--momentum=0.9"] + flags)
                run([prog, "--data=" + os.path.join(folder, "data.npz"), "--steps=3", "--export=" + out])
                # Evaluate the trained weights: the exported file, compiled anew.
                run([a.zcc, out, "-o", prog] + flags)
                log, outputs = os.path.join(tmp, "log.jsonl"), os.path.join(tmp, "out.npz")
                run([prog, "--eval", f"--data={tmp}/half.npz", "--log=" + log, "--outputs=" + outputs])
                s = ort.InferenceSession(out, providers=["CPUExecutionProvider"])
                feed = {i.name: half[i.name] for i in s.get_inputs()}
                names = [o.name for o in s.get_outputs()]
                got = dict(zip(names, s.run(None, feed)))
                mine = dict(np.load(outputs))
                far = 0.0
                for n in names:
                    x, y = np.asarray(mine[n], np.float64), np.asarray(got[n], np.float64)
                    off = np.linalg.norm(x.reshape(-1) - y.reshape(-1)) / max(1e-30, np.linalg.norm(y))
                    far = max(far, off if np.isfinite(off) else np.inf)
                worst = max(worst, far)
                print(f"| {name} | {variant} | {', '.join(names)} | {far:.1e} |", flush=True)
    print(f"largest: {worst:.1e}")
    sys.exit(int(worst > 1e-5))


if __name__ == "__main__":
    main()
