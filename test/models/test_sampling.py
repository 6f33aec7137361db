# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a request may ask of its answer, against onnxruntime's logits of the same decoder; the Python interface of
serving, and generation_config.json.
"""
import ctypes
import json
import math
import os
import shutil
import sys

import numpy as np
import pytest

import lathe_cli

sys.path.insert(0, os.path.join(lathe_cli.ROOT, "python-frontend"))
import lathe  # noqa: E402
from lathe._abi import CLlmCounters  # noqa: E402

MODEL = os.path.join(lathe_cli.MODELS, "decoders", "llama3", "model.onnx")
PROMPT = [7, 1, 300, 22, 5, 7, 9, 300]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return str(lathe_cli.compile_model(MODEL, tmp_path_factory.mktemp("sampling") / "m.lathe", "--paged",
                                       target="native"))


@pytest.fixture(scope="module")
def engine(path):
    return lathe.load(path)


@pytest.fixture(scope="module")
def logits():
    session = lathe_cli.session(MODEL)

    def of(tokens):
        """[tokens, vocabulary]"""
        count = len(tokens)
        caches = {name: np.zeros((1, 2, 0, 32), np.float32) for name in ("k0", "v0", "k1", "v1")}
        return session.run(["logits"], {"ids": np.array([tokens], np.int64), "pos": np.arange(count)[None],
                                        "mask": np.ones((1, count), np.int64), **caches})[0][0]

    return of


def log_softmax(row):
    row = row.astype(np.float64) - row.max()
    return row - np.log(np.exp(row).sum())


def generate(path, *options):
    return [json.loads(line) for line in lathe_cli.lathe("generate", path, "--json", *options).splitlines()
            if line.startswith("{")]


def test_logprobs(path, engine, logits):
    prompt = ",".join(map(str, PROMPT))
    row = generate(path, "--tokens", prompt, "--max-tokens=20", "--temperature=1.3", "--seed=5", "--logprobs=4",
                   "--prompt-logprobs")[0]
    tokens = PROMPT + row["tokens"]
    truth = [log_softmax(line) for line in logits(tokens)]
    known = row["prompt_logprobs"] + row["logprobs"]
    assert len(known) == len(tokens) - 1
    for i, one in enumerate(known):
        assert one["logprob"] == pytest.approx(truth[i][tokens[i + 1]], abs=1e-4)
        order = np.argsort(-truth[i], kind="stable")
        assert one["rank"] == 1 + int((truth[i] > truth[i][tokens[i + 1]]).sum())
        assert [token for token, _ in one["top"]] == order[:4].tolist()
        assert [value for _, value in one["top"]] == pytest.approx(truth[i][order[:4]].tolist(), abs=1e-4)
    assert any(one["rank"] > 1 for one in row["logprobs"])  # it draws
    # In small steps and behind a preemption they are the same: a pool of little more than one sequence.
    llm = engine.llm(kv_bytes=50 << 10, max_sequence_tokens=32, max_step_tokens=3, max_requests=3)
    answers = [llm.submit(PROMPT, 20, temperature=1.3, seed=5 + i, logprobs=4, prompt_logprobs=True)[0] for i in range(3)]
    llm.run()
    assert llm.counters()["preemptions"] > 0
    for i, one in enumerate(answers[0].prompt_logprobs() + answers[0].logprobs()):
        assert one.logprob == pytest.approx(known[i]["logprob"], abs=1e-4)
        assert list(one.top) == [token for token, _ in known[i]["top"]]
    with pytest.raises(lathe.Error, match="no logprobs of token 20"):
        answers[0]._logprobs(0, 20)


def test_penalties_and_bias(engine, logits):
    asked = dict(repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.6,
                 logit_bias={3: 2.0, 300: -math.inf, 8: 1.5})
    answer = engine.llm().generate(PROMPT, 24, **asked)
    rows = logits(PROMPT + answer)[len(PROMPT) - 1:-1]
    seen, counts = set(PROMPT), {}
    plain = 0
    for row, token in zip(rows, answer):
        plain += int(row.argmax()) == token
        row = row.copy()
        for t, value in asked["logit_bias"].items():
            row[t] += value
        for t in seen:
            row[t] = row[t] / 1.3 if row[t] > 0 else row[t] * 1.3
        for t, n in counts.items():
            row[t] -= 0.6 * n + 0.4
        best, second = np.sort(row)[-1:-3:-1]
        assert row[token] == best or best - row[token] < 3e-4, (token, int(row.argmax()), best - second)
        seen.add(token)
        counts[token] = counts.get(token, 0) + 1
    assert plain < len(answer)  # they matter


def test_allowed_stops_and_least_tokens(engine):
    llm = engine.llm()
    few = [5, 77, 300, 511]
    answer = llm.submit(PROMPT, 20, temperature=5.0, allowed_tokens=few)[0]
    llm.run()
    assert set(answer.tokens) <= set(few) and len(set(answer.tokens)) > 1 and answer.finish == "length"
    greedy = llm.generate(PROMPT, 20)
    stopped = llm.submit(PROMPT, 20, stop_tokens=[greedy[2]])[0]
    llm.run()
    assert stopped.finish == "stop" and stopped.tokens == greedy[:greedy.index(greedy[2]) + 1]
    later = llm.generate(PROMPT, 20, stop_tokens=[greedy[0], greedy[2]], min_tokens=9)
    assert len(later) >= 9 and greedy[0] not in later[:8] and greedy[2] not in later[:8]
    for wrong, message in ((dict(temperature=-1), "temperature"), (dict(top_p=2), "top_p"), (dict(min_p=-1), "min_p"),
                           (dict(allowed_tokens=[]), "allows no token"), (dict(allowed_tokens=[600]), "words"),
                           (dict(logit_bias={512: 1}), "token 512"), (dict(logprobs=21), "more than 20"),
                           (dict(min_tokens=99), "min_tokens"), (dict(repetition_penalty=-1), "repetition_penalty")):
        with pytest.raises(lathe.Error, match=message):
            llm.submit(PROMPT, 4, **wrong)
    assert llm.counters()["running"] == llm.counters()["waiting"] == 0


def test_counters_for_a_caller_whose_struct_is_shorter(engine):
    llm = engine.llm()
    llm.generate(PROMPT, 4)
    found = CLlmCounters(CLlmCounters.waited_ns.offset, waited_ns=7)
    llm._library.lathe_llm_get_counters(llm._handle, ctypes.byref(found))
    whole = llm.counters()
    assert found.steps == whole["steps"] == 4 and found.generated_tokens == whole["generated_tokens"]
    assert found.waited_ns == 7 and found.size == CLlmCounters.waited_ns.offset


def test_samples_share_their_prompt(engine):
    prompt = [(7 * i + 3) % 512 for i in range(40)]
    asked = dict(temperature=1.5, seed=3)
    llm = engine.llm(batch_invariant=True)
    answers = llm.submit(prompt, 8, samples=4, **asked)
    llm.run()
    assert len({tuple(answer.tokens) for answer in answers}) == 4
    counters = llm.counters()
    assert counters["computed_tokens"] == 40 + 4 * 7 and counters["prompt_tokens"] == 40
    assert counters["kv_blocks_held"] == 0
    # The first is what one answer alone would be.
    assert engine.llm(batch_invariant=True).generate(prompt, 8, **asked) == answers[0].tokens
    # Cancelled ones keep what they have; the others go on.
    again = llm.submit(prompt, 8, samples=4, **asked)
    again[0].cancel()
    llm.step()
    llm.step()
    again[2].cancel()
    llm.run()
    assert [answer.finish for answer in again] == ["cancelled", "length", "cancelled", "length"]
    assert again[0].tokens == [] and again[1].tokens == answers[1].tokens
    assert again[2].tokens == answers[2].tokens[:len(again[2].tokens)] != []
    assert llm.counters()["kv_blocks_held"] == 0


def test_tenants_and_priorities(engine):
    llm = engine.llm(max_requests=2, max_step_tokens=8)
    with pytest.raises(lathe.Error, match="weight"):
        llm.set_tenant(1, weight=-2)
    llm.set_tenant(1, max_requests=1)
    first = [llm.submit([5, 6, i], 8, tenant=1)[0] for i in range(2)]
    urgent = llm.submit([9, 9], 4, priority=5)[0]
    while not urgent.finish:
        llm.step()
    assert first[0].tokens and not first[1].tokens  # one at a time
    llm.run()
    assert all(answer.finish == "length" for answer in first)


def test_generation_config(path, tmp_path):
    prompt = ["--tokens", ",".join(map(str, PROMPT))]
    folder = tmp_path / "model"
    os.makedirs(folder)
    engine = shutil.copy(path, folder)
    config = {"do_sample": True, "temperature": 1.2, "top_k": 5, "top_p": 0.9, "repetition_penalty": 1.1,
              "eos_token_id": [1, 2], "max_new_tokens": 9, "pad_token_id": 0}
    with open(folder / "generation_config.json", "w") as f:
        json.dump(config, f)
    said = generate(path, *prompt, "--temperature=1.2", "--top-k=5", "--top-p=0.9", "--repetition-penalty=1.1",
                    "--stop=1,2", "--max-tokens=9", "--seed=4")
    assert generate(engine, *prompt, "--seed=4")[0]["tokens"] == said[0]["tokens"]
    assert generate(path, *prompt, "--seed=4", "--config", folder / "generation_config.json")[0]["tokens"] == \
        said[0]["tokens"]
    assert generate(engine, *prompt, "--no-config", "--max-tokens=9")[0]["tokens"] == \
        generate(path, *prompt, "--max-tokens=9")[0]["tokens"]
    with open(folder / "generation_config.json", "w") as f:
        json.dump({**config, "num_beams": 4}, f)
    assert "num_beams" in lathe_cli.lathe("generate", engine, *prompt, code=4)
    with open(folder / "generation_config.json", "w") as f:
        f.write("{")
    assert "no JSON" in lathe_cli.lathe("generate", engine, *prompt, code=3)


def test_wrong_options(path):
    for option, message in (("--bias=5", "TOKEN:NUMBER"), ("--top-k=x", "wants a number"), ("--allow=a", "commas"),
                            ("--min-p=3", "min_p"), ("--top-k=-1", "top_k")):
        assert message in lathe_cli.lathe("generate", path, "--tokens=1", option, code=2)
    assert generate(path, "--tokens=1", "--bias=44:+500", "--max-tokens=3")[0]["tokens"] == [44] * 3


def test_progress(path):
    shown = lathe_cli.lathe("generate", path, "--tokens=1", "--max-tokens=2000", "--temperature=1", "--progress")
    assert " a second; 1 requests run, 0 wait" in shown
    assert "requests run" not in lathe_cli.lathe("generate", path, "--tokens=1", "--max-tokens=20")
