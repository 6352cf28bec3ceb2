#!/usr/bin/env python3
"""Exports small models of Transformers and a U-Net with buffers by PyTorch's exporters, compiles and trains them, and loads the
exported safetensors back with load_state_dict(strict=True).

state_dict.py ZCC FOLDER [--only NAME]...       needs torch, transformers, onnx, onnxscript, safetensors

After 0 steps every tensor is what it was, bit for bit; after 2 steps every trained one has changed."""
import argparse, os, subprocess, sys, warnings
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

BATCH, LENGTH, WORDS = 2, 12, 64


class Trained(nn.Module):
    """A model of Transformers and its loss, as one would wrap it."""

    def __init__(self, model, **extra):
        super().__init__()
        self.net, self.extra = model, extra

    def forward(self, *inputs):
        *inputs, labels = inputs
        if len(inputs) == 2:
            kw = dict(input_features=inputs[0], decoder_input_ids=inputs[1], decoder_attention_mask=torch.ones_like(inputs[1]))
        else:
            kw = dict(input_ids=inputs[0], attention_mask=torch.ones_like(inputs[0]))
        y = self.net(**kw, **self.extra).logits
        return F.cross_entropy(y.reshape(-1, WORDS), labels.reshape(-1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
        self.down = nn.Sequential(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.GroupNorm(4, 16), nn.SiLU())
        self.up, self.out, self.time = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(16, 1, 1), nn.Linear(8, 8)
        self.register_buffer("freqs", torch.exp(-torch.arange(4.0)))
        self.register_buffer("alphas", torch.linspace(0.99, 0.01, 10).cumprod(0))
        self.register_buffer("scratch", torch.ones(3), persistent=False)

    def forward(self, x, t, noise):
        a = self.alphas[t][:, None, None, None]
        y = a.sqrt() * x + (1 - a).sqrt() * noise
        angle = t[:, None].float() * self.freqs
        h = self.inc(y) + self.time(torch.cat([angle.sin(), angle.cos()], -1))[:, :, None, None]
        u = self.up(self.down(h))
        return F.mse_loss(self.out(torch.cat([h, u], 1)), noise * self.scratch.sum() / 3)


def models():
    import transformers as tf

    ids, labels = (torch.randint(4, WORDS, (BATCH, LENGTH)) for _ in range(2))
    common = dict(vocab_size=WORDS, hidden_size=32, intermediate_size=48, num_attention_heads=4, pad_token_id=0, bos_token_id=1,
                  eos_token_id=2, attn_implementation="eager")
    names = ["ids", "labels"]
    for tied in (False, True):
        yield ("qwen3-tied" if tied else "qwen3"), lambda: Trained(tf.Qwen3ForCausalLM(tf.Qwen3Config(
            num_hidden_layers=2, num_key_value_heads=2, head_dim=8, tie_word_embeddings=tied, **common)), use_cache=False), (ids, labels), names
    yield "smollm3", lambda: Trained(tf.SmolLM3ForCausalLM(tf.SmolLM3Config(num_hidden_layers=4, num_key_value_heads=2, **common)),
                                     use_cache=False), (ids, labels), names
    yield "modernbert", lambda: Trained(tf.ModernBertForMaskedLM(tf.ModernBertConfig(
        num_hidden_layers=3, cls_token_id=1, sep_token_id=2, **common))), (ids, labels), names
    whisper = tf.WhisperConfig(vocab_size=WORDS, num_mel_bins=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
                               decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, d_model=16, max_source_positions=10,
                               max_target_positions=LENGTH, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
                               attn_implementation="eager")
    yield "whisper", lambda: Trained(tf.WhisperForConditionalGeneration(whisper), use_cache=False), \
        (torch.randn(BATCH, 8, 20), ids, labels), ["sound", "ids", "labels"]
    yield "unet", UNet, (torch.randn(BATCH, 1, 8, 8), torch.tensor([2, 7]), torch.randn(BATCH, 1, 8, 8)), ["x", "t", "noise"]


def export(kind, model, args, path, names):
    io = dict(input_names=names, output_names=["loss"])
    if kind == "ts":
        torch.onnx.export(model, args, path, dynamo=False, do_constant_folding=False, training=torch.onnx.TrainingMode.TRAINING, **io)
    else:
        torch.onnx.export(model, args, path, dynamo=True, optimize=kind == "dyn", verbose=False, **io)


# The exporter's optimizer folds Whisper's position tables and drops biases of zeros: its default file does not hold them.
LOST = {("whisper", "dyn"): ["net.model.encoder.embed_positions.weight", "net.model.decoder.embed_positions.weight",
                             "net.model.encoder.conv1.bias", "net.model.encoder.conv2.bias"]}


def check(zcc, name, kind, make, args, names, folder):
    torch.manual_seed(0)
    model = make().train()
    old = {k: v.clone() for k, v in model.state_dict().items()}
    base = os.path.join(folder, f"{name}.{kind}")
    export(kind, model, args, base + ".onnx", names)
    np.savez(base + ".npz", **{n: a.numpy() for n, a in zip(names, args)})
    run = lambda *c: subprocess.run(c, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    run(zcc, base + ".onnx", "--optimizer=adamw", "--lr=1e-3", "-o", base)
    for steps in (0, 2):
        run(base, f"--data={base}.npz", f"--steps={steps}", f"--export={base}.safetensors")
        new = load_file(base + ".safetensors")
        lost = LOST.get((name, kind), [])
        if lost:
            missing, unexpected = model.load_state_dict({k: v for k, v in new.items() if k in old}, strict=False)
            assert sorted(missing) == sorted(lost), missing
        else:
            model.load_state_dict(new, strict=True)
        equal = [k for k in old if k not in lost and torch.equal(new[k], old[k])]
        if steps == 0:
            assert len(equal) + len(lost) == len(old), set(old) - set(equal) - set(lost)
        else:
            trained = {k for k, v in model.named_parameters(remove_duplicate=False) if v.requires_grad}
            assert not trained & set(equal), trained & set(equal)
    run(base, f"--data={base}.npz", "--steps=0", f"--export={base}.safetensors", "--export-ties=first")
    first = set(load_file(base + ".safetensors"))
    ties = len({t.data_ptr() for t in model.state_dict().values()}) < len(model.state_dict())
    assert first <= set(new) and (first < set(new)) == ties, (name, sorted(set(new) - first))
    print(name, kind, len(new), "tensors", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("zcc")
    p.add_argument("folder")
    p.add_argument("--only", action="append", default=[], help="NAME or NAME.KIND; KIND is dyn, noopt or ts")
    a = p.parse_args()
    warnings.filterwarnings("ignore")
    failed = 0
    for name, *rest in models():
        for kind in ("dyn", "noopt", "ts"):
            if a.only and name not in a.only and f"{name}.{kind}" not in a.only:
                continue
            try:
                check(a.zcc, name, kind, *rest, a.folder)
            except (AssertionError, RuntimeError, subprocess.CalledProcessError) as e:
                failed += 1
                print(f"{name} {kind} FAILED:", e, getattr(e, "stderr", ""), flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
