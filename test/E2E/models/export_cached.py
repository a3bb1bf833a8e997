#!/usr/bin/env python3
"""Exports a small Llama with a cache, as transformers has it: present = Concat(past, new).

    export_cached.py OUT_DIR

Needs torch, transformers and onnxscript (`utils/setup --exports`). It is run by hand when
the exporters change; what it wrote is committed in data/. Weights are recipes, as those
of export_transformers.py.

llama-cache-script has symbolic dims `past`, `sequence` and `total` (their sum);
llama-cache-dynamo, by the exporter that is based on torch.export, is for one token and a
past of 24 rows.
"""
import pathlib
import sys

import torch
import transformers as tf

from export_transformers import HEADS, HIDDEN, LAYERS, VOCAB, lighten, sharpen

PAST, KV_HEADS = 24, HEADS // 2


class Cached(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, position_ids, *past):
        cache = tf.DynamicCache()
        for layer in range(LAYERS):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        out = self.model(input_ids=input_ids, attention_mask=attention_mask,
                         position_ids=position_ids, past_key_values=cache, use_cache=True)
        present = [part for layer in cache.layers for part in (layer.keys, layer.values)]
        return (out.logits, *present)


def export(kind, folder):
    torch.manual_seed(3)
    model = tf.LlamaForCausalLM(tf.LlamaConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, intermediate_size=176,
        max_position_embeddings=512, attn_implementation="eager")).eval()
    sharpen(model)
    tokens = 1 if kind == "dynamo" else 3
    inputs = (torch.randint(0, VOCAB, (1, tokens)),
              torch.ones(1, PAST + tokens, dtype=torch.int64), torch.arange(tokens)[None],
              *[torch.zeros(1, KV_HEADS, PAST, HIDDEN // HEADS) for _ in range(2 * LAYERS)])
    caches = [f"{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    names = ["input_ids", "attention_mask", "position_ids",
             *[f"past_key_values.{cache}" for cache in caches]]
    outputs = ["logits", *[f"present.{cache}" for cache in caches]]
    options = {"input_names": names, "output_names": outputs}
    if kind == "dynamo":
        options |= {"dynamo": True, "external_data": False, "opset_version": 20}
    else:
        axes = {name: {1: "sequence"} for name in ("input_ids", "position_ids", "logits")}
        axes["attention_mask"] = {1: "total"}
        axes |= {name: {2: "past"} for name in names[3:]}
        axes |= {name: {2: "total"} for name in outputs[1:]}
        options |= {"dynamo": False, "opset_version": 17, "dynamic_axes": axes}
    path = folder / f"llama-cache-{kind}.onnx"
    with torch.no_grad():
        torch.onnx.export(Cached(model), inputs, str(path), **options)
    lighten(path, model)
    print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    for kind in ("script", "dynamo"):
        export(kind, pathlib.Path(sys.argv[1]))
