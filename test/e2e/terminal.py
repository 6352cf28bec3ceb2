"""terminal.py WIDTH COMMAND...: runs the command on a terminal of that width; says how its line was redrawn, then prints what stays."""
import fcntl
import os
import pty
import re
import struct
import sys
import termios

width = int(sys.argv[1])
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", 24, width, 0, 0))
    os.environ["TERM"] = "xterm"
    os.execvp(sys.argv[2], sys.argv[2:])
text = b""
while True:
    try:
        text += os.read(fd, 65536)
    except OSError:  # the other end is closed
        break
lines = text.decode().replace("\r\n", "\n").split("\n")
drawn = [d.removesuffix("\x1b[K") for line in lines for d in line.split("\r")[1:]]
longest = max(map(len, drawn), default=0)
print(f"redrawn, longest line at most {width - 1}" if 0 < longest < width else f"longest line {longest}")
print("\n".join(re.sub("\x1b\\[K", "", line.split("\r")[-1]) for line in lines))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
