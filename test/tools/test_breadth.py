# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The list and the rules of test/perf/breadth.py: what counts as a ratio, and that no model is lost."""
import os
import sys

import numpy as np
import pytest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "test", "perf"))
import breadth  # noqa: E402


def rows(name, times, **more):
    """Rounds of (lathe, onnxruntime, OpenVINO)."""
    return [{"model": name, "threads": "1", "round": str(i), "lathe": str(ours), "ort": str(ort), "ov": str(ov), "counts": "yes",
             "said": "", **more} for i, (ours, ort, ov) in enumerate(times)]


def write(path, every):
    for row in every:
        breadth.add_line(path, breadth.COLUMNS, row)
    return [str(path)]


def told(paths):
    said = []
    return breadth.table(paths, said.append), "\n".join(said)


def test_the_list_has_every_family():
    families = {m.family for m in breadth.MODELS.values()}
    assert len(breadth.MODELS) >= 40
    assert families == {"audio", "vocoder", "detection", "segmentation", "OCR", "classification", "text", "diffusion", "volumes", "tables",
                        "series", "graphs"}
    assert all(sum(map(bool, (m.make, m.real, m.trees))) == 1 for m in breadth.MODELS.values())


def test_a_ratio_is_of_the_better_rival_within_rounds():
    found = breadth.judged(rows("unet", [(1, 2, 3), (4, 4, 9), (1, 2, 4)]))
    assert found["best"] == "ort" and found["ratio"] == 0.5 and found["ms"] == {"lathe": 1, "ort": 2, "ov": 4}


def test_rounds_beside_other_work_do_not_count():
    assert breadth.judged(rows("unet", [(1, 2, 3)]) + rows("unet", [(9, 1, 1)] * 5, counts="no"))["ratio"] == 0.5


def test_a_rival_that_does_not_run_is_no_best():
    assert breadth.judged(rows("unet", [(3, 2, "")]))["ratio"] == 1.5


def test_what_does_not_run_counts_two(tmp_path):
    met, text = told(write(tmp_path / "r.tsv", rows("unet", [(1, 2, 4)]) + [
        {"model": "detr", "threads": "1", "round": "0", "counts": "yes", "said": "error: no kernel"}]))
    assert not met
    assert "| detr | detection | - | - | - | 2.000 **short** error: no kernel |" in text
    assert "Geometric mean 1.000 (bar 0.8)" in text and "1 above 1.03: detr." in text and "Not timed: " in text


def test_bars_are_met_by_all_models_only(tmp_path):
    every = [row for name in breadth.MODELS for row in rows(name, [(1, 2, 4)])]
    met, text = told(write(tmp_path / "all.tsv", every))
    assert met and "Not timed" not in text and "**short**" not in text
    met, text = told(write(tmp_path / "one.tsv", [r | {"lathe": "2.1"} if r["model"] == "unet" else r for r in every]))
    assert not met and "1 above 1.03: unet." in text
    slow = [r | {"lathe": "1.92"} if breadth.MODELS[r["model"]].products else r for r in every]
    met, text = told(write(tmp_path / "products.tsv", slow))
    assert not met and "0.960 (bar 0.95)" in text


def test_a_model_that_was_not_prepared_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(breadth, "WORK", str(tmp_path))
    breadth.run(["unet"], 2, str(tmp_path / "r.tsv"), None)
    row, = breadth.lines(tmp_path / "r.tsv", breadth.COLUMNS)
    assert (row["model"], row["threads"], row["said"]) == ("unet", "2", "not prepared")
    # A row says of which commit its engine is, not which one is checked out when it is timed.
    breadth.add_line(tmp_path / "prepared.tsv", breadth.STATE, {"model": "unet", "said": "differs", "commit": "c0111"})
    breadth.run(["unet"], 1, str(tmp_path / "r.tsv"), None)
    assert breadth.lines(tmp_path / "r.tsv", breadth.COLUMNS)[-1]["commit"] == "c0111"


def test_an_unknown_model_is_a_usage_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["breadth.py", "run", "nothing"])
    with pytest.raises(SystemExit) as end:
        breadth.main()
    assert end.value.code == 2 and "no model is called nothing" in capsys.readouterr().err


def chooses(path):
    """x w = scores; the best 3 of 6 rows of y go on: y[best] + 1 and the scores of these."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper
    three = numpy_helper.from_array(np.array([3], np.int64), "three")
    w = numpy_helper.from_array(np.ones((4, 1), np.float32), "w")
    one = numpy_helper.from_array(np.array([1], np.float32), "one")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["column"]), helper.make_node("Reshape", ["column", "six"], ["scores"]),
         helper.make_node("TopK", ["scores", "three"], ["best", "places"], axis=0),
         helper.make_node("Gather", ["y", "places"], ["rows"]), helper.make_node("Add", ["rows", "one"], ["z"])],
        "choice", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 4]), helper.make_tensor_value_info("y", TensorProto.FLOAT, [6, 2])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [3, 2]), helper.make_tensor_value_info("best", TensorProto.FLOAT, [3])],
        [w, three, one, numpy_helper.from_array(np.array([6], np.int64), "six")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


@pytest.mark.parametrize("order, wrong, agrees", [
    ([4, 2, 1], 0, True),   # rows 1, 2 and 4 are tied but for a rounding
    ([1, 2, 4], 0, True),
    ([1, 2, 3], 0, False),  # row 3 is no best one
    ([1, 1, 2], 0, False),  # the same row twice
    ([4, 2, 1], 1, False),  # what follows is wrong
])
def test_tied_scores_are_judged_around_the_choice(tmp_path, order, wrong, agrees):
    onnxruntime = pytest.importorskip("onnxruntime")
    import race_choices
    path = str(tmp_path / "m.onnx")
    chooses(path)
    x = np.array([[0.1], [0.5], [0.5], [0.2], [0.5], [0.3]], np.float32).repeat(4, 1)
    x[2, 0] = np.nextafter(x[2, 0], np.float32(1))
    y = np.arange(12, dtype=np.float32).reshape(6, 2)
    scores = x.sum(1)

    def run(file):
        names = [o.name for o in onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).get_outputs()]
        assert set(names) == {"z", "best", "scores", "places"}
        return {"scores": scores, "places": np.array(order, np.int64), "best": scores[order], "z": y[order] + 1 + wrong}
    error = race_choices.error_around_choices(path, {"x": x, "y": y}, run, lambda file: onnxruntime.InferenceSession(
        file, providers=["CPUExecutionProvider"]), lambda w, f: float(np.max(np.abs(w - f)) / np.max(np.abs(w))))
    assert (error <= breadth.TOLERANCE) == agrees
