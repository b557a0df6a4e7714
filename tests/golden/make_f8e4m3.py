# SPDX-License-Identifier: Apache-2.0
"""Writes tests/core/f8e4m3.inc: the 256 values of float8_e4m3fn as words of float32, from the package ml_dtypes.

Usage: make_f8e4m3.py > ../core/f8e4m3.inc
"""
import ml_dtypes
import numpy as np

values = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
for code, (word, value) in enumerate(zip(values.view(np.uint32), values)):
    print(f"0x{word:08x}, /* {code:02x}: {value:.9g} */")
