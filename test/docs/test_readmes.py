# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every command and code block of every README does what it says."""
import functools
import os
import re
import shlex
import subprocess
import sys

import numpy as np
import onnx.parser
import onnx.helper as oh
import pytest
from onnx import TensorProto, numpy_helper, save

from readmes import ROOT, all_blocks, blocks_of, options_named

BUILD = os.environ.get("LATHE_BUILD", os.path.join(ROOT, "build"))
LATHE = os.path.join(BUILD, "bin", "lathe")
BLOCKS = all_blocks()
# What takes minutes, installs, or needs what the checkout does not hold; see README.md.
SLOW = {
    "tools/check": "it is what runs this",
    ".venv/bin/pip install": "installs packages",
    ".venv/bin/python test/accuracy/run.py": "downloads packages, trains and tests for an hour",
    ".venv/bin/python test/perf/export_models.py": "exports for minutes",
    ".venv/bin/python test/perf/breadth.py": "exports, compiles and races for hours",
    ".venv/bin/python test/perf/race.py": "races for minutes",
    ".venv/bin/python test/perf/race_ops.py": "trains trees with packages of test/perf/requirements.txt, and races for minutes; "
                                              "test/tools/test_race_ops.py prepares rows that need neither",
    "test/perf/gpu/race_attention.py": "needs a GPU and torch for it",
    "build/bin/lathe-conformance": "the corpus suite of tools/check runs it",
    ".venv/bin/python test/conformance/check_ledger.py": "makes a run the committed ledger",
    ".venv/bin/python test/conformance/operators.py": "the suite of other modes in tools/check runs it",
    ".venv/bin/python test/fuzz/against_onnxruntime.py": "the suite of random graphs in tools/check runs it",
    ".venv/bin/python test/conformance/check_modes.py": "makes a run the committed ledger of a mode",
    "build/bin/lathe-kv-bench": "measures for a minute",
    "build/bin/lathe-kv-replay": "replays for minutes",
    "test/perf/kv/plot.py": "draws what that replay writes",
    "build/bin/lathe-planner-bench": "measures for minutes",
    ".venv/bin/python test/perf/mesh/against_simgrid.py": "needs SimGrid, and takes minutes",
}
NO_DEVICE = 4  # what a verb ends with where there is no such device
VERBS = ("compile", "run", "bench", "tune", "inspect", "compare", "plan", "generate", "explain", "quantize", "prune", "shard", "simulate", "keygen", "sign", "verify")
PHASES = ("import", "legalize", "fuse", "select", "plan")


def kinds(*names):
    return [pytest.param(b, id=str(b)) for b in BLOCKS if b.kind in names]


@pytest.fixture(scope="session")
def desk(tmp_path_factory):
    """The folder in which a reader would try the commands."""
    folder = tmp_path_factory.mktemp("desk")
    for name in os.listdir(ROOT):
        if name not in (".git", "model.onnx"):
            os.symlink(os.path.join(ROOT, name), folder / name)
    if not (folder / "build").exists():
        os.symlink(BUILD, folder / "build")
    rng = np.random.default_rng(0)
    w, b = rng.standard_normal((8, 4), np.float32), rng.standard_normal(4, np.float32)
    graph = oh.make_graph(
        [oh.make_node("MatMul", ["x", "w"], ["p"]), oh.make_node("Add", ["p", "b"], ["s"]),
         oh.make_node("Relu", ["s"], ["y"])], "layer",
        [oh.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
        [oh.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")])
    save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 21)], ir_version=10),
         folder / "model.onnx")
    with open(os.path.join(ROOT, "test", "tools", "Inputs", "decoder.onnxtxt")) as f:
        text = "\n".join(line for line in f.read().splitlines() if not line.startswith("#"))
    save(onnx.parser.parse_model(text), folder / "decoder.onnx")
    x = rng.standard_normal((1, 8), np.float32)
    np.save(folder / "input.npy", x)
    (folder / "problem.csv").write_text("id,lower,upper,size\na,0,4,64\nb,2,6,32\nc,4,8,64\n")
    (folder / "layer.onnxtxt").write_text(
        '<ir_version: 9, opset_import: ["" : 17]>\n'
        "layer (float[N, 4] x, float[4, 2] w, float[2] b) => (float[N, 2] y) {\n"
        "  p = MatMul(x, w)\n  s = Add(p, b)\n  y = Relu(s)\n}\n")
    subprocess.run([LATHE, "compile", "model.onnx", "-o", "model.lathe"], cwd=folder, check=True,
                   capture_output=True)
    return folder


def shell(command, folder, code=0):
    path = os.pathsep.join([os.path.join(ROOT, ".venv", "bin"), os.environ["PATH"]])
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=300, env={**os.environ, "PATH": path})
    text = done.stdout + done.stderr
    assert done.returncode == code, f"{command}\nended with {done.returncode}, not {code}:\n{text[-3000:]}"
    return text


@functools.cache
def help_of(program):
    """What the program prints for --help; all verbs of `lathe`."""
    calls = [[*program, "--help"]]
    if program[-1] == LATHE:
        calls += [[LATHE, verb, "--help"] for verb in VERBS]
    return "".join(subprocess.run(call, capture_output=True, text=True, cwd=ROOT).stdout
                   for call in calls)


