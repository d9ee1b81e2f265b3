"""The estimator: parameters, labels, declarations, errors, threads, interruption, prediction."""

import contextlib
import inspect
import math
import os
import pickle
import re
import resource
import select
import signal
import sys
import threading
import time
import warnings

import numpy as np
import oracle
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from lumberjack import (
    LumberjackClassifier,
    PrivacyLeakWarning,
    __version__,
    forest,
    ledger,
    noise,
    parameters,
)
from lumberjack.datasets import make_moons_and_blob

N_RECORDS = 317
LEAVES = ("counts", "majority")
ACCOUNTINGS = ("joint", "split")
METHODS = (("guided", "joint"), ("random", "joint"), ("random", "split"))
BOUNDS = {"age": (17, 90), "hours": (0, 99)}
CATEGORIES = {"sex": ["Female", "Male"]}
CANARY_TEXT = "canary"
CANARY_NUMBER = 7654321.5

# Enough budget that forests of a few hundred records are not stumps.
SETTINGS = {"n_estimators": 4, "epsilon": 4.0, "delta": 1e-3, "max_depth": 15}
NOISELESS = {"epsilon": math.inf, "threshold": 1, "max_depth": 10}


def frame(n_records=N_RECORDS, seed=0):
    """A frame of two numeric columns and a text one."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(17, 91, n_records),
            "hours": rng.uniform(0, 99, n_records),
            "sex": rng.choice(["Female", "Male"], n_records).astype(object),
        }
    )


def labels(X, classes=("no", "yes")):
    """Labels that depend on the first column of a frame or array."""
    first = np.asarray(X)[:, 0].astype(float)
    return np.array(classes)[np.argsort(np.argsort(first)) * len(classes) // len(first)]


def table(n_records=N_RECORDS, n_features=3, classes=(0, 1), seed=0):
    """An array in the unit cube and its labels."""
    X = np.random.default_rng(seed).random((n_records, n_features))
    return X, labels(X, classes)


def on_frame(**changes):
    declared = {"bounds": BOUNDS, "categories": CATEGORIES, "classes": ["no", "yes"]}
    return LumberjackClassifier(**{**SETTINGS, **declared, **changes})


def on_array(**changes):
    return LumberjackClassifier(**{**SETTINGS, "bounds": (0, 1), "classes": [0, 1], **changes})


def fit(model, X, y):
    """Fit without the warning that the fit is seeded or infers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return model.fit(X, y)


def released(model):
    """The released arrays as bytes."""
    names = ("nodes_", "tree_offsets_", "leaf_offsets_", "leaf_counts_", "leaf_votes_")
    arrays = [getattr(model, name) for name in names if hasattr(model, name)]
    if model.guide_ is not None:
        arrays += [model.guide_.feature_weights, model.guide_.score.tables]
    return [array.tobytes() for array in (*arrays, model.class_prior_)]


def learned(model):
    """What fit has set."""
    return {name: value for name, value in vars(model).items() if name.endswith("_")}


# Fitting and predicting


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize(("splitter", "accounting"), METHODS)
@pytest.mark.parametrize("classes", [("no", "yes"), ("high", "low", "mid", "none")])
def test_fit_and_predict(leaf, splitter, accounting, classes):
    X = frame(2000)
    y = labels(X, classes)
    model = on_frame(leaf=leaf, splitter=splitter, accounting=accounting, classes=list(classes))
    assert model.fit(X, y) is model
    assert model.classes_.tolist() == sorted(classes)
    n_leaves, n_nodes = int(model.leaf_offsets_[-1]), int(model.tree_offsets_[-1])
    assert n_nodes + model.n_estimators == 2 * n_leaves > 2 * model.n_estimators
    assert model.nodes_.shape == (n_nodes,)
    assert model.leaf_votes_.shape == (n_leaves, len(classes))
    assert model.leaf_votes_.dtype == model.class_prior_.dtype == np.float64
    assert model.class_prior_.shape == (len(classes),)
    assert model.class_prior_.sum() == pytest.approx(1)
    assert hasattr(model, "leaf_counts_") == (leaf == "counts")
    if leaf == "counts":
        assert model.leaf_counts_.dtype == np.int64
        assert model.leaf_counts_.shape == (n_leaves, len(classes))
    else:
        assert set(np.unique(model.leaf_votes_)) == {0, 1}
        assert (model.leaf_votes_.sum(axis=1) == 1).all()
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (len(X), len(classes))
    assert (probabilities >= 0).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    predicted = model.predict(X)
    assert predicted.dtype == model.classes_.dtype
    assert (predicted == model.classes_[probabilities.argmax(axis=1)]).all()
    assert (predicted == y).mean() > 1.4 / len(classes), "better than guessing"


@pytest.mark.parametrize(
    "classes",
    [
        ["b", "a"],
        [3, -1, 7],
        [0, 1],
        [True, False],
        [1.0, 0.0, 2.0],
        np.array([2, 1], dtype=np.uint8),
        np.array(["xx", "y"]),
        ["a", "b", "never seen"],
    ],
    ids=str,
)
@pytest.mark.parametrize("leaf", LEAVES)
def test_any_type_of_label(classes, leaf):
    X, position = table(2000, classes=(0, 1))
    y = np.asarray(classes)[position]
    for targets in (y, y.tolist(), pd.Series(y), pd.Series(y, dtype=object)):
        model = on_array(classes=classes, leaf=leaf, epsilon=15).fit(X, targets)
        assert model.classes_.tolist() == sorted(np.asarray(classes).tolist())
        assert model.predict(X).dtype == model.classes_.dtype
        assert set(model.predict(X).tolist()) <= set(np.asarray(classes).tolist())
        assert model.score(X, y) > 0.9


def test_labels_of_a_categorical_series():
    X, position = table(500)
    y = pd.Series(pd.Categorical.from_codes(position, ["low", "high"]))
    model = on_array(classes=["low", "high"]).fit(X, y)
    assert set(model.predict(X)) <= {"low", "high"}


