"""least.py ZCC MODEL.onnx: what a refusal calls the least is no more than with any number of tiles, and is enough."""
import re, subprocess, sys

zcc, model = sys.argv[1:]


def least(*flags):
    done = subprocess.run([zcc, model, "--plan", "--memory=1MiB", *flags], capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    return int(re.search(r"the least that was found needs --memory=(\d+)MiB", done.stderr)[1])


by_tiles = {count: least(f"--tile={count}") for count in ("none", "8", "64")}
named = least()
assert named == min(by_tiles.values()), (named, by_tiles)
subprocess.run([zcc, model, "--plan", f"--memory={named}MiB"], check=True, capture_output=True)
print(f"{named} MiB of", by_tiles)
