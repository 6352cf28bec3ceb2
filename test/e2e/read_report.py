#!/usr/bin/env python3
"""read_report.py RUN.html [LOG.jsonl]: how far the run came and how it ended; metrics must be those of the log."""
import json, re, sys

data = json.loads(re.search("type=.application/json.>(.*?)</script>", open(sys.argv[1]).read(), re.S)[1])
text = f"{data['model']}: {sum(data['count'])} of {data['steps']} steps"
if data["error"]:
    text += "; " + (f"step {data['errorStep']}: " if data["errorStep"] is not None else "") + data["error"]
for log in sys.argv[2:]:
    rows = [json.loads(line) for line in open(log)]
    for m in data["metrics"]:
        want = [r[m["name"]] for r in rows]
        assert all(abs(x - y) <= 1e-6 * abs(y) for x, y in zip(m["values"], want, strict=True)), (m, want)
        assert len(m["evaluations"]) == len(data["evalStep"]) > 1 and m["name"] in rows[0], m
    text += f", {len(data['metrics'])} metrics as in the log"
print(text)