def test_frame_and_array_give_the_same_forest():
    X = frame()[["age", "hours"]]
    y = labels(X)
    of_frame = fit(on_frame(categories=None, random_state=3), X, y)
    bounds = ([17, 0], [90, 99])
    of_array = fit(on_frame(bounds=bounds, categories=None, random_state=3), X.to_numpy(), y)
    of_list = fit(on_frame(bounds=bounds, categories=None, random_state=3), X.values.tolist(), y)
    assert released(of_frame) == released(of_array) == released(of_list)
    assert of_frame.feature_names_in_.tolist() == ["age", "hours"]
    assert not hasattr(of_array, "feature_names_in_")
    assert of_frame.n_features_in_ == of_array.n_features_in_ == 2
    expected = of_frame.predict_proba(X)
    assert np.array_equal(of_array.predict_proba(X.to_numpy()), expected)
    assert np.array_equal(of_list.predict_proba(X.values.tolist()), expected)


def test_columns_of_a_frame_are_known_by_name_when_predicting():
    X = frame()
    model = on_frame().fit(X, labels(X))
    assert np.array_equal(model.predict(X[["hours", "sex", "age"]]), model.predict(X))
    with pytest.raises(ValueError, match="now missing:\n- age"):
        model.predict(X.drop(columns="age"))
    with pytest.raises(ValueError, match="unseen at fit time:\n- other"):
        model.predict(X.assign(other=0))
    with warnings.catch_warnings():
        # scikit-learn's own check of names warns here; finding the columns by place is what counts
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        by_place = model.predict(X.to_numpy())
    assert np.array_equal(by_place, model.predict(X))


def test_one_record_and_one_leaf():
    model = on_array(leaf="counts").fit([[0.5, 0.5]], [1])
    assert len(model.nodes_) == len(model.leaf_votes_) == model.n_estimators
    assert model.predict([[0.1, 2.0]]).shape == (1,)
    assert model.apply([[0.1, 2.0]]).tolist() == [[0] * model.n_estimators]


# Missing, unknown and out-of-bounds values


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("noise_settings", [{}, NOISELESS], ids=["private", "noiseless"])
def test_odd_feature_values_are_never_an_error(leaf, noise_settings):
    X = frame()
    odd = X.astype(object)
    odd.loc[0, "sex"] = "unheard of"
    odd.loc[1, "sex"] = None
    odd.loc[2, "sex"] = np.nan
    odd.loc[3, "sex"] = pd.NA
    odd.loc[4, "sex"] = 7
    odd.loc[5, "age"] = 10**400
    odd.loc[6, "age"] = -1e308
    odd.loc[7, "age"] = None
    odd.loc[8, "hours"] = np.nan
    odd.loc[9, "hours"] = 1e300
    odd.loc[10] = [None, None, None]
    y = labels(X)
    for train, test in ((X, odd), (odd, X), (odd, odd)):
        model = on_frame(leaf=leaf, **noise_settings).fit(train, y)
        assert np.isfinite(model.predict_proba(test)).all()
        assert set(model.predict(test)) <= {"no", "yes"}
        assert model.apply(test).shape == (len(X), model.n_estimators)


def test_nothing_but_odd_feature_values():
    odd = pd.DataFrame({"age": [1e9, -1e9] * 50, "hours": [np.nan] * 100, "sex": ["other"] * 100})
    model = on_frame(**NOISELESS).fit(odd, ["no", "yes"] * 50)
    assert np.isfinite(model.predict_proba(odd)).all()
    assert np.isfinite(model.predict_proba(frame())).all()


def test_values_beyond_the_bounds_go_where_the_bounds_go():
    X, y = table(2000, n_features=2)
    model = on_array(epsilon=20).fit(X, y)
    far = np.array([[-5.0, 7.0], [1e30, -1e30], [-1e300, 1e300]])
    assert np.array_equal(model.apply(far), model.apply(np.clip(far, -0.0, 1.0)))


# Trees


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("splitter", ["guided", "random"])
@pytest.mark.parametrize("classes", [("no", "yes"), ("high", "low", "mid")])
def test_trees_apply_and_decision_path_agree_with_a_walk(leaf, splitter, classes):
    X = frame(2000)
    X.loc[::7, "age"] = np.nan
    X.loc[::11, "sex"] = "unheard of"
    X.loc[::13, "sex"] = None
    model = on_frame(leaf=leaf, splitter=splitter, classes=list(classes), epsilon=15.0)
    model.fit(X, labels(X, classes))
    encoded = model.domain_.encode(X, layout="rows")
    if splitter == "guided":
        columns, of_score = model.guide_.score.evaluate(encoded)
        encoded = np.hstack([encoded, columns])
    applied = model.apply(X)
    indicator, ends = model.decision_path(X)
    assert applied.dtype == np.int32
    assert sparse.issparse(indicator) and indicator.shape == (len(X), len(model.nodes_))
    assert np.array_equal(ends, model.tree_offsets_)
    assert len(model.trees_) == model.n_estimators
    expected = np.zeros((len(X), len(classes)))
    for t, tree in enumerate(model.trees_):
        part = indicator[:, ends[t] : ends[t + 1]].toarray()
        for i, row in enumerate(encoded):
            path = walk(tree, row)
            assert applied[i, t] == path[-1]
            assert np.flatnonzero(part[i]).tolist() == sorted(path) and part[i].max() == 1
            expected[i] += tree.votes[tree.leaf[path[-1]]]
    expected /= expected.sum(axis=1, keepdims=True)
    if splitter == "guided":
        expected = oracle.combine(expected, of_score)
        used = np.concatenate([tree.feature for tree in model.trees_])
        assert used.max() >= model.n_features_in_, "the score is split, too"
        assert used.max() < encoded.shape[1]
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-13)
    assert max(len(tree.feature) for tree in model.trees_) > 3


