"""interrupt.py SIGNAL[,SIGNAL] WHOM PROGRAM OPTIONS...: starts a run of endless steps, sends a signal once the log has some, prints what was
said and the status; a further signal once a checkpoint is there. WHOM: process (no mpirun), or of a run on 2 ranks mpirun, all (ranks), one (rank 1)."""
import os
import signal
import subprocess
import sys
import time

from job_ranks import end, ranks_of

names, whom, program, *options = sys.argv[1:]
log = program + ".interrupt.jsonl"
if os.path.exists(log):
    os.remove(log)
command = [program, "--steps=1000000000", "--log=" + log, *options]
if whom != "process":
    command = ["mpirun", "-n", "2", *command]
job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

try:
    until = time.time() + 60
    while time.time() < until and not (os.path.exists(log) and os.path.getsize(log) > 1000):
        time.sleep(0.05)
    pids = {"process": [job.pid], "mpirun": [job.pid]}.get(whom) or sorted(ranks_of(program).values())
    if whom == "one":
        pids = [ranks_of(program)["1"]]
    folder = next(o.removeprefix("--save=") for o in options if o.startswith("--save=")) if "," in names else None
    for i, name in enumerate(names.split(",")):
        while i and time.time() < until and not (os.path.isdir(folder) and any(d.startswith("step-") for d in os.listdir(folder))):
            time.sleep(0.05)
        for pid in pids:
            os.kill(pid, getattr(signal, name))
    said, _ = job.communicate(timeout=30)
except subprocess.TimeoutExpired:
    sys.exit("the job is still there 30 seconds later")
finally:
    end(job, program)
print(said)
print("status", job.returncode)
