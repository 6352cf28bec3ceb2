#!/usr/bin/env python3
"""kills.py ZCC TMP [--kills N] [--seed S] [--steps N] [CONFIGURATION...]: kill -9 at random moments, some of them while a checkpoint is
saved. A run that is killed again and again and resumed (--resume=auto) must end with the bits of one that was never killed.

Configurations are RANKS:STAGE:SPACE, such as 3:3:nvme; the default is all of {1, 2, 3} x {0, 3} x {none, nvme}."""
import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import time

here = os.path.dirname(os.path.abspath(__file__))
models = os.path.join(here, "..", "..", "test", "models", "gpt")


def command(program, ranks, options):
    launcher = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    return launcher + [program, f"--data={models}/data.npz", "--shuffle", "--lr-schedule=cosine", "--nvme-path=.", "--quiet"] + options


def pids_of(program):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/exe") == os.path.realpath(program):
                found.append(int(pid))
        except OSError:
            pass
    return found


def losses(path):
    with open(path) as f:
        return [line.split(', "time_s"')[0] for line in f]


def kill(job, program, one):
    pids = pids_of(program)
    for pid in [random.choice(pids)] if one and pids else pids + [job.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    try:
        job.wait(20)
    except subprocess.TimeoutExpired:
        job.kill()
    until = time.time() + 20
    while pids_of(program) and time.time() < until:
        time.sleep(0.01)
    for pid in pids_of(program):  # of the program that this script compiled
        os.kill(pid, signal.SIGKILL)


def wait_for_save(job, folder, started):
    """Until something is being saved, or the run has ended."""
    while job.poll() is None and time.time() < started + 10:
        if time.time() > started + 0.05 and any(d.endswith(".tmp") for d in os.listdir(folder)):
            return


def trial(name, zcc, ranks, stage, space, kills, steps):
    """Returns how many of the kills came while something was being saved, and how many before the first checkpoint."""
    program = os.path.abspath(name)
    flags = [f"--ranks={ranks}", f"--zero={stage}", "--threads=1", "--param-persistence-threshold=0"]
    if space == "nvme":
        flags += ["--offload-optimizer=nvme"] + (["--offload-param=nvme"] if stage == 3 or ranks == 1 else [])
    subprocess.run([zcc, f"{models}/noopt.onnx", "-o", program, *flags], check=True, capture_output=True)
    subprocess.run(command(program, ranks, [f"--steps={steps}", f"--log={name}.straight.jsonl", f"--export={name}.straight.safetensors"]), check=True)
    folder = name + ".ck"
    options = [f"--steps={steps}", f"--save={folder}", "--save-every=3", "--keep=3", "--resume=auto", f"--log={name}.jsonl", f"--export={name}.safetensors"]
    begin = time.time()
    while not os.path.isdir(folder):  # how long a start takes
        job = subprocess.Popen(command(program, ranks, options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while job.poll() is None and not os.path.isdir(folder):
            time.sleep(0.005)
        start = time.time() - begin
        kill(job, program, False)
    during = done = ended = 0
    while done < kills:
        job = subprocess.Popen(command(program, ranks, options), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if random.random() < 0.5:
            time.sleep(start * random.uniform(0.5, 1.5) + random.uniform(0, 0.3))
        else:
            wait_for_save(job, folder, time.time())
            time.sleep(random.choice((0, 0.002, 0.01, 0.1)) * random.random())
        if job.poll() is not None:
            ended += 1
            assert job.returncode == 0, job.stderr.read()
            # It had reached its end: back to some earlier checkpoint.
            found = sorted(int(d[5:]) for d in os.listdir(folder) if d.startswith("step-"))
            for step in found[1:] if random.random() < 0.8 else []:
                subprocess.run(["rm", "-r", f"{folder}/step-{step}"], check=True)
            if found[0] > steps // 2:
                subprocess.run(["rm", "-r", folder], check=True)
                os.makedirs(folder)
            continue
        during += any(d.endswith(".tmp") for d in os.listdir(folder))
        kill(job, program, random.random() < 0.3)
        done += 1
    result = subprocess.run(command(program, ranks, options), capture_output=True, text=True)
    if result.returncode or "damaged" in result.stderr:
        sys.exit(f"{name}: status {result.returncode}: {result.stdout}{result.stderr}")
    if losses(f"{name}.straight.jsonl") != losses(f"{name}.jsonl"):
        sys.exit(f"{name}: other losses")
    with open(f"{name}.straight.safetensors", "rb") as a, open(f"{name}.safetensors", "rb") as b:
        if a.read() != b.read():
            sys.exit(f"{name}: other weights")
    left = [d for d in os.listdir(folder) if not d.startswith("step-")]
    return during, ended, left


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("zcc", type=os.path.abspath)
    parser.add_argument("tmp")
    parser.add_argument("configurations", nargs="*")
    parser.add_argument("--kills", type=int, default=100, help="all together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_intermixed_args()
    random.seed(args.seed)
    os.makedirs(args.tmp, exist_ok=True)
    os.chdir(args.tmp)
    all_of_them = [f"{r}:{z}:{s}" for r, z, s in itertools.product((1, 2, 3), (0, 3), ("none", "nvme"))]
    chosen = args.configurations or all_of_them
    total = saving = 0
    for i, configuration in enumerate(chosen):
        ranks, stage, space = configuration.split(":")
        kills = args.kills * (i + 1) // len(chosen) - args.kills * i // len(chosen)
        subprocess.run(["rm", "-rf", f"run{ranks}{stage}{space}.ck"])
        during, ended, left = trial(f"run{ranks}{stage}{space}", args.zcc, int(ranks), int(stage), space, kills, args.steps)
        total += kills
        saving += during
        print(f"{ranks} ranks, stage {stage}, {space}: {kills} kills, {during} while saving; the same bits"
              + (f"; left {left}" if left else ""), flush=True)
    print(f"{total} kills, {saving} of them while a checkpoint was saved: always the bits of the run that was never killed")


if __name__ == "__main__":
    main()