def walk(tree, row):
    """The nodes that a row passes in the plain arrays of a tree."""
    path = [0]
    while tree.leaf[path[-1]] < 0:
        i = path[-1]
        x = row[tree.feature[i]]
        if math.isnan(x):
            left = tree.missing_go_to_left[i]
        else:
            left = x == tree.threshold[i] if tree.is_categorical[i] else x <= tree.threshold[i]
        path.append(int((tree.children_left if left else tree.children_right)[i]))
    return path


def test_trees_are_copies():
    X, y = table()
    model = on_array(epsilon=15).fit(X, y)
    before = model.nodes_.tobytes()
    for tree in model.trees_:
        for array in tree[:-1]:
            array[:] = 0
    model.decision_path(X[:1])[1][:] = 0
    assert model.nodes_.tobytes() == before and model.tree_offsets_[-1] == len(model.nodes_)


# Guided splits


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_guide_of_a_fitted_forest(n_classes):
    X = frame(3000)
    classes = ["high", "low", "mid"][:n_classes]
    model = on_frame(classes=classes).fit(X, labels(X, classes))
    assert model.splitter == "guided" and model.max_depth == 15
    own, domain, n_scores = model.guide_, model.domain_, 1 if n_classes == 2 else n_classes
    assert own.score.n_scores == n_scores and own.feature_weights.shape == (3 + n_scores,)
    assert own.feature_weights.sum() == pytest.approx(1)
    assert own.feature_weights[0] == own.feature_weights[:3].max(), "the labels follow from it"
    assert own.score.tables.shape[1] == len(own.score.intercepts) == n_scores
    assert own.category_weights[2].shape == (2,) and own.category_weights[:2] == (None, None)
    assert own.threshold_cdfs[2] is None
    for f, (low, high) in enumerate(BOUNDS.values()):
        edges, cdf = own.threshold_cdfs[f]
        assert edges[0] == low and edges[-1] == high and cdf[0] == 0 and cdf[-1] == 1
    assert own.score.n_categories is domain.n_categories or np.array_equal(
        own.score.n_categories, domain.n_categories
    )
    for tree in model.trees_:
        of_score = tree.feature >= 3
        assert (tree.feature < 3 + n_scores).all() and not tree.is_categorical[of_score].any()
        assert ((tree.threshold[of_score] >= 0) & (tree.threshold[of_score] < 1)).all()
    assert any(mechanism.part == "guide" for mechanism in model.privacy_.mechanisms)
    fit(model.set_params(splitter="random"), X, labels(X, classes))
    assert model.guide_ is None and model.nodes_["feature"].max() < 3


def test_defaults():
    model = LumberjackClassifier()
    assert model.splitter == "guided" and model.max_depth == 31
    assert parameters.DEFAULT_SHARES["guided"] == {"guide": 0.5, "structure": 0.2, "leaves": 0.3}


def test_random_splits_have_no_guide():
    X, y = table()
    model = on_array(splitter="random").fit(X, y)
    assert model.guide_ is None
    assert [own.part for own in model.privacy_.mechanisms] == ["structure", "leaves"]
    assert model.privacy_.calibration.mu_guide == 0


def test_a_guide_is_worth_its_share():
    # One informative feature of ten, in a hundredth of its range.
    rng = np.random.default_rng(0)
    X = rng.random((4000, 10))
    X[:, 7] *= 0.01
    y = (X[:, 7] > 0.004).astype(int)
    scores = {}
    for splitter in ("guided", "random"):
        bounds = (np.zeros(10), np.ones(10))
        models = [on_array(splitter=splitter, bounds=bounds, epsilon=1.0) for _ in range(3)]
        scores[splitter] = np.mean([model.fit(X, y).score(X, y) for model in models])
    assert scores["guided"] >= scores["random"] - 0.02
    X[:, 7] *= 100
    scores["visible"] = on_array(epsilon=1.0).fit(X, y).score(X, y)
    assert scores["visible"] > 0.9


def test_without_noise_the_guide_is_exact():
    X, y = table(3000, n_features=2)
    model = on_array(**NOISELESS).fit(X, y)
    again = on_array(**NOISELESS).fit(X, y)
    for name in ("tables", "intercepts"):
        assert np.array_equal(getattr(model.guide_.score, name), getattr(again.guide_.score, name))
    assert np.array_equal(model.guide_.feature_weights, again.guide_.feature_weights)
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("budget", [{}, {"epsilon": 18.0}, NOISELESS])
def test_guided_probabilities_of_odd_tables(leaf, budget):
    # One class only, constant features, all missing, one row: no warning, proper probabilities.
    X = frame(200)
    tables = [
        (X, np.repeat("no", 200)),
        (X.assign(age=40, hours=1.0, sex="Male"), labels(X)),
        (X.assign(age=np.nan, hours=np.nan, sex=None), labels(X)),
        (X[:1], ["yes"]),
    ]
    for own, y in tables:
        for classes in (["no", "yes"], ["no", "yes", "never"]):
            model = on_frame(leaf=leaf, classes=classes, **budget).fit(own, y)
            p = model.predict_proba(X)
            assert np.isfinite(p).all() and (p >= 0).all()
            np.testing.assert_allclose(p.sum(axis=1), 1)


# Without noise


