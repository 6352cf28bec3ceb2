#!/usr/bin/env python3
"""Predicted step times beside measured ones, on this machine's profile (`zcc --calibrate` writes it); prints a table.

    predict.py [--python PYTHON] [--zcc build/bin/zcc] [--profile FILE] [--models ..] [--dtypes fp32,bf16] [--ranks 1,2]
               [--steps 8] [--rounds 1] [--flags "..."] [--nvme-path DIR]

PYTHON has what workloads.py needs. Programs of several ranks partition parameters (--zero=3). Measured is the median of the steps
behind the first two; with several rounds each row is measured in each of them, and the one in the middle counts. With a folder for
NVMe, what lies there is predicted by that disk's rate (the mixed one of zcc-nvme), taken right before each measurement; --profile must be given then. Exits with 1 where one is off by more than --within (0.15 of the measured time).
"""
import argparse, os, shlex, shutil, statistics, subprocess, sys, tempfile

import steps as bench

MODELS = "mlp,gpt2-mini,gpt2-124m,llama-60m,bert-mini,vit-tiny,resnet18,resnet50"


def profile_with_disk(a, tmp):
    """The profile with the rate at which the disk reads and writes in this minute."""
    path = shutil.copy(a.profile, tmp)
    subprocess.run([os.path.join(os.path.dirname(a.zcc), "zcc-nvme"), "--block=1MiB", "--depth=16", f"--profile={path}", a.nvme_path],
                   check=True, capture_output=True)
    return path


def build(a, model, ranks, dtype, program, tmp):
    """The program; its predicted seconds a step."""
    flags = ["--optimizer=adamw", f"--dtype={dtype}", f"--ranks={ranks}", *(["--zero=3"] if ranks > 1 else []), *shlex.split(a.flags)]
    if a.profile:
        flags.append(f"--profile={profile_with_disk(a, tmp) if a.nvme_path else a.profile}")
    plan, told = bench.compiled(a, model, program, flags)
    return plan["predicted_step_s"] if plan else sys.exit(told)


def measure(a, name, ranks, data, program):
    """Seconds a step."""
    launch = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    nvme = [f"--nvme-path={a.nvme_path}"] if a.nvme_path else []
    return statistics.median(bench.zcc_run(program, data, bench.counted(name, a.steps), ["--quiet", *nvme], launch)[0])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--zcc", default="build/bin/zcc"); p.add_argument("--profile"); p.add_argument("--models", default=MODELS)
    p.add_argument("--dtypes", default="fp32,bf16"); p.add_argument("--ranks", default="1,2"); p.add_argument("--steps", type=int, default=8)
    p.add_argument("--rounds", type=int, default=1); p.add_argument("--flags", default=""); p.add_argument("--within", type=float, default=0.15)
    p.add_argument("--nvme-path")
    a = p.parse_args()
    if a.nvme_path and not a.profile:
        p.error("--nvme-path needs --profile")
    a.zcc = os.path.abspath(a.zcc)
    rows = [(m, d, r) for m in a.models.split(",") for d in a.dtypes.split(",") for r in map(int, a.ranks.split(","))]
    seen = {row: [] for row in rows}
    worst = 0.0
    print("| model | dtype | ranks | predicted s | measured s | predicted / measured |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as tmp:
        for i in range(a.rounds):
            for row in rows:
                model, dtype, ranks = row
                onnx, data = bench.exported(a.python, model, tmp)
                program = os.path.join(tmp, f"{model}-{dtype}-{ranks}")
                if i == 0 or a.nvme_path:
                    predicted = build(a, onnx, ranks, dtype, program, tmp)
                else:
                    predicted = seen[row][-1][0]
                seen[row].append((predicted, measure(a, model, ranks, data, program)))
                if i + 1 < a.rounds:
                    continue
                predicted, measured = sorted(seen[row], key=lambda pair: pair[0] / pair[1])[(a.rounds - 1) // 2]
                worst = max(worst, abs(predicted / measured - 1))
                print(f"| {model} | {dtype} | {ranks} | {predicted:.4f} | {measured:.4f} | {predicted / measured:.2f} |", flush=True)
    sys.exit(worst > a.within)


if __name__ == "__main__":
    main()
