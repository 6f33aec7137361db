# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An engine of --batch-invariant gives a request the same bits in whatever company, pieces and order it is computed.

schedules.py draws them; test/perf/gpu/check_invariant.py does the same on a GPU. LATHE_RANDOM_SCHEDULES says how many.
"""
import os
import random
import sys

import pytest

import lathe_cli
from schedules import alone_of, draw_requests, run_schedule
from test_paged import model_of

sys.path.insert(0, os.path.join(lathe_cli.ROOT, "python-frontend"))
import lathe  # noqa: E402

SCHEDULES = int(os.environ.get("LATHE_RANDOM_SCHEDULES", "90"))
NAMES = ["llama3", "gemma3", "gpt_oss"]  # plain, a window, a window and sinks
BLOCK_BYTES = 2 * 2 * 16 * 2 * 32 * 4  # layers, keys and values, tokens, heads, numbers of a head, f32


@pytest.fixture(scope="module", params=NAMES)
def engine(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("invariant") / "m.lathe"
    lathe_cli.compile_model(model_of(request.param), path, "--paged", "--batch-invariant", target="native")
    return lathe.load(str(path))


def test_random_schedules(engine, request):
    rows, totals = draw_requests(), {}
    alone = alone_of(engine, rows)
    for seed in range(-(-SCHEDULES // len(NAMES))):
        try:
            run_schedule(engine, rows, alone, random.Random(seed), totals, BLOCK_BYTES)
        except AssertionError as problem:
            raise AssertionError(f"schedule {seed}: {problem}") from problem
    print(f"{request.node.name}: {seed + 1} schedules, none differs: {totals}")
    # They are what the test is about.
    assert totals["prompt_hits"] > 0 and totals["preemptions"] > totals["swaps"] > 0 and totals["finished"] > 3 * SCHEDULES / len(NAMES)


def test_the_check_finds_other_bits(tmp_path):
    """Without the option a token alone is summed otherwise than among others."""
    engine = lathe.load(str(lathe_cli.compile_model(model_of("llama3"), tmp_path / "m.lathe", "--paged", target="native")))
    rows = draw_requests()
    alone = alone_of(engine, rows)
    with pytest.raises(AssertionError, match="request"):
        for seed in range(4):
            run_schedule(engine, rows, alone, random.Random(seed), {}, BLOCK_BYTES)


def test_products_have_one_sum(tmp_path):
    """Those of one row too, which have several otherwise; so has attention of tokens that share keys."""
    model, configs = model_of("llama3"), {}
    for options in ([], ["--batch-invariant"]):
        engine = lathe_cli.compile_model(model, tmp_path / "m.lathe", "--paged", *options, target="x86-64-v3")
        shown = lathe_cli.lathe("inspect", engine, "--kernels")
        configs[bool(options)] = [word for word in shown.split() if word.startswith(("gemm.", "attention."))]
    assert any(".m1." in config for config in configs[True])
    assert all(config.endswith(".s1") for config in configs[True])
    assert not any(config.endswith(".s1") for config in configs[False] if config.startswith("gemm."))
    assert len(configs[True]) == len(configs[False])


def test_products_of_a_gpu_have_one_sum(tmp_path):
    """Whatever the number of rows: f32 in tiles whose sums go along K; test/unit/ChoosePagedTest.cpp has 16 bits."""
    engine = lathe_cli.compile_model(model_of("llama3"), tmp_path / "m.lathe", "--paged", "--batch-invariant", target="sm_90a")
    shown = lathe_cli.lathe("inspect", engine, "--kernels").split()
    configs = {word for word in shown if word.startswith(("gemm.", "gemv.", "attention."))}
    assert len([c for c in configs if c.startswith("attention.")]) == 1
    assert all(c.startswith(("gemm.simt", "attention.")) for c in configs), configs


def test_refusals(tmp_path):
    model, engine = model_of("llama3"), tmp_path / "m.lathe"
    for options, code, message in ((["--target=native"], 2, "of the engines that --paged makes"),
                                   (["--paged", "--config=*=gemm.v8.m6.n16"], 2, "does not go with --config")):
        said = lathe_cli.lathe("compile", model, "-o", engine, "--batch-invariant", *options, code=code)
        assert message in said and not engine.exists()
