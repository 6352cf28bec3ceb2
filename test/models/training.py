#!/usr/bin/env python3
"""Makes training/: models that bring their own training step, and the losses that numpy computes for them.

    python3 training.py        needs numpy, onnx

training/{adam,adagrad,momentum,plain}.onnx  TrainingInfoProto: an MLP, a Gradient node, an optimizer, update bindings
training/accumulator.onnx                    the forms of ONNX Runtime's artifact generator: backward operators,
                                             accumulation buffers and parameters as inputs
training/data.npz, training/ref.json         inputs, and the losses of 10 steps
"""
import json, os
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper as nh

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "training")
RNG = np.random.default_rng(0)
N, D, H, C = 6, 5, 8, 3
X = RNG.standard_normal((2 * N, D)).astype(np.float32)
Y = RNG.integers(0, C, 2 * N)
W0 = dict(w1=RNG.standard_normal((D, H)) * 0.5, b1=np.zeros(H), w2=RNG.standard_normal((H, C)) * 0.5)
W0 = {k: v.astype(np.float32) for k, v in W0.items()}


def forward_and_gradient(w, x, y):
    z = x @ w["w1"] + w["b1"]
    a = np.tanh(z)
    s = a @ w["w2"]
    p = np.exp(s - s.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).mean()
    ds = p.copy()
    ds[np.arange(len(y)), y] -= 1
    ds /= len(y)
    dz = (ds @ w["w2"].T) * (1 - a * a)
    return loss, dict(w1=x.T @ dz, b1=dz.sum(0), w2=a.T @ ds)


R, NORM = 0.1, 0.01


def adam(x, g, s, t):
    g = g + NORM * x
    s["v"] = 0.9 * s["v"] + (1 - 0.9) * g
    s["h"] = 0.99 * s["h"] + (1 - 0.99) * g * g
    r = R * np.sqrt(1 - 0.99**t) / (1 - 0.9**t) if t > 0 else R
    return (1 - 0.001) * (x - r * s["v"] / (np.sqrt(s["h"]) + 0.01))


def adagrad(x, g, s, t):
    s["v"] = s["v"] + g * g
    return x - R / (1 + t * 0.1) * g / (np.sqrt(s["v"]) + 1e-3)


def momentum(x, g, s, t):
    s["v"] = 0.9 * s["v"] + (0.8 if t > 0 else 1) * g
    return x - R * (g + 0.9 * s["v"])


def plain(x, g, s, t):
    return x - R * g


def losses(step):
    w = {k: v.astype(np.float64) for k, v in W0.items()}
    states = {k: dict(v=np.zeros_like(v), h=np.zeros_like(v)) for k, v in w.items()}
    out = []
    for t in range(10):
        k = t % 2
        loss, g = forward_and_gradient(w, X[k * N:k * N + N].astype(np.float64), Y[k * N:k * N + N])
        out.append(float(loss))
        w = {n: step(w[n], g[n], states[n], t) for n in w}
    return out


def tensor(name, a):
    return nh.from_array(np.asarray(a), name)


def value(name, kind, *dims):
    return h.make_tensor_value_info(name, kind, dims)


def forward_nodes():
    return [h.make_node("MatMul", ["x", "w1"], ["z0"], name="fc1"), h.make_node("Add", ["z0", "b1"], ["z"], name="bias"),
            h.make_node("Tanh", ["z"], ["a"], name="tanh"), h.make_node("MatMul", ["a", "w2"], ["scores"], name="fc2")]


PREVIEW = "ai.onnx.preview.training"
NAMES = list(W0)


