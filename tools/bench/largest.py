#!/usr/bin/env python3
"""The largest model that trains under a hard limit of memory, zcc beside DeepSpeed: GPT-2 of one width, by bisection over its depth;
parameters and states on a disk, bf16, AdamW, a sequence at a time, blocks recomputed on both sides.

    largest.py --nvme-path DIR [--zcc build/bin/zcc] [--limits 2,4] [--width 1024] [--tokens 256] [--words 8192] [--disk 40] [--only zcc|deepspeed]

A depth counts where --steps steps end with losses that are numbers and near that of guessing at first. Depths are tried up to what --disk GiB hold of
20 bytes a parameter; where that ends the search, the table says so. The search ends within an eighth of the depth. The limit is a memory
cgroup below this process' own, so that who needs more is killed (anonymous memory and the page cache, of all processes together); where
none can be made, it is RLIMIT_AS of each process (ulimit -v). Needs torch, onnx, onnxscript, deepspeed and libaio-dev; deepspeed compiles
its disk engine on first use, which is done without a limit."""
import argparse
import ctypes
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "python"))
import numpy as np

from gpt import Gpt, count
from planned import error

PR_SET_PDEATHSIG = 1
MIB = 1 << 20
CODE = 64 * MIB  # of the limit: the program itself, and libraries' code
ON_DISK = 20     # bytes a parameter that neither side exceeds
FLAGS = ["--init=pytorch", "--dtype=bf16", "--optimizer=adamw", "--lr=3e-4", "--weight-decay=0.01", "--offload-optimizer=nvme",
         "--offload-param=nvme", "--checkpoint-activations=1", "--offload-activations=none"]


class Limit:
    """A limit of memory in bytes on the processes that are started in it, or None."""

    def __init__(self, size):
        self.size, self.folder = size, None
        if not size:
            return
        with open("/proc/self/cgroup") as f:
            places = {c: path for _, names, path in (line.strip().split(":", 2) for line in f) for c in names.split(",")}
        own = "/sys/fs/cgroup/memory" + places["memory"] if "memory" in places else "/sys/fs/cgroup" + places.get("", "/")
        folder = os.path.join(own, f"largest-{os.getpid()}")
        try:
            os.mkdir(folder)
            self.folder = folder
            self.write("memory.limit_in_bytes" if "memory" in places else "memory.max")
            if os.path.exists(swap := os.path.join(folder, "memory.swap.max")):
                with open(swap, "w") as f:
                    f.write("0")
        except OSError:
            self.close()

    def write(self, name):
        with open(os.path.join(self.folder, name), "w") as f:
            f.write(str(self.size))

    def enter(self):
        """In a process that is about to start. It ends with this one, whatever ends that."""
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if not self.size:
            return
        if not self.folder:
            return resource.setrlimit(resource.RLIMIT_AS, (self.size, self.size))
        with open(os.path.join(self.folder, "cgroup.procs"), "w") as f:
            f.write("0")

    def kind(self):
        return "a memory cgroup" if self.folder else "RLIMIT_AS"

    def close(self):
        folder, self.folder = self.folder, None
        for _ in range(50):  # what was killed may still be leaving
            try:
                return os.rmdir(folder) if folder else None
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.1)


def sensible(losses, words):
    return all(math.isfinite(x) for x in losses) and 0.5 < losses[0] / math.log(words) < 1.5


