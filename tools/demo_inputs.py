# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs of the two demo models, made the way their owners make them.

magika (file types): 1024 bytes from the start of a file and 1024 from its end.
PP-OCR cls (direction of a line of text): a picture of 48 pixels' height, in [-1, 1].
"""
import glob
import json
import os

import numpy as np
from PIL import Image, ImageDraw, ImageFont

PADDING = 256  # magika's token for "no byte here"
SIDE, BLOCK = 1024, 4096
HEIGHT, WIDTH = 48, 192


def magika_features(data):
    """int32 [2048] from the bytes of a file."""
    start = data[:BLOCK].lstrip()[:SIDE]
    end = data[-BLOCK:].rstrip()[-SIDE:]
    return np.array([*start, *[PADDING] * (SIDE - len(start)),
                     *[PADDING] * (SIDE - len(end)), *end], np.int32)


def magika_labels():
    """Names of the 214 outputs, from the installed package."""
    import magika
    pattern = os.path.join(os.path.dirname(magika.__file__), "models", "*", "config.min.json")
    with open(glob.glob(pattern)[0]) as f:
        return json.load(f)["target_labels_space"]


def draw_text(text, seed=0, upside_down=False):
    """A picture of one line of text, slightly coloured and noisy, as a camera would give it."""
    random = np.random.default_rng(seed)
    font = ImageFont.load_default(size=34)
    left, top, right, bottom = font.getbbox(text)
    paper = tuple(int(v) for v in random.integers(215, 256, 3))
    ink = tuple(int(v) for v in random.integers(0, 70, 3))
    image = Image.new("RGB", (right - left + 16, HEIGHT), paper)
    ImageDraw.Draw(image).text((8 - left, (HEIGHT - bottom - top) // 2), text, ink, font)
    noisy = np.asarray(image, np.float32) + random.normal(0, 4, (HEIGHT, image.width, 1))
    image = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
    return image.rotate(180) if upside_down else image


def cls_input(image, width=WIDTH):
    """f32 [3, 48, width]: height 48, in blue-green-red order, padded with zeros on the right."""
    shrunk = min(width, -(-image.width * HEIGHT // image.height))
    pixels = np.asarray(image.resize((shrunk, HEIGHT), Image.BILINEAR), np.float32)[..., ::-1]
    out = np.zeros((3, HEIGHT, width), np.float32)
    out[:, :, :shrunk] = (pixels.transpose(2, 0, 1) / 255 - 0.5) / 0.5
    return out
