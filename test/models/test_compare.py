# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lathe compare` passes on right models and finds each of twenty planted faults, by name."""
import os
import re

import pytest

import lathe_cli
from lathe_cli import MODELS, lathe

LLAMA = os.path.join(MODELS, "llama", "dynamo18_sdpa")
# name: model, options, how many faults
PLANTED = {
    "magika": (os.path.join(MODELS, "magika.onnx"), ["--shape=bytes=2x2048"], 6),
    "cls": (os.path.join(MODELS, "ppocr_cls.onnx"), ["--shape=x=1x3x48x97"], 7),
    "llama": (os.path.join(LLAMA, "model.onnx"), ["--data", os.path.join(LLAMA, "padded_chunk")],
              7),
}
CASES = [(name, i) for name, (_, _, count) in PLANTED.items() for i in range(count)]


@pytest.fixture(scope="session")
def kernels(engines):
    """Names of a model's kernels."""
    def of(name):
        model, _, _ = PLANTED[name]
        return [kernel["name"] for kernel in lathe_cli.plans(engines(model))[0]["kernels"]]
    return of


def compare(model, *options, code=0):
    return lathe("compare", model, "--device", lathe_cli.DEVICE, *options, code=code)


def test_twenty_are_planted():
    assert len(CASES) == 20


@pytest.mark.parametrize("name", PLANTED)
def test_nothing_is_wrong(name):
    model, options, _ = PLANTED[name]
    text = compare(model, *options)
    assert text.strip().endswith("PASSED")
    replayed = re.search(r"(\d+) kernel launches, (\d+) replayed", text)
    assert int(replayed[1]) == int(replayed[2]) > 0


@pytest.mark.parametrize("name,which", CASES)
def test_fault_is_found(kernels, name, which):
    model, options, count = PLANTED[name]
    names = kernels(name)
    fault = names[which * (len(names) - 1) // (count - 1)]
    text = compare(model, *options, f"--inject-fault={fault}", code=1)
    first = re.search(r"first wrong: .*kernel (\S+) \(.*\), ONNX nodes (.+)", text)
    assert first, text
    assert first[1] == fault
    assert first[2] != "-"


def test_against_onnxruntime():
    model, options, _ = PLANTED["cls"]
    assert compare(model, *options, "--against=onnxruntime").strip().endswith("PASSED")
