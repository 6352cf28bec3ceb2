#!/usr/bin/env python3
"""Makes the fixtures of this folder: small models as PyTorch exports them, their data, and PyTorch's own losses.

    python3 make.py [NAME...]        needs torch, onnx, numpy

NAME/VARIANT.onnx   dyn (dynamo, the default), noopt (dynamo, optimize=False), ts (TorchScript, training mode)
NAME/data.npz       two batches along the first axis
NAME/ref.json       losses of 10 steps over the two batches in turn, for each of OPTIMIZERS; "bf16": AdamW under
                    bf16 autocast; "deepspeed": of 10 steps of both
                    batches, as test/e2e/Inputs/adam.json says
chargpt.onnx        the quick start's model: a graph without weights, for --init=pytorch
"""
import json, os, sys, warnings
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln1(x)).split(c, dim=2)
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self, vocab, length, width, heads, layers):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, tokens, labels):
        x = self.tok(tokens) + self.pos(torch.arange(tokens.shape[1], device=tokens.device))
        for b in self.blocks:
            x = b(x)
        logits = self.head(self.ln(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


class Classifier(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, labels):
        return F.cross_entropy(self.net(x), labels)


def mlp():
    r = np.random.default_rng(1)
    net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 7))
    return Classifier(net), dict(x=r.standard_normal((16, 20), dtype=np.float32), labels=r.integers(0, 7, 16))


def gpt():
    r = np.random.default_rng(2)
    t = r.integers(0, 61, (8, 13))
    m = GPT(61, 12, 24, 3, 2)
    m.head.weight = m.tok.weight
    return m, dict(tokens=t[:, :-1].copy(), labels=t[:, 1:].copy())


def half():
    """Weights that 16 bits hold; its files have them in 16 bits (ELEMENTS)."""
    r = np.random.default_rng(5)
    t = r.integers(0, 31, (8, 9))
    m = GPT(31, 8, 16, 2, 1)
    for p in m.parameters():
        p.data = p.data.bfloat16().float()
    return m, dict(tokens=t[:, :-1].copy(), labels=t[:, 1:].copy())


def convnet():
    r = np.random.default_rng(3)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                        nn.Conv2d(8, 12, 3, stride=2, padding=1), nn.BatchNorm2d(12), nn.ReLU(),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5))
    return Classifier(net), dict(x=r.standard_normal((12, 3, 12, 12), dtype=np.float32), labels=r.integers(0, 5, 12))


class Residual(nn.Module):
    """Two 3x3 convolutions around which the input, or a 1x1 convolution of it, goes on."""

    def __init__(self, start, end, stride):
        super().__init__()
        self.long = nn.Sequential(nn.Conv2d(start, end, 3, stride, padding=1, bias=False), nn.BatchNorm2d(end), nn.ReLU(),
                                  nn.Conv2d(end, end, 3, padding=1, bias=False), nn.BatchNorm2d(end))
        self.short = nn.Identity() if stride == 1 else nn.Sequential(nn.Conv2d(start, end, 1, stride, bias=False), nn.BatchNorm2d(end))

    def forward(self, x):
        return F.relu(self.long(x) + self.short(x))


def residual():
    """Channels in whole blocks of 16."""
    r = np.random.default_rng(5)
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                        Residual(16, 16, 1), Residual(16, 32, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5))
    return Classifier(net), dict(x=r.standard_normal((12, 3, 14, 14), dtype=np.float32), labels=r.integers(0, 5, 12))


class Parts(nn.Module):
    """Uses two parameters as they are, and slices and other forms of them elsewhere, which the default exporter's optimizer
    folds."""

    def __init__(self):
        super().__init__()
        self.pos, self.mix = nn.Parameter(torch.randn(1, 8, 12) / 3), nn.Parameter(torch.randn(12, 12) / 3)
        self.head = nn.Linear(12, 7)

    def forward(self, x, start, labels):
        x = torch.tanh((x + self.pos) @ self.mix).mean(1)
        start = (start + self.pos[:, :3]).sum(1) + self.pos[:, 5]
        start = torch.tanh(start @ self.mix.t()) + (start @ self.mix[:, 4:8]).repeat(1, 3)
        return F.cross_entropy(self.head(x + start + (x[:, None, None] * self.pos[None]).mean((1, 2))), labels)


def parts():
    r = np.random.default_rng(4)
    return Parts(), dict(x=r.standard_normal((16, 8, 12), dtype=np.float32),
                         start=r.standard_normal((16, 3, 12), dtype=np.float32), labels=r.integers(0, 7, 16))


MODELS = dict(mlp=mlp, gpt=gpt, convnet=convnet, residual=residual, parts=parts, half=half)
ELEMENTS = dict(half=dict(dyn=torch.bfloat16, noopt=torch.float16))


def batches(data):
    n = next(iter(data.values())).shape[0] // 2
    return [tuple(torch.from_numpy(v[i * n:(i + 1) * n]) for v in data.values()) for i in range(2)]


class PerTensor(torch.optim.Optimizer):
    """An optimizer whose step is a function of one tensor, its gradient and its state."""

    def __init__(self, params, step, **defaults):
        super().__init__(params, defaults)
        self.of_one = step

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                self.of_one(p, p.grad, self.state[p], **{k: v for k, v in group.items() if k != "params"})


