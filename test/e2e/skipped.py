#!/usr/bin/env python3
"""skipped.py WORK: in bf16 a step with an infinite gradient on one rank changes nothing and does not count: the losses, rates and
exported weights are, bit for bit, those of a run without that step, at every ZeRO stage, with clipping and micro-batches."""
import json, os, subprocess, sys
from loss_scale import write_npy

MODULE = """module @line {
  param %w : f32[4] = splat 1.0 {trained}
  func @micro(%x : f32[1]) -> ("loss" : f32[]) {
    %xs = broadcast %x {dims = [4]} : f32[4]
    %y = mul %xs, %w : f32[4]
    %z = mul %y, %y : f32[4]
    %s = reduce_sum %z {axes = [0]} : f32[1]
    %loss = reshape %s {dims = []} : f32[]
    return %loss
  }
}
"""
SAMPLES = [0.5, -1.0, 0.25, 0.75, -0.5, 1.25, 1.0, -0.75]


def train(program, ranks, data, steps, work):
    write_npy(os.path.join(work, "x.npy"), data)
    log, weights = os.path.join(work, "log.jsonl"), os.path.join(work, "w.safetensors")
    subprocess.run(["mpirun", "-n", str(ranks), program, f"--data=x={work}/x.npy", f"--steps={steps}", "--quiet", f"--log={log}",
                    f"--export={weights}", "--lr-schedule=linear", "--lr-steps=20"], check=True)
    return [json.loads(line) for line in open(log)], open(weights, "rb").read()


def main(work):
    os.makedirs(work, exist_ok=True)
    model, program = os.path.join(work, "line.zir"), os.path.join(work, "line")
    open(model, "w").write(MODULE)
    for flags in (["--zero=0"], ["--zero=3"], ["--zero=1", "--clip-grad-norm=0.5"], ["--zero=2", "--grad-accum=2"]):
        subprocess.run(["zcc", model, "--dtype=bf16", "--lr=0.1", "--ranks=2", *flags, "-o", program], check=True)
        batch = 4 if "--grad-accum=2" in flags else 2
        bad = [float("inf")] + SAMPLES[1:batch]  # what rank 0 sees of step 1
        want, weights = train(program, 2, SAMPLES, len(SAMPLES) // batch, work)
        got, same = train(program, 2, SAMPLES[:batch] + bad + SAMPLES[batch:], len(SAMPLES) // batch + 1, work)
        assert [s["skipped"] for s in got] == [i == 1 for i in range(len(got))], f"{flags}: {got}"
        del got[1]
        for g, w in zip(got, want):
            assert (g["loss"], g["lr"], g["grad_norm"]) == (w["loss"], w["lr"], w["grad_norm"]), f"{flags}: {g}, not {w}"
        assert same == weights, f"{flags}: other weights"


try:
    main(sys.argv[1])
except AssertionError as e:
    sys.exit(f"skipped.py: {e}")
