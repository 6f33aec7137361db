# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The wheels that tools/wheel writes, each in an environment that has numpy and nothing else."""
import os
import pathlib
import re
import resource
import subprocess
import sys
import venv
import zipfile

import numpy as np
import onnx
import pytest
from conftest import affine_model

import lathe

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """(of lathe-compiler, of lathe-runtime); tools/wheel has checked sizes and the platform."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run([ROOT / "tools/wheel", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    compiler, runtime = sorted(folder.glob("*.whl"))
    return compiler, runtime


def environment(folder, wheel):
    """Python of a new environment with the wheel and the numpy of this one; it sees no other program."""
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python3*/site-packages"))
    for part in pathlib.Path(np.__file__).parents[1].glob("numpy*"):
        (site / part.name).symlink_to(part)
    subprocess.run([sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "-q", "--no-index",
                    "--no-deps", "--disable-pip-version-check", wheel], check=True)
    return folder / "bin"


def run(folder, *command):
    return subprocess.run([folder / command[0], *command[1:]], capture_output=True, text=True, cwd=folder,
                          env={"PATH": str(folder), "HOME": str(folder), "LATHE_NO_CACHE": "1"})


def check(folder, program):
    done = run(folder, "python", "-c", program)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def installed(wheels, tmp_path_factory):
    return environment(tmp_path_factory.mktemp("compiler") / "env", wheels[0])


def test_names_and_content(wheels):
    compiler, runtime = wheels
    assert re.fullmatch(r"lathe_compiler-[\d.]+-py3-none-manylinux_2_34_x86_64\.whl", compiler.name)
    assert re.fullmatch(r"lathe_runtime-[\d.]+-py3-none-manylinux_2_34_x86_64\.whl", runtime.name)
    names = zipfile.ZipFile(compiler).namelist()
    assert {"lathe/py.typed", "lathe/lib/liblathe_compiler.so", "lathe/licenses/llvm"} <= set(names)
    assert not [n for n in zipfile.ZipFile(runtime).namelist() if "compiler.so" in n]


def test_one_version():
    """The package, the wheels, the build and the compiler say the same."""
    said = {"package": lathe.__version__}
    for name, file, pattern in [
            ("wheel", "python-frontend/pyproject.toml", r'^version = "(.*)"'),
            ("runtime", "python-frontend/runtime/pyproject.toml", r'^version = "(.*)"'),
            ("build", "CMakeLists.txt", r"^project\(lathe VERSION (\S+)")]:
        said[name] = re.search(pattern, (ROOT / file).read_text(), re.M)[1]
    said["compiler"] = lathe._compiler.library().lathe_compiler_version().decode().split()[-1]
    assert set(said.values()) == {lathe.__version__}, said


def children_seconds():
    """Processor time of the processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_import_is_quick(installed):
    """At most 0.2 s of processor time, numpy included; of several tries the best, as others work too."""
    program = "import time; begin = time.process_time(); import lathe; print(time.process_time() - begin)"
    best = min(float(check(installed, program)) for _ in range(5))
    print(f"import: {best:.3f} s of processor time")
    assert best <= 0.2, best


def test_first_model(installed):
    """Compiled and run where there is no compiler, no linker and no library but numpy, in at most 10 s of processor
    time: others work beside it."""
    model, weight, bias = affine_model()
    onnx.save(model, installed / "affine.onnx")
    begin = children_seconds()
    printed = check(installed, """
import lathe, numpy as np
assert "env" in lathe.__file__, lathe.__file__
engine = lathe.compile("affine.onnx")
print(repr(engine.run({"x": np.ones((2, 8), np.float32)})["y"].numpy().tolist()))""")
    seconds = children_seconds() - begin
    print(f"first model: {seconds:.2f} s of processor time")
    assert 0 < seconds <= 10
    np.testing.assert_allclose(eval(printed), np.maximum(np.ones((2, 8)) @ weight + bias, 0), rtol=1e-5)


def test_commands(installed):
    onnx.save(affine_model()[0], installed / "model.onnx")
    done = run(installed, "lathe", "compile", "model.onnx", "-o", "model.lathe")
    assert done.returncode == 0, done.stderr
    done = run(installed, "lathe", "run", "model.lathe", "--input", "x=nothing.npy")
    assert done.returncode == 2 and "nothing.npy" in done.stderr
    assert run(installed, "lathe", "--version").stdout.strip() == f"lathe {lathe.__version__}"
    (installed / "f.mlir").write_text(
        "func.func @f(%a: i32) -> i32 { %b = arith.constant 1 : i32  return %a : i32 }")
    done = run(installed, "lathe-opt", "--canonicalize", "f.mlir")
    assert done.returncode == 0 and "arith.constant" not in done.stdout, done.stderr


def test_nvrtc_beside_it(installed):
    """What the extra `cuda` brings is found, also where no environment is activated."""
    site = next(installed.parent.glob("lib/python3*/site-packages"))
    (site / "nvidia").symlink_to(pathlib.Path(np.__file__).parents[1] / "nvidia")
    onnx.save(affine_model()[0], installed / "affine.onnx")
    assert check(installed, """
import lathe
print(len(lathe.compile("affine.onnx", target="sm_90a").inputs()))""") == "1\n"


def test_runtime_alone(wheels, installed, tmp_path):
    folder = environment(tmp_path / "env", wheels[1])
    onnx.save(affine_model()[0], installed / "model.onnx")
    assert run(installed, "lathe", "compile", "model.onnx", "-o", "model.lathe").returncode == 0
    os.rename(installed / "model.lathe", folder / "model.lathe")
    assert check(folder, """
import lathe, numpy as np
print(lathe.load("model.lathe").run({"x": np.zeros((3, 8), np.float32)})["s"].shape)
try:
    lathe.compile("model.onnx")
except lathe.Error as error:
    assert "install lathe-compiler" in str(error) and error.code == lathe.Code.UNSUPPORTED""") == "(3,)\n"
