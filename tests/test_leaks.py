"""Nothing of the records leaves a fit but outputs of the mechanism, and no two fits share noise."""

import contextlib
import hashlib
import io
import math
import os
import pickle
import re
import select
import signal
import struct
import sys
import threading
import types
import warnings
import weakref
from collections import Counter
from unittest import mock

import numpy as np
import oracle
import pandas as pd
import pytest
from joblib import Parallel, delayed
from scipy import sparse
from scipy.stats import chi2_contingency

from lumberjack import (
    Domain,
    LumberjackClassifier,
    LumberjackRegressor,
    PrivacyLeakWarning,
    forest,
    guide,
    inspection,
    leaves,
    noise,
)
from lumberjack._tree import NODE_DTYPE

LEAVES = ("counts", "majority")
METHODS = (("guided", "joint"), ("random", "joint"), ("random", "split"))
MODES = [
    pytest.param(
        {
            "splitter": splitter,
            "leaf": leaf,
            "accounting": accounting,
            "random_state": seed,
            **budget,
        },
        id="-".join(
            [splitter, leaf, accounting, "inf" if "threshold" in budget else "finite", str(seed)]
        ),
    )
    for splitter, accounting in METHODS
    for leaf in LEAVES
    for budget in ({"epsilon": 4.0}, {"epsilon": math.inf, "threshold": 40})
    for seed in (None, 7)
]

BOUNDS = {"age": (17, 90), "hours": (0, 99)}
CATEGORIES = {"sex": ["Female", "Male"], "job": ["clerk", "nurse", "smith"]}
CLASSES = ["no", "yes"]
NAMES = ["age", "hours", "sex", "job"]

# What a fitted classifier holds beside its parameters.
PUBLIC = {"domain_", "classes_", "privacy_", "n_features_in_", "feature_names_in_"}
RELEASED = {
    "nodes_", "tree_offsets_", "leaf_offsets_", "leaf_votes_", "class_prior_", "leaf_counts_",
    "guide_",
}  # fmt: skip


def frame(n_records=400, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(17, 91, n_records).astype(float),
            "hours": rng.uniform(0, 99, n_records),
            "sex": rng.choice(CATEGORIES["sex"], n_records).astype(object),
            "job": rng.choice(CATEGORIES["job"], n_records).astype(object),
        }
    )


def labels(X):
    return np.where(X["age"].fillna(0) > 50, "yes", "no").astype(object)


def model(**changes):
    settings = {"n_estimators": 5, "epsilon": 4.0, "delta": 1e-3, "max_depth": 15}
    declared = {"bounds": BOUNDS, "categories": CATEGORIES, "classes": CLASSES}
    return LumberjackClassifier(**{**settings, **declared, **changes})


def fit(estimator, X, y):
    """Fit without the warning that the fit is seeded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return estimator.fit(X, y)


def learned(estimator):
    return {name: value for name, value in vars(estimator).items() if name.endswith("_")}


def released(estimator):
    """The released arrays, those of the guide too."""
    found = {name: value for name, value in learned(estimator).items() if name in RELEASED}
    own = found.pop("guide_")
    if own is None:
        return found
    for name in ("n_categories", "tables", "intercepts"):
        found[f"guide_.score.{name}"] = getattr(own.score, name)
    found["guide_.feature_weights"] = own.feature_weights
    parts = zip(own.score.inner_edges, own.threshold_cdfs, own.category_weights, strict=True)
    for f, (edges, cdf, weights) in enumerate(parts):
        found[f"guide_.score.inner_edges[{f}]"] = edges
        if cdf is not None:
            found[f"guide_.threshold_cdfs[{f}].edges"] = cdf[0]
            found[f"guide_.threshold_cdfs[{f}].cdf"] = cdf[1]
        if weights is not None:
            found[f"guide_.category_weights[{f}]"] = weights
    return found


def arrays(estimator):
    """The released arrays as bytes."""
    return {
        name: (value.dtype, value.shape, value.tobytes())
        for name, value in released(estimator).items()
    }


@contextlib.contextmanager
def kernel(**overrides):
    """Call the kernel with changed arguments and keep the exact results it returns."""
    results = []

    def grow(*args, **kwargs):
        results.append(original(*args, **{**kwargs, **overrides}))
        return results[-1]

    original = forest._forest.grow_forest
    with mock.patch.object(forest._forest, "grow_forest", grow):
        yield results


@contextlib.contextmanager
def conversation(given=None):
    """Keep the noisy answers of the guide's queries, or give these instead."""
    answers = []

    def noisy(self, sums, *rest):
        answers.append(original(self, sums, *rest) if given is None else given[len(answers)])
        return answers[-1].copy()

    original = guide.Queries._noisy
    with mock.patch.object(guide.Queries, "_noisy", noisy):
        yield answers


# Canaries: one record's value, searched for in everything that can be seen

CANARY_TEXT = "canary-quetzal"
CANARY_NUMBER = 7654321.5
CANARY_LABEL = 918273645
N_CANARY = 70_001  # too large to appear by chance as four bytes
CANARY_ROW = 69_990  # more than there are records of a class: no count by chance


def hides_in(value, data):
    """Whether a value can be found in bytes, as text or as a machine number."""
    whole = not isinstance(value, str) and int(value) == value
    texts = {str(value), repr(value)} | ({str(int(value)), str(float(value))} if whole else set())
    for code in ("utf-8", "utf-16-le", "utf-32-le"):
        if any(found_alone(text.encode(code), data, len("0".encode(code))) for text in texts):
            return True
    if isinstance(value, str):
        return False
    packed = [struct.pack(form, value) for form in ("<d", ">d", "<f", ">f")]
    if whole:  # in two bytes they would be found by chance
        packed += [struct.pack(form, int(value)) for form in ("<i", ">i", "<q", ">q")]
    return any(own in data for own in packed)


def found_alone(text, data, width):
    """Whether a text is in bytes, but not as a part of a longer number."""
    at = data.find(text)
    while at >= 0:
        around = data[max(at - width, 0) : at][:1], data[at + len(text) :][:1]
        if not any(own and own in b"0123456789." for own in around):
            return True
        at = data.find(text, at + 1)
    return False


