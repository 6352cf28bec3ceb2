#!/usr/bin/env python3
"""Models that need several times the memory they are given, each under a hard limit of address space, so that a plan that lies is a
crash. Prints a table: what the model needs without (`--plan`), the limit, the plan, the resident peak, seconds a step and of compiling.
Then one of what is on the disk: the bytes that the program says a step moves (the log's nvme_bytes) over the floor, and the step over
max(the same program's in memory, without a limit, and floor / the disk's mixed rate, by zcc-nvme beside it on a file of the swap file's
size, up to 2 GiB): medians over --pairs rounds in turn. The floor: parameters read twice, moments read once, both written once, and with
clipping gradients once each way. --no-compare leaves the rounds out. With --keep FOLDER what is exported, planned and compiled stays there
for the next call, and --pairs 0 does that much alone.

limits.py --zcc ZCC --nvme-path FOLDER [--only NAME]... [--xl]      needs torch, transformers, onnx, onnxscript

stack: a transformer whose activations are four times the limit, computed again. head: a language model whose logits are, in tiles of
rows. layer: one linear layer whose weights alone are four times the limit, by tile from the disk. gpt2: GPT-2 124M in a quarter of what
it needs, on the disk, with clipping. ten: a GPT-2 whose states (parameters and moments) are ten times the limit, all on the disk; and
ten-clipped: the same with clipping. update: eight linear layers, of whose step nearly all is the optimizer's, their moments on the disk. With --xl (24 GiB of disk) xl: GPT-2 XL, one sequence of
1024, AdamW, clipping, within 6 GiB; and xl-ranks: the same on two ranks at stage 3, a sequence each, within 4 GiB each."""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools", "python"))
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
import zcc

from planned import error
from resident import peak_until_end

MIB = 1 << 20
CODE = 84 * MIB  # of the limit: the code of the program and of libraries, 52, and what a program wants to be left for threads' stacks
AWAY = ["--offload-optimizer=nvme", "--offload-param=nvme"]
CLIP = "--clip-grad-norm=1.0"


class Stack(nn.Module):
    def __init__(self, layers, width):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, x):
        return self.layers(x)


class Head(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.words, self.mix = nn.Embedding(words, width), nn.Linear(width, width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        return self.head(torch.tanh(self.mix(self.words(tokens))))


def gpt2(**size):
    from transformers import GPT2Config, GPT2LMHeadModel
    return GPT2LMHeadModel(GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **size))


def squared(y, target):
    return F.mse_loss(y, target)


def scored(logits, labels):
    logits = getattr(logits, "logits", logits)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


RNG = np.random.default_rng(0)


def tokens(words, *shape):
    return lambda n: RNG.integers(0, words, (n * shape[0], *shape[1:]))


def reals(*shape):
    return lambda n: RNG.standard_normal((n * shape[0], *shape[1:]), dtype=np.float32)


# name: the model, its loss, its inputs, the limit in MiB (or a part of what the model needs), flags
CASES = {
    "stack": (lambda: Stack(24, 128), squared, {"x": reals(7, 1024, 128), "target": reals(7, 1024, 128)}, 320,
              ["--checkpoint-activations=1", "--offload-optimizer=nvme"]),
    "head": (lambda: Head(32768, 64), scored, {"tokens": tokens(32768, 12, 512), "labels": tokens(32768, 12, 512)}, 192, ["--tile=64"]),
    "layer": (lambda: nn.Linear(14336, 14336), squared, {"input": reals(16, 14336), "target": reals(16, 14336)}, 192,
              [*AWAY, "--tile=64"]),
    "gpt2": (gpt2, scored, {"input_ids": tokens(50257, 2, 256), "labels": tokens(50257, 2, 256)}, 0.25,
             [*AWAY, CLIP, "--checkpoint-activations=1", "--tile=16"]),
    "ten": (lambda: gpt2(n_layer=28, n_embd=1024, n_head=16, vocab_size=8192, n_positions=256, bos_token_id=0, eos_token_id=0), scored,
            {"input_ids": tokens(8192, 2, 256), "labels": tokens(8192, 2, 256)}, 400, [*AWAY, "--checkpoint-activations=1", "--offload-activations=none"]),
    "update": (lambda: nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(8))), squared, {"input": reals(16, 4096), "target": reals(16, 4096)},
               0.6, ["--offload-optimizer=nvme"]),
    "xl": (lambda: gpt2(n_layer=48, n_embd=1600, n_head=25), scored,
           {"input_ids": tokens(50257, 1, 1024), "labels": tokens(50257, 1, 1024)}, 6144, [*AWAY, CLIP, "--checkpoint-activations=1"]),
}
CASES["ten-clipped"] = (*CASES["ten"][:4], [*CASES["ten"][4], CLIP])
CASES["xl-ranks"] = (*CASES["xl"][:3], 4096, [*CASES["xl"][4], "--zero=3", "--ranks=2"])


