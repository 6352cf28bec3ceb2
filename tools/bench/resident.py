"""The memory that a process takes."""
import time


def resident(pid):
    """The peak in bytes of what the process has become: wait4() would count this one, from which it was forked."""
    try:
        with open(f"/proc/{pid}/status") as f:
            return next((int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM")), 0)
    except OSError:
        return 0


def family(pid):
    """A process and those that it has started, as mpirun does ranks."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [pid, *(q for child in f.read().split() for q in family(child))]
    except OSError:
        return [pid]


def peak_until_end(run):
    """Waits for a subprocess.Popen; its peak in bytes, or the largest rank's."""
    peak = 0
    while run.poll() is None:
        peak = max(peak, *map(resident, family(run.pid)))
        time.sleep(0.02)
    return peak
