#!/usr/bin/env python3
"""check_first.py A.jsonl STEP B.jsonl [TOLERANCE]: the loss of A's step is that of B's first."""
import json, sys

a, step, b, *tolerance = sys.argv[1:]
want, got = (json.loads(open(f).read().splitlines()[i])["loss"] for f, i in ((a, int(step)), (b, 0)))
if abs(want - got) > (float(tolerance[0]) if tolerance else 1e-6) * abs(want):
    sys.exit(f"{b}: {got} instead of {want}")
