#!/usr/bin/env python3
"""Step time, compile time and memory of zcc beside PyTorch, in turn on the same machine, and how far from the machine's bound; prints a table.

    steps.py [--python PYTHON] [--zcc build/bin/zcc] [--models mlp,gpt2-mini,..] [--dtypes fp32,bf16] [--modes eager,compile,max-autotune]
             [--steps 8] [--rounds 2] [--threads N] [--flags ".."] [--no-bound] [--part 0.4]

PYTHON has what workloads.py needs, where the models, the data and PyTorch's side are. Both sides take the same weights and batches. The ratio is the
median over the rounds of the best mode's time over zcc's: above 1 is in zcc's favour. The share is the bound of bounds.py over zcc's time.
PyTorch's memory is the least of the modes', while the counted steps run. With --part, what takes more than that part of it has a second row: the
program under a budget (--memory) of it.
"""
import argparse, functools, json, os, shlex, statistics, subprocess, sys, tempfile, time

import planned

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = "mlp,gpt2-mini,gpt2-124m,llama-60m,bert-mini,vit-tiny,resnet18,resnet50,mobilenet_v3_large,convnext_tiny,t5-small,lstm"
ADAMW = ["--optimizer=adamw", "--lr=3e-4", "--weight-decay=0.01"]
WARM = 2  # steps not counted, as in workloads.py


def workload(python, name, *args):
    done = subprocess.run([python, os.path.join(HERE, "workloads.py"), name, *args], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"workloads.py {name} {' '.join(args)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


@functools.cache
def exported(python, name, tmp, ranks=1):
    """Paths of the model with its loss (for a rank's part of the batch) and of its data."""
    paths = os.path.join(tmp, f"{name}.{ranks}.onnx"), os.path.join(tmp, name + ".npz")
    workload(python, name, "--onnx", paths[0], "--data", paths[1], "--ranks", str(ranks))
    return paths


def pytorch(python, name, mode, dtype, steps, *args):
    """What workloads.py measures of a mode."""
    out = workload(python, name, "--mode", mode, "--dtype", dtype, "--steps", str(steps), *args)
    return json.loads(next(l for l in out.splitlines() if l.startswith("{")))


def counted(name, steps):
    return steps * 40 if name == "mlp" else steps  # of which each takes a millisecond


def zcc_run(prog, data, steps, flags=(), launch=()):
    """Seconds of each counted step, losses of all, the resident peak in MiB (of `launch`, where that starts the program)."""
    log = prog + ".jsonl"
    p = subprocess.Popen([*launch, prog, f"--data={data}", f"--steps={WARM + steps}", f"--log={log}", *flags], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(p.pid, 0)
    if status:
        sys.exit(f"{prog} failed")
    rows = [json.loads(l) for l in open(log)]
    return [r["time_s"] for r in rows[WARM:]], [r["loss"] for r in rows], usage.ru_maxrss / 1024


def promised(plan):
    """MiB that the plan promises, the libraries' included."""
    return (sum(s.get("arena_bytes", 0) for s in plan["spaces"].values()) + plan["library_bytes"]) / 2**20


def print_row(cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def compiled(a, onnx, prog, flags):
    """The plan and seconds that zcc takes; None and why, where memory is what is missing."""
    plan, refusal = planned.planned([a.zcc, onnx, *flags])
    if not plan:
        return None, planned.error(refusal)
    start = time.time()
    subprocess.run([a.zcc, onnx, "-o", prog, *flags], check=True, capture_output=True)
    return plan, time.time() - start


def budget_row(a, name, dtype, onnx, data, prog, flags, theirs, their_rss):
    """The program in `part` of PyTorch's memory, whose seconds `theirs` are the best mode's."""
    budget = int(a.part * their_rss * 2**20)
    label = f"{name} in {a.part:g} of it"
    plan, took = compiled(a, onnx, prog, [*flags, f"--memory={budget}"])
    if not plan:
        return print_row([label, dtype, took])
    runs = [zcc_run(prog, data, counted(name, a.steps)) for _ in range(a.rounds)]
    mine, rss = min(statistics.median(times) for times, _, _ in runs), max(mib for _, _, mib in runs)
    cells = [label, dtype, f"{mine:.4f}", *[""] * len(a.modes), f"{theirs / mine:.2f}", "", f"{rss:.0f}", f"{promised(plan):.0f}", f"{their_rss:.0f}",
             f"{rss / their_rss:.2f}", f"{took:.1f}", ""]
    print_row(cells)


def row(a, name, dtype, tmp):
    (onnx, data), prog = exported(a.python, name, tmp), os.path.join(tmp, name)
    flags = [*ADAMW, f"--dtype={dtype}", f"--threads={a.threads}", *shlex.split(a.flags)]
    plan, took = compiled(a, onnx, prog, flags)
    steps, mine, theirs, rss, diff = counted(name, a.steps), [], {m: [] for m in a.modes}, 0, 0.0
    for _ in range(a.rounds):
        times, losses, mib = zcc_run(prog, data, steps)
        mine.append(statistics.median(times)); rss = max(rss, mib)
        for mode in a.modes:
            r = pytorch(a.python, name, mode, dtype, steps, "--threads", str(a.threads))
            theirs[mode].append(r)
            diff = max([diff] + [abs(x - y) / abs(y) for x, y in zip(losses, r["losses"])])
    seconds = [f"{min(r['median'] for r in theirs[m]):.4f}" for m in a.modes]
    ratio = statistics.median(min(theirs[m][i]["median"] for m in a.modes) / mine[i] for i in range(a.rounds)) if a.modes else 0
    their_rss = min((max(r["mib"] for r in theirs[m]) for m in a.modes), default=0)
    share = ""
    if a.bound:
        out = subprocess.run([a.python, os.path.join(HERE, "bounds.py"), onnx, data, "--zcc", a.zcc, "--flags", shlex.join(flags),
                              "--threads", str(a.threads), "--share"], check=True, capture_output=True, text=True).stdout
        share = f"{float(out):.2f}"
    cells = [name, dtype, f"{min(mine):.4f}", *seconds, f"{ratio:.2f}", share, f"{rss:.0f}", f"{promised(plan):.0f}", f"{their_rss:.0f}",
             f"{rss / their_rss:.2f}" if their_rss else "", f"{took:.1f}", f"{diff:.1e}"]
    print_row(cells)
    if a.part and rss > a.part * their_rss > 0:
        best = min(r["median"] for m in a.modes for r in theirs[m])
        budget_row(a, name, dtype, onnx, data, prog, flags, best, their_rss)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--python", default=sys.executable); p.add_argument("--zcc", default="build/bin/zcc")
    p.add_argument("--models", default=MODELS); p.add_argument("--dtypes", default="fp32"); p.add_argument("--modes", default="eager,compile")
    p.add_argument("--steps", type=int, default=8); p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0))); p.add_argument("--flags", default="")
    p.add_argument("--no-bound", dest="bound", action="store_false"); p.add_argument("--part", type=float)
    a = p.parse_args()
    a.zcc, a.modes = os.path.abspath(a.zcc), [m for m in a.modes.split(",") if m]
    heads = ["model", "type", "zcc s", *[f"{m} s" for m in a.modes], "best / zcc", "share of bound", "zcc MiB", "plan + library MiB", "PyTorch MiB",
             "zcc / PyTorch MiB", "compile s", "largest loss difference"]
    print_row(heads)
    print("|" + "---|" * len(heads))
    with tempfile.TemporaryDirectory() as tmp:
        for name in a.models.split(","):
            for dtype in a.dtypes.split(","):
                row(a, name, dtype, tmp)


if __name__ == "__main__":
    main()
