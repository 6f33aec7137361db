# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The networks that prune.py makes smaller: what each is trained on, what it is judged by, and how much may be lost."""
import glob
import math
import os

import numpy as np
import torch

BATCH = 64


class Digits:
    """A convolutional network for scikit-learn's digits: 1,797 images of 8 x 8, 500 of which it is tested on."""
    schemes, dims, batch = "channels,ffn", {"N": BATCH}, BATCH
    unit, bar, rate = "points", 1.0, 1e-3
    tested = 500

    def __init__(self):
        from sklearn.datasets import load_digits
        data = load_digits()
        order = np.random.default_rng(1).permutation(len(data.target))
        x, y = (data.images[order] / 8 - 1).astype(np.float32)[:, None], data.target[order]
        self.x, self.y, self.unseen, self.truth = x[self.tested:], y[self.tested:], x[:self.tested], y[:self.tested]

    def export(self, path, epochs=15):
        torch.manual_seed(1)
        conv = [torch.nn.Conv2d(a, b, 3, padding=1) for a, b in ((1, 64), (64, 64), (64, 128), (128, 128))]
        relu, pool = torch.nn.ReLU(), torch.nn.MaxPool2d(2)
        model = torch.nn.Sequential(conv[0], relu, conv[1], relu, pool, conv[2], relu, conv[3], relu, pool, torch.nn.Flatten(),
                                    torch.nn.Linear(512, 256), relu, torch.nn.Linear(256, 10))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        x, y = torch.from_numpy(self.x), torch.from_numpy(self.y)
        for _ in range(epochs):
            for rows in torch.randperm(len(x)).split(BATCH):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
                optimizer.step()
        torch.onnx.export(model.eval(), (torch.zeros(2, 1, 8, 8),), path, dynamo=False, input_names=["x"], output_names=["y"],
                          dynamic_axes={"x": {0: "N"}, "y": {0: "N"}})

    def score(self, logits):
        return 100 * np.mean(logits.argmax(1) == self.truth)

    def said(self, score):
        return f"{score:.1f} % of {self.tested} digits; {len(self.x)} to train on"

    def lost(self, before, after):
        """Points of percent."""
        return before - after


class Decoder(torch.nn.Module):
    """A decoder over bytes with norms ahead, as exporters write it: [B, S] i64 to logits [B, S, 256]."""

    def __init__(self, layers=3, width=96, heads=6, inside=384, length=64):
        super().__init__()
        self.heads, self.size, self.width = heads, width // heads, width
        self.tokens, self.places = torch.nn.Embedding(256, width), torch.nn.Parameter(0.02 * torch.randn(length, width))
        linear = torch.nn.Linear
        self.layers = torch.nn.ModuleList(torch.nn.ModuleDict({
            "norm1": torch.nn.LayerNorm(width), "q": linear(width, width), "k": linear(width, width), "v": linear(width, width),
            "o": linear(width, width), "norm2": torch.nn.LayerNorm(width), "up": linear(width, inside), "down": linear(inside, width)})
            for _ in range(layers))
        self.norm, self.head = torch.nn.LayerNorm(width), linear(width, 256)
        self.register_buffer("hidden", torch.triu(torch.full((length, length), -1e4), 1))

    def forward(self, x):
        length = self.hidden.shape[0]
        value = self.tokens(x) + self.places
        for layer in self.layers:
            rows = layer["norm1"](value)
            q, k, v = (layer[name](rows).view(-1, length, self.heads, self.size).transpose(1, 2) for name in "qkv")
            weights = torch.softmax(q @ k.transpose(2, 3) / self.size ** 0.5 + self.hidden, -1)
            value = value + layer["o"]((weights @ v).transpose(1, 2).reshape(-1, length, self.width))
            value = value + layer["down"](torch.nn.functional.gelu(layer["up"](layer["norm2"](value))))
        return self.head(self.norm(value))


class Language:
    """A decoder of 0.4 M parameters over bytes, which reads the modules of Python's library and is tested on packages beside
    them that it has not read."""
    schemes, dims, batch = "heads,ffn,blocks", {"N": 8}, 8
    unit, bar, rate = "x", 1.05, 1e-3
    length, rows, tested = 64, 4096, 512

    def __init__(self):
        library = os.path.dirname(os.__file__)
        self.x = self.read(glob.glob(os.path.join(library, "*.py")))[:self.rows]
        self.unseen = self.read(p for name in ("email", "json", "logging", "unittest") for p in glob.glob(os.path.join(library, name, "*.py")))
        self.unseen = self.unseen[:self.tested]

    def read(self, paths):
        """i64 [rows, length], of documents in an order that a seed says, cut into rows."""
        text = b""
        for path in sorted(paths):
            with open(path, "rb") as file:
                text += file.read()
        ids = np.frombuffer(text, np.uint8).astype(np.int64)
        found = ids[:len(ids) // self.length * self.length].reshape(-1, self.length)
        return found[np.random.default_rng(1).permutation(len(found))]

    def export(self, path, steps=1000, rate=3e-3):
        torch.manual_seed(1)
        model = Decoder(length=self.length)
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95))
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps, pct_start=0.05)
        x = torch.from_numpy(self.x)
        for _ in range(steps):
            ids = x[torch.randint(len(x), (32,))]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(ids)[:, :-1].reshape(-1, 256), ids[:, 1:].reshape(-1)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        torch.onnx.export(model.eval(), (torch.zeros(2, self.length, dtype=torch.long),), path, dynamo=False, input_names=["x"],
                          output_names=["y"], dynamic_axes={"x": {0: "N"}, "y": {0: "N"}})

    def score(self, logits):
        shifted = logits[:, :-1].astype(np.float64)
        shifted -= shifted.max(2, keepdims=True)
        wanted = np.take_along_axis(shifted, self.unseen[:, 1:, None], 2)[:, :, 0]
        return math.exp(np.mean(np.log(np.exp(shifted).sum(2)) - wanted))

    def said(self, score):
        return f"perplexity {score:.3f} of a byte in {self.tested} rows; {len(self.x)} rows of {self.length} to train on"

    def lost(self, before, after):
        """Factors of the perplexity."""
        return after / before


MODELS = {"digits": Digits, "language": Language}
