#!/usr/bin/env python3
"""The journeys of a new user: a PyTorch model is exported, trained by zcc and by PyTorch alike, and loaded back; prints a table.

    journeys.py [--only digits,qwen3,...] [--zcc build/bin/zcc] [--seeds 5]      needs torch, safetensors, scikit-learn, transformers

digits: scikit-learn's handwritten digits (a generated set without it), a network with BatchNorm and dropout by all three exporters:
the default one, `optimize=False`, and TorchScript in training mode. Its BatchNorms stand behind ReLU, not behind Conv or Linear,
into which the default exporter would fold them; those of dynamo's files are compiled with --batch-norm=train. Both sides see the
same batches and draw their own dropout; the accuracies on the test set are averaged over the seeds and must be half a point close.
The others: small random configurations of transformers' models, eager attention, the loss as the only output; 10 steps of AdamW,
every loss within 1e-4 (relative) of PyTorch's, or 1e-2 where the exporter has lost parameters.
Every program writes --export=x.safetensors, which load_state_dict(strict=True) must take; the loaded model's loss on the first
batch is compared with that of PyTorch's trained one. What the default exporter has lost (folded, merged, baked into constants)
cannot be loaded: then what is missing, and what stands in its place, must be what zcc warned about by name.
"""
import argparse, copy, json, os, re, subprocess, sys, tempfile, warnings
import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

LR, DECAY, STEPS, BATCH = 1e-3, 0.01, 10, 4
NEAR, LOST = 1e-4, 1e-2  # of a loss, relative; the second where the exporter has lost parameters, which then stay as they are
EXPORTERS = {"default": dict(dynamo=True), "optimize=False": dict(dynamo=True, optimize=False),
             "TorchScript": dict(dynamo=False, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)}


# ---- models: the loss is what forward returns


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(16), nn.MaxPool2d(2), nn.Dropout(0.2))
        self.head = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Dropout(0.2), nn.Linear(64, 10))

    def forward(self, image, label):
        return nn.functional.cross_entropy(self.logits(image), label)

    def logits(self, image):
        return self.head(self.features(image).flatten(1))


class Loss(nn.Module):
    """A model of transformers, called by keyword; the loss is its own."""

    def __init__(self, model, names, fixed=None):
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed or {}

    def forward(self, *values):
        return self.model(**dict(zip(self.names, values)), **self.fixed).loss


def ids(rng, vocabulary, length, steps=STEPS):
    return rng.integers(3, vocabulary, (steps * BATCH, length), dtype=np.int64)


SMALL = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=96, pad_token_id=0,
             bos_token_id=1, eos_token_id=2, attn_implementation="eager")


def causal(kind, rng, **more):
    import transformers as t
    config = getattr(t, kind + "Config")(**SMALL, num_key_value_heads=2, max_position_embeddings=64, use_cache=False, **more)
    x = ids(rng, 96, 16)
    return Loss(getattr(t, kind + "ForCausalLM")(config), ["input_ids", "labels"]), {"input_ids": x, "labels": x}


def qwen3(rng):
    return causal("Qwen3", rng, head_dim=8, tie_word_embeddings=True)


def smollm3(rng):
    return causal("SmolLM3", rng, tie_word_embeddings=True)


def modernbert(rng):
    import transformers as t
    config = t.ModernBertConfig(**SMALL, max_position_embeddings=64, cls_token_id=1, sep_token_id=2, local_attention=8)
    x = ids(rng, 96, 16)
    labels = np.where(rng.random(x.shape) < 0.3, x, -100)
    data = {"input_ids": x, "attention_mask": np.ones_like(x), "labels": labels}
    return Loss(t.ModernBertForMaskedLM(config), list(data)), data


