# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A decoder in bf16 that sees a window and a few first tokens (`--kv-window=W:S`), on a GPU against the CPU.

`check_window.py prepare FOLDER` needs a build of lathe and onnx. `check_window.py run FOLDER` needs a GPU and
python-frontend with the runtime library. Exit code 1 when a token is wrong.

Compared are the logprobs of prompts of 2 to 470 tokens, whose window is 40 tokens and the first four, with steps of
one and of many tokens and with a pool that is too small for all prompts at once. What the same weights say without a
window, and with one but no first tokens, differs by a hundred times as much.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.environ.get("LATHE_ROOT", os.path.abspath(os.path.join(HERE, "..", "..", "..")))
sys.path[:0] = [HERE, os.path.join(ROOT, "python-frontend")]

CPU = "--target=x86-64-v3"
ENGINES = {"all": [CPU], "window": [CPU, "--kv-window=40"], "near": [CPU + ",sm_90a", "--kv-window=40:4"]}
STEPS = [(64, 4000), (512, 4000), (16, 90)]  # tokens, pages
BAR = 0.08  # of a logprob; bf16


def prepare(folder):
    import check_paged as made

    os.makedirs(folder, exist_ok=True)
    model = os.path.join(folder, "model.onnx")
    made.save_decoder(model, made.HALVES)
    for name, options in ENGINES.items():
        made.keep(
            made.compile_paged(model, os.path.join(folder, f"{name}.lathe"), f"--random-weights={made.SEED}", *options)
        )
    os.remove(model)


def logprobs(engine, device, tokens, pages):
    import check_paged as made
    import numpy as np

    s, draw = made.HALVES, np.random.default_rng(3)
    page = 2 * s["layers"] * s["groups"] * s["head"] * 2 * made.PAGE  # keys and values, in bytes
    llm = engine.llm(
        device,
        max_step_tokens=tokens,
        max_requests=8,
        max_sequence_tokens=512,
        kv_bytes=pages * page,
        prefix_cache=False,
    )
    answers = [
        llm.submit(draw.integers(0, s["words"], n).tolist(), 4, prompt_logprobs=True)[0]
        for n in (2, 30, 44, 45, 60, 130, 200, 333, 470)
    ]
    llm.run()
    return np.concatenate([[one.logprob for one in a.prompt_logprobs()] for a in answers])


def run(folder):
    import numpy as np
    from profile_steps import load

    engines = {name: load(folder, name) for name in ENGINES}
    want = {name: logprobs(engine, "cpu", *STEPS[0]) for name, engine in engines.items()}
    others = {name: np.abs(want[name] - want["near"]).max() for name in ("all", "window")}
    print(
        f"without a window logprobs differ by {others['all']:.3f}, without first tokens by {others['window']:.3f}",
        flush=True,
    )
    bad = min(others.values()) < 5 * BAR  # the comparison would say little
    for tokens, pages in STEPS:
        off = np.abs(logprobs(engines["near"], "cuda:0", tokens, pages) - want["near"])
        wrong = not off.max() < BAR
        bad |= wrong
        print(
            f"steps of {tokens:4} tokens, {pages:5} pages: logprobs of {len(off)} tokens differ by {off.max():.3f} at most, "
            f"{off.mean():.4f} in the mean{'  WRONG' if wrong else ''}",
            flush=True,
        )
    return bad


if __name__ == "__main__":
    sys.exit({"prepare": prepare, "run": run}[sys.argv[1]](*sys.argv[2:]) or 0)
