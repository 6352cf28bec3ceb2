"""budgets.py ZCC MODEL.onnx DATA.npz [DIR]: trains within budgets from what states and libraries take to what all takes; with a
folder on a disk from what libraries take, with the disk.

No plan exceeds its budget, a larger budget never means a slower step, what cannot fit is refused with what is short, and the bits
are those of the plain run.
"""
import json, re, subprocess, sys

zcc, model, data = sys.argv[1:4]
disk = sys.argv[4] if len(sys.argv) > 4 else None
also = ["--nvme=1GiB"] if disk else []


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


def plan(*flags):
    done = run(zcc, model, "--plan=json", *flags)
    return (json.loads(done.stdout) if done.returncode == 0 else None), done.stderr


def need(p):
    return p["spaces"]["device"]["arena_bytes"] + p["library_bytes"] + p["save_bytes"]


def train(*flags):
    done = run(zcc, model, "--threads=1", "-o", "p", *flags)
    assert done.returncode == 0, done.stderr
    path = [f"--nvme-path={disk}"] if disk else []
    done = run("./p", f"--data={data}", "--steps=4", "--log=p.jsonl", "--export=p.safetensors", "--quiet", *path)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in open("p.jsonl")]
    return [r["loss"] for r in rows], open("p.safetensors", "rb").read()


plain, _ = plan()
floor = plain["library_bytes"] + plain["save_bytes"] + (0 if disk else plain["spaces"]["device"]["model_state_bytes"])
count = 12 if disk else 20
before, fitting, shorts, seen = None, [], 0, set()
for i in range(1, count + 1):
    budget = floor + (need(plain) - floor) * i // count
    p, why = plan(f"--memory={budget}", *also)
    if p is None:
        assert re.search(r"a rank needs .*, --memory is .* too little", why) and why.count(" of it: ") == 10, why
        assert not fitting, "a larger budget is refused"
        shorts += 1
        continue
    assert need(p) <= budget, (need(p), budget)
    assert before is None or p["predicted_step_s"] <= before, (budget, p["predicted_step_s"], before)
    before = p["predicted_step_s"]
    if need(p) not in seen:
        seen.add(need(p))
        fitting.append(budget)
assert p["predicted_step_s"] <= plain["predicted_step_s"], "with enough memory nothing gets slower"
assert p["search"]["choice"]["step_s"] >= p["search"]["bound"]["step_s"]
expected = train()
for budget in fitting[:1] + fitting[len(fitting) // 2:][:1]:
    assert train(f"--memory={budget}", *also) == expected, f"other bits within {budget} bytes"
print(f"{shorts} refused, {len(seen)} plans")
