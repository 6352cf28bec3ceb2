#!/usr/bin/env python3
"""check_traffic.py PLAN.json TRACE.json: whether each traced step moves the bytes to and from disks that the plan says."""
import json, sys

plan = json.load(open(sys.argv[1]))["traffic_bytes_per_rank"]
events = json.load(open(sys.argv[2]))["traceEvents"]
names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
spans = [(names[e["tid"]], e) for e in events if e["ph"] == "X"]
steps = [(e["ts"], e["ts"] + e["dur"]) for row, e in spans if row == "step" and e["name"].startswith("step ")]
for what, begins, ends in ("reads", "nvme to", ""), ("writes", "", "to nvme"):
    planned = sum(n for k, n in plan.items() if k.startswith(begins) and k.endswith(ends) and "nvme" in k)
    for first, last in steps:
        moved = sum(e["args"]["bytes"] for row, e in spans if row.startswith(f"disk {what}") and first <= e["ts"] <= last)
        if moved != planned or not moved:
            sys.exit(f"disk {what} of a step: {moved} bytes, planned {planned}")
print(len(steps), "steps as planned")
