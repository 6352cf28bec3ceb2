"""replaced.py PROGRAM MODEL OPTIONS...: while it trains, its file is compiled anew, which takes the other's name, and the model's has another
name; then it is asked to end. Prints what was said and the status."""
import os, shutil, signal, subprocess, sys, time

program, model, *options = sys.argv[1:]
log = program + ".jsonl"
job = subprocess.Popen([program, "--steps=1000000000", "--log=" + log, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
try:
    until = time.time() + 60
    while time.time() < until and not (os.path.exists(log) and os.path.getsize(log) > 1000):
        time.sleep(0.02)
    shutil.copy2(program, program + ".new")
    os.rename(program + ".new", program)
    os.rename(model, model + ".away")
    job.send_signal(signal.SIGINT)
    said, _ = job.communicate(timeout=60)
finally:
    job.kill()
print(said, "status", job.returncode)
