#!/usr/bin/env python3
"""Step time and memory of zcc's ZeRO stages on N ranks beside DDP, FSDP2 and DeepSpeed, in turn on one machine; a table.

    ranks.py [--python PYTHON] [--zcc build/bin/zcc] [--models gpt2-mini,..] [--ranks 2] [--steps 4]
             [--modes ddp,fsdp2,ds1,ds2,ds3] [--dtype fp32] [--pairs 0]

PYTHON has what workloads.py needs, deepspeed too. The global batch is the same for all: a model is exported with a rank's part of it.
The last columns are seconds of the peer over zcc's at the stage in its name (DDP: 0,
FSDP2: 3), so above 1 is in zcc's favour, and zcc's resident size over the peer's.
With --pairs N, instead: stage 3 with prefetch and overlap over without, N pairs in turn, and the least seconds of both.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile
import steps as bench

STAGE = {"ddp": 0, "ds1": 1, "ds2": 2, "ds3": 3, "fsdp2": 3}
PEAK = """
import os, resource, subprocess, sys
subprocess.run(sys.argv[2:], check=True)
mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
open(sys.argv[1] + os.environ["OMPI_COMM_WORLD_RANK"], "w").write(str(mib))
"""


def variants():
    for stage in range(4):
        yield f"zero {stage}", stage, [f"--zero={stage}"]
    yield "zero 3, prefetch and overlap", 3, ["--zero=3", "--prefetch=on", "--overlap=on"]


def logged(a, prog, data, *by):
    """The log's rows; `by`: what runs each rank's program."""
    log = prog + ".jsonl"
    subprocess.run(["mpirun", "-n", str(a.ranks), *by, prog, f"--data={data}", f"--steps={bench.WARM + a.steps}", f"--log={log}",
                    "--quiet"], check=True)
    rows = [json.loads(l) for l in open(log)]
    os.remove(log)
    return rows


def median(rows):
    return statistics.median(r["time_s"] for r in rows[bench.WARM:])


def zcc(a, model, data, flags, tmp):
    prog = os.path.join(tmp, "prog")
    common = [model, f"--ranks={a.ranks}", *bench.ADAMW, f"--dtype={a.dtype}"]
    subprocess.run([a.zcc, *common, *flags, "-o", prog], check=True)
    plan = json.loads(subprocess.run([a.zcc, *common, *flags, "--plan=json"], check=True, capture_output=True).stdout)
    # mpirun's own peak says nothing: each rank is run by a process that notes its child's.
    rows = logged(a, prog, data, sys.executable, "-c", PEAK, prog + ".peak")
    peaks = [float(open(f"{prog}.peak{r}").read()) for r in range(a.ranks)]
    return median(rows), max(peaks), bench.promised(plan), rows[-1]["loss"]


def beside(a, name, model, data, tmp):
    """A row: the median of the ratios of pairs."""
    programs, seconds = [], ([], [])
    for told in ("off", "on"):
        programs.append(os.path.join(tmp, told))
        subprocess.run([a.zcc, model, f"--ranks={a.ranks}", *bench.ADAMW, f"--dtype={a.dtype}", "--zero=3", f"--prefetch={told}",
                        f"--overlap={told}", "-o", programs[-1]], check=True)
    for pair in range(a.pairs):
        for i in (0, 1) if pair % 2 else (1, 0):
            seconds[i].append(median(logged(a, programs[i], data)))
    ratios = [on / off for off, on in zip(*seconds)]
    print(f"| {name} | {statistics.median(ratios):.3f} | {min(ratios):.3f} to {max(ratios):.3f} | {min(seconds[0]):.4f} | "
          f"{min(seconds[1]):.4f} |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--zcc", default="build/bin/zcc"); p.add_argument("--models", default="gpt2-mini,gpt2-124m,llama-60m")
    p.add_argument("--ranks", type=int, default=2); p.add_argument("--steps", type=int, default=4)
    p.add_argument("--modes", default="ddp,fsdp2,ds1,ds2,ds3"); p.add_argument("--dtype", default="fp32")
    p.add_argument("--pairs", type=int, default=0)
    a = p.parse_args()
    if a.pairs:
        print(f"| model, {a.dtype} | on / off | from, to | off s | on s |\n|---|---|---|---|---|")
        for name in a.models.split(","):
            with tempfile.TemporaryDirectory() as tmp:
                beside(a, name, *bench.exported(a.python, name, tmp, a.ranks), tmp)
        return
    print("| model | what | s | MiB | plan + library MiB | peer / zcc s | zcc / peer MiB | last loss |\n|---|---|---|---|---|---|---|---|")
    for name in a.models.split(","):
        with tempfile.TemporaryDirectory() as tmp:
            (onnx, data), ours = bench.exported(a.python, name, tmp, a.ranks), {}
            for what, stage, flags in variants():
                t, rss, planned, loss = zcc(a, onnx, data, flags, tmp)
                ours.setdefault(stage, (t, rss))
                print(f"| {name} | {what} | {t:.3f} | {rss:.0f} | {planned:.0f} | | | {loss:.5f} |", flush=True)
            for mode in filter(None, a.modes.split(",")):
                try:
                    r = bench.pytorch(a.python, name, mode, a.dtype, a.steps, "--ranks", str(a.ranks))
                except SystemExit as e:
                    print(f"| {name} | {mode} | stops with an error | | | | | |", flush=True)
                    print(e, file=sys.stderr)
                    continue
                t, rss = ours[STAGE[mode]]
                print(f"| {name} | {mode} | {r['median']:.3f} | {r['mib']:.0f} | | {r['median'] / t:.2f} | "
                      f"{rss / r['mib']:.2f} | {r['losses'][-1]:.5f} |", flush=True)


if __name__ == "__main__":
    main()
