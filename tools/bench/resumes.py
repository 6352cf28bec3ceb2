#!/usr/bin/env python3
"""resumes.py ZCC TMP [--stages 0,1,2,3] [--ranks 1,2,3,4]: a run saved by each program is resumed by each other.

Programs differ in ranks, stage, and whether states (and at stage 3 parameters) lie on a disk; all of them take the same 12 batches a step
in micro-batches. Prints a table: the largest relative distance of the losses behind the resumption from those of one rank that was never
stopped, '=' where all are the same bits; exits with 1 where one is above 1e-7."""
import argparse
import itertools
import json
import os
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
model = os.path.join(here, "..", "..", "test", "models", "gpt")
BATCHES, SAVED, STEPS = 12, 3, 6
NEAR = 1e-7  # relative: another number of ranks sums in another order


def compiled(zcc, ranks, stage, space):
    name = f"{ranks}.{stage}.{space}"
    flags = [f"--ranks={ranks}", f"--zero={stage}", f"--grad-accum={BATCHES // ranks}", "--threads=1", "--param-persistence-threshold=0",
             "--clip-grad-norm=1"]
    if space == "nvme":
        flags += ["--offload-optimizer=nvme"] + (["--offload-param=nvme"] if stage == 3 or ranks == 1 else [])
    subprocess.run([zcc, f"{model}/noopt.onnx", "-o", name, *flags], check=True, capture_output=True)
    return name


def run(name, *options):
    ranks = int(name.split(".")[0])
    command = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run([*command, f"./{name}", f"--data={model}/data.npz", "--quiet", "--nvme-path=.", "--log=log.jsonl", *options],
                          capture_output=True, text=True)
    assert done.returncode == 0, (name, options, done.stderr)
    with open("log.jsonl") as f:
        losses = {row["step"]: row["loss"] for row in map(json.loads, f)}
    os.remove("log.jsonl")
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zcc", type=os.path.abspath)
    parser.add_argument("tmp")
    parser.add_argument("--stages", default="0,1,2,3")
    parser.add_argument("--ranks", default="1,2,3,4")
    args = parser.parse_args()
    os.makedirs(args.tmp, exist_ok=True)
    os.chdir(args.tmp)
    stages, ranks = [[int(n) for n in text.split(",")] for text in (args.stages, args.ranks)]
    configurations = [(r, z, s) for r, z, s in itertools.product(ranks, stages, ("memory", "nvme")) if r > 1 or z == stages[0]]
    names = [compiled(args.zcc, *c) for c in configurations]
    straight = run(names[0], f"--steps={STEPS}")
    print("| saved by \\ resumed by | " + " | ".join(names) + " |\n|" + "---|" * (len(names) + 1))
    worst = 0
    for saver in names:
        subprocess.run(["rm", "-rf", f"{saver}.ck"])
        run(saver, f"--steps={SAVED}", f"--save={saver}.ck")
        cells = []
        for name in names:
            losses = run(name, f"--steps={STEPS}", f"--resume={saver}.ck")
            assert list(losses) == list(range(SAVED, STEPS)), losses
            distance = max(abs(losses[s] - straight[s]) / abs(straight[s]) for s in losses)
            worst = max(worst, distance)
            cells.append(f"{distance:.0e}" if distance else "=")
        print(f"| {saver} | " + " | ".join(cells) + " |", flush=True)
    print(f"\n{len(names) ** 2} pairs; the largest relative distance of a loss is {worst:.1e}")
    sys.exit(int(worst > NEAR))


if __name__ == "__main__":
    main()