def program_of(command):
    """The words that name the program: the interpreter's script, too."""
    words = shlex.split(command)
    if words[0].endswith(".py"):
        return (sys.executable, os.path.join(ROOT, words[0]))
    count = 2 if words[0].endswith("/python") else 1
    return tuple(os.path.join(ROOT, word) if "/" in word else word for word in words[:count])


@pytest.mark.parametrize("block", kinds("sh"))
def test_commands(block, desk):
    for command in block.commands():
        if command == "tools/demo":
            demo_output()
            continue
        slow = next((why for start, why in SLOW.items() if command.startswith(start)), None)
        if slow:
            program = program_of(command)
            assert os.path.exists(program[-1]), f"{block}: {program[-1]} is not there"
            missing = options_named(command) - options_named(help_of(program))
            if "pip install" not in command and options_named(command):
                assert not missing, f"{block}: --help of {program[-1]} has no {missing}"
            continue
        # A program of one's own stands in the block ahead of the command that compiles it.
        if command.startswith("cc app.c"):
            continue
        wants_gpu = "--device cuda" in command and not os.environ.get("LATHE_TEST_DEVICE")
        shell(command, desk, NO_DEVICE if wants_gpu else 0)


@pytest.mark.parametrize("block", kinds("c"))
def test_c(block, desk):
    compile_it, = [c for b in BLOCKS if b.file == block.file and b.kind == "sh"
                   for c in b.commands() if c.startswith("cc ")]
    (desk / "app.c").write_text(block.text)
    shell(compile_it, desk)
    assert re.fullmatch(r"-?\d+\.\d+\n", shell("./a.out", desk))


@pytest.mark.parametrize("block", kinds("python"))
def test_python(block, desk):
    (desk / "block.py").write_text("import numpy as np\nx = np.zeros((1, 8), np.float32)\n" + block.text)
    shell(f"PYTHONPATH={ROOT}/python-frontend {sys.executable} block.py", desk)


def pattern_of(line):
    """A README's line of IR: elisions stand for anything, and a line goes on to its end."""
    return ".*".join(re.escape(part.strip()) for part in line.split("...")) + ".*$"


@pytest.mark.parametrize("block", kinds("mlir"))
def test_mlir(block, desk):
    texts = {}
    for phase in PHASES:
        shell(f"{LATHE} compile layer.onnxtxt --target=x86-64-v3 --dim N=1:8:64 "
              f"--stop-after={phase} -o {phase}.mlir", desk)
        texts[phase] = re.sub(r" loc\([^()]*\)", "", (desk / f"{phase}.mlir").read_text())
    wanted = [pattern_of(line) for line in block.text.splitlines() if line.strip("} ")]
    missing = {phase: [w for w in wanted if not re.search(w, text, re.M)]
               for phase, text in texts.items()}
    fewest = min(missing, key=lambda phase: len(missing[phase]))
    assert not missing[fewest], f"{block}: --stop-after={fewest} prints no line like {missing[fewest]}"


@functools.cache
def demo_output():
    done = subprocess.run(["tools/demo"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def first_words(text):
    """The name that each row begins with."""
    return [line.split()[0] for line in text.splitlines() if line.split() and line.split()[0] != "..."]


def kernel_rows(text):
    """Name, number of launches and configuration of each row of `inspect --kernels`."""
    return re.findall(r"^  (?:(\S+) +(\d+)| +) +([a-z]\S*\.v\d\S*)", text, re.M)


@pytest.mark.parametrize("block", kinds("text"))
def test_output(block, desk):
    """Output as a README shows it: each row begins as the program's own does."""
    if block.text.startswith("magika"):
        got = set(first_words(demo_output()))
        # Which files of the build it looks at is no promise.
        rows = [w for w in first_words(block.text) if "/" not in w]
        assert not [w for w in rows if w not in got]
    elif block.text.split()[0] == "kernel":
        command = [b for b in BLOCKS if b.file == block.file and b.line < block.line][-1].text
        assert kernel_rows(block.text) == kernel_rows(shell(command, desk))
    elif block.file == "runtime/memory/README.md":
        # A picture: its states are those of the interface.
        with open(os.path.join(ROOT, "include/lathe/runtime/KvTypes.h")) as f:
            known = f.read().lower()
        states = {"free", "reserved", "committed", "evictable"}
        assert not [s for s in states if s in block.text and s not in known]
    else:
        pytest.fail(f"{block}: say how this output comes about")


def test_options():
    """Options that the top README names exist."""
    with open(os.path.join(ROOT, "README.md")) as f:
        text = f.read()
    named = options_named("\n".join(line for line in text.splitlines() if "cmake" not in line and "pkg-config" not in line))
    known = options_named(help_of((LATHE,)))
    known |= {"--full", "--test", "--help", "--stat", "--filter", "--gtest"}  # of tools/check and setup, git, lit, GoogleTest
    assert not named - known, f"no verb has {named - known}"


def test_blocks_are_found():
    text = "a\n\n    tools/x --y  # z\n    # w\n\n```c\nint x;\n```\nb\n```\nout\n```\n"
    found = blocks_of(text)
    assert [(b.kind, b.line) for b in found] == [("sh", 3), ("c", 6), ("text", 10)]
    assert found[0].commands() == ["tools/x --y"]
