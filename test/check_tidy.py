#!/usr/bin/env python3
"""check_tidy.py BUILD: clang-tidy finds nothing, by .clang-tidy's list, in what the last commit changed: eight files at most, those
that come first by a hash of the commit and their name, so that other commits look at others. All of the tree takes an hour."""
import hashlib, json, os, shlex, subprocess, sys, tempfile
from compile_records import records

MOST = 8
build = os.path.abspath(sys.argv[1])
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if not os.path.exists(os.path.join(root, ".git")):
    sys.exit(print("no clone: nobody commits from here"))
os.chdir(root)


def git(*args):
    return subprocess.run(["git", *args], check=True, stdout=subprocess.PIPE, text=True).stdout.split()


commit = git("rev-parse", "HEAD")[0]
compiled = {os.path.relpath(path, os.path.realpath(root)): c for path, c in records(build).items()}
changed = [f for f in git("show", "--name-only", "--format=", "HEAD") if f in compiled and f.endswith(".cpp")]
changed.sort(key=lambda f: hashlib.sha256((commit + f).encode()).digest())
changed = changed[:MOST]
with tempfile.TemporaryDirectory() as alone:  # each file by itself, not its unit
    commands = [[*shlex.split(compiled[f]["command"])[:-1], os.path.abspath(f)] for f in changed]
    with open(os.path.join(alone, "compile_commands.json"), "w") as out:
        json.dump([{"directory": build, "arguments": c, "file": c[-1]} for c in commands], out)
    for f in changed:
        out = subprocess.run(["clang-tidy-19", "-p", alone, "--quiet", "--extra-arg=-w", f], capture_output=True, text=True)
        print(f"{f}: {'as it should be' if out.returncode == 0 else out.stdout + out.stderr}", flush=True)
        if out.returncode:
            sys.exit(1)
