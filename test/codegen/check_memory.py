#!/usr/bin/env python3
"""check_memory.py [--close] PLAN.json PROGRAM...: the program's resident peak lies between the plan's arena and the plan's bytes plus 5 %;
with --close it is not below these less 7 %."""
import json, resource, subprocess, sys

isClose = "--close" in sys.argv
sys.argv = [a for a in sys.argv if a != "--close"]
plan = json.load(open(sys.argv[1]))
arena, library = plan["spaces"]["device"]["arena_bytes"], plan["library_bytes"]
subprocess.run(sys.argv[2:], check=True, stdout=subprocess.DEVNULL)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
assert arena <= peak, f"the plan reserves {arena} bytes, {peak} were resident"
assert peak <= 1.05 * (arena + library), f"{peak} bytes were resident, planned are {arena} + {library}"
assert not isClose or peak >= 0.93 * (arena + library), f"only {peak} bytes were resident, planned are {arena} + {library}"
