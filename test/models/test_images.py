# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ImageDecoder: files made here byte by byte, and those that onnx keeps, whole and cut short."""
import os
import struct
import sys
import zlib

import numpy as np
import onnx.parser
import pytest
from onnx.backend.test.case.node import _image_decoder_data as kept

import lathe_cli

sys.path.insert(0, os.path.join(lathe_cli.ROOT, "python-frontend"))
import lathe  # noqa: E402

pytestmark = pytest.mark.skipif(lathe_cli.DEVICE != "cpu", reason="images are decoded on CPUs")


@pytest.fixture(scope="module")
def decoders(tmp_path_factory):
    """A context for each pixel format."""
    made = {}
    for form, channels in (("RGB", 3), ("BGR", 3), ("Grayscale", 1)):
        path = str(tmp_path_factory.mktemp("images") / "model.onnx")
        onnx.save(onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["" : 22]>\ng (uint8[N] x) => (uint8[H, W, {channels}] y) '
            f'{{ [decode] y = ImageDecoder<pixel_format = "{form}">(x) }}'), path)
        made[form] = lathe.compile(path, target="x86-64-v3").context("cpu", threads=1)
    return made


def decode(decoders, file, form="RGB"):
    return decoders[form].run({"x": np.frombuffer(file, np.uint8)})["y"].numpy()


def picture(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def png(rows, width, height, depth, color, *chunks, interlace=0):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunk(*c) for c in chunks)
            + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))) + chunk(b"IEND", b""))


