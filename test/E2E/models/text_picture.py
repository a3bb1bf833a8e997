"""Pictures of text for the PP-OCR models, drawn without any imaging library.

Letters are 5 by 7 dots, magnified and softened; the colours are dark on light with a
gradient, so that no two pixels of a line are quite equal.
"""
import numpy as np

_FONT = {
    "A": "01110 10001 10001 11111 10001 10001 10001",
    "C": "01110 10001 10000 10000 10000 10001 01110",
    "D": "11110 10001 10001 10001 10001 10001 11110",
    "E": "11111 10000 10000 11110 10000 10000 11111",
    "H": "10001 10001 10001 11111 10001 10001 10001",
    "I": "01110 00100 00100 00100 00100 00100 01110",
    "L": "10000 10000 10000 10000 10000 10000 11111",
    "M": "10001 11011 10101 10101 10001 10001 10001",
    "N": "10001 11001 10101 10011 10001 10001 10001",
    "O": "01110 10001 10001 10001 10001 10001 01110",
    "P": "11110 10001 10001 11110 10000 10000 10000",
    "R": "11110 10001 10001 11110 10100 10010 10001",
    "S": "01111 10000 10000 01110 00001 00001 11110",
    "T": "11111 00100 00100 00100 00100 00100 00100",
    "U": "10001 10001 10001 10001 10001 10001 01110",
    " ": "00000 00000 00000 00000 00000 00000 00000",
    "0": "01110 10001 10011 10101 11001 10001 01110",
    "1": "00100 01100 00100 00100 00100 00100 01110",
    "2": "01110 10001 00001 00110 01000 10000 11111",
    "4": "00010 00110 01010 10010 11111 00010 00010",
    "7": "11111 00001 00010 00100 01000 01000 01000",
}


def dots(text):
    """The text as a 0/1 array of 7 rows, one empty column between letters."""
    letters = [np.array([[int(dot) for dot in row] for row in _FONT[letter].split()])
               for letter in text]
    gap = np.zeros((7, 1), int)
    columns = [column for letter in letters for column in (letter, gap)]
    return np.concatenate(columns[:-1], 1)


def _soften(image):
    """A 3 by 3 binomial filter, edges repeated."""
    for axis in (0, 1):
        padded = np.pad(image, [(1, 1) if a == axis else (0, 0) for a in (0, 1)], "edge")
        lower = padded.take(range(0, image.shape[axis]), axis)
        upper = padded.take(range(2, image.shape[axis] + 2), axis)
        image = (lower + 2 * image + upper) / 4
    return image


def picture(lines, height, width, scale):
    """A grey picture, values 0 to 1, [height, width]; `lines` are (text, top, left)."""
    ink = np.zeros((height, width))
    for text, top, left in lines:
        block = np.kron(dots(text), np.ones((scale, scale)))
        rows, columns = min(block.shape[0], height - top), min(block.shape[1], width - left)
        ink[top:top + rows, left:left + columns] = block[:rows, :columns]
    paper = np.linspace(0.95, 0.85, width)[None, :] * np.ones((height, 1))
    return _soften(paper * (1 - ink) + 0.1 * ink)


def detection_input(batch, height, width):
    """f32 [batch, 3, height, width], normalised as PP-OCR detection wants it."""
    words = ["PARTITA", "SHARD 42", "MODEL", "TENSOR 7"]
    images = [picture([(words[i % 4], 12, 10), (words[(i + 1) % 4], height // 2 + 8, 22)],
                      height, width, 3) for i in range(batch)]
    mean = np.array([0.485, 0.456, 0.406])[:, None, None]
    deviation = np.array([0.229, 0.224, 0.225])[:, None, None]
    return np.stack([(image[None] - mean) / deviation
                     for image in images]).astype(np.float32)


def recognition_input(batch, height, width):
    """f32 [batch, 3, height, width], one line of text each, from -1 to 1."""
    words = ["PARTITA", "SHARD 42", "MODEL", "TENSOR 7"]
    scale = height // 10
    images = []
    for i in range(batch):
        top = (height - 7 * scale) // 2
        images.append(picture([(words[i % 4], top, 6)], height, width, scale))
    grey = np.stack(images)[:, None]
    return np.repeat(2 * grey - 1, 3, 1).astype(np.float32)