def export(build, loss, inputs, path):
    with torch.device("meta"):
        model = build()
    given = {name: torch.from_numpy(make(1)) for name, make in inputs.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zcc.export(model, given if "input_ids" in given else tuple(given.values()), loss=loss, path=path, check=False)


def plan(tool, path, *flags):
    kept = f"{path}.{zlib.crc32(' '.join(flags).encode()):08x}.plan"
    if os.path.exists(kept):
        with open(kept) as f:
            return json.load(f)
    done = subprocess.run([tool, path, "--init=pytorch", "--optimizer=adamw", *flags, "--plan=json"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    with open(kept, "w") as f:
        f.write(done.stdout)
    return json.loads(done.stdout)


def compiled(tool, path, flags, program):
    """Seconds that it took, and why it was refused."""
    kept = program + ".seconds"
    if os.path.exists(kept):
        with open(kept) as f:
            return float(f.read()), None
    begin = time.perf_counter()
    done = subprocess.run([tool, path, "--init=pytorch", "--optimizer=adamw", *flags, "-o", program], capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    if done.returncode:
        return seconds, error(done.stderr)
    with open(kept, "w") as f:
        f.write(str(seconds))
    return seconds, None


def needs(p):
    return p["spaces"]["device"]["arena_bytes"] + p["library_bytes"]


def limited(bytes_):
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (bytes_, bytes_))


def floor(parameters, flags):
    """Bytes that a step of AdamW in float32 must move between memory and the disk, and 0 where nothing lies there."""
    states = 2 * 8 if "--offload-optimizer=nvme" in flags else 0
    weights = 3 * 4 if "--offload-param=nvme" in flags else 0
    waiting = 2 * 4 if states and CLIP in flags else 0
    return parameters * (states + weights + waiting)


def medians(log):
    """Of the steps behind the first: the median second, and the median of the bytes that the program says it read and wrote on the disk."""
    with open(log) as f:
        rows = [json.loads(line) for line in f][1:]
    return statistics.median(r["time_s"] for r in rows), statistics.median(sum(r.get("nvme_bytes", {}).values()) for r in rows)


def run_steps(program, a, folder):
    """The medians of a run."""
    log = program + ".jsonl"
    if os.path.exists(log):
        os.remove(log)
    subprocess.run([program, f"--data={folder}/data.npz", f"--steps={a.steps}", "--quiet", f"--log={log}",
                    f"--nvme-path={a.nvme_path or folder}"], check=True, capture_output=True)
    return medians(log)


def mixed_rate(a, folder, size):
    """Bytes a second that the disk takes and gives at once, now, on a file of that size."""
    out = os.path.join(folder, "disk.json")
    subprocess.run([os.path.join(os.path.dirname(a.zcc), "zcc-nvme"), "--block=1MiB", "--depth=16", f"--size={size // MIB}MiB", f"--json={out}",
                    a.nvme_path or folder], check=True, capture_output=True)
    with open(out) as f:
        return json.load(f)["mixed_bytes_per_s"]


def products(p):
    """Seconds of a step's products, attention among them, at the calibrated rates; what is computed again counts again."""
    spans = [s for f in p["schedule"]["functions"] for s in f["spans"]]
    return sum(s["end_s"] - s["begin_s"] for s in spans if any(w.endswith("_flops") for w in s.get("work", {})))


def compared(a, path, flags, p, folder):
    """A row of the second table: what a step moves over the floor, and its time over what bounds it from below."""
    least = floor(p["parameters"], flags)
    if a.no_compare or not least or "--ranks=2" in flags:
        return None
    size = min(max(p["spaces"]["nvme"]["arena_bytes"], 256 * MIB), 2048 * MIB)
    # The same program in one memory: as much is computed again, in the same tiles.
    here = [f for f in flags if not f.startswith(("--offload-", "--memory="))]
    if needs(plan(a.zcc, path, *here)) > 0.8 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):  # products by their rates
        seconds, moved = medians(os.path.splitext(path)[0] + ".jsonl")
        compute, disk = products(p), least / mixed_rate(a, folder, size)
        return f"| {moved / least:.2f} | {compute:.2f} | {disk:.2f} | {seconds:.2f} | {seconds / max(compute, disk):.2f} |"
    away, plain = os.path.splitext(path)[0], os.path.splitext(path)[0] + ".here"
    if refused := compiled(a.zcc, path, here, plain)[1]:
        sys.exit(refused)
    if not a.pairs:
        return None
    rows = []
    for pair in range(a.pairs):
        parts = {"away": lambda: run_steps(away, a, folder), "here": lambda: run_steps(plain, a, folder)[0],
                 "rate": lambda: mixed_rate(a, folder, size)}
        order = list(parts) if pair % 2 else list(parts)[::-1]
        done = {k: parts[k]() for k in order}
        (seconds, moved), compute, disk = done["away"], done["here"], least / done["rate"]
        rows.append((seconds / max(compute, disk), seconds, compute, disk, moved / least))
    ratio, seconds, compute, disk, moved = (statistics.median(column) for column in zip(*rows))
    return f"| {moved:.2f} | {compute:.2f} | {disk:.2f} | {seconds:.2f} | {ratio:.2f} |"


def measure(a, name, folder):
    """Rows of both tables; of the second None where nothing lies on the disk, or nothing can be compared."""
    build, loss, inputs, limit, flags = CASES[name]
    path = os.path.join(folder, f"{name}.onnx")
    if not os.path.exists(path):
        export(build, loss, inputs, path)
    need = needs(plan(a.zcc, path))
    limit = int(need * limit) if limit < 1 else limit * MIB
    flags = [*flags, f"--memory={limit - CODE}"]
    row = f"| {name} | {need / MIB:.0f} | {limit / MIB:.0f} |"
    program = os.path.join(folder, name)
    took, refused = compiled(a.zcc, path, flags, program)
    if refused:
        return f"{row} {refused} |", None
    np.savez(os.path.join(folder, "data.npz"), **{n: make(4) for n, make in inputs.items()})
    launch = ["mpirun", "-n", "2", "--oversubscribe"] if "--ranks=2" in flags else []
    run = subprocess.Popen([*launch, program, f"--data={folder}/data.npz", f"--steps={a.steps}", "--quiet", f"--log={program}.jsonl",
                            f"--nvme-path={a.nvme_path or folder}"], preexec_fn=limited(limit), stderr=subprocess.PIPE, text=True)
    peak = peak_until_end(run)
    said = run.stderr.read().strip()
    if run.returncode:
        return row + " " + (said.splitlines()[-1] if said else f"status {run.returncode}") + " |", None
    rows = [json.loads(line) for line in open(program + ".jsonl")]
    p = plan(a.zcc, path, *flags)
    row += f" {needs(p) / MIB:.0f} | {peak / MIB:.0f} | {min(r['time_s'] for r in rows):.2f} | {took:.1f} | {rows[0]['loss']:.6g} |"
    return row, compared(a, path, flags, p, folder)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--zcc", default="build/bin/zcc"); p.add_argument("--nvme-path"); p.add_argument("--steps", type=int, default=4)
    p.add_argument("--only", action="append"); p.add_argument("--xl", action="store_true")
    p.add_argument("--pairs", type=int, default=7); p.add_argument("--no-compare", action="store_true")
    p.add_argument("--keep")
    a = p.parse_args()
    names = a.only or [n for n in CASES if not n.startswith("xl") or a.xl]
    second = []
    print("| | needs MiB | limit MiB | plan + library MiB | resident MiB | s/step | `zcc` itself, s | loss of step 0 |\n|---|---|---|---|---|---|---|---|")
    for name in names:
        with tempfile.TemporaryDirectory(dir=a.nvme_path) as folder:
            if a.keep:
                folder = os.path.join(a.keep, name)
                os.makedirs(folder, exist_ok=True)
            row, over = measure(a, name, folder)
        print(row, flush=True)
        if over:
            second.append(f"| {name} {over}")
    if second:
        print("\n| | bytes over the floor's | in memory, s | floor at the disk's rate, s | s/step | over the larger |\n|---|---|---|---|---|---|")
        print("\n".join(second))


if __name__ == "__main__":
    main()
