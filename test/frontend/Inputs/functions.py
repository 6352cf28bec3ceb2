"""Models whose local functions call themselves, lie deep, or double: functions.py FOLDER_OF_ONNX_PROTO"""
import subprocess
import sys

HEAD = 'ir_version: 10 opset_import { version: 20 } opset_import { domain: "my" version: 1 }\n'


def function(name, calls, domain="my"):
    """Of a chain of nodes: (operator, domain)."""
    names = ["a"] + [f"t{k}" for k in range(1, len(calls))] + ["r"]
    nodes = "".join(f'node {{ op_type: "{op}" domain: "{d}" input: "{names[k]}" output: "{names[k + 1]}" }} '
                    for k, (op, d) in enumerate(calls))
    return (f'functions {{ name: "{name}" domain: "{domain}" input: "a" output: "r" '
            f'opset_import {{ version: 20 }} opset_import {{ domain: "my" version: 1 }} {nodes}}}\n')


def chain(length, times):
    """F0 calls F1 so many times, and so on; the last is a Tanh."""
    return "".join(function(f"F{k}", [(f"F{k + 1}", "my")] * times) for k in range(length)) + \
        function(f"F{length}", [("Tanh", "")])


def graph(node):
    shape = "shape { dim { dim_value: 4 } }"
    return f'''graph {{ name: "g" input {{ name: "x" type {{ tensor_type {{ elem_type: 1 {shape} }} }} }}
  output {{ name: "loss" type {{ tensor_type {{ elem_type: 1 shape {{ }} }} }} }}
  initializer {{ name: "w" dims: 4 data_type: 1 float_data: [1, 2, 3, 4] }}
  initializer {{ name: "n" data_type: 7 int64_data: 500 }}
  initializer {{ name: "yes" data_type: 9 int32_data: 1 }}
  node {{ op_type: "Mul" input: "x" input: "w" output: "h" }}
  {node}
  node {{ op_type: "ReduceSum" input: "y" output: "loss" attribute {{ name: "keepdims" type: INT i: 0 }} }} }}'''


def call(op, domain="my"):
    return graph(f'node {{ op_type: "{op}" domain: "{domain}" input: "h" output: "y" }}')


def loop(depth, before, after):
    """A Loop of 500 iterations in each of so many, over what is known while compiling."""
    value, result = f"v{depth}", f"r{depth}"
    inner = loop(depth - 1, value, result) if depth else (
        f'node {{ op_type: "Add" input: "{value}" input: "n" output: "{result}" }}')
    return f'''node {{ op_type: "Loop" input: "n" input: "yes" input: "{before}" output: "{after}"
      attribute {{ name: "body" type: GRAPH g {{ name: "b" input {{ name: "i{depth}" }} input {{ name: "c{depth}" }}
        input {{ name: "{value}" }} output {{ name: "c{depth}" }} output {{ name: "{result}" }} {inner} }} }} }} '''


MODELS = {
    "self": function("F", [("F", "my")]) + call("F"),
    "two": function("F", [("G", "my")]) + function("G", [("F", "my")]) + call("F"),
    "relu": function("Relu", [("Relu", "")], "") + call("Relu", ""),
    "deep": chain(10000, 1) + call("F0"),
    "deep190": chain(190, 1) + call("F0"),
    "double": chain(40, 2) + call("F0"),
    "double6": chain(6, 2) + call("F0"),
    "loops": graph(loop(2, "n", "z") + 'node { op_type: "Cast" input: "z" output: "f" '
                   'attribute { name: "to" type: INT i: 1 } } node { op_type: "Mul" input: "h" input: "f" output: "y" }'),
}
for name, text in MODELS.items():
    with open(f"{name}.onnx", "wb") as out:
        subprocess.run(["protoc", f"--proto_path={sys.argv[1]}", "--encode=zcc.onnx_pb.ModelProto", "onnx.proto"],
                       input=(HEAD + text).encode(), stdout=out, check=True)
