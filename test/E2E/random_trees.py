"""Random trees, as attributes of the operators of ai.onnx.ml that compute them."""
import numpy as np
from onnx import numpy_helper


class Forest:
    """`count` trees of at most 2**depth leaves, which compare with integers, in `modes` by
    their numbers. A leaf adds numbers from `low` to 0.3 to one target, or to up to `each`.
    """

    def __init__(self, random, count, targets, modes, features=4, depth=3, each=1,
                 low=-1.0):
        self.nodes, self.leaves, self.roots = [], [], []
        self.random, self.modes, self.features = random, list(modes), features
        self.targets, self.each, self.low = targets, each, low
        for tree in range(count):
            self.roots.append(len(self.nodes))
            self.grow(tree, depth)

    def grow(self, tree, depth):
        """(whether it is a leaf, its number)"""
        random = self.random
        if depth == 0 or (depth < 3 and random.random() < 0.3):
            count = 1 if self.each == 1 else random.integers(self.each + 1)
            targets = random.choice(self.targets, count, False)
            weights = [random.uniform(self.low, 0.3) for _ in targets]
            self.leaves.append((tree, targets, weights))
            return 1, len(self.leaves) - 1
        number = len(self.nodes)
        # Numbers that features have as well.
        split, members = random.integers(-1, 5), np.unique(random.integers(1, 5, 3))
        node = {"tree": tree, "mode": int(random.choice(self.modes)), "split": split,
                "members": members, "feature": int(random.integers(self.features)),
                "missing": int(random.random() < 0.5)}
        self.nodes.append(node)
        node["true"], node["false"] = self.grow(tree, depth - 1), self.grow(tree, depth - 1)
        return 0, number

    def column(self, name):
        return [node[name] for node in self.nodes]

    def ensemble(self, dtype=np.float32, missing=False):
        """The attributes of a TreeEnsemble."""
        def tensor(values, kind=dtype):
            return numpy_helper.from_array(np.array(values, kind))

        more = {"nodes_missing_value_tracks_true": self.column("missing")} if missing else {}
        sets = [[*node["members"], np.nan] for node in self.nodes if node["mode"] == 6]
        if sets:
            more["membership_values"] = tensor(sum(sets, []))
        for side in ("true", "false"):
            more[f"nodes_{side}nodeids"] = [at for _, at in self.column(side)]
            more[f"nodes_{side}leafs"] = [leaf for leaf, _ in self.column(side)]
        return dict(more, n_targets=self.targets, tree_roots=self.roots,
                    nodes_featureids=self.column("feature"),
                    nodes_splits=tensor(self.column("split")),
                    nodes_modes=tensor(self.column("mode"), np.uint8),
                    leaf_weights=tensor([weights[0] for _, _, weights in self.leaves]),
                    leaf_targetids=[int(targets[0]) for _, targets, _ in self.leaves])

    def regressor(self, missing=False):
        """The attributes of a TreeEnsembleRegressor."""
        modes = ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"]
        inner, leaves, count = self.nodes, self.leaves, len(self.nodes)
        rest = [0] * len(leaves)
        more = {"nodes_missing_value_tracks_true": self.column("missing") + rest} \
            if missing else {}
        for side in ("true", "false"):
            more[f"nodes_{side}nodeids"] = \
                [at + leaf * count for leaf, at in self.column(side)] + rest
        entries = [(tree, count + i, target, weight)
                   for i, (tree, targets, weights) in enumerate(leaves)
                   for target, weight in zip(targets, weights)]
        names = ("treeids", "nodeids", "ids", "weights")
        more.update({f"target_{name}": [kind(entry[k]) for entry in entries]
                     for k, (name, kind) in enumerate(zip(names, (int, int, int, float)))})
        # The nodes of a tree stand together, its root first.
        order = sorted(range(count + len(leaves)), key=lambda i: (
            inner[i]["tree"] if i < count else leaves[i - count][0], i))
        lists = dict(nodes_treeids=self.column("tree") + [leaf[0] for leaf in leaves],
                     nodes_nodeids=list(range(count + len(leaves))),
                     nodes_featureids=self.column("feature") + rest,
                     nodes_values=[float(x) for x in self.column("split")] + rest,
                     nodes_modes=[f"BRANCH_{modes[m]}" for m in self.column("mode")] +
                     ["LEAF"] * len(leaves),
                     **{name: more.pop(name) for name in list(more) if name[:5] == "nodes"})
        lists = {name: [values[i] for i in order] for name, values in lists.items()}
        lists["nodes_values"] = [float(x) for x in lists["nodes_values"]]
        return dict(more, **lists, n_targets=self.targets)
