"""pieces.py FILE COMMAND...: runs the command on each piece of a file, one after the other; lines `// -----` part the pieces. It ends
with the first status that is not 0."""
import subprocess
import sys

path, *command = sys.argv[1:]
with open(path) as f:
    pieces = f.read().split("\n// -----\n")
for piece in pieces:
    status = subprocess.run([*command, "-"], input=piece + "\n", text=True).returncode
    if status:
        sys.exit(status)
