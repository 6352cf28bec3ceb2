"""Runs a command; prints the most MiB of address space that its heap takes while it runs."""
import re
import subprocess
import sys
import time

run, most = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL), 0
while run.poll() is None:
    try:
        with open(f"/proc/{run.pid}/maps") as f:
            found = re.search(r"^(\w+)-(\w+) .*\[heap\]$", f.read(), re.M)
    except OSError:
        continue
    if found:
        most = max(most, int(found[2], 16) - int(found[1], 16))
    time.sleep(0.01)
print(most >> 20)
sys.exit(run.returncode)