@pytest.mark.parametrize("threshold", [1, 7, 7.5])
@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("accounting", ACCOUNTINGS)
def test_an_infinite_epsilon_gives_exactly_the_noiseless_forest(threshold, leaf, accounting):
    X = frame(60)
    X.loc[::9, "sex"] = None
    y = labels(X)
    model = on_frame(
        epsilon=math.inf,
        threshold=threshold,
        max_depth=10,
        splitter="random",
        leaf=leaf,
        accounting=accounting,
        random_state=5,
    )
    fit(model, X, y)
    domain = model.domain_
    plan = oracle.NaivePlan(domain.n_categories, domain.lower, domain.upper)
    naive = oracle.grow_forest(
        domain.encode(X),
        domain.encode_classes(y),
        2,
        plan,
        10,
        oracle.exact_table(math.ceil(threshold)),
        noise.derive_keys(5)[0],
        model.n_estimators,
    )
    rows, tree_offsets, leaf_offsets, leaf_counts, _, _ = naive
    assert model.nodes_.tolist() == rows
    assert model.tree_offsets_.tolist() == tree_offsets
    assert model.leaf_offsets_.tolist() == leaf_offsets
    counts = np.array(leaf_counts)
    if leaf == "counts":
        assert np.array_equal(model.leaf_counts_, counts)
        totals = np.maximum(counts.sum(axis=1, keepdims=True), 1)
        assert np.array_equal(model.leaf_votes_, counts / totals)
        assert np.array_equal(model.class_prior_, counts.sum(axis=0) / counts.sum())
    else:
        assert np.array_equal(model.leaf_votes_, np.eye(2)[counts.argmax(axis=1)])


@pytest.mark.parametrize("random_state", [None, 1])
def test_fully_random_trees(random_state):
    # The older literature's method: threshold 1 splits all nodes that hold a record.
    X, y = table(500, n_features=2)
    model = fit(on_array(**NOISELESS, random_state=random_state), X, y)
    applied = model.apply(X)
    for t, tree in enumerate(model.trees_):
        held = np.bincount(applied[:, t], minlength=len(tree.feature))
        depth = np.zeros(len(tree.feature), dtype=int)
        for i in np.flatnonzero(tree.leaf < 0):
            depth[[tree.children_left[i], tree.children_right[i]]] = depth[i] + 1
        leaves = tree.leaf >= 0
        assert depth.max() == 10
        assert (held[leaves & (depth < 10)] == 0).all()
        counts = model.leaf_counts_[model.leaf_offsets_[t] : model.leaf_offsets_[t + 1]]
        assert np.array_equal(counts.sum(axis=1), held[leaves])
        assert counts.sum() == len(X)


def test_noise_is_what_the_report_says():
    # Leaf counts minus the exact ones: a Gaussian of the reported standard deviation.
    X, y = table(3000)
    model = on_array(n_estimators=60, max_depth=31).fit(X, y)
    leaves, codes = model.apply(X), model.classes_.searchsorted(y)
    exact = np.zeros_like(model.leaf_counts_)
    for t, tree in enumerate(model.trees_):
        np.add.at(exact, (model.leaf_offsets_[t] + tree.leaf[leaves[:, t]], codes), 1)
    errors = (model.leaf_counts_ - exact).ravel()
    (mechanism,) = [own for own in model.privacy_.mechanisms if own.part == "leaves"]
    assert errors.size > 1000
    assert abs(errors.mean()) < 6 * mechanism.noise / math.sqrt(errors.size)
    assert abs(errors.std() / mechanism.noise - 1) < 6 / math.sqrt(2 * errors.size)


# Parameters of the mechanism


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize(("splitter", "accounting"), METHODS)
def test_records_per_unit_raises_noise_and_threshold(leaf, splitter, accounting):
    X, y = table()
    settings = {"leaf": leaf, "splitter": splitter, "accounting": accounting}
    reports = [on_array(**settings, records_per_unit=g).fit(X, y).privacy_ for g in (1, 2, 5)]
    for g, report in zip((1, 2, 5), reports, strict=True):
        assert report.records_per_unit == g
        assert report.threshold == pytest.approx(g + report.slack)
        assert report.delta_reached <= report.delta
        *sums, tests, leaves = report.mechanisms
        assert [own.part for own in sums] == ["guide"] * (splitter == "guided")
        assert tests.queries_per_unit == g * 4 * 4 and leaves.queries_per_unit == g * 4
    noises = np.array([[own.noise for own in report.mechanisms] for report in reports])
    if leaf == "majority":  # there the noise grows as epsilon falls
        noises[:, -1] = 1 / noises[:, -1]
    # About in proportion; the slack more than that, for the tests of all records of a unit.
    units = np.array([1, 2, 5])
    np.testing.assert_allclose(
        noises / noises[0], units[:, None] * np.ones(len(noises.T)), rtol=0.05
    )
    slacks = np.array([report.slack for report in reports])
    assert (slacks[1:] / slacks[0] > units[1:]).all()


def test_threshold_can_be_raised_but_not_lowered():
    X, y = table(3000)
    default = on_array().fit(X, y)
    raised = on_array(threshold=500).fit(X, y)
    assert raised.privacy_.threshold == 500
    assert raised.privacy_.slack == default.privacy_.slack
    assert len(raised.leaf_votes_) < len(default.leaf_votes_)
    assert on_array(threshold=10_000).fit(X, y).nodes_.shape == (4,)
    with pytest.raises(ValueError, match="threshold must be at least .* use threshold=None"):
        on_array(threshold=default.privacy_.threshold - 0.01).fit(X, y)
    with pytest.raises(ValueError, match="threshold must be given"):
        on_array(epsilon=math.inf).fit(X, y)


def test_shares_of_the_budget():
    X, y = table()
    reports = [
        on_array(splitter="random", budget_shares={"structure": s, "leaves": 1 - s})
        .fit(X, y)
        .privacy_
        for s in (0.5, 0.75)
    ]
    half, default = reports
    assert on_array(splitter="random").fit(X, y).privacy_ == default
    assert [own.share for own in half.mechanisms] == [0.5, 0.5]
    assert half.threshold > default.threshold
    assert half.mechanisms[1].noise < default.mechanisms[1].noise


def test_shares_of_the_budget_with_a_guide():
    X, y = table()
    shares = parameters.DEFAULT_SHARES["guided"]
    assert set(shares) == {"guide", "structure", "leaves"} and sum(shares.values()) == 1
    default = on_array().fit(X, y).privacy_
    assert on_array(budget_shares=shares).fit(X, y).privacy_ == default
    assert {own.part: own.share for own in default.mechanisms} == shares
    less = {"guide": 0.1, "structure": 0.45, "leaves": 0.45}
    other = on_array(budget_shares=less).fit(X, y).privacy_
    assert other.threshold < default.threshold
    assert other.mechanisms[0].noise > default.mechanisms[0].noise
    squares = [own.mu**2 for own in default.mechanisms]
    np.testing.assert_allclose(np.array(squares) / sum(squares), list(shares.values()), rtol=1e-9)


