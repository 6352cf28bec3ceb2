# A GPT-2 of any depth and width, for largest.py and its peer: blocks of one width, the head apart from the embedding.
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Embedding(nn.Embedding):
    """Drawn as GPT-2's where it is made: DeepSpeed takes parameters away when a module's constructor ends."""

    def __init__(self, rows, width):
        super().__init__(rows, width)
        nn.init.normal_(self.weight, std=0.02)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = width // 64

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, 64)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """The loss of a batch."""

    def __init__(self, depth, width, words, tokens, recompute=False):
        super().__init__()
        self.words, self.places = Embedding(words, width), Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.recompute = recompute

    def forward(self, ids, labels):
        x = self.words(ids) + self.places.weight
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), labels.flatten())


def count(depth, width, words, tokens):
    """Parameters."""
    return depth * (12 * width * width + 13 * width) + (2 * words + tokens + 2) * width
