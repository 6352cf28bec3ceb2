#!/usr/bin/env python3
"""Whether programs for real GPUs compile: every ONNX file of a folder of models, by nvcc for each architecture; no GPU is needed, nothing runs.

    nvcc.py DIR [--zcc build/bin/zcc] [--march sm_80,sm_90] [--only NAME,..] [--variants noopt,dyn,..] [--flags "--dtype=bf16"] [--jobs 2]

DIR/NAME/VARIANT.onnx, as test/models has them. A ref.json beside them may hold `flags`, `loss` (of the variants logits.*, whose graph has none) and `batch`
(of dynbatch.*). Prints what fails, and a line for each architecture. Ends with 1 if anything failed."""
import argparse, concurrent.futures, glob, json, os, shlex, subprocess, sys, tempfile, time
from exported import variant_flags

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def flags_of(path):
    folder, variant = os.path.dirname(path), os.path.basename(path)
    about = os.path.join(folder, "ref.json")
    ref = json.load(open(about)) if os.path.exists(about) else {}
    return ref.get("flags", []) + variant_flags(ref, variant)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir")
    p.add_argument("--zcc", default=os.path.join(ROOT, "build/bin/zcc"))
    p.add_argument("--march", default="sm_80,sm_90")
    p.add_argument("--only", default="")
    p.add_argument("--variants", default="")
    p.add_argument("--flags", default="")
    p.add_argument("--jobs", type=int, default=2)
    a = p.parse_args()
    only, variants = (set(filter(None, text.split(","))) for text in (a.only, a.variants))
    files = [f for f in sorted(glob.glob(os.path.join(a.dir, "*/*.onnx")))
             if not (only and os.path.basename(os.path.dirname(f)) not in only)
             and not (variants and os.path.basename(f).split(".")[0] not in variants)]
    if not files:
        sys.exit(f"nvcc.py: error: no DIR/NAME/VARIANT.onnx in {a.dir}")

    def compiled(job):
        path, march = job
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as work:
            done = subprocess.run([a.zcc, path, "-o", os.path.join(work, "program"), "--target=cuda", f"--march={march}", *flags_of(path),
                                   *shlex.split(a.flags)], capture_output=True, text=True)
        why = "" if done.returncode == 0 else next((l for l in done.stderr.splitlines() if "error" in l), done.stderr.strip()[-200:] or str(done.returncode))
        return path, march, why, time.monotonic() - begin

    marches = a.march.split(",")
    counts = {m: [0, 0, 0.0] for m in marches}
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for path, march, why, seconds in pool.map(compiled, [(f, m) for f in files for m in marches]):
            counts[march][bool(why)] += 1
            counts[march][2] += seconds
            if why:
                print(f"{os.path.relpath(path, a.dir)}, {march}: {why}", flush=True)
    for march, (right, wrong, seconds) in counts.items():
        print(f"{march}: {right} of {right + wrong} compile, {seconds / (right + wrong):.1f} s each")
    sys.exit(any(wrong for _, wrong, _ in counts.values()))


main()