@pytest.mark.parametrize(
    "changes",
    [
        {"accounting": "split"},
        {"accounting": "split", "budget_shares": {"structure": 0.75, "leaves": 0.25}},
        {
            "accounting": "split",
            "budget_shares": {"guide": 0.5, "structure": 0.25, "leaves": 0.25},
        },
        {"budget_shares": {"structure": 0.75, "leaves": 0.25}},
        {"budget_shares": {"guide": 0, "structure": 0.75, "leaves": 0.25}},
        {
            "splitter": "random",
            "budget_shares": {"guide": 0.5, "structure": 0.25, "leaves": 0.25},
        },
    ],
)
def test_a_guide_has_a_share_exactly_if_there_is_a_guide(changes):
    refused(on_frame(**changes), X_FRAME, Y_FRAME, "guide")


def test_more_epsilon_means_more_leaves():
    X, y = table(3000)
    sizes = [len(on_array(epsilon=e, n_estimators=10).fit(X, y).nodes_) for e in (0.25, 2, 20)]
    assert sizes[0] < sizes[1] < sizes[2]


# scikit-learn conventions


def test_init_only_stores():
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(LumberjackClassifier).parameters.items()
    }
    assert vars(LumberjackClassifier()) == LumberjackClassifier().get_params() == defaults
    kinds = [own.kind for own in inspect.signature(LumberjackClassifier).parameters.values()]
    assert kinds[1:] == [inspect.Parameter.KEYWORD_ONLY] * (len(kinds) - 1)
    with pytest.raises(TypeError, match="epsilom"):
        LumberjackClassifier(epsilom=0.1)
    given = {name: object() for name in defaults}
    model = LumberjackClassifier(**given)
    assert all(getattr(model, name) is value for name, value in given.items())


def test_fit_does_not_change_parameters_or_data():
    X, y = frame(), labels(frame())
    before = X.copy(deep=True), y.copy()
    model = on_frame(bounds=dict(BOUNDS), categories={"sex": ["Female", "Male"]})
    parameters = {name: repr(value) for name, value in model.get_params().items()}
    objects = dict(model.get_params())
    model.fit(X, y).predict(X)
    assert {name: repr(value) for name, value in model.get_params().items()} == parameters
    assert all(getattr(model, name) is value for name, value in objects.items())
    pd.testing.assert_frame_equal(X, before[0])
    assert np.array_equal(y, before[1])


def test_clone_and_set_params():
    X, y = table()
    model = fit(on_array(random_state=2, epsilon=9.0), X, y)
    copy = clone(model)
    assert copy.get_params() == model.get_params() and not learned(copy)
    assert released(fit(copy, X, y)) == released(model)
    fit(model.set_params(epsilon=1.5), X, y)
    assert model.privacy_.epsilon == 1.5 and copy.privacy_.epsilon == 9.0


def test_refit_forgets_everything():
    X = frame()
    model = fit(on_frame(random_state=1), X, labels(X))
    array, y = table(200, n_features=2, classes=(0, 1, 2))
    changes = {"bounds": (0, 1), "categories": None, "classes": [0, 1, 2], "leaf": "majority"}
    fit(model.set_params(**changes), array, y)
    fresh = fit(on_frame(random_state=1, **changes), array, y)
    assert learned(model).keys() == learned(fresh).keys()
    assert released(model) == released(fresh)
    assert model.n_features_in_ == 2 and not hasattr(model, "leaf_counts_")
    fit(model.set_params(leaf="counts"), array, y)
    assert hasattr(model, "leaf_counts_")


def test_not_fitted():
    X, _ = table()
    for call in ("predict", "predict_proba", "apply", "decision_path"):
        with pytest.raises(NotFittedError):
            getattr(on_array(), call)(X)
    with pytest.raises(NotFittedError):
        _ = on_array().trees_


def test_pickle_predicts_the_same():
    X = frame()
    for leaf in LEAVES:
        model = on_frame(leaf=leaf).fit(X, labels(X))
        copy = pickle.loads(pickle.dumps(model))
        assert np.array_equal(copy.predict_proba(X), model.predict_proba(X))
        assert copy.privacy_ == model.privacy_ and copy.domain_ == model.domain_


def test_pickles_have_a_format_version():
    X, y = table()
    for model in (on_array(), on_array().fit(X, y)):
        state = model.__getstate__()
        assert state["format_version"] == ledger.FORMAT_VERSION == 1
        assert not hasattr(pickle.loads(pickle.dumps(model)), "format_version")
        for other in (2, 0, None, "1"):
            with pytest.raises(ValueError) as caught:
                on_array().__setstate__({**state, "format_version": other})
            assert f"format version {other}" in str(caught.value)
            assert f"lumberjack {__version__} reads version 1" in str(caught.value)
        del state["format_version"]
        with pytest.raises(ValueError, match="format version None"):
            on_array().__setstate__(state)


def test_the_version_of_scikit_learn_is_not_asked_for():
    # Only public parts of it are in use, so that a model outlives it without a warning.
    X, y = table()
    assert b"_sklearn_version" not in pickle.dumps(on_array().fit(X, y))


def test_a_single_row_given_to_predict_is_refused_clearly():
    X, y = table()
    model = on_array().fit(X, y)
    with pytest.raises(ValueError, match="Reshape your data"):
        model.predict(X[0])


# Threads


