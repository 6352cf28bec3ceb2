#!/usr/bin/env python3
"""check_stack.py PLAIN NAME...: the losses of the logs are those of the first, bit for bit, and what a step with states or parameters on the disk moves is
at most 1.1 times what AdamW in float32 must move of them."""
import json, sys

losses = {}
for name in sys.argv[1:]:
    rows, plan = [json.loads(line) for line in open(name + ".jsonl")], json.load(open(name + ".json"))
    losses[name] = [r["loss"] for r in rows]
    given = {s["key"]: s["value"] for s in plan["settings"]}
    states, params = (given.get(f"--offload-{what}") == "nvme" for what in ("optimizer", "param"))
    waits = states and "--clip-grad-norm" in given
    least = plan["parameters"] * (states * 2 * 8 + params * 3 * 4 + waits * 2 * 4)
    moved = sum(rows[-1].get("nvme_bytes", {}).values())
    assert not least or 0 < moved <= 1.1 * least, (name, moved, least)
    assert losses[name] == losses[sys.argv[1]], (name, losses)
assert len(losses) == len(sys.argv) - 1
