# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A run of `lathe quantize` that is killed in the middle: the next one with the same inputs continues and writes the same bytes;
with others it says so and begins anew."""
import hashlib
import os
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest

import lathe_cli
import test_quantize_methods as methods


def command(folder, *options):
    return [str(a) for a in (lathe_cli.LATHE, "quantize", folder / "m.onnx", "-o", folder / "q.onnx", "--data", folder / "d.npz",
                             "--recipe-out", folder / "r.json", "--threads=1", *options)]


def kept(folder, beginning):
    state = folder / "q.onnx.resume"
    return [name for name in os.listdir(state) if name.startswith(beginning)] if state.exists() else []


def killed(folder, beginning, *options):
    """A run that ends by a signal as soon as a part of this name is kept."""
    run = subprocess.Popen(command(folder, *options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    limit = time.monotonic() + 120
    while not kept(folder, beginning) and run.poll() is None and time.monotonic() < limit:
        time.sleep(0.001)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    assert kept(folder, beginning) and not (folder / "q.onnx").exists()


def made(folder, *options, code=0):
    text = lathe_cli.lathe(*command(folder, *options)[1:], code=code)
    assert not (folder / "q.onnx.resume").exists()
    files = {name: (folder / name).read_bytes() for name in ("q.onnx", "r.json", "r.npz") if (folder / name).exists()}
    for name in files:
        os.remove(folder / name)
    return text, files


@pytest.mark.parametrize("beginning, options", [("ranges-", ["--scheme=w8a8-int8", "--range=mse"]),
                                                ("products-", ["--scheme=w4a16", "--group=32", "--method=gptq"]),
                                                ("codes-", ["--scheme=w8a8-int8", "--range=moving", "--method=gptq,bias-correction"]),
                                                ("channels-", ["--scheme=w8a8-int8", "--method=smoothquant"]),
                                                ("shifts-", ["--scheme=w8a8-int8", "--method=bias-correction"])])
def test_continues(tmp_path, beginning, options):
    methods.write_model(tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=methods.inputs(rows=6000))
    _, want = made(tmp_path, *options)
    killed(tmp_path, beginning, *options)
    text, got = made(tmp_path, *options)
    assert "continues a run that was stopped" in text and got == want


def test_parts_are_used(tmp_path):
    """What is kept is what the result is made of: a range that was written into a kept part comes out; a damaged part is
    computed again."""
    methods.write_model(tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=methods.inputs(rows=6000))
    options = ["--scheme=w8a8-int8", "--method=bias-correction"]
    _, want = made(tmp_path, *options)
    killed(tmp_path, "shifts-", *options)
    shutil.copytree(tmp_path / "q.onnx.resume", tmp_path / "copy")
    name, = kept(tmp_path, "ranges-")
    part = tmp_path / "q.onnx.resume" / name
    part.write_bytes(part.read_bytes()[:-9])  # its digest is of the whole
    assert made(tmp_path, *options)[1] == want
    shutil.copytree(tmp_path / "copy", tmp_path / "q.onnx.resume")
    bytes_ = bytearray((tmp_path / "copy" / name).read_bytes()[64:])
    bytes_[-8:] = np.float64(1e3).tobytes()  # the greatest of the last activation
    part.write_bytes(hashlib.sha256(bytes_).hexdigest().encode() + bytes_)
    assert made(tmp_path, *options)[1] != want


def test_begins_anew(tmp_path):
    """Other data, options or another model: said, by what differs; a folder of something else is left alone."""
    methods.write_model(tmp_path / "m.onnx")
    x = methods.inputs(rows=3000)
    np.savez(tmp_path / "d.npz", x=x)
    options = ["--scheme=w8a8-int8", "--range=kl"]
    killed(tmp_path, "ranges-", *options)
    shutil.copytree(tmp_path / "q.onnx.resume", tmp_path / "copy")

    def again(what, *options):
        text, got = made(tmp_path, *options)
        assert f"begins anew: {tmp_path}/q.onnx.resume is of a run with another {what}" in text and "continues" not in text
        assert got == made(tmp_path, *options)[1]
        shutil.copytree(tmp_path / "copy", tmp_path / "q.onnx.resume")

    again("options", "--scheme=w8a8-int8", "--range=mse")
    np.savez(tmp_path / "d.npz", x=x[::-1])
    again("data", *options)
    np.savez(tmp_path / "d.npz", x=x)
    methods.write_model(tmp_path / "m.onnx", norm=True)
    again("model", *options)
    shutil.rmtree(tmp_path / "q.onnx.resume")
    os.mkdir(tmp_path / "q.onnx.resume")
    (tmp_path / "q.onnx.resume" / "mine").write_text("mine")
    text = lathe_cli.lathe(*command(tmp_path, *options)[1:], code=2)
    assert "q.onnx.resume: is no folder of a stopped run" in text and (tmp_path / "q.onnx.resume" / "mine").exists()


def test_search_continues(tmp_path):
    """Builds of a search are kept: one that is killed at its fifth evaluation goes on with that one."""
    methods.write_model(tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=methods.inputs(rows=32))
    script = tmp_path / "metric.py"
    script.write_text("""import os, signal
import numpy as np

def loss(want, got):
    here = os.path.dirname(__file__)
    with open(os.path.join(here, "calls"), "a+") as f:
        f.write("x")
        f.seek(0)
        calls = len(f.read())
    if os.path.exists(os.path.join(here, "stop")) and calls == 5:
        os.kill(os.getppid(), signal.SIGKILL)
    return sum(((w["y"] - g["y"]) ** 2).sum() for w, g in zip(want, got)) / sum((w["y"] ** 2).sum() for w in want)
""")
    options = ["--scheme=w8a16,w4a16", "--group=32", "--budget=size=30%", f"--metric={script}"]
    text, want = made(tmp_path, *options)
    calls = len((tmp_path / "calls").read_text())
    os.remove(tmp_path / "calls")
    (tmp_path / "stop").touch()
    subprocess.run(command(tmp_path, *options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    assert len((tmp_path / "calls").read_text()) == 5 and len(kept(tmp_path, "build-")) == 4
    os.remove(tmp_path / "stop")
    text, got = made(tmp_path, *options)
    assert "continues" in text and got == want and len((tmp_path / "calls").read_text()) == calls + 1
