#!/usr/bin/env python3
"""Step time, compile time and memory of zcc beside PyTorch eager, in turn on the same machine; prints a table.

    steps.py --peers DIR [--python PYTHON] [--zcc build/bin/zcc] [--models mlp,gpt2-mini,..] [--steps 8] [--rounds 2] [--kind ts]

DIR holds the workloads: export.py (writes onnx/NAME.KIND.onnx), models.py (writes data/NAME.npz) and peer.py (one JSON line
per configuration); PYTHON has torch, transformers, timm and numpy. Both sides take the same batches, AdamW with
lr 3e-4 and weight decay 0.01, fp32, all cores. Ratios below 1 are in zcc's favour.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile, time

MODELS = "mlp,gpt2-mini,gpt2-124m,llama-60m,bert-mini,vit-tiny,resnet18"
WARM = 2  # steps not counted, as peer.py


def flatten(a, name, tmp):
    """data/NAME.npz has batches as a leading axis; zcc takes samples."""
    out = os.path.join(tmp, name + ".npz")
    code = ("import numpy as np, sys; z = np.load(sys.argv[1]); "
            "np.savez(sys.argv[2], **{k: v.reshape(-1, *v.shape[2:]) for k, v in z.items()})")
    subprocess.run([a.python, "-c", code, f"{a.peers}/data/{name}.npz", out], check=True)
    return out


def zcc_compile(a, name, tmp):
    onnx, prog = f"{a.peers}/onnx/{name}.{a.kind}.onnx", os.path.join(tmp, name)
    if not os.path.exists(onnx):
        subprocess.run([a.python, "export.py", name], cwd=a.peers, env=dict(os.environ, KINDS=a.kind), check=True)
    flags = ["--optimizer=adamw", "--lr=3e-4", "--weight-decay=0.01"] + a.flags.split()
    t = time.time()
    subprocess.run([a.zcc, onnx, "-o", prog] + flags, check=True)
    took = time.time() - t
    plan = json.loads(subprocess.run([a.zcc, onnx, "--plan=json"] + flags, check=True, capture_output=True, text=True).stdout)
    return prog, took, plan


def zcc_run(prog, data, steps, flags=(), launch=()):
    """Seconds of each counted step, losses of all, the resident peak in MiB (of `launch`, where that starts the program)."""
    log = prog + ".jsonl"
    p = subprocess.Popen([*launch, prog, f"--data={data}", f"--steps={WARM + steps}", f"--log={log}", *flags], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(p.pid, 0)
    if status:
        sys.exit(f"{prog} failed")
    rows = [json.loads(l) for l in open(log)]
    return [r["time_s"] for r in rows[WARM:]], [r["loss"] for r in rows], usage.ru_maxrss / 1024


def peer_run(a, name, steps, mode):
    out = subprocess.run([a.python, "peer.py", "--model", name, "--mode", mode, "--steps", str(steps)], cwd=a.peers,
                         capture_output=True, text=True)
    lines = [l for l in out.stdout.splitlines() if l.startswith("{")]
    return json.loads(lines[-1]) if lines else None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--peers", required=True); p.add_argument("--python", default=sys.executable)
    p.add_argument("--zcc", default="build/bin/zcc"); p.add_argument("--models", default=MODELS)
    p.add_argument("--steps", type=int, default=8); p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--kind", default="ts"); p.add_argument("--mode", default="eager"); p.add_argument("--flags", default="")
    a = p.parse_args()
    a.zcc, a.peers = os.path.abspath(a.zcc), os.path.abspath(a.peers)
    print(f"| model | zcc s | PyTorch {a.mode} s | ratio | zcc MiB | PyTorch MiB | plan + library MiB | compile s | largest loss difference |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as tmp:
        for name in a.models.split(","):
            prog, took, plan = zcc_compile(a, name, tmp)
            mine, theirs, rss, their_rss, diff = [], [], 0, 0, 0.0
            steps = a.steps * 6 if name == "mlp" else a.steps
            for _ in range(a.rounds):
                r = peer_run(a, name, steps, a.mode)
                if r is None or "med_s" not in r:
                    sys.exit(f"steps.py: peer.py gave no result for {name}")
                theirs.append(r["med_s"]); their_rss = max(their_rss, r["rss_peak"])
                t, losses, m = zcc_run(prog, flatten(a, name, tmp), steps)
                mine.append(statistics.median(t)); rss = max(rss, m)
                diff = max([diff] + [abs(x - y) / abs(y) for x, y in zip(losses, r["losses"])])
            ratio = statistics.median(m / t for m, t in zip(mine, theirs))
            planned = (sum(s.get("arena_bytes", 0) for s in plan["spaces"].values()) + plan["library_bytes"]) / 2**20
            print(f"| {name} | {min(mine):.4f} | {min(theirs):.4f} | {ratio:.2f} | {rss:.0f} | {their_rss:.0f} | {planned:.0f} | {took:.1f} | {diff:.1e} |", flush=True)


if __name__ == "__main__":
    main()
