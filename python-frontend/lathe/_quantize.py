# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""quantize(): `lathe quantize`, with examples that Python makes."""
from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

import numpy as np

from ._command_output import output_of
from ._compiler import Bounds, PathLike, bounds_text, model_file
from ._errors import Code, Error

Examples = Union[str, "os.PathLike[str]", Iterable[Mapping[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Quantized:
    """A quantized model, and how it came about.

    model    the bytes of the ONNX file, or its path where quantize() was given one: what lathe.compile takes
    recipe   the decisions: ranges of activations, bits of weights, which products
    report   with report=True: of each layer range, share of clipped inputs, signal to quantization noise, what its
             loss is made of, microseconds before and after; of each output what it loses
    notes    what the command said: what keeps its type, and why
    """

    model: str | bytes
    recipe: dict[str, Any]
    report: dict[str, Any] | None
    notes: list[str]


def quantize(model: Any, data: Examples | None = None, output: PathLike | None = None, *, scheme: str = "",
             recipe: PathLike | None = None, range: str = "minmax", method: str = "rtn",  # noqa: A002
             keep: Sequence[str] = (), budget: str = "", metric: str = "", dynamic: bool = False, report: bool = False,
             recipe_output: PathLike | None = None, report_output: PathLike | None = None,
             device: str = "cpu", dims: Mapping[str, Bounds] | None = None,
             shapes: Mapping[str, Sequence[int]] | None = None, options: Iterable[tuple[str, Any]] = ()) -> Quantized:
    """Quantizes an ONNX model: its matrix products and convolutions read codes, nothing else is changed.

    `model` is a path, the bytes of a .onnx file or an onnx.ModelProto. `data` are examples: an iterable, which may be a
    generator, of mappings from inputs to arrays, each of them one run; or a path that `lathe quantize --data` takes.
    Schemes of weights alone need none. With `output` the model is written there; without, it is Quantized.model.

    scheme   "w8a8-int8", "w8a16", "w4a16", "mxfp4", "nf4", "w8a8-fp8", "f16", "bf16"; several with commas for a budget
    budget   "loss=0.001", "latency=80%" or "2.5ms", "size=50%" or "10M": a scheme for each layer, by what it loses and
             gains
    metric   what a budget calls loss: "mse", "kl", "cosine", "top1", or a file of Python with loss(want, got)
    recipe   a file of decisions, in place of a scheme
    range    what activations span: "minmax", "moving:0.1", "percentile:99.99", "mse", "kl"
    method   how weights get codes: "rtn", "gptq", "awq", "smoothquant"; with commas also "cle", "bias-correction"
    keep     patterns of nodes, results or weights that stay f32
    dynamic  each run finds the ranges of activations
    report   whether Quantized.report is wanted, which takes runs of both models
    recipe_output  a file (.json) for the recipe, which `lathe compile --recipe` and `lathe compare --bisect` take
    report_output  a file (.html) for the report as a page, and .json beside it
    dims, shapes   as lathe.compile takes them
    options  further (name, value) pairs of `lathe quantize`, e.g. ("group", 32)
    """
    report = report or report_output is not None
    with tempfile.TemporaryDirectory(prefix="lathe-quantize") as folder:
        written = os.fspath(output) if output is not None else os.path.join(folder, "model.onnx")
        recipe_file = os.fspath(recipe_output) if recipe_output is not None else os.path.join(folder, "recipe.json")
        report_file = os.fspath(report_output) if report_output is not None else os.path.join(folder, "report.json")
        arguments = ["-o", written, "--recipe-out", recipe_file, f"--device={device}"]
        arguments += [f"--recipe={os.fspath(recipe)}"] if recipe is not None else []
        arguments += [f"--scheme={scheme}", f"--range={range}", f"--method={method}"] if scheme else []
        arguments += ["--dynamic"] if dynamic else []
        arguments += [f"--budget={budget}"] if budget else []
        arguments += [f"--metric={metric}"] if metric else []
        arguments += [f"--report={report_file}"] if report else []
        arguments += [f"--keep={pattern}" for pattern in keep]
        arguments += [f"--dim={k}={bounds_text(v)}" for k, v in (dims or {}).items()]
        arguments += [f"--shape={k}={'x'.join(map(str, v))}" for k, v in (shapes or {}).items()]
        arguments += [f"--{name}={value}" for name, value in options]
        if data is not None:
            arguments += ["--data=" + (os.fspath(data) if isinstance(data, (str, os.PathLike)) else
                                       _write(data, os.path.join(folder, "data")))]
        with model_file(model) as path:
            notes = [line.strip() for line in output_of(["quantize", path, *arguments], path).splitlines()]
        with open(recipe_file, encoding="utf-8") as file:
            decisions = json.load(file)
        said = None
        if report:
            with open(os.path.splitext(report_file)[0] + ".json", encoding="utf-8") as file:
                said = json.load(file)
        if output is not None:
            return Quantized(written, decisions, said, notes)
        with open(written, "rb") as file:
            return Quantized(file.read(), decisions, said, notes)


def _write(data: Iterable[Mapping[str, Any]], folder: str) -> str:
    """An archive an example, one after another, so that no two need be in memory at once."""
    os.mkdir(folder)
    count = 0
    for count, example in enumerate(data, 1):
        if not isinstance(example, Mapping):
            raise Error(Code.USAGE, f"is a {type(example).__name__}, not a mapping from inputs to arrays",
                        f"example {count - 1}")
        # numpy.savez has parameters that an input may be called like.
        with zipfile.ZipFile(os.path.join(folder, f"example_{count - 1:08}.npz"), "w") as archive:
            for name, value in example.items():
                # Without the time of day: the same examples are the same bytes, by which a stopped run is continued.
                with archive.open(zipfile.ZipInfo(name + ".npy"), "w", force_zip64=True) as member:
                    np.save(member, np.asarray(value), allow_pickle=False)
    if not count:
        raise Error(Code.USAGE, "there is no example", "data")
    return folder
