"""Checks zcc-nvme's file of rates: check_rates.py FILE NUMBER-OF-CELLS."""
import json
import sys

RATES = ["read_bytes_per_s", "write_bytes_per_s", "mixed_bytes_per_s", "read_latency_s", "write_latency_s",
         "bytes_per_core_s", "moves_per_core_s"]

with open(sys.argv[1]) as f:
    all = json.load(f)
assert len(all["measured"]) == int(sys.argv[2]), all
assert all["engine"] in ("io_uring", "threads") and all["folders"], all
for row in [all, *all["measured"]]:
    assert all["block_bytes"] % 4096 == 0 and row["depth"] >= 1, row
    assert min(row[key] for key in RATES) > 0, row
assert any(all[RATES[0]] == row[RATES[0]] for row in all["measured"]), all