@pytest.mark.parametrize("leaf", LEAVES)
def test_the_number_of_jobs_changes_nothing(leaf):
    X, y = table(9000)
    models = [
        fit(on_array(n_estimators=9, leaf=leaf, random_state=4, n_jobs=n_jobs), X, y)
        for n_jobs in (None, 1, 2, 5, -1)
    ]
    assert all(released(model) == released(models[0]) for model in models)
    answers = [model.predict_proba(X).tobytes() for model in models]
    assert answers == [answers[0]] * len(models)
    leaves = [model.apply(X).tobytes() for model in models]
    assert leaves == [leaves[0]] * len(models)


def test_rows_are_predicted_independently_of_each_other():
    X, y = table(5000)
    model = on_array(n_estimators=9, n_jobs=2, epsilon=20).fit(X, y)
    expected = model.predict_proba(X)
    order = np.random.default_rng(1).permutation(len(X))
    assert np.array_equal(model.predict_proba(X[order]), expected[order])
    assert np.array_equal(model.predict_proba(np.asfortranarray(X)), expected)
    assert np.array_equal(model.predict_proba(X[17:18]), expected[17:18])
    assert np.array_equal(model.predict_proba(X[100:131]), expected[100:131])


# Wrong input


def refused(model, X, y, *parts, error=ValueError):
    """Fit must raise a clear message that tells nothing of the data and leave no trace."""
    with pytest.raises(error) as caught:
        model.fit(X, y)
    message = str(caught.value)
    for part in parts:
        assert part in message, message
    assert CANARY_TEXT not in message and "7654321" not in message
    # The number of records, of those in X[:-1], and the number of the row with the canary.
    for number in (N_RECORDS, N_RECORDS - 1, 29, 30):
        assert not re.search(rf"\b{number}\b", message), message
    assert not learned(model)


def column_with(X, column, value):
    """A frame with one value changed."""
    X = X.astype({column: object})
    X.loc[29, column] = value
    return X


X_FRAME = frame()
Y_FRAME = labels(X_FRAME)
WRONG_PARAMETERS = {
    "epsilon": [0, -1, math.nan, -math.inf, "1", None, True, 1j, [1.0]],
    "delta": [0, 1, -1e-6, 1.5, math.nan, math.inf, "x", None, False],
    "n_estimators": [0, -3, 1.5, 30.0, "30", None, True],
    "max_depth": [0, -1, 1024, 2.0, "x", None, True],
    "records_per_unit": [0, -2, 1.5, "x", None, True],
    "threshold": [-1, 0, 1, math.nan, math.inf, "x", True],
    "splitter": ["best", None, 3],
    "leaf": ["count", None, ["counts"]],
    "accounting": ["rdp", None, 0],
    "budget_shares": [
        {"structure": 0.75, "leaves": 0.2},
        {"structure": 1.5, "leaves": -0.5},
        {"structure": 1, "leaves": 0},
        {"structure": 0, "leaves": 1},
        {"structure": 1},
        {"structure": 0.5, "leafs": 0.5},
        {"structure": "much", "leaves": 0.5},
        {"structure": math.nan, "leaves": 0.5},
        [0.75, 0.25],
        0.5,
    ],
    "random_state": [-1, 1.5, "x", True, np.random.default_rng(0)],
    "n_jobs": [0],
    "verbose": ["x", None, -1, 0.5],
}


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in WRONG_PARAMETERS.items() for value in values],
)
def test_wrong_parameters_are_refused(name, value):
    refused(on_frame(**{name: value}), X_FRAME, Y_FRAME, name, error=(ValueError, TypeError))


def test_a_budget_that_cannot_carry_finite_precision_is_refused():
    refused(on_frame(epsilon=1e-9), X_FRAME, Y_FRAME, "epsilon", "finite precision", "larger")
    refused(on_frame(delta=1e-300), X_FRAME, Y_FRAME, "delta", "finite precision", "larger")


WRONG_DECLARATIONS = [
    ({"bounds": None}, 'bounds={"age": (lo, hi), "hours": (lo, hi)}'),
    ({"bounds": {"age": (17, 90)}}, 'bounds={"hours": (lo, hi)}'),
    ({"bounds": {"age": (90, 17), "hours": (0, 1)}}, "bounds of 'age' are reversed"),
    ({"bounds": (1, 0)}, "bounds are reversed"),
    ({"bounds": {"age": (17, math.inf), "hours": (0, 1)}}, "bounds of 'age' must be finite"),
    ({"bounds": {"age": (math.nan, 9), "hours": (0, 1)}}, "bounds of 'age' must be finite"),
    ({"bounds": {**BOUNDS, "salary": (0, 1)}}, "bounds names 'salary'"),
    ({"bounds": {**BOUNDS, "age": "x"}}, "bounds of 'age' must be a pair"),
    ({"bounds": {**BOUNDS, "age": (0, 1, 2)}}, "bounds of 'age' must be a pair"),
    ({"bounds": {**BOUNDS, "sex": (0, 1)}}, "both bounds and categories name 'sex'"),
    ({"bounds": 3}, "bounds must be"),
    ({"bounds": "guess"}, '"infer"'),
    ({"categories": None}, 'categories={"sex": [...]}'),
    ({"categories": {"sex": []}}, "'sex' has no categories"),
    ({"categories": {"sex": ["a", "a"]}}, "the categories of 'sex' repeat one"),
    ({"categories": {"sex": ["a", None]}}, "the categories of 'sex' hold a missing value"),
    ({"categories": {"sex": "Male"}}, "the categories of 'sex' must be a list"),
    ({"categories": {**CATEGORIES, "job": ["a"]}}, "categories names 'job'"),
    ({"categories": 3}, "categories must be"),
    ({"classes": None}, "classes=[...]"),
    ({"classes": ["yes"]}, "classes declares less than two"),
    ({"classes": []}, "classes"),
    ({"classes": ["yes", "yes", "no"]}, "classes repeats a label"),
    ({"classes": ["yes", "no", None]}, "classes holds a missing value"),
    ({"classes": ["yes", "no", 3]}, "classes must hold text only"),
    ({"classes": [0.5, 1.5]}, "continuous"),
    ({"classes": 2}, "classes must be a list"),
    ({"classes": ["yes", "maybe"]}, "not in classes"),
]


