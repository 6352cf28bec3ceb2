#!/usr/bin/env python3
"""check_dtype.py LOG: the loss scale of every step is what DeepSpeed's DynamicLossScaler (initial power 16, window 1000,
hysteresis 2, minimum 1) has after the same overflows (loss_scale.py has what its own class says); a skipped step changes nothing; some are skipped, others not.
check_dtype.py --close TOLERANCE LOG REF KIND: the losses are those of ref.json to a relative tolerance.
check_dtype.py --equal NAME A B: of two safetensors files, equal tensors are those with NAME in their name; types are equal.
check_dtype.py --elements TYPE FILE: all tensors of a safetensors file have it."""
import json, sys


class Scaler:
    def __init__(self):
        self.scale, self.iteration, self.last, self.hysteresis = 2.0**16, 0, -1, 2

    def update(self, overflow):
        if overflow:
            if self.hysteresis == 1:
                self.scale = max(self.scale / 2, 1)
            else:
                self.hysteresis -= 1
            self.last = self.iteration
        else:
            stable = self.iteration - self.last - 1
            if stable > 0 and stable % 1000 == 0:
                self.hysteresis = 2
                self.scale *= 2
        self.iteration += 1


def tensors(path):
    data = open(path, "rb").read()
    head = 8 + int.from_bytes(data[:8], "little")
    entries = json.loads(data[8:head])
    return {k: (v["dtype"], data[head + v["data_offsets"][0]:head + v["data_offsets"][1]])
            for k, v in entries.items() if k != "__metadata__"}


def main(args):
    if args[0] == "--equal":
        a, b = tensors(args[2]), tensors(args[3])
        assert a.keys() == b.keys() and any(args[1] in k for k in a), f"{list(a)} and {list(b)}"
        for k in a:
            assert a[k][0] == b[k][0] and (a[k] == b[k]) == (args[1] in k), k
        return
    if args[0] == "--elements":
        found = {t[0] for t in tensors(args[2]).values()}
        assert found == {args[1]}, found
        return
    if args[0] == "--close":
        tolerance, log, ref, kind = float(args[1]), *args[2:]
        want = json.load(open(ref))["losses"][kind]
        got = [json.loads(l)["loss"] for l in open(log)]
        assert len(got) == len(want), f"{len(got)} steps, not {len(want)}"
        for i, (g, w) in enumerate(zip(got, want)):
            assert abs(g - w) <= tolerance * abs(w), f"step {i}: {g!r}, PyTorch {w!r}"
        return
    steps, scaler = [json.loads(l) for l in open(args[0])], Scaler()
    for i, s in enumerate(steps):
        assert s["loss_scale"] == scaler.scale, f"step {i}: {s['loss_scale']}, DeepSpeed {scaler.scale}"
        scaler.update(s["skipped"])
        if i + 1 < len(steps):
            same = steps[i + 1]["loss"] == s["loss"]
            assert same == s["skipped"], f"step {i}: skipped {s['skipped']}, the same loss after it: {same}"
    skipped = sum(s["skipped"] for s in steps)
    assert 2 < skipped < len(steps), f"{skipped} of {len(steps)} steps are skipped"


try:
    main(sys.argv[1:])
except AssertionError as e:
    sys.exit(f"check_dtype.py: {e}")
