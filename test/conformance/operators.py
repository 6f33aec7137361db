# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which operators, opsets and dtypes lathe compiles, for CPUs and for CUDA: operators.md, by asking it.

    operators.py BIN CORPUS FOLDER             compiles each 60th probe and compares with operators.md
    operators.py BIN CORPUS FOLDER --every=1 [--take]   all of them; --take writes operators.md anew

A probe is a model of one node: of each schema version of ai.onnx and ai.onnx.ml from opset 7 on the shortest model of
the corpus that has it, or its case in test/models/schema_versions.py, with one type parameter of the schema set to one
of its dtypes. lathe-conformance compiles it to kernels; test/conformance/README.md says what runs and how exact it is.
"""
import argparse
import collections
import os
import shutil
import subprocess
import sys

import numpy as np
import onnx
import onnx.parser
from onnx import AttributeProto, TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "operators.md")
sys.path.insert(0, os.path.join(HERE, "..", "models"))
DEVICES = {"CPU": "x86-64-v3", "CUDA": "sm_90a"}
OLDEST = 7
NAMES = {"float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16", "complex64": "c64", "complex128": "c128",
         "string": "string", "bool": "bool", "float8e4m3fn": "f8e4m3fn", "float8e4m3fnuz": "f8e4m3fnuz", "float8e5m2": "f8e5m2",
         "float8e5m2fnuz": "f8e5m2fnuz", "float8e8m0": "f8e8m0", "float6e2m3": "f6e2m3",
         "float6e3m2": "f6e3m2", "float4e2m1": "f4e2m1",
         **{f"{sign}int{bits}": f"{'u' if sign else ''}i{bits}" for sign in ("", "u") for bits in (2, 4, 8, 16, 32, 64)}}
MAPS = [f'<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 1]> g ({given}) => ({result}) {{ y = ai.onnx.ml.{node} }}'
        for given, result, node in (
            ("float[2, 2] x", "seq(map(int64, float)) y", "ZipMap<classlabels_int64s = [1, 2]>(x)"),
            ("map(string, float) x", "float[1, 1] y", 'DictVectorizer<string_vocabulary = ["a"]>(x)'), ("map(int64, float) x", "float[1, N] y", "CastMap(x)"))]
WITHOUT_CASE = MAPS + [f'<ir_version: {ir}, opset_import: ["" : {opset}]> g (float[2] x) => ({result}) {{ {nodes} }}'
                for opset, ir in ((15, 8), (28, 14)) for result, nodes in (
                    ("optional(float[2]) o", "o = Optional(x)"), ("bool h", "o = Optional(x) h = OptionalHasElement(o)"))]
# Attributes that say the dtype of a result.
STATES_DTYPE = ("to", "dtype", "output_dtype")


def versions():
    """{(domain, op): [schema, ...] by version}, of those that are in force at an opset that lathe takes."""
    found = collections.defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain in ("", "ai.onnx.ml"):
            found[schema.domain, schema.name].append(schema)
    for key, schemas in found.items():
        schemas.sort(key=lambda s: s.since_version)
        oldest = OLDEST if not key[0] else 1
        last = max(i for i, s in enumerate(schemas) if i == 0 or s.since_version <= oldest)
        found[key] = [s for s in schemas[last:] if not s.deprecated]
    return found


def constants_of(graph):
    """Tensors of the graph that have a value, by name."""
    found = {t.name: t for t in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            found[node.output[0]] = node.attribute[0].t
    return found


def may_be_sizes(value):
    kind = value.type.tensor_type
    return kind.elem_type in (TensorProto.INT64, TensorProto.INT32) and len(kind.shape.dim) < 2


def alone(model, place):
    """The node as a model of its own; None where it has a graph, its operands' types are not known, or one that may be a
    size, an axis or a position is computed."""
    node = model.graph.node[place]
    if any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.attribute):
        return None
    graph = onnx.shape_inference.infer_shapes(model).graph
    types = {v.name: v for v in [*graph.input, *graph.output, *graph.value_info]}
    constants = constants_of(graph)
    operands = dict.fromkeys(name for name in node.input if name)
    ranked = {name for name, v in types.items() if not v.type.HasField("tensor_type") or v.type.tensor_type.HasField("shape")}
    if any(name not in constants and (name not in ranked or may_be_sizes(types[name])) for name in operands) or any(name and name not in types for name in node.output):
        return None
    one = helper.make_graph([node], "g", [types[name] for name in operands if name not in constants],
                            [types[name] for name in node.output if name])
    for name in operands:
        if name in constants:
            one.initializer.add().CopyFrom(constants[name])
            one.initializer[-1].name = name
    return helper.make_model(one, opset_imports=model.opset_import, ir_version=max(model.ir_version, 4))


def with_sizes(model, folder):
    """The model with vectors of integers behind the first input, which may be sizes, axes or positions, as constants."""
    for at, value in reversed(list(enumerate(model.graph.input))):
        if at and may_be_sizes(value):
            with open(os.path.join(folder, "test_data_set_0", f"input_{at}.pb"), "rb") as f:
                model.graph.initializer.append(TensorProto.FromString(f.read()))
            model.graph.initializer[-1].name = value.name
            del model.graph.input[at]
    model.ir_version = max(model.ir_version, 4)  # before, constants were inputs, too
    return model


def at_version(model, domain, version):
    """The model at this version, which the checker decides on, or None."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for opset in made.opset_import:
        if opset.domain == domain:
            opset.version = version if domain else max(version, OLDEST)
    try:
        onnx.checker.check_model(made, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return None
    return made


def result_element(case, place):
    """What the schema says of a result's type: itself, that of an operand, or of several the first."""
    schema = onnx.defs.get_schema(case.op, case.version, case.domain)
    text = formal(schema.outputs, place).type_str
    same = [x for x, i in zip(case.inputs, range(len(case.inputs))) if formal(schema.inputs, i).type_str == text]
    if same:
        return helper.np_dtype_to_tensor_dtype(np.asarray(same[0]).dtype)
    allowed = [t for c in schema.type_constraints if c.type_param_str == text for t in c.allowed_type_strs]
    return TensorProto.DataType.Value((allowed or [text])[0][7:-1].upper())


def bases(corpus, schemas):
    """{(domain, op, version): a model of this one node}: from the corpus, schema_versions.py, or by the version next to it;
    and the folders of the corpus that they are from, by id of the model."""
    from schema_versions import all_cases
    known = {key: [s.since_version for s in row] for key, row in schemas.items()}
    found = {}

    def offer(model):
        opsets = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}
        for place, node in enumerate(model.graph.node):
            version = max((v for v in known.get((node.domain, node.op_type), []) if v <= opsets[node.domain]), default=None)
            key = (node.domain, node.op_type, version)
            if version is None or key in found:
                continue
            made = model if len(model.graph.node) == 1 else alone(model, place)
            if made is not None and not all(v.type.HasField("tensor_type") for v in made.graph.input):
                made = model  # whole: how many tensors a sequence has is in its data
            if made is not None:
                found[key] = made

    models, folders = [], {}
    for kind in ("node", "simple", "pytorch-operator", "pytorch-converted"):
        for name in sorted(os.listdir(os.path.join(corpus, kind))):
            folder = os.path.join(corpus, kind, name)
            model = onnx.load(os.path.join(folder, "model.onnx"))
            if len(model.graph.node) == 1 and all(v.type.HasField("tensor_type") for v in model.graph.input):
                model = with_sizes(model, folder)
            else:
                folders[id(model)] = folder
            models.append(model)
    models.sort(key=lambda m: len(m.graph.node))
    for text in WITHOUT_CASE:
        offer(onnx.parser.parse_model(text))
    for case in all_cases():
        typed = onnx.shape_inference.infer_shapes(case.model())
        if not all(output.type.WhichOneof("value") for output in typed.graph.output):  # there is none for ai.onnx.ml
            typed = case.model([(result_element(case, i), None) for i in range(case.outputs)])
        offer(typed)
    for model in models:
        offer(model)
    for (domain, op), row in schemas.items():
        for schema in row:
            key = (domain, op, schema.since_version)
            for _, near in sorted((abs(v - schema.since_version), v) for d, n, v in found if (d, n) == key[:2]):
                if key in found:
                    break
                if (model := at_version(found[domain, op, near], domain, schema.since_version)) is not None:
                    found[key] = model
                    folders[id(model)] = folders.get(id(found[domain, op, near]))
    return found, folders


