# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops that draw: moments of a million draws within six standard errors, seeds, runs and threads."""
import math
import os
import sys

import numpy as np
import onnx.parser
import pytest

import lathe_cli

sys.path.insert(0, os.path.join(lathe_cli.ROOT, "python-frontend"))
import lathe  # noqa: E402

DRAWS = 1 << 20
SIGMAS = 6


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """An engine of the model text's graph, made once."""
    engines = {}

    def compile_text(signature, *lines):
        text = "\n".join([f'<ir_version: 10, opset_import: ["" : 22]>\ng {signature} {{', *lines, "}"])
        if text not in engines:
            path = tmp_path_factory.mktemp("draws") / "model.onnx"
            onnx.save(onnx.parser.parse_model(text), path)
            engines[text] = lathe.compile(str(path), target="x86-64-v3")
        return engines[text]
    return compile_text


def drawn(engine, *inputs, seed=0, threads=1):
    context = engine.context("cpu", threads=threads)
    context.seed(seed)
    return [y.numpy() for y in context.run(list(inputs)).values()]


def within(values, mean, variance, fourth):
    """Mean and variance of the values are those of the distribution with this fourth central moment."""
    values = values.astype(np.float64).ravel()
    count = values.size
    assert abs(values.mean() - mean) <= SIGMAS * math.sqrt(variance / count)
    spread = ((values - mean) ** 2).mean()
    # The variance of a two-valued variable of probability 1/2 is exact.
    assert abs(spread - variance) <= SIGMAS * math.sqrt(max(fourth - variance**2, 0) / count) + 1e-12


def uniform_moments(low, high):
    width = high - low
    return (low + high) / 2, width**2 / 12, width**4 / 80


# f16 and bf16 numbers have 11 and 8 digits: their mean lies half a step below the middle.
@pytest.mark.parametrize("dtype, name, step", [(1, "float", 2.0**-24), (11, "double", 0), (10, "float16", 2.0**-11)])
def test_uniform(compiled, dtype, name, step):
    engine = compiled(f"() => ({name}[{DRAWS}] y)", f"y = RandomUniform<shape = [{DRAWS}], dtype = {dtype}>()")
    y, = drawn(engine)
    assert y.min() >= 0 and y.max() < 1
    within(y.astype(np.float64) + step / 2, *uniform_moments(0, 1))
    # Each of sixteen equal parts gets its share: chi-squared below its mean and six deviations.
    counts = np.bincount((y.astype(np.float64) * 16).astype(int), minlength=16)
    chi = ((counts - DRAWS / 16) ** 2 / (DRAWS / 16)).sum()
    assert chi < 15 + SIGMAS * math.sqrt(30)


def test_uniform_between(compiled):
    engine = compiled(f"() => (float[{DRAWS}] y)", f"y = RandomUniform<shape = [{DRAWS}], low = -3.0, high = 5.0>()")
    y, = drawn(engine)
    assert y.min() >= -3 and y.max() < 5
    within(y, *uniform_moments(-3, 5))


@pytest.mark.parametrize("dtype, name", [(1, "float"), (11, "double"), (10, "float16")])
@pytest.mark.parametrize("mean, scale", [(0.0, 1.0), (1.5, 0.25)])
def test_normal(compiled, dtype, name, mean, scale):
    engine = compiled(f"() => ({name}[{DRAWS}] y)",
                      f"y = RandomNormal<shape = [{DRAWS}], dtype = {dtype}, mean = {mean}, scale = {scale}>()")
    y, = drawn(engine)
    within(y, mean, scale**2, 3 * scale**4)
    z = (y.astype(np.float64) - mean) / scale
    assert abs((z**3).mean()) <= SIGMAS * math.sqrt(15 / DRAWS)
    assert abs((z**4).mean() - 3) <= SIGMAS * math.sqrt(96 / DRAWS)
    for bound in (0.0, 1.0, 2.0, 3.0):
        share = math.erfc(bound / math.sqrt(2)) / 2
        # Half of the steps of f16 that lie on the bound are above it.
        above = (z > bound).mean() + (z == bound).mean() / 2
        assert abs(above - share) <= SIGMAS * math.sqrt(share * (1 - share) / DRAWS) + 1e-4 * (dtype == 10)


