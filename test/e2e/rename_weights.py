#!/usr/bin/env python3
"""rename_weights.py IN.safetensors OUT.safetensors [PYTHON]...

Writes the tensors of IN under other names: each PYTHON is an expression of `name`, which gives the new name, or None to leave the
tensor out. "shape" reverses the shapes of matrices instead, "half" makes f32 tensors f16."""
import json, struct, sys

source, to, *how = sys.argv[1:]
raw = open(source, "rb").read()
length, = struct.unpack("<Q", raw[:8])
header, data, out, body = json.loads(raw[8:8 + length]), raw[8 + length:], {}, b""
for name, t in header.items():
    if name == "__metadata__":
        continue
    begin, end = t["data_offsets"]
    values = data[begin:end]
    for h in how:
        if h == "shape":
            t["shape"] = t["shape"][::-1]
        elif h == "half" and t["dtype"] == "F32":
            n = len(values) // 4
            values, t["dtype"] = struct.pack(f"<{n}e", *struct.unpack(f"<{n}f", values)), "F16"
        elif h not in ("shape", "half") and name is not None:
            name = eval(h, {"name": name})
    if name is not None:
        out[name] = dict(t, data_offsets=[len(body), len(body) + len(values)])
        body += values
text = json.dumps(out).encode()
open(to, "wb").write(struct.pack("<Q", len(text)) + text + body)
