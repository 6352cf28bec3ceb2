#!/usr/bin/env python3
"""check_steps.py CXX COUNT_ALLOCATIONS.cpp RANKS PROGRAM OPTIONS...: what a step of a program allocates and asks the kernel for.

Two runs of different length are compared: what both do is start-up, which differs by a few calls from run to run. Of the program itself no step may allocate; of oneDNN, which
notes its arguments at each call, the calls are shown. No step may map memory, and none may make system calls but
those of I/O, communication and waking threads. Without strace, or where it may not trace, the latter is left out, and said.
"""
import collections, os, shutil, subprocess, sys

cxx, source, ranks, program, *options = sys.argv[1:]
ranks, short, long = int(ranks), 10, 210
WAITING = {"futex", "sched_yield", "write", "pread64", "read", "restart_syscall", "epoll_wait", "epoll_pwait", "poll",
           "clock_nanosleep", "io_uring_enter"}
MAPPING = {"mmap", "munmap", "mremap", "brk", "madvise"}


def run(steps, before):
    command = ["mpirun", "-n", str(ranks), "sh", "-c", f'exec {before} "$0" "$@"', program, "--quiet", f"--steps={steps}",
               f"--log={program}.jsonl", *options]
    p = subprocess.run(command, capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"check_steps.py: {' '.join(command)}: {p.stderr or p.stdout}")


def per_step(before, read):
    """For each rank, by name: calls of the long run less those of the short one, over the steps between."""
    counts = []
    for steps in (short, long):
        run(steps, before)
        counts.append([read(f"{program}.counts.{r}") for r in range(ranks)])
    return [{k: (b[k] - a[k]) / (long - short) for k in b | a if a[k] != b[k]} for a, b in zip(*counts)]


def allocations(path):
    lines = (l.rsplit(" ", 1) for l in open(path))
    return collections.Counter({os.path.basename(name): int(calls) for name, calls in lines})


def system_calls(path):
    rows = (l.split() for l in open(path))
    return collections.Counter({r[-1]: int(r[3]) for r in rows if len(r) > 4 and r[3].isdigit() and r[-1] != "total"})


def main():
    library = program + ".count.so"
    subprocess.run([cxx, "-std=c++20", "-O1", "-shared", "-fPIC", source, "-o", library], check=True)
    failed = False
    os.environ["ZCC_COUNTS"] = program + ".counts"
    # By its path from here: LD_PRELOAD takes no path with a space.
    for rank, found in enumerate(per_step(f"env LD_PRELOAD={os.path.join('.', library)}", allocations)):
        own = found.pop(os.path.basename(program), 0)
        found.pop(os.path.basename(library), None)
        dnnl = sum(found.pop(k) for k in list(found) if k.startswith("libdnnl"))
        others = {k: v for k, v in found.items() if v >= 0.5}
        print(f"rank {rank}: {own:g} allocations a step, {'some' if dnnl else 'none'} by oneDNN, by others {others or 'none'}")
        print(f"rank {rank}: oneDNN allocates {dnnl:g} times a step", file=sys.stderr)
        failed |= bool(own or others)
    strace = shutil.which("strace")
    if not strace or subprocess.run([strace, "-c", "true"], capture_output=True).returncode:
        print("no strace: system calls are not counted")
        sys.exit(failed)
    counted = f'{strace} -f -c -o "{program}.counts.$OMPI_COMM_WORLD_RANK"'
    for rank, found in enumerate(per_step(counted, system_calls)):
        print(f"rank {rank}: a step's system calls {found}", file=sys.stderr)
        others = {k: v for k, v in found.items() if k not in WAITING and v >= (0.05 if k in MAPPING else 0.5)}
        print(f"rank {rank}: system calls but for I/O, communication and waking threads: {others or 'none'}")
        failed |= bool(others)
    sys.exit(failed)


if __name__ == "__main__":
    main()
