#!/usr/bin/env python3
"""Writes the tensors of a safetensors file as torch.save writes a state_dict, without torch.

save_torch.py IN.safetensors OUT.pt [zip64] [nested] [strided]
zip64: every record in zip64's form; nested: {"model": ..., "optimizer": ..., "step": 3}; strided: matrices lie by columns
save_torch.py IN.safetensors FOLDER universal [NAME]: a universal checkpoint of DeepSpeed, moments 0.25; those of NAME have one element"""
import collections, io, json, os, pickle, struct, sys, types, zipfile

TYPES = {"F32": ("FloatStorage", 4), "F64": ("DoubleStorage", 8), "F16": ("HalfStorage", 2), "BF16": ("BFloat16Storage", 2),
         "I64": ("LongStorage", 8), "I32": ("IntStorage", 4), "BOOL": ("BoolStorage", 1)}


def class_of(module, name, kind=type):
    """What pickles as a name of torch's."""
    there = sys.modules.setdefault(module, types.ModuleType(module))
    made = type(name, (), {}) if kind is type else lambda *args: None
    made.__module__, made.__name__, made.__qualname__ = module, name, name
    setattr(there, name, made)
    return made


STORAGES = {name: class_of("torch", name) for name, _ in TYPES.values()}
rebuild = class_of("torch._utils", "_rebuild_tensor_v2", kind=None)


class Storage:
    def __init__(self, key, name, count):
        self.id = "storage", STORAGES[name], key, "cpu", count


class Tensor:
    def __init__(self, storage, dims, strides):
        self.args = storage, 0, tuple(dims), tuple(strides), False, collections.OrderedDict()

    def __reduce__(self):
        return rebuild, self.args


class Pickler(pickle.Pickler):
    def persistent_id(self, value):
        return value.id if isinstance(value, Storage) else None


def by_columns(data, rows, columns, size):
    at = lambda r, c: data[(r * columns + c) * size:(r * columns + c + 1) * size]
    return b"".join(at(r, c) for c in range(columns) for r in range(rows))


def tensor(key, entry, data, strided):
    name, size = TYPES[entry["dtype"]]
    dims, strides = entry["shape"], []
    for d in reversed(dims):
        strides.insert(0, strides[0] * dims[len(dims) - len(strides)] if strides else 1)
    if strided and len(dims) == 2:
        data, strides = by_columns(data, *dims, size), [1, dims[0]]
    return Tensor(Storage(key, name, len(data) // size), dims, strides), data


def save(target, value, parts, zip64=False):
    text = io.BytesIO()
    Pickler(text, protocol=2).dump(value)
    if zip64:
        zipfile.ZIP64_LIMIT = 0
    with zipfile.ZipFile(target, "w") as z:
        for name, data in [("data.pkl", text.getvalue()), ("byteorder", b"little"), *((f"data/{i}", d) for i, d in enumerate(parts))]:
            with z.open("archive/" + name, "w", force_zip64=zip64) as f:
                f.write(data)


def save_universal(tensors, folder, short):
    for name, (entry, data) in tensors.items():
        os.makedirs(f"{folder}/zero/{name}")
        moment = struct.pack("<f", 0.25) * (len(data) // 4)
        one = {"dtype": "F32", "shape": [1]}, struct.pack("<f", 0.25)
        for file, (e, d) in ("fp32", (entry, data)), ("exp_avg", one if name == short else (entry, moment)), ("exp_avg_sq", (entry, moment)):
            value, part = tensor("0", e, d, False)
            save(f"{folder}/zero/{name}/{file}.pt", value, [part])
    save(f"{folder}/mp_rank_00_model_states.pt", {"global_steps": 3, "global_samples": 24}, [])


def main(source, target, *how):
    raw = open(source, "rb").read()
    begin = 8 + struct.unpack("<Q", raw[:8])[0]
    entries = {n: (e, raw[begin + e["data_offsets"][0]:begin + e["data_offsets"][1]]) for n, e in json.loads(raw[8:begin]).items()
               if n != "__metadata__"}
    if "universal" in how:
        return save_universal(entries, target, how[-1])
    tensors, parts = collections.OrderedDict(), []
    for name, (entry, data) in entries.items():
        tensors[name], part = tensor(str(len(parts)), entry, data, "strided" in how)
        parts.append(part)
    if "nested" in how:
        tensors = {"model": tensors, "optimizer": {"state": {}, "param_groups": [{"lr": 0.5, "params": [0]}]}, "step": 3}
    save(target, tensors, parts, "zip64" in how)


main(*sys.argv[1:])
