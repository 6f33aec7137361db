# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keys and values as codes: perplexity of language_model.py's decoder in pages (`--paged --kv=int8`), of the rows that
language.py tests on.

All tokens of a batch are one step, and each token reads keys and values, its own included, as the pages hold them.
"""
import numpy as np
import torch
import transformers

import frame
import language_model
from language_model import FOLDER

SCHEMES = {"int8": ("kv int8", 1.002), "int4": ("kv int4", 1.01)}
NUMBERS = {"f32": np.float32, "i8": np.int8, "ui8": np.uint8}


def logits_of(engine, ids):
    """f32 [B, S, VOCABULARY] of ids i64 [B, S], by one step over pages that are empty before it."""
    ports = {port.name: port for port in engine.inputs()}
    batch, length = ids.shape
    tokens = int(ports["pool"].dims[3])  # of a page
    each = -(-length // tokens)
    positions = np.tile(np.arange(length), batch)
    owners = np.repeat(np.arange(batch), length)
    # A row of tables for each token whose logits are wanted, which are all: those behind the sequences' own belong to
    # none.
    tables = np.zeros((batch * length, each), np.int64)
    tables[:batch] = np.arange(batch * each).reshape(batch, each)
    slots = tables[owners, positions // tokens] * tokens + positions % tokens
    inputs = {"tokens": ids.reshape(-1), "positions": positions, "requests": owners, "slots": slots, "tables": tables,
              "rows": np.arange(batch * length)}
    for name in ("pool", "scales"):
        if name in ports:
            inputs[name] = np.zeros((batch * each, *map(int, ports[name].dims[1:])), NUMBERS[ports[name].dtype])
    logits = engine.run(inputs)["logits"].numpy()
    return logits.reshape(batch, length, -1)


def measure(limit, beginning=""):
    """A row for each width of codes whose name begins so; all keys and values are quantized."""
    wanted = {kind: row for kind, row in SCHEMES.items() if row[0].startswith(beginning)}
    if not wanted:
        return
    import lathe.torch
    language_model.made()
    model = transformers.LlamaForCausalLM.from_pretrained(FOLDER, attn_implementation="sdpa", dtype=torch.float32)
    model.eval()
    rows = language_model.unseen(limit)

    def perplexity(options):
        engine = lathe.torch.export(model, paged=True, options=options)
        return language_model.perplexity(lambda ids: logits_of(engine, ids), rows)

    true = perplexity([])
    for kind, (name, bar) in wanted.items():
        score = perplexity([("kv", kind)])
        yield frame.Row("language", "perplexity", len(rows), name, 1, true, score, score / true, bar)
