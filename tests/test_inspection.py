import copy
import importlib.util
import itertools
import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure
from sklearn.base import BaseEstimator, clone
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.model_selection import GroupKFold, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from lumberjack import (
    Domain,
    LumberjackClassifier,
    LumberjackRegressor,
    PrivacyLeakWarning,
    PrivacyLedger,
    inspection,
)
from lumberjack.datasets import make_moons_and_blob
from lumberjack.inspection import (
    PrivacyBudgetDisplay,
    PrivacyUtilityDisplay,
    advise,
    export_text,
    feature_importances,
    plot_tree,
)
from lumberjack.leaves import SCORE_VOTE
from lumberjack.trees import Tree, path_matrix

pytestmark = pytest.mark.filterwarnings("ignore:random_state is given")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def people(n=6000, seed=0):
    """A table with a number, categories and missing values, and its declarations."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(17, 90, n)
    job = rng.choice(["baker", "clerk", "judge"], n)
    rich = rng.uniform(size=n) < np.where(job == "judge", 0.9, np.where(age > 50, 0.6, 0.1))
    age[rng.uniform(size=n) < 0.1] = np.nan
    X = pd.DataFrame({"age": age, "job": pd.Series(job).where(rng.uniform(size=n) > 0.1)})
    y = np.where(rich, "yes", "no")
    return X, y, {"bounds": {"age": (17, 90)}, "categories": {"job": ["baker", "clerk", "judge"]}}


def forest(n=6000, **parameters):
    X, y, public = people(n)
    parameters = {"n_estimators": 5, "random_state": 0, "epsilon": 4} | parameters
    return LumberjackClassifier(classes=["no", "yes"], **parameters, **public).fit(X, y)


def regression_forest(**parameters):
    hours = np.random.default_rng(0).uniform(0, 24, size=(5000, 1))
    demand = 50 - 40 * np.cos(hours[:, 0] / 12 * np.pi)
    model = LumberjackRegressor(
        5, bounds=(0, 24), target_bounds=(0, 100), random_state=0, **parameters
    )
    return model.fit(hours, demand)


# Text ---------------------------------------------------------------------------------------------


def read_rules(text, spacing=3):
    """The rules of a text as nested lists: [(condition, rules or leaf text), ...]."""
    lines = [
        (line.count("|") - 1, line.split("-" * spacing + " ", 1)[1]) for line in text.split("\n")
    ]

    def rules(start, depth):
        found, i = [], start
        while i < len(lines) and lines[i][0] >= depth:
            own_depth, own = lines[i]
            assert own_depth == depth
            if i + 1 < len(lines) and lines[i + 1][0] > depth:
                below, i = rules(i + 1, depth + 1)
                found.append((own, below))
            else:
                return own, i + 1
        return found, i

    return rules(0, 0)[0]


def holds(condition, row):
    condition, missing, _ = condition.partition(" or missing")
    for sign, test in (
        (" == ", lambda a, b: a == b),
        (" != ", lambda a, b: a != b),
        (" <= ", lambda a, b: a <= float(b)),
        (" >  ", lambda a, b: a > float(b)),
    ):
        if sign in condition:
            name, value = condition.split(sign)
            own = row[name]
            return bool(missing) if pd.isna(own) else test(own, value)
    raise AssertionError(condition)


def follow(rules, row):
    while not isinstance(rules, str):
        (rules,) = [below for condition, below in rules if holds(condition, row)]
    return rules


@pytest.mark.parametrize("splitter", ["random", "guided"])
def test_text_is_the_tree(splitter):
    model = forest(splitter=splitter)
    X, *_ = people(200, seed=1)
    rows = X.to_dict("records")
    for row, age in zip(rows, model.domain_.encode(X)[0], strict=True):
        row["age"] = age  # as float32, as the trees see it
    if splitter == "guided":
        scores = model.guide_.score.columns(model.domain_.encode(X))
        for row, score in zip(rows, scores[0], strict=True):
            row["guide's score of yes"] = score
    nodes = model.apply(X)
    for t, tree in enumerate(model.trees_):
        text = export_text(model, t, max_depth=None, decimals=9, show_missing=True)
        assert ("guide's score of yes" in text) == (splitter == "guided")
        rules = read_rules(text)
        counts = model.leaf_counts_[model.leaf_offsets_[t] : model.leaf_offsets_[t + 1]]
        for row, node in zip(rows, nodes[:, t], strict=True):
            votes, own = tree.votes[tree.leaf[node]], counts[tree.leaf[node]]
            answer = "no vote"
            if votes.any():
                share = 100 * (votes / votes.sum()).max()
                answer = f"class: {model.classes_[votes.argmax()]} ({share:.0f} %)"
            assert follow(rules, row) == f"{answer}, noisy counts {own[0]}, {own[1]}"


def test_text_of_a_short_tree():
    model = forest(epsilon=math.inf, threshold=6000, n_estimators=1, splitter="random")
    tree = model.trees_[0]
    assert len(tree.feature) == 3 and tree.feature[0] == 1
    category = ["baker", "clerk", "judge"][int(tree.threshold[0])]
    left, right = model.leaf_counts_
    for show_counts in (True, False):
        expected = []
        for sign, own in (("==", left), ("!=", right)):
            leaf = (
                f"class: {'yes' if own[1] > own[0] else 'no'} ({100 * own.max() / own.sum():.0f} %)"
            )
            leaf += f", noisy counts {own[0]}, {own[1]}" if show_counts else ""
            expected += [f"|-- job {sign} {category}", f"|  |-- {leaf}"]
        assert export_text(model, spacing=2, show_counts=show_counts).split("\n") == expected


def test_text_stops_at_max_depth():
    model = forest(n_estimators=1)
    tree = model.trees_[0]
    n_leaves = int((tree.leaf >= 0).sum())
    whole = export_text(model, max_depth=None).split("\n")
    depth = max(line.count("|") for line in whole) - 1
    assert export_text(model, max_depth=0) == (
        f"|--- truncated branch of depth {depth} with {n_leaves} leaves"
    )
    assert export_text(model, max_depth=depth).split("\n") == whole
    short = export_text(model, max_depth=2)
    assert max(line.count("|") for line in short.split("\n")) == 3
    below = [line.split(" with ")[1] for line in short.split("\n") if "truncated" in line]
    ends = sum("class:" in line or "no vote" in line for line in short.split("\n"))
    assert ends + sum(int(text.split()[0]) for text in below) == n_leaves


def test_text_of_regression_and_majority():
    model = regression_forest()
    counts = model.leaf_counts_[: model.leaf_offsets_[1]]
    lines = export_text(model, max_depth=None).split("\n")
    leaves = [line.split("value: ")[1] for line in lines if "value: " in line]
    shown = [float(leaf.split(",")[0]) for leaf in leaves]
    clipped = np.maximum(counts, 0)
    votes = clipped.sum(axis=1) > 0
    np.testing.assert_allclose(
        shown, 100 * clipped[votes, 1] / clipped[votes].sum(axis=1), atol=0.051
    )
    assert leaves[0].endswith(f"noisy count {counts[votes][0].sum():.0f}")
    majority = export_text(forest(leaf="majority"), max_depth=None)
    leaves = {line.split("--- ")[1] for line in majority.split("\n") if "class: " in line}
    assert leaves == {"class: no", "class: yes"}  # a share would be made up


def test_decimals_follow_the_declared_range():
    X = np.random.default_rng(0).uniform(size=(4000, 3)) * [1e-4, 10, 1e6]
    model = LumberjackClassifier(
        10, bounds=(np.zeros(3), [1e-4, 10, 1e6]), classes=[0, 1], splitter="random",
        random_state=0, epsilon=8,
    )  # fmt: skip
    model.fit(X, (X[:, 0] > 5e-5).astype(int))
    text = "\n".join(export_text(model, t, max_depth=None) for t in range(10))
    for name, decimals in zip(model.domain_.feature_names, (7, 2, 0), strict=True):
        shown = [line.split()[-1] for line in text.split("\n") if f" {name} " in line]
        assert shown and {len(value.partition(".")[2]) for value in shown} == {decimals}
    name = model.domain_.feature_names[1]
    line = next(
        line
        for line in export_text(model, decimals=5, max_depth=None).split("\n")
        if f" {name} " in line
    )
    assert len(line.split(".")[1]) == 5


class Chain(BaseEstimator):
    """A model with a tree so deep that recursion would fail."""

    n_levels = 1100

    def fit(self):
        n_nodes = 2 * self.n_levels + 1
        is_leaf = np.arange(n_nodes) % 2 == 1
        is_leaf[-1] = True
        nodes = np.arange(n_nodes)
        n_leaves = self.n_levels + 1
        self.leaf_offsets_ = np.array([0, n_leaves])
        self.leaf_counts_ = np.tile([3, 1], (n_leaves, 1))
        self.domain_ = Domain(["x"], [0], [1], [None], classes=[0, 1])
        self.guide_ = None
        self.trees_ = [
            Tree(
                children_left=np.where(is_leaf, -1, nodes + 1),
                children_right=np.where(is_leaf, -1, nodes + 2),
                feature=np.where(is_leaf, -1, 0),
                threshold=np.full(n_nodes, 0.5, dtype=np.float32),
                is_categorical=np.zeros(n_nodes, dtype=bool),
                missing_go_to_left=np.zeros(n_nodes, dtype=bool),
                leaf=np.where(is_leaf, np.cumsum(is_leaf) - 1, -1),
                votes=np.tile([0.75, 0.25], (n_leaves, 1)),
            )
        ]
        return self

    trees_ = None


def test_deep_trees():
    model = Chain().fit()
    assert export_text(model, max_depth=0) == "|--- truncated branch of depth 1100 with 1101 leaves"
    assert len(export_text(model, max_depth=None).split("\n")) == 2 * 1100 + 1101
    labels = [text.get_text() for text in plot_tree(model, max_depth=1)]
    assert labels[0].startswith("x\n<= 0.500\n≈ 4,404 records\nclass: 0 (75 %)")
    assert labels[1:] == [
        "≈ 4 records\nclass: 0 (75 %)",
        "≈ 4,400 records\nclass: 0 (75 %)\n(1100 leaves below)",
    ]


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"tree": 5}, ValueError, "tree must be from 0 to 4, got 5"),
        ({"tree": -1}, ValueError, "tree must be"),
        ({"tree": 1.0}, TypeError, "tree must be an integer"),
        ({"max_depth": -1}, ValueError, "max_depth must be"),
        ({"max_depth": 2.5}, TypeError, "max_depth must be an integer"),
        ({"decimals": -1}, ValueError, "decimals must be"),
    ],
)
@pytest.mark.parametrize("function", [export_text, plot_tree])
def test_wrong_parameters(function, parameters, error, message):
    with pytest.raises(error, match=message):
        function(forest(), **parameters)


@pytest.mark.parametrize(
    "function",
    [export_text, plot_tree, feature_importances, advise, PrivacyBudgetDisplay.from_estimator],
)
def test_only_fitted_forests(function):
    with pytest.raises(NotFittedError):
        function(LumberjackClassifier())
    X, y, public = people()
    step = LumberjackClassifier(classes=["no", "yes"], **public)
    pipeline = make_pipeline(FunctionTransformer(), step).fit(X, y)
    with pytest.raises(TypeError, match=r"got Pipeline; .*pipeline\[-1\]"):
        function(pipeline)
    function(pipeline[-1])


# Picture of a tree --------------------------------------------------------------------------------


def boxes_of(texts):
    figure = texts[0].figure
    figure.canvas.draw()
    return [text.get_bbox_patch().get_window_extent() for text in texts]


@pytest.mark.parametrize("max_depth", [0, 2, 4])
@pytest.mark.parametrize("make", [forest, regression_forest, lambda: forest(leaf="majority")])
def test_nodes_do_not_overlap(make, max_depth):
    model = make()
    for t in range(2):
        texts = plot_tree(model, t, max_depth=max_depth)
        boxes, whole = boxes_of(texts), texts[0].figure.bbox
        for one, other in itertools.combinations(boxes, 2):
            assert not one.overlaps(other)
        for box in boxes:
            assert whole.x0 <= box.x0 and box.x1 <= whole.x1
            assert whole.y0 <= box.y0 and box.y1 <= whole.y1


def test_picture_tells_counts_and_classes():
    model = forest(n_estimators=1)
    texts = plot_tree(model, max_depth=1)
    root, left, right = (text.get_text().split("\n") for text in texts)
    total = model.leaf_counts_.sum()
    clipped = np.maximum(model.leaf_counts_.sum(axis=0), 0)
    assert root[2:] == [
        f"≈ {total:,} records",
        f"class: {['no', 'yes'][clipped.argmax()]} ({100 * clipped.max() / clipped.sum():.0f} %)",
    ]
    numbers = [int(own[0].split()[1].replace(",", "")) for own in (left, right)]
    assert sum(numbers) == total
    words = {text.get_text() for text in texts[0].axes.texts} - {t.get_text() for t in texts}
    assert words == {"yes", "no"}
    # Left is where the condition holds.
    assert texts[1].get_position()[0] < texts[0].get_position()[0] < texts[2].get_position()[0]


def test_picture_colours_by_class():
    X, y, bounds = make_moons_and_blob()
    model = LumberjackClassifier(
        3, bounds=bounds, classes=["blue", "green", "red"], random_state=0, epsilon=8
    ).fit(X, y)
    found = {}
    for text in plot_tree(model, max_depth=5):
        share = text.get_text().partition("class: ")[2].partition(" %")[0]
        name, _, percent = share.partition(" (")
        colour = np.array(text.get_bbox_patch().get_facecolor()[:3])
        found.setdefault(name, []).append((int(percent), colour))
    for number, name in enumerate(["blue", "green", "red"]):
        percent, colour = max(found[name], key=lambda pair: pair[0])
        full = np.array([int(inspection.COLOURS[number][i : i + 2], 16) for i in (1, 3, 5)]) / 255
        chance = (percent / 100 - 1 / 3) * 1.5
        np.testing.assert_allclose(colour, 1 - 0.6 * chance * (1 - full), atol=0.01)


def test_picture_on_given_axes():
    ax = Figure().subplots()
    texts = plot_tree(forest(), ax=ax, fontsize=5)
    assert {text.axes for text in texts} == {ax} and texts[0].get_fontsize() == 5
    assert not ax.axison and not pyplot.get_fignums()


def test_picture_weighs_classes_as_the_vote():
    model = forest(n_estimators=1, class_weight={"no": 9, "yes": 1})
    counts = model.leaf_counts_
    root, *_ = plot_tree(model, max_depth=0)
    shares = np.maximum(counts.sum(axis=0), 0) * [9, 1]
    shown = f"≈ {counts.sum():,} records\nclass: no ({100 * shares[0] / shares.sum():.0f} %)"
    assert root.get_text() == f"{shown}\n({len(counts)} leaves below)"


def test_picture_of_names_with_dollars():
    X = pd.DataFrame({"price ($) in 10^3 $": np.linspace(0, 1, 4000)})
    model = LumberjackClassifier(bounds=(0, 1), classes=[0, 1]).fit(X, [0, 1] * 2000)
    texts = plot_tree(model, max_depth=1)
    boxes_of(texts)
    assert not any(text.get_parse_math() for text in texts)


# Budget -------------------------------------------------------------------------------------------


def unseeded(**parameters):
    return forest(random_state=None, **parameters)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"budget_shares": {"guide": 0.1, "structure": 0.6, "leaves": 0.3}},
        {"splitter": "random", "records_per_unit": 3},
        {"leaf": "majority"},
        {"splitter": "random", "leaf": "majority", "accounting": "split"},
    ],
)
def test_budget_shares(parameters):
    model = unseeded(**parameters)
    report = model.privacy_
    display = PrivacyBudgetDisplay.from_estimator(model)
    rho = display.rho_shares
    assert math.fsum(rho.values()) == pytest.approx(1)
    if parameters.get("accounting") != "split":
        assert rho == pytest.approx({own.part: own.share for own in report.mechanisms})
    delta = display.delta_shares
    assert math.fsum(delta.values()) == pytest.approx(1)
    tests = next(own for own in report.mechanisms if own.part == "structure")
    # 1 - Phi(slack / sigma)^m, to first order.
    tail = tests.queries_per_unit * 0.5 * math.erfc(report.slack / tests.noise / math.sqrt(2))
    assert delta["lone unit"] == pytest.approx(tail / report.delta, rel=1e-3)
    assert delta["noise"] > 0 and 0 <= delta["set aside"] < 0.01
    drawn = [bar.patches[0].get_width() for bar in display.bars_]
    shares = [share for share in (*rho.values(), *delta.values()) if share >= 0.001]
    np.testing.assert_allclose(drawn, 100 * np.array(shares))


def test_budget_picture():
    display = PrivacyBudgetDisplay.from_estimator(unseeded(epsilon=1))
    figure, ax = display.figure_, display.ax_
    figure.canvas.draw()
    assert ax.get_title() == "(1, 1e-06)-differential privacy, unit: one record"
    for artist in (ax.get_legend(), ax.title, *ax.texts, *ax.get_yticklabels(), ax.xaxis.label):
        box = artist.get_window_extent()
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1
    assert not ax.get_legend().get_window_extent().overlaps(ax.xaxis.label.get_window_extent())
    noise = unseeded(epsilon=1).privacy_.calibration.sigma_leaves
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert f"leaves 30%: rounded Gaussian counts, noise {noise:.3g} records" in labels
    given = Figure().subplots()
    again = PrivacyBudgetDisplay(display.report).plot(given, bar_kw={"height": 0.2})
    assert again.ax_ is given and again.bars_[0].patches[0].get_height() == pytest.approx(0.2)


def test_budget_says_when_there_is_none():
    assert "DOES NOT HOLD: SEEDED" in PrivacyBudgetDisplay.from_estimator(forest()).ax_.get_title()
    with pytest.raises(ValueError, match="epsilon is infinite"):
        PrivacyBudgetDisplay.from_estimator(forest(epsilon=math.inf, threshold=100))
    X, y, public = people()
    inferred = LumberjackClassifier(classes="infer", **public)
    with pytest.warns(PrivacyLeakWarning):
        inferred.fit(X, y)
    title = PrivacyBudgetDisplay.from_estimator(inferred).ax_.get_title()
    assert "DOES NOT HOLD: READ FROM THE DATA" in title


# Utility ------------------------------------------------------------------------------------------


class Spy(DummyClassifier):
    """Remembers the epsilons and the records that it was fitted with."""

    seen = []

    def __init__(self, epsilon=1.0, strategy="prior"):
        super().__init__(strategy=strategy)
        self.epsilon = epsilon

    def fit(self, X, y):
        Spy.seen.append((self.epsilon, tuple(X[:, 0])))
        return super().fit(X, y)


@pytest.fixture
def seen():
    Spy.seen.clear()
    return Spy.seen


X_SPY = np.arange(12.0)[:, None]
Y_SPY = np.array([0, 1] * 6)


def test_utility_fits_on_the_same_folds(seen):
    cv = KFold(3, shuffle=True)  # other folds each time it is asked
    display = PrivacyUtilityDisplay.from_estimator(
        Spy(), X_SPY, Y_SPY, epsilons=[2, 0.5, 2], cv=cv, public=True, baseline=Spy("none")
    )
    np.testing.assert_array_equal(display.epsilons, [0.5, 2])
    assert display.test_scores.shape == (2, 3) and display.baseline_scores.shape == (3,)
    assert [epsilon for epsilon, _ in seen] == [0.5] * 3 + [2.0] * 3 + ["none"] * 3
    rows = [own for _, own in seen]
    assert rows[:3] == rows[3:6] == rows[6:]
    assert display.score_name == "Accuracy"
    assert display.baseline_name == "Spy, not private"


def test_utility_keeps_groups_together(seen):
    groups = np.repeat(np.arange(4), 3)
    PrivacyUtilityDisplay.from_estimator(
        Spy(), X_SPY, Y_SPY, epsilons=[1], cv=GroupKFold(4), groups=groups, public=True
    )
    assert all(len(set(groups[np.int64(rows)])) == 3 for _, rows in seen)


def test_utility_warns_before_it_spends(seen):
    parameters = {"epsilons": [1, 2], "cv": 3}
    with pytest.warns(PrivacyLeakWarning, match="makes 6 fits, each of which spends its own"):
        PrivacyUtilityDisplay.from_estimator(Spy(), X_SPY, Y_SPY, **parameters)
    seen.clear()
    with pytest.raises(PrivacyLeakWarning):  # as an error
        PrivacyUtilityDisplay.from_estimator(Spy(), X_SPY, Y_SPY, **parameters)
    assert not seen


@pytest.mark.parametrize("epsilons", [[], [0], [-1, 1], [1, math.inf], [math.nan]])
def test_utility_refuses_epsilons(seen, epsilons):
    with pytest.raises(ValueError, match="epsilons must be positive and finite"):
        PrivacyUtilityDisplay.from_estimator(Spy(), X_SPY, Y_SPY, epsilons=epsilons, public=True)
    assert not seen


def test_utility_of_a_pipeline_in_a_ledger():
    X, y, bounds = make_moons_and_blob()
    step = LumberjackClassifier(bounds=bounds, classes=["blue", "green", "red"])
    pipeline = make_pipeline(FunctionTransformer(), step)
    with PrivacyLedger(epsilon=6, delta=1e-4) as ledger:
        display = PrivacyUtilityDisplay.from_estimator(
            pipeline, X, y, epsilons=[0.2, 2], cv=2, scoring="neg_log_loss", public=True,
            param_name="lumberjackclassifier__epsilon", baseline=make_pipeline(DummyClassifier()),
        )  # fmt: skip
    assert len(ledger.events) == 4
    assert display.test_scores[1].mean() > display.test_scores[0].mean()
    assert display.score_name == "Negative log loss"
    assert display.baseline_name == "DummyClassifier, not private"


def test_utility_picture():
    scores, epsilons = np.array([[0.5, 0.7], [0.8, 0.8]]), [0.5, 4]
    display = PrivacyUtilityDisplay(
        epsilons=epsilons, test_scores=scores, baseline_scores=[0.9, 1.0], score_name="ROC AUC"
    ).plot()
    ax = display.ax_
    np.testing.assert_allclose(display.line_.get_data(), [epsilons, [0.6, 0.8]])
    edges = display.fill_between_.get_paths()[0].vertices
    np.testing.assert_allclose([edges[:, 1].min(), edges[:, 1].max()], [0.5, 0.8])
    np.testing.assert_allclose(display.baseline_.get_ydata(), 0.95)
    assert ax.get_xscale() == "log" and "varepsilon" in ax.get_xlabel()
    assert ax.get_ylabel() == "ROC AUC"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0.5", "4"]
    assert display.errorbar_ is None
    given = Figure().subplots()
    display.plot(given, std_display_style="errorbar", score_name="area")
    assert display.ax_ is given and given.get_ylabel() == "area"
    assert display.line_ is None and display.fill_between_ is None
    (segments,) = display.errorbar_[2]
    np.testing.assert_allclose(segments.get_segments()[0][:, 1], [0.5, 0.7])
    display.plot(std_display_style=None, line_kw={"color": "red"}, baseline_kw={"lw": 5})
    assert display.fill_between_ is None and display.errorbar_ is None
    assert display.line_.get_color() == "red" and display.baseline_.get_linewidth() == 5
    with pytest.raises(ValueError, match="std_display_style must be"):
        display.plot(std_display_style="bars")


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plot_tree(forest()),
        lambda: PrivacyBudgetDisplay.from_estimator(forest()),
        lambda: PrivacyUtilityDisplay.from_estimator(Spy(), X_SPY, Y_SPY, epsilons=[1]),
    ],
)
def test_matplotlib_is_optional(monkeypatch, seen, draw):
    for name in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'lumberjack-dp\[plot\]'"):
        draw()
    assert not seen


# Importances --------------------------------------------------------------------------------------


def test_decreases_by_hand():
    left, right = np.array([[8.0, 2.0], [5.0, 5.0]]), np.array([[1.0, 9.0], [10.0, 10.0]])
    none = np.zeros(2)
    # Gini impurity times records: 20 (1 - .45^2 - .55^2) = 9.9; 10 (1 - .8^2 - .2^2) = 3.2; 1.8.
    # Then the impurity of the node, 0.495, for chance.
    found = inspection._gini_decreases(left, right, none, none)
    np.testing.assert_allclose(found, [9.9 - 3.2 - 1.8 - 0.495, -0.5])


@pytest.mark.parametrize("n_classes", [2, 5])
def test_decreases_have_no_bias(n_classes):
    rng = np.random.default_rng(0)
    n_draws, sigma, n_leaves = 200_000, 30.0, np.array([1, 7])
    left = rng.integers(100, 700, n_classes)
    for shift in (0, 200):
        right = 3 * left
        right[0] += shift
        exact = inspection._gini_decreases(left[None], right[None], np.zeros(1), np.zeros(1))[0]
        noisy = [
            own + rng.normal(scale=sigma * np.sqrt(n), size=(n_draws, n_classes))
            for own, n in zip((left, right), n_leaves, strict=True)
        ]
        variances = [np.full(n_draws, sigma**2 * n) for n in n_leaves]
        found = inspection._gini_decreases(*noisy, *variances)
        raw = inspection._gini_decreases(*noisy, *np.zeros((2, n_draws)))
        bias, raw_bias = found.mean() - exact, raw.mean() - exact
        assert raw_bias > 1 and abs(bias) < 0.1 * raw_bias


def test_nearly_empty_children_tell_nothing():
    one, other = np.array([[40.0, 0.0]]), np.array([[0.0, 4000.0]])
    variance = np.array([900.0])  # of a total of two counts: 42^2
    assert inspection._gini_decreases(one, other, variance, variance) == 0
    assert inspection._gini_decreases(other, one, variance, variance) == 0
    assert inspection._gini_decreases(3 * one, other, variance, variance) > 10


def test_sums_and_paths_against_parents():
    """Sums and paths of a forest, by walking from every node to the root."""
    model = forest(epsilon=8)
    tree = model.trees_[0]
    parents = {}
    for node in np.flatnonzero(tree.feature >= 0):
        parents[tree.children_left[node]] = parents[tree.children_right[node]] = node
    counts = model.leaf_counts_[: model.leaf_offsets_[1]]
    expected, n_leaves = np.zeros((len(tree.leaf), 2)), np.zeros(len(tree.leaf))
    paths = np.zeros((len(tree.leaf), len(tree.leaf)))
    for start in range(len(tree.leaf)):
        node = start
        while node is not None:
            paths[start, node] = 1
            if tree.leaf[start] >= 0:
                expected[node] += counts[tree.leaf[start]]
                n_leaves[node] += 1
            node = parents.get(node)
    assert len(parents) > 10
    sums, sizes = inspection._sum_upwards(tree, counts)
    np.testing.assert_allclose(sums, expected)
    np.testing.assert_array_equal(sizes, n_leaves)
    np.testing.assert_array_equal(path_matrix(tree).toarray(), paths)
    some = np.flatnonzero(tree.leaf >= 0)[[3, 0, 3]]
    np.testing.assert_array_equal(path_matrix(tree, some).toarray(), paths[some])


def naive_importances(model, counts):
    """Impurity decreases, without noise, by recursion."""
    found = np.zeros(model.n_features_in_)
    for t, tree in enumerate(model.trees_):
        own = counts[model.leaf_offsets_[t] : model.leaf_offsets_[t + 1]]

        def below(node, tree=tree, own=own):
            if tree.leaf[node] >= 0:
                return own[tree.leaf[node]].astype(float)
            left, right = below(tree.children_left[node]), below(tree.children_right[node])
            if left.sum() > 0 and right.sum() > 0:
                gini = [1 - ((c / c.sum()) ** 2).sum() for c in (left, right, left + right)]
                whole = (left + right).sum() * gini[2]
                found[tree.feature[node]] += (
                    whole - left.sum() * gini[0] - right.sum() * gini[1] - gini[2]
                )
            return left + right

        below(0)
    found = np.maximum(found, 0)
    return found / found.sum()


def planted(n=10_000, seed=0):
    """Eight features, the first three of which decide."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 8))
    odds = 8 * (X[:, 0] - 0.5) + 3 * np.sin(6 * X[:, 1]) + 3 * np.sign(X[:, 2] - 0.5) * X[:, 0]
    return X, (rng.uniform(size=n) < 1 / (1 + np.exp(-odds))).astype(int)


