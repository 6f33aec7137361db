# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An engine of --batch-invariant gives a request the same bits in whatever company, pieces and order it is computed.

A schedule is drawn: how many tokens and requests a step takes, how large pool and swap space are, whether prompts are
cached, when each request comes, and which are cancelled. Compared are all tokens and the logprobs of the answer and of the prompt,
each of which is a sum over all logits, with those of the request alone. LATHE_RANDOM_SCHEDULES says how many.
"""
import os
import random
import sys

import pytest

import lathe_cli
from test_paged import model_of

sys.path.insert(0, os.path.join(lathe_cli.ROOT, "python-frontend"))
import lathe  # noqa: E402

SCHEDULES = int(os.environ.get("LATHE_RANDOM_SCHEDULES", "90"))
NAMES = ["llama3", "gemma3", "gpt_oss"]  # plain, a window, a window and sinks
BLOCK_BYTES = 2 * 2 * 16 * 2 * 32 * 4  # layers, keys and values, tokens, heads, numbers of a head, f32
LONGEST, ANSWER = 60, 30


@pytest.fixture(scope="module", params=NAMES)
def engine(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("invariant") / "m.lathe"
    lathe_cli.compile_model(model_of(request.param), path, "--paged", "--batch-invariant", target="native")
    return lathe.load(str(path))


def draw_requests():
    """Prompts with common beginnings, so that the prefix cache has something to find."""
    draw = random.Random(11)
    trunks = [[draw.randrange(512) for _ in range(LONGEST)] for _ in range(3)]
    rows = []
    for i in range(12):
        shared, own = draw.randrange(0, 48), draw.randrange(1, 12)
        rows.append(dict(tokens=trunks[i % 3][:shared] + [draw.randrange(512) for _ in range(own)], max_tokens=ANSWER,
                         temperature=draw.choice([0.0, 1.5]), seed=i, logprobs=3, prompt_logprobs=i % 4 == 0))
    return rows


def outcome(row, answer):
    return answer.tokens, answer.logprobs(), answer.prompt_logprobs() if row["prompt_logprobs"] else None


def run_schedule(engine, rows, alone, draw, totals):
    most = draw.choice([1, 2, 3, 5, 8, 13, 24, 64, 100])
    least = -(-(LONGEST + ANSWER) // 16) + 1
    llm = engine.llm(threads=draw.choice([1, 2]), kv_bytes=BLOCK_BYTES * draw.randrange(least, 3 * least),
                     max_sequence_tokens=LONGEST + ANSWER, max_step_tokens=most,
                     max_requests=min(most, draw.choice([1, 4, 8, 12])), prefix_cache=draw.random() < 0.7,
                     swap_bytes=draw.choice([0, 2 * least * BLOCK_BYTES]))
    coming = draw.sample(range(len(rows)), draw.randrange(6, len(rows) + 1))
    running, finished = {}, {}
    while coming or running:
        for _ in range(draw.choice([1, 1, 3, 12])):
            if coming:
                which = coming.pop()
                running[which] = llm.submit(**rows[which], priority=draw.choice([0, 0, 1]))[0]
        if running and draw.random() < 0.005:
            running.pop(draw.choice(sorted(running))).cancel()
        llm.step()
        for which in [w for w, answer in running.items() if answer.finish]:
            finished[which] = running.pop(which)
    for which, answer in finished.items():
        assert outcome(rows[which], answer) == alone[which], f"request {which}"
    for name, value in llm.counters().items():
        totals[name] = totals.get(name, 0) + value
    totals["finished"] = totals.get("finished", 0) + len(finished)


def alone_of(engine, rows):
    outcomes = []
    for row in rows:
        llm = engine.llm(prefix_cache=False)
        answer = llm.submit(**row)[0]
        llm.run()
        outcomes.append(outcome(row, answer))
    return outcomes


def test_random_schedules(engine):
    rows, totals = draw_requests(), {}
    alone = alone_of(engine, rows)
    for seed in range(-(-SCHEDULES // len(NAMES))):
        try:
            run_schedule(engine, rows, alone, random.Random(seed), totals)
        except AssertionError as problem:
            raise AssertionError(f"schedule {seed}: {problem}") from problem
    # They are what the test is about.
    assert totals["prompt_hits"] > 0 and totals["preemptions"] > totals["swaps"] > 0 and totals["finished"] > 3 * SCHEDULES / len(NAMES)


def test_the_check_finds_other_bits(tmp_path):
    """Without the option a token alone is summed otherwise than among others."""
    engine = lathe.load(str(lathe_cli.compile_model(model_of("llama3"), tmp_path / "m.lathe", "--paged", target="native")))
    rows = draw_requests()
    alone = alone_of(engine, rows)
    with pytest.raises(AssertionError, match="request"):
        for seed in range(4):
            run_schedule(engine, rows, alone, random.Random(seed), {})


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


def test_refusals(tmp_path):
    model, engine = model_of("llama3"), tmp_path / "m.lathe"
    for options, code, message in ((["--paged", "--target=native,sm_90a"], 4, "compile for CPUs alone, not for sm_90a"),
                                   (["--target=native"], 2, "of the engines that --paged makes"),
                                   (["--paged", "--config=*=gemm.v8.m6.n16"], 2, "does not go with --config")):
        said = lathe_cli.lathe("compile", model, "-o", engine, "--batch-invariant", *options, code=code)
        assert message in said and not engine.exists()