def whisper(rng):
    import transformers as t
    config = t.WhisperConfig(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                             encoder_ffn_dim=64, decoder_ffn_dim=64, vocab_size=96, num_mel_bins=8, max_source_positions=16,
                             max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
                             suppress_tokens=None, begin_suppress_tokens=None, dropout=0.0, use_cache=False,
                             attn_implementation="eager")
    data = {"input_features": rng.standard_normal((STEPS * BATCH, 8, 32)).astype(np.float32),
            "decoder_input_ids": ids(rng, 96, 12), "labels": ids(rng, 96, 12)}
    return Loss(t.WhisperForConditionalGeneration(config), list(data)), data


def clip(rng):
    import transformers as t
    text = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=96,
                max_position_embeddings=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, projection_dim=16)
    vision = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=16, patch_size=8,
                  projection_dim=16)
    config = t.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16, attn_implementation="eager")
    x = ids(rng, 96, 8)
    x[:, -1] = 2
    data = {"input_ids": x, "pixel_values": rng.standard_normal((STEPS * BATCH, 3, 16, 16)).astype(np.float32),
            "attention_mask": np.ones_like(x)}
    return Loss(t.CLIPModel(config), list(data), {"return_loss": True}), data


# ---- both sides


def batches(data, size):
    n = len(next(iter(data.values()))) // size
    return [[torch.from_numpy(v[i * size:(i + 1) * size]) for v in data.values()] for i in range(n)]


def train_torch(model, data, size):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, weight_decay=DECAY)
    losses = []
    for batch in batches(data, size):
        optimizer.zero_grad()
        loss = model(*batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def export(model, data, size, how, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(copy.deepcopy(model), tuple(batches(data, size)[0]), path, input_names=list(data), output_names=["loss"],
                          verbose=False, **EXPORTERS[how])


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or f"{command[0]} ended with {done.returncode}").split("\n")[0])
    return done.stderr


def train_zcc(zcc, path, data, size, folder, flags=(), seed=0):
    """The losses, the exported file, and what zcc said."""
    program, out, log = (os.path.join(folder, name) for name in ("program", "trained.safetensors", "log.jsonl"))
    said = run([zcc, path, "--optimizer=adamw", f"--lr={LR}", f"--weight-decay={DECAY}", "--threads=1", "-o", program, *flags])
    np.savez(os.path.join(folder, "data.npz"), **data)
    steps = len(next(iter(data.values()))) // size
    run([program, f"--data={folder}/data.npz", f"--steps={steps}", f"--seed={seed}", f"--log={log}", f"--export={out}", "--quiet"])
    return [json.loads(line)["loss"] for line in open(log)], out, said


def load_back(model, path, said):
    """Loads the file strictly; returns how that went. What is missing must have been warned about."""
    weights = load_file(path)
    try:
        model.load_state_dict(weights, strict=True)
        return "strict"
    except RuntimeError as e:
        why = " ".join(str(e).split())
    expected = model.state_dict()
    lost = [k for k in expected if k not in weights]
    instead = [k for k in weights if k not in expected]  # what the exporter computed from them
    silent = [k for k in lost + instead if not re.search(r"(?<![\w.])" + re.escape(k) + r"(?![\w.])", said)]
    if silent or not lost:
        raise RuntimeError(f"not loaded: {', '.join(silent) or why}")
    model.load_state_dict(weights, strict=False)
    return f"{len(lost)} of {len(expected)} lost by the exporter, each named"


# ---- the journeys


