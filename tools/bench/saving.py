#!/usr/bin/env python3
"""saving.py PROGRAM DATA.npz FOLDER [--every 3] [--steps 20]: a step during which a checkpoint is written, beside those without, of one run.

Checkpoints lie in a new folder in FOLDER meanwhile. Prints the median seconds of both, their ratio, the checkpoint's size, and the process' resident peak."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("program", type=os.path.abspath); p.add_argument("data"); p.add_argument("folder")
p.add_argument("--every", type=int, default=3); p.add_argument("--steps", type=int, default=20)
a = p.parse_args()
with tempfile.TemporaryDirectory(dir=a.folder) as work:
    checkpoints, log = os.path.join(work, "checkpoints"), os.path.join(work, "log.jsonl")
    child = subprocess.Popen([a.program, f"--data={a.data}", f"--steps={a.steps}", f"--save={checkpoints}", f"--save-every={a.every}", "--keep=1",
                              f"--log={log}", "--quiet"])
    _, status, used = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"saving.py: {a.program} ended with {status}")
    with open(log) as f:
        times = [json.loads(line)["time_s"] for line in f]
    newest = os.path.join(checkpoints, os.listdir(checkpoints)[0])
    size = sum(os.path.getsize(os.path.join(newest, f)) for f in os.listdir(newest))
# The first steps find cold caches. A checkpoint of N steps is written during step N, which is the next.
saving = [t for s, t in enumerate(times) if s >= a.every and s % a.every == 0]
other = [t for s, t in enumerate(times) if s >= 2 and s % a.every]
print(f"while saving {statistics.median(saving):.3f} s, else {statistics.median(other):.3f} s: "
      f"{statistics.median(saving) / statistics.median(other):.2f} times; {size / 2**20:.0f} MiB; resident {used.ru_maxrss / 1024:.0f} MiB")
print("all steps:", *(f"{t:.2f}" for t in times))
