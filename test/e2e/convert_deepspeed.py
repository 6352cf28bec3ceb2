#!/usr/bin/env python3
"""DeepSpeed trains a small GPT-2 for 10 steps and saves after 5; what zcc-ckpt convert makes of that goes on with DeepSpeed's losses.

convert_deepspeed.py ZCC MODULE FOLDER [--stages=3,1] [--mini] [--bf16]
MODULE is tools/python; --mini: 13.9 M parameters. Needs deepspeed, torch, transformers, onnx, onnxscript"""
import argparse, json, os, subprocess, sys, warnings
import numpy as np
import torch
import torch.nn.functional as F

p = argparse.ArgumentParser()
p.add_argument("zcc")
p.add_argument("module")
p.add_argument("folder")
p.add_argument("--stages", default="3,1")
p.add_argument("--mini", action="store_true")
p.add_argument("--bf16", action="store_true")
p.add_argument("--train", type=int, help="(its own child: trains at this stage)")
a = p.parse_args()
sys.path.insert(0, os.path.abspath(a.module))
os.chdir(a.folder)
warnings.filterwarnings("ignore")
BATCH, LENGTH, WORDS, WIDTH, LAYERS, HEADS = (8, 256, 8192, 384, 6, 6) if a.mini else (2, 12, 64, 32, 2, 4)
BATCHES, STEPS, SAVED, LR, DECAY = 4, 10, 5, 3e-4 if a.mini else 1e-3, 0.01


def build():
    import transformers as tf
    torch.manual_seed(0)
    return tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=WORDS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=LENGTH,
                                            bos_token_id=0, eos_token_id=0, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                                            attn_implementation="eager", use_cache=False)).train()


def loss_of(output, labels):
    return F.cross_entropy(output.logits.reshape(-1, WORDS), labels.reshape(-1))


def train(stage):
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1")
    import deepspeed, socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        os.environ["MASTER_PORT"] = str(s.getsockname()[1])
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    model = build()
    config = dict(train_micro_batch_size_per_gpu=BATCH, gradient_clipping=0.0, zero_optimization=dict(stage=stage),
                  optimizer=dict(type="AdamW", params=dict(lr=LR, weight_decay=DECAY)), zero_allow_untested_optimizer=True,
                  bf16=dict(enabled=a.bf16))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    data, losses = np.load("data.npz"), []
    for step in range(STEPS):
        rows = slice(step % BATCHES * BATCH, (step % BATCHES + 1) * BATCH)
        loss = loss_of(engine(input_ids=torch.from_numpy(data["input_ids"][rows])), torch.from_numpy(data["labels"][rows]))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
        if step + 1 == SAVED:
            engine.save_checkpoint(f"ds{stage}")
    json.dump(losses, open(f"ds{stage}.json", "w"))
    os._exit(0)  # its threads outlive it


def run(*command, status=0):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == status, (command, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout + done.stderr


def main():
    import zcc
    model = build()
    g = np.random.default_rng(1)
    tokens = g.integers(4, WORDS, (2, BATCHES * BATCH, LENGTH))
    np.savez("data.npz", input_ids=tokens[0], labels=tokens[1])
    zcc.export(model, dict(input_ids=torch.from_numpy(tokens[0][:BATCH]), labels=torch.from_numpy(tokens[1][:BATCH])), loss=loss_of,
               path="gpt.onnx", zcc=a.zcc)
    optimizer = ["--optimizer=adamw", f"--lr={LR}", f"--weight-decay={DECAY}", *(["--dtype=bf16"] if a.bf16 else [])]
    run(a.zcc, "gpt.onnx", *optimizer, "-o", "gpt")
    for stage in a.stages.split(","):
        run(sys.executable, os.path.abspath(__file__), a.zcc, ".", ".", f"--train={stage}",
            *(["--mini"] if a.mini else []), *(["--bf16"] if a.bf16 else []))
        want = json.load(open(f"ds{stage}.json"))
        tool = os.path.join(os.path.dirname(os.path.abspath(a.zcc)), "zcc-ckpt")
        said = run(tool, "convert", f"ds{stage}", "gpt", f"run{stage}", status=1)
        line = next(l for l in said.splitlines() if "ds_to_universal" in l).split()
        assert line[:3] == ["python", "-m", "deepspeed.checkpoint.ds_to_universal"], said
        run(sys.executable, *line[1:])
        print(run(tool, "convert", f"ds{stage}/global_step{SAVED}-universal", "gpt", f"run{stage}"), end="")
        run("./gpt", "--data=data.npz", f"--steps={STEPS}", f"--resume=run{stage}", "--log=log.jsonl")
        got = [json.loads(l)["loss"] for l in open("log.jsonl")]
        assert len(got) == STEPS - SAVED, got
        worst = max(abs(x - y) / abs(y) for x, y in zip(got, want[SAVED:]))
        assert worst <= (1e-2 if a.bf16 else 1e-4), (got, want)  # PyTorch's loss in bf16 has three digits
        if a.mini:
            print(f"stage {stage}: steps {SAVED + 1} to {STEPS} differ by {worst:.2g} at most")
        print(f"stage {stage} goes on as DeepSpeed does")


if a.train:
    train(a.train)
main()
