"""The processes of a program that mpirun started."""
import contextlib
import os
import signal


def ranks_of(program):
    """Process numbers by rank, which is text."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            name = os.readlink(f"/proc/{pid}/exe")
            env = open(f"/proc/{pid}/environ").read().split("\0")
        except OSError:
            continue
        if os.path.realpath(program) == name:
            found.update({e.split("=")[1]: int(pid) for e in env if e.startswith("OMPI_COMM_WORLD_RANK=")})
    return found


def end(job, program):
    """Ends what is left of a job and its ranks; of one that has ended, nothing."""
    for pid in ranks_of(program).values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if job.poll() is None:
        job.kill()
        job.wait()
