"""partita.shard of torch modules: outputs are those of torch, split by module over 2 and 3
ranks. Without torch, or what its exporter needs, nothing is tested, which the exit status 77
says.

usage: test_shard_torch.py (with PARTITA_RUNTIME and PARTITA_COMPILER set)
"""
import copy
import logging
import pathlib
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

SKIPPED = 77

try:
    import torch
    import onnxscript  # noqa: F401, the exporter needs it
except ImportError as error:
    print("skipped: no", error.name)
    sys.exit(SKIPPED)

import partita  # noqa: E402
from expecting import expect_error  # noqa: E402

# Silences the exporter, which tells of its own versions.
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

BATCH, LENGTH, WIDTH, HEADS = 6, 5, 24, 6


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (torch.nn.Linear(WIDTH, WIDTH)
                                                      for _ in range(4))

    def forward(self, x):
        def heads(y):
            return y.unflatten(-1, (HEADS, WIDTH // HEADS)).transpose(1, 2)

        y = torch.nn.functional.scaled_dot_product_attention(
            heads(self.query(x)), heads(self.key(x)), heads(self.value(x)), is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.behind = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.down(torch.nn.functional.gelu(self.up(self.behind(x))))


class Network(torch.nn.Module):
    """Tokens in, the last state and logits out, dropout between."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(48, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))
        self.drop = torch.nn.Dropout(0.5)
        self.head = torch.nn.Linear(WIDTH, 48, bias=False)

    def forward(self, tokens, bias):
        x = self.drop(self.embedding(tokens) + bias)
        for block in self.blocks:
            x = block(x)
        return x, self.head(x)


#: Columns, then rows: each block has two sums over ranks.
COLUMNS, ROWS = {"out": [[None, None, "tp"]]}, {"in": [[None, None, "tp"]]}
MEGATRON = {"blocks.*.attention.query": COLUMNS, "blocks.*.attention.key": COLUMNS,
            "blocks.*.attention.value": COLUMNS, "blocks.*.attention.out": ROWS,
            "blocks.*.up": COLUMNS, "blocks.*.down": ROWS}


def network():
    torch.manual_seed(5)
    module = Network()
    return module, (torch.randint(0, 48, (BATCH, LENGTH)), torch.randn(LENGTH, WIDTH))


def expected_of(module, inputs):
    with torch.no_grad():
        results = copy.deepcopy(module).eval()(*inputs)
    return results if isinstance(results, tuple) else (results,)


def close(results, expected):
    results = results if isinstance(results, tuple) else (results,)
    assert len(results) == len(expected), (len(results), len(expected))
    for result, wanted in zip(results, expected):
        assert isinstance(result, torch.Tensor), type(result)
        torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-5)


def sums_over(sharded, axis):
    return sum(call["op"] == "all_reduce" and call["axes"] == axis
               for stage in sharded.report()["stages"] for call in stage["collectives"])


def check_network():
    module, inputs = network()
    module.blocks[1].eval()  # training or not is said of each part
    expected = expected_of(module, inputs)
    for mesh, mode, strategies in (("tp=2", "semi-auto", MEGATRON), ("tp=3", "semi-auto", MEGATRON),
                                   ("dp=2", "auto", None)):
        with partita.shard(module, strategies, mesh=mesh, mode=mode, inputs=inputs) as sharded:
            close(sharded(*inputs), expected)
            names = list(sharded.session.inputs)
            close(sharded(**dict(zip(names, inputs))), expected)
            if strategies:
                assert sums_over(sharded, "tp") >= 4, sharded.report()
            # Other values than those that it was exported by.
            other = (inputs[0].flip(0), inputs[1] * 2)
            close(sharded(*other), expected_of(module, other))
    assert module.training and not module.blocks[1].training, "a module's mode has changed"
    print("a network of two blocks by 3 plans: equal to torch within 1e-5")


def check_small():
    """Modules of one input and one output, and inputs that are no tensors."""
    torch.manual_seed(6)
    module = torch.nn.Sequential()
    module.add_module("up", torch.nn.Linear(7, 12))
    module.add_module("act", torch.nn.ReLU())
    module.add_module("down", torch.nn.Linear(12, 5))
    x = torch.randn(4, 7)
    for ranks in (2, 3):
        strategies = {"up": {"out": [[None, "tp"]]}, "down": {"in": [[None, "tp"]]}}
        with partita.shard(module, strategies, mesh=f"tp={ranks}", inputs=x.numpy(),
                           mode="semi-auto") as sharded:
            close(sharded(x), expected_of(module, (x,)))
            # Arrays in, arrays out; gradients are not followed.
            assert not isinstance(sharded(x.numpy()), torch.Tensor)
            assert not sharded(x.requires_grad_()).requires_grad
            x = x.detach()
    print("a Sequential on 2 and 3 ranks: equal to torch within 1e-5")


def check_errors():
    module, inputs = network()
    shard = lambda strategies, **named: partita.shard(  # noqa: E731
        module, strategies, **{"mesh": "tp=2", "inputs": inputs, **named})
    expect_error("'blocks.0.atention.query'",
                 lambda: shard({"blocks.0.atention.query": {"out": [[None, None, "tp"]]}}))
    expect_error("'blocks.*.upp'", lambda: shard({"blocks.*.upp": {"out": [[None, None, "tp"]]}}))
    expect_error('no axis "xp"', lambda: shard({"head": {"out": [[None, None, "xp"]]}}))
    expect_error("inputs=", lambda: shard(MEGATRON, inputs=None))
    expect_error("torch cannot export the module Network: ",
                 lambda: shard(MEGATRON, inputs=inputs[:1]))
    print("misspelled modules and axes, missing inputs: errors that name them")


check_network()
check_small()
check_errors()
