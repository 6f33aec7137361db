# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""File types: magika on files of Debian packages, whose names' endings are the truth."""
import os
import sys

import numpy as np

import frame
import packages

sys.path.insert(0, os.path.join(packages.ROOT, "tools"))
from demo_inputs import magika_features, magika_labels  # noqa: E402

# Of each kind the packages and the ending.
KINDS = {
    "python": (("python3-django",), "*.py"),
    "html": (("python3.11-doc", "python-django-doc"), "*.html"),
    "javascript": (("python3-django", "node-typescript"), "*.js"),
    "css": (("python3-django", "python3.11-doc"), "*.css"),
    "go": (("golang-1.19-src",), "*.go"),
    "asm": (("golang-1.19-src",), "*.s"),
    "rst": (("python3.11-doc",), "*.rst.txt"),
    "ruby": (("libruby3.1",), "*.rb"),
    "perl": (("perl-modules-5.36",), "*.pm"),
    "po": (("python3-django",), "*.po"),
    "cmake": (("cmake-data",), "*.cmake"),
    "gzip": (("manpages", "perl-doc"), "*.gz"),
    "typescript": (("node-typescript",), "*.ts"),
    "rust": (("librust-regex-dev", "librust-serde-dev"), "*.rs"),
    "ttf": (("fonts-freefont-ttf", "fonts-liberation"), "*.ttf"),
    "png": (("python3.11-doc", "python-django-doc"), "*.png"),
    "cpp": (("nlohmann-json3-dev",), "*.hpp"),
}
EACH, BATCH, CALIBRATED = 260, 16, 256


def labelled():
    """(path, label) in an order that a seed draws, at most EACH of a kind."""
    random = np.random.default_rng(3)
    found = []
    for label, (names, pattern) in KINDS.items():
        paths = [p for name in names for p in packages.files(name, pattern) if os.path.getsize(p) >= 64]
        found += [(paths[i], label) for i in random.permutation(len(paths))[:EACH]]
    return [found[i] for i in random.permutation(len(found))]


def features(path):
    with open(path, "rb") as file:
        return magika_features(file.read())


def task(limit):
    files = labelled()
    calibrated, tested = files[:CALIBRATED], files[CALIBRATED:][:limit]
    x = np.stack([features(path) for path, _ in tested])
    labels = magika_labels()
    y = np.array([labels.index(label) for _, label in tested])

    def score(run):
        found = np.concatenate([next(iter(run({"bytes": x[i:i + BATCH]}).values())).argmax(1) for i in range(0, len(x), BATCH)])
        return 100 * np.mean(found == y)

    seen = np.stack([features(path) for path, _ in calibrated]).reshape(-1, BATCH, 2048)
    return frame.Task("file types", "right", os.path.join(packages.ROOT, "build", "models", "magika.onnx"),
                      [{"bytes": rows} for rows in seen], score, len(x), {"bytes[0]": (1, BATCH, BATCH)})
