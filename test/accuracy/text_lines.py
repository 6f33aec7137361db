# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lines of text: PP-OCRv4's recognition on words of documentation, drawn in six fonts; characters that are wrong."""
import dataclasses
import re

import numpy as np
import onnx
from PIL import Image, ImageDraw, ImageFont

import frame
import packages

FONTS = (("fonts-dejavu-core", "DejaVuSans.ttf"), ("fonts-dejavu-core", "DejaVuSerif.ttf"), ("fonts-liberation", "LiberationSans-Regular.ttf"),
         ("fonts-liberation", "LiberationSerif-Italic.ttf"), ("fonts-freefont-ttf", "FreeSerif.ttf"), ("fonts-freefont-ttf", "FreeMonoBold.ttf"))
HEIGHT, WIDTH, BATCH, EXAMPLES, CALIBRATED = 48, 320, 8, 2000, 128


def lines(name, count):
    """Of two to four words each, by a seed, out of the text of a package."""
    words = [w for text in packages.texts(name) for w in re.findall(r"(?<=\s)[A-Za-z][A-Za-z0-9(),.:;-]{2,9}(?=\s)", text)]
    random = np.random.default_rng(4)
    starts = random.integers(len(words) - 4, size=4 * count)
    found = [" ".join(words[s:s + n]) for s, n in zip(starts, random.integers(2, 5, size=len(starts)))]
    return list(dict.fromkeys(line for line in found if len(line) <= 22))[:count]


def drawn(line, number):
    """f32 [3, HEIGHT, WIDTH]: coloured and noisy, in one of the fonts."""
    random = np.random.default_rng(number)
    package, file = FONTS[number % len(FONTS)]
    path, = packages.files(package, file)
    font = ImageFont.truetype(path, size=int(random.integers(26, 33)))
    left, top, right, bottom = font.getbbox(line)
    paper, ink = (tuple(int(v) for v in random.integers(*ends, 3)) for ends in ((190, 256), (0, 90)))
    image = Image.new("RGB", (right - left + 12, HEIGHT), paper)
    ImageDraw.Draw(image).text((6 - left, (HEIGHT - bottom - top) // 2), line, ink, font)
    width = min(image.width, WIDTH)
    pixels = np.asarray(image.resize((width, HEIGHT)), np.float32) + random.normal(0, 6, (HEIGHT, width, 1))
    out = np.zeros((3, HEIGHT, WIDTH), np.float32)
    out[:, :, :width] = (pixels.clip(0, 255) / 127.5 - 1).transpose(2, 0, 1)[::-1]
    return out


def distance(a, b):
    """Characters to insert, delete or change (Levenshtein)."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def characters(model):
    """What classes 1, 2, ... of the model stand for; class 0 separates."""
    listed = next(p.value for p in onnx.load(model).metadata_props if p.key == "character")
    return ["", *listed.split("\n"), " "]


def task(limit):
    model = frame.exported("ppocr_rec")
    text = lines("git-doc", min(limit, EXAMPLES))
    pictures = np.stack([drawn(line, i) for i, line in enumerate(text)])
    letters = characters(model)

    def score(run):
        wrong = 0
        for begin in range(0, len(text), BATCH):
            classes = next(iter(run({"x": pictures[begin:begin + BATCH]}).values())).argmax(2)
            for line, row in zip(text[begin:begin + BATCH], classes):
                read = "".join(letters[c] for i, c in enumerate(row) if c and (i == 0 or c != row[i - 1]))
                wrong += distance(read.strip(), line)
        return 100 - 100 * wrong / sum(map(len, text))

    seen = [drawn(line, 10**6 + i) for i, line in enumerate(lines("python3.11-doc", CALIBRATED))]
    # Convolutions of one channel each, which are few of the multiplications, have most of the noise. mse was best on other lines of
    # the package that is calibrated by.
    int8 = frame.Scheme("int8", [*frame.INT8.options, "--range=mse"], frame.INT8.bar, keeps=0.05)
    fp8 = dataclasses.replace(frame.FP8, keeps=0.05)
    return frame.Task("lines of text", "characters right", model, [{"x": np.stack(seen[i:i + BATCH])} for i in range(0, CALIBRATED, BATCH)],
                      score, len(text), {"x[0]": (1, BATCH, BATCH), "x[2]": HEIGHT, "x[3]": WIDTH},
                      schemes=[int8, fp8])
