# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The package is typed, neither mypy nor ruff finds anything, and the examples of its docstrings are true."""
import doctest
import importlib
import pathlib
import subprocess
import sys

import numpy as np
import onnx.parser
import pytest

import lathe

FOLDER = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize("tool", [("mypy", "--no-incremental"), ("ruff", "check", "--no-cache", ".")],
                         ids=lambda tool: tool[0])
def test_clean(tool):
    done = subprocess.run([sys.executable, "-m", *tool], cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_examples_of_docstrings():
    """They may use `engine`, of y = x + x; a docstring's other names are its own."""
    engine = lathe.compile(onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> double (float[N] x) => (float[N] y) { y = Add(x, x) }'))
    ran = 0
    for name in ("_compiler", "_context", "_engine", "_tensor", "_report", "_group", "_llm", "_plan"):
        done = doctest.testmod(importlib.import_module(f"lathe.{name}"), optionflags=doctest.ELLIPSIS,
                               extraglobs={"engine": engine, "lathe": lathe, "np": np})
        assert not done.failed, name
        ran += done.attempted
    assert ran >= 9


USER = """
import numpy as np
import lathe

engine: lathe.Engine = lathe.compile("m.onnx", dims={"N": (1, 8, 64)}, remarks=True)
context: lathe.Context = engine.context(threads=2)
y: lathe.Tensor = context.run({"x": np.zeros(3)})["y"]
total: float = sum(row.seconds for row in lathe.Profile().rows)
names: list[str] = [port.name for port in engine.inputs()]
reveal_type(engine.symbols()[0].max)
wrong: int = engine.build_id
lathe.compile("m.onnx", dims=3)
"""


def test_programs_are_checked(tmp_path):
    """mypy sees the package's types from outside: what is right passes, what is wrong does not."""
    (tmp_path / "user.py").write_text(USER)
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--no-incremental", "user.py"], cwd=tmp_path,
                          capture_output=True, text=True, env={"MYPYPATH": str(FOLDER), "PATH": "/usr/bin"})
    lines = [line for line in done.stdout.splitlines() if "error" in line or "note" in line]
    assert 'note: Revealed type is "' in lines[0] and "int" in lines[0], done.stdout
    assert "user.py:11: error" in lines[1] and "user.py:12: error" in lines[2] and len(lines) == 4, done.stdout