def everything_visible(estimator, X, y):
    """All that a fit and its result show, as bytes."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        estimator.set_params(verbose=2).fit(X, y)
    assert all(own.category is PrivacyLeakWarning for own in caught)
    texts = [out.getvalue(), err.getvalue(), *(str(own.message) for own in caught)]
    texts += [repr(estimator), str(estimator), repr(estimator.privacy_), str(estimator.privacy_)]
    texts += [repr(estimator.domain_), repr(estimator.domain_.to_dict())]
    texts += [repr(vars(estimator)), estimator._repr_html_(), repr(estimator.trees_)]
    texts += [repr(value.tolist()) for value in released(estimator).values()]
    pickles = [pickle.dumps(estimator, protocol) for protocol in (0, 2, 5)]
    raw = [own[2] for own in arrays(estimator).values()]
    return [*(text.encode() for text in texts), *pickles, *raw]


def assert_absent(values, seen):
    for value in values:
        for own in seen:
            assert not hides_in(value, own), (value, own[:200])


@pytest.fixture(scope="module")
def canary_table():
    X = frame(N_CANARY)
    X.loc[CANARY_ROW, "job"] = CANARY_TEXT
    X.loc[CANARY_ROW, "age"] = CANARY_NUMBER
    X.loc[CANARY_ROW, "hours"] = -CANARY_NUMBER
    return X, labels(X)


CANARIES = [CANARY_TEXT, CANARY_NUMBER, -CANARY_NUMBER, N_CANARY, CANARY_ROW]


@pytest.mark.parametrize("mode", MODES)
def test_canaries_are_nowhere(mode, canary_table):
    seen = everything_visible(model(n_estimators=2, max_depth=7, **mode), *canary_table)
    assert_absent(CANARIES, seen)


@pytest.mark.parametrize("mode", [{}, {"epsilon": math.inf, "threshold": 40}])
def test_canaries_in_an_array_are_nowhere(mode):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 5, (N_CANARY, 2)).astype(float)
    X[CANARY_ROW] = [CANARY_NUMBER, CANARY_LABEL]
    y = rng.integers(0, 2, N_CANARY)
    declared = {"bounds": {0: (0, 5)}, "categories": {1: range(5)}, "classes": [0, 1]}
    seen = everything_visible(model(max_depth=7, **declared, **mode), X, y)
    assert_absent([CANARY_NUMBER, CANARY_LABEL, N_CANARY, CANARY_ROW], seen)


def test_the_search_for_canaries_finds_them(canary_table):
    # A forest in which each of them was hidden in one more place.
    estimator = model(n_estimators=2).fit(*canary_table)
    for hidden in (CANARY_TEXT, [CANARY_NUMBER], N_CANARY, np.array([CANARY_ROW]), {N_CANARY: 1}):
        estimator.extra_ = hidden
        with pytest.raises(AssertionError):
            assert_absent(CANARIES, [pickle.dumps(estimator), repr(vars(estimator)).encode()])
    del estimator.extra_
    estimator.class_prior_ = np.array([0.5, CANARY_NUMBER], dtype=np.float32)
    with pytest.raises(AssertionError):
        assert_absent(CANARIES, [pickle.dumps(estimator)])


@pytest.mark.parametrize(
    "change",
    [
        lambda X, y: (X, np.where(np.arange(len(y)) == 61, CANARY_TEXT, y)),
        lambda X, y: (X, [*y[:-1], CANARY_LABEL]),
        lambda X, y: (X, [*y[:-1], None]),
        lambda X, y: (X.assign(age=[CANARY_TEXT, *X.age[1:]]), y),
        lambda X, y: (X.assign(age=[[CANARY_NUMBER], *X.age[1:]]), y),
        lambda X, y: (X.assign(hours=[math.inf, *X.hours[1:]]), y),
        lambda X, y: (X, y[:-1]),
        lambda X, y: (X.assign(age=pd.Timestamp(CANARY_LABEL)), y),
        lambda X, y: (sparse.csr_array(np.full((len(X), 4), math.inf)), y),
        lambda X, y: (X.assign(job=[CANARY_TEXT, *X.job[1:]]).drop(columns="sex"), y),
    ],
)
@pytest.mark.parametrize("declared", [{}, {"bounds": None}, {"categories": None}])
def test_errors_tell_nothing_of_the_records(change, declared):
    n_records = 397
    X, y = change(frame(n_records), labels(frame(n_records)))
    estimator = model(**declared)
    with pytest.raises((ValueError, TypeError)) as caught:
        estimator.fit(X, y)
    shown = [str(caught.value), repr(caught.value), repr(caught.value.args)]
    cause = caught.value.__cause__ or (
        None if caught.value.__suppress_context__ else caught.value.__context__
    )
    shown += [repr(cause)] if cause else []
    assert_absent([CANARY_TEXT, CANARY_NUMBER, CANARY_LABEL], [own.encode() for own in shown])
    for number in (n_records, n_records - 1, 60, 61, 62, "inf"):
        assert not any(re.search(rf"\b{number}\b", own) for own in shown)
    assert not learned(estimator)


# The fitted object: nothing beside public values and released arrays


@pytest.mark.parametrize("mode", MODES)
def test_attributes_are_the_documented_ones(mode):
    X = frame()
    estimator = fit(model(**mode), X, labels(X))
    expected = PUBLIC | RELEASED - ({"leaf_counts_"} if mode["leaf"] == "majority" else set())
    assert vars(estimator).keys() == expected | estimator.get_params().keys()
    assert set(vars(estimator.domain_)) == {
        "feature_names", "lower", "upper", "categories", "classes", "target_bounds", "inferred",
        "named",
    }  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_the_object_graph_holds_plain_values_and_exact_arrays(mode):
    # No closures, no views into larger buffers, no arrays of objects with something behind them.
    X = frame()
    estimator = fit(model(**mode), X, labels(X))
    plain = (str, int, float, bool, type(None), np.generic)
    todo, seen = [*learned(estimator).values()], set()
    while todo:
        value = todo.pop()
        if id(value) in seen or isinstance(value, (*plain, type)):
            continue
        seen.add(id(value))
        if isinstance(value, np.ndarray):
            assert type(value) is np.ndarray
            assert value.flags.c_contiguous
            # A base is the same memory in another shape (of numpy.linspace), never more of it.
            base = value if value.base is None else value.base
            assert type(base) is np.ndarray and base.flags.owndata
            assert base.nbytes == value.nbytes
            todo += value.ravel().tolist() if value.dtype.kind == "O" else []
        elif isinstance(value, dict):
            todo += [*value, *value.values()]
        elif isinstance(value, (tuple, list)):
            todo += value
        else:
            assert type(value).__module__.startswith("lumberjack."), type(value)
            assert not isinstance(value, (types.FunctionType, types.MethodType))
            todo.append(vars(value))


def without_released(estimator):
    """Pickle of an estimator whose released arrays are taken out."""
    copy = pickle.loads(pickle.dumps(estimator))
    for name in RELEASED & vars(copy).keys():
        delattr(copy, name)
    return pickle.dumps(copy)


@pytest.mark.parametrize("mode", MODES)
def test_without_the_released_arrays_the_pickle_does_not_depend_on_the_data(mode):
    X = frame()
    odd = frame(37, seed=9)
    odd.loc[:, "job"] = "unheard of"
    odd.loc[3:9, "age"] = 1e300
    odd.loc[5:20, "sex"] = None
    tables = [(X, labels(X)), (odd, np.repeat("no", 37)), (X[:1], ["yes"])]
    pickles = {without_released(fit(model(**mode), *own)) for own in tables}
    assert len(pickles) == 1


@pytest.mark.parametrize("mode", MODES)
def test_the_same_outputs_of_the_mechanism_give_the_same_pickle(mode, monkeypatch):
    # The kernel answers for other data with what it found in the first; the noise is the same.
    X = frame()
    odd = frame(37, seed=9).assign(job="unheard of", age=1e300)
    monkeypatch.setattr(
        noise.SystemBits, "draw", lambda self, purpose, paths, n: np.ones((len(paths), n), "u8")
    )
    with kernel() as exact, conversation() as answers:
        first = pickle.dumps(fit(model(**mode), X, labels(X)))
    assert len(answers) == (2 * guide.N_ROUNDS + 3) * (mode["splitter"] == "guided")
    monkeypatch.setattr(forest._forest, "grow_forest", lambda *args, **kwargs: exact[0])
    with conversation(answers):
        second = fit(model(**mode), odd, np.repeat("no", 37))
    assert pickle.dumps(second) == first
    assert all(value.dtype.metadata is None for value in released(second).values())


def test_the_length_of_a_pickle_depends_on_the_size_of_the_forest_only():
    lengths = set()
    for n_records, seed in ((5, 0), (300, 1), (9000, 2)):
        X = frame(n_records, seed)
        stumps = model(threshold=1e6).fit(X, labels(X))
        assert len(stumps.nodes_) == stumps.n_estimators
        lengths.add(len(pickle.dumps(stumps)))
    assert len(lengths) == 1


@pytest.mark.parametrize("mode", MODES)
def test_verbose_output_depends_on_released_values_only(mode, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)  # its bar shows times
    # The advice for forests without splits reads the released forest, as its own tests show.
    monkeypatch.setattr(inspection, "advise", lambda model: [])
    shown = []
    for n_records in (3, 400):
        X = frame(n_records)
        estimator = fit(model(verbose=3, **mode), X, labels(X))
        n_leaves = f" {len(estimator.leaf_votes_)} leaves"
        out, err = capsys.readouterr()
        assert err == "" and n_leaves in out
        shown.append(out.replace(n_leaves, " some leaves"))
    assert shown[0] == shown[1]


def test_warnings_do_not_depend_on_the_data():
    shown = []
    for n_records in (3, 400):
        X = frame(n_records)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model(random_state=1, bounds="infer").fit(X, labels(X))
        shown.append([str(own.message) for own in caught])
    assert shown[0] == shown[1] and len(shown[0]) == 2


def test_advice_depends_on_released_values_only(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    for n_records in (3, 41):
        X = frame(n_records)
        estimator = model(verbose=1, threshold=1e6).fit(X, labels(X))
        shown = capsys.readouterr().out
        advice = "\n".join(inspection.advise(pickle.loads(pickle.dumps(estimator))))
        assert advice and shown.endswith(f"{advice}\n")


@pytest.mark.parametrize("class_weight", ["balanced", {"yes": 3}])
def test_class_weights_follow_from_what_the_leaves_released(class_weight):
    X = frame()
    y = labels(X)
    plain, weighted = (
        fit(model(random_state=3, class_weight=w), X, y) for w in (None, class_weight)
    )
    assert vars(weighted).keys() - vars(plain).keys() == {"class_weight_"}
    assert arrays(plain) == arrays(weighted)
    expected = np.array([1 / 3, 1])
    if class_weight == "balanced":
        sigma = weighted.privacy_.calibration.sigma_leaves
        expected = leaves.balanced_weights(plain.leaf_counts_, sigma)
    assert np.array_equal(weighted.class_weight_, expected)


# Canonical node arrays


def pack(tree):
    """The node array of a tree, rebuilt from its plain arrays."""
    nodes = np.zeros(len(tree.feature), dtype=NODE_DTYPE)
    leaf = tree.leaf >= 0
    nodes["feature"] = tree.feature
    nodes["threshold"] = tree.threshold
    nodes["right"] = np.where(leaf, tree.leaf, tree.children_right)
    nodes["flags"] = tree.missing_go_to_left + 2 * tree.is_categorical
    return nodes


def test_the_node_type_has_no_padding():
    assert NODE_DTYPE.itemsize == sum(NODE_DTYPE[name].itemsize for name in NODE_DTYPE.names)
    assert not NODE_DTYPE.isalignedstruct and not NODE_DTYPE.hasobject
    assert [NODE_DTYPE.fields[name][1] for name in NODE_DTYPE.names] == [0, 4, 8, 12]
    assert all(NODE_DTYPE[name].str[0] == "<" for name in NODE_DTYPE.names)


@pytest.mark.parametrize("mode", MODES)
def test_node_arrays_are_canonical(mode):
    X = frame()
    estimator = fit(model(**mode), X, labels(X))
    trees = estimator.trees_
    packed = np.concatenate([pack(tree) for tree in trees])
    assert packed.dtype == estimator.nodes_.dtype == NODE_DTYPE
    assert packed.tobytes() == estimator.nodes_.tobytes()
    ends = np.cumsum([0] + [len(tree.feature) for tree in trees])
    leaf_ends = np.cumsum([0] + [int((tree.leaf >= 0).sum()) for tree in trees])
    assert np.array_equal(estimator.tree_offsets_, ends)
    assert np.array_equal(estimator.leaf_offsets_, leaf_ends)
    assert len(estimator.leaf_votes_) == leaf_ends[-1]
    for tree in trees:
        leaf = tree.leaf >= 0
        # Leaves are numbered in depth-first order and are zero otherwise, not even minus zero.
        assert tree.leaf[leaf].tolist() == list(range(leaf.sum()))
        assert tree.threshold[leaf].tobytes() == bytes(4 * leaf.sum())
        assert not tree.is_categorical[leaf].any() and not tree.missing_go_to_left[leaf].any()
        assert right_children(tree) == tree.children_right.tolist()


def right_children(tree):
    """Where the right children must be in depth-first order."""
    sizes = [1] * len(tree.feature)
    rights = [-1] * len(tree.feature)
    for i in reversed(range(len(sizes))):
        if tree.leaf[i] < 0:
            rights[i] = i + 1 + sizes[i + 1]
            sizes[i] = 1 + sizes[i + 1] + sizes[rights[i]]
    assert sizes[0] == len(sizes)
    return rights


def plan_of(estimator):
    """The oracle's plan of an estimator: the declared domain, and the guide if there is one."""
    domain, own = estimator.domain_, estimator.guide_
    if own is None:
        return oracle.NaivePlan(domain.n_categories, domain.lower, domain.upper)
    n_scores = own.score.n_scores
    return oracle.NaivePlan(
        [*domain.n_categories] + [0] * n_scores,
        [*domain.lower] + [0] * n_scores,
        [*domain.upper] + [1] * n_scores,
        own.feature_weights,
        [*own.threshold_cdfs] + [None] * n_scores,
        [*own.category_weights] + [None] * n_scores,
    )


