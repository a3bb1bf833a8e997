#!/usr/bin/env python3
"""onnx_text.py FOLDER: writes NAME.onnx for every NAME.txt of a folder, in ONNX's own
text form. Tests keep such texts in themselves (split-file)."""
import pathlib
import sys

import onnx
import onnx.parser

for path in sorted(pathlib.Path(sys.argv[1]).glob("*.txt")):
    onnx.save(onnx.parser.parse_model(path.read_text()), str(path.with_suffix(".onnx")))
