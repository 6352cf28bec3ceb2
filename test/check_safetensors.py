#!/usr/bin/env python3
"""check_safetensors.py FILE...: opens each with the published safetensors package and reads every tensor."""
import sys
from safetensors import safe_open

for path in sys.argv[1:]:
    with safe_open(path, framework="np") as f:
        names = list(f.keys())
        for name in names:
            f.get_slice(name).get_shape()
    print(path, len(names))
