#!/usr/bin/env python3
"""check_same.py A.safetensors B.safetensors: they have the same tensors, bit for bit, in any order."""
import json, struct, sys


def tensors(path):
    raw = open(path, "rb").read()
    length, = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8:8 + length]), raw[8 + length:]
    return {k: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for k, t in header.items() if k != "__metadata__"}


a, b = map(tensors, sys.argv[1:])
different = [k for k in sorted({*a, *b}) if a.get(k) != b.get(k)]
if different:
    sys.exit(f"they differ in {', '.join(different)}")
