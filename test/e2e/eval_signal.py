"""eval_signal.py COMMAND...: runs it, which saves to ck; a SIGTERM comes in the evaluation behind the first step, which takes minutes."""
import os
import signal
import subprocess
import sys
import time

from data_files import npy

with open("long.npy", "wb") as f:
    f.write(npy("<f4", (200_000_000,), b""))
    f.truncate(f.tell() + 800_000_000)  # zeros, which take no room
job = subprocess.Popen([*sys.argv[1:], "--eval-data=x=long.npy", "--eval-every=1", "--save=ck", "--save-every=1"],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
until = time.time() + 60
while time.time() < until and not (os.path.isdir("ck") and os.listdir("ck")):
    time.sleep(0.05)
time.sleep(0.3)
job.terminate()
try:
    said, _ = job.communicate(timeout=20)
except subprocess.TimeoutExpired:
    job.kill()
    sys.exit("the evaluation goes on for 20 seconds")
print(said)
print("status", job.returncode, sorted(os.listdir("ck")))