def bmp(pixels, bits, rows, *, palette=b"", top_down=False, compression=0, masks=b""):
    height, width = pixels.shape[:2]
    begin = 54 + len(masks) + len(palette)
    pad = -len(rows[0]) % 4
    body = b"".join(row + bytes(pad) for row in (rows if top_down else rows[::-1]))
    return (b"BM" + struct.pack("<IHHI", begin + len(body), 0, 0, begin)
            + struct.pack("<IiiHHIIiiII", 40, width, -height if top_down else height, 1, bits, compression, len(body), 0, 0,
                          len(palette) // 4, 0) + masks + palette + body)


def same(got, want):
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (17, 2)])
def test_bmp(decoders, size):
    x = picture(*size)
    rows = [row[:, ::-1].tobytes() for row in x]
    same(decode(decoders, bmp(x, 24, rows)), x)
    same(decode(decoders, bmp(x, 24, rows, top_down=True), "BGR"), x[..., ::-1])
    wide = [np.dstack([row[None, :, ::-1], np.full((1, size[1], 1), 9, np.uint8)]).tobytes() for row in x]
    same(decode(decoders, bmp(x, 32, wide)), x)
    masks = struct.pack("<III", 0xf800, 0x07e0, 0x001f)
    five = (x >> np.array([3, 2, 3], np.uint8)).astype(np.uint16)
    packed = [(row[:, 0] << 11 | row[:, 1] << 5 | row[:, 2]).astype("<u2").tobytes() for row in five]
    most = np.array([31, 63, 31])
    same(decode(decoders, bmp(x, 16, packed, compression=3, masks=masks)), (five * 255 + most // 2) // most)
    index = np.random.default_rng(1).integers(0, 5, size)
    colors = picture(1, 5, 7)[0]
    palette = b"".join(bytes(c[::-1]) + b"\0" for c in colors)
    same(decode(decoders, bmp(x, 8, [row.astype(np.uint8).tobytes() for row in index], palette=palette)), colors[index])
    nibbles = [np.packbits(np.unpackbits(row.astype(np.uint8)[:, None], axis=1)[:, 4:].ravel()).tobytes() for row in index]
    same(decode(decoders, bmp(x, 4, nibbles, palette=palette)), colors[index])


@pytest.mark.parametrize("size", [(1, 1), (4, 6), (9, 3)])
def test_pnm(decoders, size):
    x = picture(*size)
    height, width = size
    gray, bits = x[..., 0], x[..., 0] > 99
    head = f"{width} # wide\n{height}"
    same(decode(decoders, f"P6 {head}\n255\n".encode() + x.tobytes()), x)
    same(decode(decoders, f"P3\n{head} 255\n{' '.join(map(str, x.ravel()))}".encode()), x)
    same(decode(decoders, f"P5\n{head}\n255\n".encode() + gray.tobytes()), np.repeat(gray[..., None], 3, 2))
    same(decode(decoders, f"P5\n{head}\n65535\n".encode() + (gray.astype(">u2") * 257).tobytes()), np.repeat(gray[..., None], 3, 2))
    black = np.repeat(np.where(bits, 0, 255)[..., None], 3, 2)
    same(decode(decoders, f"P1\n{head}\n{' '.join(map(str, bits.ravel().astype(int)))}".encode()), black)
    same(decode(decoders, f"P4\n{head}\n".encode() + np.packbits(bits, axis=1).tobytes()), black)


def test_png(decoders):
    x = picture(5, 7)
    height, width = x.shape[:2]
    same(decode(decoders, png(x.reshape(5, -1), width, height, 8, 2)), x)
    gray = x[..., 0]
    same(decode(decoders, png(gray, width, height, 8, 0)), np.repeat(gray[..., None], 3, 2))
    alpha = np.dstack([x, 255 - gray])
    same(decode(decoders, png(alpha.reshape(5, -1), width, height, 8, 6)), x)
    deep = np.frombuffer((x.astype(">u2") * 257).tobytes(), np.uint8).reshape(5, -1)
    same(decode(decoders, png(deep, width, height, 16, 2, (b"gAMA", struct.pack(">I", 45455)))), x)
    colors, index = picture(1, 4, 3)[0], np.random.default_rng(2).integers(0, 4, (5, 7), np.uint8)
    same(decode(decoders, png(index, width, height, 8, 3, (b"PLTE", colors.tobytes()), (b"tRNS", b"\0\x80"))), colors[index])
    want = (x.astype(np.uint32) @ np.array([19595, 38470, 7471], np.uint32) + 0x8000) >> 16
    same(decode(decoders, png(x.reshape(5, -1), width, height, 8, 2), "Grayscale"), want[..., None])


FORMATS = ["bmp_rgb", "jpeg_bgr", "jpeg_grayscale", "jpeg_rgb", "png_rgb", "pnm_rgb", "tiff_rgb", "webp_rgb"]
FORMS = {"rgb": "RGB", "bgr": "BGR", "grayscale": "Grayscale"}


@pytest.mark.parametrize("name", FORMATS)
def test_kept(decoders, name):
    """Files that onnx keeps: whole as expected; cut at many places always an error that names the node."""
    data = getattr(kept, f"image_decoder_decode_{name}")
    file, form = data.data.tobytes(), FORMS[name.split("_")[1]]
    same(decode(decoders, file, form), data.output.reshape(*data.output.shape[:2], -1))
    for size in sorted({*range(0, min(len(file), 64)), *range(0, len(file) - 16, max(1, len(file) // 60))}):
        with pytest.raises(lathe.Error) as raised:
            decode(decoders, file[:size], form)
        assert (raised.value.code, raised.value.node) == (lathe.Code.RUNTIME_FAILURE, "decode")


def test_bombs(decoders):
    """Sizes are limited before anything is decoded."""
    for file, text in ((png([], 2**31 - 1, 2**31 - 1, 8, 2), "PNG"), (png([], 60000, 60000, 8, 2), "are decoded at most"),
                       (b"P6 99999 99999 255\n", "are decoded at most"), (b"P6 0 5 255\n", "of 0x5 pixels"),
                       (b"P6 99999999999 1 255\n", "too large"), (b"GIF89a" + bytes(99), "no image of a known format"),
                       (b"", "no image of a known format")):
        with pytest.raises(lathe.Error, match=text) as raised:
            decode(decoders, file)
        assert raised.value.node == "decode"
