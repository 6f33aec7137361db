# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs with one thing wrong are refused by --paged at their node; the same graph in other words is taken.

What is wrong and what is the same is not taken for granted: onnxruntime gives other numbers for the one, with
padding or without, and the same for the other.
"""
import json
import subprocess

import numpy as np
import pytest

import lathe_cli
import planted


def run(path, padded):
    session = lathe_cli.session(path)
    names = {i.name for i in session.get_inputs()}
    results = session.run(None, {k: v for k, v in planted.inputs(padded).items() if k in names})
    return dict(zip([o.name for o in session.get_outputs()], results))


def difference(a, b):
    return max(float(np.abs(a[name] - b[name]).max()) if a[name].shape == b[name].shape else np.inf for name in a)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    path = planted.variant({}, tmp_path_factory.mktemp("planted") / "plain.onnx")
    return {padded: run(path, padded) for padded in (False, True)}


def explain(path):
    done = subprocess.run([lathe_cli.LATHE, "explain", path, "--json"], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", planted.HARMLESS)
def test_harmless_rewrite(tmp_path, plain, name):
    path = planted.variant(planted.HARMLESS[name], tmp_path / "m.onnx")
    assert difference(run(path, False), plain[False]) < 1e-4
    code, text, errors = explain(path)
    assert code == 0 and json.loads(text)["paged"], errors


@pytest.mark.parametrize("name", planted.FAULTS)
def test_planted_fault(tmp_path, plain, name):
    obligation, changes = planted.FAULTS[name]
    path = planted.variant(changes, tmp_path / "m.onnx")
    assert max(difference(run(path, padded), plain[padded]) for padded in plain) > 1e-3
    code, text, errors = explain(path)
    assert code == 4, text
    if obligation == "shape":  # refused ahead of the pass: sizes that cannot be shown equal
        assert "node" in errors
        return
    refused = [c for c in json.loads(text)["checks"] if c["result"] == "refused"]
    assert len(refused) == 1 and refused[0]["reason"] and obligation in (None, refused[0]["id"])
    assert "node" in refused[0].get("node", ""), refused


def test_window_is_the_one_of_the_graph(tmp_path):
    """A window of one more or less is another model, which is followed."""
    for change in ("Add", "Sub"):
        path = planted.variant({"first": f"other = {change}(window, one)\nfirst = Sub(column, other)"}, tmp_path / "m.onnx")
        _, text, _ = explain(path)
        by = {c["id"]: c for c in json.loads(text)["checks"]}
        wanted = planted.WINDOW - 1 + (1 if change == "Add" else -1)
        assert f"and no more: 1 {wanted}" in by["O3"]["reason"]


@pytest.mark.parametrize("form", planted.FIRST_KEYS)
def test_first_keys_beside_a_window(tmp_path, form):
    path = planted.variant(planted.FIRST_KEYS[form], tmp_path / "m.onnx")
    code, text, errors = explain(path)
    assert code == 0, errors
    by = {c["id"]: c for c in json.loads(text)["checks"]}
    assert f"and no more: 1 {planted.WINDOW - 1} and the first 2" in by["O3"]["reason"]


def test_enough_of_both():
    assert len(planted.FAULTS) >= 40 and len(planted.HARMLESS) >= 40
