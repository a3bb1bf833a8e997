"""The network of train.py as a PyTorch module, exported with what ranks exchange.

torch.onnx.ops.symbolic writes a node of any domain: on one rank a module that has some does
not run, its export does. Needs torch 2.8 or newer and onnxscript.
"""
import torch


def _exchange(kind, x, shape, /, **attributes):
    """A node of manual mode (docs/manual.md), whose result has this shape."""
    return torch.onnx.ops.symbolic(f"partita::{kind}", (x,), attributes, dtype=x.dtype,
                                   shape=shape, version=1)


class Network(torch.nn.Module):
    """Dense layers and their loss: on its rows of the batch each rank's, or the whole's."""

    def __init__(self, weights, batch, ranks):
        super().__init__()
        self.batch, self.ranks = batch, ranks
        self.count = len(weights) // 2
        for name, value in weights.items():
            self.register_parameter(name, torch.nn.Parameter(torch.from_numpy(value)))

    def forward(self, images, labels):
        batch, x = self.batch, images
        if self.ranks > 1:
            rows = batch // self.ranks
            x = _exchange("ToLocal", x, (rows, images.shape[1]),
                          layout=f"[{{{batch}: dp}}, {{{images.shape[1]}}}]")
            labels = _exchange("ToLocal", labels, (rows,), layout=f"[{{{batch}: dp}}]")
        for i in range(self.count):
            x = x @ getattr(self, f"w{i}") + getattr(self, f"b{i}")
            x = torch.relu(x) if i + 1 < self.count else x
        chances = torch.log_softmax(x, 1).gather(1, labels[:, None])
        loss = -chances.sum()
        if self.ranks > 1:
            loss = _exchange("AllReduce", loss, (), op="sum")
        return loss / batch


def export(path, weights, batch, ranks):
    """Writes the network with these weights, by name w0, b0, w1, …."""
    module = Network(weights, batch, ranks)
    kind = next(iter(weights.values())).dtype
    inputs = (torch.zeros(batch, weights["w0"].shape[0]).to(
        getattr(torch, str(kind))), torch.zeros(batch, dtype=torch.int64))
    torch.onnx.export(module, inputs, path, dynamo=True, optimize=False,
                      external_data=False, verbose=False,
                      input_names=["images", "labels"], output_names=["loss"])
