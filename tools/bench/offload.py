#!/usr/bin/env python3
"""Step time and memory of one model with its states and parameters in host memory or on a disk, beside the same in one memory, in
turn in one run.

    offload.py MODEL.onnx DATA.npz --nvme-path DIR [--zcc build/bin/zcc] [--steps 4] [--rounds 3] [--flags "..."]

Prints a line for each place: median seconds a step (the first left out) and its ratio to that in memory, the process' resident peak, the
plan (arena and libraries), bytes on the disk, and those moved a step. Exits with 1 when losses differ.
"""
import argparse, json, os, shlex, statistics, subprocess, sys, tempfile

PLACES = {
    "in memory": "",
    "states in host memory": "--offload-optimizer=cpu --separate-host --offload-update=device",
    "the same, updated there": "--offload-optimizer=cpu --separate-host --offload-update=cpu",
    "states on the disk": "--offload-optimizer=nvme",
    "states and parameters": "--offload-optimizer=nvme --offload-param=nvme",
    "the same, recomputed": "--offload-optimizer=nvme --offload-param=nvme --checkpoint-activations=1",
}


def compiled(a, flags, program):
    command = [a.zcc, a.model, *shlex.split(a.flags), *shlex.split(flags)]
    subprocess.run([*command, "-o", program], check=True, capture_output=True)
    plan = json.loads(subprocess.run([*command, "--plan=json"], check=True, capture_output=True, text=True).stdout)
    return {"program": program, "plan": plan, "times": [], "losses": None, "peak": 0}


def run(a, row):
    log = row["program"] + ".jsonl"
    child = subprocess.Popen([row["program"], f"--data={a.data}", f"--steps={a.steps}", f"--log={log}", "--quiet",
                              f"--nvme-path={a.nvme_path}"])
    _, status, used = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"offload.py: {row['program']} ended with {status}")
    steps = [json.loads(line) for line in open(log)]
    row["times"] += [s["time_s"] for s in steps[1:]]
    row["losses"] = [s["loss"] for s in steps]
    row["peak"] = max(row["peak"], used.ru_maxrss / 1024)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model"); p.add_argument("data"); p.add_argument("--nvme-path", required=True)
    p.add_argument("--zcc", default="build/bin/zcc"); p.add_argument("--steps", type=int, default=4)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--flags", default="--optimizer=adamw --clip-grad-norm=1")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        rows = {name: compiled(a, flags, os.path.join(tmp, f"p{i}")) for i, (name, flags) in enumerate(PLACES.items())}
        for _ in range(a.rounds):
            for row in rows.values():
                run(a, row)
    base = rows["in memory"]
    print("| where | s | ratio | resident MiB | plan + library MiB | on the disk MiB | moved a step MiB |\n|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        spaces, plan = row["plan"]["spaces"], row["plan"]
        moved = sum(v for k, v in plan["traffic_bytes_per_rank"].items() if "nvme" in k)
        time = statistics.median(row["times"])
        print(f"| {name} | {time:.2f} | {time / statistics.median(base['times']):.2f} | {row['peak']:.0f} "
              f"| {(spaces['device']['arena_bytes'] + plan['library_bytes']) / 2**20:.0f} "
              f"| {spaces.get('nvme', {}).get('arena_bytes', 0) / 2**20:.0f} | {moved / 2**20:.0f} |")
    sys.exit(any(row["losses"] != base["losses"] for row in rows.values()))


if __name__ == "__main__":
    main()
