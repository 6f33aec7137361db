# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Digits: a small convolutional network on scikit-learn's 1,797 images of 8 x 8.

It is trained from a seed on 1,297 of them; the 500 others are tested on, each as it is and shifted by a pixel in four directions.
"""
import os
import warnings

import numpy as np
from sklearn.datasets import load_digits

import frame
import packages

TESTED, BATCH, SHIFTS = 500, 50, ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0))


def images(part):
    """(images, labels) of "train" or "test", of [-1, 1], with their shifted forms."""
    data = load_digits()
    order = np.random.default_rng(1).permutation(len(data.target))
    order = order[:TESTED] if part == "test" else order[TESTED:]
    padded = np.pad(data.images[order] / 8 - 1, ((0, 0), (1, 1), (1, 1)), constant_values=-1).astype(np.float32)
    x = np.stack([padded[:, 1 + dy:9 + dy, 1 + dx:9 + dx] for dy, dx in SHIFTS], 1)
    return x.reshape(-1, 1, 8, 8), np.repeat(data.target[order], len(SHIFTS))


def model():
    path = os.path.join(packages.OUT, "digits.onnx")
    if os.path.exists(path):
        return path
    import torch
    warnings.simplefilter("ignore")
    torch.manual_seed(1)
    torch.set_num_threads(1)
    relu, pool = torch.nn.ReLU(), torch.nn.MaxPool2d(2)
    conv = [torch.nn.Conv2d(a, b, 3, padding=1) for a, b in ((1, 16), (16, 32), (32, 32))]
    network = torch.nn.Sequential(conv[0], relu, conv[1], relu, pool, conv[2], relu, pool, torch.nn.Flatten(),
                                  torch.nn.Linear(128, 64), relu, torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    x, y = (torch.from_numpy(v) for v in images("train"))
    for _ in range(6):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()
            optimizer.step()
    os.makedirs(packages.OUT, exist_ok=True)
    torch.onnx.export(network.eval(), (x[:2],), path + ".part", dynamo=False, input_names=["x"], output_names=["y"],
                      dynamic_axes={"x": {0: "N"}, "y": {0: "N"}})
    os.replace(path + ".part", path)
    return path


def task(limit):
    x, y = images("test")
    x, y = x[:limit], y[:limit]
    batches = np.array_split(np.arange(len(x)), -(-len(x) // BATCH))

    def score(run):
        found = np.concatenate([run({"x": x[rows]})["y"].argmax(1) for rows in batches])
        return 100 * np.mean(found == y)

    seen = images("train")[0]
    chosen = np.random.default_rng(2).permutation(len(seen))[:512]
    return frame.Task("digits", "right", model(), [{"x": seen[rows]} for rows in chosen.reshape(-1, BATCH - 18)], score, len(x),
                      {"N": (1, BATCH, BATCH)})
