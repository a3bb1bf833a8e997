#!/usr/bin/env python3
"""Families of models that the tests' zoo has not, as folders of the same form (zoo.py):
exported by torch with random weights, or pretrained ones out of wheels.

    export_families.py OUT_DIR [NAME…]

Needs a Python with torch 2.13, transformers 5.23, onnx and onnxruntime; pip fetches
the wheels of silero-vad and magika. Run by hand, then run_model.py or run_families.py.
"""
import pathlib
import subprocess
import sys
import tempfile
import warnings
import zipfile

import numpy as np
import onnx
import torch
import transformers as tf
from torch import nn

import export_transformers
import zoo

warnings.filterwarnings("ignore")

BATCH, LENGTH, VOCAB = 4, 16, 503


def exported(model, inputs, opset=18, dynamo=True):
    """The model as torch exports it; `inputs` by name, in the order of its parameters."""
    torch.manual_seed(3)
    model.eval()
    with tempfile.TemporaryDirectory() as work:
        path = f"{work}/model.onnx"
        options = {"dynamo": True, "external_data": False} if dynamo else {"dynamo": False}
        torch.onnx.export(model, tuple(inputs.values()), path, opset_version=opset,
                          input_names=list(inputs), **options)
        return onnx.load(path)


class Keywords(nn.Module):
    """A model of transformers with positional inputs and one output."""

    def __init__(self, model, names, output):
        super().__init__()
        self.model, self.names, self.output = model, names, output

    def forward(self, *inputs):
        return getattr(self.model(**dict(zip(self.names, inputs))), self.output)


def of_transformers(model, inputs, output, **options):
    export_transformers.sharpen(model)
    model.config.use_cache = False
    return exported(Keywords(model, list(inputs), output), inputs, **options)


def tokens(length=LENGTH):
    return torch.randint(0, VOCAB, (BATCH, length))


def llama_gqa():
    config = tf.LlamaConfig(**export_transformers.decoder_sizes("sdpa"))
    return of_transformers(tf.LlamaForCausalLM(config), {"input_ids": tokens()}, "logits")


def t5():
    model, _, _, _ = export_transformers.t5("eager")
    return of_transformers(
        model, {"input_ids": tokens(), "decoder_input_ids": tokens(12)}, "logits")


def whisper():
    config = tf.WhisperConfig(
        vocab_size=VOCAB + 9, num_mel_bins=80, d_model=64, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=256,
        decoder_ffn_dim=256, max_source_positions=32, max_target_positions=32, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, attn_implementation="eager")
    return of_transformers(
        tf.WhisperForConditionalGeneration(config),
        {"input_features": torch.randn(BATCH, 80, 64), "decoder_input_ids": tokens(12)}, "logits")


def mixtral():
    config = tf.MixtralConfig(num_local_experts=4, num_experts_per_tok=2,
                              **export_transformers.decoder_sizes("eager"))
    config._experts_implementation = "batched_mm"
    return of_transformers(tf.MixtralForCausalLM(config), {"input_ids": tokens()}, "logits")


def swin():
    config = tf.SwinConfig(image_size=64, patch_size=4, embed_dim=32, depths=[2, 2],
                           num_heads=[2, 4], window_size=4, num_labels=10)
    return of_transformers(tf.SwinForImageClassification(config),
                           {"pixel_values": torch.randn(BATCH, 3, 64, 64)}, "logits",
                           opset=17, dynamo=False)


