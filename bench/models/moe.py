"""A language model in which every other layer has experts, as in GShard: two of them for
each token, as many places in each as there are tokens for it when they spread evenly.

Dispatch and combination are products with one-hot masks, as GShard writes them: with the
groups split over ranks and then the experts, the reshape between is the all-to-all.
"""
import numpy as np

import layers  # noqa: F401  (the path of build_gpt2)
import build_gpt2


class Moe(build_gpt2.Gpt2):
    TINY = dict(hidden=64, heads=4, layers=2, vocabulary=503, experts=4, group=16,
                batch=4, length=16)
    SMALL = dict(hidden=256, heads=8, layers=4, vocabulary=2003, experts=8, group=64,
                 batch=8, length=64)

    def __init__(self, hidden, heads, layers, experts, group=2048, vocabulary=32000,
                 batch=16, length=1024, seed=24):
        super().__init__(True, batch, length, hidden=hidden, heads=heads, layers=layers,
                         vocabulary=vocabulary, seed=seed, tied=True, widening=8)
        self.experts, self.group = experts, group
        self.groups = batch * length // group
        if self.groups * group != batch * length:
            raise ValueError(f"groups of {group} tokens do not divide batch times "
                             f"sequence, {batch * length}")
        # Two experts for each token.
        self.capacity = max(1, 2 * group // experts)

    def feed_forward(self, x, layer):
        if layer % 2 == 0:
            return super().feed_forward(x, layer)
        return self.experts_of(x, f"h.{layer}.moe")

    def reshape(self, x, shape, name):
        return self.node("Reshape", [x, self.ints(f"{name}.shape", shape)], name)

    def unsqueeze(self, x, axis, name):
        return self.node("Unsqueeze", [x, self.ints(f"{name}.axis", [axis])], name)

    def largest(self, gates, name):
        """One-hot: which expert has the largest gate. [groups, group, experts]"""
        best = self.node("ReduceMax", [gates], f"{name}/max", axes=[-1], keepdims=1)
        return self.node("Cast", [self.node("Equal", [gates, best], f"{name}/equal")],
                         f"{name}", to=1)

    def place(self, choice, before, name):
        """The place of each token in its expert, those that fit, as one-hot over the
        places: [groups, group, experts] → [groups, group, experts, capacity]."""
        order = self.node("CumSum", [choice, self.weight(f"{name}.tokens", np.array(1))],
                          f"{name}/order", exclusive=1)
        if before is not None:
            order = self.node("Add", [order, before], f"{name}/behind")
        room = self.scalar(f"{name}.room", self.capacity)
        fits = self.node("Cast", [self.node("Less", [order, room], f"{name}/less")],
                         f"{name}/fits", to=1)
        kept = self.node("Mul", [choice, fits], f"{name}/kept")
        at = self.node("Mul", [order, kept], f"{name}/at")
        axes = self.ints(f"{name}.experts", [-1])
        at = self.node("ReduceSum", [at, axes], f"{name}/place", keepdims=1)
        places = self.weight(f"{name}.places", np.arange(self.capacity, dtype=np.float32))
        chosen = self.node("Cast", [self.node("Equal", [at, places], f"{name}/is")],
                           f"{name}/one_hot", to=1)
        return self.node("Mul", [self.unsqueeze(kept, 3, f"{name}/kept_at"),
                                 self.unsqueeze(chosen, 2, f"{name}/chosen_at")], name)

    def route(self, x, name):
        """x [groups, group, hidden]; how much of each token each place of each expert
        contributes: [groups, group, experts, capacity]."""
        router = self.weight(f"{name}.router.weight",
                             self.draw(self.hidden, self.experts,
                                       gain=2 * self.hidden**-0.5))
        gates = self.node("Softmax", [self.node("MatMul", [x, router], f"{name}.router")],
                          f"{name}.gates", axis=-1)
        first = self.largest(gates, f"{name}.first")
        one = self.scalar(f"{name}.one", 1)
        others = self.node("Mul", [gates, self.node("Sub", [one, first], f"{name}.not")],
                           f"{name}.others")
        second = self.largest(others, f"{name}.second")
        tokens = self.ints(f"{name}.tokens", [1])
        before = self.node("ReduceSum", [first, tokens], f"{name}.before", keepdims=1)
        experts = self.ints(f"{name}.experts", [-1])
        shares = [self.node("ReduceSum", [
            self.node("Mul", [gates, choice], f"{name}.share_{i}/mul"), experts],
            f"{name}.share_{i}", keepdims=1) for i, choice in enumerate((first, second))]
        both = self.node("Add", shares, f"{name}.shares")
        parts = []
        for i, (choice, ahead) in enumerate(((first, None), (second, before))):
            place = self.place(choice, ahead, f"{name}.place_{i}")
            share = self.node("Div", [shares[i], both], f"{name}.weight_{i}")
            share = self.unsqueeze(share, 3, f"{name}.weight_{i}/wide")
            parts.append(self.node("Mul", [place, share], f"{name}.part_{i}"))
        return self.node("Add", parts, f"{name}.combine")

    def expert_layers(self, x, name):
        """x [experts, tokens, hidden], each expert its own two layers."""
        inner = self.widening * self.hidden
        for label, inputs, outputs in (("wi", self.hidden, inner),
                                       ("wo", inner, self.hidden)):
            weight = self.weight(f"{name}.{label}.weight", self.draw(
                self.experts, inputs, outputs, gain=inputs**-0.5))
            bias = self.weight(f"{name}.{label}.bias", self.draw(
                self.experts, 1, outputs, gain=0.1))
            x = self.node("MatMul", [x, weight], f"{name}.{label}/matmul")
            x = self.node("Add", [x, bias], f"{name}.{label}")
            if label == "wi":
                x = self.gelu(x, f"{name}.act")
        return x

    def experts_of(self, x, name):
        slots = self.experts * self.capacity
        tokens = self.reshape(x, [self.groups, self.group, self.hidden], f"{name}/groups")
        combine = self.route(tokens, name)
        used = self.node("Cast", [self.node(
            "Greater", [combine, self.scalar(f"{name}.zero", 0)], f"{name}.used")],
            f"{name}.dispatch", to=1)
        flat = [self.groups, self.group, slots]
        sent = self.node("Transpose", [self.reshape(used, flat, f"{name}.dispatch/flat")],
                         f"{name}.dispatch/transpose", perm=[0, 2, 1])
        sent = self.node("MatMul", [sent, tokens], f"{name}.sent")
        apart = [self.groups, self.experts, self.capacity, self.hidden]
        sent = self.node("Transpose", [self.reshape(sent, apart, f"{name}.sent/apart")],
                         f"{name}.sent/transpose", perm=[1, 0, 2, 3])
        merged = [self.experts, self.groups * self.capacity, self.hidden]
        done = self.expert_layers(self.reshape(sent, merged, f"{name}.sent/merge"), name)
        done = self.reshape(done, [self.experts, self.groups, self.capacity, self.hidden],
                            f"{name}.done/apart")
        done = self.node("Transpose", [done], f"{name}.done/transpose", perm=[1, 0, 2, 3])
        done = self.reshape(done, [self.groups, slots, self.hidden], f"{name}.done/merge")
        back = self.node("MatMul", [self.reshape(combine, flat, f"{name}.combine/flat"),
                                    done], f"{name}.back")
        return self.reshape(back, [self.batch, self.length, self.hidden], f"{name}/rows")
