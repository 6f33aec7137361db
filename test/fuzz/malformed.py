# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Malformed models: each a file that a checker must refuse, with the place it must name.

`CASES` maps a name to (file name, write(path), regex). The regex is the place that the message must
name: the node, value, initializer or line at fault, never the wording.
"""
import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
CASES = {}


def case(place, file="model.onnx"):
    """Registers a builder: it returns a model, or bytes, or None when it wrote the files itself."""
    def register(build):
        def write(path):
            made = build(os.path.dirname(path)) if build.__code__.co_argcount else build()
            if made is not None:
                with open(path, "wb") as f:
                    f.write(made if isinstance(made, bytes) else made.SerializeToString())
        CASES[build.__name__] = (file, write, place)
        return build
    return register


def value(name, shape, dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, constants=(), opset=22, functions=(), domains=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    imports = [helper.make_opsetid("", opset), *[helper.make_opsetid(d, 1) for d in domains]]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions),
                             ir_version=10)


def node(op, inputs, outputs, name="bad_node", **attributes):
    return helper.make_node(op, inputs, outputs, name=name, **attributes)


def one_node(op, shapes, constants=(), dtype=FLOAT, **attributes):
    """A model of one node `bad_node` on inputs of these shapes; sizes of the output are left open."""
    inputs = [value(f"x{i}", s, dtype) for i, s in enumerate(shapes)]
    names = [i.name for i in inputs] + [c.name for c in constants]
    return model([node(op, names, ["y"], **attributes)], inputs,
                 [value("y", [None] * len(shapes[0]))], constants)


def ints(name, *values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def relu(constants=()):
    return model([node("Add", ["x", "w"], ["y"])], [value("x", [2])], [value("y", [2])], constants)


def good_bytes():
    return relu([numpy_helper.from_array(np.ones(2, np.float32), "w")]).SerializeToString()


# Files that are no model.
@case(r"model\.onnx")
def empty_file():
    return b""


@case(r"model\.onnx")
def truncated():
    return good_bytes()[:-17]


@case(r"model\.onnx")
def random_bytes():
    return np.random.default_rng(3).bytes(4096)


@case(r"model\.onnx")
def plain_text():
    return b"this is no model\n" * 20


@case(r"model\.onnx")
def length_past_the_end():
    return good_bytes() + b"\x3a\xff\xff\xff\x7f"


@case(r"model\.onnxtxt.*(:|line:? )[45]\b", file="model.onnxtxt")
def text_syntax():
    return (b'<ir_version: 10, opset_import: ["" : 22]>\n'
            b"g (float[2] x) => (float[2] y)\n{\n  y = Relu(x\n}\n")


@case(r"model\.onnxtxt", file="model.onnxtxt")
def text_unknown_type():
    return (b'<ir_version: 10, opset_import: ["" : 22]>\n'
            b"g (floaty[2] x) => (float[2] y)\n{\n  y = Relu(x)\n}\n")


@case(r"model\.mlir:2", file="model.mlir")
def mlir_syntax():
    return b"module {\n  func.func @main( {\n}\n"


# Models without what every model has.
@case(r"graph")
def no_graph():
    return onnx.ModelProto(ir_version=10, opset_import=[helper.make_opsetid("", 22)])


@case(r"opset")
def no_opset():
    made = relu([numpy_helper.from_array(np.ones(2, np.float32), "w")])
    del made.opset_import[:]
    return made


@case(r"9999")
def opset_of_the_future():
    return model([node("Relu", ["x"], ["y"])], [value("x", [2])], [value("y", [2])], opset=9999)


@case(r"ir_version|IR version")
def no_ir_version():
    made = relu([numpy_helper.from_array(np.ones(2, np.float32), "w")])
    made.ClearField("ir_version")
    return made


# Values.
@case(r"twice")
def value_made_twice():
    return model([node("Relu", ["x"], ["twice"], "first"), node("Neg", ["x"], ["twice"]),
                  node("Abs", ["twice"], ["y"], "last")], [value("x", [2])], [value("y", [2])])


@case(r"later")
def used_before_made():
    return model([node("Neg", ["later"], ["y"]), node("Relu", ["x"], ["later"], "maker")],
                 [value("x", [2])], [value("y", [2])])


@case(r"nowhere")
def undefined_value():
    return model([node("Add", ["x", "nowhere"], ["y"])], [value("x", [2])], [value("y", [2])])


@case(r"missing_output")
def output_not_made():
    return model([node("Relu", ["x"], ["y"])], [value("x", [2])],
                 [value("y", [2]), value("missing_output", [2])])


@case(r"same_name")
def input_twice():
    return model([node("Relu", ["same_name"], ["y"])],
                 [value("same_name", [2]), value("same_name", [3])], [value("y", [2])])


@case(r"typeless")
def input_without_type():
    made = model([node("Relu", ["typeless"], ["y"])], [value("typeless", [2])], [value("y", [2])])
    made.graph.input[0].ClearField("type")
    return made


@case(r"undefined_type|bad_node")
def input_of_undefined_type():
    return model([node("Relu", ["undefined_type"], ["y"])], [value("undefined_type", [2], 0)],
                 [value("y", [2])])


# Nodes.
@case(r"bad_node")
def unknown_op():
    return one_node("Frobnicate", [[2]])


@case(r"bad_node")
def unknown_domain():
    made = model([node("Foo", ["x"], ["y"], domain="com.acme")], [value("x", [2])],
                 [value("y", [2])], domains=["com.acme"])
    return made


@case(r"bad_node|com\.nobody")
def domain_not_imported():
    return model([node("Foo", ["x"], ["y"], domain="com.nobody")], [value("x", [2])],
                 [value("y", [2])])


@case(r"bad_node")
def attribute_missing():
    return one_node("Concat", [[2], [2]])


@case(r"bad_node")
def attribute_of_wrong_type():
    return one_node("Concat", [[2], [2]], axis=1.5)


@case(r"bad_node")
def attribute_unknown():
    return one_node("Relu", [[2]], sharpness=3)


@case(r"bad_node|axis")
def attribute_twice():
    made = one_node("Softmax", [[2, 3]], axis=1)
    made.graph.node[0].attribute.append(helper.make_attribute("axis", 0))
    return made


@case(r"bad_node")
def too_few_inputs():
    return one_node("Add", [[2]])


@case(r"bad_node")
def too_many_inputs():
    return one_node("Relu", [[2], [2]])


@case(r"bad_node")
def mixed_types():
    return model([node("Add", ["x", "n"], ["y"])], [value("x", [2]), value("n", [2], INT64)],
                 [value("y", [2])])


@case(r"bad_node")
def cast_to_nothing():
    return one_node("Cast", [[2]], to=99)


# Shapes.
@case(r"bad_node")
def matmul_inner_sizes():
    return one_node("MatMul", [[3, 4], [5, 6]])


@case(r"bad_node")
def add_no_broadcast():
    return one_node("Add", [[3], [4]])


@case(r"bad_node")
def conv_channels():
    return one_node("Conv", [[1, 3, 8, 8], [4, 5, 3, 3]])


@case(r"bad_node")
def conv_groups():
    return one_node("Conv", [[1, 4, 8, 8], [4, 2, 3, 3]], group=3)


@case(r"bad_node")
def conv_stride_zero():
    return one_node("Conv", [[1, 3, 8, 8], [4, 3, 3, 3]], strides=[0, 1])


@case(r"bad_node")
def conv_pads_count():
    return one_node("Conv", [[1, 3, 8, 8], [4, 3, 3, 3]], pads=[1, 1, 1])


@case(r"bad_node")
def pool_kernel_rank():
    return one_node("MaxPool", [[1, 3, 8, 8]], kernel_shape=[2, 2, 2])


@case(r"bad_node")
def reshape_count():
    return one_node("Reshape", [[2, 3]], [ints("shape", 4, 2)])


@case(r"bad_node")
def reshape_two_unknown():
    return one_node("Reshape", [[2, 3]], [ints("shape", -1, -1)])


@case(r"bad_node")
def transpose_no_permutation():
    return one_node("Transpose", [[2, 3]], perm=[0, 0])


@case(r"bad_node")
def concat_axis():
    return one_node("Concat", [[2, 3], [2, 3]], axis=5)


@case(r"bad_node")
def concat_sizes():
    return one_node("Concat", [[2, 3], [2, 4]], axis=0)


@case(r"bad_node")
def squeeze_of_two():
    return one_node("Squeeze", [[2, 3]], [ints("axes", 0)])


@case(r"bad_node")
def slice_step_zero():
    return one_node("Slice", [[4]], [ints("starts", 0), ints("ends", 4), ints("axes", 0),
                                     ints("steps", 0)])


@case(r"bad_node")
def softmax_axis():
    return one_node("Softmax", [[2, 3]], axis=7)


@case(r"bad_node")
def split_sum():
    made = one_node("Split", [[5]], [ints("split", 2, 2)], axis=0)
    made.graph.node[0].output.append("z")
    return made


# Initializers.
def bad_constant(dims=(2,), data_type=FLOAT, raw=None):
    tensor = TensorProto(name="bad_constant", data_type=data_type, dims=list(dims))
    if raw is not None:
        tensor.raw_data = raw
    return model([node("Add", ["x", "bad_constant"], ["y"])], [value("x", [2])],
                 [value("y", [2])], [tensor])


@case(r"bad_constant")
def constant_too_short():
    return bad_constant(raw=b"\0" * 7)


@case(r"bad_constant")
def constant_too_long():
    return bad_constant(raw=b"\0" * 12)


@case(r"bad_constant")
def constant_without_data():
    return bad_constant()


@case(r"bad_constant")
def constant_negative_size():
    return bad_constant(dims=[-2], raw=b"\0" * 8)


@case(r"bad_constant")
def constant_size_overflows():
    return bad_constant(dims=[1 << 40, 1 << 40], raw=b"\0" * 8)


@case(r"bad_constant")
def constant_of_unknown_type():
    return bad_constant(data_type=99, raw=b"\0" * 8)


# External data: never outside the model's folder, never past the end of the file.
def external(location, offset=None, length=None):
    made = bad_constant()
    tensor = made.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (("location", location), ("offset", offset), ("length", length)):
        if text is not None:
            tensor.external_data.add(key=key, value=str(text))
    return made


@case(r"bad_constant")
def external_parent(folder):
    with open(os.path.join(folder, "..", "outside.bin"), "wb") as f:
        f.write(b"\0" * 8)
    return external("../outside.bin", 0, 8)


@case(r"bad_constant")
def external_absolute(folder):
    path = os.path.abspath(os.path.join(folder, "inside.bin"))
    with open(path, "wb") as f:
        f.write(b"\0" * 8)
    return external(path, 0, 8)


@case(r"bad_constant")
def external_link(folder):
    target = os.path.join(folder, "..", "outside.bin")
    with open(target, "wb") as f:
        f.write(b"\0" * 8)
    link = os.path.join(folder, "link.bin")
    if not os.path.islink(link):
        os.symlink(target, link)
    return external("link.bin", 0, 8)


@case(r"bad_constant")
def external_not_there():
    return external("nothing.bin", 0, 8)


@case(r"bad_constant")
def external_past_the_end(folder):
    with open(os.path.join(folder, "short.bin"), "wb") as f:
        f.write(b"\0" * 8)
    return external("short.bin", 4, 8)


@case(r"bad_constant")
def external_negative_offset(folder):
    with open(os.path.join(folder, "short.bin"), "wb") as f:
        f.write(b"\0" * 8)
    return external("short.bin", -8, 8)


@case(r"bad_constant")
def external_without_location():
    return external(None)


# Subgraphs and functions.
def branch(name, output):
    return helper.make_graph([helper.make_node("Relu", ["x"], [output])], name, [],
                             [value(output, [2])])


@case(r"bad_node")
def if_without_else():
    return model([node("If", ["c"], ["y"], then_branch=branch("t", "a"))],
                 [value("c", [], TensorProto.BOOL), value("x", [2])], [value("y", [2])])


@case(r"bad_node|\bempty\b")
def if_branch_outputs():
    empty = helper.make_graph([], "empty", [], [])
    return model([node("If", ["c"], ["y"], then_branch=branch("t", "a"), else_branch=empty)],
                 [value("c", [], TensorProto.BOOL), value("x", [2])], [value("y", [2])])


@case(r"bad_node|Loopy")
def function_calls_itself():
    imports = [helper.make_opsetid("", 22), helper.make_opsetid("own", 1)]
    function = helper.make_function(
        "own", "Loopy", ["a"], ["b"],
        [helper.make_node("Loopy", ["a"], ["b"], domain="own", name="inner")], imports)
    return model([node("Loopy", ["x"], ["y"], domain="own")], [value("x", [2])],
                 [value("y", [2])], functions=[function], domains=["own"])


def doubling(depth, inside=lambda node: node):
    """A model of `depth` functions, each of two calls of the next: 2^(depth - 1) nodes of the last."""
    imports = [helper.make_opsetid("", 22), helper.make_opsetid("own", 1)]
    functions = [helper.make_function("own", "F0", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])],
                                      imports)]
    for i in range(1, depth):
        calls = [helper.make_node(f"F{i - 1}", ["a"], ["m"], domain="own"),
                 helper.make_node(f"F{i - 1}", ["m"], ["b"], domain="own")]
        functions.append(helper.make_function("own", f"F{i}", ["a"], ["b"], calls, imports))
    call = node(f"F{depth - 1}", ["x"], ["y"], domain="own")
    return model([inside(call)], [value("c", [], TensorProto.BOOL), value("x", [2])],
                 [value("y", [2])], functions=functions, domains=["own"])


@case(r"bad_node")
def functions_multiply():
    return doubling(40)


@case(r"bad_node")
def functions_multiply_in_a_branch():
    def inside(call):
        call.name, call.output[0] = "call", "a"
        then = helper.make_graph([call], "t", [], [value("a", [2])])
        return node("If", ["c"], ["y"], then_branch=then, else_branch=branch("e", "b"))
    return doubling(23, inside)


@case(r"function 'F\d+'")
def functions_call_too_deep():
    made = doubling(1000)
    for function in made.functions:
        del function.node[1:]
        function.node[0].output[0] = "b"
    return made


def field(number, data):
    """A length-delimited field of a protobuf message."""
    size, prefix = len(data), b""
    while size > 127:
        prefix, size = prefix + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + prefix + bytes([size]) + data


@case(r"model\.onnx")
def nested_too_deep():
    # A branch in a branch, written by hand: the Python package refuses to.
    graph = field(2, b"innermost")
    for _ in range(5000):
        attribute = field(1, b"then_branch") + field(6, graph) + b"\xa0\x01\x05"
        graph = field(1, field(4, b"If") + field(5, attribute))
    opset = field(8, b"\x10\x16")
    return b"\x08\x0a" + opset + field(7, graph + field(2, b"g"))
