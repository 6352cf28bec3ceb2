#!/usr/bin/env python3
"""Step times of a model whose activations are to take a part of what they take without recomputation; prints a table.

    recompute.py MODEL.onnx DATA.npz [--parts 0.5,0.333,0.2] [--zcc build/bin/zcc] [--flags "--optimizer=adamw"] [--tile REGEX:K]
                 [--rounds 5] [--steps 5] [--larger MODEL.onnx DATA.npz TIMES]

Activations are what the plan says of values that are no gradients of parameters (activation_bytes, the most at any node, workspaces included): those
are model states (arXiv 1910.02054, section 3), as are parameters and what the optimizer keeps. A budget bounds gradients and libraries, too, which
differ from program to program: for each part the greatest of several budgets is taken with which activations are no more than that. All programs run in turn; times are over those of the plain program, the medians of the
rounds. With --tile there is a row of the tiles alone, and they are in the rows below. --larger is the same model with a batch TIMES as large: it is to take
no more memory than the plain program, and the table has its throughput over the plain program's.
"""
import argparse, collections, os, shlex, statistics, subprocess, tempfile

import steps as bench
from planned import planned

MIB = 2**20
BUDGETS, APART = 6, 2 * MIB  # a few MiB are of gradients and libraries


def plan(a, *flags, model=None):
    """What --plan says, or None where it is refused."""
    return planned([a.zcc, model or a.model, *a.flags, *flags])[0]


def activations(p):
    return p["spaces"]["device"]["activation_bytes"]


def needs(p):
    return p["spaces"]["device"]["arena_bytes"] + p["library_bytes"] + p["save_bytes"]


Program = collections.namedtuple("Program", "name model data flags plan times")


def programs(a, tmp):
    plain = plan(a)
    rows = [Program("plain", a.model, a.data, [], plain, 1)]
    tiles = [f"--tile={a.tile}"] if a.tile else ["--tile=none"]
    if a.tile:
        rows.append(Program(tiles[0], a.model, a.data, tiles, plan(a, *tiles), 1))
    whole = activations(plain)
    fixed = needs(plain) - whole
    for part in map(float, filter(None, a.parts.split(","))):
        for more in range(BUDGETS, -BUDGETS - 1, -1):
            flags = [*tiles, f"--memory={int(fixed + part * whole + more * APART)}"]
            made = plan(a, *flags)
            if made is None or activations(made) <= part * whole:
                break
        rows.append(Program(f"{part:g}", a.model, a.data, flags, made if made and activations(made) <= part * whole else None, 1))
    if a.larger:
        model, data, times = a.larger
        flags = [*tiles, f"--memory={needs(plain)}"]
        rows.append(Program(f"batch x {times}", model, data, flags, plan(a, *flags, model=model), float(times)))
    for r in rows:
        if r.plan:
            subprocess.run([a.zcc, r.model, *a.flags, *r.flags, "-o", path(tmp, r)], check=True, capture_output=True)
    return rows


def path(tmp, program):
    return os.path.join(tmp, program.name.replace("/", "_"))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model"); p.add_argument("data"); p.add_argument("--parts", default="0.5,0.333,0.2"); p.add_argument("--zcc", default="build/bin/zcc")
    p.add_argument("--flags", type=shlex.split, default=["--optimizer=adamw"]); p.add_argument("--tile")
    p.add_argument("--rounds", type=int, default=5); p.add_argument("--steps", type=int, default=5)
    p.add_argument("--larger", nargs=3, metavar=("MODEL", "DATA", "TIMES"))
    a = p.parse_args()
    a.zcc = os.path.abspath(a.zcc)
    with tempfile.TemporaryDirectory() as tmp:
        rows = programs(a, tmp)
        times, losses, resident = {}, {}, {}
        for _ in range(a.rounds):
            for r in rows:
                if r.plan:
                    seconds, loss, mib = bench.zcc_run(path(tmp, r), r.data, a.steps, ["--quiet"])
                    times.setdefault(r.name, []).append(statistics.median(seconds))
                    losses[r.name], resident[r.name] = loss[-1], max(mib, resident.get(r.name, 0))
    whole, predicted = activations(rows[0].plan), rows[0].plan["predicted_step_s"]
    print("| part | activations MiB | of plain | s | times plain, a sample | predicted | throughput | resident MiB | last loss |\n|---|---|---|---|---|---|---|---|---|")
    for r in rows:
        if not r.plan:
            print(f"| {r.name} | refused | | | | | | | |")
            continue
        over = statistics.median(t / plain / r.times for t, plain in zip(times[r.name], times["plain"]))
        print(f"| {r.name} | {activations(r.plan) / MIB:.0f} | {activations(r.plan) / whole:.2f} | {statistics.median(times[r.name]):.3f} | {over:.3f} | "
              f"{r.plan['predicted_step_s'] / predicted / r.times:.3f} | {1 / over:.3f} | {resident[r.name]:.0f} | {losses[r.name]:.7f} |")


if __name__ == "__main__":
    main()