def test_bernoulli(compiled):
    engine = compiled(f"(float[4] p) => (bool[4, {DRAWS // 4}] y)",
                      f"s = Constant<value = int64[2] {{4, {DRAWS // 4}}}>()",
                      "one = Constant<value = int64[1] {1}>()", "c = Unsqueeze(p, one)", "e = Expand(c, s)",
                      "y = Bernoulli<dtype = 9>(e)")
    p = np.array([0, 0.3, 0.875, 1], np.float32)
    y, = drawn(engine, p)
    assert not y[0].any() and y[3].all()
    for row, share in zip(y, p.astype(np.float64)):
        assert abs(row.mean() - share) <= SIGMAS * math.sqrt(share * (1 - share) / row.size)


@pytest.mark.parametrize("training", [False, True])
def test_dropout(compiled, training):
    engine = compiled(f"(float[{DRAWS}] x, float r, bool t) => (float[{DRAWS}] y, bool[{DRAWS}] m)",
                      "y, m = Dropout(x, r, t)")
    x = np.arange(1, DRAWS + 1, dtype=np.float32)
    y, m = drawn(engine, x, np.float32(0.2), np.bool_(training))
    if not training:
        assert m.all() and (y == x).all()
        return
    assert abs(m.mean() - 0.8) <= SIGMAS * math.sqrt(0.16 / DRAWS)
    np.testing.assert_allclose(y, np.where(m, x * np.float32(1.25), 0), rtol=1e-6)


def test_multinomial(compiled):
    engine = compiled(f"(float[2, 5] x) => (int32[2, {DRAWS // 2}] y)",
                      f"y = Multinomial<sample_size = {DRAWS // 2}>(x)")
    x = np.log(np.array([[1, 2, 3, 4, 0], [5, 1, 1, 1, 2]]) + 1e-30).astype(np.float32) + 3
    y, = drawn(engine, x)
    for row, logits in zip(y, x.astype(np.float64)):
        p = np.exp(logits - logits.max())
        p /= p.sum()
        shares = np.bincount(row, minlength=5) / row.size
        assert (np.abs(shares - p) <= SIGMAS * np.sqrt(p * (1 - p) / row.size) + 1e-12).all()


def test_seeds_and_runs(compiled):
    engine = compiled("() => (float[999] a, float[999] b, float[999] c, float[999] d)",
                      "a = RandomUniform<shape = [999]>()", "b = RandomUniform<shape = [999]>()",
                      "c = RandomUniform<shape = [999], seed = 3.0>()", "d = RandomUniform<shape = [999], seed = 3.0>()")
    context = engine.context("cpu", threads=1)

    def runs(seed, count=3):
        context.seed(seed)
        return [[y.numpy().copy() for y in context.run([]).values()] for _ in range(count)]
    first, again, other, high = runs(5), runs(5), runs(6), runs(5 + 2**40)
    for one, two in zip(first, again):
        assert all((a == b).all() for a, b in zip(one, two))
    for a, b, c, d in first:
        assert (a != b).mean() > 0.99  # each node has a stream of its own
        assert (c == d).all()  # but those of equal seeds, which no context changes
    for strange in (other, high):
        assert (first[0][0] != strange[0][0]).mean() > 0.99
        assert (first[0][2] == strange[0][2]).all()
    for i in range(4):
        assert (first[0][i] != first[1][i]).mean() > 0.99
    # A fresh context begins with seed 0.
    fresh = [y.numpy() for y in engine.context("cpu").run([]).values()]
    assert all((a == b).all() for a, b in zip(fresh, runs(0)[0]))


def test_steps_that_are_submitted_count(compiled):
    engine = compiled("() => (float[99] a)", "a = RandomNormal<shape = [99]>()")
    context = engine.context("cpu")
    context.seed(1)
    steps = []
    for _ in range(4):
        steps.append(context.submit([]).wait()["a"].numpy().copy())
    context.seed(1)
    for step in steps:
        assert (context.run([])["a"].numpy() == step).all()


def test_threads_and_places(compiled):
    engine = compiled("(float[N, 33] x) => (float[N, 33] y)", "y = RandomNormalLike(x)")
    x = np.zeros((301, 33), np.float32)
    one, = drawn(engine, x, seed=9)
    two, = drawn(engine, x, seed=9, threads=2)
    assert (one == two).all()
    few, = drawn(engine, x[:7], seed=9)
    assert (few == one[:7]).all()  # a function of the place, whatever the sizes


def test_wrong_count_of_inputs_is_that_of_the_caller(compiled):
    engine = compiled("(float[N, 33] x) => (float[N, 33] y)", "y = RandomNormalLike(x)")
    assert [p.name for p in engine.inputs()] == ["x"]
    with pytest.raises(lathe.Error, match="the entry has 1"):
        engine.context("cpu").run([np.zeros((1, 33), np.float32)] * 2)
