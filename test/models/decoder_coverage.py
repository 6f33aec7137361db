# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which decoders --paged takes, of which exporter and with which form of caches: the ledger of results/decoders.md.

    decoder_coverage.py [--models NAME,...] [--exporters NAME,...] [--write]

Each cell is a model of transformers with seeded weights, exported, compiled with --paged and asked for answers. It
passes where these are the greedy tokens of transformers, up to the first step whose two best logits are closer than
GAP; else the ledger has the node and the reason of the refusal, or what the exporter said. Without --write the
program compares with the ledger and ends with 1 where a cell passes no more. Exports lie in build/models/coverage.
"""
import argparse
import contextlib
import io
import json
import logging
import os
import re
import sys
import tempfile
import warnings

import torch
from transformers import DynamicCache, StaticCache

import export_decoders as decoders
import export_llama as sizes
import lathe_cli

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
FOLDER = os.path.join(lathe_cli.MODELS, "coverage")
LEDGER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results", "decoders.md")
ROOM, ROWS, GAP = 128, 6, 3e-4

CACHES = ["k0", "v0", "k1", "v1"]

# exporter and form: whole sequences, past and present, the same without positions and mask, and caches with room
CELLS = [(exporter, form) for exporter in ("ts17", "dynamo18", "dynamo23")
         for form in ("none", "concat", "bare", "static") if exporter != "ts17" or form in ("none", "concat")]


class Wrapper(torch.nn.Module):
    def __init__(self, model, form):
        super().__init__()
        self.model, self.form = model, form
        # BLOOM has no positions: its scores fall with distance.
        self.takes_positions = model.config.model_type != "bloom"

    def forward(self, *inputs):
        ids, *rest = inputs
        arguments = {"input_ids": ids, "use_cache": self.form != "none"}
        if self.form in ("none", "concat"):
            positions, mask, *rest = rest
            arguments["attention_mask"] = mask
            if self.takes_positions:
                arguments["position_ids"] = positions
        if self.form == "none":
            return self.model(**arguments).logits
        if self.form == "static":
            start, *rest = rest
            cache = StaticCache(config=self.model.config, max_cache_len=ROOM)
            for i, layer in enumerate(cache.layers):
                layer.keys, layer.values = rest[2 * i:2 * i + 2]
                layer.dtype, layer.device = layer.keys.dtype, layer.keys.device
                layer.is_initialized, layer.cumulative_length = True, start.clone()
        else:
            cache = DynamicCache()
            for i in range(sizes.LAYERS):
                cache.update(*rest[2 * i:2 * i + 2], i)
        out = self.model(past_key_values=cache, **arguments)
        return (out.logits, *[x for layer in out.past_key_values.layers for x in (layer.keys, layer.values)])


def export(model, exporter, form, path):
    kind, opset = exporter.rstrip("0123456789"), int(exporter.lstrip("tsdynamo"))
    ids, positions, mask, *caches = sizes.make_case(2, 3, 5, (), 1)
    names, inputs = ["ids"], [ids]
    dim = torch.export.Dim
    b, s, p = dim("B", min=1, max=64), dim("S", min=1, max=512), dim("P", min=0, max=511)
    shapes = [{0: b, 1: s}]
    if form in ("none", "concat"):
        mask = mask if form == "concat" else torch.ones_like(ids)
        names, inputs = names + ["pos", "mask"], inputs + [positions, mask]
        shapes += [{0: b, 1: s}, {0: b, 1: dim.AUTO if form == "concat" else s}]
    if form == "static":
        names, inputs, shapes = names + ["at"], inputs + [torch.tensor([5])], shapes + [{}]
        caches = [torch.zeros(2, sizes.KV_HEADS, ROOM, sizes.HEAD) for _ in caches]
    if form != "none":
        names, inputs = names + CACHES, inputs + caches
        shapes += [{0: b} if form == "static" else {0: b, 2: p}] * len(caches)
    outputs = ["logits"] + ([f"p{name}" for name in CACHES] if form != "none" else [])
    wrapper = Wrapper(model, form).eval()  # TorchScript puts the mode back for all that is inside
    if kind == "dynamo":
        torch.onnx.export(wrapper, tuple(inputs), dynamo=True, input_names=names, output_names=outputs,
                          dynamic_shapes=(tuple(shapes),), opset_version=opset, verbose=False).save(path)
        return
    axes = {"ids": {0: "B", 1: "S"}, "pos": {0: "B", 1: "S"}, "mask": {0: "B", 1: "S" if form == "none" else "T"},
            "logits": {0: "B", 1: "S"}, **{k: {0: "B", 2: "P"} for k in CACHES}, **{k: {0: "B", 2: "T"} for k in outputs[1:]}}
    torch.onnx.export(wrapper, tuple(inputs), path, dynamo=False, input_names=names, output_names=outputs,
                      opset_version=opset, dynamic_axes={k: v for k, v in axes.items() if k in names + outputs})


def answered(engine, rows, folder):
    """None where all answers are those of transformers, else what differs."""
    requests = os.path.join(folder, "requests.jsonl")
    with open(requests, "w") as f:
        for row in rows:
            f.write(json.dumps({"tokens": row["prompt"], "max_tokens": len(row["tokens"])}) + "\n")
    lines = lathe_cli.lathe("generate", engine, "--requests", requests, "--json").splitlines()
    compared = steps = 0
    for row, line in zip(rows, lines):
        answer = json.loads(line)["tokens"]
        sure = next((i for i, gap in enumerate(row["gaps"]) if gap < GAP), len(row["gaps"]))
        if answer[:sure] != row["tokens"][:sure]:
            return "WRONG: other tokens than transformers"
        compared, steps = compared + sure, steps + len(answer)
    return None if compared >= 0.9 * steps else f"only {compared} of {steps} steps are sure"


def cell(name, model, rows, exporter, form):
    """What the ledger says of a cell."""
    folder = os.path.join(FOLDER, f"{name}_{exporter}_{form}")
    path = os.path.join(folder, "model.onnx")
    newest = max(os.path.getmtime(f) for f in (__file__, decoders.__file__, sizes.__file__))
    if not os.path.exists(path) or os.path.getmtime(path) < newest:
        os.makedirs(folder, exist_ok=True)
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                export(model, exporter, form, path)
        except Exception as problem:
            why = str(problem.__cause__ or problem).strip().splitlines()[0]
            return "not exported: " + re.sub("\x1b\\[[0-9;]*m", "", why).replace("|", "/")[:160]
    with tempfile.TemporaryDirectory() as scratch:
        engine = os.path.join(scratch, "m.lathe")
        try:
            lathe_cli.compile_model(path, engine, "--paged", target="native")
        except AssertionError as refusal:
            return str(refusal).split("lathe: ", 1)[-1].splitlines()[0].replace("|", "/")[:300]
        return answered(engine, rows, scratch) or "ok"


def read_ledger():
    if not os.path.exists(LEDGER):
        return {}
    with open(LEDGER) as f:
        rows = [[c.strip() for c in line.strip().strip("|").split("|")] for line in f if line.startswith("| `")]
    return {(r[0].strip("`"), r[1], r[2]): r[3] for r in rows}


def write_ledger(found):
    passing = [key for key, said in found.items() if said == "ok"]
    models = sorted({name for name, *_ in found})
    with open(LEDGER, "w") as f:
        f.write("# Decoders that --paged takes\n\nWritten by `test/models/decoder_coverage.py --write`, which says "
                f"what a cell is. {len(passing)} of {len(found)} cells pass: "
                + ", ".join(f"{m} {sum(p[0] == m for p in passing)}" for m in models) + ".\n\n"
                "| model | exporter | caches | result |\n|---|---|---|---|\n")
        for (name, exporter, form), said in sorted(found.items()):
            f.write(f"| `{name}` | {exporter} | {form} | {said} |\n")


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(decoders.MODELS), help="names, with commas between")
    parser.add_argument("--exporters", default="ts17,dynamo18,dynamo23", help="names, with commas between")
    parser.add_argument("--write", action="store_true", help="write the ledger")
    options = parser.parse_args()
    known, worse = read_ledger(), []
    found = dict(known)
    for name in options.models.split(","):
        model = decoders.build(name)
        rows = decoders.answers(model)[:ROWS]
        for exporter, form in [c for c in CELLS if c[0] in options.exporters.split(",")]:
            key = (name, exporter, form)
            said = cell(name, model, rows, exporter, form)
            print(*key, said, flush=True)
            if known.get(key) == "ok" and said != "ok":
                worse.append(key)
            found[key] = said
        if options.write:
            write_ledger(found)
    for key in worse:
        print("passes no more:", *key, file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
