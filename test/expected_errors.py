"""expected_errors.py FILE COMMAND...: runs the command on each piece of a file, and compares its errors with those that the piece says.

Lines `// -----` part the pieces; lines keep their numbers. Behind the comment

    // expected-error@+1:10 {{text}}

the next line has, at column 10, an error with the text in it; without `:10`, in any column; without `@+1:10`, anywhere or nowhere. The
same with `expected-note`. A piece fails if and only if it expects an error. Every error must be expected, and notes if one is."""
import os
import re
import subprocess
import sys
import tempfile

path, *command = sys.argv[1:]
EXPECTED = re.compile(r"// expected-(error|note)(?:@([+-]\d+)(?::(\d+))?)? \{\{(.*?)\}\}")
FOUND = re.compile(r"^(?:\S+?:(\d+):(\d+): )?(?:[\w.-]+: )*?(error|note): (.*)$")
problems = []


def check(piece, first):
    expected = []
    for number, line in enumerate(piece, first):
        for kind, offset, column, text in EXPECTED.findall(line):
            expected.append((kind, number + int(offset) if offset else None, int(column) if column else None, text))
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, os.path.basename(path))
        with open(file, "w") as f:
            f.write("\n" * (first - 1) + "\n".join(piece) + "\n")
        done = subprocess.run([*command, file], capture_output=True, text=True, cwd=folder)
    fails = any(e[0] == "error" for e in expected)
    if (done.returncode != 0) != fails:
        problems.append(f"{path}:{first}: the piece ends with status {done.returncode}")
    notes = any(e[0] == "note" for e in expected)
    for m in filter(None, map(FOUND.match, done.stderr.splitlines())):
        kind, text = m[3], m[4]
        line, column = (int(m[1]), int(m[2])) if m[1] else (None, None)
        if of := re.match(r"line (\d+): (.*)", text):  # of a node without a name
            line, text = int(of[1]), of[2]
        match = next((e for e in expected if e[0] == kind and e[1] in (None, line) and e[2] in (None, column) and e[3] in text), None)
        if match:
            expected.remove(match)
        elif kind == "error" or notes:
            problems.append(f"{path}:{line or first}:{column or 1}: not expected: {kind}: {text}")
    for kind, line, _, text in expected:
        problems.append(f"{path}:{line or first}: expected, and not there: {kind}: {text}")


with open(path) as f:
    lines = f.read().splitlines()
begin = 0
for i in range(len(lines) + 1):
    if i == len(lines) or lines[i] == "// -----":
        check(lines[begin:i], begin + 1)
        begin = i + 1
print(*problems, sep="\n")
sys.exit(bool(problems))
