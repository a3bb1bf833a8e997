#!/usr/bin/env python3
"""Pipelines of scikit-learn as skl2onnx writes them: on one rank and on two, equal to ONNX
Runtime by equality.py. Forests that are asked for one row must be split by trees.

usage: run_sklearn.py PARTITA [NAME…]
"""
import json
import pathlib
import sys
import tempfile
import warnings

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from skl2onnx import to_onnx
from sklearn import (compose, decomposition, ensemble, impute, linear_model, multiclass,
                     naive_bayes, neighbors, neural_network, preprocessing, svm, tree)
from sklearn.pipeline import make_pipeline

import equality
import tier
from run_contrib import call

warnings.filterwarnings("ignore")
RANDOM = np.random.default_rng(7)
ROWS, LEARNED = 50, 300
#: Names of forests that are asked for one row begin so.
ONE_ROW = "one_row_"
X = RANDOM.standard_normal((LEARNED, 6)).astype(np.float32)
PAIR = (X[:, 0] + X[:, 1] * X[:, 2] > 0).astype(int)
#: Labels that are no places.
CLASSES = np.array([3, 5, 9])[PAIR + (X[:, 3] > 0.5)]
REAL = 2 * X[:, 0] - X[:, 1] ** 2
HOLES = np.where(RANDOM.random(X.shape) < 0.1, np.float32(np.nan), X)
WHOLE = RANDOM.integers(0, 5, (LEARNED, 3))


def cases():
    """name: (estimator, features, targets)"""
    scaler, logistic = preprocessing.StandardScaler(), linear_model.LogisticRegression()
    yield "logistic_pair", make_pipeline(scaler, logistic), X, PAIR
    yield "logistic", make_pipeline(preprocessing.RobustScaler(), logistic), X, CLASSES
    yield "ridge", make_pipeline(preprocessing.MinMaxScaler(), linear_model.Ridge()), X, REAL
    yield "lasso", make_pipeline(preprocessing.MaxAbsScaler(),
                                 preprocessing.Normalizer("l1"),
                                 linear_model.Lasso(0.01)), X, REAL
    yield "polynomial", make_pipeline(preprocessing.PolynomialFeatures(2),
                                      linear_model.LinearRegression()), X, REAL
    yield "imputed", make_pipeline(impute.SimpleImputer(), logistic), HOLES, CLASSES
    yield "normalized", make_pipeline(preprocessing.Normalizer("l2"),
                                      linear_model.RidgeClassifier()), X, PAIR
    yield "largest", make_pipeline(preprocessing.Normalizer("max"), logistic), X, CLASSES
    yield "binarized", make_pipeline(preprocessing.Binarizer(threshold=0.2),
                                     naive_bayes.BernoulliNB()), X, CLASSES
    yield "columns", make_pipeline(compose.ColumnTransformer(
        [("scaled", scaler, [0, 1]), ("range", preprocessing.MinMaxScaler(), [2, 3])],
        remainder="passthrough"), logistic), X, CLASSES
    yield "one_hot", make_pipeline(preprocessing.OneHotEncoder(handle_unknown="ignore"),
                                   logistic), WHOLE, CLASSES
    yield "ordinal", make_pipeline(
        preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
        linear_model.LinearRegression()), WHOLE, REAL[:LEARNED]
    yield "bins", make_pipeline(preprocessing.KBinsDiscretizer(4, encode="ordinal"),
                                linear_model.LinearRegression()), X, REAL
    for kernel in ("linear", "poly", "rbf", "sigmoid"):
        yield f"svr_{kernel}", make_pipeline(scaler, svm.SVR(kernel=kernel)), X, REAL
    for chances in (False, True):
        name = "_chances" if chances else ""
        yield f"svc_pair{name}", svm.SVC(probability=chances), X, PAIR
        yield f"svc{name}", make_pipeline(scaler, svm.SVC(probability=chances)), X, CLASSES
    yield "outliers", svm.OneClassSVM(), X, None
    yield "linear_svc", svm.LinearSVC(), X, CLASSES
    yield "one_vs_rest", multiclass.OneVsRestClassifier(logistic), X, CLASSES
    yield "components", make_pipeline(decomposition.PCA(3), logistic), X, CLASSES
    yield "layers", make_pipeline(scaler, neural_network.MLPClassifier(
        (16,), max_iter=50)), X, CLASSES
    yield "neighbors", neighbors.KNeighborsClassifier(), X, CLASSES
    few, boosted = {"n_estimators": 10}, {"n_estimators": 12, "max_depth": 3}
    yield "tree", tree.DecisionTreeClassifier(max_depth=5), X, CLASSES
    yield "tree_pair", make_pipeline(scaler, tree.DecisionTreeClassifier()), X, PAIR
    yield "tree_real", tree.DecisionTreeRegressor(), X, REAL
    yield "forest", ensemble.RandomForestClassifier(**few), X, CLASSES
    yield "forest_pair", ensemble.RandomForestClassifier(**few), X, PAIR
    yield "forest_real", make_pipeline(scaler, ensemble.RandomForestRegressor(**few)), X, REAL
    yield "boosted", ensemble.GradientBoostingClassifier(**boosted), X, CLASSES
    yield "boosted_pair", ensemble.GradientBoostingClassifier(**boosted), X, PAIR
    yield "boosted_real", ensemble.GradientBoostingRegressor(**boosted), X, REAL
    yield "adaptive", ensemble.AdaBoostClassifier(n_estimators=5), X, CLASSES
    many = {"n_estimators": 200, "max_depth": 6}
    yield f"{ONE_ROW}forest", ensemble.RandomForestClassifier(**many), X, CLASSES
    yield f"{ONE_ROW}real", ensemble.RandomForestRegressor(**many), X, REAL


