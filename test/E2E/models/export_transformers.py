#!/usr/bin/env python3
"""Exports small transformer models with torch's two ONNX exporters.

    export_transformers.py OUT_DIR [NAME…]

Needs torch, transformers and onnxscript (`utils/setup --exports`). It is run by hand when
the exporters change; what it wrote is committed in data/, so tests need no torch.

Full structure, small width, random weights. Large weights are not stored: each is
replaced by a recipe in its doc_string ("normal mean=M std=S seed=N") that zoo.py
follows. The recipe's figures are those of the exported model, whose query and key
projections are scaled up so that attention is far from uniform.
"""
import pathlib
import sys
import warnings
import zlib

import numpy as np
import onnx
import torch
import transformers as tf

warnings.filterwarnings("ignore")

HIDDEN, HEADS, LAYERS, VOCAB, MAX_POSITIONS = 64, 4, 2, 503, 64
#: Exported at the size of the published models, for measurements.
FULL_SIZE = {"bert-base", "gpt2-small"}
#: Where an exporter says which module a node comes from.
SCOPES = "pkg.torch.onnx.name_scopes"
#: Initializers with more elements than this are stored as a recipe.
INLINE_ELEMENTS = 128


def gpt2(attention):
    config = tf.GPT2Config(
        vocab_size=VOCAB, n_positions=MAX_POSITIONS, n_embd=HIDDEN, n_layer=LAYERS,
        n_head=HEADS, attn_implementation=attention, use_cache=False)
    return tf.GPT2LMHeadModel(config), ["input_ids"], {"use_cache": False}, "logits"


def bert(attention):
    config = tf.BertConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, intermediate_size=4 * HIDDEN,
        max_position_embeddings=MAX_POSITIONS, attn_implementation=attention)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    return tf.BertModel(config), names, {}, "last_hidden_state"


def llama(attention):
    config = tf.LlamaConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=HEADS // 2,
        intermediate_size=176, max_position_embeddings=MAX_POSITIONS,
        attn_implementation=attention, use_cache=False)
    return tf.LlamaForCausalLM(config), ["input_ids"], {"use_cache": False}, "logits"


def decoder_sizes(attention):
    """What the published decoders have in common, with two key-value heads."""
    return dict(
        vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=HEADS // 2,
        intermediate_size=176, max_position_embeddings=MAX_POSITIONS,
        attn_implementation=attention, use_cache=False, pad_token_id=0,
        bos_token_id=1, eos_token_id=2)


def qwen2(attention):
    config = tf.Qwen2Config(**decoder_sizes(attention))
    return tf.Qwen2ForCausalLM(config), ["input_ids"], {"use_cache": False}, "logits"


def mistral(attention):
    config = tf.MistralConfig(sliding_window=8, **decoder_sizes(attention))
    return tf.MistralForCausalLM(config), ["input_ids"], {"use_cache": False}, "logits"


def phi3(attention):
    config = tf.Phi3Config(**decoder_sizes(attention))
    return tf.Phi3ForCausalLM(config), ["input_ids"], {"use_cache": False}, "logits"


def gemma2(attention):
    config = tf.Gemma2Config(head_dim=HIDDEN // HEADS, sliding_window=8,
                             query_pre_attn_scalar=HIDDEN // HEADS,
                             **decoder_sizes(attention))
    return tf.Gemma2ForCausalLM(config), ["input_ids"], {"use_cache": False}, "logits"


def t5(attention):
    config = tf.T5Config(
        vocab_size=VOCAB, d_model=HIDDEN, d_kv=HIDDEN // HEADS, d_ff=4 * HIDDEN,
        num_layers=LAYERS, num_decoder_layers=LAYERS, num_heads=HEADS, use_cache=False,
        attn_implementation=attention)
    names = ["input_ids", "decoder_input_ids"]
    return (tf.T5ForConditionalGeneration(config), names, {"use_cache": False}, "logits")


