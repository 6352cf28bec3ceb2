#!/usr/bin/env python3
"""Step times of a model whose activations are to take a part of what they take without recomputation; prints a table.

    recompute.py MODEL.onnx DATA.npz [--parts 0.5,0.333,0.2] [--zcc build/bin/zcc] [--flags "--optimizer=adamw"] [--tile REGEX:K]
                 [--rounds 5] [--steps 5]

Activations are what the plan says of values that are no gradients of parameters (activation_bytes, the most at any node, workspaces included): those
are model states (arXiv 1910.02054, section 3), as are parameters and what the optimizer keeps. A budget bounds gradients and libraries, too, which
differ from program to program: for each part the greatest of several budgets is taken with which activations are no more than that. All programs run in turn; times are over those of the plain program, the medians of the
rounds. With --tile there is a row of the tiles alone, and they are in the rows below.
"""
import argparse, os, shlex, statistics, subprocess, tempfile

import steps as bench
from planned import planned

MIB = 2**20
BUDGETS, APART = 6, 2 * MIB  # a few MiB are of gradients and libraries


def plan(a, *flags):
    """What --plan says, or None where it is refused."""
    return planned([a.zcc, a.model, *a.flags, *flags])[0]


def activations(p):
    return p["spaces"]["device"]["activation_bytes"]


def programs(a, tmp):
    """(name, flags, plan) of each program."""
    plain = plan(a)
    rows = [("plain", [], plain)]
    tiles = [f"--tile={a.tile}"] if a.tile else ["--tile=none"]
    if a.tile:
        rows.append((tiles[0], tiles, plan(a, *tiles)))
    whole = activations(plain)
    fixed = plain["spaces"]["device"]["arena_bytes"] - whole + plain["library_bytes"] + plain["save_bytes"]
    for part in map(float, a.parts.split(",")):
        for more in range(BUDGETS, -BUDGETS - 1, -1):
            flags = [*tiles, f"--memory={int(fixed + part * whole + more * APART)}"]
            made = plan(a, *flags)
            if made is None or activations(made) <= part * whole:
                break
        rows.append((f"{part:g}", flags, made if made and activations(made) <= part * whole else None))
    for name, flags, p in rows:
        if p:
            subprocess.run([a.zcc, a.model, *a.flags, *flags, "-o", os.path.join(tmp, name.replace("/", "_"))], check=True, capture_output=True)
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model"); p.add_argument("data"); p.add_argument("--parts", default="0.5,0.333,0.2"); p.add_argument("--zcc", default="build/bin/zcc")
    p.add_argument("--flags", type=shlex.split, default=["--optimizer=adamw"]); p.add_argument("--tile")
    p.add_argument("--rounds", type=int, default=5); p.add_argument("--steps", type=int, default=5)
    a = p.parse_args()
    a.zcc = os.path.abspath(a.zcc)
    with tempfile.TemporaryDirectory() as tmp:
        rows = programs(a, tmp)
        times, losses, resident = {}, {}, {}
        for _ in range(a.rounds):
            for name, _, made in rows:
                if made:
                    seconds, loss, mib = bench.zcc_run(os.path.join(tmp, name.replace("/", "_")), a.data, a.steps, ["--quiet"])
                    times.setdefault(name, []).append(statistics.median(seconds))
                    losses[name], resident[name] = loss[-1], max(mib, resident.get(name, 0))
    whole, predicted = activations(rows[0][2]), rows[0][2]["predicted_step_s"]
    print("| part | activations MiB | of plain | s | times plain | predicted | resident MiB | last loss |\n|---|---|---|---|---|---|---|---|")
    for name, _, made in rows:
        if not made:
            print(f"| {name} | refused | | | | | | |")
            continue
        over = statistics.median(t / plain for t, plain in zip(times[name], times["plain"]))
        print(f"| {name} | {activations(made) / MIB:.0f} | {activations(made) / whole:.2f} | {statistics.median(times[name]):.3f} | {over:.3f} | "
              f"{made['predicted_step_s'] / predicted:.3f} | {resident[name]:.0f} | {losses[name]:.7f} |")


if __name__ == "__main__":
    main()