def test_importances_without_noise():
    X, y = planted()
    model = LumberjackClassifier(
        epsilon=math.inf, threshold=50, splitter="random", bounds=(0, 1), classes=[0, 1]
    ).fit(X, y)
    expected = naive_importances(model, model.leaf_counts_)
    np.testing.assert_allclose(feature_importances(model), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("splitter", ["random", "guided"])
@pytest.mark.parametrize("seed", range(3))
def test_importances_of_planted_features(splitter, seed):
    X, y = planted(seed=seed)
    model = LumberjackClassifier(
        bounds=(0, 1), classes=[0, 1], splitter=splitter, epsilon=1, random_state=seed
    ).fit(X, y)
    found = feature_importances(model)
    assert found.shape == (8,) and found.dtype == np.float64
    assert found.sum() == pytest.approx(1) and (found >= 0).all()
    assert (found[:3] > 0.05).all() and (found[3:] < 0.03).all()
    # Close to those of exact counts of the same trees.
    if splitter == "random":
        counts, leaves = np.zeros_like(model.leaf_counts_), model.apply(X)
        for t, tree in enumerate(model.trees_):
            np.add.at(counts, (model.leaf_offsets_[t] + tree.leaf[leaves[:, t]], y), 1)
        np.testing.assert_allclose(found, naive_importances(model, counts), atol=0.06)


def test_importances_of_noise_alone():
    X, _ = planted()
    y = np.random.default_rng(1).integers(2, size=len(X))
    model = LumberjackClassifier(bounds=(0, 1), classes=[0, 1], splitter="random", random_state=0)
    decreases = inspection._impurity_decreases(model.fit(X, y))
    # Nothing to find: each of 20 trees sorts 10,000 records of impurity 1/2.
    assert (np.abs(decreases) < 0.01 * 20 * 5000).all()


def test_importances_of_categories_and_many_classes():
    rng = np.random.default_rng(0)
    n, names = 20_000, [f"c{i}" for i in range(6)]
    X = pd.DataFrame({
        "useless": pd.Categorical(rng.choice(names, n), names),
        "useful": pd.Categorical(rng.choice(names, n), names),
        "number": rng.uniform(size=n),
    })  # fmt: skip
    y = np.where(rng.uniform(size=n) < 0.1, "c0", X["useful"].astype(str))
    model = LumberjackClassifier(bounds={"number": (0, 1)}, classes=names).fit(X, y)
    found = feature_importances(model)
    assert found[1] > 0.9 and found[0] < 0.05 and found[2] < 0.05


def test_importances_of_regression():
    X, _ = planted()
    y = 100 * X[:, 4] + np.random.default_rng(0).normal(size=len(X))
    model = LumberjackRegressor(bounds=(0, 1), target_bounds=(0, 100)).fit(X, y)
    assert feature_importances(model)[4] > 0.9


def test_importances_of_the_score():
    X, y = planted()
    model = LumberjackClassifier(bounds=(0, 1), classes=[0, 1], epsilon=4).fit(X, y)
    score = model.guide_.score
    # The variance of the tables over the true records, which noise hardly moves here.
    cells = np.minimum((X * 32).astype(int), 31)
    tables = score.tables[:, 0].reshape(8, 33)
    variances = np.array([tables[f, cells[:, f]].var() for f in range(8)])
    found = inspection._score_variances(model.guide_)
    np.testing.assert_allclose(found[:, 0], variances, rtol=0.1, atol=0.01)
    # Trees of one leaf say nothing: what is left is the score.
    stump = copy.copy(model)
    stump.nodes_ = model.nodes_[model.nodes_["feature"] < 0][:20]
    stump.nodes_["right"] = 0
    stump.tree_offsets_ = stump.leaf_offsets_ = np.arange(21)
    stump.leaf_counts_, stump.leaf_votes_ = model.leaf_counts_[:20], model.leaf_votes_[:20]
    shares = found[:, 0] / found.sum()
    np.testing.assert_allclose(feature_importances(stump), shares)
    # Else the score has its share of the vote, at least.
    assert (feature_importances(model) >= SCORE_VOTE * shares * (1 - 1e-9)).all()


def test_importances_of_a_single_leaf():
    model = LumberjackClassifier(bounds=(0, 1), classes=[0, 1], splitter="random")
    model.fit(np.full((3, 4), 0.5), [0, 1, 1])
    np.testing.assert_array_equal(feature_importances(model), np.zeros(4))


def test_importances_need_counts():
    with pytest.raises(AttributeError, match='leaf="majority".*leaf="counts"'):
        feature_importances(forest(leaf="majority"))


# Advice -------------------------------------------------------------------------------------------


def test_no_advice_for_a_grown_forest():
    assert advise(forest()) == []


def test_advice_for_single_leaves():
    parameters = {"n_estimators": 20, "epsilon": 1.0, "delta": 1e-6, "max_depth": 31}
    X, y, public = people(100)

    def fitted(**changes):
        model = LumberjackClassifier(classes=["no", "yes"], **parameters | changes, **public)
        return model.fit(X, y)

    model = fitted()
    lines = advise(model)
    assert lines[0].startswith("20 of 20 trees are a single leaf")
    assert f"tau = {model.privacy_.threshold:.0f} records" in lines[1]
    estimate = model.leaf_counts_.sum() / 20
    sigma = model.privacy_.calibration.sigma_leaves * math.sqrt(2 / 20)
    assert f"tell of {estimate:.0f} (standard deviation {sigma:.0f})" in lines[1]
    changes = [
        {"epsilon": 2.0},
        {"delta": 1e-5},
        {"n_estimators": 10},
        {"max_depth": 15},
        {"n_estimators": 10, "max_depth": 15},
        {"budget_shares": {"guide": 0.25, "structure": 0.45, "leaves": 0.3}},
    ]
    told = [line for line in lines if line.startswith("  ")]
    assert len(told) == len(changes)
    for line, own in zip(told, changes, strict=True):
        tau = fitted(**own).privacy_.threshold
        assert tau < model.privacy_.threshold
        assert line.startswith("  " + next(iter(own)) + "=") and f": {tau:,.0f}" in line
    assert "number of records" in told[1] and '{"guide": 0.25, ' in told[-1]
    assert "spends its own epsilon" in lines[-1]


def test_advice_for_other_settings():
    X, y, public = people(100)
    base = LumberjackClassifier(classes=["no", "yes"], **public)

    def advice(n_records=None, **parameters):
        return "\n".join(advise(base.set_params(**parameters).fit(X, y), n_records))

    assert "there are 100. Several" in advice(n_records=100)
    text = advice(threshold=5000.0)
    least = base.privacy_.slack + 1
    assert f"threshold=None: {least:.0f}" in text
    text = advice(threshold=None, records_per_unit=3)
    assert "  records_per_unit=1: " in text and "if nobody has more" in text
    text = advice(records_per_unit=1, leaf="majority", splitter="random", epsilon=0.2)
    assert "compare it with the number of records" in text and "budget_shares" not in text
    text = advice(leaf="counts", n_estimators=1, max_depth=1, epsilon=0.1)
    assert "  epsilon=0.2: " in text
    assert "n_estimators=" not in text and "max_depth=" not in text
    text = advice(epsilon=math.inf, threshold=1e6)
    assert "give a smaller one" in text and "=" not in text.split("\n")[-1]
    with pytest.raises(TypeError, match="n_records must be an integer"):
        advise(base, 1e3)


@pytest.mark.parametrize(
    "parameters",
    [
        {"epsilon": 8},
        {"epsilon": 3, "delta": 1e-10},
        {"epsilon": 12, "splitter": "random", "accounting": "split"},
        {"epsilon": 14, "n_estimators": 1, "max_depth": 1, "splitter": "random"},
    ],
)
def test_advice_leaves_out_what_cannot_be_calibrated(parameters):
    """Twice the epsilon is beyond what the finite precision of the samplers allows."""
    model = LumberjackClassifier(bounds=(0, 1), classes=[0, 1], **parameters)
    twice = clone(model).set_params(epsilon=2 * model.epsilon)
    with pytest.raises(ValueError, match="precision"):
        twice.fit([[0.5]], [0])
    lines = advise(model.fit([[0.5]], [0]))
    assert "single leaf" in lines[0] and "spends its own epsilon" in lines[-1]
    assert not any(line.startswith("  epsilon=") for line in lines)
    told = [line for line in lines if line.startswith("  ")]
    assert bool(told) == any("with one change" in line for line in lines)


def test_advice_for_regression():
    model = LumberjackRegressor(bounds=(0, 1), target_bounds=(0, 1), epsilon=0.5)
    lines = advise(model.fit([[0.5]] * 50, [0.5] * 50))
    tau = LumberjackRegressor(bounds=(0, 1), target_bounds=(0, 1), epsilon=1.0)
    tau = tau.fit([[0.5]], [0.5]).privacy_.threshold
    assert f"  epsilon=1: {tau:,.0f}" in lines


# Decision regions, by scikit-learn ----------------------------------------------------------------


@pytest.mark.parametrize("frame", [False, True])
def test_decision_boundary_display(frame):
    X, y, bounds = make_moons_and_blob()
    X = pd.DataFrame(X, columns=["east", "north"]) if frame else X
    classes = ["blue", "green", "red"]
    model = LumberjackClassifier(bounds=bounds, classes=classes).fit(X, y)
    display = DecisionBoundaryDisplay.from_estimator(
        model, X, response_method="predict", plot_method="pcolormesh", grid_resolution=20
    )
    grid = np.c_[display.xx0.ravel(), display.xx1.ravel()]
    grid = pd.DataFrame(grid, columns=X.columns) if frame else grid
    expected = np.searchsorted(classes, model.predict(grid)).reshape(20, 20)
    np.testing.assert_array_equal(display.response, expected)
    assert display.ax_.get_xlabel() == ("east" if frame else "")
    target = np.asarray(X).sum(axis=1)
    regressor = LumberjackRegressor(bounds=bounds, target_bounds=(0, 9)).fit(X, target)
    DecisionBoundaryDisplay.from_estimator(regressor, X, grid_resolution=20)


# Figures of the README ----------------------------------------------------------------------------

FIGURES = Path(__file__).resolve().parents[1] / "benchmarks" / "figures.py"


@pytest.mark.skipif(not FIGURES.is_file(), reason="the benchmarks are not part of the package")
def test_figures_of_the_readme(monkeypatch, tmp_path):
    monkeypatch.setenv("LUMBERJACK_DATA", str(tmp_path))  # where there is nothing: the toy
    spec = importlib.util.spec_from_file_location("figures", FIGURES)
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    names = ["budget", "tree", "regions"]
    monkeypatch.setattr(sys, "argv", ["figures.py", "--out", str(tmp_path), "--only", *names])
    figures.main()
    for name in names:
        size = (tmp_path / f"{name}.png").stat().st_size
        assert 5_000 < size < 100_000