def dtype_name(text):
    """"f32" of "tensor(float)"; None of a sequence, optional or map."""
    return NAMES[text[7:-1]] if text.startswith("tensor(") else None


def formal(parameters, place):
    return parameters[min(place, len(parameters) - 1)]


def cast(tensor, element):
    """The tensor with another element type; strings that are to be numbers are zeros."""
    array = numpy_helper.to_array(tensor)
    if element == TensorProto.STRING:
        return helper.make_tensor(tensor.name, element, array.shape, [str(x) for x in array.ravel()])
    array = np.zeros(array.shape) if array.dtype == object else array
    with np.errstate(invalid="ignore"):
        return numpy_helper.from_array(array.astype(np.float32).astype(helper.tensor_dtype_to_np_dtype(element)), tensor.name)


def set_int(node, name, value):
    for attribute in list(node.attribute):
        if attribute.name == name:
            node.attribute.remove(attribute)
    node.attribute.append(helper.make_attribute(name, int(value)))


def with_dtype(model, schema, parameter, text):
    """The model with every operand and result of the type parameter, and what states it, of the dtype "tensor(...)"."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph, node = made.graph, made.graph.node[0]
    element = TensorProto.DataType.Value(text[7:-1].upper())
    if node.op_type == "BitCast":
        parameter = None  # both have one width: here one type
    results = [name for i, name in enumerate(node.output) if name and parameter in (None, formal(schema.outputs, i).type_str)]
    names = {name for i, name in enumerate(node.input) if name and parameter in (None, formal(schema.inputs, i).type_str)}.union(results)
    for value in [*graph.input, *graph.output]:
        if value.name in names:
            value.type.tensor_type.elem_type = element
    for i, tensor in enumerate(graph.initializer):
        if tensor.name in names:
            graph.initializer[i].CopyFrom(cast(tensor, element))
    if results and (parameter is None or not names.difference(results)):
        for attribute in node.attribute:
            if attribute.name in STATES_DTYPE:
                attribute.i = element
            elif attribute.name == "value":
                attribute.t.CopyFrom(cast(attribute.t, element))
    if node.op_type == "Mod":
        set_int(node, "fmod", dtype_name(text)[0] not in "iu")  # floats are allowed with it alone
    return made


def probes(corpus):
    """[(domain, op, version, parameter, dtype, model, folder of data or None)]; of an op whose operands are no tensors, or
    that has graphs, the parameter and dtype are "-"."""
    schemas = versions()
    found, folders = bases(corpus, schemas)
    rows = []
    for (domain, op), row in sorted(schemas.items(), key=lambda item: (item[0][0], item[0][1])):
        for schema in row:
            key = (domain, op, schema.since_version)
            model = found.get(key)
            used = {formal(schema.inputs, i).type_str for i, n in enumerate(model.graph.node[0].input) if n} | {
                formal(schema.outputs, i).type_str for i, n in enumerate(model.graph.node[0].output) if n} if model else set()
            fixed = not model or len(model.graph.node) > 1 or any(a.HasField("g") for a in model.graph.node[0].attribute) or any(
                not v.type.HasField("tensor_type") for v in [*model.graph.input, *model.graph.output])
            free = [] if fixed else [c for c in schema.type_constraints if c.type_param_str in used]
            if not all(any(map(dtype_name, c.allowed_type_strs)) for c in free):  # one is of sequences alone
                free = []
            for c in free:
                texts = sorted(filter(dtype_name, c.allowed_type_strs), key=lambda t: list(NAMES).index(t[7:-1]))
                rows += [(*key, c.type_param_str, dtype_name(t), with_dtype(model, schema, c.type_param_str, t), None) for t in texts]
            if not free:
                rows.append((*key, "-", "-", model, folders.get(id(model))))
    return rows


def compiled(program, folder, rows):
    """{device: [whether each row compiles]}; a row without a model does not."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(os.path.join(folder, "index.tsv"), "w") as index:
        for i, row in enumerate(rows):
            if row[5] is None:
                continue
            os.makedirs(os.path.join(folder, "probe", str(i)), exist_ok=True)
            onnx.save(row[5], os.path.join(folder, "probe", str(i), "model.onnx"))
            if row[6]:  # how many tensors a sequence has
                shutil.copytree(os.path.join(row[6], "test_data_set_0"), os.path.join(folder, "probe", str(i), "test_data_set_0"))
            index.write(f"probe/{i}\t0\t0\t{row[1]}\t{row[4]}\n")
    found = {}
    for device, target in DEVICES.items():
        ledger = os.path.join(folder, f"{target}.tsv")
        subprocess.run([program, folder, f"--target={target}", "--emit-only", "-o", ledger], check=True)
        with open(ledger) as f:
            said = dict(line.split("\t")[:2] for line in f if line.startswith("probe/"))
        found[device] = [said.get(f"probe/{i}") in ("compiled", "frozen") for i in range(len(rows))]
    return found


