"""What a compiled program writes: trained weights and the log."""
import json


def load(model, path, strict=True):
    """Loads a program's `--export=FILE.safetensors` into the model it was exported from, in place, and returns the model. Parameters
    on the meta device become what the file holds, on the CPU.

    Every parameter and buffer must be there and nothing else, unless `strict` is false; what PyTorch reports as missing or
    unexpected is then returned by `model.load_state_dict` and ignored."""
    from safetensors.torch import load_file
    tensors = load_file(path)
    if not any(p.is_meta for p in model.parameters()):
        model.load_state_dict(tensors, strict=strict)
        return model
    # Tensors of the meta device are replaced: with their types, and one parameter under several names stays one.
    names = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    types = {name: t.dtype for name, t in model.state_dict().items()}
    model.load_state_dict({n: t.to(types.get(n, t.dtype)) for n, t in tensors.items()}, strict=strict, assign=True)
    for first, *others in names.values():
        for name in others:
            module, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(module), leaf, model.get_parameter(first))
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
