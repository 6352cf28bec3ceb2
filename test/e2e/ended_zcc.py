"""zcc ended by a signal while the C++ compiler runs: it takes its compilers and its temporary folder along.

ended_zcc.py ZCC MODEL FOLDER"""
import glob
import os
import signal
import subprocess
import sys
import time

zcc, model, folder = sys.argv[1:]


def compilers():
    """Processes that work in the folder."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                words = file.read()
        except OSError:
            continue  # it has ended
        if os.fsencode(folder + "/zcc-") in words:
            found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found


def wait_for(condition, what):
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    sys.exit(what)


for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # lit and nohup ignore some, and what is ignored stays so
    signal.signal(number, signal.SIG_DFL)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    out = f"{folder}/program"
    process = subprocess.Popen([zcc, model, "--init=pytorch", "-o", out], env=dict(os.environ, TMPDIR=folder))
    wait_for(lambda: glob.glob(f"{folder}/zcc-*/kernels0.log") or process.poll() is not None, "no compiler started")
    assert process.poll() is None, "zcc ended before the signal"
    process.send_signal(number)
    assert process.wait() == -number, process.returncode
    assert os.listdir(folder) == [], os.listdir(folder)
    wait_for(lambda: not compilers(), f"left running: {compilers()}")
print("nothing is left")
