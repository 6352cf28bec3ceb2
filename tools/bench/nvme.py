#!/usr/bin/env python3
"""The disk engine beside fio, in turn on one disk, with the same block and depth: a table of medians of ratios.

    nvme.py DIR [--zcc-nvme build/bin/zcc-nvme] [--size 1GiB] [--block 1MiB] [--depth 8] [--memory 16MiB] [--pairs 7]

DIR lies on the disk to be measured and has room for twice the size. A pair is a run of the engine and one of fio (io_uring, direct,
registered buffers), whose order alternates; each makes its file, writes it, and then writes, reads, and does both: where a file happens to
lie alone may make a difference of half. Above 1 is in zcc's favour. The last column is processor time: what checksums cost is the difference of the first two rows.

fio's buffers are a block for each of the depth, which caches hold; the engine goes through --memory in each direction, the least that is in
huge pages. What a step moves comes from memory: with zcc-nvme's own 64MiB a disk that is nearly as fast as that is slower.

The engine's memory is in huge pages, as programs have it. fio's is where the system has some set aside (sysctl vm.nr_hugepages=16);
otherwise a block is hundreds of pieces to it, which a virtual disk may take several times as long for, and the table says so.
"""
import argparse, json, os, resource, shutil, statistics, subprocess, sys

KINDS = ("read", "write", "mixed")
VARIANTS = {"io_uring": [], "io_uring, no checksums": ["--checksum=off"], "threads": ["--engine=threads"]}
UNITS = {"KiB": "k", "MiB": "m", "GiB": "g"}


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ours(a, flags):
    out = os.path.join(a.dir, "zcc-nvme.json")
    before = cpu_seconds()
    subprocess.run([a.zcc_nvme, a.dir, f"--size={a.size}", f"--block={a.block}", f"--depth={a.depth}", f"--memory={a.memory}",
                    f"--json={out}", *flags],
                   check=True, stdout=subprocess.DEVNULL)
    with open(out) as f:
        row = json.load(f)
    os.remove(out)
    passes = 4  # one more before the measured ones
    rates = {k: row[k + "_bytes_per_s"] for k in KINDS}
    return rates, (cpu_seconds() - before) / passes / row["file_bytes"] * 1e9


def huge_pages():
    """Whether fio can have its buffers in them."""
    with open("/proc/meminfo") as f:
        return next((int(line.split()[1]) for line in f if line.startswith("HugePages_Free")), 0) >= 16


def fio(a):
    memory = ["--iomem=mmaphuge"] if huge_pages() else []
    rates, name = {}, os.path.join(a.dir, "fio.tmp")
    size, block = (text[:-3] + UNITS[text[-3:]] for text in (a.size, a.block))
    # As zcc-nvme does: disks with a burst of speed to give away give more of it to who asks for less.
    for kind, rw in (("first", "write"), ("write", "write"), ("read", "read"), ("mixed", "rw")):
        done = subprocess.run(["fio", "--name=zcc", f"--filename={name}", f"--size={size}", f"--bs={block}", f"--iodepth={a.depth}",
                               "--ioengine=io_uring", "--direct=1", "--fixedbufs=1", *memory, f"--rw={rw}", "--output-format=json",
                               *(["--end_fsync=1"] if kind == "first" else [])], check=True, capture_output=True, text=True)
        job = json.loads(done.stdout)["jobs"][0]
        rates[kind] = (job["read"]["io_bytes"] + job["write"]["io_bytes"]) / max(job["read"]["runtime"], job["write"]["runtime"]) * 1e3
    os.remove(name)
    return rates


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir")
    p.add_argument("--zcc-nvme", default="build/bin/zcc-nvme")
    p.add_argument("--size", default="1GiB")
    p.add_argument("--block", default="1MiB")
    p.add_argument("--depth", type=int, default=8)
    p.add_argument("--memory", default="16MiB")
    p.add_argument("--pairs", type=int, default=7)
    a = p.parse_args()
    if not shutil.which("fio"):
        print("nvme.py: skipped: there is no fio (a package of that name)")
        return
    rates = {v: {k: [] for k in KINDS} for v in [*VARIANTS, "fio"]}
    ratios = {v: {k: [] for k in KINDS} for v in VARIANTS}
    cpu = {v: [] for v in VARIANTS}
    try:
        for pair in range(a.pairs):
            for variant, flags in VARIANTS.items():
                first = fio(a) if pair % 2 else None
                mine, seconds = ours(a, flags)
                theirs = first or fio(a)
                cpu[variant].append(seconds)
                for k in KINDS:
                    rates[variant][k].append(mine[k])
                    rates["fio"][k].append(theirs[k])
                    ratios[variant][k].append(mine[k] / theirs[k])
    finally:
        if os.path.exists(os.path.join(a.dir, "fio.tmp")):
            os.remove(os.path.join(a.dir, "fio.tmp"))
    middle = statistics.median
    print(f"{a.size} in blocks of {a.block}, depth {a.depth}, {a.pairs} pairs; GB/s (median of ratios to fio, "
          f"in {'huge' if huge_pages() else 'small'} pages)\n")
    print("| engine | " + " | ".join(KINDS) + " | CPU s a GB |\n|---|---|---|---|---|")
    for v in VARIANTS:
        cells = [f"{middle(rates[v][k]) / 1e9:.2f} ({middle(ratios[v][k]):.2f})" for k in KINDS]
        print(f"| {v} | " + " | ".join(cells) + f" | {middle(cpu[v]):.3f} |")
    print("| fio | " + " | ".join(f"{middle(rates['fio'][k]) / 1e9:.2f}" for k in KINDS) + " | |")


if __name__ == "__main__":
    sys.exit(main())
