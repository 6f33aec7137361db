# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoders as exporters wrote them, compiled with --paged, generate what transformers does.

Answers are compared up to the first step whose two best logits are closer than GAP. All requests share
steps and pool; with --batch-invariant they give the same bits alone, in other company and after a preemption. Graphs with a
planted fault are refused at the node that has it.
"""
import json
import os

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import lathe_cli

DECODERS = os.path.join(lathe_cli.MODELS, "decoders")
LLAMAS = os.path.join(lathe_cli.MODELS, "llama")
NAMES = ["llama3", "qwen3", "mistral"]
MORE = ["mistral_window", "gemma3", "gpt2", "phi3", "gpt_oss", "bloom"]  # gemma3, gpt_oss: a layer with a window of nine tokens, one without
GAP = 3e-4  # of logits of a few units; f32 sums in another order differ by about 1e-5
PAGE, LAYERS, KV_HEADS, HEAD = 16, 2, 2, 32
BLOCKS, TILE = 10, 24


def model_of(name):
    return os.path.join(DECODERS, name, "model.onnx")


def expected(name):
    with open(os.path.join(DECODERS, name, "expected.json")) as f:
        return json.load(f)


@pytest.fixture(scope="module")
def paged(tmp_path_factory):
    made = {}

    def compile_once(name):
        if name not in made:
            engine = tmp_path_factory.mktemp("paged") / f"{name}.lathe"
            made[name] = lathe_cli.compile_model(model_of(name), engine, "--paged",
                                                 target="native,sm_90a" if name in NAMES else "native")
        return made[name]

    return compile_once


def generate(engine, rows, folder, *options):
    """The answers, in order, and what the command says of the run."""
    file = folder / "requests.jsonl"
    with open(file, "w") as f:
        for row in rows:
            f.write(json.dumps(row) + "\n")
    text = lathe_cli.lathe("generate", engine, "--requests", file, "--json", *options)
    lines = text.splitlines()
    return [json.loads(line)["tokens"] for line in lines[:len(rows)]], lines[len(rows)]


def requests(name, **more):
    return [{"tokens": row["prompt"], "max_tokens": len(row["tokens"]), **more} for row in expected(name)]


@pytest.mark.parametrize("name", NAMES + MORE)
def test_greedy_tokens(paged, tmp_path, name):
    answers, _ = generate(paged(name), requests(name), tmp_path, "--device", lathe_cli.DEVICE, "--steps",
                          tmp_path / "steps.jsonl")
    with open(tmp_path / "steps.jsonl") as f:
        steps = [json.loads(line) for line in f]
    assert sum(step["generated"] for step in steps) == sum(map(len, answers))
    assert all(step["generated"] <= step["tokens"] <= 64 and step["ms"] > 0 for step in steps)
    compared = steps = 0
    for row, answer in zip(expected(name), answers):
        assert len(answer) == len(row["tokens"])
        sure = next((i for i, gap in enumerate(row["gaps"]) if gap < GAP), len(row["gaps"]))
        assert answer[:sure] == row["tokens"][:sure]
        compared, steps = compared + sure, steps + len(answer)
    assert compared >= 0.9 * steps
    assert len({token for answer in answers for token in answer}) > 50  # not one token for ever


def test_overlapping_steps(paged, tmp_path):
    """A step is launched before the tokens of the one before have come: the same answers, also of requests that stop and
    of drawn ones."""
    greedy = requests("llama3")
    for row, more in zip(greedy, expected("llama3")):
        row["stop_tokens"] = more["tokens"][9:10]
    for rows in (greedy, requests("llama3", temperature=1.5, seed=7)):
        options = ["--device", lathe_cli.DEVICE, "--batch-invariant"] if lathe_cli.DEVICE == "cpu" else ["--device", lathe_cli.DEVICE]
        wanted, _ = generate(paged("llama3"), rows, tmp_path, *options, "--overlap=off")
        assert generate(paged("llama3"), rows, tmp_path, *options, "--overlap=on")[0] == wanted


def check_small_pool(engine, name, pool_bytes, folder):
    """Sequences of up to 64 tokens in steps of seven: the tokens of transformers, as far as they are sure."""
    answers, _ = generate(engine, requests(name), folder, "--step-tokens=7", "--at-once=7", f"--kv-memory={pool_bytes // 1024}K")
    for row, answer in zip(expected(name), answers):
        sure = next((i for i, gap in enumerate(row["gaps"]) if gap < GAP), len(row["gaps"]))
        assert len(answer) == len(row["tokens"]) and answer[:sure] == row["tokens"][:sure]


def test_window_gives_pages_back(paged, tmp_path):
    """Sequences of up to 64 tokens in a pool of three pages, as a token sees nine and a step takes seven."""
    said = json.loads(lathe_cli.lathe("inspect", paged("mistral_window"), "--json", "--memory"))["pages"]
    assert [(g["window"], g["most_pages_of_a_sequence"]) for g in said] == [(9, 6)]  # in steps of 64 tokens
    check_small_pool(paged("mistral_window"), "mistral_window", 3 * said[0]["page_bytes"], tmp_path)


@pytest.mark.parametrize("name", ["gemma3", "gpt_oss"])
def test_mixed_layers_give_pages_back_apart(paged, tmp_path, name):
    """A layer with a window and one without have pages of one layer each: of 64 tokens the one keeps two and the other
    four, where eight would be needed to keep all."""
    said = json.loads(lathe_cli.lathe("inspect", paged(name), "--json", "--memory"))["pages"]
    assert sorted((g["layers"], g.get("window", 0)) for g in said) == [(1, 0), (1, 9)]
    check_small_pool(paged(name), name, 6 * said[0]["page_bytes"], tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_any_company(paged, tmp_path, name):
    """Drawn tokens, which differ where a bit of the logits differs enough, in other steps and pools."""
    rows = requests(name, temperature=1.5, seed=7)
    wanted, _ = generate(paged(name), rows, tmp_path, "--batch-invariant")
    alone, _ = generate(paged(name), rows, tmp_path, "--batch-invariant", "--at-once=1", "--no-prefix-cache")
    assert alone == wanted
    small, said = generate(paged(name), rows, tmp_path, "--batch-invariant", "--step-tokens=7", "--at-once=7",
                           "--kv-memory=140K")
    assert small == wanted
    assert int(said.split()[-2]) > 0, said  # preemptions
    assert generate(paged(name), rows[3:4], tmp_path, "--batch-invariant")[0] == wanted[3:4]


def step(engine, folder, sequences, bits=0):
    """Logits of the last token of each (tokens, pages), and the pool, of one step from an empty pool that is
    padded to whole tiles of products, as the runtime does it. `bits`: of codes; the pool then as numbers, and scales."""
    tokens, positions, owners, slots, rows = [], [], [], [], []
    width = max(len(pages) for _, pages in sequences)
    tables = [pages + [0] * (width - len(pages)) for _, pages in sequences]
    for i, (own, pages) in enumerate(sequences):
        for p, token in enumerate(own):
            tokens.append(token)
            positions.append(p)
            owners.append(i)
            slots.append(pages[p // PAGE] * PAGE + p % PAGE)
        rows.append(len(tokens) - 1)
    spare = BLOCKS * PAGE
    while len(tokens) % TILE:
        tokens, positions, owners, slots = tokens + [tokens[0]], positions + [0], owners + [0], slots + [spare]
        spare += 1
    while len(rows) % TILE:
        rows, tables = rows + rows[:1], tables + tables[:1]
    inputs = {"tokens": tokens, "positions": positions, "requests": owners, "slots": slots, "tables": tables,
              "rows": rows}
    inputs = {k: np.asarray(v, np.int64) for k, v in inputs.items()}
    kind = {0: np.float32, 8: np.int8, 4: np.uint8}[bits]
    inputs["pool"] = np.zeros((BLOCKS + 2, LAYERS, 2, PAGE, KV_HEADS, HEAD // 2 if bits == 4 else HEAD), kind)
    if bits:
        inputs["scales"] = np.zeros((BLOCKS + 2, LAYERS, 2, KV_HEADS, PAGE), np.float32)
    outputs = lathe_cli.run(engine, folder, inputs=inputs, device="cpu")
    if not bits:
        return outputs["logits"], outputs["next_pool"]
    codes, scales = outputs["next_pool"], outputs["next_scales"].swapaxes(-1, -2)[..., None]
    if bits == 4:
        codes = np.concatenate([codes & 15, codes >> 4], -1).astype(np.int8) - 8
    return outputs["logits"], codes * scales, scales


@pytest.mark.parametrize("bits,most", [(8, 0.02), (4, 0.3)])
def test_codes(paged, tmp_path, bits, most):
    """Keys and values of 8 and 4 bits: what is stored is the nearest code, and answers do not depend on blocks that are
    shared, copied and given up."""
    coded = lathe_cli.compile_model(model_of("llama3"), tmp_path / "coded.lathe", "--paged", f"--kv=int{bits}", target="native")
    prompts = [row["prompt"] for row in expected("llama3") if 18 < len(row["prompt"])][:3] + [[5]]
    rows = list(zip(prompts, [[1, 6, 0], [2, 7, 8], [5, 3, 9], [4]]))
    wanted, pool = step(paged("llama3"), tmp_path, rows)
    logits, numbers, scales = step(coded, tmp_path, rows, bits)
    for prompt, pages in rows:
        for p in range(len(prompt)):  # the first layer: the second one's keys follow from what attention read
            at = pages[p // PAGE], 0, slice(None), p % PAGE
            assert (np.abs(numbers[at] - pool[at]) <= 0.5001 * scales[at]).all()
            assert np.allclose(np.abs(pool[at]).max(-1, keepdims=True), scales[at] * (127 if bits == 8 else 7))
    error = np.linalg.norm(logits - wanted) / np.linalg.norm(wanted)
    assert 1e-6 < error < most
    own = requests("llama3", temperature=1.5, seed=7)
    plenty, _ = generate(coded, own, tmp_path, "--batch-invariant")
    few, said = generate(coded, own, tmp_path, "--batch-invariant", "--step-tokens=7", "--at-once=7", f"--kv-memory={42 if bits == 8 else 26}K")
    assert few == plenty
    assert int(said.split()[-2]) > 0, said  # preemptions


def test_codes_want_pages(tmp_path):
    for options, words in ((["--kv=int8"], "--paged makes"), (["--paged", "--kv=int3"], "int8 or int4")):
        assert words in lathe_cli.lathe("compile", model_of("llama3"), "-o", tmp_path / "x.lathe", *options, code=2)
    assert not (tmp_path / "x.lathe").exists()


@pytest.mark.parametrize("name", NAMES)
def test_bits_alone_and_batched(paged, tmp_path, name):
    prompts = [row["prompt"] for row in expected(name) if 18 < len(row["prompt"])][:3] + [[5]]
    pages = [[1, 6, 0], [2, 7, 8], [5, 3, 9], [4]]
    together, pool = step(paged(name), tmp_path, list(zip(prompts, pages)))
    for i, (prompt, own) in enumerate(zip(prompts, pages)):
        alone, its = step(paged(name), tmp_path, [(prompt, own)])
        assert np.array_equal(alone[0], together[i])
        for p in range(len(prompt)):
            assert np.array_equal(its[own[p // PAGE], :, :, p % PAGE], pool[own[p // PAGE], :, :, p % PAGE])


@pytest.mark.parametrize("form", ["dynamo18_sdpa", "dynamo23_sdpa", "dynamo18_eager", "ts17_sdpa", "ts17_eager"])
def test_forms(tmp_path, form):
    """Other exporters' masks and attention come to the same."""
    engine = lathe_cli.compile_model(os.path.join(LLAMAS, form, "model.onnx"), tmp_path / "m.lathe", "--paged",
                                     target="native")
    rows = [{"tokens": [7, 1, 300, 22, 5], "max_tokens": 12}, {"tokens": [9], "max_tokens": 12}]
    answers, _ = generate(engine, rows, tmp_path)
    session = lathe_cli.session(os.path.join(LLAMAS, form, "model.onnx"))
    for row, answer in zip(rows, answers):
        caches = [np.zeros((1, KV_HEADS, 0, HEAD), np.float32)] * (2 * LAYERS)
        ids, past, tokens = np.array([row["tokens"]], np.int64), 0, []
        for _ in range(row["max_tokens"]):
            count = past + ids.shape[1]
            feed = {"ids": ids, "pos": np.arange(past, count)[None], "mask": np.ones((1, count), np.int64),
                    **dict(zip(["k0", "v0", "k1", "v1"], caches))}
            logits, *caches = session.run(None, feed)
            tokens.append(int(logits[0, -1].argmax()))
            ids, past = np.array([[tokens[-1]]], np.int64), count
        assert answer == tokens


