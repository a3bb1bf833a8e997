"""The published sizes of the models, where they are from, and how many parameters they
are said to have."""
from collections import namedtuple

from bert import Bert
from llama import Llama
from moe import Moe
from recommenders import Dlrm, WideDeep
from resnet import ResNet
from t5 import T5

import layers  # noqa: F401  (the path of build_gpt2)
from build_gpt2 import Gpt2


class Gpt3(Gpt2):
    """Fused queries, keys and values; the head is the token table."""
    TINY = dict(hidden=64, heads=4, layers=2, vocabulary=503, batch=2, length=16)
    SMALL = dict(hidden=256, heads=8, layers=4, vocabulary=2003, batch=4, length=64)

    def __init__(self, hidden, heads, layers, vocabulary=50257, batch=8, length=2048):
        super().__init__(True, batch, length, hidden=hidden, heads=heads, layers=layers,
                         vocabulary=vocabulary, tied=True)


#: kind: a class; sizes: its arguments; published: the count in the source, as it is
#: written there; shrunk: what --tiny and --small change besides the kind's own.
Spec = namedtuple("Spec", "kind sizes published source shrunk", defaults=[{}])

GPT3 = "Brown et al. 2020, table 2.1"
MEGATRON = "Narayanan et al. 2021, table 1"
LLAMA3 = "Llama Team 2024, table 3"
ALPA = "Zheng et al. 2022, alpa-projects/alpa benchmark/alpa/suite_"
RAFFEL = "Raffel et al. 2020, section 3.7, tied head"
#: Rows of the 26 tables of Criteo's terabyte of clicks, indices below 40 million.
CRITEO = [39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546,
          403346, 10, 2208, 11938, 155, 4, 976, 14, 39979771, 25641295, 39664984, 585935,
          12972, 108, 36]


def gpt3(hidden, heads, layers, published, source=GPT3, **others):
    return Spec(Gpt3, dict(hidden=hidden, heads=heads, layers=layers, **others), published,
                source)


def llama3(hidden, heads, inner, layers, published):
    return Spec(Llama, dict(hidden=hidden, heads=heads, key_heads=8, inner=inner,
                            layers=layers), published, LLAMA3)


def wide_resnet(layers, channels, wideness, published):
    return Spec(ResNet, dict(layers=layers, channels=channels, wideness=wideness,
                             classes=1024), published, ALPA + "wresnet.py",
                dict(layers=14, wideness=2))


def t5(inner, heads, published):
    return Spec(T5, dict(hidden=1024, heads=heads, width=128 if heads > 16 else 64,
                         inner=inner, layers=24), published, RAFFEL)


def moe(hidden, layers, experts, published):
    return Spec(Moe, dict(hidden=hidden, heads=16, layers=layers, experts=experts),
                published, ALPA + "manual_moe.py")


MODELS = {
    # Heads of 1.3B: the table's 24 do not divide 2048; 16, as Megatron-LM runs it. Width
    # of 13B: the table's 5140 is not a multiple of its 40 heads.
    "gpt3-350m": gpt3(1024, 16, 24, "350M"),
    "gpt3-1.3b": gpt3(2048, 16, 24, "1.3B"),
    "gpt3-2.7b": gpt3(2560, 32, 32, "2.7B"),
    "gpt3-6.7b": gpt3(4096, 32, 32, "6.7B"),
    "gpt3-13b": gpt3(5120, 40, 40, "13.0B"),
    "gpt3-39b": gpt3(8192, 64, 48, "39.1B", MEGATRON, vocabulary=51200),
    "gpt3-175b": gpt3(12288, 96, 96, "175.0B"),
    "gpt3-1t": gpt3(25600, 160, 128, "1008.0B", MEGATRON, vocabulary=51200),
    "llama3-8b": llama3(4096, 32, 14336, 32, "8B"),
    "llama3-70b": llama3(8192, 64, 28672, 80, "70B"),
    "llama3-405b": llama3(16384, 128, 53248, 126, "405B"),
    "bert-large": Spec(Bert, dict(hidden=1024, heads=16, layers=24), "340M",
                       "Devlin et al. 2019, section 3"),
    "resnet18": Spec(ResNet, dict(layers=18), "11.7M", "He et al. 2016, table 1; "
                     "torchvision 11,689,512"),
    "resnet50": Spec(ResNet, dict(layers=50), "25.6M", "He et al. 2016, table 1; "
                     "torchvision 25,557,032", dict(layers=14)),
    "wide-resnet-250m": wide_resnet(50, 160, 2, "250M"),
    "wide-resnet-500m": wide_resnet(50, 224, 2, "500M"),
    "wide-resnet-1b": wide_resnet(50, 320, 2, "1B"),
    "wide-resnet-2b": wide_resnet(50, 448, 2, "2B"),
    "wide-resnet-4b": wide_resnet(50, 640, 2, "4B"),
    "wide-resnet-6.8b": wide_resnet(50, 320, 16, "6.8B"),
    "wide-resnet-13b": wide_resnet(101, 320, 16, "13B"),
    "t5-large": t5(4096, 16, "770M"),
    "t5-3b": t5(16384, 32, "2.8B"),
    "t5-11b": t5(65536, 128, "11B"),
    "moe-380m": moe(768, 8, 8, "380M"),
    "moe-690m": moe(768, 8, 16, "690M"),
    "moe-1.3b": moe(768, 16, 16, "1.3B"),
    "moe-2.4b": moe(1024, 16, 16, "2.4B"),
    "moe-10b": moe(1536, 16, 32, "10B"),
    "moe-27b": moe(2048, 16, 48, "27B"),
    "moe-70b": moe(2048, 32, 64, "70B"),
    "dlrm": Spec(Dlrm, dict(rows=CRITEO), "24B", "MLPerf Training DLRM: Criteo terabyte, "
                 "width 128"),
    "wide-deep": Spec(WideDeep, {}, "—", "Cheng et al. 2016, sizes of MindSpore's "
                      "official/recommend/Wide_and_Deep"),
}
