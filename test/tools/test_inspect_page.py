# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page of `lathe inspect --html` in a browser: searching, and clicks from a node to the text of its kernel."""
import os
import pathlib
import subprocess

import onnx
import pytest
from browser import browser
from onnx import TensorProto, helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
LATHE = pathlib.Path(os.environ.get("LATHE_BUILD", ROOT / "build")) / "bin/lathe"
MODEL = ROOT / "test/tools/Inputs/mlp.onnxtxt"


@pytest.fixture(scope="module")
def chromium():
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "mlp.html"
    subprocess.run([LATHE, "inspect", MODEL, "--target=x86-64-v3,sm_90a", f"--html={path}"], check=True, capture_output=True)
    return path


@pytest.fixture
def opened(chromium, page):
    chromium.open(page)
    yield chromium
    assert chromium.errors() == []


def tab(opened, name):
    opened.one(f'#tabs button[data-tab="{name}"]').click()


def labels(opened):
    return [text.text for text in opened.all("#view svg text")]


def product(opened):
    """The box of the node `product`."""
    return opened.all("rect.op")[labels(opened).index("MatMul")]


def test_phases_are_drawn(opened):
    names = [button.text for button in opened.all("#tabs button")]
    assert names[:3] == ["import", "legalize", "simplify"] and names[-4:] == ["kernels", "memory", "roofline", "steps"]
    assert [label for label in labels(opened) if label not in ("constant", "return")] == ["MatMul", "Add", "Relu", "Softmax"]
    assert len(opened.all("#view path.e")) >= 4
    for name in names:
        tab(opened, name)
        assert opened.one("#tabs button.on").text == name
        assert opened.all("#view rect, #view td"), name


def test_search(opened):
    field = opened.one("#find")
    field.send_keys("relu")
    assert "1 found" in opened.one("#count").text or "2 found" in opened.one("#count").text
    assert 0 < len(opened.all("rect.hit")) < len(opened.all("rect.op"))
    tab(opened, "kernels")
    assert len(opened.all("tr.hit")) >= 1
    field.clear()
    field.send_keys("nothing of that name")
    assert opened.all("tr.hit") == []


def test_from_a_node_to_its_kernel_and_its_text(opened):
    tab(opened, "import")
    product(opened).click()
    side = opened.one("#side")
    assert "product" in side.text and "onnx.MatMul" in side.text and "kernel matmul" in side.text
    colours = {opened.script("return getComputedStyle(arguments[0]).fill", box) for box in opened.all("rect.op")}
    assert len(opened.all("rect.hit")) >= 1 and len(colours) == 2
    # The kernel's text is open, and is the one of the target that is shown.
    assert "define" in opened.one("details.source[open] pre").text
    # The other target's, CUDA: the kernel's own part, and folded the modules that it uses.
    opened.all("#plan option")[1].click()
    tab(opened, "import")
    product(opened).click()
    assert opened.one("details.source[open] pre.own").text.startswith(("struct Holes", 'extern "C" __global__'))
    assert not opened.one("details.source[open] pre.library").is_displayed()
    opened.one("details.source[open] details summary").click()
    assert "base.cuh" in opened.one("details.source[open] pre.library").text
    # From the side to the same node in another phase.
    next(b for b in opened.all("#side button") if b.text.startswith("legalize")).click()
    assert opened.one("#tabs button.on").text == "legalize" and opened.all("rect.hit")


def test_from_a_kernel_to_its_nodes(opened):
    tab(opened, "kernels")
    opened.all("#view tr")[1].click()
    assert "kernel matmul" in opened.one("#side").text
    tab(opened, "import")
    assert len(opened.all("rect.hit")) >= 3


def test_memory_roofline_steps(opened):
    tab(opened, "memory")
    assert opened.all("#view svg rect")
    tab(opened, "roofline")
    opened.all("#view circle")[0].click()
    assert "kernel matmul" in opened.one("#side").text
    tab(opened, "steps")
    opened.all("#view tr")[1].click()
    assert opened.one("#side h3").text


def test_names_are_text_not_markup(chromium, tmp_path):
    """A model is somebody else's: its names run no script."""
    node = helper.make_node("Relu", ["x"], ["y"], name="<img src=x onerror=alert(1)></script><b>")
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "named.onnx")
    page = tmp_path / "named.html"
    subprocess.run([LATHE, "inspect", tmp_path / "named.onnx", f"--html={page}"], check=True, capture_output=True)
    chromium.open(page)
    for name in [b.text for b in chromium.all("#tabs button")]:
        tab(chromium, name)
        for target in chromium.all("#view rect.op")[:1] or chromium.all("#view tr")[1:2]:
            target.click()
            assert chromium.all("img") == []
    assert "<img src=x" in chromium.one("#side").text
    assert chromium.errors() == []
