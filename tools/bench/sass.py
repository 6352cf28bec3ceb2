#!/usr/bin/env python3
"""What the loops of a GPU's kernels are made of, after nvcc: instructions of each innermost loop, on the way through it that computes most and, of
those, has fewest (so vectors at once, no slow cases). A warp issues one a clock; what a loop's round is of elements, its kernel's text says.

sass.py FILE... [--arch sm_90] [--only PATTERN]    FILE: what nvcc makes (.o, .cubin), a program, or what zcc --emit=cpp writes for a GPU

Needs cuobjdump and nvdisasm in PATH (they come with the toolkit, and with Triton: .../triton/backends/nvidia/bin), and nvcc for --emit's text."""
import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMPUTES = ("FADD", "FMUL", "FFMA", "DADD", "DMUL", "DFMA", "MUFU", "HMMA")


def compiled(path, arch, folder):
    """Kernels of --emit's text, each group of them apart."""
    groups = re.split(r"^// Kernels of .*\n", open(path).read(), flags=re.M)[1:]
    for i, text in enumerate(g for g in groups if "runtime/cuda/Loops.h" in g):
        out = os.path.join(folder, f"{i}.cubin")
        with open(out[:-5] + "cu", "w") as f:
            f.write(text)
        subprocess.run(["nvcc", "-w", "-std=c++20", "-O3", "-fmad=false", "--expt-relaxed-constexpr", "--extended-lambda", f"-I{ROOT}", f"-arch={arch}", "-cubin",
                        "-o", out, out[:-5] + "cu"], check=True)
        yield out


def kernels(path, arch):
    text = subprocess.run(["cuobjdump", "-sass", "-arch", arch, path], check=True, capture_output=True, text=True).stdout
    for function in re.split(r"\n\t\tFunction : ", text)[1:]:
        code = [(int(m[1], 16), m[2].strip()) for m in re.finditer(r"/\*([0-9a-f]{4,})\*/\s+([^;]*);", function)]
        yield function.split("\n", 1)[0].strip(), code


def target(instruction):
    m = re.search(r"\bBRA\b.*?(0x[0-9a-f]+)", instruction)
    return int(m[1], 16) if m else None


def kind(instruction):
    return re.sub(r"^@!?U?P\w+\s+", "", instruction).split()[0].split(".")[0]


def way(code, begin, end):
    """Instructions from one address to another, forwards: most that compute, then fewest."""
    number = {a: i for i, (a, _) in enumerate(code)}
    first, last = number[begin], number[end]
    counted = ("HMMA",) if any(kind(t) == "HMMA" for _, t in code[first:last]) else COMPUTES  # beside tensor cores nothing else is work
    best = {first: ((0, 0), None)}
    for i in range(first, last):
        if i not in best:
            continue
        text, (computes, others) = code[i][1], best[i][0]
        cost = (computes - (kind(text) in counted), others + 1)
        to = target(text)
        following = [number[to]] if to in number and i < number[to] <= last else []
        if not (to is not None and not text.startswith("@")) and kind(text) not in ("EXIT", "RET"):
            following.append(i + 1)
        for f in following:
            if f not in best or cost < best[f][0]:
                best[f] = (cost, i)
    path, i = [], last if last in best else None
    while i is not None:
        path.append(code[i][1])
        i = best[i][1]
    return path[::-1]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("files", nargs="+"); p.add_argument("--arch", default="sm_90"); p.add_argument("--only", default="")
    a = p.parse_args()
    for tool in ["cuobjdump", "nvdisasm"] + ["nvcc"] * any(f.endswith(".cpp") for f in a.files):
        if not shutil.which(tool):
            sys.exit(f"sass.py: error: {tool} is not in PATH")
    with tempfile.TemporaryDirectory() as folder:
        for file in a.files:
            for part in compiled(file, a.arch, folder) if file.endswith(".cpp") else [file]:
                for name, code in kernels(part, a.arch):
                    if not re.search(a.only, name):
                        continue
                    print(name)
                    loops = [(to, at) for at, text in code if (to := target(text)) is not None and to < at]
                    for begin, end in loops:
                        if any((b, e) != (begin, end) and begin <= b and e <= end for b, e in loops):
                            continue  # not innermost
                        if path := way(code, begin, end):
                            kinds = collections.Counter(map(kind, path)).most_common(12)
                            print(f"  {len(path):5}  " + ", ".join(f"{k} {n}" for k, n in kinds))


main()
