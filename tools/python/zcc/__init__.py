"""From PyTorch to zcc and back.

    import zcc
    zcc.export(model, (tokens, labels), loss=loss_of, path="model.onnx")   # keeps every weight; names what is lost
    # $ zcc model.onnx --optimizer=adamw -o train && ./train --data=train.npz --export=trained.safetensors --log=log.jsonl
    zcc.load(model, "trained.safetensors")
    for step in zcc.read_log("log.jsonl"): print(step["step"], step["loss"])
"""
from ._export import Exported, ExportError, export
from ._load import load, read_log

__all__ = ["export", "load", "read_log", "Exported", "ExportError"]
