#!/usr/bin/env python3
"""check_losses.py LOG REF KIND: the losses of a run's log against PyTorch's in ref.json; 1e-5 at step 0, 1e-4 later, relative.
check_losses.py --same LOG LOG...: the logs hold the same losses, bit for bit.
check_losses.py --close TOLERANCE LOG LOG...: the same to a relative tolerance.
check_losses.py --below LIMIT LOG: no loss exceeds the limit.
check_losses.py --falls LOG: the mean of the last fifth is below 0.9 of the first loss."""
import json, sys


def losses(path):
    return [json.loads(l)["loss"] for l in open(path)]


def main(args):
    if args[0] == "--falls":
        l = losses(args[1])
        tail = l[-max(1, len(l) // 5):]
        assert sum(tail) / len(tail) < 0.9 * l[0], f"losses do not fall: {l[0]} -> {tail}"
        return
    if args[0] == "--below":
        assert all(x <= float(args[1]) for x in losses(args[2])), f"{losses(args[2])} exceed {args[1]}"
        return
    if args[0] in ("--same", "--close"):
        tol = float(args.pop(1)) if args[0] == "--close" else 0.0
        first = losses(args[1])
        assert first, f"{args[1]} is empty"
        for other in args[2:]:
            o = losses(other)
            assert len(o) == len(first), f"{other}: {len(o)} steps, {args[1]}: {len(first)}"
            for i, (x, y) in enumerate(zip(first, o)):
                assert abs(x - y) <= tol * abs(x), f"step {i}: {args[1]} {x!r}, {other} {y!r}"
        return
    log, ref, kind = args
    got, want = losses(log), json.load(open(ref))["losses"][kind]
    assert len(got) == len(want), f"{len(got)} steps, PyTorch has {len(want)}"
    for i, (g, w) in enumerate(zip(got, want)):
        tol = 1e-5 if i == 0 else 1e-4
        assert abs(g - w) <= tol * max(1e-3, abs(w)), f"step {i}: {g!r}, PyTorch {w!r}"


try:
    main(sys.argv[1:])
except AssertionError as e:
    sys.exit(f"check_losses.py: {e}")
