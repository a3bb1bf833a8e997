#!/usr/bin/env python3
"""Writes the models of which requests are timed against ONNX Runtime: published sizes,
random weights, each a folder as test/E2E/models/zoo.py writes them.

usage: models.py OUT_DIR [NAME…]
       models.py --list

Transformers and MobileNetV2 are exported with torch's exporter (`utils/setup --exports`);
the detection model is the file of the demo.
"""
import argparse
import json
import os
import pathlib
import sys
import warnings
import zlib

import numpy as np
import onnx
from onnx import numpy_helper

warnings.filterwarnings("ignore")

CACHE = pathlib.Path(os.environ.get("PARTITA_CACHE",
                                    pathlib.Path.home() / ".cache" / "partita"))
#: What is measured of Llama: 12 layers of 768 with 12 heads, 110 million parameters.
LLAMA = dict(vocab_size=32000, hidden_size=768, num_hidden_layers=12,
             num_attention_heads=12, num_key_value_heads=12, intermediate_size=2048,
             max_position_embeddings=256, attn_implementation="sdpa")
#: Tokens of a prefill, and of the cache behind a decode step.
LENGTH = 128


def tokens(torch, name="input_ids", length=LENGTH, below=30000):
    return {name: torch.randint(0, below, (1, length))}


def gpt2_small(torch, tf):
    config = tf.GPT2Config(use_cache=False, attn_implementation="sdpa")
    return tf.GPT2LMHeadModel(config), tokens(torch), ["logits"]


def bert_base(torch, tf):
    model = tf.BertModel(tf.BertConfig(attn_implementation="sdpa"))
    return model, tokens(torch), ["last_hidden_state"]


def vit_b16(torch, tf):
    model = tf.ViTForImageClassification(tf.ViTConfig(num_labels=1000))
    return model, {"pixel_values": torch.randn(1, 3, 224, 224)}, ["logits"]


def llama_prefill(torch, tf):
    model = tf.LlamaForCausalLM(tf.LlamaConfig(use_cache=False, **LLAMA))
    return model, tokens(torch), ["logits"]


def llama_decode(torch, tf):
    """One token behind a cache: keys and values come in and go out, one longer."""
    config = tf.LlamaConfig(**LLAMA)
    layers, heads = config.num_hidden_layers, config.num_key_value_heads
    width = config.hidden_size // config.num_attention_heads

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = tf.LlamaForCausalLM(config)

        def forward(self, input_ids, past):
            cache = tf.DynamicCache()
            for layer in range(layers):
                cache.update(past[layer, 0], past[layer, 1], layer)
            out = self.model(input_ids, past_key_values=cache, use_cache=True,
                             position_ids=torch.full((1, 1), LENGTH))
            rows = [torch.stack([entry.keys, entry.values]) for entry in cache.layers]
            return out.logits, torch.stack(rows)[..., -1:, :]

    past = torch.randn(layers, 2, 1, heads, LENGTH, width)
    return Step(), {**tokens(torch, length=1), "past": past}, ["logits", "rows"]


def t5_small_encoder(torch, tf):
    model = tf.T5EncoderModel(tf.T5Config(use_cache=False))
    return model, tokens(torch), ["last_hidden_state"]


def whisper_tiny_encoder(torch, tf):
    model = tf.WhisperModel(tf.WhisperConfig(attn_implementation="sdpa")).encoder
    return model, {"input_features": torch.randn(1, 80, 3000)}, ["last_hidden_state"]


def mobilenet_v2(torch, tf):
    model = tf.MobileNetV2ForImageClassification(tf.MobileNetV2Config(num_labels=1000))
    return model, {"pixel_values": torch.randn(1, 3, 224, 224)}, ["logits"]


def resnet_50(torch, tf):
    model = tf.ResNetForImageClassification(tf.ResNetConfig(num_labels=1000))
    return model, {"pixel_values": torch.randn(1, 3, 224, 224)}, ["logits"]


EXPORTED = {"resnet-50": resnet_50, "mobilenet-v2": mobilenet_v2, "bert-base": bert_base,
            "gpt2-small": gpt2_small, "vit-b16": vit_b16,
            "llama-110m-prefill": llama_prefill, "llama-110m-decode": llama_decode,
            "t5-small-encoder": t5_small_encoder,
            "whisper-tiny-encoder": whisper_tiny_encoder}


def export(name, target):
    import torch
    import transformers
    torch.manual_seed(zlib.crc32(name.encode()))
    model, feeds, outputs = EXPORTED[name](torch, transformers)
    model.eval()
    with torch.no_grad():
        torch.onnx.export(model, (), str(target / "model.onnx"), kwargs=feeds,
                          input_names=list(feeds), output_names=outputs, dynamo=True,
                          external_data=True, verbose=False)
    return {key: value.numpy() for key, value in feeds.items()}


def detection(target):
    model = onnx.load(CACHE / "rapidocr-1.4.4" / "ch_PP-OCRv4_det_infer.onnx")
    onnx.save(model, target / "model.onnx")
    random = np.random.Generator(np.random.PCG64(1))
    return {"x": random.standard_normal((1, 3, 640, 640), dtype=np.float32)}


def write(name, target):
    (target / "inputs").mkdir(parents=True, exist_ok=True)
    feeds = detection(target) if name == "ppocr-det-640" else export(name, target)
    model = onnx.load(target / "model.onnx", load_external_data=False)
    inputs = [value.name for value in model.graph.input]
    for index, key in enumerate(inputs):
        proto = numpy_helper.from_array(feeds[key], key)
        (target / "inputs" / f"input_{index}.pb").write_bytes(proto.SerializeToString())
    case = {"name": name, "inputs": inputs,
            "shapes": {key: list(feeds[key].shape) for key in inputs}}
    (target / "case.json").write_text(json.dumps(case, indent=1) + "\n")


def main():
    names = [*EXPORTED, "ppocr-det-640"]
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("out", nargs="?", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(names))
        return
    unknown = [name for name in arguments.names if name not in names]
    if arguments.out is None or unknown:
        parser.error(f"unknown model {unknown[0]!r}; --list shows the names" if unknown
                     else "OUT_DIR is missing")
    for name in arguments.names or names:
        if not (arguments.out / name / "case.json").exists():
            print(f"[models] {name}", flush=True)
            write(name, arguments.out / name)


if __name__ == "__main__":
    sys.exit(main())