@pytest.mark.parametrize(("changes", "part"), WRONG_DECLARATIONS)
def test_wrong_declarations_are_refused(changes, part):
    refused(on_frame(**changes), X_FRAME, Y_FRAME, part, error=(ValueError, TypeError))


WRONG_TABLES = {
    "no records": (X_FRAME[:0], "minimum of 1 is required", ValueError),
    "no columns": (X_FRAME[[]], "X has 0 feature(s)", ValueError),
    "infinity": (X_FRAME.assign(hours=-np.inf), "column 'hours' holds infinite", ValueError),
    "one infinity": (column_with(X_FRAME, "age", np.inf), "'age' holds infinite", ValueError),
    "text": (column_with(X_FRAME, "age", "canary"), "column 'age' holds text", ValueError),
    "a list": (column_with(X_FRAME, "age", [7654321.5]), "column 'age' holds", TypeError),
    "no such column": (X_FRAME.drop(columns="hours"), "names 'hours', which is not", ValueError),
    "repeated name": (X_FRAME.set_axis(["age", "age", "sex"], axis=1), "'age'; rename", ValueError),
    "mixed names": (X_FRAME.set_axis(["age", 1, "sex"], axis=1), "string names", TypeError),
    "sparse": (sparse.csr_array(np.eye(N_RECORDS)), "names 'sex', which is not", ValueError),
    "complex": (X_FRAME.assign(age=1j), "column 'age' is complex", ValueError),
    "dates": (X_FRAME.assign(age=pd.Timestamp(0)), "column 'age' holds dates", TypeError),
    "one dimension": (np.zeros(N_RECORDS), "Expected 2D array", ValueError),
    "three dimensions": (np.zeros((N_RECORDS, 2, 2)), "dim 3", ValueError),
    "ragged": ([[0, 1]] * (N_RECORDS - 1) + [[1]], "not rectangular", ValueError),
    "a number": (7654321.5, "Expected 2D array", ValueError),
    "nothing": (None, "Expected 2D array", ValueError),
}


@pytest.mark.parametrize("kind", WRONG_TABLES)
def test_wrong_tables_are_refused(kind):
    X, part, error = WRONG_TABLES[kind]
    refused(on_frame(), X, Y_FRAME[:0] if kind == "no records" else Y_FRAME, part, error=error)


@pytest.mark.parametrize(
    ("y", "part", "error"),
    [
        (np.where(np.arange(N_RECORDS) == 29, "canary", Y_FRAME), "not in classes", ValueError),
        ([None, *Y_FRAME[1:]], "missing label", ValueError),
        ([CANARY_NUMBER, *Y_FRAME[1:]], "numbers, which the classes are not", ValueError),
        (Y_FRAME[:-1], "differ in their numbers of records", ValueError),
        (None, "requires y to be passed", ValueError),
        (np.column_stack([Y_FRAME, Y_FRAME]), "1d array", ValueError),
        ("yes", "1d array", ValueError),
        (sparse.csr_array(np.ones((N_RECORDS, 1))), "y is sparse", TypeError),
    ],
)
def test_wrong_labels_are_refused(y, part, error):
    refused(on_frame(), X_FRAME, y, part, error=error)


@pytest.mark.parametrize(
    ("X", "y", "changes"),
    [
        (X_FRAME, Y_FRAME, {"epsilon": -1}),
        (X_FRAME, Y_FRAME, {"bounds": None}),
        (X_FRAME.assign(age=np.inf), Y_FRAME, {}),
        (X_FRAME, Y_FRAME[:-1], {}),
        (X_FRAME, np.repeat("other", N_RECORDS), {}),
    ],
)
def test_a_failed_refit_leaves_the_estimator_as_it_was(X, y, changes):
    model = on_frame().fit(X_FRAME, Y_FRAME)
    before = learned(model)
    model.set_params(**changes)
    with pytest.raises(ValueError):
        model.fit(X, y)
    after = learned(model)
    assert after.keys() == before.keys()
    assert all(after[name] is value for name, value in before.items())


