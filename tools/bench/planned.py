"""What zcc plans, told apart from what it refuses and from what goes wrong."""
import json, shlex, subprocess, sys


def planned(command):
    """What --plan=json says of a command, and ""; None and the message where memory is what is missing. All else ends the script."""
    done = subprocess.run([*command, "--plan=json"], capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout), ""
    if "a rank needs" not in done.stderr:
        sys.exit(f"{shlex.join(command)}\n{done.stderr}")
    return None, done.stderr


def error(said):
    """The line of what zcc said that is no warning."""
    return next(line for line in said.splitlines() if "error:" in line)