def ended(command, limit, seconds, env=None):
    """The status and the output of a command under a limit, with all that it started gone."""
    run = subprocess.Popen(command, preexec_fn=limit.enter, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True, env=env)
    try:
        out, said = run.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        out, said = "", f"not done in {seconds} s"
    finally:
        try:
            os.killpg(run.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return run.wait(), out, said


def why(status, said):
    if status == -signal.SIGKILL and not said.startswith("not done"):
        return "killed: more than the limit"
    return next((line for line in reversed(said.strip().splitlines()) if "rror" in line or "not done" in line), f"status {status}")[-150:]


def zcc(a, depth, limit, folder):
    """Why a depth does not train, or None."""
    import torch
    import zcc as frontend
    path, program = os.path.join(folder, "gpt.onnx"), os.path.join(folder, "gpt")
    with torch.device("meta"):
        model = Gpt(depth, a.width, a.words, a.tokens)
    ids = torch.zeros(1, a.tokens, dtype=torch.int64)
    frontend.export(model, (ids, ids), path=path, check=False)
    np.savez(os.path.join(folder, "data.npz"), **{n: np.random.default_rng(i).integers(0, a.words, (a.steps, a.tokens))
                                                 for i, n in enumerate(("ids", "labels"))})
    done = subprocess.run([a.zcc, path, *FLAGS, f"--memory={limit.size - CODE}", f"--nvme={a.disk}GiB", "-o", program], capture_output=True,
                          text=True)
    if done.returncode:
        return "refused: " + error(done.stderr).split("error: ")[1][:110]
    status, _, said = ended([program, f"--data={folder}/data.npz", f"--steps={a.steps}", "--quiet", f"--log={program}.jsonl",
                             f"--nvme-path={folder}"], limit, a.seconds)
    if status:
        return why(status, said)
    with open(program + ".jsonl") as f:
        losses = [json.loads(line)["loss"] for line in f]
    return None if sensible(losses, a.words) else f"losses {losses}"


def deepspeed(a, depth, limit, folder):
    command = [sys.executable, os.path.join(HERE, "largest-deepspeed.py"), f"--depth={depth}", f"--nvme={folder}", f"--width={a.width}",
               f"--tokens={a.tokens}", f"--words={a.words}", f"--steps={a.steps}"]
    # glibc gives every thread an arena of its own, which a limit counts.
    status, out, said = ended(command, limit, a.seconds, dict(os.environ, MALLOC_ARENA_MAX="2"))
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    if status or not rows:
        return why(status, said)
    return None if sensible(rows[-1]["losses"], a.words) else f"losses {rows[-1]['losses']}"


def largest(a, side, size):
    """The largest depth that trains, and what stopped the next."""
    cap = (a.disk * 1024 * MIB // ON_DISK - count(0, a.width, a.words, a.tokens)) // (count(1, a.width, 0, 0) - count(0, a.width, 0, 0))
    fits, fails, reason, depth = 0, cap + 1, "the disk", cap
    while fails - fits > max(1, fits // 8):
        limit = Limit(size)
        begin = time.time()
        try:
            with tempfile.TemporaryDirectory(dir=a.nvme_path) as folder:
                refusal = (zcc if side == "zcc" else deepspeed)(a, depth, limit, folder)
        finally:
            kind = limit.kind()
            limit.close()
        print(f"largest.py: {side}, {size / 2**30:g} GiB ({kind}), {depth} blocks: {refusal or 'trains'}, {time.time() - begin:.0f} s",
              file=sys.stderr, flush=True)
        if refusal:
            fails, reason = depth, refusal
        else:
            fits = depth
        depth = (fits + fails) // 2
    return fits, reason


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nvme-path", required=True); p.add_argument("--zcc", default="build/bin/zcc"); p.add_argument("--limits", default="2,4")
    p.add_argument("--width", type=int, default=1024); p.add_argument("--tokens", type=int, default=256)
    p.add_argument("--words", type=int, default=8192); p.add_argument("--disk", type=int, default=40); p.add_argument("--steps", type=int, default=2)
    p.add_argument("--only", choices=["zcc", "deepspeed"]); p.add_argument("--seconds", type=int, default=900, help="that a trial may take")
    a = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if shutil.disk_usage(a.nvme_path).free < a.disk * 1.1 * 2**30:
        sys.exit(f"largest.py: '{a.nvme_path}' has no {a.disk} GiB")
    sides = [a.only] if a.only else ["zcc", "deepspeed"]
    if "deepspeed" in sides:
        with tempfile.TemporaryDirectory(dir=a.nvme_path) as folder:
            if refusal := deepspeed(a, 1, Limit(None), folder):
                sys.exit(f"largest.py: DeepSpeed does not train one block without a limit: {refusal}")
    print("| limit GiB | | blocks | million parameters | per GiB | what ends it |\n|---|---|---|---|---|---|")
    for size in (int(float(text) * 2**30) for text in a.limits.split(",")):
        most = {}
        for side in sides:
            depth, reason = largest(a, side, size)
            most[side] = count(depth, a.width, a.words, a.tokens) / 1e6 if depth else 0
            print(f"| {size / 2**30:g} | {side} | {depth} | {most[side]:.0f} | {most[side] / (size / 2**30):.0f} | {reason} |", flush=True)
        if len(most) == 2 and most["deepspeed"]:
            print(f"| {size / 2**30:g} | ratio | | {most['zcc'] / most['deepspeed']:.2f} | | |", flush=True)


main()
