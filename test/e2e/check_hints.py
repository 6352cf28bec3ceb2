"""Each of zcc's options is known to the program: as its own, or as zcc's. check_hints.py ZCC PROGRAM"""
import re
import subprocess
import sys

zcc, program = sys.argv[1:]


def options(tool):
    text = subprocess.run([tool, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^  --([a-z0-9-]+)", text, re.MULTILINE))


ours, own = options(zcc), options(program)
assert len(ours) > 50 and len(own) > 20
for name in sorted(ours - own):
    said = subprocess.run([program, f"--{name}"], capture_output=True, text=True).stderr
    assert f"'zcc --{name}'" in said, (name, said)
