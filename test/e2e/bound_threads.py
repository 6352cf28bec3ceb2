"""bound_threads.py PROGRAM..: runs it with threads bound; each of the two says another place, where the machine has two cores."""
import os, subprocess, sys

said = subprocess.run(sys.argv[1:], check=True, capture_output=True, text=True,
                      env={**os.environ, "OMP_PROC_BIND": "true", "OMP_DISPLAY_AFFINITY": "true", "OMP_AFFINITY_FORMAT": "thread %n at %A"}).stderr
places = dict(line.split()[1::2] for line in said.splitlines() if line.startswith("thread "))
if len(os.sched_getaffinity(0)) > 1 and len(set(places.values())) < 2:
    sys.exit(f"bound_threads.py: threads are at {places}:\n{said}")
