"""Models as JSON, as ONNX graphs and explained by SHAP, against the models themselves."""

import io
import json
import pickle
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from lumberjack import (
    Domain,
    HierarchicalHeavyHitters,
    LumberjackClassifier,
    LumberjackRegressor,
    PrivacyLeakWarning,
    PrivacyLedger,
    cli,
    export,
    inspection,
)

FIXTURES = Path(__file__).parent / "fixtures"
SECRET_SEED = 918273645
N_RECORDS = 6000


# Models -------------------------------------------------------------------------------------------


def make_people(n_records, seed=0):
    """A frame with all kinds of columns, some values missing, unknown or outside the bounds."""
    rng = np.random.default_rng(seed)
    people = pd.DataFrame(
        {
            "age": rng.integers(10, 100, n_records).astype(float),
            "hours per week": rng.normal(40, 15, n_records),
            "sector": rng.choice(["private", "public", "ünïcode", "unheard of"], n_records),
            "rank": rng.choice([-1, 0, 1, 2**40], n_records).astype(float),
            "rate": rng.choice([0.5, 1.5, 2.0, 9.9], n_records),
            "owner": rng.choice([False, True], n_records).astype(object),
        }
    )
    return people.mask(rng.random(people.shape) < 0.05)


PEOPLE_DOMAIN = {
    "bounds": {"age": (17, 90), "hours per week": (0, 80)},
    "categories": {
        "sector": ["private", "public", "ünïcode"],
        "rank": [-1, 0, 2**40],
        "rate": [0.5, 1.5, 2.0],
        "owner": [False, True],
    },
}


def people_target(people):
    age, hours = people["age"].fillna(50), people["hours per week"].fillna(40)
    return age + hours * (people["sector"] == "private") - 20 * (people["rank"] == 0)


def fit_people(kind, classes=None, **parameters):
    people = make_people(N_RECORDS)
    target = people_target(people)
    if kind is LumberjackRegressor:
        model = kind(**PEOPLE_DOMAIN, target_bounds=(0, 150), **parameters)
        return model.fit(people, target)
    edges = np.quantile(target, np.linspace(0, 1, len(classes) + 1)[1:-1])
    labels = np.array(classes)[np.searchsorted(edges, target)]
    return kind(**PEOPLE_DOMAIN, classes=classes, **parameters).fit(people, labels)


def make_array(n_rows, seed=0):
    """Three numbers, some missing, of which the last could be a category."""
    X = np.random.default_rng(seed).normal(0, 0.7, (n_rows, 3))
    X[:, 2] = np.round(X[:, 2])
    X[::20, 1:] = np.nan
    return X


def fit_array(bounds=(-1, 1), **parameters):
    X = make_array(N_RECORDS)
    y = (X[:, 0] > 0).astype(int) + (np.nan_to_num(X[:, 2]) > 0)
    return LumberjackClassifier(bounds=bounds, classes=[0, 1, 2], **parameters).fit(X, y)


