# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of test/perf/race_ops.py: what is prepared agrees with onnxruntime, and what is missing is named."""
import os
import sys

import pytest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "test", "perf"))
import race_ops  # noqa: E402


@pytest.mark.parametrize("name", ["NonZero 1024x1024", "sort 64x4096"])
def test_a_row_is_prepared(name, tmp_path, monkeypatch):
    monkeypatch.setattr(race_ops, "FOLDER", tmp_path)
    assert race_ops.prepare(name, "native") == 0
    assert sorted(os.listdir(race_ops.folder_of(name)))[:2] == ["model.lathe", "model.onnx"]


def test_a_missing_package_is_named(tmp_path, monkeypatch, capsys):
    def trees():
        import a_package_that_nobody_has  # noqa: F401
    monkeypatch.setattr(race_ops, "FOLDER", tmp_path)
    monkeypatch.setattr(race_ops, "OPS", {"trees": trees})
    monkeypatch.setattr(sys, "argv", ["race_ops.py", "prepare"])
    assert race_ops.main() == 2
    said = capsys.readouterr().err
    assert "a_package_that_nobody_has" in said and "test/perf/requirements.txt" in said