def modernbert(attention):
    config = tf.ModernBertConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, intermediate_size=96,
        max_position_embeddings=MAX_POSITIONS, local_attention=8,
        global_attn_every_n_layers=2, attn_implementation=attention,
        reference_compile=False, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        cls_token_id=1, sep_token_id=2)
    names = ["input_ids", "attention_mask"]
    return tf.ModernBertModel(config), names, {}, "last_hidden_state"


def dinov2(attention):
    config = tf.Dinov2Config(
        hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        mlp_ratio=4, image_size=32, patch_size=8, attn_implementation=attention)
    return tf.Dinov2Model(config), ["pixel_values"], {}, "last_hidden_state"


def vit(attention):
    config = tf.ViTConfig(
        hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=4 * HIDDEN, image_size=32, patch_size=8, num_labels=10,
        attn_implementation=attention)
    return tf.ViTForImageClassification(config), ["pixel_values"], {}, "logits"


def example(names, batch, length):
    made = {
        "input_ids": lambda: torch.randint(0, VOCAB, (batch, length)),
        "decoder_input_ids": lambda: torch.randint(0, VOCAB, (batch, length)),
        "attention_mask": lambda: torch.ones(batch, length, dtype=torch.int64),
        "token_type_ids": lambda: torch.zeros(batch, length, dtype=torch.int64),
        "pixel_values": lambda: torch.randn(batch, 3, 32, 32),
    }
    return tuple(made[name]() for name in names)


def sharpen(model):
    """Random weights of unit gain, queries and keys three times that: the softmax then
    has clear winners, so that a wrong head or position shows in the numbers."""
    generator = torch.Generator().manual_seed(7)
    for name, weight in model.named_parameters():
        with torch.no_grad():
            if weight.dim() >= 2:
                is_conv1d = "c_attn" in name or "c_fc" in name or "c_proj" in name
                fan_in = weight.shape[0] if is_conv1d else weight[0].numel()
                if any(k in name for k in ("wte", "wpe", "shared.weight")):
                    # Tied to the head: logits of size one, so that rounding stays
                    # below the absolute tolerance of the tests.
                    fan_in = weight.shape[1]
                elif any(k in name for k in ("embed_tokens", "tok_embeddings", "_embeddings.weight",
                                             "cls_token", "position_embeddings")):
                    fan_in = 1
                gain = 2.0 if any(k in name for k in ("query", "key", "q_proj",
                                                      "k_proj", "c_attn")) else 1.0
                weight.copy_(torch.randn(weight.shape, generator=generator)
                             * gain / fan_in**0.5)
            else:
                base = 1.0 if "norm" in name.lower() or "ln_" in name else 0.0
                is_scale = base and name.endswith("weight")
                weight.copy_((1.0 if is_scale else 0.0)
                             + 0.1 * torch.randn(weight.shape, generator=generator))


def bert_base(attention):
    config = tf.BertConfig(attn_implementation=attention)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    return tf.BertModel(config), names, {}, "last_hidden_state"


def gpt2_small(attention):
    config = tf.GPT2Config(attn_implementation=attention, use_cache=False)
    return tf.GPT2LMHeadModel(config), ["input_ids"], {"use_cache": False}, "logits"


#: name: (family, attention implementation, torch.export based, opset, dynamic dims)
EXPORTS = {
    "gpt2-dynamo": (gpt2, "sdpa", True, 18, False),
    "gpt2-dynamo-dynamic": (gpt2, "eager", True, 20, True),
    "gpt2-script": (gpt2, "eager", False, 17, True),
    "bert-dynamo": (bert, "sdpa", True, 18, True),
    "bert-script": (bert, "eager", False, 14, True),
    "bert-script-opset11": (bert, "eager", False, 11, False),
    "llama-dynamo": (llama, "sdpa", True, 18, True),
    "llama-dynamo-opset23": (llama, "sdpa", True, 23, False),
    "llama-script": (llama, "eager", False, 17, True),
    "vit-dynamo": (vit, "sdpa", True, 18, False),
    "vit-script": (vit, "eager", False, 17, True),
    **{f"{family.__name__}-{kind}":
           (family, "sdpa" if kind == "dynamo" and family not in (gemma2, t5)
            else "eager",
            kind == "dynamo",
            18 if kind == "dynamo" else 17, False)
       for family in (qwen2, mistral, phi3, gemma2, t5, modernbert, dinov2)
       for kind in ("dynamo", "script")},
    "t5-script-dynamic": (t5, "eager", False, 17, True),
    "bert-base": (bert_base, "sdpa", True, 18, False),
    "gpt2-small": (gpt2_small, "sdpa", True, 18, False),
}


