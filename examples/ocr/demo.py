#!/usr/bin/env python3
"""Reads text in a picture with PP-OCR, spread over 4 local ranks by Partita, and compares
every number with ONNX Runtime.

usage: demo.py PARTITA MODELS OUT [TARGET_CPU]

MODELS is a folder with the PP-OCR detection and recognition models of the package
rapidocr-onnxruntime; pages, bundles and tensors go to OUT. TARGET_CPU is what the code is
compiled for, this machine's CPU if it is left out.
"""
import os
import shutil
import struct
import subprocess
import sys
import zlib

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "test", "E2E", "models"),
                os.path.join(ROOT, "test", "E2E")]
import equality  # noqa: E402
import text_picture  # noqa: E402

MESH = "dp=2,tp=2"
PAGES = [[("PARTITA", 16, 20), ("SHARD 42", 60, 34)],
         [("PLAN 17", 16, 28), ("MESH 24", 60, 60)]]
HEIGHT, WIDTH = 96, 224


def say(text):
    print("[demo] " + text, flush=True)


def write_png(path, image):
    """A grey image, values 0 to 1."""
    rows = (np.clip(image, 0, 1) * 255).astype(np.uint8)
    raw = b"".join(b"\0" + row.tobytes() for row in rows)

    def chunk(kind, data):
        crc = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)

    header = struct.pack(">IIBBBBB", rows.shape[1], rows.shape[0], 8, 0, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) +
                   chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))


def spread(partita, model, name, batch, out):
    """Compiles for MESH, runs on 4 ranks, compares with ONNX Runtime; the output.
    `partita` is the command and, as a list, what each compile is given."""
    partita, options = partita
    bundle = os.path.join(out, name + ".bundle")
    feed = os.path.join(out, name + ".in")
    results = os.path.join(out, name + ".out")
    os.makedirs(feed)
    onnx.save_tensor(numpy_helper.from_array(batch, "x"), os.path.join(feed, "input_0.pb"))
    shape = ",".join(map(str, batch.shape))
    say(f"compiling {os.path.basename(model)} for {MESH}, input {shape}")
    subprocess.run([partita, "compile", model, "-o", bundle, "--mesh", MESH, "--shape",
                    f"x={shape}", *options], check=True)
    report = subprocess.run([partita, "report", bundle], check=True, text=True,
                            stdout=subprocess.PIPE).stdout
    say("what each rank holds (of a dim, the axes over which it is split):")
    # After the slices of inputs and outputs come strategies and communication, which the
    # compile has summed up.
    for line in report.splitlines():
        if line.startswith(("  input ", "  output ")):
            say(line)
    for line in report[report.index("memory per rank:"):].splitlines()[1:]:
        say(line)
    say("running it on 4 ranks")
    subprocess.run([partita, "run", bundle, "--transport", "local", "--inputs-dir",
                    feed, "--outputs-dir", results, "--repeat", "3"], check=True)
    actual = equality.load(os.path.join(results, "output_0.pb"))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    expected = session.run(None, {"x": batch})[0]
    wide = equality.WideResults(partita, [bundle], feed)
    try:
        figures = equality.check(actual, expected, wide, 0, name)
    except equality.Unequal as error:
        sys.exit(f"[demo] {error}")
    say(f"equal to ONNX Runtime: {figures} (values up to {np.abs(expected).max():.2g})")
    return actual


def detect(partita, models, pages, out):
    mean = np.array([0.485, 0.456, 0.406])[:, None, None]
    deviation = np.array([0.229, 0.224, 0.225])[:, None, None]
    batch = np.stack([(page[None] - mean) / deviation for page in pages])
    model = os.path.join(models, "ch_PP-OCRv4_det_infer.onnx")
    return spread(partita, model, "detection", batch.astype(np.float32), out)[:, 0]


def boxes(mask):
    """Bounding boxes (top, bottom, left, right) of the lines of text in a 0/1 mask."""
    rows = np.flatnonzero(np.diff(np.r_[0, mask.any(1), 0]))
    for top, bottom in zip(rows[::2], rows[1::2]):
        columns = np.flatnonzero(mask[top:bottom].any(0))
        # The model marks the core of a line; its letters reach further.
        grow = (bottom - top) * 3 // 4
        yield (max(0, top - grow), min(mask.shape[0], bottom + grow),
               max(0, columns[0] - grow), min(mask.shape[1], columns[-1] + 1 + grow))


def resize(image, height, width):
    """Bilinear, at pixel centres."""
    def weights(size, length):
        x = np.clip((np.arange(length) + 0.5) * size / length - 0.5, 0, size - 1)
        low = np.minimum(x.astype(int), max(size - 2, 0))
        return low, np.minimum(low + 1, size - 1), x - low
    y0, y1, fy = weights(image.shape[0], height)
    x0, x1, fx = weights(image.shape[1], width)
    top = image[y0][:, x0] * (1 - fx) + image[y0][:, x1] * fx
    bottom = image[y1][:, x0] * (1 - fx) + image[y1][:, x1] * fx
    return top * (1 - fy)[:, None] + bottom * fy[:, None]


def recognise(partita, models, lines, out):
    model = os.path.join(models, "ch_PP-OCRv4_rec_infer.onnx")
    width = 8 * -(-max(int(48 * line.shape[1] / line.shape[0]) for line in lines) // 8)
    batch = np.zeros((len(lines), 3, 48, width), np.float32)
    for i, line in enumerate(lines):
        scaled = min(width, int(48 * line.shape[1] / line.shape[0]))
        batch[i, :, :, :scaled] = resize(line, 48, scaled)[None] * 2 - 1
    scores = spread(partita, model, "recognition", batch, out)
    metadata = {entry.key: entry.value for entry in onnx.load(model).metadata_props}
    letters = [""] + metadata["character"].splitlines() + [" "]
    for row in scores.argmax(-1):
        # CTC: repeats collapse, the blank is class 0.
        kept = row[np.r_[True, row[1:] != row[:-1]]]
        yield "".join(letters[k] for k in kept)


def main(partita, models, out, target_cpu=None):
    partita = partita, ["--target-cpu", target_cpu] if target_cpu else []
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    pages = [text_picture.picture(lines, HEIGHT, WIDTH, 3) for lines in PAGES]
    for i, page in enumerate(pages):
        write_png(os.path.join(out, f"page-{i}.png"), page)
    say(f"drew {len(pages)} pages of text in {out}")
    lines = []
    for page, score in zip(pages, detect(partita, models, pages, out)):
        lines += [page[t:b, l:r] for t, b, l, r in boxes(score > 0.3)]
    say(f"found {len(lines)} lines of text")
    if not lines:
        sys.exit("[demo] no text was found")
    texts = list(recognise(partita, models, lines, out))
    for text in texts:
        say(f"read: {text}")
    words = [text.strip() for page in PAGES for text, _, _ in page]
    if texts != words:
        sys.exit(f"[demo] expected {words}")
    say("done: the text is read, equal to ONNX Runtime")


if __name__ == "__main__":
    main(*sys.argv[1:])
