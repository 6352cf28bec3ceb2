"""killed_rank.py PROGRAM DATA [OPTION...]: trains on 2 ranks and kills rank 1; prints what the job said, returns its status (1 if it
does not end within 60 seconds)."""
import os
import signal
import subprocess
import sys
import time

from job_ranks import end, ranks_of

program, data, *options = sys.argv[1:]
log = program + ".kill.jsonl"
# A rank of a killed process' job would be ended by mpirun before it can speak.
job = subprocess.Popen(["mpirun", "--mca", "orte_abort_on_non_zero_status", "0", "-n", "2", program, "--data=" + data,
                        "--steps=1000000000", "--log=" + log, "--quiet", *options],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

try:
    until = time.time() + 60
    while time.time() < until and not (os.path.exists(log) and os.path.getsize(log)):
        time.sleep(0.05)
    os.kill(ranks_of(program)["1"], signal.SIGKILL)
    said, _ = job.communicate(timeout=60)
except subprocess.TimeoutExpired:
    sys.exit("the job is still there 60 seconds later")
finally:
    end(job, program)
print(said)
sys.exit(0 if job.returncode == 0 else 1)
