#!/usr/bin/env python3
"""Writes forests of 500 trees of scikit-learn, as skl2onnx writes them, and 100,000 rows of 20
features by a seed: folders for compare.py.

usage: forests.py OUT_DIR [NAME…]
       forests.py --list
"""
import numpy as np
from skl2onnx import to_onnx
from sklearn import ensemble

import cases

TREES, ROWS, FEATURES, LEARNED = 500, 100_000, 20, 5000
MODELS = {
    "forest": lambda: ensemble.RandomForestRegressor(TREES, max_depth=10, n_jobs=-1),
    "classes": lambda: ensemble.RandomForestClassifier(TREES, max_depth=10, n_jobs=-1),
    "boosted": lambda: ensemble.GradientBoostingRegressor(n_estimators=TREES, max_depth=4),
    # Leaves of one row: 3 million nodes, the lowest of them 30 steps away.
    "deep": lambda: ensemble.RandomForestRegressor(TREES, n_jobs=-1),
}


def write(name, folder):
    random = np.random.default_rng(5)
    x = random.standard_normal((LEARNED + ROWS, FEATURES)).astype(np.float32)
    known, asked = x[:LEARNED], x[LEARNED:]
    y = 2 * known[:, 0] - known[:, 1] ** 2 + np.sin(3 * known[:, 2]) + \
        0.3 * random.standard_normal(LEARNED)
    estimator = MODELS[name]()
    if name == "classes":
        y = (y > 0).astype(int) + (y > 2)
    estimator.fit(known, y)
    options = {id(estimator): {"zipmap": False}} if name == "classes" else None
    cases.save(folder, to_onnx(estimator, known[:1], options=options), {"X": asked},
               {"X": [ROWS, FEATURES]})


if __name__ == "__main__":
    cases.main(MODELS, write)
