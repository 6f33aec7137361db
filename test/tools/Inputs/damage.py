# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies a file with one bit in its middle turned over: damage.py FROM TO"""
import sys

with open(sys.argv[1], "rb") as f:
    data = bytearray(f.read())
data[len(data) // 2] ^= 16
with open(sys.argv[2], "wb") as f:
    f.write(data)
