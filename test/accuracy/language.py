# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Language: perplexity of language_model.py's decoder on documentation of packages that it was not trained on."""
import numpy as np

import frame
import language_model
from language_model import BATCH, ROW

GPTQ = ["--scheme=w4a16", "--group=128", "--method=gptq"]


def task(limit):
    model = language_model.made()
    rows = language_model.unseen(limit)
    seen = language_model.calibration().astype(np.int64).reshape(-1, BATCH, ROW)
    schemes = [frame.Scheme("int8", frame.INT8.options, 1.03), frame.Scheme("fp8", frame.FP8.options, 1.03),
               frame.Scheme("int4-g128, nearest", GPTQ[:2], float("inf")), frame.Scheme("int4-g128, GPTQ", GPTQ, 1.03)]
    return frame.Task("language", "perplexity", model, [{"input_ids": ids} for ids in seen],
                      lambda run: language_model.perplexity(lambda ids: run({"input_ids": ids})["logits"], rows),
                      len(rows), {"B": (1, BATCH, BATCH), "S": ROW}, schemes, is_perplexity=True)
