#!/usr/bin/env python3
"""Draws budgets and flags, and looks at what the search over plans makes of them:

- an axis that is left open (--offload-*, --checkpoint-activations, --accum-order, --tile) never gives a worse predicted time than the
  same axis fixed at a value that fits;
- a larger budget never gives a worse predicted time;
- the least that a refusal prints compiles, and a MiB less is refused.

    plans.py "MODEL.onnx FLAGS"... [--zcc build/bin/zcc] [--draws 20] [--seed 0] [--budgets 3] [--no-ranks] [--verbose]

Prints a line for each broken promise with the two commands, and how many comparisons there were; exits with 1 where one is broken."""
import argparse, random, re, shlex, sys

from planned import planned

MIB = 1 << 20
VALUES = {
    "--offload-optimizer": ["none", "nvme"],
    "--offload-param": ["none", "nvme"],
    "--offload-activations": ["none", "nvme"],
    "--checkpoint-activations": ["none", "1", "2"],
    "--accum-order": ["batches", "blocks"],
    "--tile": ["none"],
}


class Search:
    """Plans of one model, each made once."""

    def __init__(self, a, model, fixed):
        self.a, self.command, self.known = a, [a.zcc, *shlex.split(model), *fixed], {}

    def plan(self, budget, axes=()):
        """The predicted nanoseconds, or None, and the refusal."""
        flags = (f"--memory={budget}", *(f"{k}={v}" for k, v in sorted(axes)))
        if flags not in self.known:
            plan, why = planned([*self.command, *flags])
            self.known[flags] = plan and round(plan["predicted_step_s"] * 1e9), why
            if self.a.verbose:
                print("  ", *flags, self.known[flags][0], flush=True)
        return self.known[flags]

    def text(self, budget, axes=()):
        return shlex.join([*self.command, f"--memory={budget}", *(f"{k}={v}" for k, v in sorted(axes))])


def needs(a, model, fixed):
    """Bytes that no plan avoids, and those of the plain program."""
    command = [a.zcc, *shlex.split(model), *[f for f in fixed if not f.startswith("--nvme")]]
    p, why = planned(command)
    if not p:
        sys.exit(why)
    least = p["library_bytes"] + p["save_bytes"]
    return least, p["spaces"]["device"]["arena_bytes"] + least


def draw(r, ranks):
    flags = [f"--optimizer={r.choice(['adamw', 'adamw', 'sgd', 'lamb'])}", f"--dtype={r.choice(['fp32', 'bf16'])}"]
    flags += r.choice([[], ["--clip-grad-norm=1"]])
    accum = r.choice([1, 1, 4])
    flags += [f"--grad-accum={accum}"] if accum > 1 else []
    flags += r.choice([[], [], ["--ranks=2", "--zero=3"], ["--ranks=2", "--zero=1"]]) if ranks else []
    axes = [k for k in VALUES if accum > 1 or k != "--accum-order"]
    if r.random() < 0.75:
        flags += ["--nvme=8GiB"]
    else:
        axes = [k for k in axes if not k.startswith("--offload")]
    if "--zero=1" in flags:
        axes = [k for k in axes if k != "--offload-param"]
    return flags, axes


class Check:
    def __init__(self):
        self.compared, self.broken, self.worst = 0, 0, 0

    def __call__(self, holds, what):
        self.compared += 1
        if not holds:
            self.broken += 1
            print("broken:", what, flush=True)

    def times(self, s, better, worse, what):
        """`better` and `worse` are budgets with axes; the first may not take longer."""
        x, y = s.plan(*better)[0], s.plan(*worse)[0]
        if y is None:
            return
        self(x is not None and x <= y, f"{what}: {x} ns: {s.text(*better)}\n        {y} ns: {s.text(*worse)}")
        if x is not None:
            self.worst = max(self.worst, x / y - 1)


def check_least(check, s, axes):
    """Within next to nothing: what is printed fits, and a MiB less does not."""
    _, why = s.plan(MIB, axes)
    printed = re.search(r"needs --memory=(\d+)MiB", why)
    if not printed:
        return
    least = int(printed[1]) * MIB
    check(s.plan(least, axes)[0] is not None, f"the least that is printed is refused: {s.text(least, axes)}")
    check(s.plan(least - MIB, axes)[0] is None, f"less than the least fits: {s.text(least - MIB, axes)}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+"); p.add_argument("--zcc", default="build/bin/zcc"); p.add_argument("--draws", type=int, default=20)
    p.add_argument("--seed", type=int, default=0); p.add_argument("--budgets", type=int, default=3)
    p.add_argument("--no-ranks", action="store_true"); p.add_argument("--verbose", action="store_true")
    a = p.parse_args()
    check = Check()
    for i in range(a.draws):
        r = random.Random(f"{a.seed} {i}")
        model = a.models[i % len(a.models)]
        fixed, axes = draw(r, not a.no_ranks)
        s = Search(a, model, fixed)
        least, most = needs(a, model, fixed)
        given = tuple((k, r.choice(VALUES[k])) for k in axes if r.random() < 0.2)
        axes = [k for k in axes if k not in dict(given)]
        budgets = sorted(least + int((most - least) * r.uniform(0.15, 1)) for _ in range(a.budgets))
        if a.verbose:
            print(i, model, *fixed, *given, budgets, flush=True)
        for less, more in zip(budgets, budgets[1:]):
            check.times(s, (more, given), (less, given), "a larger budget is slower")
        for b in budgets:
            for k in axes:
                for v in VALUES[k]:
                    check.times(s, (b, given), (b, (*given, (k, v))), f"left open it is slower than {k}={v}")
        check_least(check, s, given)
    print(f"{check.compared} comparisons, {check.broken} broken, the worst by {100 * check.worst:.2f} %")
    sys.exit(check.broken > 0)


if __name__ == "__main__":
    main()
