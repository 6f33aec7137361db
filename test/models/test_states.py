# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One engine, entries prefill and decode, the KV cache a state: the same logits as torch, step by
step, and no byte of the cache is copied."""
import json
import os
import sys

import numpy as np
import pytest

import lathe_cli

sys.path.insert(0, os.path.join(lathe_cli.ROOT, "python-frontend"))
import lathe  # noqa: E402

FOLDER = os.path.join(lathe_cli.MODELS, "llama")
with open(os.path.join(FOLDER, "summary.json")) as summary_file:
    SUMMARY = json.load(summary_file)
FORMS = [f for f, row in SUMMARY["forms"].items() if row["dtype"] == "f32"]
CAPACITY, STEPS = SUMMARY["capacity"], SUMMARY["chain"]["steps"]
OPTIONS = ["--dim=B=1:1:4", "--dim=S=1:16:512", f"--dim=P=0:17:{CAPACITY}",
           "--entry=prefill:P=0", "--entry=decode:S=1",
           "--donate=k0=pk0", "--donate=v0=pv0", "--donate=k1=pk1", "--donate=v1=pv1"]
BOUND = 1e-4


def step_data(step):
    folder = f"{FOLDER}/chain/{step}"
    return ({n: np.load(f"{folder}/{n}.npy") for n in ("ids", "pos", "mask")},
            np.load(f"{folder}/expect_logits.npy"))


@pytest.fixture(params=FORMS)
def engine(request, engines):
    return lathe.load(engines(f"{FOLDER}/{request.param}/model.onnx", *OPTIONS))


def run_chain(context):
    """Prompt and all steps; the counters of the steps alone."""
    for i, step in enumerate(["prefill", *(f"decode_{n}" for n in range(STEPS))]):
        inputs, want = step_data(step)
        if i == 1:
            context.reset_counters()
        got = context.run(inputs, step.split("_")[0])["logits"].numpy()
        # A query in the padding attends to nothing; the forms define that differently.
        live = inputs["mask"][:, -want.shape[1]:].astype(bool)
        assert lathe_cli.relative_error(got[live], want[live]) <= BOUND, step
    return context.counters


def test_chain(engine):
    assert set(engine.entries) == {"prefill", "decode"} and len(engine.states) == 4
    context = engine.context(lathe_cli.DEVICE)
    counters = run_chain(context)
    assert counters["state_bytes_copied"] == 0
    # Two caches of two layers, two heads of 32 f32, two rows, one position a step.
    assert counters["state_bytes_appended"] == STEPS * 4 * 2 * 2 * 32 * 4
    if lathe_cli.DEVICE.startswith("cuda"):
        assert counters["graph_launches"] == STEPS
    length = SUMMARY["chain"]["prompt"] + STEPS
    assert {context.state_length(s) for s in engine.states} == {length}
    assert {context.state_capacity(s) for s in engine.states} == {CAPACITY}
    # Forgetting the last step and doing it again gives the same.
    for state in engine.states:
        context.truncate_state(state, length - 1)
    inputs, want = step_data(f"decode_{STEPS - 1}")
    assert lathe_cli.relative_error(context.run(inputs, "decode")["logits"].numpy(), want) <= BOUND
    # A new conversation in the same context.
    context.reset_state()
    run_chain(context)


def test_up_to_the_capacity(engines):
    """Steps are taken until the state is full; the next is a located error, and changes nothing."""
    engine = lathe.load(engines(f"{FOLDER}/dynamo18_sdpa/model.onnx", *OPTIONS))
    context = engine.context(lathe_cli.DEVICE)
    length = CAPACITY - 2

    def inputs(count, past):
        ids = (np.arange(past, past + count) * 7 % 512)[None]
        return {"ids": ids, "pos": np.arange(past, past + count)[None],
                "mask": np.ones((1, past + count), np.int64)}

    context.run(inputs(length, 0), "prefill")
    for past in range(length, CAPACITY):
        outputs = context.run(inputs(1, past), "decode")
    session = lathe_cli.session(f"{FOLDER}/dynamo18_sdpa/model.onnx")
    empty = {k: np.zeros((1, 2, 0, 32), np.float32) for k in ("k0", "v0", "k1", "v1")}
    want = session.run(["logits"], {**inputs(CAPACITY, 0), **empty})[0][:, -1:]
    assert lathe_cli.relative_error(outputs["logits"].numpy(), want) <= BOUND
    with pytest.raises(lathe.Error) as raised:
        context.run(inputs(1, CAPACITY), "decode")
    assert raised.value.code == lathe.Code.RUNTIME_FAILURE
    assert {context.state_length(s) for s in engine.states} == {CAPACITY}