@pytest.mark.parametrize("mode", [own for own in MODES if own.values[0]["random_state"]])
def test_a_tree_is_a_function_of_the_seed_and_its_shape(mode):
    # Which nodes are split is the mechanism's output; how, follows from the public seed and from
    # the guide alone.
    X = frame()
    estimator = fit(model(**mode), X, labels(X))
    plan = plan_of(estimator)
    split_seed, _ = noise.derive_keys(mode["random_state"])
    splits = 0
    for t, tree in enumerate(estimator.trees_):
        todo = [(0, 0, oracle.root_path(split_seed, t), plan.root_state())]
        while todo:
            i, depth, path, state = todo.pop()
            if tree.leaf[i] >= 0:
                continue
            split = oracle.choose_split(plan, path, state)
            assert depth < estimator.max_depth
            if mode["splitter"] == "guided" and not split["categorical"]:
                # The oracle inverts densities to rounding only.
                assert split["threshold"] == pytest.approx(tree.threshold[i], rel=1e-5, abs=1e-5)
                split["threshold"] = float(tree.threshold[i])
            assert split == {
                "feature": tree.feature[i],
                "threshold": tree.threshold[i],
                "categorical": tree.is_categorical[i],
                "missing_left": tree.missing_go_to_left[i],
            }
            children = tree.children_left[i], tree.children_right[i]
            states = oracle.child_states(state, split)
            todo += zip(children, [depth + 1] * 2, oracle.child_paths(path), states, strict=True)
            splits += 1
    assert splits > 5


