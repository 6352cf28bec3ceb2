#!/usr/bin/env python3
"""One model under budgets from 5 % to 100 % of what it needs without: does it compile, how long does it search, what it promises, and what
the run then takes. Prints a table, and at the end whether every promise was kept: no peak above the budget, no prediction that rises with
the budget, the plain run's losses bit for bit, or to 1e-5 where nothing fits without tiles.

budgets.py --nvme-path FOLDER MODEL.onnx DATA.npz [--zcc build/bin/zcc] [--parts 20] [--steps 3] [--] FLAGS..."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from planned import error, planned
from resident import peak_until_end

MIB = 1 << 20


def compiled(a, flags, out):
    """The plan, or None and why not; seconds of the search."""
    command = [a.zcc, a.model, *a.flags, *flags]
    began = time.monotonic()
    plan, why = planned(command)
    seconds = time.monotonic() - began
    if not plan:
        return None, error(why), seconds
    if not a.no_run:
        subprocess.run([*command, "-o", out], capture_output=True, check=True)
    return plan, "", seconds


def trained(a, program, folder):
    """Losses, the resident peak in bytes, seconds of the fastest step."""
    log = os.path.join(folder, "log.jsonl")
    run = subprocess.Popen([program, f"--data={a.data}", f"--steps={a.steps}", "--quiet", f"--log={log}", f"--nvme-path={a.nvme_path}"],
                           stderr=subprocess.PIPE, text=True)
    peak = peak_until_end(run)
    if run.returncode:
        sys.exit(run.stderr.read())
    with open(log) as f:
        steps = [line for line in map(json.loads, f) if "loss" in line and "step" in line]
    os.remove(log)
    return [s["loss"] for s in steps], peak, min(s["time_s"] for s in steps)


def needs_tiles(a, budget, program):
    """Whether nothing fits whole: tiles add up in another order."""
    return compiled(a, [f"--memory={budget}", f"--nvme={a.nvme}", "--tile=none"], program)[0] is None


def is_near(losses, others):
    return all(abs(x - y) <= 1e-5 * abs(y) for x, y in zip(losses, others, strict=True))


def needs(plan):
    return plan["spaces"]["device"]["arena_bytes"] + plan["library_bytes"]


def row(*cells):
    print(" | ".join(f"{c:>9}" for c in cells), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--zcc", default="build/bin/zcc")
    p.add_argument("--nvme-path", required=True)
    p.add_argument("--nvme", default="64GiB")
    p.add_argument("--parts", type=int, default=20)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--no-run", action="store_true", help="plans only")
    p.add_argument("model")
    p.add_argument("data")
    p.add_argument("flags", nargs="*")
    a = p.parse_args()
    with tempfile.TemporaryDirectory(dir=a.nvme_path) as folder:
        program = os.path.join(folder, "program")
        plain, why, _ = compiled(a, [], program)
        if not plain:
            sys.exit(why)
        need = needs(plain)
        losses, peak, step = trained(a, program, folder) if not a.no_run else ([], 0, 0)
        row("budget", "MiB", "plan", "resident", "of plan", "search s", "predicted", "bound", "above", "measured", "bits")
        row("plain", "", need // MIB, peak // MIB, f"{peak / need:.3f}", "", f"{plain['predicted_step_s']:.3f}", "", "", f"{step:.3f}", "")
        broken, slowest, made = [], None, 0
        for i in range(1, a.parts + 1):
            budget = need * i // a.parts
            got, why, seconds = compiled(a, [f"--memory={budget}", f"--nvme={a.nvme}"], program)
            if not got:
                row(f"{100 * i // a.parts} %", budget // MIB, "refused", "", "", f"{seconds:.1f}")
                if i == a.parts or "memory" not in why:
                    broken.append(f"{100 * i // a.parts} %: {why}")
                continue
            made += 1
            predicted, choice = got["predicted_step_s"], got.get("search")
            bound = choice["bound"]["step_s"] if choice else 0
            losses_here, peak, step = trained(a, program, folder) if not a.no_run else (losses, 0, 0)
            same = losses_here == losses or (is_near(losses_here, losses) and needs_tiles(a, budget, program) and "tiles")
            row(f"{100 * i // a.parts} %", budget // MIB, needs(got) // MIB, peak // MIB, f"{peak / needs(got):.3f}", f"{seconds:.1f}",
                f"{predicted:.3f}", f"{bound:.3f}", f"{100 * (predicted / bound - 1):.0f} %" if bound else "", f"{step:.3f}", same)
            if max(needs(got), peak) > budget:
                broken.append(f"{100 * i // a.parts} %: {max(needs(got), peak)} bytes are above the budget of {budget}")
            ns = round(predicted * 1e9)  # plans are compared by whole nanoseconds
            if slowest is not None and ns > slowest:
                broken.append(f"{100 * i // a.parts} %: a larger budget is slower")
            if not same:
                broken.append(f"{100 * i // a.parts} %: other losses: {losses_here} and not {losses}")
            slowest = ns
        print(f"{made} of {a.parts} compile")
        print("\n".join(broken) if broken else "every promise was kept")
        sys.exit(bool(broken))


if __name__ == "__main__":
    main()
