#!/usr/bin/env python3
"""loss_scale.py FILE WORK: programs have, step by step, the loss scales that FILE says, skip the steps that overflow and no
others, and end where it says so. Compiles them in WORK.
loss_scale.py --record FILE [SEED]: random sequences of overflows and what DeepSpeed's own class, DynamicLossScaler, makes of
them. Needs DeepSpeed.

A case of FILE: window, hysteresis, minimum and the power that the scale starts at, and its sequences: "steps", 1 where the
gradients overflow; "scales", [step, scale] wherever the scale changes; "ends", the step at which DeepSpeed raises, or null."""
import json, os, random, struct, subprocess, sys

# window, hysteresis, minimum, power
SETTINGS = [(1, 1, 1, 9), (2, 1, 1, 8), (3, 2, 1, 12), (5, 3, 4, 6), (7, 2, 8, 3), (10, 4, 1, 10), (3, 2, 16, 2), (1000, 2, 1, 10)]
LARGEST = 2.0**15  # that f16 holds; a sequence ends before a larger scale

MODULE = """module @sequence {
  param %w : f32[1] = splat 1.0 {trained}
  func @micro(%x : f32[1]) -> ("loss" : f32[]) {
    %y = mul %x, %w : f32[1]
    %loss = reshape %y {dims = []} : f32[]
    return %loss
  }
}
"""


def record(file, seed):
    from deepspeed import comm
    from deepspeed.runtime.fp16 import loss_scaler

    comm.get_rank = lambda group=None: 0  # it logs on rank 0 only, and asks who that is
    rng, cases = random.Random(seed), []
    for window, hysteresis, minimum, power in SETTINGS:
        sequences = []
        for odds in (0.05, 0.2, 0.35, 0.5):
            n = 1100 if window == 1000 else 150
            steps = [rng.random() < (odds / 50 if window == 1000 else odds) for _ in range(n)]
            scaler = loss_scaler.DynamicLossScaler(init_scale=2.0**power, scale_window=window, min_scale=minimum,
                                                   delayed_shift=hysteresis, consecutive_hysteresis=False)
            scales, ends = [], None
            for i, overflow in enumerate(steps):
                if not scales or scales[-1][1] != scaler.loss_scale:
                    scales.append([i, scaler.loss_scale])
                try:
                    scaler.update_scale(overflow)
                except Exception:
                    ends, steps = i, steps[:i + 1]
                    break
                if scaler.loss_scale > LARGEST:
                    steps = steps[:i + 1]
                    break
            sequences.append({"steps": "".join(str(int(s)) for s in steps), "scales": scales, "ends": ends})
        cases.append({"window": window, "hysteresis": hysteresis, "minimum": minimum, "power": power, "sequences": sequences})
    open(file, "w").write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


def write_npy(path, values):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(values)},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        f.write(struct.pack(f"<{len(values)}f", *values))


def check(program, work, sequence):
    data, log = os.path.join(work, "x.npy"), os.path.join(work, "log.jsonl")
    write_npy(data, [float("inf") if s == "1" else 0.0 for s in sequence["steps"]])  # the gradient of each step
    run = subprocess.run([program, f"--data=x={data}", f"--steps={len(sequence['steps'])}", "--quiet", f"--log={log}"],
                         stderr=subprocess.PIPE, text=True)
    ends, scales = sequence["ends"], dict(sequence["scales"])
    if ends is None:
        assert run.returncode == 0, run.stderr
    else:
        assert run.returncode == 1 and f"step {ends}: " in run.stderr and "at its minimum" in run.stderr, f"{run.stderr} not at {ends}"
    got = [json.loads(line) for line in open(log)]
    assert len(got) == (len(sequence["steps"]) if ends is None else ends), f"{len(got)} steps"
    for i, step in enumerate(got):
        scale = scales.get(i, scale if i else None)
        assert step["loss_scale"] == scale, f"step {i}: {step['loss_scale']}, DeepSpeed {scale}"
        assert step["skipped"] == (sequence["steps"][i] == "1"), f"step {i}: skipped {step['skipped']}"


def main(args):
    if args[0] == "--record":
        return record(args[1], int(args[2]) if len(args) > 2 else 1)
    file, work = args
    os.makedirs(work, exist_ok=True)
    model, program = os.path.join(work, "sequence.zir"), os.path.join(work, "sequence")
    open(model, "w").write(MODULE)
    for case in json.load(open(file)):
        settings = [f"--loss-scale-window={case['window']}", f"--loss-scale-hysteresis={case['hysteresis']}",
                    f"--min-loss-scale={case['minimum']}", f"--initial-scale-power={case['power']}"]
        subprocess.run(["zcc", model, "--dtype=fp16", "--optimizer=sgd", *settings, "-o", program], check=True)
        for sequence in case["sequences"]:
            try:
                check(program, work, sequence)
            except AssertionError as e:
                raise AssertionError(f"{' '.join(settings)}, overflows {sequence['steps']}: {e}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except AssertionError as e:
        sys.exit(f"loss_scale.py: {e}")
