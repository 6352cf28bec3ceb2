#!/usr/bin/env python3
"""check_sanitized.py BUILD: operators' records, which are checked while they are compiled, compile where a sanitizer looks for null pointers, too: to a
compiler that is told so fewer addresses are constants. Two at a time."""
import concurrent.futures, os, shlex, subprocess, sys
from compile_records import records

build = os.path.abspath(sys.argv[1])


def compiled(c):
    args = shlex.split(c["command"])
    args[args.index("-o") + 1] = os.devnull
    done = subprocess.run([*args, "-O0", "-fsanitize=address,undefined"], cwd=c["directory"], capture_output=True, text=True)
    return c["file"], done


units = {c["file"]: c for file, c in records(build).items() if "/ir/ops/" in file}.values()
if not units:
    sys.exit("no records are compiled in " + build)
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    for file, done in pool.map(compiled, units):
        if done.returncode:
            sys.exit(f"{os.path.basename(file)}:\n{done.stderr[:2000]}")
print(f"{len(units)} units compile")
