"""torch.onnx.export with the options that keep every weight, and what zcc says of the file."""
import contextlib
import copy
import inspect
import json
import os
import re
import shutil
import subprocess
import types
import warnings
from dataclasses import dataclass, field

import torch


class ExportError(RuntimeError):
    """zcc cannot compile what was exported; its message is zcc's own."""


@dataclass
class Exported:
    """What `export` wrote: the file, the names of its inputs, and what zcc found in it."""
    path: str
    inputs: list
    dims: dict = field(default_factory=dict)     # symbolic dimensions, which `zcc --dim=NAME=N` fixes: the sizes of `inputs`
    trained: list = field(default_factory=list)  # names as in model.named_parameters()
    frozen: list = field(default_factory=list)
    lost: list = field(default_factory=list)     # parameters of the model that zcc does not find in the file
    messages: str = ""                           # zcc's warnings


def export(model, inputs, loss=None, path="model.onnx", *, dynamic_shapes=None, zcc=None, check=True):
    """Exports `model` for training by zcc, and checks the result with it.

    inputs   the arguments of a call, a tuple or a dict by name. With a callable `loss` the last ones are its own. An array of the
             training data has an input's name; of a tuple, the names are those of the parameters of `forward` and of `loss`.
    loss     None: the model returns its loss. A callable loss(output, *targets) or a module: added to the graph; `output` is what the
             model returns, `targets` are its parameters without a default, and of a dict those with one that are inputs. A string: one that zcc adds, `cross_entropy(logits, labels)`, where `logits` becomes the name of the output;
             give it to zcc as --loss, too.
    dynamic_shapes   as torch.export takes it; `zcc --dim=NAME=N` fixes them. Static shapes otherwise.
    zcc      the compiler (default: the environment's ZCC, else `zcc` in the PATH). check=False does without.

    The model stays as it is. Parameters on the meta device are exported as absent: `zcc --init=pytorch` draws them, `--weights=`
    brings them. Buffers that no file of weights has, such as frequencies, keep their values where they are not on the meta device
    (as under accelerate's `init_empty_weights()`). Returns an Exported; parameters that the graph has lost are warned about. Raises ExportError where zcc cannot compile it."""
    path = os.fspath(path)
    if isinstance(loss, torch.nn.Module) and any(p.requires_grad for p in loss.parameters()):
        raise ValueError("the loss has parameters, which would stay as they are: put model and loss into one module that returns the loss")
    if _on_meta(model):
        inputs = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to("meta"), inputs)
    module = _with_loss(model, inputs, loss) if callable(loss) else model
    args, kwargs, names = _named(module, inputs)
    outputs = re.findall(r"\(\s*([\w.]+)", loss)[:1] if isinstance(loss, str) else ["loss"]
    with _meta_buffers(module if _on_meta(model) else None) as buffers:
        program = _to_onnx(module, args, kwargs, names, outputs, dynamic_shapes)
    _write(program, path, buffers)
    result = Exported(path, names, _sizes(program, kwargs or dict(zip(names, args))))
    if check:
        _check(result, model, loss if isinstance(loss, str) else None, zcc or os.environ.get("ZCC") or shutil.which("zcc"))
    return result


# ---- the call

def _on_meta(model):
    return any(p.is_meta for p in model.parameters())


@contextlib.contextmanager
def _meta_buffers(module):
    """Lends a module buffers of the meta device, where its parameters are; yields its own by name."""
    own = {}
    for prefix, part in module.named_modules() if module is not None else ():
        for name, tensor in part._buffers.items():
            if tensor is not None and not tensor.is_meta:
                own[f"{prefix}.{name}" if prefix else name] = (part, name, tensor)
    try:
        for part, name, tensor in own.values():
            part._buffers[name] = tensor.to("meta")
        yield {full: tensor for full, (_, _, tensor) in own.items()}
    finally:
        for part, name, tensor in own.values():
            part._buffers[name] = tensor


