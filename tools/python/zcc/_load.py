"""What a compiled program writes: trained weights and the log."""
import json


def load(model, path, strict=True):
    """Loads a program's `--export=FILE.safetensors` into the model it was exported from, in place, and returns the model.

    Every parameter and buffer must be there and nothing else, unless `strict` is false; what PyTorch reports as missing or
    unexpected is then returned by `model.load_state_dict` and ignored."""
    from safetensors.torch import load_file
    model.load_state_dict(load_file(path), strict=strict)
    return model


def read_log(path):
    """The objects of a `--log=FILE.jsonl`, one for each step. A last line that a killed program left half-written is left out."""
    rows = []
    with open(path, encoding="utf-8") as f:
        lines = f.read().split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as e:
            if number == len(lines):
                break
            raise ValueError(f"{path}:{number}: not a log of zcc: {e}") from e
    return rows
