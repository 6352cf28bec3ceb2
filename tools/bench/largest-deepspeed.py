#!/usr/bin/env python3
"""Trains a GPT-2 of so many blocks with DeepSpeed, stage 3, parameters and optimizer state on a disk, bf16, AdamW, blocks recomputed; a step's
buffers as small as they may be. Prints one line of JSON. largest.py runs it, under a limit of memory.

largest-deepspeed.py --depth 12 --nvme DIR [--width 1024] [--tokens 256] [--words 8192] [--steps 2]"""
import argparse
import json
import logging
import os
import resource
import time

os.environ.update(DS_ACCELERATOR="cpu", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29513")
import torch
# What zero.Init finds loaded it leaves alone; a module that is first loaded inside of it would be taken for a part of the model.
import torch._dynamo  # noqa: F401
import deepspeed

from gpt import Gpt, count


def config(a, largest):
    """Buffers for the largest parameter; nothing stays in memory that is not being used."""
    zero = {"stage": 3, "overlap_comm": False, "contiguous_gradients": True, "sub_group_size": largest, "reduce_bucket_size": largest,
            "stage3_max_live_parameters": 1, "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0,
            "stage3_param_persistence_threshold": 10 * a.width,
            "offload_param": {"device": "nvme", "nvme_path": a.nvme, "pin_memory": False, "buffer_count": 8, "buffer_size": largest,
                              "max_in_cpu": 0},
            "offload_optimizer": {"device": "nvme", "nvme_path": a.nvme, "pin_memory": False, "buffer_count": 4}}
    return {"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.0, "bf16": {"enabled": True}, "steps_per_print": 10**9,
            "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "weight_decay": 0.01}}, "zero_optimization": zero,
            "aio": {"block_size": 1048576, "queue_depth": 16, "intra_op_parallelism": 1, "single_submit": False, "overlap_events": True}}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--depth", type=int, required=True); p.add_argument("--nvme", required=True)
    p.add_argument("--width", type=int, default=1024); p.add_argument("--tokens", type=int, default=256)
    p.add_argument("--words", type=int, default=8192); p.add_argument("--steps", type=int, default=2)
    a = p.parse_args()
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    torch.manual_seed(0)
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    c = config(a, max(4 * a.width * a.width, a.words * a.width))
    with deepspeed.zero.Init(config_dict_or_path=c):
        model = Gpt(a.depth, a.width, a.words, a.tokens, recompute=True)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=c)
    ids = torch.randint(a.words, (1, a.tokens + 1), generator=torch.Generator().manual_seed(1))
    losses, times = [], []
    for _ in range(a.steps):
        begin = time.perf_counter()
        loss = engine(ids[:, :-1], ids[:, 1:])
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
        times.append(time.perf_counter() - begin)
    print(json.dumps({"parameters": count(a.depth, a.width, a.words, a.tokens), "losses": losses, "times": times,
                      "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}), flush=True)


main()
