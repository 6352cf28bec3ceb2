#!/usr/bin/env python3
"""Makes microsoft/: every com.microsoft operator that ONNX Runtime computes on CPUs, in one graph.

    python3 microsoft.py        needs numpy, onnx, onnxruntime

microsoft/model.onnx  each node's results minus what ONNX Runtime gave, the loss is the largest of all
microsoft/data.npz    integer operands and ONNX Runtime's results; floats are the model's weights
"""
import os
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper as h, numpy_helper

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "microsoft")
RNG = np.random.default_rng(0)


def floats(*d):
    return RNG.standard_normal(d).astype(np.float32)


def ints(lo, hi, *d):
    return RNG.integers(lo, hi, d).astype(np.int32)


def longs(*x):
    return np.array(x, np.int64)


F, I = floats, ints
MASK = np.array([[1] * 7, [1] * 4 + [0] * 3], np.int32)
PAST = lambda: F(2, 4, 2, 4)
LENGTHS = (np.array([4, 4], np.int32), np.array(5, np.int32))
KV = dict(num_heads=4, kv_num_heads=2)
HEADS = dict(num_heads=4)
CASES = [  # operator, operands (None: left out), results (None: not asked for), attributes
    ("Gelu", [F(3, 5)], 1, {}),
    ("FastGelu", [F(2, 3, 5), F(5)], 1, {}),
    ("FastGelu", [F(2, 5)], 1, {}),
    ("QuickGelu", [F(3, 5)], 1, {}),
    ("QuickGelu", [F(3, 5)], 1, dict(alpha=2.0)),
    ("BiasGelu", [F(2, 3, 5), F(5)], 1, {}),
    (".SimplifiedLayerNormalization", [F(2, 3, 8), F(8)], 1, dict(axis=-1, epsilon=1e-5)),
    ("SkipLayerNormalization", [F(2, 3, 8), F(2, 3, 8), F(8), F(8), F(8)], 4, dict(epsilon=1e-5)),
    ("SkipLayerNormalization", [F(2, 3, 8), F(3, 8), F(8)], 1, {}),
    ("SkipSimplifiedLayerNormalization", [F(2, 3, 8), F(2, 3, 8), F(8), F(8)], 4, dict(epsilon=1e-5)),
    ("EmbedLayerNormalization", [I(0, 9, 2, 4), I(0, 2, 2, 4), F(9, 8), F(6, 8), F(2, 8), F(8), F(8),
                                 np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)], 2, {}),
    ("FusedMatMul", [F(2, 4, 3), F(2, 5, 4)], 1, dict(alpha=0.5, transA=1, transB=1)),
    ("FusedMatMul", [F(3, 2, 4), F(2, 4, 5)], 1, dict(transBatchA=1)),
    ("FusedMatMul", [F(3, 2, 4), F(2, 3, 5)], 1, dict(transBatchA=1, transA=1)),
    ("FusedGemm", [F(3, 4), F(5, 4), F(5)], 1, dict(transB=1, activation="Relu")),
    ("FusedGemm", [F(3, 4), F(4, 5), F(5)], 1, dict(activation="LeakyRelu", activation_alpha=0.2)),
    ("FusedConv", [F(1, 3, 6, 6), F(4, 3, 3, 3), F(4)], 1, dict(activation="Relu", kernel_shape=[3, 3])),
    ("FusedConv", [F(1, 3, 6, 6), F(4, 3, 3, 3), F(4), F(1, 4, 4, 4)], 1,
     dict(activation="Clip", activation_params=[-0.5, 0.5], kernel_shape=[3, 3])),
    ("FusedConv", [F(1, 3, 6, 6), F(4, 3, 3, 3), F(4)], 1,
     dict(activation="HardSigmoid", activation_params=[0.3, 0.4], kernel_shape=[3, 3])),
    ("RotaryEmbedding", [F(2, 5, 16), I(0, 8, 2, 5).astype(np.int64), F(10, 4), F(10, 4)], 1, {}),
    ("RotaryEmbedding", [F(2, 5, 16), longs(2), F(10, 4), F(10, 4)], 1, dict(interleaved=1)),
    ("RotaryEmbedding", [F(2, 2, 5, 8), I(0, 8, 2, 5).astype(np.int64), F(10, 2), F(10, 2)], 1,
     dict(rotary_embedding_dim=4, num_heads=2)),
    ("MultiHeadAttention", [F(2, 5, 16), F(2, 7, 16), F(2, 7, 16), F(48)], 1, dict(scale=0.3, **HEADS)),
    ("MultiHeadAttention", [F(2, 5, 16), F(2, 7, 16), F(2, 7, 16), None, MASK], 1, HEADS),
    ("MultiHeadAttention", [F(2, 5, 16), F(2, 7, 16), F(2, 7, 16), None, np.array([7, 3], np.int32)], 1, HEADS),
    ("MultiHeadAttention", [F(2, 5, 16), F(2, 7, 16), F(2, 7, 16), None, None, F(1, 4, 5, 7)], 1, HEADS),
    ("MultiHeadAttention", [F(2, 5, 16), F(2, 5, 16), F(2, 5, 16)], 1, dict(unidirectional=1, **HEADS)),
    ("MultiHeadAttention", [F(2, 3, 16), F(2, 3, 16), F(2, 3, 16), None, None, None, PAST(), PAST()], 3, HEADS),
    ("MultiHeadAttention", [F(2, 5, 16), F(2, 4, 7, 4), F(2, 4, 7, 4)], 1, HEADS),
    ("Attention", [F(2, 5, 16), F(16, 48), F(48)], 1, HEADS),
    ("Attention", [F(2, 5, 16), F(16, 48), F(48), np.array([5, 3], np.int32)], 1, HEADS),
    ("Attention", [F(2, 5, 16), F(16, 48), F(48), I(0, 2, 2, 5, 5)], 1, dict(unidirectional=1, **HEADS)),
    ("Attention", [F(2, 5, 16), F(16, 40), F(40)], 1, dict(qkv_hidden_sizes=[16, 16, 8], **HEADS)),
    ("Attention", [F(2, 5, 16), F(16, 48), F(48), None, None, F(2, 4, 5, 5)], 1, dict(scale=0.2, **HEADS)),
    ("Attention", [F(2, 3, 16), F(16, 48), F(48), None, F(2, 2, 4, 2, 4)], 2, dict(unidirectional=1, **HEADS)),
    ("GroupQueryAttention", [F(2, 5, 32), F(2, 5, 16), F(2, 5, 16), None, None, *LENGTHS], 3, KV),
    ("GroupQueryAttention", [F(2, 5, 64), F(2, 5, 32), F(2, 5, 32), None, None, *LENGTHS, F(8, 8), F(8, 8)], 3,
     dict(do_rotary=1, **KV)),
    ("GroupQueryAttention", [F(2, 5, 64), None, None, None, None, *LENGTHS], 1, dict(local_window_size=2, **KV)),
    ("GroupQueryAttention", [F(2, 5, 32), F(2, 5, 16), F(2, 5, 16), F(2, 2, 0, 8), F(2, 2, 0, 8), *LENGTHS], 1,
     dict(softcap=1.5, scale=0.4, **KV)),
    ("GatherND", [F(3, 4, 5), I(0, 3, 2, 2).astype(np.int64)], 1, {}),
]
SKIPPED = {"SkipLayerNormalization": (1, 2), "SkipSimplifiedLayerNormalization": (1, 2)}  # training-only results


