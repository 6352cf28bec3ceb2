#!/usr/bin/env python3
"""Models of Transformers exported without weights start from their save_pretrained folders, and have PyTorch's first loss.

given_weights.py ZCC MODULE FOLDER       MODULE is tools/python; needs torch, transformers, onnx, onnxscript, safetensors"""
import json, os, subprocess, sys, warnings
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

compiler, module, folder = sys.argv[1:]
sys.path.insert(0, module)
import zcc  # noqa: E402

warnings.filterwarnings("ignore")
os.chdir(folder)
BATCH, LENGTH, WORDS = 2, 12, 64


def loss_of(output, labels):
    return F.cross_entropy(output.logits.reshape(-1, WORDS), labels.reshape(-1))


def models():
    import transformers as tf
    common = dict(vocab_size=WORDS, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_hidden_layers=2, pad_token_id=0,
                  bos_token_id=1, eos_token_id=2, attn_implementation="eager", use_cache=False)
    yield "gpt2", tf.GPT2LMHeadModel, tf.GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=16, bos_token_id=0,
                                                    eos_token_id=0, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                                                    attn_implementation="eager", use_cache=False)
    yield "llama", tf.LlamaForCausalLM, tf.LlamaConfig(num_key_value_heads=2, tie_word_embeddings=False, **common)
    yield "bert", tf.BertForMaskedLM, tf.BertConfig(hidden_dropout_prob=0, attention_probs_dropout_prob=0, max_position_embeddings=16,
                                                    **common)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout + done.stderr


def expect_loss(program, data, want, *flags, tolerance=1e-5):
    ranks = 2 if program.endswith("2") else 1
    said = run("mpirun", "-n", str(ranks), "./" + program, f"--data={data}", "--steps=1", "--log=log.jsonl", *flags)
    loss = json.loads(open("log.jsonl").readline())["loss"]
    assert abs(loss - want) <= tolerance * abs(want), (program, flags, loss, want)
    return said


def check(name, kind, config):
    torch.manual_seed(0)
    model = kind(config).train()
    ids, labels = (torch.randint(4, WORDS, (BATCH, LENGTH)) for _ in range(2))
    inputs = dict(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels)
    want = loss_of(model(input_ids=ids, attention_mask=inputs["attention_mask"]), labels).item()
    np.savez(f"{name}.npz", **{k: v.numpy() for k, v in inputs.items()})
    np.savez(f"{name}-2.npz", **{k: np.concatenate([v.numpy()] * 2) for k, v in inputs.items()})
    model.save_pretrained(name)
    model.save_pretrained(f"{name}-shards", max_shard_size="20KB")
    whole = load_file(f"{name}/model.safetensors")
    # Published files of a base model, of a wrapper, in 16 bits.
    base = model.base_model_prefix + "."
    save_file({k.removeprefix(base): v for k, v in whole.items()}, "base.safetensors")
    save_file({"module." + k: v for k, v in whole.items()}, "wrapped.safetensors")
    save_file({k: v.half() for k, v in whole.items()} | {"extra": torch.ones(2)}, "half.safetensors")

    for part in model.modules():  # parameters on the meta device, buffers as they are
        for key, p in part._parameters.items():
            if p is not None:
                part._parameters[key] = torch.nn.Parameter(p.to("meta"))
    model.tie_weights()
    zcc.export(model, inputs, loss=loss_of, path=f"{name}.onnx", zcc=compiler)
    assert not os.path.exists(f"{name}.onnx.data")

    compile_ = lambda out, *flags: run(compiler, f"{name}.onnx", "--optimizer=sgd", "--lr=0.1", "-o", out, *flags)
    for given in (name, f"{name}/model.safetensors", f"{name}-shards"):
        compile_("baked", f"--weights={given}")
        expect_loss("baked", f"{name}.npz", want)
    run("./baked", f"--data={name}.npz", "--steps=0", "--export=back.safetensors")
    back = load_file("back.safetensors")
    assert all(torch.equal(back[k], v) for k, v in whole.items()) and len(back) >= len(whole)

    compile_("drawn", "--init=pytorch")
    compile_("drawn2", "--init=pytorch", "--ranks=2", "--zero=3", "--param-persistence-threshold=0")
    for given in (name, f"{name}-shards", f"{name}-shards/model.safetensors.index.json"):
        for program, data in (("drawn", f"{name}.npz"), ("drawn2", f"{name}-2.npz")):
            expect_loss(program, data, want, f"--weights={given}")
    said = expect_loss("drawn2", f"{name}-2.npz", want, "--weights=base.safetensors")
    assert f"'{base}*' of the model is '*' in 'base.safetensors'" in said, said
    said = expect_loss("drawn", f"{name}.npz", want, "--weights=wrapped.safetensors")
    assert "'*' of the model is 'module.*' in 'wrapped.safetensors'" in said, said
    said = expect_loss("drawn", f"{name}.npz", want, "--weights=half.safetensors", tolerance=1e-3)
    assert "left over: 'extra'" in said, said
    expect_loss("drawn", f"{name}.npz", want, "--weights=wrapped.safetensors", "--weights-map=^module\\.=")
    compile_("bf16", "--init=pytorch", "--dtype=bf16")
    expect_loss("bf16", f"{name}.npz", want, f"--weights={name}", tolerance=2e-2)
    run("./bf16", f"--data={name}.npz", "--steps=0", f"--weights={name}", "--export=back.safetensors")
    back = load_file("back.safetensors")
    assert all(torch.equal(back[k], v) for k, v in whole.items())  # the masters
    print(name, "starts as it was saved", flush=True)


for each in models():
    check(*each)