# Neighbours: one record more changes the exact counts under the noise, and nothing else


def tables_with_and_without(seed, place):
    """A table, and the same with one record more at a place between the others."""
    X = frame(400, seed)
    record = pd.DataFrame({"age": [33.0], "hours": [40.0], "sex": ["Male"], "job": ["nurse"]})
    if seed % 3 == 1:
        record = record.assign(age=np.nan, job="unheard of", hours=1e9)
    larger = pd.concat([X[:place], record, X[place:]], ignore_index=True)
    y = labels(X)
    return (X, y), (larger, np.concatenate([y[:place], ["yes"], y[place:]])), record


def by_path(estimator, exact):
    """Split nodes and leaves of a forest by the hash of their path.

    Returns
    -------
    splits : dict from path to (feature, threshold, flags)
    leaves : dict from path to (exact counts, released counts or votes)
    """
    splits, leaves = {}, {}
    released = getattr(estimator, "leaf_counts_", estimator.leaf_votes_)
    split_seed, _ = noise.derive_keys(estimator.random_state)
    for t, tree in enumerate(estimator.trees_):
        todo = [(0, oracle.root_path(split_seed, t))]
        while todo:
            i, path = todo.pop()
            if tree.leaf[i] >= 0:
                number = estimator.leaf_offsets_[t] + tree.leaf[i]
                assert exact[4][number] == path
                leaves[path] = exact[3][number], released[number]
                continue
            own = tree.feature[i], tree.threshold[i], tree.is_categorical[i]
            splits[path] = (*own, tree.missing_go_to_left[i])
            left, right = oracle.child_paths(path)
            todo += [(tree.children_left[i], left), (tree.children_right[i], right)]
    return splits, leaves


def paths_of_record(estimator, record):
    """The hashes of the nodes that a record passes."""
    split_seed, _ = noise.derive_keys(estimator.random_state)
    indicator, ends = estimator.decision_path(record)
    passed = set(indicator.indices.tolist())
    found = set()
    for t, tree in enumerate(estimator.trees_):
        i, path = 0, oracle.root_path(split_seed, t)
        found.add(path)
        while tree.leaf[i] < 0:
            left, right = oracle.child_paths(path)
            goes_left = ends[t] + tree.children_left[i] in passed
            children = (tree.children_left[i], left), (tree.children_right[i], right)
            i, path = children[0 if goes_left else 1]
            found.add(path)
    return found


@pytest.mark.parametrize("lazy", [False, True], ids=["plain tests", "lazy tests"])
@pytest.mark.parametrize("leaf", LEAVES)
def test_neighbours_differ_by_one_record_under_the_same_noise(leaf, lazy):
    agreed = differed = 0
    for seed in range(24):
        smaller, larger, record = tables_with_and_without(seed, place=(400, 0, 123)[seed % 3])
        settings = {"splitter": "random", "leaf": leaf, "random_state": seed, "epsilon": 3.0}
        estimators = [model(**settings) for _ in range(2)]
        with kernel(lazy=lazy) as exact:
            for estimator, own in zip(estimators, (smaller, larger), strict=True):
                fit(estimator, *own)
        (splits, leaves), (splits_more, leaves_more) = map(by_path, estimators, exact)
        passed = paths_of_record(estimators[0], record) | paths_of_record(estimators[1], record)
        # Node by node: what is split in both is split alike.
        assert all(splits[path] == splits_more[path] for path in splits.keys() & splits_more.keys())
        # Leaf by leaf: the same noise over exact counts that differ by this record only.
        for path in leaves.keys() & leaves_more.keys():
            (counts, shown), (counts_more, shown_more) = leaves[path], leaves_more[path]
            contribution = [0, 1] if path in passed else [0, 0]
            assert (counts_more - counts).tolist() == contribution
            if leaf == "counts":
                assert (shown_more - shown).tolist() == contribution
            elif path not in passed:
                assert shown.tolist() == shown_more.tolist()
        # Split in one and a leaf in the other: with plain tests, only where the record was.
        edge = (splits.keys() & leaves_more.keys()) | (leaves.keys() & splits_more.keys())
        assert lazy or edge <= passed
        same = [
            arrays(estimator)["nodes_"] == arrays(estimators[0])["nodes_"]
            for estimator in estimators
        ]
        if all(same):
            agreed += 1
            inside = [path in passed for path in leaves]
            assert sum(inside) == estimators[0].n_estimators
            assert not edge
        else:
            differed += 1
    assert agreed >= 5, "there are forests of equal structure to compare"
    assert differed >= 1, "there are forests of unequal structure to compare"


@pytest.mark.parametrize("mu", [0.3, 3.0])
def test_neighbours_differ_by_one_record_in_the_first_answer_of_the_guide(mu):
    for seed in range(12):
        smaller, larger, record = tables_with_and_without(seed, place=(400, 0, 123)[seed % 3])
        declared = {"bounds": BOUNDS, "categories": CATEGORIES, "classes": CLASSES}
        domain = Domain.declare(*smaller, **declared)
        answers = []
        for X, y in (smaller, larger):
            with conversation() as own:
                codes = domain.encode_classes(y)
                found = guide.fit_guide(
                    domain.encode(X), codes, domain, 2, mu, noise.SeededBits(seed)
                )
            answers.append(own)
        # The same noise in every cell, and the record in its own cell of each feature.
        score = oracle.NaiveScore(domain.n_categories, found.score.inner_edges)
        encoded = domain.encode(record, layout="rows")[0]
        expected = oracle.sum_up(answers[0][0].shape, [score.marginals(encoded, 1, 2, 1)])
        assert np.array_equal(answers[1][0] - answers[0][0], expected)
        unknown = seed % 3 == 1  # its job is; its age is missing
        assert expected.sum() == 4 - unknown


