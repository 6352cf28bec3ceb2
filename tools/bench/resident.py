"""The memory that a process takes."""
import time


def resident(pid):
    """The peak in bytes of what the process has become: wait4() would count this one, from which it was forked."""
    try:
        with open(f"/proc/{pid}/status") as f:
            return next((int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM")), 0)
    except OSError:
        return 0


def peak_until_end(run):
    """Waits for a subprocess.Popen; its peak in bytes."""
    peak = 0
    while run.poll() is None:
        peak = max(peak, resident(run.pid))
        time.sleep(0.02)
    return peak
