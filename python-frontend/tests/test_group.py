# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One engine on several devices: a step is one step of every member."""
import gc

import numpy as np
import pytest

import lathe

APPEND = """<ir_version: 10, opset_import: ["" : 20]>
append (float[P,4] past, float[S,4] x, int64[1] at) => (float[T,4] present, float[1,4] picked)
{
  present = Concat<axis = 0>(past, x)
  picked = Gather<axis = 0>(x, at)
}
"""


@pytest.fixture(scope="module")
def append(tmp_path_factory):
    path = tmp_path_factory.mktemp("append") / "append.onnxtxt"
    path.write_text(APPEND)
    return lathe.compile(path, donate={"past": "present"},
                         dims={"P": (0, 4, 8), "S": (1, 1, 4)})


def numbers(seed, rows=3):
    return np.random.default_rng(seed).standard_normal((rows, 8)).astype(np.float32)


def test_each_member_has_its_own_inputs(affine):
    engine, _, weight, bias = affine
    group = engine.group(["cpu", "cpu", "cpu"], threads=1)
    assert isinstance(group, lathe.Group) and len(group) == 3
    assert [m.device for m in group.members] == ["cpu"] * 3
    given = [numbers(1), numbers(2, 5), numbers(3, 1)]
    for inputs in ([{"x": x} for x in given], [[x] for x in given]):
        results = group.run(inputs)
        for x, result in zip(given, results):
            y = np.maximum(x @ weight + bias, 0)
            np.testing.assert_allclose(result["y"].numpy(), y, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(result["s"].numpy(), y.sum(-1), rtol=1e-5, atol=1e-5)
    assert [m.counters["runs"] for m in group.members] == [2, 2, 2]


def test_steps_are_submitted_ahead(affine):
    engine, _, weight, bias = affine
    group = engine.group(["cpu", "cpu"], threads=1, deadline=60)
    x, steps, want = numbers(4), [], []
    for i in range(4):
        x[0, 0] = i
        want.append(np.maximum(x @ weight + bias, 0))
        steps.append(group.submit([{"x": x}, {"x": -x}]))
    x[:] = 0  # the steps have their own copies
    for step, expected in zip(steps, want):
        results = step.wait(timeout=60)
        np.testing.assert_allclose(results[0]["y"].numpy(), expected, rtol=1e-5, atol=1e-6)
    assert [s.number for s in steps] == sorted({s.number for s in steps})


def test_a_failure_is_one_of_all(append):
    group = append.group(["cpu", "cpu"], threads=1)
    x = np.ones((2, 4), np.float32)

    def inputs(at):
        return [{"x": x, "at": np.array([0])}, {"x": 2 * x, "at": np.array([at])}]

    group.run(inputs(1))
    assert [m.state_length("past") for m in group.members] == [2, 2]
    with pytest.raises(lathe.Error, match="out of range") as raised:
        group.run(inputs(7))
    assert "device 1 (cpu)" in raised.value.location
    assert [m.state_length("past") for m in group.members] == [2, 2], "of neither member"
    results = group.run(inputs(1))
    assert [m.state_length("past") for m in group.members] == [4, 4]
    np.testing.assert_array_equal(results[1]["picked"].numpy(), 2 * x[:1])
    group.members[0].reset_state()
    assert [m.state_length("past") for m in group.members] == [0, 4]


def test_members_and_results_outlive_the_group(append):
    group = append.group(["cpu", "cpu"], threads=1)
    x = np.full((1, 4), 3, np.float32)
    result = group.run([{"x": x, "at": np.array([0])}] * 2)[1]
    member = group.members[1]
    del group
    gc.collect()
    assert member.state_length("past") == 1
    del member
    gc.collect()
    np.testing.assert_array_equal(result["picked"].numpy(), x)


def test_mistakes(affine):
    engine = affine[0]
    with pytest.raises(lathe.Error, match="without devices"):
        engine.group([])
    with pytest.raises(lathe.Error) as raised:
        engine.group(["cpu", "nowhere"])
    assert "device 1 (nowhere)" in raised.value.location
    group = engine.group(["cpu", "cpu"], threads=1)
    with pytest.raises(lathe.Error, match="1 lists of inputs were given, the group has 2"):
        group.run([{"x": numbers(1)}])
    with pytest.raises(lathe.Error, match="no entry 'decode'"):
        group.run([{"x": numbers(1)}] * 2, entry="decode")
    with pytest.raises(lathe.Error, match="device 1|axis|expected"):
        group.run([{"x": numbers(1)}, {"x": np.zeros((3, 7), np.float32)}])
    step = group.submit([{"x": numbers(1)}] * 2)
    step.cancel()
    try:
        step.wait()
    except lathe.Error as problem:
        assert problem.code == lathe.Code.CANCELLED
