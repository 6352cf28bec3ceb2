"""check_module.py ZCC FOLDER: the Python module of tools/python against PyTorch: what it exports trains as PyTorch does, and comes back."""
import os
import subprocess
import sys
import warnings

zcc_tool, module = sys.argv[1:3]
sys.path.insert(0, module)
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
import zcc


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.norm, self.mix = nn.LayerNorm(8), nn.Linear(8, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.words.weight  # tied
        self.never = nn.Linear(2, 2)

    def forward(self, tokens):
        return self.head(torch.tanh(self.mix(self.norm(self.words(tokens)))))


def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def caught(fn):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = fn()
    return result, [str(w.message) for w in seen if w.category is UserWarning and "zcc" in str(w.message)]


def run(*command):
    subprocess.run(command, check=True, capture_output=True)


torch.manual_seed(0)
net = Net()
tokens, labels = torch.randint(11, (12, 5)), torch.randint(11, (12, 5))
batch = tokens[:4], labels[:4]

# Exported with its loss; the model is what it was.
done, said = caught(lambda: zcc.export(net, batch, loss=loss_of, path="net.onnx", zcc=zcc_tool))
assert done.inputs == ["tokens", "labels"] and "forward" not in vars(net), done
trained = lambda done: sorted({"words.weight" if n == "head.weight" else n for n in done.trained})  # one parameter, two names
assert trained(done) == ["mix.bias", "mix.weight", "norm.bias", "norm.weight", "words.weight"], done
assert done.lost == ["never.weight", "never.bias"] and "never.weight" in said[0], (done, said)

# It trains as PyTorch does, and comes back.
np.savez("data.npz", tokens=tokens.numpy(), labels=labels.numpy())
run(zcc_tool, "net.onnx", "--optimizer=sgd", "--lr=0.5", "-o", "net")
run("./net", "--data=data.npz", "--steps=3", "--export=trained.safetensors", "--log=log.jsonl", "--quiet")
want, twin = [], Net()
twin.load_state_dict(net.state_dict())
sgd = torch.optim.SGD(twin.parameters(), lr=0.5)
for s in range(3):
    loss = loss_of(twin(tokens[4 * s:4 * s + 4]), labels[4 * s:4 * s + 4])
    want.append(loss.item())
    sgd.zero_grad()
    loss.backward()
    sgd.step()
rows = zcc.read_log("log.jsonl")
assert np.allclose([r["loss"] for r in rows], want, rtol=1e-5), (rows, want)
zcc.load(net, "trained.safetensors", strict=False)
for name, parameter in net.named_parameters():
    assert torch.allclose(parameter, twin.state_dict()[name], atol=1e-5), name
assert net.head.weight is net.words.weight

# A log that a killed program left.
with open("log.jsonl", "a") as f:
    f.write('{"step": 3, "lo')
assert len(zcc.read_log("log.jsonl")) == 3

# A loss that zcc adds; inputs by name; without weights.
caught(lambda: zcc.export(Net(), {"tokens": batch[0]}, loss="cross_entropy(logits, labels)", path="bare.onnx", zcc=zcc_tool))
run(zcc_tool, "bare.onnx", "--loss=cross_entropy(logits, labels)", "-o", "bare")
with torch.device("meta"):
    absent = Net()
done, _ = caught(lambda: zcc.export(absent, batch, loss=loss_of, path="absent.onnx", zcc=zcc_tool))
assert trained(done) == ["mix.bias", "mix.weight", "norm.bias", "norm.weight", "words.weight"], done
assert os.path.getsize("absent.onnx") < 200000
run(zcc_tool, "absent.onnx", "--init=pytorch", "-o", "drawn")
run("./drawn", "--data=data.npz", "--steps=2", "--quiet")
zcc.load(absent, "trained.safetensors", strict=False)
assert absent.head.weight is absent.words.weight and torch.allclose(absent.words.weight, twin.words.weight, atol=1e-5)


# Losses with more parameters than targets, as functions and modules; symbolic dimensions; a buffer in bf16 beside parameters that are absent.
class Line(nn.Module):
    def __init__(self, device=None):
        super().__init__()
        self.line = nn.Linear(4, 3, device=device)
        self.register_buffer("scale", torch.full((4,), 0.5, dtype=torch.bfloat16))

    def forward(self, x):
        return self.line(x * self.scale)


rows = torch.randn(6, 4), torch.randint(3, (6,))
for loss in F.cross_entropy, nn.CrossEntropyLoss(label_smoothing=0.1), lambda out, target=None: F.cross_entropy(out, target):
    done, _ = caught(lambda: zcc.export(Line(), rows, loss=loss, path="line.onnx", zcc=zcc_tool))
    assert done.inputs == ["x", "target"] and len(done.trained) == 2, done
any_batch = torch.export.Dim("batch", min=2, max=64)
done, _ = caught(lambda: zcc.export(Line(), dict(zip(("x", "target"), rows)), loss=F.cross_entropy, path="line.onnx", zcc=zcc_tool,
                                    dynamic_shapes={"x": {0: any_batch}, "target": {0: any_batch}}))
assert done.dims == {"batch": 6}, done
done, _ = caught(lambda: zcc.export(Line("meta"), rows, loss=F.cross_entropy, path="line.onnx", zcc=zcc_tool))
assert len(done.trained) == 2, done


# What cannot be compiled is zcc's error; without zcc nothing is checked, and that is said.
class Fixed(nn.Module):
    def forward(self, x):
        return (x * 2).sum()


try:
    zcc.export(Fixed(), (torch.randn(3, 3),), path="fixed.onnx", zcc=zcc_tool)
    sys.exit("a model without parameters was accepted")
except zcc.ExportError as e:
    assert "no parameter is trained" in str(e), e
os.environ["PATH"] = os.environ["ZCC"] = ""
done, said = caught(lambda: zcc.export(net, batch, loss=loss_of, path="net.onnx"))
assert not done.trained and "not checked" in said[0], said
for wrong in (("x",), "none is left"), ({"x": 1}, "'labels'"):
    try:
        zcc.export(net, wrong[0], loss=loss_of)
        sys.exit("accepted")
    except ValueError as e:
        assert wrong[1] in str(e), e

# What PyTorch keeps fixed is in no file, and a loss' own parameters would stay as they are.
fixed = Net()
fixed.mix.requires_grad_(False)
done, said = caught(lambda: zcc.export(fixed, batch, loss=loss_of, path="fixed.onnx", zcc=zcc_tool))
assert any("--freeze='^(mix\\.weight|mix\\.bias)$'" in s for s in said), said


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.by = nn.Parameter(torch.ones(()))

    def forward(self, logits, labels):
        return loss_of(logits * self.by, labels)


try:
    zcc.export(net, batch, loss=Scaled(), path="scaled.onnx", zcc=zcc_tool)
    sys.exit("a loss with parameters is exported without them")
except ValueError as e:
    assert "the loss has parameters" in str(e), e
print("the module works")
