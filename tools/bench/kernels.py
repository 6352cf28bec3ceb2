#!/usr/bin/env python3
"""Times the cases of kernels.cpp in PyTorch and prints both: kernels.py PATH-OF-KERNELS"""
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

torch.set_num_threads(1)


def ms(run):
    cpu = lambda: time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID) * 1e-6
    run()
    best, start, n = 1e30, cpu(), 0
    while n < 5 or cpu() - start < 300:
        t = cpu()
        run()
        best, n = min(best, cpu() - t), n + 1
    return best


def product(rows, inner, out):
    x, w, dy = torch.randn(rows, inner), torch.randn(inner, out), torch.randn(rows, out)
    y, dx, dw = torch.empty(rows, out), torch.empty(rows, inner), torch.empty(inner, out)
    return [ms(lambda: torch.mm(x, w, out=y)), ms(lambda: torch.mm(dy, w.t(), out=dx)),
            ms(lambda: torch.mm(x.t(), dy, out=dw))]


def attention(b, h, s, d, causal):
    q, k, v = (torch.randn(b, s, h, d).transpose(1, 2).requires_grad_() for _ in range(3))
    attend = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    with torch.no_grad():
        forward = ms(attend)
    y = attend()
    g = torch.randn_like(y)
    return [forward, ms(lambda: torch.autograd.grad(y, (q, k, v), g, retain_graph=True))]


def convolution(n, c, side, filters, k, s, p):
    x, w = torch.randn(n, c, side, side), torch.randn(filters, c, k, k)
    g = torch.randn_like(F.conv2d(x, w, None, s, p))

    def backward(which):
        torch.ops.aten.convolution_backward(g, x, w, None, [s, s], [p, p], [1, 1], False, [0, 0], 1,
                                            which)

    return [ms(lambda: F.conv2d(x, w, None, s, p)), ms(lambda: backward([True, False, False])),
            ms(lambda: backward([False, True, False]))]


CASES = {
    "matmul:gpt2-mini-qkv": lambda: product(2048, 384, 1152),
    "matmul:gpt2-mini-fc": lambda: product(2048, 384, 1536),
    "matmul:gpt2-mini-proj": lambda: product(2048, 1536, 384),
    "matmul:gpt2-mini-head": lambda: product(2048, 384, 8192),
    "matmul:gpt2-124m-fc": lambda: product(512, 768, 3072),
    "matmul:gpt2-124m-head": lambda: product(512, 768, 50257),
    "matmul:llama-60m-fc": lambda: product(1024, 512, 1408),
    "matmul:bert-mini-fc": lambda: product(2048, 256, 1024),
    "matmul:vit-tiny-fc": lambda: product(1576, 192, 768),
    "matmul:mlp-1": lambda: product(64, 784, 512),
    "matmul:mlp-3": lambda: product(64, 512, 10),
    "attention:gpt2-mini": lambda: attention(8, 6, 256, 64, True),
    "attention:gpt2-124m": lambda: attention(2, 12, 256, 64, True),
    "attention:bert-mini": lambda: attention(16, 4, 128, 64, False),
    "attention:vit-tiny": lambda: attention(8, 3, 197, 64, False),
    "attention:long": lambda: attention(1, 8, 2048, 64, True),
    "conv:resnet18-stem": lambda: convolution(32, 3, 64, 64, 7, 2, 3),
    "conv:resnet18-1": lambda: convolution(32, 64, 16, 64, 3, 1, 1),
    "conv:resnet18-2a": lambda: convolution(32, 64, 16, 128, 3, 2, 1),
    "conv:resnet18-2": lambda: convolution(32, 128, 8, 128, 3, 1, 1),
    "conv:resnet18-3": lambda: convolution(32, 256, 4, 256, 3, 1, 1),
    "conv:resnet18-4": lambda: convolution(32, 512, 2, 512, 3, 1, 1),
    "conv:resnet50-points": lambda: convolution(4, 64, 56, 256, 1, 1, 0),
    "conv:resnet50-3x3": lambda: convolution(4, 64, 56, 64, 3, 1, 1),
    "conv:vit-tiny-patch": lambda: convolution(8, 3, 224, 192, 16, 16, 0),
}


def main():
    ours = subprocess.run([sys.argv[1]], env={"OMP_NUM_THREADS": "1"}, check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    for line in ours.splitlines():
        name, *times = line.split()
        cells = []
        with torch.set_grad_enabled(name.startswith("attention")):
            for mine, theirs in zip(map(float, times), CASES[name]()):
                cells.append(f"{mine:9.3f} ms {theirs / max(mine, 1e-6):5.2f}x")
        print(f"{name:24}", "  ".join(cells), flush=True)


if __name__ == "__main__":
    main()