def training_model(kind):
    weights = [tensor(k, v) for k, v in W0.items() if k != "b1"] + [tensor("b1", np.full(H, 7, np.float32))]
    graph = h.make_graph(forward_nodes(), "mlp", [value("x", T.FLOAT, N, D)], [value("scores", T.FLOAT, N, C)], weights)
    grads = ["d_" + n for n in NAMES]
    nodes = [h.make_node("SoftmaxCrossEntropyLoss", ["scores", "y"], ["loss"], name="loss"),
             h.make_node("Gradient", NAMES + ["x"], grads, domain=PREVIEW, name="gradient", xs=NAMES, zs=["x"], y="loss")]
    inits = [tensor("R", np.float32(R)), tensor("T", np.int64(0)), tensor("one", np.int64(1))]
    bindings = {"T": "T_new"}
    nodes.append(h.make_node("Add", ["T", "one"], ["T_new"], name="count"))
    groups = {"adam": 2, "adagrad": 1, "momentum": 1, "plain": 0}[kind]
    states = []
    for s in "vh"[:groups]:
        inits += [tensor(f"{s}_{n}", np.zeros_like(W0[n])) for n in NAMES]
        states += [f"{s}_{n}" for n in NAMES]
    new = [f"{n}_new" for n in NAMES + states]
    bindings.update(zip(NAMES + states, new))
    attributes = {"adam": dict(alpha=0.9, beta=0.99, epsilon=0.01, norm_coefficient=NORM, norm_coefficient_post=0.001),
                  "adagrad": dict(decay_factor=0.1, epsilon=1e-3),
                  "momentum": dict(alpha=0.9, beta=0.8, norm_coefficient=0.0, mode="nesterov")}
    if groups:
        nodes.append(h.make_node(kind.capitalize(), ["R", "T"] + NAMES + grads + states, new, domain=PREVIEW, name=kind,
                                 **attributes[kind]))
    else:
        for n in NAMES:
            nodes += [h.make_node("Mul", ["R", "d_" + n], ["r_" + n]), h.make_node("Sub", [n, "r_" + n], [n + "_new"])]
    algorithm = h.make_graph(nodes, "algorithm", [value("y", T.INT64, N)], [value(o, T.FLOAT) for o in ["loss"] + new], inits)
    zeros = h.make_node("ConstantOfShape", ["shape"], ["b1_first"])
    shape = h.make_node("Constant", [], ["shape"], value=tensor("", np.array([H], np.int64)))
    start = h.make_graph([shape, zeros], "start", [], [value("b1_first", T.FLOAT, H)])
    m = h.make_model(graph, opset_imports=[h.make_opsetid("", 17), h.make_opsetid(PREVIEW, 1)], ir_version=8)
    info = m.training_info.add()
    info.algorithm.CopyFrom(algorithm)
    info.initialization.CopyFrom(start)
    info.initialization_binding.add(key="b1", value="b1_first")
    for k, v in bindings.items():
        info.update_binding.add(key=k, value=v)
    return m


def accumulator_model():
    ms = "com.microsoft"
    back = [
        h.make_node("SoftmaxCrossEntropyLossGrad", ["loss_grad", "log_prob", "y"], ["scores_grad"], domain=ms),
        h.make_node("FusedMatMul", ["a", "scores_grad"], ["w2_grad"], domain=ms, transA=1),
        h.make_node("FusedMatMul", ["scores_grad", "w2"], ["a_grad"], domain=ms, transB=1),
        h.make_node("TanhGrad", ["a", "a_grad"], ["z_grad"], domain=ms),
        h.make_node("FusedMatMul", ["x", "z_grad"], ["w1_grad"], domain=ms, transA=1),
        h.make_node("ReduceSum", ["z_grad", "axes0"], ["b1_grad"], keepdims=0)]
    outs = [value("loss", T.FLOAT)]
    ins = [value("x", T.FLOAT, N, D), value("y", T.INT64, N)]
    for n, w in W0.items():
        back.append(h.make_node("InPlaceAccumulatorV2", [n + "_grad.accumulation.buffer", n + "_grad", "lazy_reset_grad"],
                                [n + "_grad.accumulation.out"], domain=ms))
        outs.append(value(n + "_grad.accumulation.out", T.BOOL, 1))
        ins += [value(n, T.FLOAT, *w.shape), value(n + "_grad.accumulation.buffer", T.FLOAT, *w.shape)]
    ins.append(value("lazy_reset_grad", T.BOOL, 1))
    loss = h.make_node("SoftmaxCrossEntropyLoss", ["scores", "y"], ["loss", "log_prob"], name="loss")
    inits = [tensor("loss_grad", np.float32(1)), tensor("axes0", np.array([0], np.int64))]
    g = h.make_graph(forward_nodes() + [loss] + back, "training", ins, outs, inits)
    return h.make_model(g, opset_imports=[h.make_opsetid("", 17), h.make_opsetid(ms, 1)], ir_version=8)


def main():
    os.makedirs(HERE, exist_ok=True)
    kinds = dict(adam=adam, adagrad=adagrad, momentum=momentum, plain=plain)
    for kind in kinds:
        onnx.save(training_model(kind), os.path.join(HERE, kind + ".onnx"))
    onnx.save(accumulator_model(), os.path.join(HERE, "accumulator.onnx"))
    np.savez(os.path.join(HERE, "data.npz"), x=X, y=Y)
    with open(os.path.join(HERE, "ref.json"), "w") as f:
        json.dump(dict(losses={k: losses(s) for k, s in kinds.items()}), f, indent=0)


if __name__ == "__main__":
    main()
