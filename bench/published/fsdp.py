"""Published rows of Llama under FSDP, as what `partita plan --price` is asked: MaxText and
torchtitan on servers of 8 H100."""
import os
import re
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "models"))
import specs  # noqa: E402
from layers import builder  # noqa: E402

#: A layer's attention between its projections: one op of a step, of its last one's name.
ATTENTION = ["self_attn.mixed"]
QKV = [f"self_attn.{part}_proj" for part in "qkv"]
#: Nodes of a layer. Its input, residual_2 of the layer before, is always kept.
NODES = (["input_norm", "residual_1", "post_norm", "self_attn.merge*", "self_attn.o_proj"]
         + QKV + [f"self_attn.{part}{of}" for part in "qkv" for of in (".*", "/*")]
         + ATTENTION + [f"mlp.{part}" for part in ["gate_proj", "up_proj", "sigmoid", "silu",
                                                   "gated", "down_proj"]])
#: Nodes that a policy keeps; all others are computed again.
KEPT = {
    # MaxText's `remat_policy` of these runs (dgxc-benchmarking, maxtext/configure.sh).
    "save_qkv_proj": QKV,
    # MaxText: all products without a batch dim, and attention.
    "minimal_flash": QKV + ATTENTION + ["self_attn.o_proj", "mlp.gate_proj",
                                        "mlp.up_proj", "mlp.down_proj"],
    # torchtitan's `selective_ac_option = "op"` (torchtitan/parallelisms/
    # parallelize_llama.py): attention and every second product, in the order wq, wk, wv,
    # wo, w1, w3, w2.
    "selective": ["self_attn.q_proj", "self_attn.v_proj", "mlp.gate_proj",
                  "mlp.down_proj"] + ATTENTION,
    "full": []}


class Model(builder.AbsentWeights, specs.Llama):
    """Llama with a mask by positions, so that the program says what is hidden."""
    location = "absent.data"

    def causal_mask(self, length):
        first, step, end = (self.weight(f"positions.{name}", np.array(value, np.int64))
                            for name, value in
                            [("first", 0), ("step", 1), ("end", length)])
        keys = self.node("Range", [first, end, step], "positions")
        queries = self.node("Unsqueeze", [keys, self.ints("positions.axis", [1])],
                            "positions.queries")
        return self.node("LessOrEqual", [keys, queries], "causal", ["causal"])


def system(row):
    """"maxtext" or "torchtitan"; of other rows None."""
    return next((name for name in ("maxtext", "torchtitan")
                 if name in row["source"].lower()), None)


def stack(row):
    if system(row) == "maxtext":
        return "maxtext-2024"
    return "torchtitan-2024-compile" if "compile" in row["notes"] else "torchtitan-2024"


def policy(row):
    stated = row["recompute"].removeprefix("per-op ")
    return stated or "save_qkv_proj"


def sizes(row):
    return dict(hidden=int(row["hidden"]), heads=int(row["heads"]),
                key_heads=int(row["kv_heads"]), inner=int(row["ffn"]),
                layers=int(row["layers"]), vocabulary=int(row["vocab"]),
                batch=int(row["micro_batch"]) * int(row["dp"]), length=int(row["seq"]))


def shards(row):
    """Ranks that share the weights: "FSDP=128 x DP" has as many copies of them as the
    number of devices says."""
    stated = re.search(r"FSDP=(\d+)", row["notes"])
    return int(stated[1]) if stated else int(row["dp"])


def mesh(row):
    """Ranks that share weights are next to one another, as both systems place them."""
    return f"dp={int(row['dp']) // shards(row)},fsdp={shards(row)},tp={row['tp']}"


def hints(row):
    return [] if row["tp"] == "1" else ["--hints", "megatron-sp:tp"]


def cluster(row, constants):
    """Servers of 8 H100, one NDR adapter per device."""
    gpus = int(row["gpus"])
    device = "H100-96GB" if "96GB" in row["gpu"] else "H100-80GB"
    levels = [{"name": "nvlink", "preset": "nvlink4", "size": min(gpus, 8)}]
    if gpus > 8:
        levels.append({"name": "network", "preset": "ndr", "size": gpus // 8})
    return {"device": {"preset": device, **constants.get("device", {})}, "levels": levels,
            "stack": constants["stack"]}


def recompute(row):
    """Weights in 16 bits are gathered for each pass."""
    kept = KEPT[policy(row)]
    again = ["*.weight"] + [node for node in NODES if node not in kept]
    return [{"nodes": [f"layers.{layer}.{node}" for node in again], "exactly": True}
            for layer in range(int(row["layers"]))]


def step(row):
    """AdamW in mixed precision with a limit on the gradients' norm, the default of both
    systems; weights, gradients and moments in parts."""
    return {"loss": {"kind": "softmax_cross_entropy", "of": "logits", "labels": "labels",
                     "axis": -1},
            "optimizer": {"kind": "adamw", "lr": 1e-4}, "clip_norm": 1.0,
            "parameters": {"freeze": ["rotary.*"]}, "compute": "bf16",
            "recompute": recompute(row),
            "optimizer_parallel": {"enable": True, "level": 3, "shard_size": shards(row)}}