def fingerprint(values):
    """Equal for the same values in any order: exporters transpose weights."""
    values = np.sort(values.astype(np.float32).ravel())
    return values.size, float(values.astype(np.float64).sum())


def strip_weights(model, parameters):
    """Replaces large parameters by their recipes. Other constants, such as masks and
    rotary tables, stay as they are."""
    known = {fingerprint(p.detach().numpy()) for p in parameters}
    for tensor in model.graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        values = onnx.numpy_helper.to_array(tensor)
        if values.size <= INLINE_ELEMENTS or fingerprint(values) not in known:
            continue
        seed = zlib.crc32(tensor.name.encode())
        tensor.doc_string = (f"normal mean={float(values.mean()):.4g} "
                             f"std={float(values.std()):.4g} seed={seed}")
        for field in ("raw_data", "float_data", "external_data", "data_location"):
            tensor.ClearField(field)


def lighten(path, model):
    """Rewrites an exported file with what the tests need of it."""
    proto = onnx.load(path)
    for node in proto.graph.node:  # stack traces with paths of the exporting machine
        kept = [p for p in node.metadata_props if p.key == SCOPES]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        node.ClearField("doc_string")
    for value in list(proto.graph.value_info):
        del value.metadata_props[:]
    del proto.metadata_props[:]
    del proto.graph.metadata_props[:]
    strip_weights(proto, model.parameters())
    onnx.save(proto, path)
    return proto


def export(name, folder):
    family, attention, dynamo, opset, dynamic = EXPORTS[name]
    torch.manual_seed(3)
    model, names, extra, output = family(attention)
    sharpen(model)
    if not dynamo and names == ["input_ids"]:
        # Without a mask, transformers looks for packed sequences by aten::diff, which
        # the older exporter does not know.
        names = ["input_ids", "attention_mask"]
    parameters = ", ".join(names)
    keywords = ", ".join(f"{n}={n}" for n in names)
    scope = {"model": model, "extra": extra, "torch": torch}
    exec(  # one positional parameter per input, so the exporters see their names
        "class Wrapped(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.model = model\n"
        f"    def forward(self, {parameters}):\n"
        f"        return self.model({keywords}, **extra).{output}\n", scope)
    wrapped = scope["Wrapped"]().eval()
    inputs = example(names, *((1, 128) if name in FULL_SIZE else (2, 12)))
    path = folder / f"{name}.onnx"
    axes = {0: "batch"} if names == ["pixel_values"] else {0: "batch", 1: "sequence"}
    options = {"opset_version": opset, "input_names": names, "output_names": [output]}
    if dynamo:
        options["dynamo"] = True
        options["external_data"] = False
        if dynamic:
            options["dynamic_shapes"] = tuple(
                {k: torch.export.Dim(v, min=2, max=MAX_POSITIONS) for k, v in axes.items()}
                for _ in names)
    else:
        options["dynamo"] = False
        if dynamic:
            options["dynamic_axes"] = {n: axes for n in names + [output]}
    torch.onnx.export(wrapped, inputs, str(path), **options)
    proto = lighten(path, model)
    print(f"{name}: {len(proto.graph.node)} nodes, {path.stat().st_size} bytes", flush=True)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or EXPORTS:
        try:
            export(name, folder)
        except Exception as error:  # one exporter's failure must not lose the others
            print(f"{name}: FAILED: {type(error).__name__}: {str(error)[:600]}", flush=True)


if __name__ == "__main__":
    main()