def _positional(function):
    return [p for p in inspect.signature(function).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _targets(model, inputs, loss):
    """The names of what a loss takes behind the model's output: what it must have, and what it may have that is no input of the model."""
    function = loss.forward if isinstance(loss, torch.nn.Module) else loss
    needed = [p.name for p in _positional(function)[1:] if p.default is p.empty]
    may = [p.name for p in _positional(function)[1:] if p.default is not p.empty]
    own = [p.name for p in _positional(model.forward)]
    if isinstance(inputs, dict):
        return needed + [name for name in may if name in inputs and name not in own]
    return needed + may[:max(0, len(inputs) - len(own) - len(needed))]


def _with_loss(model, inputs, loss):
    """The model with another forward, so that its parameters keep their names."""
    targets = _targets(model, inputs, loss)
    count = len(inputs) - len(targets)
    missing = [t for t in targets if t not in inputs] if isinstance(inputs, dict) else []
    if missing:
        raise ValueError(f"the loss takes '{missing[0]}', which is not among the inputs: {', '.join(inputs)}")
    if count < 1:
        raise ValueError(f"the loss takes {len(targets)} of {len(inputs)} inputs: none is left for the model")
    own = [p.name for p in _positional(model.forward)][:count]
    if isinstance(inputs, dict):
        own = [name for name in inputs if name not in targets]
    clash = set(own) & set(targets)
    if clash:
        raise ValueError(f"'{clash.pop()}' is an input of the model and of the loss: rename the loss's")
    forward = model.forward

    def whole(self, *args, **kw):
        given = dict(zip([*own, *targets], args), **kw)
        return loss(forward(**{n: given[n] for n in own}), **{n: given[n] for n in targets})

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    whole.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in ("self", *own, *targets)])
    module = copy.copy(model)
    module.forward = types.MethodType(whole, module)
    return module


def _named(module, inputs):
    """Positional arguments, those by name, and the names of all."""
    if isinstance(inputs, dict):
        order = [p.name for p in _positional(module.forward)]
        ordered = sorted(inputs, key=lambda n: order.index(n) if n in order else len(order))
        return (), {n: inputs[n] for n in ordered}, ordered
    inputs = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    return inputs, {}, [p.name for p in _positional(module.forward)][:len(inputs)]


# ---- the file

def _to_onnx(module, args, kwargs, names, outputs, dynamic_shapes):
    # optimize=False: else the exporter folds, transposes, merges and renames weights.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Exporting a model while it is in training mode")
        return torch.onnx.export(module, args, kwargs=kwargs or None, dynamo=True, optimize=False, input_names=names,
                                 output_names=outputs or None, dynamic_shapes=dynamic_shapes, verbose=False)


def _sizes(program, tensors):
    """The sizes of symbolic dimensions; zcc calls an axis without a name INPUT.AXIS."""
    sizes = {}
    for value in program.model.graph.inputs:
        for axis, size in enumerate(value.shape if isinstance(tensors.get(value.name), torch.Tensor) else ()):
            if not isinstance(size, int):
                sizes.setdefault(size.value or f"{value.name}.{axis}", tensors[value.name].shape[axis])
    return sizes


def _is_absent(tensor):
    raw = getattr(tensor, "raw", None)
    return isinstance(raw, torch.Tensor) and raw.is_meta


def _write(program, path, buffers):
    """Weights go to PATH.data, aligned as zcc maps them; those of the meta device are ranges of a file that is not there."""
    import onnx_ir as ir
    absent, at = f"{os.path.basename(path)}.absent", 0
    for name, value in program.model.graph.initializers.items():
        tensor = value.const_value
        if _is_absent(tensor) and name in buffers:
            value.const_value = ir.tensor(buffers[name].detach().cpu(), name=name)
        elif _is_absent(tensor):
            value.const_value = ir.ExternalTensor(absent, at, tensor.nbytes, tensor.dtype, shape=tensor.shape, name=name, base_dir="")
            at += tensor.nbytes
    if not at:
        program.save(path, external_data=True)
        return
    import onnx
    onnx.save_model(ir.to_proto(program.model), path)


# ---- what zcc says

def _run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ExportError(done.stderr.strip() or f"'{command[0]}' ended with {done.returncode}")
    return done


def _check(result, model, loss, zcc):
    if not zcc:
        warnings.warn("there is no 'zcc' in the PATH, so the file is not checked; give zcc=... or set ZCC", stacklevel=3)
        return
    flags = [f"--dim={name}={size}" for name, size in result.dims.items()] + ([f"--loss={loss}"] if loss else [])
    if _on_meta(model):
        flags.append("--init=pytorch")
    _run(zcc, "--check", *flags, result.path)
    plan = _run(zcc, "--plan=json", *flags, result.path)
    found = json.loads(plan.stdout)
    result.messages = plan.stderr
    result.trained, result.frozen = list(found["trained"]), list(found["frozen"])
    known = {*result.trained, *result.frozen}
    # Of a tied parameter, zcc has one of the names.
    groups = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    result.lost = [names[0] for names in groups.values() if not known.intersection(names)]
    fixed = [name for name, parameter in model.named_parameters() if not parameter.requires_grad and name in result.trained]
    if fixed:
        flags = f"--freeze='^({'|'.join(map(re.escape, fixed))})$'"
        warnings.warn(f"no file says what requires_grad=False keeps fixed; give zcc {flags}", stacklevel=3)
    if result.lost:
        warnings.warn(f"zcc finds no use of {', '.join(result.lost)} in '{result.path}': the exported graph does not read what the "
                      "output does not depend on", stacklevel=3)
