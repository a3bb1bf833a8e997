"""Checks by two prices what a causal mask by positions saves of attention's products."""
import re
import sys

BLOCKS, HEADS, TOKENS, DEPTH = 128, 8, 16384, 128
#: DGX-H100; half of the peak is what the cluster file says of attention.
PEAK, MEMORY, LAUNCH = 989e12, 3350e9 * 0.887, 4e-6
product = 2 * HEADS * TOKENS**2 * DEPTH / (0.5 * PEAK)
mask = TOKENS**2 / MEMORY + LAUNCH

positions, table = (open(path).read() for path in sys.argv[1:])


def seconds(text, part):
    return 1e-3 * float(re.search(part + r" ([0-9.]+) ms", text)[1])


for part, products, made in [("again", 2, mask), ("backward", 5, 0)]:
    saved = seconds(table, part) - seconds(positions, part) + made
    share = saved / (products * product)
    assert abs(share - (BLOCKS - 1) / (2 * BLOCKS)) < 0.01, (part, share)
