#!/usr/bin/env python3
"""part_of.py PLAN.json PART: such a part, in bytes, of what the plan and libraries take."""
import json, sys

with open(sys.argv[1]) as f:
    plan = json.load(f)
print(int(float(sys.argv[2]) * (plan["spaces"]["device"]["arena_bytes"] + plan["library_bytes"])))
