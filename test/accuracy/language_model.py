#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A language model of 7.2 M parameters, trained from a seed on documentation of Debian packages.

    nice -n 19 .venv/bin/python test/accuracy/language_model.py [--steps N]

A Llama (6 layers of 256, 4 heads, 768 inside, 4,096 tokens of bytes by BPE) reads python3.11-doc, perl-doc and vim-runtime;
git-doc and manpages are left for tests. build/accuracy/language then holds it as transformers writes it, tokenizer.json,
and model.onnx: the plain decoder, input_ids [B, S] i64 -> logits [B, S, 4096] f32, weights named as in transformers. A run
that was stopped goes on from its last checkpoint; one that is done does nothing.
"""
import argparse
import json
import math
import os
import time
import warnings

import numpy as np
import tokenizers
import torch
import transformers

import packages

FOLDER = os.path.join(packages.OUT, "language")
TRAINED_ON, UNSEEN = ("python3.11-doc", "perl-doc", "vim-runtime"), ("git-doc", "manpages")
VOCABULARY, LENGTH, ROWS = 4096, 128, 8
STEPS, RATE, WARM, PERIOD, COOL = 1000, 2e-3, 50, 1600, 120
ROW, BATCH, EXAMPLES, CALIBRATED = 96, 8, 2000, 256  # of tokens that are tested on and calibrated by
CONFIG = dict(vocab_size=VOCABULARY, hidden_size=256, intermediate_size=768, num_hidden_layers=6, num_attention_heads=4,
              num_key_value_heads=4, max_position_embeddings=512, tie_word_embeddings=False, bos_token_id=0, eos_token_id=0,
              attn_implementation="eager")


def tokenizer():
    """Byte-level BPE of the text that is trained on; token 0 stands between documents."""
    path = os.path.join(FOLDER, "tokenizer.json")
    if not os.path.exists(path):
        made = tokenizers.Tokenizer(tokenizers.models.BPE())
        made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<|end|>"], show_progress=False,
                                                 initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
        made.train_from_iterator((text for name in TRAINED_ON for text in packages.texts(name)), trainer)
        os.makedirs(FOLDER, exist_ok=True)
        made.save(path)
    return tokenizers.Tokenizer.from_file(path)


def rows(names, length=LENGTH):
    """Tokens of these packages' documents, one behind the other: i32 [rows, length]."""
    # Tokens of 30 MB take a minute.
    path = os.path.join(FOLDER, "-".join(names) + ".npy")
    if not os.path.exists(path):
        coder = tokenizer()
        ids = [i for name in names for code in coder.encode_batch(packages.texts(name)) for i in [*code.ids, 0]]
        np.save(path, np.array(ids, np.int32))
    tokens = np.load(path)
    return tokens[:len(tokens) // length * length].reshape(-1, length)


def calibration():
    """i32 [CALIBRATED, ROW], of the packages that were trained on."""
    data = rows(TRAINED_ON, ROW)
    return data[np.random.default_rng(6).permutation(len(data))[:CALIBRATED]]


def unseen(limit):
    """i32 [rows, ROW]: as many of each unseen package."""
    parts = [rows((name,), ROW) for name in UNSEEN]
    count = min(limit, EXAMPLES) // len(parts)
    return np.concatenate([part[np.random.default_rng(6).permutation(len(part))[:count]] for part in parts])


def perplexity(logits_of, rows):
    """Of a function from ids i64 [B, S] to logits f32 [B, S, VOCABULARY]: exp of the mean of -log p of each token behind the first of
    a row."""
    total = 0.0
    for begin in range(0, len(rows), BATCH):
        ids = rows[begin:begin + BATCH].astype(np.int64)
        logits = logits_of(ids)[:, :-1]
        shifted = logits - logits.max(2, keepdims=True)
        wanted = np.take_along_axis(shifted, ids[:, 1:, None], 2)[:, :, 0]
        total += (np.log(np.exp(shifted).sum(2, dtype=np.float64)) - wanted).sum()
    return math.exp(total / (len(rows) * (rows.shape[1] - 1)))


def train(steps, checkpoint):
    """The model after so many steps, by AdamW with a rate that warms up, falls as a cosine, and in the end to nothing."""
    torch.manual_seed(1)
    torch.set_num_threads(1)  # threads that wait for each other lose more than they gain where a machine has other work
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG))
    matrices = [p for p in model.parameters() if p.dim() > 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                                   {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0}],
                                  betas=(0.9, 0.95))
    data = rows(TRAINED_ON)
    begin = 0
    if os.path.exists(checkpoint):
        kept = torch.load(checkpoint)
        begin = kept["step"]
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
    last, started, losses = time.monotonic(), time.monotonic(), []
    for step in range(begin, steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min((step + 1) / WARM, 0.52 + 0.5 * math.cos(math.pi * step / PERIOD)) * min(1, (steps - step) / COOL)
        chosen = np.random.default_rng([7, step]).integers(len(data), size=ROWS)
        ids = torch.from_numpy(data[chosen].astype(np.int64))
        optimizer.zero_grad()
        logits = model(input_ids=ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if time.monotonic() - last > 60 or step + 1 == steps:
            print(f"step {step + 1} of {steps}: loss {np.mean(losses[-50:]):.3f}, {time.monotonic() - started:.0f} s", flush=True)
            last = time.monotonic()
            torch.save({"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint + ".part")
            os.replace(checkpoint + ".part", checkpoint)
    return model.eval()


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, use_cache=False).logits


def export(model, path):
    size = {name: torch.export.Dim(name, min=1, max=CONFIG["max_position_embeddings"]) for name in ("B", "S")}
    torch.onnx.export(Logits(model), (torch.zeros(2, 7, dtype=torch.long),), path + ".part", dynamo=True, external_data=False,
                      input_names=["input_ids"], output_names=["logits"], verbose=False,
                      dynamic_shapes={"input_ids": {0: size["B"], 1: size["S"]}})
    os.replace(path + ".part", path)


def made(steps=STEPS):
    """The path of model.onnx, which is trained and exported where it is not there."""
    path = os.path.join(FOLDER, "model.onnx")
    if not os.path.exists(path):
        warnings.simplefilter("ignore")
        os.makedirs(FOLDER, exist_ok=True)
        checkpoint = os.path.join(FOLDER, "checkpoint.pt")
        model = train(steps, checkpoint)
        model.save_pretrained(FOLDER)
        with open(os.path.join(FOLDER, "training.json"), "w", encoding="utf-8") as file:
            json.dump({"steps": steps, "tokens": steps * ROWS * LENGTH, "packages": TRAINED_ON}, file)
        export(model, path)
        os.remove(checkpoint)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of {ROWS} x {LENGTH} tokens (default: {STEPS})")
    print(made(parser.parse_args().steps))
