#!/usr/bin/env python3
"""The workloads of the benchmarks: their exported files, their data, and PyTorch running them.

    workloads.py NAME --onnx M.onnx --data D.npz [--ranks N] [--batch N]     # the model with its loss, and samples as zcc reads them
    workloads.py NAME --mode eager|compile|max-autotune|ddp|fsdp2|ds1|ds2|ds3 [--ranks N] [--dtype fp32|bf16] [--threads N] [--steps 8]

The second prints one line of JSON. Run by a Python that has PyTorch, torchvision, transformers, timm and onnx, and deepspeed for its modes. Weights are drawn
from the configurations with seed 0, nothing is dropped out, the data (four batches, in turn) are random. AdamW, lr 3e-4, weight decay 0.01. The
global batch is the same for all numbers of ranks; --onnx writes a rank's part. bf16 is autocast over fp32 weights, of FSDP2 its mixed precision,
of DeepSpeed its bf16 engine.
"""
import argparse, collections, json, os, statistics, subprocess, sys, time, warnings
import numpy as np

ADAMW = dict(lr=3e-4, weight_decay=0.01)
BATCHES = 4
WARM = 2  # steps not counted

# kind: vector, image, causal, masked, pair (encoder and decoder), series (time first). size: length or side. values: classes or vocabulary.
Workload = collections.namedtuple("Workload", "kind batch size values")
WORKLOADS = {
    "mlp": Workload("vector", 64, 784, 10),
    "gpt2-mini": Workload("causal", 8, 256, 8192),
    "gpt2-124m": Workload("causal", 2, 256, 50257),
    "llama-60m": Workload("causal", 4, 256, 32000),
    "bert-mini": Workload("masked", 16, 128, 8192),
    "vit-tiny": Workload("image", 8, 224, 1000),
    "resnet18": Workload("image", 32, 64, 10),
    "resnet50": Workload("image", 4, 224, 1000),
    "mobilenet_v3_large": Workload("image", 8, 160, 1000),
    "convnext_tiny": Workload("image", 8, 160, 1000),
    "t5-small": Workload("pair", 4, 128, 32128),
    "lstm": Workload("series", 20, 35, 10000),
    "gru": Workload("series", 20, 35, 10000),
}


def data(name):
    """Inputs and labels, [BATCHES, ...] each."""
    w, r = WORKLOADS[name], np.random.default_rng(1)
    if w.kind == "causal":
        t = r.integers(0, w.values, (BATCHES, w.batch, w.size + 1))
        return t[..., :-1].copy(), t[..., 1:].copy()
    if w.kind == "series":
        t = r.integers(0, w.values, (BATCHES, w.size + 1, w.batch))
        return t[:, :-1].copy(), t[:, 1:].copy()
    if w.kind in ("masked", "pair"):
        t = r.integers(5, w.values, (2, BATCHES, w.batch, w.size))
        if w.kind == "pair":
            return t[0], t[1]
        mask = r.random(t[0].shape) < 0.15
        return np.where(mask, 4, t[0]), np.where(mask, t[0], -100)
    shape = (w.size,) if w.kind == "vector" else (3, w.size, w.size)
    return r.standard_normal((BATCHES, w.batch, *shape), dtype=np.float32), r.integers(0, w.values, (BATCHES, w.batch))


def network(name):
    w = WORKLOADS[name]
    import torch.nn as nn
    if name == "mlp":
        return nn.Sequential(nn.Linear(w.size, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, w.values))
    if w.kind == "series":
        return nn.ModuleList([nn.Embedding(w.values, 650), getattr(nn, name.upper())(650, 650, 2), nn.Linear(650, w.values)])
    if w.kind == "image":
        import timm, torchvision.models as vision
        if name == "vit-tiny":
            return timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=w.values)
        still = dict(mobilenet_v3_large=dict(dropout=0.0), convnext_tiny=dict(stochastic_depth_prob=0.0))
        return getattr(vision, name)(num_classes=w.values, **still.get(name, {}))
    import transformers as t
    if name == "t5-small":
        return t.T5ForConditionalGeneration(t.T5Config(dropout_rate=0.0, d_ff=2048, decoder_start_token_id=0))
    if name == "bert-mini":
        return t.BertForMaskedLM(t.BertConfig(
            num_hidden_layers=4, hidden_size=256, num_attention_heads=4, intermediate_size=1024, vocab_size=w.values,
            max_position_embeddings=w.size, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    if name == "llama-60m":
        return t.LlamaForCausalLM(t.LlamaConfig(
            num_hidden_layers=8, hidden_size=512, num_attention_heads=8, num_key_value_heads=4, intermediate_size=1408,
            vocab_size=w.values, max_position_embeddings=w.size))
    small = dict(n_layer=6, n_embd=384, n_head=6, vocab_size=w.values, n_positions=w.size, bos_token_id=0, eos_token_id=0)
    return t.GPT2LMHeadModel(t.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **(small if name == "gpt2-mini" else {})))


def module(name):
    """A module of inputs and labels whose result is the mean loss."""
    import torch
    import torch.nn.functional as F
    kind = WORKLOADS[name].kind

    class WithLoss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network(name)

        def logits(self, x, y):
            if kind in ("vector", "image"):
                return self.net(x)
            if kind == "series":
                embed, recurrent, head = self.net
                return head(recurrent(embed(x))[0])
            if kind == "pair":  # the decoder sees the labels before
                return self.net(input_ids=x, decoder_input_ids=F.pad(y[:, :-1], (1, 0)), use_cache=False).logits
            if kind == "causal":  # the TorchScript exporter has no operator for the mask that is made otherwise
                return self.net(input_ids=x, attention_mask=torch.ones_like(x), use_cache=False).logits
            return self.net(input_ids=x).logits

        def forward(self, x, y):
            logits = self.logits(x, y).float()
            return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))

    torch.manual_seed(0)
    return WithLoss().train()