# Faults, planted in the graph of dynamo18_sdpa: what is refused, and words of the reason.
def add_constant(graph, name, value):
    graph.initializer.append(numpy_helper.from_array(np.array(value), name))
    return name


def before(graph, node, index, op, inputs, name="planted"):
    """Puts `op` between a node and its operand."""
    made = helper.make_node(op, [node.input[index], *inputs], ["planted_value"], name=name)
    node.input[index] = "planted_value"
    graph.node.insert(list(graph.node).index(node), made)


def first(graph, op):
    return next(n for n in graph.node if n.op_type == op)


def reader(graph, value):
    return next(n for n in graph.node if value in n.input)


def plant(graph, fault):
    one = add_constant(graph, "planted_one", np.int64(1))
    compare = first(graph, "LessOrEqual")
    if fault == "future":
        before(graph, compare, 1, "Add", [one])
    elif fault == "blind":
        before(graph, compare, 1, "Sub", [one])
    elif fault == "padding":
        reversed_rows = [add_constant(graph, f"planted_{n}", np.array([v], np.int64))
                         for n, v in (("start", -1), ("end", -2**62), ("axis", 0), ("step", -1))]
        before(graph, reader(graph, "mask"), 0, "Slice", reversed_rows)
    elif fault == "positions":
        before(graph, next(n for n in graph.node if n.op_type == "Unsqueeze" and "pos" in n.input), 0, "Add", [one])
    elif fault == "keys":
        present = next(n for n in graph.node if "pk0" in n.output)
        for i, value in enumerate(present.output):
            present.output[i] = "planted_present"
        graph.node.insert(list(graph.node).index(present) + 1,
                          helper.make_node("Neg", ["planted_present"], ["pk0"], name="planted"))
    elif fault == "size":
        head = next(n for n in graph.node if "logits" in n.output)
        head.output[0] = "planted_logits"
        graph.node.extend([
            helper.make_node("Shape", ["k0"], ["planted_shape"], name="planted_shape", start=2, end=3),
            helper.make_node("Cast", ["planted_shape"], ["planted_size"], name="planted", to=1),
            helper.make_node("Add", ["planted_logits", "planted_size"], ["logits"], name="planted_add")])
    elif fault == "mean":
        head = next(n for n in graph.node if "logits" in n.output)
        head.output[0] = "planted_logits"
        axes = add_constant(graph, "planted_axes", np.array([1], np.int64))
        graph.node.extend([
            helper.make_node("ReduceMean", ["planted_logits", axes], ["planted_mean"], name="planted", keepdims=1),
            helper.make_node("Add", ["planted_logits", "planted_mean"], ["logits"], name="planted_add")])


