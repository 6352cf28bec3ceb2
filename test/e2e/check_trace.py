#!/usr/bin/env python3
"""check_trace.py FILE.json: whether a trace's spans nest, and whether what a step does is all in it. Prints what is there."""
import collections, json, sys

events = json.load(open(sys.argv[1]))["traceEvents"]
names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
ranks = sorted({e["pid"] for e in events})
rows = collections.defaultdict(list)
for e in events:
    if e["ph"] == "X":
        rows[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"], e["name"], e))
ROUND = 0.002  # of times in microseconds with three digits


def check_nesting(row, spans):
    open_ = []
    for begin, end, name, _ in sorted(spans, key=lambda s: (s[0], -s[1])):
        while open_ and open_[-1][1] <= begin + ROUND:
            open_.pop()
        if open_ and end > open_[-1][1] + ROUND:
            sys.exit(f"{row}: '{name}' ends behind '{open_[-1][2]}', in which it began")
        open_.append((begin, end, name))


def inside(spans, begin, end):
    return [s for s in spans if s[0] >= begin - ROUND and s[1] <= end + ROUND]


for key, spans in rows.items():
    check_nesting(names[key], spans)
steps = None
for rank in ranks:
    row = {name: rows[key] for key, name in names.items() if key[0] == rank}
    of = {s[2]: s for s in row["step"] if s[2].startswith("step ")}
    steps = steps or list(of)
    if list(of) != steps:
        sys.exit(f"rank {rank} has {list(of)}, not {steps}")
    nodes = sorted(row["compute"], key=lambda s: s[0])
    for name, (begin, end, _, _) in of.items():
        calls = [s for s in inside(row["step"], begin, end) if s[2].startswith(("micro-batch", "update", "evaluation of"))]
        if not calls:
            sys.exit(f"rank {rank}, {name}: no micro-batch")
        for first, last, call, _ in calls:
            within = inside(nodes, first, last)
            gaps = [a[2] for a, b in zip(within, within[1:]) if abs(b[0] - a[1]) > ROUND]
            if not within or gaps:
                sys.exit(f"rank {rank}, {name}, {call}: {len(within)} nodes, gaps behind {gaps[:5]}")
    if not any(s[3]["args"].get("value") and s[3]["args"]["predicted_us"] > 0 and not s[2].startswith("%") for s in nodes):
        sys.exit(f"rank {rank}: no node with an ONNX name and a predicted time")
print(len(ranks), "ranks, steps", *(s.split()[1] for s in steps))
for (rank, _), name in sorted(names.items(), key=lambda n: (n[0][0], n[1])):
    print(f"rank {rank} {name}:", *sorted({s[2].split()[0] for s in rows[rank, _]}) if name in ("collectives", "step") else "")
