"""Compiles steps with and without micro-batches and compares what ranks receive.
usage: optimizer_bytes.py PARTITA MODEL WORK"""
import collections
import json
import subprocess
import sys

partita, model, work = sys.argv[1:]


def compiled(level, trips, clips):
    """Bytes by kind of collective, and the arena."""
    spec = {"loss": {"kind": "softmax_cross_entropy", "of": "logits", "labels": "labels",
                     "axis": -1}, "optimizer": {"kind": "adamw"}, "accumulation": trips}
    if clips:
        spec["clip_norm"] = 1
    if level:
        spec["optimizer_parallel"] = {"enable": True, "level": level, "threshold_kb": 0}
    with open(f"{work}/spec.json", "w") as file:
        json.dump(spec, file)
    subprocess.run([partita, "compile", model, "--train", f"{work}/spec.json", "--mesh",
                    "dp=2", "--mode", "data-parallel", "-o", f"{work}/bundle", "--force"],
                   check=True, capture_output=True)
    with open(f"{work}/bundle/plan.json") as file:
        stage = json.load(file)["entries"][0]["stages"][0]
    bytes_by_op = collections.Counter()
    for it in stage["collectives"]:
        bytes_by_op[it["op"]] += it["bytes"] * it.get("times", 1)
    return bytes_by_op, stage["memory"]["arena"]


for clips in (False, True):
    name = "clipped" if clips else "plain"
    whole, arena = compiled(0, 4, clips)
    for level in (1, 2, 3):
        one, _ = compiled(level, 1, clips)
        four, least = compiled(level, 4, clips)
        scatter = four["reduce_scatter"] / one["reduce_scatter"]
        gather = four["all_gather"] / one["all_gather"]
        print(f"{name} level {level}: {scatter:.1f} times the reduce-scatters and "
              f"{gather:.1f} times the gathers of one micro-batch")
        assert level > 1 or sum(four.values()) == sum(one.values()), (one, four)
        # Losses and norms are one number each, however many parameters there are; the
        # bias of a fused projection, 768 B, has no halves in its three pieces.
        assert one["all_reduce"] <= 776 and four["all_reduce"] <= 776, (one, four)
    print(f"{name}: the arena of level 3 is below that of level 0: {least < arena}")
