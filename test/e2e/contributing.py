"""contributing.py BUILD SOURCE FOLDER: applies the worked changes of CONTRIBUTING.md to a copy of the tree, FOLDER/tree, and makes the
tools of FOLDER/bin of it.

A block names its file in its first line, `+++ PATH`; lines with a blank in front are found there, once and in a row, and lines with
`+` come behind the ones before them. A block of `+` lines only is a new file. Each section's heading says how many files it touches.

Only what has changed is compiled: files that were touched, and sources that include a list (.def) that was. What includes a list by way
of a header gets further declarations from it, which change nothing; rows of options are fields of a record, so what sees that is compiled.
The rest comes from BUILD."""
import os
import re
import shlex
import shutil
import subprocess
import sys
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from compile_records import records, sourcesOf

build, source, out = (os.path.realpath(p) for p in sys.argv[1:])
folder = os.path.join(out, "tree")
shutil.rmtree(out, ignore_errors=True)
os.makedirs(folder)
for part in ("CMakeLists.txt", "frontend", "ir", "passes", "codegen", "runtime", "tools", "test"):
    path = os.path.join(source, part)
    if os.path.isdir(path):
        shutil.copytree(path, os.path.join(folder, part), ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(path, folder)


def apply(path, lines):
    path = os.path.join(folder, path)
    kept = [l[1:] for l in lines if l.startswith(" ")]
    text = open(path).read().splitlines() if kept else []
    places = [i for i in range(len(text) + 1) if text[i:i + len(kept)] == kept] if kept else [0]
    if len(places) != 1 or (not kept and os.path.exists(path)):
        sys.exit(f"CONTRIBUTING.md: the lines of the block for {path} are found {len(places)} times")
    text[places[0]:places[0] + len(kept)] = [l[1:] for l in lines]
    with open(path, "w") as f:
        f.write("\n".join(text) + "\n")


touched = set()
sections = re.split(r"^## ", open(os.path.join(source, "CONTRIBUTING.md")).read(), flags=re.M)[1:]
for section in sections:
    title, want = re.match(r"(.*): (\d+) files", section).groups()
    blocks = re.findall(r"^```diff\n\+\+\+ (\S+)\n(.*?)^```", section, re.M | re.S)
    for path, block in blocks:
        apply(path, [l or " " for l in block.splitlines()])
    touched |= {path for path, _ in blocks}
    count = len({path for path, _ in blocks})
    if count != int(want):
        sys.exit(f"CONTRIBUTING.md: {title} touches {count} files, not {want}")
    print(f"{title}: {count}")


# ---- building

def includes(path, lists):
    text = open(path).read() if os.path.exists(path) else ""
    return any(f'#include "{l}"' in text for l in lists)


def run(command, where):
    done = subprocess.run(command, cwd=where, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


commands = {os.path.relpath(path, source): c for path, c in records(build).items()}

def inTree(file, new):
    """The file of the changed tree; a unit is made anew beside its object, of the tree's sources."""
    if sourcesOf(file) == [file]:
        return os.path.join(folder, os.path.relpath(os.path.realpath(file), source))
    with open(new[:-len(".o")], "w") as f:
        f.writelines(f'#include "{os.path.join(folder, os.path.relpath(os.path.realpath(s), source))}"\n' for s in sourcesOf(file))
    return f.name


lists = [t for t in touched if t.endswith(".def")]
sources = {t for t in touched if t.endswith(".cpp")}
sources |= {p for p in commands if includes(os.path.join(source, p), lists)} | {"codegen/Link.cpp"}
shutil.copytree(os.path.join(build, "lib"), os.path.join(out, "lib"))
os.mkdir(os.path.join(out, "bin"))
objects = {}  # that are in no library: the old, the new
if "passes/options/Options.def" in touched:
    depends = run(["ninja", "-C", build, "-t", "deps"], out)  # OBJECT: .., then what it includes
    seen = {o.split(":")[0] for o in depends.split("\n\n") if "tools/ZccOptions.h" in o}
    sources |= {p for p, c in commands.items() if re.search(r" -o (\S+)", c["command"])[1] in seen and p.startswith("tools/")}
jobs = {}  # what is compiled: whose record to take
for path in sources:
    c = commands.get(path)
    jobs[c["file"] if c else os.path.join(source, path)] = c or next(c for p, c in sorted(commands.items()) if os.path.dirname(p) == os.path.dirname(path))
for file, like in sorted(jobs.items()):
    words = shlex.split(like["command"])
    at = words.index("-o") + 1
    old, target = words[at], re.search(r"(zcc[^/]*)\.dir/", words[at]).group(1)
    new = os.path.join(out, "objects", target, os.path.basename(file) + ".o")
    os.makedirs(os.path.dirname(new), exist_ok=True)
    words[at], words[-1] = new, inTree(file, new)
    words = [w.replace(os.path.join(build, "lib/"), os.path.join(out, "lib/")) for w in words]  # programs link the runtime
    words = ["-I" + folder if w.startswith("-I") and os.path.realpath(w[2:]) == source else "-O0" if w == "-O3" else w for w in words]
    run(words, like["directory"])
    if f"lib{target}.a" not in os.listdir(os.path.join(out, "lib")):
        objects[os.path.relpath(os.path.join(like["directory"], old), build)] = new
    else:
        run(["ar", "r", os.path.join(out, "lib", f"lib{target}.a"), new], out)
for tool in ("zcc-unit", "zcc-opt", "zcc"):
    words = shlex.split(run(["ninja", "-C", build, "-t", "commands", "bin/" + tool], out).splitlines()[-1])
    words = [objects.get(w, os.path.join(out, w) if w.startswith("lib/") else w) for w in words if w not in (":", "&&")]
    words[words.index("-o") + 1] = os.path.join(out, "bin", tool)
    run(words, build)