def test_neighbours_differ_by_one_record_given_the_same_answers():
    # Later questions follow from earlier answers; given them, the record adds what it would alone.
    X, y = np.random.default_rng(0).random((400, 3)), np.arange(400) % 2
    domain = Domain.declare(X, y, bounds=(0, 1), classes=[0, 1])
    encoded, codes = domain.encode(X), domain.encode_classes(y)

    def sums_of(which, given=None):
        exact, answers = [], []

        def noisy(self, sums, *rest):
            exact.append(sums.copy())
            answers.append(original(self, sums, *rest) if given is None else given[len(answers)])
            return answers[-1].copy()

        original = guide.Queries._noisy
        with mock.patch.object(guide.Queries, "_noisy", noisy):
            table = np.ascontiguousarray(encoded[:, which]), np.ascontiguousarray(codes[which])
            guide.fit_guide(*table, domain, 2, 1.0, noise.SeededBits(3))
        return exact, answers

    without, answers = sums_of(slice(399))
    with_it, _ = sums_of(slice(None), answers)
    nothing, _ = sums_of([], answers)
    alone, _ = sums_of([399], answers)
    for less, more, empty, own in zip(without, with_it, nothing, alone, strict=True):
        assert not empty.any() and np.array_equal(more - less, own)
    assert alone[0].sum() == 3 and alone[-1].sum() == 1


def test_the_noise_of_a_leaf_depends_on_key_path_and_cell_only():
    X = frame(3000)
    with kernel() as exact:
        estimator = fit(model(random_state=11), X, labels(X))
    _, bits = noise.derive_keys(11)
    words = bits.draw("leaf counts", exact[0][4], 2)
    drawn = noise.rounded_gaussian(words, estimator.privacy_.calibration.sigma_leaves)
    assert np.array_equal(estimator.leaf_counts_, exact[0][3] + drawn)
    assert len(np.unique(exact[0][4])) == len(drawn)
    empty = exact[0][3].sum(axis=1) == 0
    assert empty.any() and (drawn[empty] != 0).any(), "empty leaves get noise, too"


@pytest.mark.parametrize("mode", MODES)
def test_votes_and_prior_follow_from_what_the_leaves_released(mode):
    X = frame(3000)
    estimator = fit(model(**mode), X, labels(X))
    if mode["leaf"] == "majority":
        votes = estimator.leaf_votes_
        assert set(np.unique(votes)) <= {0, 1} and (votes.sum(axis=1) == 1).all()
        assert (estimator.class_prior_ == 0.5).all()
        return
    sigma = estimator.privacy_.calibration.sigma_leaves
    clipped = np.maximum(estimator.leaf_counts_, 0)
    total = clipped.sum(axis=1, keepdims=True)
    weights = total / np.where(total > 0, total + sigma, 1)
    shares = clipped / np.maximum(total, 1)
    np.testing.assert_allclose(estimator.leaf_votes_, weights * shares, rtol=1e-12)
    np.testing.assert_allclose(estimator.class_prior_, clipped.sum(axis=0) / clipped.sum())


# Order and layout of the records


def permuted(X, y, seed):
    order = np.random.default_rng(seed).permutation(len(X))
    return X.iloc[order], y[order]


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("budget", [{"epsilon": 3.0}, {"epsilon": math.inf, "threshold": 5}])
def test_the_order_of_the_records_is_nowhere(leaf, budget):
    # With lazy tests noise belongs to places in a node: see the next test for them.
    X = frame(700)
    y = labels(X)
    lazy = "threshold" in budget
    with kernel(lazy=lazy):
        expected = arrays(fit(model(leaf=leaf, random_state=1, **budget), X, y))
        for seed in range(4):
            again = fit(model(leaf=leaf, random_state=1, **budget), *permuted(X, y, seed))
            assert arrays(again) == expected


def shapes(X, y, seed, n_trees):
    """How often each released shape occurs among many small trees with lazy tests."""
    bits = noise.SeededBits(seed)
    problem = {
        "X": np.ascontiguousarray(X.T, dtype=np.float32),
        "y": y.astype(np.int32),
        "n_classes": 2,
        "n_categories": np.zeros(2, dtype=np.int32),
        "lower": np.zeros(2, dtype=np.float32),
        "upper": np.ones(2, dtype=np.float32),
    }
    table = oracle.gaussian_table(12, 6.0, slack=9, max_count=len(X))
    nodes, offsets, *_ = oracle.kernel_forest(problem, 7, table, seed, n_trees, bits, lazy=True)
    leaf = (nodes["feature"] < 0).astype(np.int8)
    return Counter(leaf[a:b].tobytes() for a, b in zip(offsets[:-1], offsets[1:], strict=True))


def test_the_order_of_the_records_does_not_change_the_distribution_of_lazy_tests():
    rng = np.random.default_rng(3)
    X = rng.random((14, 2))
    X[:9] *= 0.2
    y = np.arange(14) % 2
    order = np.argsort(X[:, 0])
    orders = (np.arange(14), order, order[::-1])
    found = [shapes(X[own], y[own], seed, 25_000) for seed, own in enumerate(orders)]
    total = sum(found, Counter())
    common = [shape for shape, count in total.items() if count >= 30]
    observed = np.array([[own[shape] for shape in common] for own in found])
    rest = 25_000 - observed.sum(axis=1, keepdims=True)
    assert len(common) >= 8
    result = chi2_contingency(np.concatenate([observed, rest], axis=1))
    assert result.pvalue > 1e-4


def padded(values):
    """The same numbers as a field of records with garbage between them."""
    dtype = np.dtype({"names": ["row"], "formats": [(float, values.shape[1])], "itemsize": 64})
    memory = np.random.default_rng(0).bytes(64 * len(values))
    records = np.frombuffer(bytearray(memory), dtype=dtype)
    records["row"] = values
    return records["row"]