FAULTS = {
    "future": ("O3", "-P + _key - _query - 1 <= 0"),
    "blind": ("O3", "-P + _key - _query + 1 <= 0"),
    "padding": ("O3", "hides key _key of row _batch"),
    "positions": ("O4", "P + _query + 1, not P + _query"),
    "keys": ("O2", "present"),
    "size": ("O5", "the size P is data"),
    "mean": ("O1", "tokens"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_refused(tmp_path, fault):
    model = onnx.load(os.path.join(LLAMAS, "dynamo18_sdpa", "model.onnx"))
    plant(model.graph, fault)
    path = str(tmp_path / "model.onnx")
    onnx.save(model, path)
    text = lathe_cli.lathe("compile", path, "-o", tmp_path / "m.lathe", "--paged", code=4)
    obligation, reason = FAULTS[fault]
    assert f"cannot be paged ({obligation}," in text and reason in text and "node" in text
    lathe_cli.lathe("compile", path, "-o", tmp_path / "m.lathe")  # it is a graph like others


def test_refusals_of_the_command(paged, tmp_path):
    engine = paged("llama3")
    assert "below the vocabulary's 512" in lathe_cli.lathe("generate", engine, "--tokens=512", code=2)
    assert "needs 251 blocks" in lathe_cli.lathe("generate", engine, "--tokens=1", "--max-tokens=4000",
                                             "--kv-memory=1M", code=4)
    plain = lathe_cli.compile_model(model_of("llama3"), tmp_path / "plain.lathe", target="native")
    assert "paged decoder" in lathe_cli.lathe("generate", plain, "--tokens=1", code=2)
    # A GPU sums products of other numbers of rows in other orders.
    assert "batch-invariant" in lathe_cli.lathe("generate", engine, "--tokens=1", "--batch-invariant",
                                                "--device=fake:0", code=4)
