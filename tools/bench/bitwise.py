#!/usr/bin/env python3
"""Trains one model under many partitionings and compares losses, gradient norms and exported weights bit for bit.

    bitwise.py MODEL.onnx DATA.npz [--zcc build/bin/zcc] [--ranks 1,2,3,4] [--steps 20] [--samples 16] [--accum 2] [--seed 0] [--nvme-path DIR] [--flags "..."]

For each number of ranks: stages 0-3 as they are, then SAMPLES random settings of stage, bucket sizes, thresholds, prefetch, overlap,
recomputation, and places of states, parameters and activations; a quarter of them leave all of this to a budget between the least that
zcc names and what the program needs without. Once without clipping and once with it; a micro-batch a step, then ACCUM of them (where stages
0 and 1 are one group of equals, 2 and 3 the other). Prints a line a group; exits with 1 when a group has more than one result.
With --flags "--target=cuda --emulate ..." the places are an emulated GPU's.
"""
import argparse, hashlib, json, os, random, re, shlex, subprocess, sys, tempfile


def is_gpu(a):
    return "--target=cuda" in shlex.split(a.flags)


def places(a, rng, ranks, stage):
    somewhere = lambda what: f"--offload-{what}={rng.choice(['none', 'cpu', 'nvme'])}"
    flags = [somewhere("optimizer"), f"--sub-group-size={rng.randrange(1, 200000)}", somewhere("activations")]
    if not is_gpu(a):
        flags.append("--separate-host")
    if flags[0] != "--offload-optimizer=none":
        flags.append(f"--offload-update={rng.choice(['auto', 'device', 'cpu'])}")
    if ranks == 1 or stage == 3:
        flags.append(somewhere("param"))
    return flags


def budget(a, rng, ranks, flags):
    """A drawn budget of memory under which zcc chooses the rest."""
    command = [a.zcc, a.model, f"--ranks={ranks}", "--threads=1", *shlex.split(a.flags), *flags, "--plan=json"]
    told = lambda *more: subprocess.run([*command, *more], capture_output=True, text=True)
    plain = json.loads(told().stdout)
    chosen = ["--nvme=1GiB", "--tile=none"]
    refusal = re.search(r"a rank needs ([0-9.]+) (K|M|G)iB", told(*chosen, "--memory=1KiB").stderr)
    least = float(refusal[1]) * 1024 ** " KMG".index(refusal[2])
    return [*chosen, f"--memory={round(1.002 * least + rng.random() * plain['spaces']['device']['arena_bytes'])}"]


def settings(a, rng, samples, stages, ranks, accum, fixed):
    for stage in stages:
        yield [f"--zero={stage}"]
    size = lambda *named: rng.choice([*named, rng.randrange(1, 200000)])
    for _ in range(samples):
        blocks = accum > 1 and 0 in stages and rng.randrange(2)  # any stage then has the bits of stages 0 and 1
        stage = rng.choice((0, 1, 2, 3) if blocks else stages)
        order = [f"--accum-order={'blocks' if blocks else 'batches'}"] if accum > 1 else []
        if rng.randrange(4) == 0:
            flags = [f"--zero={stage}", *order]
            yield [*flags, *budget(a, rng, ranks, [*fixed, *flags])]
            continue
        yield [f"--zero={stage}", *order, *places(a, rng, ranks, stage), f"--reduce-bucket-size={size(0, 500000000)}",
               f"--allgather-bucket-size={size(0, 500000000)}", f"--param-persistence-threshold={size(0, 1000000000)}",
               f"--max-reuse-distance={size(0, 1000000000)}", f"--max-live-parameters={size(1000000000)}",
               f"--prefetch={rng.choice(['on', 'off'])}", f"--overlap={rng.choice(['on', 'off'])}",
               f"--checkpoint-activations={rng.choice(['none', 1, 2, 3])}"]


def train(a, ranks, flags, tmp):
    """A hash of the log's numbers and of the exported weights."""
    prog = os.path.join(tmp, "prog")
    done = subprocess.run([a.zcc, a.model, f"--ranks={ranks}", "--threads=1", *shlex.split(a.flags), *flags, "-o", prog],
                          capture_output=True, text=True)
    if "gathered at once" in done.stderr:  # a budget below what one operator reads
        return train(a, ranks, [f for f in flags if not f.startswith("--max-live")], tmp)
    if done.returncode:
        sys.exit(done.stderr)
    subprocess.run(["mpirun", "-n", str(ranks), "--oversubscribe", prog, f"--data={a.data}", f"--steps={a.steps}",
                    f"--log={prog}.jsonl", f"--export={prog}.safetensors", f"--nvme-path={a.nvme_path or tmp}", "--quiet"], check=True)
    rows = [json.loads(line) for line in open(prog + ".jsonl")]
    seen = hashlib.sha256(str([(r["loss"], r.get("grad_norm")) for r in rows]).encode())
    seen.update(open(prog + ".safetensors", "rb").read())
    os.remove(prog + ".jsonl")
    return seen.hexdigest()[:16], rows[-1]["loss"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model"); p.add_argument("data"); p.add_argument("--zcc", default="build/bin/zcc")
    p.add_argument("--ranks", default="1,2,3,4"); p.add_argument("--steps", type=int, default=20)
    p.add_argument("--samples", type=int, default=16); p.add_argument("--seed", type=int, default=0)
    p.add_argument("--accum", type=int, default=2, help="micro-batches a step, beside one")
    p.add_argument("--nvme-path", help="a folder on a disk (default: with the other temporary files)")
    p.add_argument("--flags", default="--optimizer=adamw --lr=1e-3")
    a = p.parse_args()
    rng, wrong = random.Random(a.seed), 0
    with tempfile.TemporaryDirectory() as tmp:
        for ranks in map(int, a.ranks.split(",")):
            for accum, stages in (1, (0, 1, 2, 3)), (a.accum, (0, 1)), (a.accum, (2, 3)):
                for clip in [], ["--clip-grad-norm=0.5"]:
                    results = {}
                    fixed = [*clip, f"--grad-accum={accum}"]
                    for flags in settings(a, rng, a.samples if accum == 1 else a.samples // 4, stages, ranks, accum, fixed):
                        got = train(a, ranks, [*flags, *fixed], tmp)
                        results.setdefault(got, []).append(flags)
                    count = sum(map(len, results.values()))
                    print(f"{ranks} ranks, {accum} micro-batches, stages {stages[0]}-{stages[-1]}, {' '.join(clip) or 'no clipping'}: "
                          f"{count} settings, {len(results)} result(s), last loss {next(iter(results))[1]:.9g}", flush=True)
                    if len(results) > 1:
                        wrong = 1
                        for result, which in results.items():
                            print("  ", *result, *which[:3])
    sys.exit(wrong)


if __name__ == "__main__":
    main()