LAYOUTS = {
    "Fortran": np.asfortranarray,
    "every other": lambda X: np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2],
    "backwards": lambda X: X[::-1].copy()[::-1],
    "big-endian": lambda X: X.astype(">f8"),
    "float32": lambda X: X.astype(np.float32),
    "objects": lambda X: X.astype(object),
    "list": lambda X: X.tolist(),
    "padded": padded,
    "frame": lambda X: pd.DataFrame(X),
    "fragments": lambda X: pd.concat([pd.Series(own) for own in X.T], axis=1),
    "shuffled index": lambda X: pd.DataFrame(X, index=np.arange(len(X))[::-1]),
    "extension types": lambda X: pd.DataFrame(X).astype("Float64"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_layout_is_nowhere(layout):
    X = np.random.default_rng(5).random((500, 3))
    y = (X[:, 0] > 0.5).astype(int)
    declared = {"bounds": (0, 1), "categories": None, "classes": [0, 1], "random_state": 2}
    expected = fit(model(**declared), X, y)
    again = fit(model(**declared), LAYOUTS[layout](X), y)
    assert pickle.dumps(again) == pickle.dumps(expected)
    assert len(expected.nodes_) > 3 * expected.n_estimators


@pytest.mark.parametrize("layout", LAYOUTS)
def test_labels_layout_is_nowhere(layout):
    X = np.random.default_rng(5).random((500, 3))
    y = (X[:, :1] > 0.5).astype(float)
    declared = {"bounds": (0, 1), "categories": None, "classes": [0.0, 1.0], "random_state": 2}
    expected = fit(model(**declared), X, y[:, 0])
    arranged = LAYOUTS[layout](y)
    arranged = arranged[0] if isinstance(arranged, pd.DataFrame) else np.asarray(arranged)[:, 0]
    assert pickle.dumps(fit(model(**declared), X, arranged)) == pickle.dumps(expected)


def test_the_encoding_of_a_record_does_not_depend_on_the_others():
    X = frame(200)
    X = X.astype(object)
    X.loc[3, "age"] = 10**400
    X.loc[4, "age"] = 2**53 + 1
    X.loc[5:9, "age"] = None
    X.loc[10:14, "job"] = [CANARY_TEXT, None, 7, True, pd.NA]
    X.loc[15:18, "hours"] = [1e300, -1e-320, 16777217, np.float32(0.1)]
    declared = {"bounds": BOUNDS, "categories": CATEGORIES, "classes": CLASSES}
    domain = Domain.declare(X, labels(frame(200)), **declared)
    whole = domain.encode(X, layout="rows")
    for form in (X, X.to_numpy(), X.values.tolist()):
        assert domain.encode(form, layout="rows").tobytes() == whole.tobytes()
        assert np.ascontiguousarray(domain.encode(form).T).tobytes() == whole.tobytes()
    for i in range(200):
        assert domain.encode(X[i : i + 1]).tobytes() == whole[i].tobytes()
    for size in (7, 64, 199):
        parts = [domain.encode(X[i : i + size], layout="rows") for i in range(0, 200, size)]
        assert np.concatenate(parts).tobytes() == whole.tobytes()
    order = np.random.default_rng(2).permutation(200)
    assert domain.encode(X.iloc[order], layout="rows").tobytes() == whole[order].tobytes()
    others = pd.concat([X, X[3:19], X[:1]], ignore_index=True)
    assert domain.encode(others, layout="rows")[:200].tobytes() == whole.tobytes()


# After encoding, only the query functions touch the records


class Sealed:
    """Stands for private values: tells their shape, refuses and notes everything else."""

    touched = []

    def __init__(self, value):
        object.__setattr__(self, "_value", value)

    def __getattribute__(self, name):
        if name == "__class__":
            return Sealed
        if name in ("shape", "ndim"):
            return getattr(open_seal(self), name)
        touch(name)


def open_seal(sealed):
    """What a query function may do."""
    return object.__getattribute__(sealed, "_value")


def touch(name):
    Sealed.touched.append(name)
    raise AssertionError(f"private values were read by {name}")


SPECIAL_METHODS = [
    "len", "iter", "next", "getitem", "setitem", "contains", "reversed", "array",
    "array_ufunc", "array_function", "array_wrap", "array_finalize", "eq", "ne", "lt", "le",
    "gt", "ge", "hash", "bool", "int", "float", "index", "complex", "str", "repr", "format",
    "bytes", "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "matmul",
    "rmatmul", "mod", "neg", "pos", "abs", "and", "or", "xor", "invert", "copy", "deepcopy",
    "reduce", "reduce_ex", "getstate", "sizeof", "enter", "exit", "call", "dlpack",
    "dataframe",
]  # fmt: skip
for _name in SPECIAL_METHODS:
    setattr(
        Sealed, f"__{_name}__", lambda self, *args, _name=_name, **kwargs: touch(f"__{_name}__")
    )

SUMS = {
    "class_marginals": 1,
    "residual_sums": guide.N_ROUNDS,
    "curvature_sums": guide.N_ROUNDS + 1,
    "score_histogram": 1,
}


@pytest.fixture
def sealed(monkeypatch):
    """Hand fit sealed records, classes and exact sums; only the queries can open them.

    Exact sums of the guide are sealed until they get their noise; the score columns are written
    to the sealed records.
    """
    Sealed.touched.clear()
    counts = Counter()

    def query(kernel):
        def sums(X, *args):
            counts[kernel.__name__] += 1
            caller = sys._getframe(1).f_locals.get("self")
            assert type(caller) is guide.Queries and type(X) is Sealed
            args = [open_seal(own) if type(own) is Sealed else own for own in args]
            return Sealed(kernel(open_seal(X), *args))

        return sums

    def noisy(self, sums, *args):
        assert type(sums) is Sealed
        return add_noise(self, open_seal(sums), *args)

    def fill(self, X, *args):
        counts["fill_columns"] += 1
        assert type(X) is Sealed
        fill_columns(self, open_seal(X), *args)

    add_noise, fill_columns = guide.Queries._noisy, guide.Score.fill_columns
    for name in SUMS:
        monkeypatch.setattr(guide._guide, name, query(getattr(guide._guide, name)))
    monkeypatch.setattr(guide.Queries, "_noisy", noisy)
    monkeypatch.setattr(guide.Score, "fill_columns", fill)

    def seal(method):
        def encode(self, *args, **kwargs):
            counts[method.__name__] += 1
            return Sealed(method(self, *args, **kwargs))

        return encode

    def grow(encoded, codes, *args, **kwargs):
        counts["grow_forest"] += 1
        assert type(encoded) is type(codes) is Sealed
        *structure, leaf_counts, leaf_paths = grow_forest(
            open_seal(encoded), open_seal(codes), *args, **kwargs
        )
        return *structure, Sealed(leaf_counts), leaf_paths

    def release(leaf_counts, *args, **kwargs):
        counts["release_leaves"] += 1
        assert type(leaf_counts) is Sealed
        return release_leaves(open_seal(leaf_counts), *args, **kwargs)

    grow_forest, release_leaves = forest._forest.grow_forest, forest.release_leaves
    monkeypatch.setattr(Domain, "encode", seal(Domain.encode))
    monkeypatch.setattr(Domain, "encode_classes", seal(Domain.encode_classes))
    monkeypatch.setattr(Domain, "encode_target", seal(Domain.encode_target))
    monkeypatch.setattr(forest._forest, "grow_forest", grow)
    monkeypatch.setattr(forest, "release_leaves", release)
    return counts


@pytest.mark.parametrize("mode", [own for own in MODES if own.values[0]["random_state"]])
def test_only_the_query_functions_read_the_encoded_records(mode, request):
    X = frame()
    expected = arrays(fit(model(**mode), X, labels(X)))
    counts = request.getfixturevalue("sealed")
    estimator = fit(model(verbose=0, **mode), X, labels(X))
    assert arrays(estimator) == expected
    assert Sealed.touched == []
    expected_counts = dict.fromkeys(
        ("encode", "encode_classes", "grow_forest", "release_leaves"), 1
    )
    if mode["splitter"] == "guided":
        expected_counts |= {**SUMS, "fill_columns": 1}
    assert counts == expected_counts


def regressor(**changes):
    settings = {"n_estimators": 5, "epsilon": 4.0, "delta": 1e-3, "max_depth": 15}
    declared = {"bounds": BOUNDS, "categories": CATEGORIES, "target_bounds": (-10, 10)}
    return LumberjackRegressor(**{**settings, **declared, **changes})


def targets(X):
    return X["age"].fillna(0).to_numpy() / 10 - X["hours"].to_numpy() / 50


@pytest.mark.parametrize("splitter", ["guided", "random"])
@pytest.mark.parametrize("budget", [{}, {"epsilon": math.inf, "threshold": 40}])
def test_only_the_query_functions_read_the_records_of_a_regression(splitter, budget, request):
    X = frame()
    settings = {"splitter": splitter, "random_state": 7, **budget}
    expected = arrays(fit(regressor(**settings), X, targets(X)))
    counts = request.getfixturevalue("sealed")
    assert arrays(fit(regressor(**settings), X, targets(X))) == expected
    assert Sealed.touched == []
    once = ("encode", "encode_target", "grow_forest", "release_leaves")
    guided = {**SUMS, "fill_columns": 1} if splitter == "guided" else {}
    assert counts == {**dict.fromkeys(once, 1), **guided}


@pytest.mark.parametrize("splitter", ["guided", "random"])
@pytest.mark.parametrize("budget", [{}, {"epsilon": math.inf, "threshold": 40}])
def test_canaries_in_a_regression_are_nowhere(splitter, budget):
    X = frame(N_CANARY)
    y = targets(X)
    y[CANARY_ROW] = CANARY_NUMBER
    X.loc[CANARY_ROW, "hours"] = -CANARY_NUMBER
    estimator = regressor(n_estimators=2, max_depth=7, splitter=splitter, **budget)
    seen = everything_visible(estimator, X, y)
    assert_absent([CANARY_NUMBER, -CANARY_NUMBER, N_CANARY, CANARY_ROW], seen)


@pytest.mark.parametrize("splitter", ["guided", "random"])
def test_without_the_released_arrays_a_regression_does_not_depend_on_the_data(splitter):
    X, few = frame(), frame(37, seed=9).assign(job="unheard of", age=1e300)
    tables = [(X, targets(X)), (few, np.full(37, 1e9)), (X[:1], [0.0])]
    pickles = {without_released(regressor(splitter=splitter).fit(*own)) for own in tables}
    assert len(pickles) == 1


@pytest.mark.parametrize("bounds", [(-1.7e308, 1.7e308), (0.0, 5e-324)])
def test_target_bounds_whose_range_no_float_holds_are_refused(bounds):
    # Else soft labels left their range, and one record counted for more than one.
    with pytest.raises(ValueError, match="target_bounds are too close together or too far apart"):
        Domain((), (), (), (), target_bounds=bounds)


@pytest.mark.parametrize("bounds", [(-8e307, 8e307), (0.0, 1e-300), (-5.0, 12.5)])
def test_soft_labels_stay_in_their_range(bounds):
    domain = Domain((), (), (), (), target_bounds=bounds)
    codes = domain.encode_target([*bounds, 0.0, -1e308, 1e308], 100)
    assert codes.min() == 0 and codes.max() == 100


READERS = [
    np.asarray, np.sum, np.mean, np.isnan, len, list, max, hash, bool, repr, str, pickle.dumps,
    lambda own: own[0], lambda own: own + 1, lambda own: own.tobytes(), lambda own: own.sum(),
    lambda own: own.dtype, lambda own: own.T, lambda own: own == 1, lambda own: 0 in own,
    lambda own: f"{own}", lambda own: own.__dict__, lambda own: own._value,
]  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
def test_the_seal_notices_every_reader(reader, sealed, monkeypatch):
    # A fit that reads the records anywhere else fails, even if it swallows the exception.
    def grow(self, encoded, *rest):
        with contextlib.suppress(BaseException):
            reader(encoded)
        return original(self, encoded, *rest)

    original = LumberjackClassifier._grow
    monkeypatch.setattr(LumberjackClassifier, "_grow", grow)
    X = frame()
    estimator = model()
    estimator.fit(X, labels(X))
    assert Sealed.touched


class Table:
    """An array-like of which only the shape can be read once it is closed."""

    def __init__(self, values):
        self.values, self.closed = values, False

    @property
    def shape(self):
        return self.values.shape

    def __array__(self, dtype=None, copy=None):
        assert not self.closed, "the table was read after it had been encoded"
        return self.values

    def __len__(self):
        assert not self.closed, "the records were counted after they had been encoded"
        return len(self.values)

    def __getitem__(self, item):
        assert not self.closed, "the table was read after it had been encoded"
        return self.values[item]


def test_the_table_itself_is_not_read_after_encoding(monkeypatch):
    X = np.random.default_rng(0).random((300, 2))
    y = (X[:, 0] > 0.5).astype(int)
    table, targets = Table(X), Table(y)

    def encode_classes(self, y):
        codes = original(self, y)
        table.closed = targets.closed = True
        return codes

    original = Domain.encode_classes
    monkeypatch.setattr(Domain, "encode_classes", encode_classes)
    declared = {"bounds": (0, 1), "categories": None, "classes": [0, 1], "random_state": 2}
    estimator = fit(model(**declared), table, targets)
    assert table.closed and targets.closed and estimator.n_features_in_ == 2
    with pytest.raises(AssertionError, match="after it had been encoded"):
        np.asarray(table)


@pytest.mark.parametrize("mode", MODES)
def test_private_arrays_do_not_outlive_the_fit(mode, monkeypatch):
    private = []

    def watch(kernel, *results):
        def watched(X, y, *args, **kwargs):
            result = kernel(X, y, *args, **kwargs)
            exact = [result[i] for i in results] if results else [result]
            private.extend(weakref.ref(own) for own in (X, y, *exact) if type(own) is np.ndarray)
            return result

        return watched

    kernels = [(forest._forest, "grow_forest", 3, 4)]
    kernels += [(guide._guide, name) for name in (*SUMS, "evaluate_score")]
    for module, name, *results in kernels:
        monkeypatch.setattr(module, name, watch(getattr(module, name), *results))
    X = frame()
    estimator = fit(model(**mode), X, labels(X))
    n_queries = sum(SUMS.values()) if mode["splitter"] == "guided" else 0
    assert len(private) >= 4 + 2 * n_queries and all(own() is None for own in private)
    assert hasattr(estimator, "nodes_")


# Randomness


@contextlib.contextmanager
def words_drawn():
    """Note every 64-bit word that comes from the operating system."""
    words, lock = [], threading.Lock()

    def draw(self, purpose, paths, n):
        block = original(self, purpose, paths, n)
        with lock:
            words.extend(block.ravel().tolist())
        return block

    original = noise.SystemBits.draw
    with mock.patch.object(noise.SystemBits, "draw", draw):
        yield words


def fit_and_tell(X, y, n_jobs=1):
    """Fit without a seed; what came out, and the words that were drawn for it."""
    with words_drawn() as words:
        estimator = model(n_jobs=n_jobs).fit(X, y)
    return {"words": words, "model": hashlib.sha256(pickle.dumps(estimator)).hexdigest()}


def assert_independent(fits):
    """No word is drawn twice; 64 bits make a coincidence a matter of 10^-10."""
    assert len({own["model"] for own in fits}) == len(fits)
    words = [word for own in fits for word in own["words"]]
    assert len(words) > 500 * len(fits)
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_two_fits_do_not_share_noise(n_jobs):
    X = frame()
    assert_independent([fit_and_tell(X, labels(X), n_jobs) for _ in range(4)])


def test_fits_in_threads_do_not_share_noise():
    X = frame()
    y = labels(X)
    with words_drawn() as words:
        estimators = Parallel(n_jobs=4, backend="threading")(
            delayed(model().fit)(X, y) for _ in range(8)
        )
    models = {pickle.dumps(own) for own in estimators}
    assert len(models) == 8 and len(set(words)) == len(words) > 4000


@pytest.mark.parametrize("backend", ["loky", "multiprocessing"])
def test_fits_in_workers_do_not_share_noise(backend):
    X = frame()
    y = labels(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks while threads run
        fits = Parallel(n_jobs=2, backend=backend)(delayed(fit_and_tell)(X, y) for _ in range(4))
    assert_independent([*fits, fit_and_tell(X, y)])


def in_a_fork(function, seconds=60):
    """Run a function in a forked process and return what it returns; fail if it hangs."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks while threads run
        child = os.fork()
    if child == 0:
        try:
            answer = pickle.dumps(function())
        except BaseException as error:
            answer = pickle.dumps(repr(error))
        with contextlib.suppress(BaseException), open(writing, "wb") as pipe:
            pipe.write(answer)
        os._exit(0)
    os.close(writing)
    try:
        if not select.select([reading], [], [], seconds)[0]:
            os.kill(child, signal.SIGKILL)
            return "the forked process hangs"
        with open(reading, "rb", closefd=False) as pipe:
            return pickle.loads(pipe.read())
    finally:
        os.close(reading)
        os.waitpid(child, 0)


def test_fits_after_a_fork_do_not_share_noise():
    X = frame()
    y = labels(X)
    before = fit_and_tell(X, y, n_jobs=2)
    children = [in_a_fork(lambda: fit_and_tell(X, y, n_jobs=2)) for _ in range(3)]
    assert_independent([before, *children, fit_and_tell(X, y, n_jobs=2)])


def test_an_estimator_copied_by_a_fork_or_a_pickle_draws_anew():
    X = frame()
    y = labels(X)
    estimator = model().fit(X, y)
    copy = pickle.loads(pickle.dumps(estimator))

    def refit():
        return pickle.dumps(estimator.fit(X, y))

    fits = [in_a_fork(refit), in_a_fork(refit), refit(), pickle.dumps(copy.fit(X, y))]
    assert len(set(fits)) == 4 and all(isinstance(own, bytes) for own in fits)


def test_bits_of_the_operating_system_are_drawn_in_blocks(monkeypatch):
    sizes = []

    def urandom(size):
        sizes.append(size)
        return original(size)

    original = os.urandom
    monkeypatch.setattr(noise.os, "urandom", urandom)
    X = frame(3000)
    estimator = model().fit(X, labels(X))
    n_words = sum(sizes) / 8
    assert n_words > len(sizes) * 100
    # The noise of all leaves is one block: nothing of a leaf decides how it is drawn.
    assert 8 * estimator.leaf_counts_.size in sizes


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_seed_is_reproducible_for_every_number_of_jobs(leaf):
    X = frame(2000)
    y = labels(X)
    fits = [
        arrays(fit(model(leaf=leaf, n_estimators=9, random_state=12, n_jobs=n_jobs), X, y))
        for n_jobs in (None, 1, 2, 4, -1, 1)
    ]
    assert all(own == fits[0] for own in fits)
    assert arrays(fit(model(leaf=leaf, n_estimators=9, random_state=13), X, y)) != fits[0]
    states = [
        arrays(fit(model(leaf=leaf, random_state=np.random.RandomState(3)), X, y)) for _ in range(2)
    ]
    assert states[0] == states[1]
    state = np.random.RandomState(3)
    follow = [arrays(fit(model(leaf=leaf, random_state=state), X, y)) for _ in range(2)]
    assert follow[0] == states[0] != follow[1]


def test_a_seeded_fit_does_not_touch_the_global_generators():
    X = frame()
    before = np.random.get_state()[1].tobytes()  # noqa: NPY002
    fit(model(random_state=12), X, labels(X))
    model().fit(X, labels(X))
    assert np.random.get_state()[1].tobytes() == before  # noqa: NPY002


def test_a_seed_gives_the_same_forest_on_every_machine():
    # Known answers, to be replaced only by a change that is meant to change seeded forests.
    X = np.stack([np.arange(600) * 7919 % 1024, np.arange(600) * 104729 % 1000], axis=1)
    y = (X[:, 0] > X[:, 1]).astype(int)
    declared = {"bounds": ([0, 0], [1024, 1000]), "categories": None, "classes": [0, 1]}
    estimator = fit(model(splitter="random", random_state=2024, **declared), X, y)
    known = hashlib.sha256(estimator.nodes_.tobytes() + estimator.leaf_counts_.tobytes())
    assert estimator.leaf_counts_[:3].tolist() == [[15, 0], [9, 2], [-3, 1]]
    assert known.hexdigest()[:16] == "3c266fe467e8fba6"


def test_splits_and_noise_of_a_seed_are_separate():
    # The public seed of the splits says nothing of the key of the noise.
    for seed in (0, 1, 2**70):
        split_seed, bits = noise.derive_keys(seed)
        keys = {bits.purpose_key(own) for own in ("test", "alarm", "thin", "keep", "leaf counts")}
        assert len(keys) == 5 and split_seed not in keys
        assert not {bits._key & (2**64 - 1), bits._key >> 64} & {split_seed, seed}
