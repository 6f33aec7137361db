# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GPTQ of llmcompressor on language_model.py's decoder, by the same rows: prints perplexities as JSON.

    python3 -m venv lc && lc/bin/pip install torch==2.13.0 llmcompressor==0.14.0.1
    .venv/bin/python test/accuracy/run.py language --llmcompressor lc/bin/python

`run.py` runs this file by that Python. All matrices get 4 bits in groups of 128, the head among them, as ours do.
"""
import json
import sys

import datasets
import numpy as np
import torch
import transformers
from llmcompressor import oneshot
from llmcompressor.modifiers.gptq import GPTQModifier

import language_model


def main(limit):
    torch.set_num_threads(1)
    model = transformers.LlamaForCausalLM.from_pretrained(language_model.FOLDER, dtype=torch.float32).eval()
    rows = language_model.unseen(limit)

    def logits(ids):
        with torch.no_grad():
            return model(input_ids=torch.from_numpy(ids), use_cache=False).logits.numpy()

    before = language_model.perplexity(logits, rows)
    seen = language_model.calibration().astype(np.int64)
    data = datasets.Dataset.from_dict({"input_ids": seen.tolist(), "attention_mask": np.ones_like(seen).tolist()})
    oneshot(model=model, dataset=data, recipe=GPTQModifier(targets="Linear", scheme="W4A16", ignore=[]),
            num_calibration_samples=len(seen), max_seq_length=language_model.ROW, shuffle_calibration_samples=False)
    print(json.dumps({"float": before, "gptq": language_model.perplexity(logits, rows)}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