MODELS = {
    "two classes": lambda: fit_people(LumberjackClassifier, ["no", "yes"], epsilon=8, delta=1e-3),
    "four classes": lambda: fit_people(LumberjackClassifier, [1, 2, 3, 4], epsilon=8, delta=1e-3),
    "booleans": lambda: fit_people(LumberjackClassifier, [False, True], n_estimators=1),
    "weighted": lambda: fit_people(
        LumberjackClassifier, [1, 2, 3], class_weight={1: 5.0, 3: np.float64(0.5)}, epsilon=4
    ),
    "random splits": lambda: fit_people(
        LumberjackClassifier, ["a", "b", "c"], splitter="random", epsilon=np.float32(4)
    ),
    "majority": lambda: fit_people(
        LumberjackClassifier, ["a", "b", "c"], splitter="random", leaf="majority", epsilon=8,
        delta=1e-3, budget_shares={"structure": 0.5, "leaves": 0.5},
    ),
    "single leaves": lambda: fit_people(LumberjackClassifier, ["no", "yes"], epsilon=0.01),
    "without noise": lambda: fit_people(
        LumberjackClassifier, ["no", "yes"], epsilon=np.inf, threshold=20, max_depth=12
    ),
    "regressor": lambda: fit_people(LumberjackRegressor, epsilon=8, delta=1e-3),
    "random regressor": lambda: fit_people(LumberjackRegressor, splitter="random"),
    "array": lambda: fit_array(epsilon=8, delta=1e-3),
    "array with categories": lambda: fit_array(
        {0: (-1, 1), 1: (-1, 1)}, categories={2: [-1.0, 0.0, 1]}, epsilon=8, delta=1e-3
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def models():
    """Fitted models by name, each fitted when it is first asked for."""

    class Fitted(dict):
        def __missing__(self, name):
            self[name] = MODELS[name]()
            return self[name]

    return Fitted()


@pytest.fixture(params=MODELS)
def model(request, models):
    return models[request.param]


def make_rows(model, n_rows, seed=1):
    """Rows of the model's kind."""
    return make_people(n_rows, seed) if model.domain_.named else make_array(n_rows, seed)


def predict(model, X):
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


# JSON ---------------------------------------------------------------------------------------------


def assert_same(found, expected):
    """Equal to the last bit, types of arrays included."""
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for own, other in zip(found, expected, strict=True):
            assert_same(own, other)
    elif hasattr(expected, "__dict__") and not isinstance(expected, Domain):
        assert_same(vars(found), vars(expected))
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, other in expected.items():
            assert_same(found[key], other)
    else:
        assert found == expected


def fitted_attributes(model):
    return {name: value for name, value in vars(model).items() if name.endswith("_")}


def test_json_brings_everything_back(model):
    text = export.to_json(model)
    same = export.from_json(text)
    assert type(same) is type(model)
    assert_same(fitted_attributes(same), fitted_attributes(model))
    X = make_rows(model, 500)
    np.testing.assert_array_equal(predict(same, X), predict(model, X))
    np.testing.assert_array_equal(same.predict(X), model.predict(X))
    np.testing.assert_array_equal(same.apply(X), model.apply(X))
    assert export.to_json(same) == text
    assert export.from_json(text.encode()).privacy_ == model.privacy_


def test_parameters_come_back_as_values(models):
    told = export.from_json(export.to_json(models["weighted"])).get_params()
    assert told["class_weight"] == {1: 5.0, 3: 0.5}
    assert told["epsilon"] == 4
    assert export.from_json(export.to_json(models["without noise"])).epsilon == np.inf
    told = export.from_json(export.to_json(models["majority"])).get_params()
    assert told["budget_shares"] == {"structure": 0.5, "leaves": 0.5}


def test_parameter_that_json_cannot_tell(models):
    changed = clone(models["two classes"])
    changed.__dict__.update(fitted_attributes(models["two classes"]))
    changed.set_params(verbose=object())
    with pytest.raises(ValueError, match="parameter verbose cannot be told in JSON"):
        export.to_json(changed)


def test_fit_again_declares_the_same(models):
    model = models["two classes"]
    same = clone(export.from_json(export.to_json(model)))
    people = make_people(500)
    same.fit(people, np.where(people["age"] > 50, "yes", "no"))
    assert same.domain_ == model.domain_


def test_order_of_json_keys_does_not_matter(models):
    model = models["two classes"]
    text = json.dumps(json.loads(export.to_json(model)), sort_keys=True)
    same = export.from_json(text)
    assert same.domain_ == model.domain_
    X = make_rows(model, 100)
    np.testing.assert_array_equal(predict(same, X), predict(model, X))


def test_metadata(models):
    told = {"target": "income", "trained": [2026, None]}
    text = export.to_json(models["array"], metadata=told)
    assert export.from_json(text, return_metadata=True)[1] == told
    assert export.from_json(export.to_json(models["array"]), return_metadata=True)[1] == {}
    for wrong in ({"when": object()}, {"size": np.nan}, {1: "a", "1": "b"}, {(1, 2): "a"}):
        with pytest.raises(ValueError, match="metadata cannot be told in JSON"):
            export.to_json(models["array"], metadata=wrong)
    for wrong in ([1], "income", 7):
        with pytest.raises(TypeError, match="metadata must be a dict, got"):
            export.to_json(models["array"], metadata=wrong)


def test_no_seed_and_no_ledger_leave(tmp_path):
    ledger = PrivacyLedger(epsilon=2, delta=1e-5, path=tmp_path / "private-ledger.json")
    with pytest.warns(PrivacyLeakWarning):
        model = fit_array(random_state=SECRET_SEED, ledger=ledger, delta=1e-6)
    onnx = pytest.importorskip("onnx")
    graph = export.to_onnx(model)
    for text in (export.to_json(model), onnx.printer.to_text(graph), str(graph)):
        assert str(SECRET_SEED) not in text
        assert "private-ledger" not in text
        assert ledger.id not in text
    same = export.from_json(export.to_json(model))
    assert (same.random_state, same.ledger) == (None, None)
    assert same.privacy_.seeded


@pytest.mark.parametrize("function", [export.to_json, export.to_onnx])
def test_inferred_models_are_refused(function):
    if function is export.to_onnx:
        pytest.importorskip("onnx")
    people = make_people(500)[["age"]]
    with pytest.warns(PrivacyLeakWarning, match="bounds of age"):
        model = LumberjackClassifier(bounds="infer", classes=[False, True]).fit(
            people, people["age"] > 50
        )
    with pytest.raises(ValueError, match="read from the data: bounds of age.*allow_inferred=True"):
        function(model)
    function(model, allow_inferred=True)
    same = export.from_json(export.to_json(model, allow_inferred=True))
    # A second fit does not launder what the first read from the data.
    with pytest.warns(PrivacyLeakWarning, match="bounds of age"):
        again = clone(same).fit(people, people["age"] > 50)
    assert again.privacy_.inferred == ("bounds of age",)


@pytest.mark.parametrize("function", [export.to_json, export.to_onnx])
def test_only_fitted_forests(function):
    from sklearn.exceptions import NotFittedError
    from sklearn.tree import DecisionTreeClassifier

    with pytest.raises(NotFittedError):
        function(LumberjackClassifier())
    with pytest.raises(TypeError, match="only LumberjackClassifier and LumberjackRegressor"):
        function(DecisionTreeClassifier())


def test_only_forests_are_explained():
    search = HierarchicalHeavyHitters(1, 1e-6, bit_length=8).fit([1, 2, 3])
    with pytest.raises(TypeError, match="only LumberjackClassifier and LumberjackRegressor"):
        export.shap_explainer(search, [[0]])


# Forged files


@pytest.fixture(scope="module")
def small():
    """A small model with a guide and its file as a dict."""
    X = np.random.default_rng(0).integers(0, 3, (2000, 2)).astype(float)
    model = LumberjackClassifier(
        3, bounds={0: (0, 2)}, categories={1: [0, 1, 2]}, classes=[0, 1], epsilon=8, delta=1e-3,
        max_depth=3, random_state=0,
    )  # fmt: skip
    with pytest.warns(PrivacyLeakWarning):
        model.fit(X, X[:, 0] > X[:, 1])
    assert len(model.nodes_) > 10
    return model, json.loads(export.to_json(model))


def changed(data, path, value):
    """A copy of plain data with another value at a path of keys."""
    copy = json.loads(json.dumps(data))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return copy


def paths(data, path=()):
    """The paths of all values in plain data."""
    if isinstance(data, (dict, list)) and data:
        for key, own in data.items() if isinstance(data, dict) else enumerate(data):
            yield (*path, key)
            yield from paths(own, (*path, key))


def refused(data, match):
    with pytest.raises(ValueError, match=match):
        export.from_json(json.dumps(data))


JUNK = (None, True, -1, 7, 1e308, 2**70, "", "junk", [], [1, "a"], {}, {"a": 1})


def look_at(model):
    """Read all that a model tells, whatever its file claimed."""
    assert inspection.export_text(model) and str(model.privacy_) and repr(model)
    assert np.isfinite(model.feature_importances_).all()
    assert isinstance(inspection.advise(model), list)
    assert isinstance(cli.verify_model(model).holds, bool)
    export.to_json(model)


def test_junk_anywhere_is_refused_or_harmless(small):
    """A changed file gives a ValueError, or a model that still predicts."""
    model, data = small
    X = np.array([[0, 0], [2, 1], [np.nan, np.nan], [1e30, 5]])
    n_refused = n_read = 0
    for number, path in enumerate(paths(data)):
        if len(path) > 1 and isinstance(path[-1], int) and path[-1] > 2:
            continue  # as the first entries of a list
        for junk in JUNK[number % 3 :: 3]:
            try:
                found = export.from_json(json.dumps(changed(data, path, junk)))
            except ValueError:
                n_refused += 1
                continue
            n_read += 1
            probabilities = found.predict_proba(X)
            assert probabilities.shape == (4, 2)
            assert np.isfinite(probabilities).all()
            look_at(found)
    assert n_refused > n_read > 50  # other numbers and parameters do no harm


def test_truncated_or_foreign_texts(small):
    text = json.dumps(small[1])
    for wrong in (text[:-1], text[1:], "", "[]", "null", "[" * 100_000, '"text"', b"\xff\xfe\x00"):
        with pytest.raises(ValueError, match="not a model of lumberjack"):
            export.from_json(wrong)
    with pytest.raises(ValueError, match="not a model of lumberjack"):
        export.from_json(pickle.dumps(small[0]))
    with pytest.raises(ValueError, match="no number of JSON"):
        export.from_json(text.replace('"metadata": {}', '"metadata": {"a": NaN}'))
    with pytest.raises(ValueError, match="an entry twice"):
        export.from_json(text.replace('"metadata": {}', '"metadata": {"a": 1, "a": 2}'))


def test_every_entry_is_needed(small):
    _, data = small
    for path in paths(data):
        optional = path in (("domain", "target_bounds"), ("privacy", "unit"))
        optional |= path[0] == "parameters" and len(path) > 1
        optional |= path[:2] == ("privacy", "replacing_one_unit")  # follows from the rest
        if optional or isinstance(path[-1], int):
            continue
        copy = json.loads(json.dumps(data))
        inner = copy
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]
        refused(copy, "not a model of lumberjack")


def test_other_versions_are_told(small):
    for version in (0, 2, 99):
        match = rf"format version {version}, of lumberjack '0.1.0'.*reads version 1"
        refused(changed(small[1], ("format_version",), version), match)


def test_forged_nodes(small):
    """What the kernels rely on and do not check."""
    _, data = small
    arrays = {
        name: export.unpack(own, name, own["dtype"], (None,))
        for name, own in data["forest"].items()
    }
    is_category = arrays["feature"][arrays["feature"] >= 0] == 1
    assert is_category.any() and not is_category.all()
    feature_of = np.flatnonzero(arrays["feature"] >= 0)

    def forge(name, change, match):
        array = arrays[name].copy()
        array = change(array)
        packed = export.pack(array, data["forest"][name]["dtype"])
        refused(changed(data, ("forest", name), packed), match)

    def put(index, value):
        def change(array):
            array[index] = value
            return array

        return change

    forge("feature", put(0, 3), "feature has an entry outside its range")
    forge("feature", put(0, -2), "feature has an entry outside its range")
    forge("feature", put(0, 2**31 - 1), "feature has an entry outside its range")
    forge("feature", put(0, -1), "wrong type or shape")  # a split less than thresholds
    forge("feature", lambda array: array[:-1], "no whole trees")
    forge("feature", lambda array: np.append(array, 0), "wrong type or shape")
    forge("feature", lambda array: np.roll(array, 1), "no whole trees|wrong|category|range")
    forge("feature", lambda array: array[:0], "wrong type or shape|no whole trees")
    forge("threshold", put(np.flatnonzero(is_category)[0], 3), "a category that is not there")
    forge("threshold", put(np.flatnonzero(is_category)[0], -1), "a category that is not there")
    forge("threshold", put(np.flatnonzero(is_category)[0], 0.5), "no whole number")
    forge("threshold", put(0, np.nan), "threshold has an entry outside its range")
    forge("threshold", put(0, np.inf), "threshold has an entry outside its range")
    forge("threshold", lambda array: array[:-1], "threshold has the wrong type or shape")
    forge("missing_left", put(0, 2), "missing_left has an entry outside its range")
    # A leaf more: the leaves have no votes for it.
    feature = np.append(arrays["feature"], np.int32(-1))
    packed = export.pack(feature, "<i4")
    refused(changed(data, ("forest", "feature"), packed), "votes has the wrong type or shape")
    assert len(feature_of)


def test_forged_leaves_and_guide(small):
    model, data = small
    votes = model.leaf_votes_.copy()
    for wrong in (np.nan, np.inf, -0.5):
        votes[3, 1] = wrong
        refused(changed(data, ("leaves", "votes"), export.pack(votes, "<f8")), "leaf_votes_ has an")
    counts = model.leaf_counts_[:-1]
    refused(changed(data, ("leaves", "counts"), export.pack(counts, "<i8")), "counts has the wrong")
    refused(changed(data, ("leaves", "prior"), [1.0]), "prior has the wrong length")
    refused(changed(data, ("leaves", "prior"), [-1.0, 2.0]), "prior_ has an entry outside")
    refused(changed(data, ("leaves", "class_weight"), [1.0, -2.0]), "class_weight_ has an entry")
    tables = model.guide_.score.tables
    refused(changed(data, ("guide", "tables"), export.pack(tables[1:], "<f8")), "tables has the")
    refused(
        changed(data, ("guide", "tables"), export.pack(tables * np.nan, "<f8")), "tables has an"
    )
    edges = data["guide"]["inner_edges"][0]
    assert len(edges) > 2
    refused(changed(data, ("guide", "inner_edges", 0), edges[::-1]), "inner_edges decreases")
    refused(changed(data, ("guide", "inner_edges", 0), edges[1:]), "tables has the wrong")
    refused(changed(data, ("guide", "inner_edges", 0, 0), "a"), "other things than numbers")
    refused(changed(data, ("guide", "inner_edges", 1), edges), "inner_edges has the wrong length")
    refused(changed(data, ("guide",), None), "outside its range|wrong type or shape")


def test_forged_reports(small):
    """The report must be that of a forest, of these parameters, and its noise a number."""
    model, data = small

    def forge(path, value, match):
        refused(changed(data, path, value), match)

    search = HierarchicalHeavyHitters(1, 1e-6, bit_length=8).fit([1, 2, 3])
    forge(("privacy",), json.loads(search.privacy_.to_json()), "is not that of a forest")
    other = {
        "epsilon": 0.001, "delta": 1e-9, "n_estimators": 2, "max_depth": 7, "splitter": "random",
        "leaf": "majority", "records_per_unit": 2,
    }  # fmt: skip
    for name, value in other.items():
        forge(("parameters", name), value, f"parameters and privacy differ in {name}")
        if name in data["privacy"]:
            forge(("privacy", name), value, f"calibration differ in {name}")
    of_calibration = ("privacy", "calibration")
    for value in (None, -1.0, 1e300, "inf"):
        match = "noise of counts|sigma_leaves|not positive"
        forge((*of_calibration, "sigma_leaves"), value, match)
    forge((*of_calibration, "sigma_tests"), 0.0, "not positive")
    forge((*of_calibration, "mu_guide"), 0.0, "only guided splits")
    forge((*of_calibration, "budget_shares", 0, 0), "tree", "budget_shares")
    forge(("privacy", "mechanisms", 0, "queries_per_unit"), 10**400, "mechanisms are not")
    forge(("privacy", "mechanisms"), data["privacy"]["mechanisms"][1:], "mechanisms are not")
    without = json.loads(json.dumps(data))
    del without["leaves"]["counts"]
    refused(without, "noise of counts")


def test_parameters_that_were_changed_after_the_fit(small):
    """The file tells of the fit, not of the next one."""
    text = json.dumps(small[1]["parameters"])
    model = pickle.loads(pickle.dumps(small[0]))
    model.set_params(epsilon=0.1, n_estimators=20, splitter="random", leaf="majority", n_jobs=None)
    written = json.loads(export.to_json(model))
    assert json.dumps(written["parameters"]) == text.replace('"epsilon": 8,', '"epsilon": 8.0,')
    assert model.epsilon == 0.1
    model.set_params(budget_shares={"structure": 0.5, "leaves": 0.5})
    with pytest.raises(ValueError, match="budget_shares"):
        export.to_json(model)


@pytest.mark.parametrize("side", ["left", "right"])
def test_forged_depth_takes_no_memory(small, side):
    """A small file may hold a long chain of splits, which has many paths."""
    _, data = small

    def chain(n_splits):
        feature = [0] * n_splits + [-1] * (n_splits + 1) if side == "left" else [0, -1] * n_splits
        feature = np.array(feature if side == "left" else [*feature, -1])
        arrays = {
            "feature": export.pack(feature, "<i4"),
            "threshold": export.pack(np.full(n_splits, 0.5), "<f4"),
            "missing_left": export.pack(np.zeros(n_splits), "|u1"),
        }
        votes = export.pack(np.ones((n_splits + 1, 2)), "<f8")
        counts = export.pack(np.ones((n_splits + 1, 2)), "<i8")
        forged = changed(data, ("forest",), arrays)
        return changed(changed(forged, ("leaves", "votes"), votes), ("leaves", "counts"), counts)

    refused(chain(50_000), "deeper than max_depth")
    refused(chain(4), "deeper than max_depth")
    look_at(export.from_json(json.dumps(chain(3))))


def test_forged_sizes_take_no_memory(small):
    _, data = small
    packed = export.pack(np.zeros(1_000_000), "<f8")
    assert len(packed["zlib"]) < 20_000
    for shape in ([10**18, 2], [2**62, 4], [10**6, 1], [5, 2], [-1, -1], [1.0, 2], [True, 2]):
        forged = {**packed, "shape": shape}
        refused(changed(data, ("leaves", "votes"), forged), "votes")
    forged = {**data["leaves"]["votes"], "zlib": packed["zlib"]}
    refused(changed(data, ("leaves", "votes"), forged), "votes is not as long as it says")
    forged = {**data["leaves"]["votes"], "zlib": "AAAA"}
    refused(changed(data, ("leaves", "votes"), forged), "votes is damaged|shorter")
    refused(changed(data, ("leaves", "votes", "zlib"), "not base64!"), "not a model")
    # The number of nodes follows from nothing else.
    packed = export.pack(np.tile(np.array([0, -1], dtype=np.int32), 3_000_000), "<i4")
    refused(changed(data, ("forest", "feature"), packed), "feature is shorter than it says")


def test_inferred_in_domain_but_not_in_report(small):
    match = "domain and privacy differ"
    refused(changed(small[1], ("domain", "inferred"), ["bounds of x0"]), match)


def naive_structure(is_split):
    """What `export.tree_structure` finds, by recursion."""
    starts, right = [0], np.zeros(len(is_split), dtype=int)

    def visit(i):
        nonlocal leaves
        if not is_split[i]:
            right[i] = leaves
            leaves += 1
            return i + 1
        middle = visit(i + 1)
        right[i] = middle - starts[-1]
        return visit(middle)

    while starts[-1] < len(is_split):
        leaves = 0
        starts.append(visit(starts[-1]))
    return starts, right


def random_trees(rng, n_trees):
    """Depth-first marks of random trees."""

    def grow(depth):
        if depth == 0 or rng.random() < 0.4:
            return [False]
        return [True, *grow(depth - 1), *grow(depth - 1)]

    return np.concatenate([grow(8) for _ in range(n_trees)])


def test_tree_structure_against_recursion():
    rng = np.random.default_rng(0)
    for _ in range(200):
        is_split = random_trees(rng, int(rng.integers(1, 6)))
        starts, right = export.tree_structure(is_split)
        expected = naive_structure(is_split)
        np.testing.assert_array_equal(starts, expected[0])
        np.testing.assert_array_equal(right, expected[1])
        if starts[-1] - starts[-2] > 1:
            with pytest.raises(ValueError, match="no whole trees"):
                export.tree_structure(is_split[:-1])
    chain = np.append(np.tile([True, False], 100_000), False)  # as deep as it gets
    assert export.tree_structure(chain)[1][0] == 2


# Versions -----------------------------------------------------------------------------------------


def stored():
    return sorted(path.name for path in FIXTURES.glob("*-*.*") if path.suffix in (".pkl", ".json"))


@pytest.mark.parametrize("name", [name for name in stored() if not name.startswith("expected")])
def test_models_of_earlier_versions_load(name):
    kind, _, version = name.rpartition(".")[0].partition("-")
    expected = json.loads((FIXTURES / f"expected-{version}.json").read_text())
    raw = (FIXTURES / name).read_bytes()
    model = pickle.loads(raw) if name.endswith(".pkl") else export.from_json(raw)
    X = np.array(expected["rows"], dtype=object)
    # The score takes exponentials, whose last bit may differ from machine to machine.
    np.testing.assert_allclose(predict(model, X), expected[kind], rtol=1e-12)
    assert model.privacy_.version == version
    assert len(raw) < 30_000


def test_there_is_a_stored_model_of_each_kind():
    kinds = {(name.partition("-")[0], name.rpartition(".")[2]) for name in stored()}
    assert kinds >= {(a, b) for a in ("classifier", "regressor") for b in ("pkl", "json")}


def test_default_forest_of_adult_size_is_small():
    """45,000 records and 14 columns, of which 8 have up to 41 categories."""
    rng = np.random.default_rng(0)
    X = rng.random((45_000, 14))
    sizes = [9, 16, 7, 15, 6, 5, 2, 41]
    X[:, 6:] = np.floor(X[:, 6:] ** 2 * sizes)
    y = X[:, 0] + X[:, 1] * (X[:, 6] == 0) + X[:, 7] / 16 + rng.normal(0, 0.2, len(X)) > 1
    model = LumberjackClassifier(
        bounds=dict.fromkeys(range(6), (0, 1)),
        categories={6 + j: list(range(size)) for j, size in enumerate(sizes)},
        classes=[False, True],
    ).fit(X, y)
    assert len(model.leaf_votes_) > 1000
    dump = io.BytesIO()
    joblib.dump(model, dump)
    assert len(dump.getvalue()) < 5_000_000
    assert len(export.to_json(model)) < 1_000_000


# ONNX ---------------------------------------------------------------------------------------------


def add_edges(model, X, seed=2):
    """Put thresholds, their neighbours and other edges of float32 into the numeric columns."""
    rng = np.random.default_rng(seed)
    X = X.copy()
    n_hits = 0
    for j, own in enumerate(model.domain_.categories):
        if own is not None:
            continue
        nodes = model.nodes_[model.nodes_["feature"] == j]
        pool = [nodes["threshold"], [-3e38, 3e38, 0.0, -0.0, 1e-45, np.nan]]
        pool += [model.domain_.lower[j : j + 1], model.domain_.upper[j : j + 1]]
        if model.guide_ is not None:
            pool.append(model.guide_.score.inner_edges[j])
        pool = np.concatenate(pool).astype(np.float32)
        near = [np.nextafter(pool, np.float32(end)) for end in (-np.inf, np.inf)]
        pool = np.concatenate([pool, *near])
        chosen = np.flatnonzero(rng.random(len(X)) < 0.7)
        values = rng.choice(pool, len(chosen)).astype(np.float64)
        n_hits += np.isin(values, nodes["threshold"]).sum()
        if isinstance(X, np.ndarray):
            X[chosen, j] = values
        else:
            X.iloc[chosen, j] = values
    return X, n_hits


def to_feed(model, X, missing_category=""):
    """A table as the inputs of a graph, as the documentation says."""
    if isinstance(X, np.ndarray) and not model.domain_.is_categorical.any():
        return {"X": X.astype(np.float32)}
    X = pd.DataFrame(X, columns=model.domain_.feature_names)
    feed = {}
    for name, categories in zip(model.domain_.feature_names, model.domain_.categories, strict=True):
        column = X[name]
        if categories is None:
            values = column.to_numpy(np.float32)
        elif isinstance(categories[0], str):
            values = column.astype(object).where(column.notna(), missing_category).to_numpy(object)
        elif all(float(value).is_integer() for value in categories):
            values = column.astype(object).where(column.notna(), -(2**63)).to_numpy(np.int64)
        else:
            values = column.to_numpy(np.float64)
        feed[name] = values.reshape(-1, 1)
    return feed


def run_graph(graph, feed):
    """The outputs of a graph by name, and the number of each row's leaf in each tree."""
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    (trees,) = [node for node in copy.graph.node if node.op_type == "TreeEnsembleRegressor"]
    copy.graph.output.append(
        onnx.helper.make_tensor_value_info(trees.output[0], onnx.TensorProto.FLOAT, None)
    )
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(copy.SerializeToString(), options)
    names = [own.name for own in session.get_outputs()]
    *outputs, leaves = session.run(None, feed)
    return dict(zip(names[:-1], outputs, strict=True)), leaves


def leaf_numbers(model, X):
    """The number of each row's leaf in each tree."""
    nodes = model.apply(X) + model.tree_offsets_[:-1]
    return model.nodes_["right"][nodes]


def test_onnx_predicts_like_the_model(model):
    """Row by row on 10,000 rows, half of the numbers at thresholds or next to them."""
    pytest.importorskip("onnxruntime")
    X, n_hits = add_edges(model, make_rows(model, 10_000))
    numbers = np.flatnonzero(~model.domain_.is_categorical)
    assert n_hits > 20 or not np.isin(model.nodes_["feature"], numbers).any()
    outputs, leaves = run_graph(export.to_onnx(model), to_feed(model, X))
    np.testing.assert_array_equal(leaves, leaf_numbers(model, X))
    if isinstance(model, LumberjackRegressor):
        assert outputs.keys() == {"output_value"}
        width = np.ptp(model.domain_.target_bounds)
        difference = outputs["output_value"][:, 0] - model.predict(X)
        assert np.abs(difference).max() <= 1e-7 * width
        return
    expected = model.predict_proba(X)
    probabilities = outputs["output_probability"]
    assert probabilities.dtype == np.float32
    assert np.abs(probabilities - expected).max() <= 1e-7
    best = np.sort(expected, axis=1)
    is_clear = best[:, -1] - best[:, -2] > 1e-14
    assert is_clear.mean() > 0.5 or "majority" in (model.leaf,)
    labels, wanted = outputs["output_label"], model.predict(X)
    np.testing.assert_array_equal(labels[is_clear], wanted[is_clear])
    chosen = np.searchsorted(model.classes_, labels.astype(model.classes_.dtype))
    np.testing.assert_allclose(
        np.take_along_axis(expected, chosen[:, None], axis=1)[:, 0], best[:, -1], rtol=1e-14
    )


def test_onnx_of_other_tables(models):
    """One row; infinite values as if just outside the bounds."""
    pytest.importorskip("onnxruntime")
    model = models["array"]
    graph = export.to_onnx(model)
    outside = np.array([[5.0, -5.0, 0.25]])
    infinite = np.array([[np.inf, -np.inf, 0.25]], dtype=np.float32)
    outputs, leaves = run_graph(graph, {"X": infinite})
    np.testing.assert_array_equal(leaves, leaf_numbers(model, outside))
    np.testing.assert_allclose(outputs["output_probability"], predict(model, outside), atol=1e-7)


def test_onnx_leaves_without_a_vote():
    """Where all votes are 0 the prior answers."""
    pytest.importorskip("onnxruntime")
    model = fit_array(splitter="random")
    model.leaf_votes_ = np.zeros_like(model.leaf_votes_)
    model.class_prior_ = np.array([0.2, 0.5, 0.3])
    X = make_rows(model, 5)
    outputs, _ = run_graph(export.to_onnx(model), to_feed(model, X))
    np.testing.assert_allclose(outputs["output_probability"], [[0.2, 0.5, 0.3]] * 5, atol=1e-7)
    assert outputs["output_label"].tolist() == [1] * 5


def test_onnx_scores_that_say_nothing(models):
    """All sigmoids 0: no class is preferred, and nothing is NaN."""
    pytest.importorskip("onnxruntime")
    model = pickle.loads(pickle.dumps(models["array"]))
    score = replace(model.guide_.score, intercepts=np.full(3, -2000.0))
    model.guide_ = replace(model.guide_, score=score)
    X = make_rows(model, 50)
    outputs, _ = run_graph(export.to_onnx(model), to_feed(model, X))
    np.testing.assert_allclose(outputs["output_probability"], predict(model, X), atol=1e-7)


def test_onnx_metadata(models):
    pytest.importorskip("onnx")
    model = models["two classes"]
    metadata = {own.key: own.value for own in export.to_onnx(model).metadata_props}
    assert metadata["guarantee"] == "(8, 0.001)-differential privacy"
    assert metadata["privacy_report"] == model.privacy_.to_json()
    types = [own.type.tensor_type.elem_type for own in export.to_onnx(model).graph.input]
    assert types == [1, 1, 8, 7, 11, 7]  # float, float, string, int64, double, int64


def test_onnx_missing_category(models):
    pytest.importorskip("onnxruntime")
    model = models["two classes"]
    X = make_rows(model, 300)
    outputs, leaves = run_graph(
        export.to_onnx(model, missing_category="?"), to_feed(model, X, missing_category="?")
    )
    np.testing.assert_array_equal(leaves, leaf_numbers(model, X))
    with pytest.raises(ValueError, match="missing_category='public' is a category of 'sector'"):
        export.to_onnx(model, missing_category="public")


@pytest.mark.parametrize("name", ["", "output_label", "lumberjack/x"])
def test_onnx_refuses_names(models, name):
    pytest.importorskip("onnx")
    model = pickle.loads(pickle.dumps(models["two classes"]))
    domain = model.domain_
    model.domain_ = Domain(
        [name, *domain.feature_names[1:]], domain.lower, domain.upper, domain.categories,
        domain.classes,
    )  # fmt: skip
    with pytest.raises(ValueError, match="cannot be an input"):
        export.to_onnx(model)


def test_onnx_refuses_mixed_categories():
    pytest.importorskip("onnx")
    X = pd.DataFrame({"a": np.array(["x", 1] * 50, dtype=object)})
    model = LumberjackClassifier(categories={"a": ["x", 1]}, classes=[0, 1]).fit(X, [0, 1] * 50)
    with pytest.raises(ValueError, match="categories of 'a' are text and numbers"):
        export.to_onnx(model)


@pytest.mark.parametrize(
    ("parameters", "labels", "match"),
    [
        ({"bounds": (0, 1), "classes": [2**63, 2**63 + 8]}, [2**63, 2**63 + 8], "64-bit integers"),
        ({"bounds": (0, 1), "classes": [0, 2**64]}, [0, 2**64], "64-bit integers"),
        ({"bounds": (0, 1), "classes": ["a", "\ud800"]}, ["a", "\ud800"], "class has a surrogate"),
        ({"domain": Domain(["\ud800"], [0], [1], [None], [0, 1])}, [0, 1], "name of a column has"),
        ({"categories": {"x0": ["\ud800"]}, "classes": [0, 1]}, [0, 1], "category has a surrogate"),
        ({"bounds": (0, 1), "target_bounds": (-1e300, 1e300)}, [0, 1], "32-bit floats"),
    ],
)
def test_onnx_refuses_what_it_cannot_hold(parameters, labels, match):
    pytest.importorskip("onnx")
    kind = LumberjackRegressor if "target_bounds" in parameters else LumberjackClassifier
    model = kind(**parameters).fit([[0.0], [1.0]] * 50, labels * 50)
    with pytest.raises(ValueError, match=match):
        export.to_onnx(model)
    export.from_json(export.to_json(model))


def test_score_limits_by_search(models):
    """A limit lies between the log-odds of which the score column is at most the threshold."""
    score = models["four classes"].guide_.score
    rng = np.random.default_rng(0)
    thresholds = np.concatenate(
        [rng.random(500), [0.0, 1e-30, 1 - 2**-24]]
    ).astype(np.float32).astype(np.float64)  # fmt: skip
    for number in range(score.n_scores):
        limits = export.score_limits(score, number, thresholds)
        centre = score.intercepts[number]

        def column(s, centre=centre):
            # The formula of the kernel; its last bit is the business of `below` and `above`.
            with np.errstate(over="ignore"):
                value = 0.5 * (1 / (1 + np.exp(-s)) + 1 / (1 + np.exp(-(s - centre))))
            return value.astype(np.float32)

        step = np.maximum(np.abs(limits), 1) * 1e-12
        assert (column(limits - step) <= thresholds).all()
        assert (column(limits + step) > thresholds).all()
    beyond = export.score_limits(score, 0, np.array([-0.5, 1.0, 2.0]))
    assert beyond.tolist() == [-np.inf, np.inf, np.inf]
    assert len(export.score_limits(score, 0, np.zeros(0))) == 0


def test_without_the_extras(monkeypatch, models):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setitem(sys.modules, "shap", None)
    with pytest.raises(ImportError, match=r"lumberjack-dp\[onnx\]"):
        export.to_onnx(models["array"])
    with pytest.raises(ImportError, match=r"lumberjack-dp\[shap\]"):
        export.shap_explainer(models["array"], np.zeros((2, 3)))


# SHAP ---------------------------------------------------------------------------------------------


@pytest.fixture
def shap():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of matplotlib and numba, about shap
        yield pytest.importorskip("shap")


@pytest.mark.parametrize("name", ["two classes", "four classes", "regressor"])
def test_shap_values_sum_to_the_prediction(shap, models, name):
    model = models[name]
    people = make_people(100, seed=3)
    explainer = export.shap_explainer(model, people[:20])
    shuffled = people[20:30][people.columns[::-1]]
    explanation = explainer(shuffled, silent=True)
    expected = predict(model, shuffled)
    assert explanation.values.shape == (10, 6, *expected.shape[1:])
    found = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(explanation.base_values[0], predict(model, people[:20]).mean(axis=0))
    assert np.abs(explanation.values).max() > 0.01
    assert list(explanation.feature_names) == list(people.columns)
    pd.testing.assert_frame_equal(
        pd.DataFrame(explanation.display_data, columns=people.columns, dtype=object),
        people[20:30].reset_index(drop=True).astype(object),
    )
    if hasattr(model, "classes_"):
        assert explanation.output_names == [str(label) for label in model.classes_]


def test_shap_by_itself_on_numbers(shap, models):
    """A frame of numbers needs no help of ours."""
    model = models["array"]
    X = make_rows(model, 60)
    explanation = shap.Explainer(model.predict_proba, X[:20])(X[20:40], silent=True)
    found = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(found, model.predict_proba(X[20:40]), atol=1e-9)


def test_shap_sees_the_smallest_change(shap):
    """A threshold between two numbers of which SHAP by itself makes no difference."""
    X = np.tile([[1000.0, 0.0], [1000.002, 0.0], [1000.0, 1.0], [1000.002, 1.0]], (500, 1))
    model = LumberjackClassifier(
        bounds={0: (1000, 1000.002), 1: (0, 1)}, classes=[0, 1], epsilon=np.inf, threshold=1,
        max_depth=5, splitter="random",
    ).fit(X, X[:, 0] > 1000)  # fmt: skip
    explanation = export.shap_explainer(model, X[:1])(X[1:2], silent=True)
    assert np.ptp(model.predict_proba(X[:2])[:, 1]) > 0.5
    found = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(found, model.predict_proba(X[1:2]), atol=1e-9)
    assert np.abs(explanation.values[0, 0]).min() > 0.5


def test_shap_of_other_frames(shap, models):
    polars = pytest.importorskip("polars")
    model = models["two classes"]
    people = make_people(15, seed=3)
    expected = export.shap_explainer(model, people[:5])(people[5:], silent=True)
    columns = {
        name: list(people[name].astype(object).where(people[name].notna(), None)) for name in people
    }
    other = polars.DataFrame(columns)
    found = export.shap_explainer(model, other[:5])(other[5:], silent=True)
    np.testing.assert_array_equal(found.values, expected.values)
    assert found.display_data[3, 2] == expected.display_data[3, 2]


def test_codes_predict_like_values(model):
    X = make_rows(model, 2000)
    codes = model.domain_.encode(X, layout="rows")
    np.testing.assert_array_equal(predict(export.for_codes(model), codes), predict(model, X))