def lamb(p, g, s, lr, betas, eps, weight_decay, max_coeff=10.0, min_coeff=0.01):
    """The formula of DeepSpeed 0.19's FusedLamb."""
    s["t"] = t = s.get("t", 0) + 1
    s["m"] = m = betas[0] * s.get("m", torch.zeros_like(p)) + (1 - betas[0]) * g
    s["v"] = v = betas[1] * s.get("v", torch.zeros_like(p)) + (1 - betas[1]) * g * g
    direction = m / (v.sqrt() + eps) + weight_decay * p
    of_p, of_direction = p.norm().item(), direction.norm().item()
    ratio = min(max(of_p / of_direction, min_coeff), max_coeff) if of_p and of_direction else 1.0
    p -= lr * (1 - betas[1] ** t) ** 0.5 / (1 - betas[0] ** t) * ratio * direction


def lion(p, g, s, lr, betas, weight_decay):
    m = s.get("m", torch.zeros_like(p))
    p.mul_(1 - lr * weight_decay).sub_(lr * torch.sign(betas[0] * m + (1 - betas[0]) * g))
    s["m"] = betas[1] * m + (1 - betas[1]) * g


OPTIMIZERS = dict(
    sgd=lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    adamw=lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.01),
    adagrad=lambda p: torch.optim.Adagrad(p, lr=0.02, lr_decay=0.1, initial_accumulator_value=0.01),
    lamb=lambda p: PerTensor(p, lamb, lr=0.02, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01),
    lion=lambda p: PerTensor(p, lion, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1))


def losses(name, kind):
    torch.manual_seed(0)
    m, data = MODELS[name]()
    m.train()
    opt = OPTIMIZERS["adamw" if kind == "bf16" else kind](m.parameters())
    out = []
    for step in range(10):
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "bf16"):
            loss = m(*batches(data)[step % 2])
        out.append(loss.item())
        opt.zero_grad()
        loss.backward()
        opt.step()
    return out


# What DeepSpeed 0.19.6's WarmupDecayLR(total_num_steps=10, warmup_max_lr=0.005, warmup_num_steps=4) sets before each step.
RATES = [0.0, 0.0, 0.0025, 0.003962406251802891, 0.005, 0.005, 0.004166666666666667, 0.003333333333333333, 0.0025,
         0.0016666666666666666]


def deepspeed_losses(name):
    torch.manual_seed(0)
    m, data = MODELS[name]()
    m.train()
    opt = torch.optim.AdamW(m.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
    out = []
    for rate in RATES:
        for group in opt.param_groups:
            group["lr"] = rate
        opt.zero_grad()
        micro = [m(*b) for b in batches(data)]
        for loss in micro:
            (loss / len(micro)).backward()
        out.append(sum(l.item() for l in micro) / len(micro))
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
    return out


def strip(path):
    """Stack traces hold paths of the machine that exported; one stays for the tests, made anonymous."""
    import onnx
    m = onnx.load(path, load_external_data=False)
    for g in [m.graph] + list(m.functions):
        for n in g.node:
            for p in list(n.metadata_props):
                if p.key == "pkg.torch.onnx.stack_trace":
                    last = [l.strip() for l in p.value.splitlines() if l.strip()][-2:]
                    if len(last) == 2 and HERE in last[0]:
                        p.value = last[0].replace(HERE + "/", "") + "\n" + last[1]
                    else:
                        n.metadata_props.remove(p)
                elif p.key == "pkg.torch.onnx.class_hierarchy":
                    n.metadata_props.remove(p)
    onnx.save(m, path)


def export(m, args, names, path, kind):
    m.train()
    if kind == "ts":
        torch.onnx.export(m, args, path, dynamo=False, input_names=names, output_names=["loss"],
                          training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)
    else:
        torch.onnx.export(m, args, path, dynamo=True, input_names=names, output_names=["loss"], verbose=False,
                          optimize=kind == "dyn", external_data=False)
    strip(path)


def make(name):
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    for kind in ELEMENTS.get(name, ("dyn", "noopt", "ts")):
        torch.manual_seed(0)
        m, data = MODELS[name]()
        m.to(ELEMENTS.get(name, {}).get(kind, torch.float32))
        export(m, batches(data)[0], list(data), os.path.join(folder, kind + ".onnx"), kind)
    np.savez(os.path.join(folder, "data.npz"), **data)
    ref = {k: losses(name, k) for k in [*OPTIMIZERS, "bf16"]}
    ref["deepspeed"] = deepspeed_losses(name)
    json.dump(dict(losses=ref), open(os.path.join(folder, "ref.json"), "w"), indent=0)


def chargpt():
    """1 M parameters over bytes; weights are in no file."""
    torch.manual_seed(0)
    m = GPT(256, 128, 128, 4, 5).train()
    t = torch.zeros((16, 128), dtype=torch.int64)
    path = os.path.join(HERE, "chargpt.onnx")
    torch.onnx.export(m, (t, t.clone()), path, dynamo=True, input_names=["tokens", "labels"], output_names=["loss"],
                      verbose=False, optimize=False, external_data=True)
    os.remove(path + ".data")
    strip(path)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or list(MODELS) + ["chargpt"]:
        chargpt() if name == "chargpt" else make(name)
        print(name)
