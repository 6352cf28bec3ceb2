#!/usr/bin/env python3
"""Checks what a machine can of the tree's style; prints what is wrong and ends with 1. check_style.py ROOT [CLANG-FORMAT]"""
import os
import re
import shutil
import subprocess
import sys

FILE_LINES = 600
FUNCTION_LINES = 80
FOLDERS = ["codegen", "frontend", "ir", "passes", "runtime", "test", "tools"]
TEST_SUFFIXES = (".zir", ".test", ".onnxtxt")
# What stands in capitals before a colon and is no directive of FileCheck.
LIT_WORDS = {"RUN", "REQUIRES", "UNSUPPORTED", "XFAIL", "DEFINE", "REDEFINE", "END", "ALLOW_RETRIES"}
RULE = re.compile(r"V\d$")  # of the verifier
SUFFIX = r"(?:-NEXT|-NOT|-SAME|-DAG|-LABEL|-EMPTY|-COUNT-\d+)?"
# Near misses of CHECK and of the suffixes, also with prefixes of other names.
MISSPELT = re.compile(r"^(?:CHEC|CHEK|CHCK|CEHCK|CHECKS)\b|-(?:NXT|NEX|NEXTS|NTO|NOTE|SMAE|SAM|LABLE|LABEL?S|EMTPY|DGA)$")
problems = []


def report(path, line, text):
    problems.append(f"{path}:{line}: {text}")


def tree(root):
    """(path from the root, its lines) of every file of text."""
    for folder in FOLDERS:
        for at, dirs, files in os.walk(os.path.join(root, folder)):
            dirs[:] = sorted(d for d in dirs if d not in ("__pycache__", "models") and not d.startswith("build"))
            for name in sorted(files):
                path = os.path.join(at, name)
                with open(path, "rb") as f:
                    data = f.read()
                if b"\0" not in data:
                    yield os.path.relpath(path, root), data.decode(errors="replace").split("\n")


# ---- sources


def check_head(path, lines):
    first = lines[1] if lines[0].startswith("#!") and len(lines) > 1 else lines[0]
    if not re.match(r'(//|/\*|#|"""|r""") ?.*\w+\W+\w+\W+\w+', first):
        report(path, 1, "begins without a sentence on what it is for")


def check_mode(root, path, lines):
    if path.startswith("tools") and lines[0].startswith("#!") and not os.access(os.path.join(root, path), os.X_OK):
        report(path, 1, "names its interpreter and is not executable")


def check_lengths(path, lines):
    if len(lines) > FILE_LINES + 1:
        report(path, len(lines), f"more than {FILE_LINES} lines")
    # As clang-format lays functions out, of files and of classes: a line that opens one, and the brace that closes it in the
    # same column.
    opens = re.compile(r"^((?:  )?)(?!if|for|while|switch|do\b|else|namespace|struct|class|enum)[A-Za-z_][^=]*\)[\w >:*&-]* {$")
    begin, indent = None, ""
    for number, line in enumerate(lines, 1):
        if begin is None:
            if m := opens.match(line):
                begin, indent = number, m[1]
        elif line.startswith(indent + "}"):
            if number - begin + 1 > FUNCTION_LINES:
                report(path, begin, f"a function of {number - begin + 1} lines; at most {FUNCTION_LINES}")
            begin = None


def camel(name):
    first, *rest = name.split("-")
    return first + "".join(word.capitalize() for word in rest)


def check_passes(root, files):
    """insert-gathers = insertGathers = passes/*/InsertGathers.cpp = test/passes/insert-gathers*.zir"""
    with open(os.path.join(root, "passes/Passes.def")) as f:
        rows = re.findall(r'ZCC_PASS\(\s*"([^"]+)",\s*(\w+)', f.read())
    for name, function in rows:
        if camel(name) != function:
            report("passes/Passes.def", 1, f"pass '{name}' is the function '{function}', not '{camel(name)}'")
        source = function[0].upper() + function[1:] + ".cpp"
        if not any(re.fullmatch(rf"passes/\w+/{source}", p) for p in files):
            report("passes/Passes.def", 1, f"pass '{name}' has no {source}")
        if not any(p.startswith(f"test/passes/{name}") for p in files):
            report("passes/Passes.def", 1, f"pass '{name}' has no test/passes/{name}.zir")


# ---- tests


def check_directives(path, lines):
    text = "\n".join(lines)
    prefixes = {p for list in re.findall(r"--check-prefix(?:es)?[= ](\S+)", text) for p in list.split(",")}
    if re.search(r"FileCheck(?![^\n|&]*--check-prefix)", text):
        prefixes.add("CHECK")
    known = re.compile("(?:" + "|".join(map(re.escape, sorted(prefixes, key=len, reverse=True)) or ["$^"]) + ")" + SUFFIX + "$")
    for number, line in enumerate(lines, 1):
        m = re.match(r"\s*(?://|#)?\s*([A-Z][A-Z0-9_-]*[A-Z0-9])(\{LITERAL\})?(:|\s|$)", line)
        if not m:
            continue
        word, isDirective = m[1], m[3] == ":"
        if isDirective and word not in LIT_WORDS and not known.match(word) and not RULE.match(word):
            report(path, number, f"no RUN line checks '{word}:'")
        elif not isDirective and (known.match(word) or word in LIT_WORDS) and word != "END":
            report(path, number, f"'{word}' without a colon")
        elif MISSPELT.search(word):
            report(path, number, f"'{word}' is misspelt")


def check_runs(path, lines):
    runs, joined = [], ""
    for number, line in enumerate(lines, 1):
        if m := re.match(r"\s*(?://|#)?\s*(?:RUN|DEFINE):(.*)", line):
            joined += m[1].strip()
            if joined.endswith("\\"):
                joined = joined[:-1]
                continue
            runs.append((number, joined))
            joined = ""
    checks = re.compile(r"\b(FileCheck|diff|cmp|not|test|grep)\b|--verify-|%python|%if|\.sh\b|\.py\b")
    if runs and not any(checks.search(command) for _, command in runs):
        report(path, runs[0][0], "no RUN line checks anything")
    for number, command in runs:
        # Of a tool that prints: what is printed must go somewhere.
        if re.match(r"zcc-opt\b", command) and not checks.search(command) and not re.search(r"[|>]| -o |--outputs=", command):
            report(path, number, "a RUN line whose output nothing checks")


# ---- all


def check_format(root, files, clang_format):
    sources = [p for p in files if p.endswith((".cpp", ".h"))]
    done = subprocess.run([clang_format, "--dry-run", "--Werror", *sources], cwd=root, capture_output=True, text=True)
    for line in done.stderr.splitlines():
        if m := re.match(r"(\S+?):(\d+):\d+: (?:error|warning): ", line):
            report(m[1], m[2], f"not as clang-format leaves it: {clang_format} -i {m[1]}")


def main(root, clang_format="clang-format-19"):
    files = dict(tree(root))
    for path, lines in files.items():
        if path.endswith((".cpp", ".h", ".def", ".py", ".sh")) or (path.startswith("tools/") and "." not in path):
            check_head(path, lines)
            check_mode(root, path, lines)
        if path.endswith((".cpp", ".h")):
            check_lengths(path, lines)
        if path.endswith(TEST_SUFFIXES) and "/Inputs/" not in path:
            check_directives(path, lines)
            check_runs(path, lines)
    check_passes(root, files)
    if shutil.which(clang_format):
        check_format(root, files, clang_format)
    else:
        print(f"note: there is no {clang_format}, so the formatting is not checked")
    print(*sorted(set(problems)), sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
