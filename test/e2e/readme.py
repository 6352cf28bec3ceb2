"""readme.py README ZCC MODELS: runs every command of the README's sh blocks in this folder, on the small GPT of the
tests. Those that build and test the project itself are what runs this, or take long: they must be there."""
import json
import os
import re
import shutil
import subprocess
import sys

readme, zcc, models = sys.argv[1:]
tools = os.path.dirname(os.path.abspath(zcc))
root = os.path.dirname(os.path.abspath(readme))
SELF = ("tools/quickstart", "tools/run-tests", "tools/run-sanitizers", "test/random/graphs.py", "test/fuzz/run.sh")


def run(command):
    env = dict(os.environ, PATH=tools + ":" + os.environ["PATH"])
    done = subprocess.run(command, shell=True, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"README: '{command}' ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


shutil.copy(f"{models}/gpt/noopt.onnx", "gpt.onnx")
shutil.copy(f"{models}/gpt/data.npz", "train.npz")
run("zcc gpt.onnx --stop-after=fold-constants -o in.zir")
json.dump({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2},
           "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}, open("ds_config.json", "w"))
run("zcc gpt.onnx -o first && mkdir -p hub/gpt2 && ./first --data=train.npz --steps=0 --export=hub/gpt2/model.safetensors")
shutil.copy("hub/gpt2/model.safetensors", "other.safetensors")
count = 0
for block in re.findall(r"```sh\n(.*?)```", open(readme).read(), re.S):
    for line in block.splitlines():
        command = re.sub(r"\s+#.*", "", line).strip()
        if command.startswith(SELF):
            assert os.access(os.path.join(root, command.split()[0]), os.X_OK), command
        elif command:
            run(command)
            count += 1
print(count, "commands")