def model(nodes, inputs, outputs, weights):
    g = h.make_graph(nodes, "microsoft", inputs, outputs, weights)
    return h.make_model(g, opset_imports=[h.make_opsetid("", 18), h.make_opsetid("com.microsoft", 1)], ir_version=8)


def type_of(op, result):
    return TensorProto.INT32 if op == "EmbedLayerNormalization" and result.endswith(".o1") else TensorProto.FLOAT


def describe(name, a):
    return h.make_tensor_value_info(name, h.np_dtype_to_tensor_dtype(a.dtype), a.shape)


def main():
    ort.set_default_logger_severity(3)
    nodes, inputs, weights, data, largest = [], [], [], {}, []
    for k, (op, operands, results, attributes) in enumerate(CASES):
        names, own, feed = [], [], []
        for i, a in enumerate(operands):
            name = f"n{k}.i{i}"
            names.append("" if a is None else name)
            if a is None:
                continue
            tensor = numpy_helper.from_array(a, name)
            if a.dtype == np.float32:
                own.append(tensor)
            elif op == "GroupQueryAttention":  # ONNX Runtime wants them; they limit nothing here
                own.append(tensor)
            else:
                feed.append(describe(name, a))
                data[name] = a
        skipped = SKIPPED.get(op, ())
        outs = ["" if r in skipped else f"n{k}.o{r}" for r in range(results)]
        domain = "" if op.startswith(".") else "com.microsoft"
        node = h.make_node(op.lstrip("."), names, outs, name=f"n{k}.{op}", domain=domain, **attributes)
        wanted = [o for o in outs if o]
        described = [h.make_tensor_value_info(o, type_of(op, o), None) for o in wanted]
        one = model([node], feed, described, own)
        session = ort.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"])
        results = session.run(None, {f.name: data[f.name] for f in feed})
        nodes.append(node)
        inputs += feed
        weights += own
        for o, r in zip(wanted, results):
            data[o + ".expected"] = r.astype(np.float32)
            inputs.append(describe(o + ".expected", data[o + ".expected"]))
            nodes += [h.make_node("Cast", [o], [o + ".f"], to=TensorProto.FLOAT),
                      h.make_node("Sub", [o + ".f", o + ".expected"], [o + ".d"]), h.make_node("Abs", [o + ".d"], [o + ".a"]),
                      h.make_node("ReduceMax", [o + ".a"], [o + ".m"], keepdims=0, name=o)]
            largest.append(o + ".m")
    nodes.append(h.make_node("Max", largest, ["loss"], name="largest"))
    os.makedirs(HERE, exist_ok=True)
    loss = h.make_tensor_value_info("loss", TensorProto.FLOAT, ())
    onnx.save(model(nodes, inputs, [loss], weights), os.path.join(HERE, "model.onnx"))
    np.savez_compressed(os.path.join(HERE, "data.npz"), **data)


if __name__ == "__main__":
    main()
