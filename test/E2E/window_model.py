"""The model of examples/chat with caches that are windows: what a request leaves are the
last rows of the old ones and the new ones together, as exporters write with Concat. Until
the window is full, a mask hides its first rows."""
import numpy as np
from onnx import TensorProto, helper

import build_model


class WindowModel(build_model.Model):
    """`form` says how a window of W rows moves on by the S rows of a request:

        shift    present = Concat(past[S:], new), which attention reads
        slice    present = Concat(past, new)[S:], which attention reads
        both     the same, and attention reads all W + S rows
        grow     present = Concat(past, new), which attention reads: of it the state keeps
                 the last W rows, and so must who feeds it back
    """

    def __init__(self, form, window, **sizes):
        super().__init__(**sizes)
        self.form, self.window = form, window

    def cache(self, x, kind, layer):
        past, present = f"past.{layer}.{kind}", f"present.{layer}.{kind}"
        shape = ["batch", self.kv_heads, self.window, self.head]
        grown = [*shape[:2], "rows", self.head] if self.form == "grow" else shape
        for ends, name, dims in ((self.inputs, past, shape), (self.outputs, present, grown)):
            ends.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims))
        name = f"layers.{layer}.{kind}"
        if self.form == "shift":
            kept = self.node("Slice", [past, "length", "endless", "rows_axis"],
                             f"{name}_kept")
            self.nodes.append(helper.make_node("Concat", [kept, x], [present],
                                               name=f"{name}_cache", axis=2))
            return present
        if self.form == "grow":
            self.nodes.append(helper.make_node("Concat", [past, x], [present],
                                               name=f"{name}_cache", axis=-2))
            return present
        both = self.node("Concat", [past, x], f"{name}_both", axis=2)
        self.nodes.append(helper.make_node("Slice", [both, "length", "endless", "rows_axis"],
                                           [present], name=f"{name}_cache"))
        return present if self.form == "slice" else both

    def places(self):
        super().places()
        self.nodes = [node for node in self.nodes if node.output[0] != "mask"]
        self.constant("endless", np.array([1 << 40], np.int64))
        self.constant("rows_axis", np.array([2], np.int64))
        self.constant("rows_dims", np.array([1, 2], np.int64))
        # The token of each row that is read, counted from the first new one.
        if self.form in ("both", "grow"):
            self.constant("old_rows", np.arange(-self.window, 0))
            self.node("Concat", ["old_rows", "steps"], "row_steps", axis=0)
        else:
            self.constant("old_rows", np.arange(-self.window, 0))
            self.node("Add", ["old_rows", "length"], "row_steps")
        self.node("Add", ["begin", "row_steps"], "row_tokens")
        self.node("Unsqueeze", ["row_tokens", "rows_dims"], "row_places")
        self.node("LessOrEqual", ["row_places", "rows"], "is_before")
        self.node("GreaterOrEqual", ["row_places", "zero"], "is_filled")
        self.node("And", ["is_before", "is_filled"], "mask")
