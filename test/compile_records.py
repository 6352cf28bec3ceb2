"""What compiles the sources of a build: records of its compile_commands.json, where several files may be compiled as one unit (ZCC_UNITY)."""
import json
import os
import re


def sourcesOf(file):
    """The sources that are compiled with `file`: what a unit includes, else itself."""
    if os.path.basename(os.path.dirname(file)) != "Unity":
        return [file]
    return re.findall(r'^#include "(.*)"$', open(file).read(), re.M)


def records(build):
    """Of each source, by its real path, the record of what is compiled: `file` in it is the source's unit, or the source."""
    found = {}
    for c in json.load(open(os.path.join(build, "compile_commands.json"))):
        c["file"] = os.path.join(c["directory"], c["file"])
        found |= {os.path.realpath(s): c for s in sourcesOf(c["file"])}
    return found
