# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks of a mesh that are processes, on the CPU and on GPUs that the fake driver stands in for: what all are told.

On these GPUs no kernel computes; memory of the ranks goes from process to process all the same.
"""
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe

WORKER = """
import json, sys
import numpy as np
import lathe
path, device = sys.argv[1:3]
rank, port, rows, steps = map(int, sys.argv[3:])
def say(**what):
    print(json.dumps(what), flush=True)
try:
    engine = lathe.load(path)
    context = engine.rank(rank, 2, port=port, device=device, threads=1, join=20, deadline=20, silence=1)
    say(rank=context.rank, ranks=context.ranks)
    x = np.arange(rows * 64, dtype=np.float32).reshape(rows, 64)
    ahead = [context.submit([x]) for _ in range(min(steps, 8))]
    for step in ahead:
        step.wait()
    say(ran=True)
    if steps == 0:  # all go on together where one cancels what it has submitted
        ended = []
        for turn in range(20):
            ahead = [context.submit([x]) for _ in range(3)]
            if turn % 2 == rank:
                ahead[turn % 3].cancel()
            for step in ahead:
                try:
                    step.wait()
                    ended.append(True)
                except lathe.Error as problem:
                    if problem.code not in (lathe.Code.CANCELLED, lathe.Code.PEER_LOST):
                        raise
                    ended.append(False)
            context.run([x])
        say(ended=ended)
    while steps > 8:
        context.run([x])
except lathe.Error as problem:
    say(code=problem.code.name, text=str(problem))
"""
NVRTC = pytest.mark.skipif(not importlib.util.find_spec("nvidia") and "LATHE_NVRTC" not in os.environ,
                           reason="compiling for GPUs wants NVRTC")
DEVICES = ["cpu", pytest.param("fake", marks=NVRTC)]


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    """Two products divided among two ranks, by target: the one of the CPU and the one of GPUs."""
    folder = tmp_path_factory.mktemp("mesh")
    random = np.random.default_rng(1)
    weights = [random.standard_normal(dims).astype(np.float32) for dims in ((64, 128), (128, 64))]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "up"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
         helper.make_node("MatMul", ["b", "down"], ["y"])], "mesh",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 64])],
        [numpy_helper.from_array(w, name) for w, name in zip(weights, ("up", "down"))])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    onnx.save(model, folder / "mesh.onnx")

    def made(device):
        path = folder / f"{device}.lathe"
        if not path.exists():
            lathe.compile(folder / "mesh.onnx", path, dims={"N": (0, 4, 64)}, options=[("mesh", "tp=2")],
                          target="sm_90a" if device == "fake" else "native")
        return path
    return made


class Rank:
    def __init__(self, engine, rank, port, device, rows=4, steps=4, **variables):
        path = os.pathsep.join([str(Path(lathe.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, *map(str, (engine, device, rank, port, rows, steps))], text=True,
            stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path, **variables})

    def next(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"code": "ENDED"}

    def end(self):
        self.process.kill()
        self.process.communicate(timeout=60)


@pytest.fixture
def started():
    ranks = []

    def start(*args, **more):
        ranks.append(Rank(*args, **more))
        return ranks[-1]
    yield start
    for rank in ranks:
        rank.end()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("device", DEVICES)
def test_processes_are_ranks(engines, started, device):
    port = free_port()
    ranks = [started(engines(device), r, port, device) for r in range(2)]
    assert [r.next() for r in ranks] == [{"rank": r, "ranks": 2} for r in range(2)]
    assert [r.next() for r in ranks] == [{"ran": True}] * 2


@pytest.mark.parametrize("device", DEVICES)
def test_other_sizes_are_told_to_all(engines, started, device):
    port = free_port()
    ranks = [started(engines(device), r, port, device, rows=3 + r) for r in range(2)]
    for rank in ranks:
        assert "rank" in rank.next()
        said = rank.next()
        assert said["code"] == "USAGE" and "N = 4" in said["text"] and "N = 3" in said["text"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_rank_is_named(engines, started, device, sign):
    port = free_port()
    ranks = [started(engines(device), r, port, device, steps=1000000) for r in range(2)]
    for rank in ranks:
        assert "rank" in rank.next() and "ran" in rank.next()
    begin = time.monotonic()
    ranks[1].process.send_signal(sign)
    said = ranks[0].next()
    assert said["code"] == "PEER_LOST" and "rank 1 is lost" in said["text"] and time.monotonic() - begin < 5


@NVRTC
@pytest.mark.parametrize("device,text", [
    ("fake:1", "ranks 0 and 1 are on the same GPU"), ("fake:5", "no device fake:5"),
    ("cuda:99", "no device cuda:99|no CUDA driver on this machine"), ("cpu", "target")])
def test_gpus_that_cannot_be_ranks(engines, started, device, text):
    port = free_port()
    ranks = [started(engines("fake"), r, port, device) for r in range(2)]
    for said in [r.next() for r in ranks]:
        assert said["code"] in ("USAGE", "UNSUPPORTED") and re.search(text, said["text"])


@pytest.mark.parametrize("device", DEVICES)
def test_cancelled_steps_leave_all_at_the_same(engines, started, device):
    port, begin = free_port(), time.monotonic()
    ranks = [started(engines(device), r, port, device, steps=0) for r in range(2)]
    for rank in ranks:
        assert "rank" in rank.next() and "ran" in rank.next()
    first, second = [rank.next() for rank in ranks]
    assert len(first["ended"]) == 60 and first == second
    assert time.monotonic() - begin < 15


@pytest.mark.parametrize("device", DEVICES)
def test_without_the_plugin(engines, started, device):
    rank = started(engines(device), 0, free_port(), device, LATHE_COMM="/nowhere/liblathe_tcp.so")
    said = rank.next()
    assert said["code"] == "UNSUPPORTED" and "/nowhere/liblathe_tcp.so" in said["text"]


@pytest.mark.parametrize("device", DEVICES)
def test_a_rank_that_does_not_come(engines, device):
    with pytest.raises(lathe.Error, match="have not come in time: 1") as error:
        lathe.load(engines(device)).rank(0, 2, port=free_port(), device=device, join=0.3)
    assert error.value.code == lathe.Code.DEADLINE