class Dlrm(nn.Module):
    """Tables, dense features, their pairwise products (Naumov et al. 2019)."""

    def __init__(self, tables=6, width=16):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(512, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(pairs + width, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("places", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        rows = [nn.functional.embedding(sparse[:, i], table.weight).sum(1)
                for i, table in enumerate(self.tables)]
        all_ = torch.stack([x, *rows], 1)
        products = all_ @ all_.transpose(1, 2)
        pairs = products[:, self.places[0], self.places[1]]
        return torch.sigmoid(self.top(torch.cat([x, pairs], 1)))


def dlrm():
    return exported(Dlrm(), {"dense": torch.randn(24, 13),
                             "sparse": torch.randint(0, VOCAB, (24, 6, 3))})


class UNet(nn.Module):
    """Two levels, instance norm, resizing by neighbours and bilinear."""

    def __init__(self, width=16):
        super().__init__()

        def block(inputs, outputs):
            return nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, padding=1), nn.InstanceNorm2d(outputs, affine=True),
                nn.LeakyReLU(0.1), nn.Conv2d(outputs, outputs, 3, padding=1),
                nn.InstanceNorm2d(outputs, affine=True), nn.LeakyReLU(0.1))

        self.down = nn.ModuleList([block(3, width), block(width, 2 * width)])
        self.middle = block(2 * width, 4 * width)
        self.up = nn.ModuleList([block(6 * width, 2 * width), block(3 * width, width)])
        self.last = nn.Conv2d(width, 4, 1)

    def forward(self, image):
        first = self.down[0](image)
        second = self.down[1](nn.functional.max_pool2d(first, 2))
        x = self.middle(nn.functional.avg_pool2d(second, 2))
        x = nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        x = self.up[0](torch.cat([x, second], 1))
        x = nn.functional.interpolate(x, scale_factor=2, mode="nearest")
        return self.last(self.up[1](torch.cat([x, first], 1)))


def unet():
    return exported(UNet(), {"image": torch.randn(2, 3, 48, 64)})


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCAB, 32)
        self.cells = nn.LSTM(32, 48, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(96, 17)

    def forward(self, input_ids):
        return self.head(self.cells(self.table(input_ids))[0])


def lstm_tagger():
    return exported(Tagger(), {"input_ids": torch.randint(0, VOCAB, (24, LENGTH))}, opset=17,
                    dynamo=False)


class Crnn(nn.Module):
    """Convolutions down to one row, then a recurrence over columns (Shi et al. 2015)."""

    def __init__(self):
        super().__init__()
        layers, inputs = [], 1
        for outputs, pool in ((16, (2, 2)), (32, (2, 2)), (48, (2, 1)), (64, (4, 1))):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs),
                       nn.ReLU(), nn.MaxPool2d(pool)]
            inputs = outputs
        self.features = nn.Sequential(*layers)
        self.cells = nn.GRU(64, 32, bidirectional=True)
        self.head = nn.Linear(64, 37)

    def forward(self, image):
        columns = self.features(image).squeeze(2).permute(2, 0, 1)
        return self.head(self.cells(columns)[0]).log_softmax(-1)


def crnn():
    return exported(Crnn(), {"image": torch.randn(BATCH, 1, 32, 96)}, opset=17, dynamo=False)


class Graph(nn.Module):
    """Two rounds of messages along edges: gather, sum by scatter, update; mean by graph."""

    NODES = 512

    def __init__(self, width=32):
        super().__init__()
        self.enter = nn.Linear(12, width)
        self.message = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(2))
        self.update = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(2))
        self.head = nn.Linear(width, 5)

    def forward(self, features, source, target):
        x = torch.relu(self.enter(features))
        for message, update in zip(self.message, self.update):
            sent = torch.relu(message(torch.cat([x[source], x[target]], -1)))
            place = target.unsqueeze(-1).expand_as(sent)
            summed = torch.zeros_like(x).scatter_add(0, place, sent)
            x = torch.relu(update(torch.cat([x, summed], -1)))
        return self.head(x)


def gnn():
    edges = [torch.randint(0, VOCAB, (1536,)) for _ in range(2)]
    return exported(Graph(), {"features": torch.randn(Graph.NODES, 12), "source": edges[0],
                              "target": edges[1]})