def digits(zcc, seeds, report):
    try:
        from sklearn.datasets import load_digits
        images, labels = load_digits(return_X_y=True)
    except ImportError:  # ten blurred patterns
        rng = np.random.default_rng(0)
        labels = rng.integers(0, 10, 1797)
        images = 8 + 4 * rng.standard_normal((10, 64))[labels] + 6 * rng.standard_normal((1797, 64))
    rng = np.random.default_rng(0)
    order = rng.permutation(len(images))
    images = (images[order].reshape(-1, 1, 8, 8) / 16).astype(np.float32)
    labels = labels[order].astype(np.int64)
    train, size, epochs = 1408, 32, 10
    test, truth = torch.from_numpy(images[train:]), torch.from_numpy(labels[train:])

    def accuracy(model):
        with torch.no_grad():
            return 100 * (model.eval().logits(test).argmax(1) == truth).float().mean().item()

    wanted, got, loaded = [], {how: [] for how in EXPORTERS}, {}
    for seed in range(seeds):
        torch.manual_seed(seed)
        start = Digits().train()
        rng = np.random.default_rng(seed)
        order = np.concatenate([rng.permutation(train) for _ in range(epochs)])
        data = {"image": images[order], "label": labels[order]}
        model = copy.deepcopy(start)
        train_torch(model, data, size)
        wanted.append(accuracy(model))
        for how in EXPORTERS:
            with tempfile.TemporaryDirectory() as folder:
                path, model = os.path.join(folder, "digits.onnx"), copy.deepcopy(start)
                export(start, data, size, how, path)
                flags = [] if how == "TorchScript" else ["--batch-norm=train"]
                try:
                    _, out, said = train_zcc(zcc, path, data, size, folder, flags, seed)
                    loaded.setdefault(how, load_back(model, out, said))
                    got[how].append(accuracy(model))
                except Exception as e:
                    loaded[how] = f"seed {seed}: {type(e).__name__}: {e}".split("\n")[0][:200]
    for how in EXPORTERS:
        close = len(got[how]) == seeds and abs(np.mean(got[how]) - np.mean(wanted)) <= 0.5
        shown = f"{np.mean(got[how]):.2f} %" if got[how] else "-"
        report("digits", how, f"accuracy {shown}, PyTorch {np.mean(wanted):.2f} %", loaded[how], close and loaded[how] == "strict")


def transformer(name, make, zcc, report):
    for how in ("optimize=False", "default"):
        torch.manual_seed(0)
        start, data = make(np.random.default_rng(0))
        start.train()
        fixed = [k for k, p in start.named_parameters() if not p.requires_grad]
        model = copy.deepcopy(start)
        want = train_torch(model, data, BATCH)
        with tempfile.TemporaryDirectory() as folder:
            path, far, how_loaded, good = os.path.join(folder, name + ".onnx"), "-", "-", False
            try:
                export(start, data, BATCH, how, path)
                # The default exporter bakes positions into a constant of another name; zcc knows them by their values.
                flags = [f"--freeze=^{re.escape(k)}$" for k in fixed] if how != "default" else []
                got, out, said = train_zcc(zcc, path, data, BATCH, folder, flags)
                off = max(abs(g - w) / abs(w) for g, w in zip(got, want))
                far = f"{off:.1e}"
                how_loaded = load_back(start, out, said)
                if how_loaded == "strict":
                    first = batches(data, BATCH)[0]
                    with torch.no_grad():
                        ours, theirs = start(*first).item(), model(*first).item()
                    far += f", loaded {abs(ours - theirs) / abs(theirs):.1e}"
                    good = off <= NEAR and abs(ours - theirs) <= NEAR * abs(theirs)
                else:
                    good = off <= (LOST if how == "default" else NEAR)
            except Exception as e:
                how_loaded = f"{type(e).__name__}: {e}".split("\n")[0][:200]
            report(name, how, far, how_loaded, good)


TRANSFORMERS = {"qwen3": qwen3, "modernbert": modernbert, "smollm3": smollm3, "whisper": whisper, "clip": clip}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="digits," + ",".join(TRANSFORMERS)); p.add_argument("--zcc", default="build/bin/zcc")
    p.add_argument("--seeds", type=int, default=5)
    a = p.parse_args()
    torch.set_num_threads(1)  # the models are small
    bad = []

    def report(name, how, result, loaded, good):
        print(f"| {name} | {how} | {result} | {loaded} | {'yes' if good else 'NO'} |", flush=True)
        bad.extend([] if good else [name])

    print("| model | exporter | difference to PyTorch | loaded back | good |\n|---|---|---|---|---|", flush=True)
    for name in a.only.split(","):
        if name == "digits":
            digits(a.zcc, a.seeds, report)
        else:
            transformer(name, TRANSFORMERS[name], a.zcc, report)
    sys.exit(int(bool(bad)))


if __name__ == "__main__":
    main()
