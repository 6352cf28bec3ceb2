#!/usr/bin/env python3
"""What zcc --target=cuda predicts of GPT-2 124M on GPUs by their published rates: seconds a step, tokens a second, the share of the
published peak, launches, and what bounds which kernels. Nothing is run: the model is exported on the meta device and has no weights.

paper.py [--zcc ZCC] [--batch 32] [--length 1024] [--dtype bf16] [--march sm_80]... [-- zcc's flags]    needs torch, transformers, onnx, onnxscript"""
import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PEAK = {"sm_80": 312e12, "sm_90": 989e12}  # dense bf16 of an A100 and an H100, SXM: NVIDIA's data sheets


def export(path, batch, length):
    sys.path.insert(0, os.path.join(ROOT, "tools", "python"))
    import torch
    import torch.nn.functional as F
    from transformers import GPT2Config, GPT2LMHeadModel
    import zcc

    def loss(logits, labels):
        return F.cross_entropy(getattr(logits, "logits", logits).flatten(0, 1), labels.flatten())

    with torch.device("meta"):
        model = GPT2LMHeadModel(GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    tokens = torch.zeros(batch, length, dtype=torch.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zcc.export(model, {"input_ids": tokens, "labels": tokens.clone()}, loss=loss, path=path, check=False)


def bound(span, rates):
    """What takes most of a node's time, of the rates of its work."""
    seconds = collections.Counter()
    for key, amount in span["work"].items():
        if key in rates:
            kind = "launches" if key == "launches" else "memory" if key.endswith("_bytes") else "tensor cores" if key.startswith("bf16") else "loops"
            seconds[kind] += amount / rates[key]
    return max(seconds, key=seconds.get)


def table(plan):
    rates, rows = plan["schedule"]["rates"], collections.defaultdict(lambda: [0, 0.0, collections.Counter()])
    for function in plan["schedule"]["functions"]:
        for span in function["spans"]:
            if "work" not in span:
                continue
            row, seconds = rows[span["op"]], function["times"] * (span["end_s"] - span["begin_s"])
            row[0] += function["times"]
            row[1] += seconds
            row[2][bound(span, rates)] += seconds
    for op, (count, seconds, kinds) in sorted(rows.items(), key=lambda r: -r[1][1]):
        shares = ", ".join(f"{kind} {1e3 * s:.1f}" for kind, s in kinds.most_common())
        print(f"| {op} | {count:.0f} | {1e3 * seconds:.1f} | {shares} |")


def main():
    argv, flags = sys.argv[1:], []
    if "--" in argv:
        argv, flags = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--zcc", default=os.path.join(ROOT, "build/bin/zcc")); p.add_argument("--model"); p.add_argument("--export", metavar="FILE", help="write the model and end"); p.add_argument("--dtype", default="bf16")
    p.add_argument("--batch", type=int, default=32); p.add_argument("--length", type=int, default=1024)
    p.add_argument("--march", action="append", choices=PEAK)
    a = p.parse_args(argv)
    if a.export:
        return export(a.export, a.batch, a.length)
    with tempfile.TemporaryDirectory() as folder:
        model = a.model or os.path.join(folder, "gpt2.onnx")
        if not a.model:
            export(model, a.batch, a.length)
        for march in a.march or PEAK:
            done = subprocess.run([a.zcc, model, "--init=pytorch", "--optimizer=adamw", f"--dtype={a.dtype}", "--target=cuda", f"--march={march}",
                                   "--plan=json", *flags], capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr)
            plan = json.loads(done.stdout)
            seconds = plan["predicted_step_s"]
            flops = sum(f["times"] * s["work"].get(key, 0) for f in plan["schedule"]["functions"] for s in f["spans"] if "work" in s
                        for key in s["work"] if key.startswith("bf16") and key.endswith("_flops"))
            memory = plan["spaces"]["device"]["arena_bytes"] / 2**30
            print(f"**{march}**: {1e3 * seconds:.1f} ms a step, {a.batch * a.length / seconds:,.0f} tokens a second, {100 * flops / seconds / PEAK[march]:.0f} % of "
                  f"the published peak, {plan['launches']:.0f} launches, {memory:.1f} GiB\n\n| | nodes | ms | of it bound by |\n|---|---|---|---|")
            table(plan)
            print()


main()
