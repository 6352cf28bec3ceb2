#!/usr/bin/env python3
"""zcc beside DeepSpeed on the same work, states and parameters on one disk, in turn in one run.

    deepspeed-nvme.py MODEL.onnx DATA.npz --peer "python peer.py --model M --mode ds3 --offload nvme" --nvme-path DIR
                 [--zcc build/bin/zcc] [--dtype bf16] [--accum 1,4] [--rounds 3] [--steps 4] [--flags "..."] [--memory SIZE]

`--peer` is a command that trains the model with DeepSpeed and prints, last, one line of JSON with `min_s`, `med_s` (seconds a step),
`rss_peak` (MiB) and `losses`; it is given --dtype, --steps and --accum. With --accum K the data must have K batches a step. Prints a line
for each number of micro-batches: medians over the rounds of both, the ratio of times and of resident peaks. With --memory zcc keeps what
fits within SIZE and chooses what goes to the disk. Exits with 1 where the losses of step 0 differ by more than 2e-3.
"""
import argparse, json, os, shlex, statistics, subprocess, sys, tempfile

import steps


def compiled(a, accum, program):
    if a.memory:
        places = [f"--memory={a.memory}", "--nvme=64GiB"]
    else:
        places = ["--offload-optimizer=nvme", "--offload-param=nvme", *(["--accum-order=blocks"] if accum > 1 else [])]
    subprocess.run([a.zcc, a.model, f"--dtype={a.dtype}", f"--grad-accum={accum}", *places, *shlex.split(a.flags), "-o", program],
                   check=True, capture_output=True)


def ours(a, program):
    times, losses, peak = steps.zcc_run(program, a.data, a.steps, ["--quiet", f"--nvme-path={a.nvme_path}"])
    return statistics.median(times), peak, losses[0]


def theirs(a, accum):
    command = [*shlex.split(a.peer), "--dtype", a.dtype, "--steps", str(a.steps), "--accum", str(accum), "--max-s", "1000"]
    out = subprocess.run(command, capture_output=True, text=True)
    rows = [line for line in out.stdout.splitlines() if line.startswith("{")]
    if not rows or "med_s" not in (row := json.loads(rows[-1])):
        sys.exit(f"deepspeed-nvme.py: {shlex.join(command)} gave no result:\n{out.stdout[-1000:]}{out.stderr[-2000:]}")
    return row["med_s"], row["rss_peak"], row["losses"][0]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model"); p.add_argument("data"); p.add_argument("--peer", required=True); p.add_argument("--nvme-path", required=True)
    p.add_argument("--zcc", default="build/bin/zcc"); p.add_argument("--dtype", default="bf16", choices=["fp32", "bf16"])
    p.add_argument("--accum", default="1,4"); p.add_argument("--rounds", type=int, default=3); p.add_argument("--steps", type=int, default=4)
    p.add_argument("--flags", default="--optimizer=adamw --lr=3e-4 --weight-decay=0.01")
    p.add_argument("--memory", help="what zcc may use, e.g. 900MiB")
    a = p.parse_args()
    differ = False
    print("| micro-batches | zcc s | DeepSpeed s | ratio of times | zcc MiB | DeepSpeed MiB | ratio | loss of step 0 |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as tmp:
        for accum in map(int, a.accum.split(",")):
            program = os.path.join(tmp, f"p{accum}")
            compiled(a, accum, program)
            pairs = [(ours(a, program), theirs(a, accum)) for _ in range(a.rounds)]
            (zt, zm, zl), (dt, dm, dl) = ([statistics.median(row[i] for row in side) for i in range(3)] for side in zip(*pairs))
            ratio = statistics.median(z[0] / d[0] for z, d in pairs)
            differ |= abs(zl - dl) > 2e-3
            print(f"| {accum} | {zt:.2f} | {dt:.2f} | {ratio:.2f} | {zm:.0f} | {dm:.0f} | {zm / dm:.2f} | {zl:.4f} / {dl:.4f} |", flush=True)
    sys.exit(differ)


if __name__ == "__main__":
    main()