def quantized_mobilenet():
    """MobileNetV2 as ONNX Runtime's static quantization leaves it: Q/DQ pairs."""
    from onnxruntime import quantization
    torch.manual_seed(5)
    config = tf.MobileNetV2Config(depth_multiplier=0.5, image_size=96, num_labels=100)
    model = Keywords(tf.MobileNetV2ForImageClassification(config), ["pixel_values"], "logits")
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    image = torch.randn(2, 3, 96, 96)

    class Reader(quantization.CalibrationDataReader):
        left = [{"image": torch.randn(2, 3, 96, 96).numpy()} for _ in range(4)]

        def get_next(self):
            return self.left.pop() if self.left else None

    with tempfile.TemporaryDirectory() as work:
        onnx.save(exported(model, {"image": image}, opset=17, dynamo=False), f"{work}/f32.onnx")
        quantization.quantize_static(
            f"{work}/f32.onnx", f"{work}/int8.onnx", Reader(), per_channel=True,
            quant_format=quantization.QuantFormat.QDQ)
        return onnx.load(f"{work}/int8.onnx")


def from_wheel(package, member):
    def build():
        with tempfile.TemporaryDirectory() as work:
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d",
                            work, package], check=True)
            (wheel,) = pathlib.Path(work).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                return onnx.load_from_string(archive.read(member))
    return build


def vad_input(name, value, shape, index):
    if name == "sr":
        return np.array(16000, np.int64)
    # A voice's pitch, so that the pretrained net's answer is not that of noise.
    time = np.arange(shape[-1], dtype=np.float32) / 16000
    wave = [sum(np.sin(2 * np.pi * 120 * k * (1 + 0.1 * row) * time) / k for k in range(1, 9))
            for row in range(shape[0])]
    return (0.1 * np.stack(wave).astype(np.float32) if name == "input" else
            zoo.make_input("silero-vad", name, value, shape, index) * np.float32(0.1))


def file_bytes(name, value, shape, index):
    """The first bytes of Python sources; 256 where there are none, as magika pads."""
    kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    rows = np.full(shape, 256, kind)
    sources = sorted(zoo.HERE.glob("*.py"))
    for row in range(shape[0]):
        text = np.frombuffer(sources[row].read_bytes()[:shape[1] // (row + 1)], np.uint8)
        rows[row, :len(text)] = text
    return rows


#: name: (function that builds it, shape of each input, what case.json says besides, inputs)
FAMILIES = {
    "silero-vad": (from_wheel("silero-vad==6.2.3", "silero_vad/data/silero_vad.onnx"),
                   {"input": [8, 576], "state": [2, 8, 128], "sr": []},
                   {"constants": ["sr"]}, vad_input),
    "magika": (from_wheel("magika==1.0.3", "magika/models/standard_v3_3/model.onnx"),
               {"bytes": [4, 2048]}, {}, file_bytes),
    "llama-gqa": (llama_gqa, {"input_ids": [BATCH, LENGTH]}, {}, None),
    "t5": (t5, {"input_ids": [BATCH, LENGTH], "decoder_input_ids": [BATCH, 12]}, {}, None),
    "whisper": (whisper, {"input_features": [BATCH, 80, 64], "decoder_input_ids": [BATCH, 12]},
                {}, None),
    "mixtral": (mixtral, {"input_ids": [BATCH, LENGTH]}, {}, None),
    "dlrm": (dlrm, {"dense": [24, 13], "sparse": [24, 6, 3]}, {}, None),
    "swin": (swin, {"pixel_values": [BATCH, 3, 64, 64]}, {}, None),
    "unet": (unet, {"image": [2, 3, 48, 64]}, {"spatial": True}, None),
    "lstm-tagger": (lstm_tagger, {"input_ids": [24, LENGTH]}, {}, None),
    "crnn": (crnn, {"image": [BATCH, 1, 32, 96]}, {"spatial": True}, None),
    "gnn": (gnn, {"features": [Graph.NODES, 12], "source": [1536], "target": [1536]}, {}, None),
    "mobilenet-qdq": (quantized_mobilenet, {"image": [2, 3, 96, 96]}, {"spatial": True}, None),
}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or FAMILIES:
        build, shapes, more, inputs = FAMILIES[name]
        torch.manual_seed(3)
        try:
            zoo.MODELS[name] = (build, shapes, False)
            zoo.write_case(name, folder / name, inputs, more)
        except Exception as error:  # one exporter's failure must not lose the others
            print(f"{name}: FAILED: {type(error).__name__}: {str(error)[:600]}", flush=True)
            continue
        print(name, flush=True)


if __name__ == "__main__":
    main()