def tensors(name, rank=0, ranks=1):
    """The rank's part of each batch."""
    import torch
    part = lambda a: torch.from_numpy(np.array_split(a, ranks)[rank])
    return [(part(x), part(y)) for x, y in zip(*data(name))]


def export(name, path, ranks):
    import torch
    torch.onnx.export(module(name), tensors(name, 0, ranks)[0], path, dynamo=False, input_names=["in0", "in1"], output_names=["loss"],
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)


def save_data(name, path):
    """zcc takes samples: the batches of all, one behind the other."""
    np.savez(path, **{f"in{i}": a.reshape(-1, *a.shape[2:]) for i, a in enumerate(data(name))})


def resident():
    """The process' peak in MiB since the last `forget_peak`."""
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))


def forget_peak():
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")


def blocks(m):
    """The parts that FSDP shards on their own: the longest list of equal modules."""
    import torch.nn as nn
    lists = [l for l in m.modules() if isinstance(l, (nn.ModuleList, nn.Sequential)) and len({type(c) for c in l}) == 1]
    return max(lists, key=len, default=[])


def deepspeed_engine(m, name, stage, dtype, ranks):
    import deepspeed, logging
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    config = dict(train_micro_batch_size_per_gpu=WORKLOADS[name].batch // ranks, gradient_clipping=0.0, steps_per_print=10**9,
                  optimizer=dict(type="AdamW", params=ADAMW), zero_optimization=dict(stage=stage, overlap_comm=False),
                  zero_allow_untested_optimizer=True, bf16=dict(enabled=dtype == "bf16"))
    return deepspeed.initialize(model=m, model_parameters=list(m.parameters()), config=config)[0]


def fully_sharded(m, dtype, ranks):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if dtype == "bf16" else MixedPrecisionPolicy()
    for part in [*blocks(m), m]:
        fully_shard(part, mesh=init_device_mesh("cpu", (ranks,)), mp_policy=policy)
    return m


def stepper(name, mode, dtype, ranks):
    """A function of a batch: trains on it and returns the loss."""
    import torch
    m = module(name)
    if mode.startswith("ds"):
        engine = deepspeed_engine(m, name, int(mode[2]), dtype, ranks)
        half = lambda x: x.bfloat16() if dtype == "bf16" and x.is_floating_point() else x

        def step(x, y):
            loss = engine(half(x), y)
            engine.backward(loss)
            engine.step()
            return loss.item()
        return step
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
    wrap = dict(eager=lambda: m, compile=lambda: torch.compile(m), ddp=lambda: torch.nn.parallel.DistributedDataParallel(m),
                fsdp2=lambda: fully_sharded(m, dtype, ranks))
    wrap["max-autotune"] = lambda: torch.compile(m, mode="max-autotune")
    net = wrap[mode]()
    opt = torch.optim.AdamW(m.parameters(), fused=True, **ADAMW)

    def step(x, y):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16" and mode != "fsdp2"):
            loss = net(x, y)
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        return loss.item()
    return step


def train(name, mode, dtype, ranks, threads, steps):
    """What one run measures: seconds of each counted step, the ranks' mean losses of all, the largest resident peak while the counted ran."""
    import torch
    batches, step, times, losses = tensors(name, int(os.environ.get("RANK", 0)), ranks), stepper(name, mode, dtype, ranks), [], []
    torch.set_num_threads(threads)  # here, because packages that are imported for a model set it, too
    for i in range(WARM + steps):
        if i == WARM:
            forget_peak()
        if ranks > 1:
            torch.distributed.barrier()
        start = time.perf_counter()
        losses.append(step(*batches[i % BATCHES]))
        times.append(time.perf_counter() - start)
    everyone = [(losses, resident())]
    if ranks > 1:
        everyone = [None] * ranks
        torch.distributed.all_gather_object(everyone, (losses, resident()))
    return dict(times=times[WARM:], median=statistics.median(times[WARM:]), losses=[float(x) for x in np.mean([l for l, _ in everyone], axis=0)],
                mib=max(r for _, r in everyone))


def launch(ranks):
    """This very command once a rank, with torch's launcher."""
    env = dict(os.environ, OMP_NUM_THREADS="1", TORCH_CPP_LOG_LEVEL="ERROR", DS_ACCELERATOR="cpu")
    return subprocess.call([sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", os.path.abspath(__file__),
                            *sys.argv[1:]], env=env)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("name", choices=WORKLOADS)
    p.add_argument("--onnx"); p.add_argument("--data"); p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--batch", type=int, help="of the file and the data, instead of the workload's own")
    p.add_argument("--mode", choices=["eager", "compile", "max-autotune", "ddp", "fsdp2", "ds1", "ds2", "ds3"])
    p.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"])
    p.add_argument("--threads", type=int); p.add_argument("--steps", type=int, default=8)
    p.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)
    a = p.parse_args()
    warnings.simplefilter("ignore")
    if a.batch:
        WORKLOADS[a.name] = WORKLOADS[a.name]._replace(batch=a.batch)
    if a.onnx:
        export(a.name, a.onnx, a.ranks)
    if a.data:
        save_data(a.name, a.data)
    if not a.mode:
        return
    if "RANK" not in os.environ and (a.ranks > 1 or a.mode.startswith("ds")):
        return launch(a.ranks)
    threads = a.threads or max(1, len(os.sched_getaffinity(0)) // a.ranks)
    result = train(a.name, a.mode, a.dtype, a.ranks, threads, a.steps)
    if int(os.environ.get("RANK", 0)) == 0:
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    sys.exit(main())
