#!/usr/bin/env python3
"""data_files.py make FOLDER: 18 samples, each a power of two, in one file and in parts of it.
data_files.py check ALL PARTS ZIP64 TWO TWO_ONE TWO_THREE NPY: logs of runs that take 6 samples a step, whose losses are their mean.
data_files.py memory PROGRAM: how much memory data of 8 GiB take."""
import io
import json
import os
import resource
import struct
import subprocess
import sys
import zipfile

SAMPLES, STEP = 18, 6


def npy(descr, shape, data):
    head = repr({"descr": descr, "fortran_order": False, "shape": shape})
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data


def powers(first, last):
    return npy("<f4", (last - first,), struct.pack(f"<{last - first}f", *(2.0**i for i in range(first, last))))


ZEROS = bytes(1 << 22)


class Sparse(io.FileIO):
    """Zeros take no room on the disk."""
    def write(self, data):
        if data != ZEROS:
            return super().write(data)
        self.seek(len(data), os.SEEK_CUR)
        return len(data)


def archive(path, member):
    with zipfile.ZipFile(path, "w") as z, z.open("x.npy", "w", force_zip64=not zipfile.ZIP64_LIMIT) as f:
        f.write(member)


def make(folder):
    archive(f"{folder}/all.npz", powers(0, SAMPLES))
    for part, (first, last) in enumerate(((0, 7), (7, 12), (12, SAMPLES))):
        archive(f"{folder}/part-{part}.npz", powers(first, last))
    limit, zipfile.ZIP64_LIMIT = zipfile.ZIP64_LIMIT, 0
    archive(f"{folder}/zip64.npz", powers(0, SAMPLES))
    zipfile.ZIP64_LIMIT = limit
    archive(f"{folder}/wide.npz", npy("<f4", (4, 2), bytes(32)))
    for name, (first, last) in {"x-b": (0, 7), "x-a": (7, SAMPLES)}.items():
        with open(f"{folder}/{name}.npy", "wb") as f:
            f.write(powers(first, last))


def steps(log):
    """step -> the samples it took"""
    rows = [json.loads(line) for line in open(log)]
    sums = {r["step"]: round(r["loss"] * STEP) for r in rows}
    return {s: [i for i in range(SAMPLES) if n >> i & 1] for s, n in sums.items()}


def check(all_, parts, zip64, two, two_one, two_three, npy_):
    order = steps(all_)
    assert sorted(order) == list(range(9)) and all(len(s) == STEP for s in order.values()), order
    epochs = [order[e] + order[e + 1] + order[e + 2] for e in (0, 3, 6)]
    assert all(sorted(e) == list(range(SAMPLES)) for e in epochs) and epochs[0] != epochs[1] != epochs[2], epochs
    assert steps(parts) == steps(zip64) == order, (steps(parts), steps(zip64))
    first = steps(two)
    assert sorted(first) == [0, 1, 2, 3], first
    for rest in two_one, two_three:  # from step 4 on
        assert {**first, **steps(rest)} == order and min(steps(rest)) == 4, (rest, steps(rest))
    assert list(steps(npy_).values()) == [list(range(i, i + STEP)) for i in (0, STEP, 2 * STEP)], steps(npy_)


def memory(program):
    def run(*args, **kw):
        result = subprocess.run([program, "--steps=3", *args], **kw)
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, result

    archive("small.npz", powers(0, SAMPLES))
    small, _ = run("--data=small.npz", "--shuffle", "--quiet", check=True)
    for name in "ab":
        with open(f"large-{name}.npy", "wb") as f:
            f.write(npy("<f4", (1 << 30,), b""))
            f.truncate(f.tell() + (4 << 30))
    large, _ = run("--data=x=large-*.npy", "--shuffle", "--quiet", check=True)
    with Sparse("stored.npz", "w+") as raw, zipfile.ZipFile(raw, "w") as z:  # as numpy writes arrays of more than 4 GiB, and what is behind them
        for name, count in (("other", 1 << 30), ("x", 8)):
            with z.open(name + ".npy", "w", force_zip64=True) as f:
                f.write(npy("<f4", (count,), b""))
                for _ in range(0, count, 1 << 20):
                    f.write(ZEROS[:4 * count])
    large = max(large, run("--data=stored.npz", "--shuffle", "--quiet", check=True)[0])
    print("resident at most 64 MiB more" if large < small + (64 << 10) else f"resident {small} and {large} KiB", flush=True)
    with zipfile.ZipFile("deflated.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as z, z.open("x.npy", "w", force_zip64=True) as f:
        first = powers(0, SAMPLES)
        f.write(npy("<f4", (1 << 28,), first[-4 * SAMPLES:]))
        f.write(ZEROS[4 * SAMPLES:])
        for _ in range(255):
            f.write(ZEROS)
    def limited(*args):
        limit = 1 << 30
        return run("--data=deflated.npz", *args, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
                   stderr=subprocess.STDOUT)

    limited("--shuffle", "--quiet")
    streamed, _ = limited("--log=streamed.jsonl")
    got = steps("streamed.jsonl")
    assert list(got.values()) == [list(range(i, i + STEP)) for i in (0, STEP, 2 * STEP)], got
    print("inflated in order: as stored, resident at most 64 MiB more" if streamed < small + (64 << 10) else streamed, flush=True)
    for name in "large-a.npy", "large-b.npy", "stored.npz", "deflated.npz":
        os.remove(name)


if __name__ == "__main__":
    {"make": make, "check": check, "memory": memory}[sys.argv[1]](*sys.argv[2:])