def cell(dtypes, taken):
    """What is taken of them in the fewest words; `expand` is the way back."""
    left = [d for d in dtypes if d not in taken]
    if not left:
        return "all"
    if not taken:
        return "none"
    return "all but " + " ".join(left) if len(left) < len(taken) else " ".join(taken)


def expand(dtypes, text):
    if text.startswith("all"):
        return set(dtypes) - set(text[7:].split())
    return set(text.split()) - {"none"}


def table(rows, found):
    groups = collections.OrderedDict()
    for i, row in enumerate(rows):
        groups.setdefault(row[:4], []).append(i)
    counts = ", ".join(f"{sum(found[d])} for {d}" for d in DEVICES)
    yield "# Operators, opsets, dtypes, devices"
    yield ""
    yield f"What lathe compiles, by compiling it: {len(rows)} models of one node each, {counts}. Made by `operators.py`; how exact"
    yield "the results are is in the ledgers beside it."
    yield "A row: an operator, the opset of its schema, one type parameter of the schema, the dtypes that ONNX allows there, and which of"
    yield "them compile while the other parameters and the attributes are as in the test, so that a table of strings wants strings."
    yield "`-`: the operator takes graphs, sequences, optionals or maps, or has no type parameter. Strings and images are ops of the"
    yield "host, of which a GPU has none."
    yield ""
    yield "| operator | opset | type | dtypes | " + " | ".join(DEVICES) + " |"
    yield "|---|---|---|---|" + "---|" * len(DEVICES)
    for (domain, op, version, parameter), places in groups.items():
        dtypes = [rows[i][4] for i in places]
        cells = [cell(dtypes, [rows[i][4] for i in places if found[d][i]]) for d in DEVICES]
        if dtypes == ["-"]:
            cells = ["yes" if text == "all" else "no" for text in cells]
        yield f"| {domain + '.' if domain else ''}{op} | {version} | {parameter} | {' '.join(dtypes)} | {' | '.join(cells)} |"


