"""dumps.py DIR ZCC-OPT: runs the zcc-opt line at the head of each dump of a folder, in there; all must end well."""
import os, shlex, subprocess, sys

folder, tool = sys.argv[1:3]
os.chdir(folder)
wrong, lines = 0, 0
for name in sorted(f for f in os.listdir() if f.endswith(".zir")):
    head = open(name).readline()
    if not head.startswith("// zcc-opt "):
        continue
    words = ["again" if w == name else w for w in shlex.split(head[3:])[1:]]
    done = subprocess.run([tool, *words], capture_output=True, text=True)
    lines += 1
    if done.returncode or not os.path.exists("again"):
        wrong += 1
        print(name, done.stderr)
    else:
        os.remove("again")
print(f"{wrong} of {lines} lines fail")
