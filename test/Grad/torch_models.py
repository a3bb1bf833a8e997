"""Small models of eight families, in PyTorch: what training is compared on.

Each entry of MODELS makes a module, the names and a batch of its inputs, and says what the
labels of its one output are. Sizes are small, for the comparisons run on two cores.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Attention and a feed-forward part, before each a norm (GPT-2, ViT)."""

    def __init__(self, width, heads, causal):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.causal = heads, causal

    def attend(self, x):
        b, s, w = x.shape
        q, k, v = self.c_attn(x).split(w, dim=2)
        q, k, v = (t.view(b, s, self.heads, w // self.heads).transpose(1, 2)
                   for t in (q, k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(w // self.heads)
        if self.causal:
            mask = torch.ones(s, s, dtype=torch.bool).tril()
            scores = scores.masked_fill(~mask, -10000.0)
        y = scores.softmax(-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(b, s, w))

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        return x + self.proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary=67, length=12, width=32, layers=2, heads=4):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, heads, True) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Bert(nn.Module):
    """A norm behind each part, two kinds of tokens, a pooled output."""

    def __init__(self, vocabulary=61, length=10, width=32, layers=2, heads=4, classes=5):
        super().__init__()
        self.word, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.kind = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 64, 0.0, "gelu", batch_first=True)
            for _ in range(layers))
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, classes)

    def forward(self, tokens, kinds):
        x = self.word(tokens) + self.place(torch.arange(tokens.shape[1])) + self.kind(kinds)
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class LlamaBlock(nn.Module):
    """Rotary positions, grouped heads, a gated feed-forward part."""

    def __init__(self, width, heads, groups):
        super().__init__()
        self.input_norm, self.post_norm = RmsNorm(width), RmsNorm(width)
        size = width // heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, groups * size, bias=False)
        self.v_proj = nn.Linear(width, groups * size, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.gate_proj = nn.Linear(width, 3 * width, bias=False)
        self.up_proj = nn.Linear(width, 3 * width, bias=False)
        self.down_proj = nn.Linear(3 * width, width, bias=False)
        self.heads, self.groups, self.size = heads, groups, size

    def rotate(self, x, cos, sin):
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-second, first), -1) * sin

    def forward(self, x, cos, sin):
        b, s, w = x.shape
        h = self.input_norm(x)
        q = self.q_proj(h).view(b, s, self.heads, self.size).transpose(1, 2)
        k = self.k_proj(h).view(b, s, self.groups, self.size).transpose(1, 2)
        v = self.v_proj(h).view(b, s, self.groups, self.size).transpose(1, 2)
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        times = self.heads // self.groups
        k = k[:, :, None].expand(b, self.groups, times, s, self.size).reshape(
            b, self.heads, s, self.size)
        v = v[:, :, None].expand(b, self.groups, times, s, self.size).reshape(
            b, self.heads, s, self.size)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.size)
        scores = scores + torch.full((s, s), -10000.0).triu(1)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, s, w)
        x = x + self.o_proj(y)
        h = self.post_norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class Llama(nn.Module):
    def __init__(self, vocabulary=53, length=8, width=32, layers=2, heads=4, groups=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(LlamaBlock(width, heads, groups) for _ in range(layers))
        self.norm = RmsNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        size = width // heads
        rate = 1.0 / 10000 ** (torch.arange(0, size, 2).float() / size)
        angle = torch.outer(torch.arange(length).float(), rate)
        self.cos, self.sin = torch.cat((angle, angle), -1).cos(), torch.cat(
            (angle, angle), -1).sin()

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.norm(x))


class Vit(nn.Module):
    def __init__(self, side=16, patch=4, width=32, layers=2, heads=4, classes=7):
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.cls = nn.Parameter(torch.randn(1, 1, width) * 0.1)
        self.place = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width) * 0.1)
        self.blocks = nn.ModuleList(Block(width, heads, False) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls.expand(x.shape[0], -1, -1), x), 1) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Basic(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.down = None
        if stride != 1 or channels != out:
            self.down = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False),
                                      nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.down(x) if self.down else x))


