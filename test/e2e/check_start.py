#!/usr/bin/env python3
"""check_start.py ZCC FOLDER: at stage 3 on two ranks, start-up needs no more memory than a step, and reads the rank's shard.

The model is a chain of large products, so that what a rank holds outweighs the libraries; its weights are drawn, or are in
external data.
"""
import json, os, subprocess, sys

zcc, folder = sys.argv[1:]
RANKS, LAYERS, WIDTH, ROWS = 2, 6, 2048, 4
LAYER_BYTES = 4 * WIDTH * WIDTH

# Runs a program and says what its process needed: resident peak, bytes read (the process is looked at before it is gone).
MEASURE = """
import json, os, resource, sys
def bytes_read():  # with those of children that were waited for; an ended child's own only root may ask for
    return int(dict(l.split(": ") for l in open("/proc/self/io").read().splitlines())["rchar"])
before = bytes_read()
pid = os.fork()
if not pid:
    os.execv(sys.argv[2], sys.argv[2:])
status = os.waitpid(pid, 0)[1]
read = bytes_read() - before
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
json.dump([peak, read], open(sys.argv[1] + os.environ["OMPI_COMM_WORLD_RANK"], "w"))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def module(weights):
    x = f"f32[{ROWS}x{WIDTH}]"
    lines = ["module @chain {"]
    for i in range(LAYERS):
        lines.append(f"  param %w{i} : f32[{WIDTH}x{WIDTH}] = {weights(i)} {{trained}}")
    lines.append(f'  func @micro(%x : {x}) -> ("loss" : f32[]) {{')
    last = "x"
    for i in range(LAYERS):
        lines.append(f"    %y{i} = matmul %{last}, %w{i} : {x}\n    %h{i} = tanh %y{i} : {x}")
        last = f"h{i}"
    lines.append(f"    %s = mul %{last}, %{last} : {x}\n    %r = reduce_sum %s {{axes = [0, 1]}} : f32[1x1]\n"
                 "    %l = reshape %r {dims = []} : f32[]\n    return %l\n  }\n}\n")
    return "\n".join(lines)


def run(name, steps):
    """[resident peak, bytes read] of each rank"""
    out = os.path.join(folder, name + ".rank")
    subprocess.run(["mpirun", "-n", str(RANKS), sys.executable, "-c", MEASURE, out, os.path.join(folder, name), "--quiet",
                    f"--data=x={folder}/x.npy", f"--steps={steps}"], check=True)
    return [json.load(open(out + str(r))) for r in range(RANKS)]


def check(name, text):
    path = os.path.join(folder, name)
    open(path + ".zir", "w").write(text)
    flags = [path + ".zir", f"--ranks={RANKS}", "--zero=3", "--threads=1"]
    plan = json.loads(subprocess.run([zcc, *flags, "--plan=json"], check=True, capture_output=True).stdout)
    subprocess.run([zcc, *flags, "-o", path], check=True)
    planned = plan["spaces"]["device"]["arena_bytes"] + plan["library_bytes"]
    start, steps = run(name, 0), run(name, 3)
    for r in range(RANKS):
        (begin, read), (end, _) = start[r], steps[r]
        print(f"{name}, rank {r}: {begin >> 20} MiB after the start, {end >> 20} MiB after 3 steps, planned {planned >> 20} MiB, "
              f"{read >> 20} MiB read")
        assert begin <= 1.03 * end and begin >= 0.9 * end, "start-up and step differ"
        assert end <= 1.05 * planned, "more than planned"
        # Its shard, and its part of what is compared with the hash of the file.
        of_file = 2 * LAYERS * LAYER_BYTES // RANKS if "external" in name else 0
        assert read <= 1.02 * of_file + (16 << 20), "more than its shard was read"


def main():
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({ROWS}, {WIDTH}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(os.path.join(folder, "x.npy"), "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(4 * ROWS * WIDTH))
    check("drawn", module(lambda i: "normal(0, 0.02)"))
    with open(os.path.join(folder, "w.bin"), "wb") as f:
        for _ in range(LAYERS):
            f.write(os.urandom(1 << 20).translate(bytes(b & 0x3b if b % 4 else b for b in range(256))) * (LAYER_BYTES >> 20))
    check("external", module(lambda i: f'"w.bin"[{i * LAYER_BYTES}, {LAYER_BYTES}]'))


main()