def tensors(values):
    """Dictionaries of a ZipMap as the matrix of their values."""
    return [np.array([list(row.values()) for row in value], np.float32)
            if isinstance(value, list) else value for value in values]


def check_split_by_trees(bundle):
    stage, = json.loads((bundle / "plan.json").read_text())["entries"][0]["stages"]
    strategy, = [node["strategy"] for node in stage["nodes"] if node["op"] == "graph.trees"]
    # Loop a is the features, b the trees.
    if strategy != "{b: d}":
        raise equality.Unequal(f"trees are split as {strategy}, not {{b: d}}")


def attempt(partita, work, name, estimator, x, y):
    estimator.fit(x, y)
    path, folder = work / "model.onnx", work / "inputs"
    onnx.save(to_onnx(estimator, x[:1]), path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    # Rows that the model has not learned, but the values of categories.
    x = x[:ROWS] if x is WHOLE else x[RANDOM.permutation(LEARNED)[:ROWS]] + x[:ROWS] / 2
    if name.startswith(ONE_ROW):
        x = x[:1]
    expected = tensors(session.run(None, {"X": x}))
    folder.mkdir()
    (folder / "input_0.pb").write_bytes(
        numpy_helper.from_array(x, "X").SerializeToString())
    for mesh in ([], ["--mesh", "d=2"]):
        where = mesh[1] if mesh else "one rank"
        bundle, out = work / f"bundle {where}", work / f"out {where}"
        call(partita, "compile", path, "-o", bundle, "--shape",
             "X=" + ",".join(map(str, x.shape)), *mesh)
        if mesh and name.startswith(ONE_ROW):
            check_split_by_trees(bundle)
        call(partita, "run", bundle, "--inputs-dir", folder, "--outputs-dir", out)
        wide = equality.WideResults(partita, [str(bundle)], folder)
        for k, want in enumerate(expected):
            equality.check(equality.load(out / f"output_{k}.pb"), want, wide, k,
                           f"on {where}: output {k}")


def main():
    partita, wanted = sys.argv[1], sys.argv[2:]
    failed = 0
    taken = tier.sample("sklearn", [case for case in cases()
                                    if not wanted or case[0] in wanted])
    for case in taken:
        with tempfile.TemporaryDirectory(prefix="partita-sklearn-") as work:
            try:
                attempt(partita, pathlib.Path(work), *case)
            except equality.Unequal as error:
                failed += 1
                print(f"{case[0]}: {error}", flush=True)
    print(f"{'FAILED' if failed else 'ok'}: {len(taken) - failed} of {len(taken)} equal")
    return 1 if failed or not taken else 0


if __name__ == "__main__":
    sys.exit(main())
