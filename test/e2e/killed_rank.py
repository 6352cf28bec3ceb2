"""killed_rank.py PROGRAM DATA: trains on 2 ranks and kills rank 1; prints what the job said, returns its status (1 if it
does not end within 10 seconds)."""
import os
import signal
import subprocess
import sys
import time

program, data = sys.argv[1:]
log = program + ".kill.jsonl"
# A rank of a killed process' job would be ended by mpirun before it can speak.
job = subprocess.Popen(["mpirun", "--mca", "orte_abort_on_non_zero_status", "0", "-n", "2", program, "--data=" + data,
                        "--steps=1000000000", "--log=" + log, "--quiet"],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ranks():
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            name = os.readlink(f"/proc/{pid}/exe")
            env = open(f"/proc/{pid}/environ").read().split("\0")
        except OSError:
            continue
        if os.path.realpath(program) == name:
            found.update({e.split("=")[1]: int(pid) for e in env if e.startswith("OMPI_COMM_WORLD_RANK=")})
    return found


until = time.time() + 60
while time.time() < until and not (os.path.exists(log) and os.path.getsize(log)):
    time.sleep(0.05)
os.kill(ranks()["1"], signal.SIGKILL)
try:
    said, _ = job.communicate(timeout=10)
except subprocess.TimeoutExpired:
    job.kill()
    sys.exit("the job is still there 10 seconds later")
print(said)
sys.exit(0 if job.returncode == 0 else 1)
