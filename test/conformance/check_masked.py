# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The same engines and the same results whatever processor compiles and runs.

    check_masked.py CORPUS LATHE_CONFORMANCE OUT

Compiles and runs some tests of the corpus, and functions in f64 that run or that the compiler folds,
for x86-64-v3: on this machine; with glibc's newer code switched off (GLIBC_TUNABLES); and a few of them
on an emulated Haswell (qemu-user), which has no AVX-512. The bytes of every engine and of every
output must be equal. Last line: `N passed, N failed`, a test for each model and way.
"""
import os
import shutil
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# What computes with functions of libm anywhere: the kernels' helpers, polynomials, sums, tables of
# cosines, folding.
OPS = {"Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Attention", "BatchNormalization",
       "BlackmanWindow", "Conv", "Cos", "Cosh", "DFT", "Elu", "Erf", "Exp", "Gelu", "Gemm", "GRU",
       "HannWindow", "LSTM", "LayerNormalization", "Log", "LogSoftmax", "LpPool", "MatMul", "Mish",
       "Mod", "Pow", "ReduceLogSumExp", "Resize", "RotaryEmbedding", "Selu", "Sigmoid", "Sin", "Sinh",
       "Softmax", "Softplus", "Tan", "Tanh", "model"}
# What is emulated takes some thirty times as long.
EMULATED = {"node/test_acosh", "node/test_attention_3d", "node/test_pow", "node/test_sin",
            "node/test_matmul_2d", "node/test_gelu_default_1", "node/test_tanh"}
COMPUTED = ["Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Erf", "Exp", "Log",
            "Sigmoid", "Sin", "Sinh", "Softplus", "Sqrt", "Tan", "Tanh"]
MASKED = "glibc.cpu.hwcaps=" + ",".join("-" + level for level in (
    "AVX", "AVX2", "FMA", "FMA4", "AVX512F", "AVX512VL", "AVX512BW", "AVX512DQ", "BMI2", "ERMS"))


def computed_model(op, folder, folded):
    """op in f64, where each unit is seen, and that to a power; of a constant or of an input."""
    data = f"{folder}/test_data_set_0"
    os.makedirs(data)
    x = numpy_helper.from_array(np.linspace(0.01, 0.99, 4999) + (op == "Acosh"), "x")
    nodes = [helper.make_node(op, ["x"], ["f"]), helper.make_node("Pow", ["f", "x"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, [4999]) for name in "xy"]
    inputs, constants = ([], [x]) if folded else (ends[:1], [])
    graph = helper.make_graph(nodes, op, inputs, ends[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10),
              f"{folder}/model.onnx")
    if not folded:
        with open(f"{data}/input_0.pb", "wb") as f:
            f.write(x.SerializeToString())


def corpora(corpus, out):
    """Two folders like the corpus: of what is masked, and of what is emulated as well."""
    shutil.rmtree(out, ignore_errors=True)
    with open(f"{corpus}/index.tsv") as f:
        rows = [line.split("\t") for line in f]
    seen, chosen = {}, []
    for row in rows:
        op = row[3]
        if op in OPS and seen.setdefault(op, 0) < 4 or row[0] in EMULATED:
            seen[op] = seen.get(op, 0) + 1
            chosen.append(row)
    for name in ("masked", "emulated"):
        os.makedirs(f"{out}/{name}")
        for kind in ("node", "simple", "light", "pytorch-converted", "pytorch-operator"):
            os.symlink(os.path.abspath(f"{corpus}/{kind}"), f"{out}/{name}/{kind}")
        for op in COMPUTED:
            for kind in ("folded", "run"):
                computed_model(op, f"{out}/{name}/{kind}/{op}", kind == "folded")
        with open(f"{out}/{name}/index.tsv", "w") as f:
            for row in chosen:
                if name == "masked" or row[0] in EMULATED:
                    f.write("\t".join(row))
            f.writelines(f"{kind}/{op}\t1\t1\t{op}\tdouble\n" for kind in ("folded", "run")
                         for op in COMPUTED)


def digests(program, folder, way, environment=None, launcher=()):
    """{test: (engine's, outputs')} of a run of a way of its own, without the cache's objects."""
    result = f"{folder}/{way}"
    run = subprocess.run(
        [*launcher, program, folder, "--target=x86-64-v3", "-o", result + ".tsv",
         "--digests", result + ".digests"], capture_output=True, text=True,
        env=os.environ | {"LATHE_NO_CACHE": "1"} | (environment or {}))
    if run.returncode:
        print(f"{way}: {run.stdout}{run.stderr}")
        return {}
    with open(result + ".digests") as f:
        return {name: tuple(rest) for name, *rest in (line.rstrip("\n").split("\t") for line in f)}


def differences(want, got):
    """Names and what differs, or is not there."""
    for name, (engine, outputs) in want.items():
        other = got.get(name, ("", ""))
        if not engine or not outputs:
            yield name, "gives nothing to compare"
        elif other[0] != engine:
            yield name, "another engine"
        elif other[1] != outputs:
            yield name, "other results"


def main(argv):
    corpus, program, out = argv[1:4]
    corpora(corpus, out)
    here = digests(program, f"{out}/masked", "here")
    few = {name: both for name, both in here.items()
           if name in EMULATED or name.startswith(("folded/", "run/"))}
    ways = (("masked", here, digests(program, f"{out}/masked", "masked", {"GLIBC_TUNABLES": MASKED})),
            ("emulated", few, digests(program, f"{out}/emulated", "emulated",
                                      launcher=("qemu-x86_64", "-cpu", "Haswell"))))
    checks = failed = 0
    for way, want, got in ways:
        problems = list(differences(want, got))
        for name, what in problems[:20]:
            print(f"{way}: {name}: {what}")
        checks += max(len(want), 1)
        failed += len(problems) if want else 1
    print(f"{checks - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
