# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pipelines of scikit-learn, xgboost and lightgbm for real.py, as their converters write them: each trained on seeded data when
it is asked for, with sizes of the run. Packages: test/zoo/requirements.txt."""
import numpy as np

FEATURES = 12
ROWS = (1, 7, 64)


def examples(rows=600):
    """Rows, a class of three for each, and a number for each; some values are lost."""
    r = np.random.default_rng(0)
    x = r.standard_normal((rows, FEATURES), dtype=np.float32)
    number = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * r.standard_normal(rows)
    return x, np.digitize(number, [-0.7, 0.7]), number


def with_gaps(x):
    return np.where(np.random.default_rng(1).random(x.shape) < 0.1, np.float32(np.nan), x)


def of_sklearn(steps, classifies=True, gaps=False):
    """What writes the file of a pipeline; `steps` makes its parts, the last of which learns."""
    def write(path):
        import skl2onnx
        from skl2onnx.common.data_types import FloatTensorType
        from sklearn.pipeline import make_pipeline
        x, classes, numbers = examples()
        model = make_pipeline(*steps()).fit(with_gaps(x) if gaps else x,
                                            classes if classifies else numbers)
        made = skl2onnx.convert_sklearn(model, initial_types=[("x", FloatTensorType([None, FEATURES]))], target_opset={"": 18, "ai.onnx.ml": 3},
                                        options={"zipmap": False} if classifies else None)
        save(made, path)
    return write


def save(model, path):
    """The rows are counted by a symbol of this name."""
    import onnx
    for port in model.graph.input:
        port.type.tensor_type.shape.dim[0].dim_param = "rows"
    onnx.save(model, path)


def sk(module, name, **arguments):
    """A part of scikit-learn, made when it is needed."""
    import importlib
    return getattr(importlib.import_module("sklearn." + module), name)(**arguments)


def by_kind():
    """Columns by themselves: numbers scaled, whole numbers as one of several."""
    rounds = sk("preprocessing", "KBinsDiscretizer", n_bins=5, encode="onehot-dense", quantile_method="linear")
    return sk("compose", "ColumnTransformer", transformers=[
        ("scaled", sk("preprocessing", "StandardScaler"), list(range(6))),
        ("bins", rounds, list(range(6, FEATURES)))])


def of_xgboost(classifies):
    def write(path):
        import onnxmltools
        import xgboost
        from onnxmltools.convert.common.data_types import FloatTensorType
        x, classes, numbers = examples()
        make = xgboost.XGBClassifier if classifies else xgboost.XGBRegressor
        model = make(n_estimators=40, max_depth=5, tree_method="hist").fit(with_gaps(x), classes if classifies else numbers)
        save(onnxmltools.convert_xgboost(model, initial_types=[("x", FloatTensorType([None, FEATURES]))], target_opset=15), path)
    return write


def of_lightgbm(classifies):
    def write(path):
        import lightgbm
        import onnxmltools
        from onnxmltools.convert.common.data_types import FloatTensorType
        x, classes, numbers = examples()
        make = lightgbm.LGBMClassifier if classifies else lightgbm.LGBMRegressor
        model = make(n_estimators=40, verbose=-1, deterministic=True, num_threads=1).fit(x, classes if classifies else numbers)
        save(onnxmltools.convert_lightgbm(model, initial_types=[("x", FloatTensorType([None, FEATURES]))], target_opset=15,
                                          zipmap=False), path)
    return write


def text_counts(path):
    """Words to numbers by their frequency, then a line between two classes."""
    import onnx
    import skl2onnx
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.pipeline import make_pipeline
    r = np.random.default_rng(0)
    texts = [" ".join(r.choice(WORDS, r.integers(2, 9))) for _ in range(300)]
    model = make_pipeline(sk("feature_extraction.text", "TfidfVectorizer", lowercase=False), sk("linear_model", "LogisticRegression"))
    model.fit(texts, [("good" in t) ^ ("rain" in t) for t in texts])
    made = skl2onnx.convert_sklearn(model, initial_types=[("x", StringTensorType([None]))], target_opset=18, options={"zipmap": False})
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    onnx.save(made, path)


WORDS = np.array("a good day with rain and sun over hills of green".split())


def sentences(rng, shape, sizes):
    return np.array([" ".join(rng.choice(WORDS, rng.integers(1, 9))) for _ in range(shape[0])], object)


# name: what writes its file
PIPELINES = {
    "scaled-logistic": of_sklearn(lambda: [sk("preprocessing", "StandardScaler"), sk("linear_model", "LogisticRegression")]),
    "imputed-forest": of_sklearn(lambda: [sk("impute", "SimpleImputer"), sk("ensemble", "RandomForestClassifier", n_estimators=30, max_depth=8, random_state=0)], gaps=True),
    "extra-trees": of_sklearn(lambda: [sk("ensemble", "ExtraTreesRegressor", n_estimators=30, max_depth=8, random_state=0)], classifies=False),
    "gradient-boosting": of_sklearn(lambda: [sk("preprocessing", "RobustScaler"), sk("ensemble", "GradientBoostingClassifier", n_estimators=30, random_state=0)]),
    "components-vectors": of_sklearn(lambda: [sk("decomposition", "PCA", n_components=6, random_state=0), sk("svm", "SVC", probability=True, random_state=0)]),
    "vectors-regression": of_sklearn(lambda: [sk("preprocessing", "MinMaxScaler"), sk("svm", "SVR")], classifies=False),
    "polynomial-ridge": of_sklearn(lambda: [sk("preprocessing", "PolynomialFeatures", degree=2), sk("linear_model", "Ridge")], classifies=False),
    "neighbours": of_sklearn(lambda: [sk("preprocessing", "StandardScaler"), sk("neighbors", "KNeighborsClassifier", n_neighbors=5)]),
    "network": of_sklearn(lambda: [sk("preprocessing", "StandardScaler"), sk("neural_network", "MLPClassifier", hidden_layer_sizes=(32, 16), max_iter=50, random_state=0)]),
    "bayes": of_sklearn(lambda: [sk("naive_bayes", "GaussianNB")]),
    "columns": of_sklearn(lambda: [by_kind(), sk("linear_model", "LogisticRegression")]),
    "voting": of_sklearn(lambda: [sk("ensemble", "VotingClassifier", voting="soft", flatten_transform=False, estimators=[
        ("line", sk("linear_model", "LogisticRegression")), ("tree", sk("tree", "DecisionTreeClassifier", max_depth=6, random_state=0))])]),
    "clusters": of_sklearn(lambda: [sk("preprocessing", "Normalizer"), sk("cluster", "KMeans", n_clusters=5, n_init=2, random_state=0)], classifies=False),
    "gaussian-process": of_sklearn(lambda: [sk("gaussian_process", "GaussianProcessRegressor", random_state=0)], classifies=False),
    "bagging": of_sklearn(lambda: [sk("ensemble", "BaggingClassifier", n_estimators=8, random_state=0)]),
    "ada-boosting": of_sklearn(lambda: [sk("ensemble", "AdaBoostClassifier", n_estimators=10, random_state=0)]),
    "outliers": of_sklearn(lambda: [sk("ensemble", "IsolationForest", n_estimators=20, random_state=0)], classifies=False),
    "text": text_counts,
    "xgboost-classes": of_xgboost(True),
    "xgboost-numbers": of_xgboost(False),
    "lightgbm-classes": of_lightgbm(True),
    "lightgbm-numbers": of_lightgbm(False),
}
GAPS = {"imputed-forest", "xgboost-classes", "xgboost-numbers"}
