"""Published rows of GPT with Megatron-LM, as what `partita plan --price` is asked:
servers of 8 A100, one HDR adapter per device."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "models"))
import specs  # noqa: E402
from layers import builder  # noqa: E402

#: Part of each layer that selective recompute repeats (Korthikanti et al. 2023).
SCORES = [f"h.*.attn.{part}" for part in ("scores", "scaled", "masked", "softmax",
                                          "mixed")]
#: Vocabulary of vTrain's rows, which do not say one: GPT-2's, padded as Megatron does.
VOCABULARY = 51200


class Model(builder.AbsentWeights, specs.Gpt3):
    location = "absent.data"


def stack(row):
    return "megatron-2021"


def sizes(row):
    return dict(hidden=int(row["hidden"]), heads=int(row["heads"]),
                layers=int(row["layers"]), length=int(row["seq"]),
                batch=int(row["micro_batch"]) * int(row["dp"]),
                vocabulary=int(row["vocab"] or VOCABULARY))


def mesh(row):
    return f"dp={row['dp']},tp={row['tp']}"


def hints(row):
    """Arguments that say how the mesh is used beyond its data-parallel axes."""
    if row["tp"] == "1":
        return []
    return ["--hints", ("megatron-sp" if "SP" in row["recompute"] else "megatron") + ":tp"]


def cluster(row, constants):
    gpus = int(row["gpus"])
    levels = [{"name": "nvlink", "preset": "nvlink3", "size": min(gpus, 8),
               **constants.get("link", {})}]
    if gpus > 8:
        levels.append({"name": "network", "preset": "hdr", "size": gpus // 8,
                       **constants.get("network", {})})
    return {"device": {"preset": "A100-80GB", **constants.get("device", {})},
            "levels": levels, "stack": constants["stack"]}


def step(row):
    """The training step of Megatron with Adam in mixed precision."""
    micro = int(row["micro_batch"]) * int(row["dp"])
    recompute = row["recompute"]
    return {"loss": {"kind": "softmax_cross_entropy", "of": "logits", "labels": "labels",
                     "axis": -1},
            "optimizer": {"kind": "adamw", "lr": 1e-4}, "clip_norm": 1.0,
            "accumulation": int(row["global_batch"]) // micro, "compute": "bf16",
            "recompute": [{"nodes": "h.*"}] if recompute.startswith("full") else
            [{"nodes": SCORES}] if recompute.startswith("selective") else "none"}
