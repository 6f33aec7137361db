# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""rapidocr: the lines of text in a picture, where they are and how sure it is."""
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rapidocr_onnxruntime import RapidOCR

picture = Image.new("RGB", (480, 200), "white")
draw = ImageDraw.Draw(picture)
for row, line in enumerate(("GRAPH IN", "engine out", "2026")):
    draw.text((30, 15 + 60 * row), line, fill="black", font=ImageFont.load_default(36))
lines, _ = RapidOCR()(np.asarray(picture))
results = {"lines": [(text, [[float(v) for v in corner] for corner in box], float(score))
                     for box, text, score in lines]}
