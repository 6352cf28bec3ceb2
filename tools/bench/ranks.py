#!/usr/bin/env python3
"""Step time and memory of zcc's ZeRO stages on N ranks beside DDP, FSDP2 and DeepSpeed, in turn on one machine; a table.

    ranks.py --peers DIR [--python PYTHON] [--zcc build/bin/zcc] [--models gpt2-mini,..] [--ranks 2] [--steps 4]
             [--modes ddp,fsdp2,ds1,ds2,ds3] [--dtype fp32]

DIR and PYTHON are those of steps.py (PYTHON has deepspeed, too). The global batch is the same for all: a model is exported
once more with a rank's part of it. The last columns are seconds of the peer over zcc's at the stage in its name (DDP: 0,
FSDP2: 3), so above 1 is in zcc's favour, and zcc's resident size over the peer's.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile
from steps import WARM, flatten

STAGE = {"ddp": 0, "ds1": 1, "ds2": 2, "ds3": 3, "fsdp2": 3}
EXPORT = """
import sys, models
name, out, ranks = sys.argv[1], sys.argv[2], int(sys.argv[3])
whole = models.batches
models.batches = lambda n: [tuple(x[:len(x) // ranks] for x in b) for b in whole(n)]
import export
export.OUT = out
export.export(name, "ts")
"""

PEAK = """
import os, resource, subprocess, sys
subprocess.run(sys.argv[2:], check=True)
mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
open(sys.argv[1] + os.environ["OMPI_COMM_WORLD_RANK"], "w").write(str(mib))
"""


def variants():
    for stage in range(4):
        yield f"zero {stage}", stage, [f"--zero={stage}"]
    yield "zero 3, no prefetch, no overlap", 3, ["--zero=3", "--prefetch=off", "--overlap=off"]


def zcc(a, model, data, flags, tmp):
    prog = os.path.join(tmp, "prog")
    common = [model, f"--ranks={a.ranks}", "--optimizer=adamw", "--lr=3e-4", "--weight-decay=0.01", f"--dtype={a.dtype}"]
    subprocess.run([a.zcc, *common, *flags, "-o", prog], check=True)
    plan = json.loads(subprocess.run([a.zcc, *common, *flags, "--plan=json"], check=True, capture_output=True).stdout)
    # mpirun's own peak says nothing: each rank is run by a process that notes its child's.
    subprocess.run(["mpirun", "-n", str(a.ranks), sys.executable, "-c", PEAK, prog + ".peak", prog, f"--data={data}",
                    f"--steps={WARM + a.steps}", f"--log={prog}.jsonl", "--quiet"], check=True)
    rows = [json.loads(l) for l in open(prog + ".jsonl")]
    peaks = [float(open(f"{prog}.peak{r}").read()) for r in range(a.ranks)]
    os.remove(prog + ".jsonl")
    planned = (plan["spaces"]["device"]["arena_bytes"] + plan["library_bytes"]) / 2**20
    return statistics.median(r["time_s"] for r in rows[WARM:]), max(peaks), planned, rows[-1]["loss"]


def peer(a, name, mode):
    done = subprocess.run([a.python, "peer.py", "--model", name, "--mode", mode, "--dtype", a.dtype, "--ranks", str(a.ranks),
                           "--steps", str(a.steps)], cwd=a.peers, capture_output=True, text=True)
    lines = [l for l in done.stdout.splitlines() if l.startswith("{")]
    if not lines:
        sys.exit(f"ranks.py: {mode} failed:\n{done.stderr[-2000:]}")
    return json.loads(lines[-1])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--peers", required=True); p.add_argument("--python", default=sys.executable)
    p.add_argument("--zcc", default="build/bin/zcc"); p.add_argument("--models", default="gpt2-mini,gpt2-124m,llama-60m")
    p.add_argument("--ranks", type=int, default=2); p.add_argument("--steps", type=int, default=4)
    p.add_argument("--modes", default="ddp,fsdp2,ds1,ds2,ds3"); p.add_argument("--dtype", default="fp32")
    a = p.parse_args()
    a.peers = os.path.abspath(a.peers)
    print("| model | what | s | MiB | plan + library MiB | peer / zcc s | zcc / peer MiB | last loss |\n|---|---|---|---|---|---|---|---|")
    for name in a.models.split(","):
        with tempfile.TemporaryDirectory() as tmp:
            subprocess.run([a.python, "-c", EXPORT, name, tmp, str(a.ranks)], cwd=a.peers, check=True, capture_output=True)
            data, ours = flatten(a, name, tmp), {}
            for what, stage, flags in variants():
                t, rss, planned, loss = zcc(a, f"{tmp}/{name}.ts.onnx", data, flags, tmp)
                ours.setdefault(stage, (t, rss))
                print(f"| {name} | {what} | {t:.3f} | {rss:.0f} | {planned:.0f} | | | {loss:.5f} |", flush=True)
            for mode in filter(None, a.modes.split(",")):
                r = peer(a, name, mode)
                t, rss = ours[STAGE[mode]]
                print(f"| {name} | {mode} | {r['med_s']:.3f} | {r['rss_peak']:.0f} | | {r['med_s'] / t:.2f} | "
                      f"{rss / r['rss_peak']:.2f} | {r['losses'][-1]:.5f} |", flush=True)


if __name__ == "__main__":
    main()
