# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How the CPU race takes its figures: a fixed number of rounds, none chosen by its time."""
import itertools
import math
import os
import sys
import types

import numpy as np
import pytest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "test", "perf"))
import race_measure  # noqa: E402
import race_report  # noqa: E402


class Others:
    """Other work of the machine, as listed: a figure a round."""

    def __init__(self, shares):
        self.shares = itertools.chain.from_iterable((0.0, s) for s in shares)

    def share(self):
        return next(self.shares)


def bursts(**times):
    return {peer: (lambda _, values=iter(values): next(values)) for peer, values in times.items()}


def test_the_number_of_rounds_is_fixed():
    # Ratios that spread as widely as these once got more rounds.
    rows = race_measure.measure(bursts(lathe=[1, 3, 1, 3, 1], ort=[2, 2, 2, 2, 2]), 5, 0.1,
                                Others([0] * 5))
    assert rows["rounds"] == 5 and rows["discarded"] == 0 and len(rows["raw"]) == 5
    assert rows["ratio"] == 0.5 and rows["ms"] == {"lathe": 1, "ort": 2}


def test_rounds_beside_other_work_are_discarded_and_shown():
    found = race_measure.measure(bursts(lathe=[9, 1, 1, 9, 1], ort=[2] * 5), 3, 0.1,
                                 Others([0.5, 0, 0, 0.9, 0]))
    assert (found["rounds"], found["discarded"], found["ratio"]) == (3, 2, 0.5)
    assert [r["counts"] for r in found["raw"]] == [False, True, True, False, True]
    assert race_report.rounds_of(found).startswith("3 and 2 discarded")


def test_a_good_figure_does_not_save_a_round():
    # The one that is discarded would have been the best.
    found = race_measure.measure(bursts(lathe=[0.1, 1, 1, 1], ort=[2] * 4), 3, 0.1,
                                 Others([0.5, 0, 0, 0]))
    assert found["ratio"] == 0.5 and found["raw"][0]["ms"]["lathe"] == 0.1


def test_a_busy_machine_gives_no_figure():
    with pytest.raises(RuntimeError, match="beside other work in 6 of 6 rounds"):
        race_measure.measure(bursts(lathe=[1] * 6, ort=[2] * 6), 3, 0.1, Others([0.9] * 6))
    found = race_measure.measure(bursts(lathe=[1] * 3, ort=[2] * 3), 3, 0.1, Others([0.9] * 3),
                                 any_load=True)
    assert found["rounds"] == 3


def test_rivals_that_do_not_take_the_file():
    found = race_measure.measure(bursts(lathe=[1] * 3, ort=[2] * 3, ov=[math.nan] * 3), 3, 0.1,
                                 Others([0] * 3))
    assert found["best"] == "ort" and math.isnan(found["ms"]["ov"])
    with pytest.raises(RuntimeError, match="no rival"):
        race_measure.measure(bursts(lathe=[1] * 3, ov=[math.nan] * 3), 3, 0.1, Others([0] * 3))


def test_every_round_is_written():
    row = {"threads": {"1": race_measure.measure(bursts(lathe=[1, 1], ort=[2, 2]), 1, 0.1,
                                                 Others([0.5, 0]))}, "of": "d1ge57", "commit": "c0111"}
    head, first, second = (line.split("\t") for line in
                           race_report.rounds_table({"batch 1": {"m": row}}, "other"))
    assert dict(zip(head, first))["counts"] == "no" and dict(zip(head, second))["counts"] == "yes"
    assert second[head.index("commit")] == "c0111" and second[head.index("digest")] == "d1ge57"
    assert second[-1] == "ort 2 lathe 1"  # in the order of running


def test_a_rivals_burst_is_without_the_call(tmp_path):
    """onnxruntime writes into memory of ours, and the empty model's time is taken off."""
    run = race_measure.ort_run(str(tmp_path / "e.onnx"),
                               race_measure.empty_model(str(tmp_path / "e.onnx")), 1)
    run.results["y"][:] = 7
    run()
    np.testing.assert_array_equal(run.results["y"], [1])
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, x=np.ones(1, np.float32))
    rival = race_measure.Rival("ort", str(tmp_path / "e.onnx"), str(inputs), 1)
    try:
        assert rival.usable
        assert float(rival.call_ms) > 0
        assert rival.burst(0.05) > 0
    finally:
        rival.close()
    assert race_measure.without_call(1.0, 0.25) == 0.75
    assert race_measure.without_call(1.0, 0.99) == race_measure.without_call(1.0, 2.0) == 0.1


def test_other_work_is_what_this_process_does_not_do():
    others = race_measure.OtherWork([types.SimpleNamespace(process=types.SimpleNamespace(pid=os.getpid()))])
    sum(i * i for i in range(2_000_000))
    assert 0 <= others.share() <= 1