class ResNet(nn.Module):
    """ResNet-18, with `width` channels in its first stage (64 in the paper)."""

    def __init__(self, width=8, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, 2, 1)
        stages, before = [], width
        for k in range(4):
            out = width << k
            stages += [Basic(before, out, 1 if k == 0 else 2), Basic(out, out, 1)]
            before = out
        self.layers = nn.Sequential(*stages)
        self.fc = nn.Linear(before, classes)

    def forward(self, x):
        x = self.layers(self.pool(F.relu(self.bn1(self.conv1(x)))))
        return self.fc(x.mean((2, 3)))


class Moe(nn.Module):
    """Two of four experts for each token, weighed by the gate."""

    def __init__(self, width=16, experts=4, classes=6):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 32) * 0.2)
        self.down = nn.Parameter(torch.randn(experts, 32, width) * 0.2)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        weights = self.gate(x).softmax(-1)
        top, places = weights.topk(2, dim=-1)
        top = top / top.sum(-1, keepdim=True)
        chosen = torch.zeros_like(weights).scatter(-1, places, top)
        h = F.silu(torch.einsum("bsw,ewh->ebsh", x, self.up))
        y = torch.einsum("ebsh,ehw->ebsw", h, self.down)
        y = (y * chosen.permute(2, 0, 1)[..., None]).sum(0)
        return self.head((x + y).mean(1))


class Dlrm(nn.Module):
    """Tables, pairwise products, and two towers of layers."""

    def __init__(self, tables=(31, 17, 23), width=8):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, width) for n in tables)
        self.bottom = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, width), nn.ReLU())
        pairs = (len(tables) + 1) * len(tables) // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 16), nn.ReLU(), nn.Linear(16, 1))
        rows, columns = torch.tril_indices(len(tables) + 1, len(tables) + 1, -1)
        self.rows, self.columns = rows, columns

    def forward(self, numbers, places):
        dense = self.bottom(numbers)
        vectors = [dense] + [t(places[:, k]) for k, t in enumerate(self.tables)]
        stacked = torch.stack(vectors, 1)
        products = stacked @ stacked.transpose(1, 2)
        pairs = products[:, self.rows, self.columns]
        return self.top(torch.cat((dense, pairs), 1))


class Tagger(nn.Module):
    def __init__(self, vocabulary=41, width=12, hidden=10, tags=6):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, tags)

    def forward(self, tokens):
        return self.out(self.lstm(self.embed(tokens))[0])


def tokens(vocabulary, *shape):
    return lambda random: random.integers(0, vocabulary, shape)


def numbers(*shape):
    return lambda random: random.normal(0, 1, shape).astype("float32")


BATCH = 8
CLASSES = "softmax_cross_entropy"
# name: module, inputs, labels, kind of loss, dim of the classes
MODELS = {
    "resnet18": (ResNet, {"x": numbers(BATCH, 3, 32, 32)}, tokens(10, BATCH), CLASSES, 1),
    "bert": (Bert, {"tokens": tokens(61, BATCH, 10), "kinds": tokens(2, BATCH, 10)},
             tokens(5, BATCH), CLASSES, 1),
    "gpt2": (Gpt, {"tokens": tokens(67, BATCH, 12)}, tokens(67, BATCH, 12), CLASSES, -1),
    "llama": (Llama, {"tokens": tokens(53, BATCH, 8)}, tokens(53, BATCH, 8), CLASSES, -1),
    "vit": (Vit, {"x": numbers(BATCH, 3, 16, 16)}, tokens(7, BATCH), CLASSES, 1),
    "moe": (Moe, {"x": numbers(BATCH, 6, 16)}, tokens(6, BATCH), CLASSES, 1),
    "dlrm": (Dlrm, {"numbers": numbers(BATCH, 5), "places": tokens(17, BATCH, 3)},
             lambda random: random.integers(0, 2, (BATCH, 1)).astype("float32"),
             "bce_with_logits", None),
    "lstm": (Tagger, {"tokens": tokens(41, BATCH, 9)}, tokens(6, BATCH, 9), CLASSES, -1),
}
