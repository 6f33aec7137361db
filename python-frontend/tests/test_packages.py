# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packages that know only onnxruntime, unmodified, with lathe in its place."""
import ast
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
RUN = """
import runpy, sys
if sys.argv[1] == "lathe":
    import lathe.onnxruntime
    lathe.onnxruntime.install()
results = runpy.run_path(sys.argv[2])["results"]
import onnxruntime
print(repr((onnxruntime.__name__, results)))
"""


def results(program, library):
    path = os.pathsep.join(map(str, (ROOT / "python-frontend", ROOT / "build/packages")))
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", RUN, library, program], capture_output=True,
                          text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    name, said = ast.literal_eval(done.stdout.splitlines()[-1])
    assert name == ("lathe.onnxruntime" if library == "lathe" else "onnxruntime")
    return said


def agree(got, want, where="results"):
    """Equal, and numbers within 0.001 (probabilities and places in pictures)."""
    assert type(got) is type(want), where
    if isinstance(want, dict):
        assert got.keys() == want.keys(), where
        for key in want:
            agree(got[key], want[key], f"{where}[{key!r}]")
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want), where
        for at, (g, w) in enumerate(zip(got, want)):
            agree(g, w, f"{where}[{at}]")
    elif isinstance(want, float):
        assert abs(got - want) <= 1e-3, (where, got, want)
    else:
        assert got == want, where


@pytest.mark.parametrize("package", ["magika", "silero", "rapidocr"])
def test_package(package):
    program = HERE / "packages" / f"{package}_program.py"
    want = results(program, "onnxruntime")
    assert want and all(want.values())
    agree(results(program, "lathe"), want)