def read_table():
    """{(operator, version, parameter, dtype): {device: whether it compiles}} of operators.md."""
    known = {}
    with open(TABLE) as f:
        for line in f:
            words = [w.strip() for w in line.strip().strip("|").split("|")]
            if len(words) != 4 + len(DEVICES) or not words[1].isdigit():
                continue
            dtypes = words[3].split()
            for dtype in dtypes:
                known[(words[0], int(words[1]), words[2], dtype)] = {
                    d: text == "yes" if dtype == "-" else dtype in expand(dtypes, text) for d, text in zip(DEVICES, words[4:])}
    return known


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="BIN", help="lathe-conformance")
    parser.add_argument("corpus", help="what make_corpus.py writes")
    parser.add_argument("folder", help="where models and ledgers are written")
    parser.add_argument("--every", type=int, default=60, help="one probe in so many (default: 60)")
    parser.add_argument("--take", action="store_true", help="write operators.md; wants --every=1")
    options = parser.parse_args()
    if options.take and options.every != 1:
        parser.error("--take wants --every=1")
    everything = probes(options.corpus)
    rows = everything[::options.every]
    found = compiled(options.program, options.folder, rows)
    if options.take:
        with open(TABLE, "w") as f:
            f.writelines(line + "\n" for line in table(rows, found))
    known = read_table()
    keys = {(f"{row[0]}.{row[1]}".lstrip("."), *row[2:5]) for row in everything}
    failures = [f"{key}: no row in operators.md" for key in sorted(keys - known.keys())]
    failures += [f"{key}: a row of operators.md that there is no probe for" for key in sorted(known.keys() - keys)]
    for i, row in enumerate(rows):
        key = (f"{row[0]}.{row[1]}".lstrip("."), *row[2:5])
        failures += [f"{key}: {'compiles' if found[d][i] else 'does not compile'} for {d}, operators.md says otherwise"
                     for d in DEVICES if key in known and known[key][d] != found[d][i]]
    print("\n".join(failures))
    print(f"{len(DEVICES) * len(rows) - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