def test_a_failure_of_the_kernel_leaves_the_estimator_as_it_was(monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("the source of random bits failed; nothing was fitted")

    X, y = table()
    new, old = on_array(), on_array().fit(X, y)
    before = learned(old)
    for module, name in ((forest._forest, "grow_forest"), (forest, "release_leaves")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, broken)
            for model in (new, old):
                with pytest.raises(RuntimeError, match="random bits"):
                    model.fit(X, y)
    assert not learned(new)
    assert learned(old).keys() == before.keys()
    assert all(learned(old)[name] is value for name, value in before.items())


# Accuracy: the toy of Figure 1

TOY_METHODS = {
    "paper": {
        "splitter": "random",
        "n_estimators": 25,
        "max_depth": 100,
        "leaf": "majority",
        "accounting": "split",
    },
    "default": {},
}


@pytest.mark.parametrize("scale", [1, 10, 1000])
@pytest.mark.parametrize("method", TOY_METHODS)
def test_the_toy_keeps_its_accuracy_on_every_range(scale, method):
    X, y, bounds = make_moons_and_blob(scale)
    model = LumberjackClassifier(
        epsilon=2, bounds=bounds, classes=["red", "green", "blue"], **TOY_METHODS[method]
    )
    # The guide's score has 32 bins for the whole range: scaled, the moons lie in few of them.
    assert model.fit(X, y).score(X, y) > (0.94 if method == "default" else 0.97)


def test_fully_random_trees_of_depth_10_collapse_on_the_largest_range():
    scores = {}
    for scale in (1, 1000):
        X, y, bounds = make_moons_and_blob(scale)
        model = LumberjackClassifier(
            25, bounds=bounds, classes=["red", "green", "blue"], **NOISELESS
        )
        # One forest in a hundred is lucky there, so take the mean of some.
        scores[scale] = np.mean([model.fit(X, y).score(X, y) for _ in range(9)])
    assert scores[1] > 0.97 and scores[1000] < 0.85


# Votes


def test_rows_without_a_vote_get_the_prior():
    X, y = table()
    model = on_array(n_estimators=1, epsilon=15, splitter="random").fit(X, y)
    leaves = model.trees_[0].leaf[model.apply(X)[:, 0]]
    model.leaf_votes_[:] = np.maximum(model.leaf_votes_, 0.01)
    before = model.predict_proba(X)
    silent = leaves == leaves[0]
    assert 0 < silent.sum() < len(X)
    model.class_prior_ = np.array([0.25, 0.75])
    model.leaf_votes_[leaves[0]] = 0
    answers = model.predict_proba(X)
    assert (answers[silent] == [0.25, 0.75]).all()
    assert (model.predict(X)[silent] == 1).all()
    assert np.array_equal(answers[~silent], before[~silent])
    model.leaf_votes_[:] = 0
    assert (model.predict_proba(X) == [0.25, 0.75]).all()


# Verbose


def test_quiet_unless_asked(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    X, y = table()
    on_array().fit(X, y).predict(X)
    assert capsys.readouterr() == ("", "")
    model = on_array(verbose=1).fit(X, y)
    out, err = capsys.readouterr()
    assert str(model.privacy_) in out and err == ""
    assert f"released 4 trees with {len(model.leaf_votes_)} leaves" in out


# Interruption, forks and memory


@contextlib.contextmanager
def interrupted_after(seconds):
    """Raise KeyboardInterrupt in the main thread, as Ctrl-C does."""

    def interrupt(signum, stack):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def endless(**changes):
    """A forest that takes minutes on the data of `endless_table`."""
    return on_array(n_estimators=2000, epsilon=math.inf, threshold=1, max_depth=500, **changes)


def endless_table():
    return table(100_000, n_features=4)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ctrl_c_stops_the_fit(n_jobs):
    X, y = endless_table()
    model = endless(n_jobs=n_jobs)
    with interrupted_after(0.3), pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert not learned(model)
    small, y_small = table()
    fitted = on_array().fit(small, y_small)
    before = learned(fitted)
    fitted.set_params(**model.get_params())
    with interrupted_after(0.3), pytest.raises(KeyboardInterrupt):
        fitted.fit(X, y)
    assert all(learned(fitted)[name] is value for name, value in before.items())
    assert on_array().fit(small, y_small).predict(small).shape == y_small.shape


def test_ctrl_c_waits_for_the_kernel(monkeypatch):
    ended = threading.Event()

    def grow(*args, **kwargs):
        try:
            return kernel(*args, **kwargs)
        finally:
            time.sleep(0.2)  # a kernel that is slow to give up
            ended.set()

    kernel = forest._forest.grow_forest
    monkeypatch.setattr(forest._forest, "grow_forest", grow)
    X, y = endless_table()
    with interrupted_after(0.2), pytest.raises(KeyboardInterrupt):
        endless(splitter="random").fit(X, y)
    early = not ended.is_set()
    assert ended.wait(30)
    assert not early


def test_ctrl_c_between_two_queries_of_the_guide(monkeypatch):
    asked = []

    def marginals(self):
        asked.append(self)
        while not self._stop[0]:
            time.sleep(0.01)
        return original(self)

    original = forest.guide.Queries.marginals
    monkeypatch.setattr(forest.guide.Queries, "marginals", marginals)
    X, y = table()
    model = on_array(splitter="guided")
    with interrupted_after(0.2), pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert asked and learned(model) == {}


def in_a_fork(function, seconds=60):
    """Run a function in a forked process and return its text; fail if it hangs."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Newer Pythons warn of forks while other threads run, which is what this is about.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            answer = function()
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        with contextlib.suppress(BaseException):
            os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], seconds)
        if not ready:
            os.kill(child, signal.SIGKILL)
        answer = os.read(reading, 65536).decode() if ready else "the forked process hangs"
    finally:
        os.close(reading)
        os.waitpid(child, 0)
    return answer


def test_fit_then_fork_then_predict_and_fit_with_threads():
    X, y = table(9000)
    model = on_array(n_jobs=2).fit(X, y)
    expected = model.predict_proba(X)

    def again():
        assert np.array_equal(model.predict_proba(X), expected)
        assert model.apply(X).shape == (len(X), 4)
        other = on_array(n_jobs=2).fit(X, y)
        assert np.isfinite(other.predict_proba(X)).all()
        return "done"

    assert in_a_fork(again) == "done"
    assert in_a_fork(lambda: in_a_fork(again)) == "done"


def test_no_memory_is_a_memory_error():
    X, y = endless_table()
    on_array().fit(X, y)
    model = endless(n_jobs=1).set_params(n_estimators=10)

    def starve():
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        limit = used + 16 * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            model.fit(X, y)
        except MemoryError:
            return f"MemoryError, learned: {list(learned(model))}"
        return "fitted"

    if not os.path.exists("/proc/self/statm"):
        pytest.skip("the memory in use is read from /proc")
    assert in_a_fork(starve) == "MemoryError, learned: []"


def test_a_message_that_cannot_be_shown_leaves_a_whole_model(monkeypatch):
    X = np.random.default_rng(0).random((300, 2))
    settings = {**SETTINGS, "bounds": (0, 1)}
    model = LumberjackClassifier(**settings, classes=[0, 1], class_weight="balanced")
    model.fit(X, (X[:, 0] > 0.5).astype(int))

    def fail(*args, **options):
        if args and str(args[0]).startswith("released"):
            raise OSError("no terminal")

    monkeypatch.setattr("builtins.print", fail)
    model.set_params(classes=[5, 6], class_weight=None, verbose=1)
    with pytest.raises(OSError, match="no terminal"):
        model.fit(X, np.where(X[:, 0] > 0.5, 6, 5))
    assert model.classes_.tolist() == [5, 6] and not hasattr(model, "class_weight_")
    assert set(model.predict(X)) <= {5, 6}
