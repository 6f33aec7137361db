# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps behind many keys on a GPU: how attention shares its keys among blocks changes no result.

`check_long.py prepare FOLDER [TARGET]` needs a build of lathe and onnx. `check_long.py run FOLDER [DEVICE [LONGEST]]`
needs a GPU (or `cpu`), torch, and python-frontend with the runtime library.

Every step is run as it is, and beside the prompt of one more sequence, with which it has so many tokens that keys are
not shared: both read the same pool of random keys, and logits and new keys of what both have must agree. Of one token
a sequence the first form is attention.streamk, with lengths by Zipf and with equal ones; of pieces of prompts beside
answers attention.ragged, which splits keys. Decoders: two small layers, and four of Llama-3-8B's sizes, whose weights
are drawn where they are loaded. Exit code 1 when results differ by more than rounding to bf16 explains.
"""

import os
import sys

ROOT = os.environ.get("LATHE_ROOT", os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..")))
sys.path.insert(0, os.path.join(ROOT, "python-frontend"))

PAGE, COMPANY = 16, 600
MOST = 2e-2  # of the largest value


def sizes():
    import check_paged as made

    return {"halves": made.HALVES, "llama8b-four": {**made.LLAMA_8B, "layers": 4}}


def prepare(folder, target="sm_90a"):
    import check_paged as made

    os.makedirs(folder, exist_ok=True)
    for name, of in sizes().items():
        model = os.path.join(folder, "model.onnx")
        made.save_decoder(model, of)
        made.keep(
            made.compile_paged(
                model, os.path.join(folder, f"{name}.lathe"), f"--target={target}", f"--random-weights={made.SEED}"
            )
        )
        os.remove(model)


def steps(longest):
    """{name: [(first token, end) of each sequence]}, sequences of up to `longest` keys."""

    def one(lengths):
        return [(n - 1, n) for n in lengths]

    zipf = [max(longest // n, 50) for n in range(1, 65)]
    pieces = [(longest - 96 - i, longest - i) for i in (0, 7)] + [
        (longest // 2 - 40, longest // 2 + 8),
        (longest // 5, longest // 5 + 77),
        (0, 30),
    ]
    return {
        "one token each, lengths by Zipf": one(zipf),
        "one token each, the longest last": one(zipf[::-1]),
        "one token each, nearly alike": one([longest // 16 + i % 3 for i in range(64)]),
        "one token each of 100": one([longest // (2 + i % 23) for i in range(100)]),
        "one token each, all but one short": one([20] * 40 + [longest] + [20] * 23),
        "a piece of a prompt": [(longest - 112, longest)],
        "pieces of prompts beside answers": one(zipf[1:33]) + pieces,
        "pieces, more than there are places for": [(longest - 80 * (i + 1), longest - 80 * i) for i in range(6)],
    }


def inputs_of(pieces, words):
    """What a step takes beside its pool, and how many pages that has."""
    import numpy as np

    width = -(-max(end for _, end in pieces) // PAGE)
    made = {key: [] for key in ("tokens", "positions", "requests", "slots", "tables", "rows")}
    used = 0
    for r, (first, end) in enumerate(pieces):
        count = -(-end // PAGE)
        pages = [used + (i * 7 + 3) % count if count % 7 else used + count - 1 - i for i in range(count)]
        used += count
        for i in range(first, end):
            made["tokens"].append((31 * r + 17 * i + i * i) % words)
            made["positions"].append(i)
            made["requests"].append(r)
            made["slots"].append(pages[i // PAGE] * PAGE + i % PAGE)
        made["tables"].append(pages + [0] * (width - count))
        made["rows"].append(len(made["tokens"]) - 1)
    return {key: np.array(value, np.int64) for key, value in made.items()}, used


def difference(found, other):
    return float((found.float() - other.float()).abs().max() / other.float().abs().max())


def check(name, engine, of, device, longest):
    import torch

    context, bad = engine.context(device), 0
    place = "cpu" if device == "cpu" else "cuda"
    for title, pieces in steps(longest).items():
        _, company = inputs_of(pieces + [(0, COMPANY)], of["words"])
        draw = torch.Generator(device=place).manual_seed(7)
        pool = torch.randn(company, of["layers"], 2, PAGE, of["groups"], of["head"], device=place, generator=draw).to(
            torch.bfloat16
        )
        found = []
        for asked in (pieces, pieces + [(0, COMPANY)]):
            inputs, _ = inputs_of(asked, of["words"])
            given = pool.clone()
            outputs = context.run({**inputs, "pool": given}, memory="device")
            logits = torch.from_dlpack(outputs["logits"])[: len(pieces)].clone()
            slots = torch.from_numpy(inputs["slots"][: sum(end - first for first, end in pieces)]).to(place)
            keys = torch.from_dlpack(outputs["next_pool"]).transpose(2, 3).transpose(1, 2).flatten(0, 1)[slots].clone()
            found.append((logits, keys))
            del outputs, given
        errors = [difference(a, b) for a, b in zip(*found)]
        wrong = not all(error < MOST for error in errors)
        bad += wrong
        print(
            f"{name:12} {title:40} logits {errors[0]:.1e}  keys and values {errors[1]:.1e}{'  WRONG' if wrong else ''}",
            flush=True,
        )
    return bad


def run(folder, device="cuda:0", longest="24000"):
    import torch
    from profile_steps import load

    if device != "cpu":
        torch.cuda.init()
        print(torch.cuda.get_device_name(), flush=True)
    return sum(check(name, load(folder, name), of, device, int(longest)) for name, of in sizes().items()) > 0


if __name__ == "__main__":
    sys.exit({"prepare": prepare, "run": run}[sys.argv[1]](*sys.argv[2:]) or 0)
