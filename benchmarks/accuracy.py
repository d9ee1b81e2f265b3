"""Accuracy of private forests on real data, beside their peers: means over fixed splits.

    python benchmarks/accuracy.py --json rows.json --figure
    python benchmarks/accuracy.py --data adult --method paper --seeds 10
    python benchmarks/accuracy.py --data acs_income --inner --set max_depth=63 --method guided
    python benchmarks/accuracy.py --read rows.json more.json --figure accuracy.png

Tests are on the 90/10 splits 0 to 4 of `lumberjack.datasets.splits`; every (split, seed) is one
fit, a peer has one seed. Bounds and categories are those of the whole file, as if they were
published. With ``--inner`` nothing of these tests is seen: settings are chosen on the three
`lumberjack.datasets.inner_splits`. Printed are accuracy, ROC AUC, log loss and the log loss after
a logistic recalibration on the test labels; R^2 and mean absolute error of a regression; at last,
which goals are reached.
"""

import argparse
import ast
import dataclasses
import functools
import importlib
import json
import math
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn import ensemble, tree
from sklearn.metrics import (
    accuracy_score,
    log_loss,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
)

from lumberjack import LumberjackClassifier, LumberjackRegressor, PrivacyLeakWarning, datasets

SMALL = 2000  # records

# Name -> loader, and the number of training records if not all.
TASKS = {
    "adult": (datasets.load_adult, None),
    "acs_income": (datasets.load_acs_income, None),
    "employment": (lambda: datasets.load_acs_connecticut("employment"), None),
    "coverage": (lambda: datasets.load_acs_connecticut("coverage"), None),
    "flights": (lambda: datasets.load_flights("late"), None),
    "adult_education3": (lambda: datasets.load_adult("education"), None),
    "flights_bands3": (lambda: datasets.load_flights("bands"), None),
    "correlated39": (lambda: datasets.add_correlated_columns(datasets.load_adult(), 39), None),
    "adult_small": (datasets.load_adult, SMALL),
    "acs_income_small": (datasets.load_acs_income, SMALL),
    "bike": (datasets.load_bike_sharing, None),
    "flights_delay": (lambda: clip_target(datasets.load_flights("delay"), -60, 180), None),
}

OURS = {
    # The settings of the paper on Adult.
    "paper": {
        "n_estimators": 30,
        "max_depth": 100,
        "splitter": "random",
        "leaf": "majority",
        "accounting": "split",
        "budget_shares": {"structure": 0.75, "leaves": 0.25},
    },
    # Random splits with the accounting and the leaves of this library.
    "random": {"splitter": "random", "max_depth": 127},
    # The defaults. The same fit is measured as "score": the score of its guide alone.
    "guided": {},
}

# Accuracy of the paper's authors' own program on Adult (30 trees, depth 100, 75 % structure),
# measured on splits 0 and 1: epsilon -> one accuracy a split.
AUTHORS = {
    0.5: (0.8241, 0.8239),
    1.0: (0.8294, 0.8280),
    2.0: (0.8384, 0.8303),
    4.0: (0.8376, 0.8395),
    8.0: (0.8428,),
}

# Accuracy and ROC AUC to reach.
TARGETS = {
    "adult": {0.5: (0.850, 0.904), 1.0: (0.855, 0.908), 4.0: (0.859, 0.913)},
    "acs_income": {0.5: (0.794, 0.869), 1.0: (0.800, 0.876), 4.0: (0.807, 0.884)},
}

CLASSIFICATION = ("accuracy", "auc", "log_loss", "recalibrated")
REGRESSION = ("r2", "mae")
TITLES = {
    "accuracy": "accuracy",
    "auc": "ROC AUC",
    "log_loss": "log loss",
    "recalibrated": "recalibrated",
    "r2": "R^2",
    "mae": "abs. error",
}


class Missing(Exception):
    """A peer is not installed or cannot do the task."""


# Data -------------------------------------------------------------------------------------------


def clip_target(table, low, high):
    """The table with the target clipped to public bounds."""
    return dataclasses.replace(table, y=table.y.clip(low, high), target_bounds=(low, high))


def with_missing_category(table):
    """The table with "?" as one more category, as one-hot encoding treats missing values."""
    X = table.X.copy()
    categories = dict(table.categories)
    for name in table.categories:
        if X[name].isna().any():
            X[name] = X[name].cat.add_categories("?").fillna("?")
            categories[name] = [*table.categories[name], "?"]
    return dataclasses.replace(table, X=X, categories=categories)


def split_rows(table, split, inner, n_train):
    """Numbers of the training and the test rows."""
    train, test = (datasets.inner_splits if inner else datasets.splits)(len(table.X), split)
    return train[:n_train], test


def codes(table):
    """Features as numbers for scikit-learn: categories by position, missing ones NaN."""
    X = table.X.copy()
    for name in table.categories:
        X[name] = X[name].cat.codes.where(X[name].notna())
    return X.to_numpy(np.float64)


# Methods ----------------------------------------------------------------------------------------


def fit_ours(table, train, test, method, epsilon, seed, options):
    """Fit a forest of ours once.

    Returns
    -------
    dict
        Predictions on the test rows by method: a guided fit has those of its score, too.
    """
    declarations = {"bounds": table.bounds}
    if table.classes is None:
        Estimator, declarations["target_bounds"] = LumberjackRegressor, table.target_bounds
    else:
        Estimator, declarations["classes"] = LumberjackClassifier, table.classes
    settings = OURS[method] | (options.settings if method == "guided" else {})
    model = Estimator(
        epsilon=epsilon,
        delta=options.delta,
        n_jobs=options.n_jobs,
        random_state=seed,
        **declarations,
        **settings,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)  # seeded: nothing is released here
        model.fit(table.X.iloc[train], table.y.iloc[train])
    X = table.X.iloc[test]
    found = {method: model.predict(X) if table.classes is None else model.predict_proba(X)}
    if method == "guided":
        rows = model.domain_.encode(X, layout="rows", caller="benchmark")
        found["score"] = model.guide_.score.evaluate(rows)[1]
        if table.classes is None:
            low, high = table.target_bounds
            found["score"] = low + (high - low) * found["score"][:, 1]
    return found


def fit_sklearn(model, table, train, test):
    """Predictions of a scikit-learn model on the codes."""
    X = codes(table)
    model.fit(X[train], table.y.iloc[train])
    return model.predict(X[test]) if table.classes is None else model.predict_proba(X[test])


def extra_trees(table, train, test, epsilon, seed, options):
    kind = (
        ensemble.ExtraTreesRegressor
        if table.classes is None
        else functools.partial(ensemble.ExtraTreesClassifier, min_samples_leaf=5)
    )
    return fit_sklearn(kind(50, n_jobs=options.n_jobs, random_state=seed), table, train, test)


def decision_tree(table, train, test, epsilon, seed, options):
    kind = tree.DecisionTreeRegressor if table.classes is None else tree.DecisionTreeClassifier
    return fit_sklearn(kind(min_samples_leaf=20, random_state=seed), table, train, test)


def boosting(table, train, test, epsilon, seed, options):
    """HistGradientBoosting with native categories, where it takes so many."""
    kind = (
        ensemble.HistGradientBoostingRegressor
        if table.classes is None
        else ensemble.HistGradientBoostingClassifier
    )
    native = [len(table.categories.get(name, range(256))) < 255 for name in table.X]
    return fit_sklearn(kind(categorical_features=native, random_state=seed), table, train, test)


def prior(table, train, test, epsilon, seed, options):
    """Class shares, or the mean, of the training rows."""
    y = table.y.iloc[train]
    if table.classes is None:
        return np.full(len(test), y.mean())
    return np.tile(y.value_counts(normalize=True)[table.classes], (len(test), 1))


def dp_ebm(table, train, test, epsilon, seed, options, **settings):
    """Differentially private EBM of the package interpret-core."""
    try:
        from interpret import privacy
    except ImportError:
        raise Missing("interpret-core is not installed") from None
    if table.classes is None:
        low, high = table.target_bounds
        kind, own = privacy.DPExplainableBoostingRegressor, {"privacy_target_min": low}
        own["privacy_target_max"] = high
    elif len(table.classes) > 2:
        raise Missing("two classes only")
    else:
        kind, own = privacy.DPExplainableBoostingClassifier, {}
    X = table.X.copy()
    for name in table.categories:
        X[name] = X[name].astype(object).where(X[name].notna(), "?").astype(str)
    model = kind(
        feature_types=["continuous" if name in table.bounds else "nominal" for name in X],
        privacy_bounds=table.bounds,
        epsilon=epsilon,
        delta=options.delta,
        random_state=seed,
        **own,
        **settings,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seeded
        model.fit(X.iloc[train], table.y.iloc[train])
    return (model.predict if table.classes is None else model.predict_proba)(X.iloc[test])


# Runs in diffprivlib's own environment: its releases need an older scikit-learn.
DIFFPRIVLIB = """
import sys, warnings
import numpy as np
from diffprivlib import models
warnings.simplefilter("ignore")
given = np.load(sys.argv[1])
epsilon, seed, bounds = float(given["epsilon"]), int(given["seed"]), tuple(given["bounds"])
if "target_bounds" in given:
    model = models.LinearRegression(
        epsilon=epsilon, bounds_X=bounds, bounds_y=tuple(given["target_bounds"]), random_state=seed
    ).fit(given["X"], given["y"])
    np.save(sys.argv[2], model.predict(given["X_test"]))
else:
    model = models.RandomForestClassifier(
        epsilon=epsilon, bounds=bounds, classes=given["classes"], random_state=seed
    ).fit(given["X"], given["y"])
    np.save(sys.argv[2], model.predict_proba(given["X_test"]))
"""


def diffprivlib(table, train, test, epsilon, seed, options):
    """Forest or linear regression of diffprivlib on the codes, missing ones as -1."""
    if options.diffprivlib_python is None:
        raise Missing("needs --diffprivlib-python")
    X = np.nan_to_num(codes(table), nan=-1)
    ranges = [table.bounds.get(c) or (-1, len(table.categories[c]) - 1) for c in table.X]
    given = {"X": X[train], "X_test": X[test], "bounds": np.transpose(ranges)}
    given |= {"epsilon": epsilon, "seed": seed, "y": table.y.iloc[train]}
    if table.classes is None:
        given["target_bounds"] = table.target_bounds
    else:
        given["y"] = np.searchsorted(table.classes, table.y.iloc[train])
        given["classes"] = np.arange(len(table.classes))
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder, "in.npz"), Path(folder, "out.npy")
        np.savez(question, **given)
        command = [options.diffprivlib_python, "-c", DIFFPRIVLIB, question, answer]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Missing(done.stderr.strip().splitlines()[-1])
        predicted = np.load(answer)
    # Its noisy normal equations may be nearly singular: without clipping R^2 is below -10^6.
    return predicted if table.target_bounds is None else np.clip(predicted, *table.target_bounds)


# Name -> function, and whether it is private.
PEERS = {
    "dp_ebm": (dp_ebm, True),
    "dp_ebm_0.1": (functools.partial(dp_ebm, learning_rate=0.1), True),
    "diffprivlib": (diffprivlib, True),
    "extra_trees": (extra_trees, False),
    "decision_tree": (decision_tree, False),
    "boosting": (boosting, False),
    "prior": (prior, False),
}

METHODS = [*OURS, "score", *PEERS]


# Measures ---------------------------------------------------------------------------------------


def measures(table, test, predicted):
    """Accuracy, ROC AUC, log loss and recalibrated log loss; or R^2 and mean absolute error."""
    truth = table.y.iloc[test].to_numpy()
    if table.classes is None:
        return r2_score(truth, predicted), mean_absolute_error(truth, predicted)
    truth = np.searchsorted(table.classes, truth)
    clipped = np.clip(predicted, 1e-6, 1)
    clipped = clipped / clipped.sum(axis=1, keepdims=True)
    score = (
        predicted[:, 1]
        if predicted.shape[1] == 2
        else predicted / predicted.sum(axis=1, keepdims=True)
    )
    return (
        accuracy_score(truth, predicted.argmax(axis=1)),
        roc_auc_score(truth, score, multi_class="ovr"),
        log_loss(truth, clipped, labels=range(len(table.classes))),
        recalibrated_loss(truth, np.log(clipped)),
    )


def recalibrated_loss(truth, log_probabilities):
    """Log loss after the best slope of the log-probabilities and the best offset of each class.

    With two classes this is logistic (Platt's) recalibration of the log-odds.
    """
    n, n_classes = log_probabilities.shape
    hits = np.eye(n_classes)[truth]

    def loss_and_gradient(parameters):
        found = log_softmax(parameters[0] * log_probabilities + parameters[1:], axis=1)
        slope = (np.exp(found) - hits) / n
        gradient = np.append((slope * log_probabilities).sum(), slope.sum(axis=0))
        return -(hits * found).sum() / n, gradient

    start = np.append(1.0, np.zeros(n_classes))
    return minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B").fun


# Running ----------------------------------------------------------------------------------------


def run(data, options):
    """Measure and print all methods on one data set.

    Returns
    -------
    list of dict
        One row per method and epsilon, means over splits and seeds.
    """
    load, n_train = TASKS[data]
    table = load()
    n_train = options.rows or n_train
    names = REGRESSION if table.classes is None else CLASSIFICATION
    print_head(data, table, names, n_train, options)
    rows = []
    for method in dict.fromkeys("guided" if m == "score" else m for m in options.method):
        if method == "paper" and table.classes is None:
            continue
        private = method in OURS or PEERS[method][1]
        for epsilon in options.epsilon if private else [None]:
            try:
                found, seconds = repeat(table, method, epsilon, n_train, options)
            except Missing as reason:
                print(f"{method:14}  missing: {reason}", flush=True)
                break
            for name in [name for name in found if name in options.method]:
                row = {"data": data, "method": name, "epsilon": epsilon, "seconds": seconds}
                rows.append(row | summary(found[name], names))
                print_row(rows[-1], names)
            if (data, method) == ("adult", "paper") and not (options.inner or options.rows):
                accuracy = found[method][..., 0].mean(axis=1)
                compare_with_authors(epsilon, dict(zip(options.splits, accuracy, strict=True)))
    return rows


def repeat(table, method, epsilon, n_train, options):
    """Measures by method, arrays of shape (splits, seeds, measures), and seconds a fit."""
    if method == "paper":
        table = with_missing_category(table)
    found, fits, start = {}, 0, time.perf_counter()
    for split in options.splits:
        train, test = split_rows(table, split, options.inner, n_train)
        for seed in range(options.seeds if method in OURS else 1):
            seed = 1000 * split + seed
            if method in OURS:
                predicted = fit_ours(table, train, test, method, epsilon, seed, options)
            else:
                peer, _ = PEERS[method]
                predicted = {method: peer(table, train, test, epsilon, seed, options)}
            fits += 1
            for name, values in predicted.items():
                found.setdefault(name, {}).setdefault(split, []).append(
                    measures(table, test, values)
                )
    seconds = (time.perf_counter() - start) / fits
    return {name: np.array(list(own.values())) for name, own in found.items()}, seconds


def summary(results, names):
    """Means, and the standard error of the first measure that the seeds explain."""
    seeds = results.shape[1]
    error = results[..., 0].mean(axis=0).std(ddof=1) / seeds**0.5 if seeds > 1 else None
    means = results.mean(axis=(0, 1)).tolist()
    return {"splits": len(results), "seeds": seeds, "error": error} | dict(
        zip(names, means, strict=True)
    )


def print_head(data, table, names, n_train, options):
    kind = "inner splits" if options.inner else "splits"
    train, _ = split_rows(table, options.splits[0], options.inner, n_train)
    print(
        f"\n{data}: {len(train):,} training records, {table.X.shape[1]} features, "
        f"{len(options.splits)} {kind} x {options.seeds} seeds, delta {options.delta:g}"
    )
    print_columns(names)


def print_columns(names):
    first, *others = (TITLES[name] for name in names)
    columns = f"{first + ' (+- s.e.)':>21}" + "".join(f"{title:>14}" for title in others)
    print(f"{'method':14}{'epsilon':>9}{columns}{'s/fit':>8}")


def print_row(row, names):
    first, *others = (row[name] for name in names)
    epsilon = "none" if row["epsilon"] is None else f"{row['epsilon']:g}"
    error = "" if row["error"] is None else f"+- {row['error']:.4f}"
    columns = f"{first:>11.4f} {error:9}" + "".join(f"{value:>14.4f}" for value in others)
    print(f"{row['method']:14}{epsilon:>9} {columns}{row['seconds']:8.2f}", flush=True)


def read_rows(paths):
    """Rows of earlier runs, in the order of the tasks; of equal ones the last."""
    rows = {}
    for path in paths:
        for row in json.loads(Path(path).read_text()):
            rows[row["data"], row["method"], row["epsilon"]] = row
    tasks, methods = list(TASKS), list(METHODS)
    return sorted(
        rows.values(),
        key=lambda row: (
            tasks.index(row["data"]), methods.index(row["method"]), row["epsilon"] or 0
        ),
    )  # fmt: skip


def print_tables(rows):
    """All rows of earlier runs, a table a data set."""
    for data in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == data]
        names = REGRESSION if "r2" in own[0] else CLASSIFICATION
        print(f"\n{data}: means over {own[0]['splits']} splits")
        print_columns(names)
        for row in own:
            print_row(row, names)


def compare_with_authors(epsilon, accuracy_by_split):
    """Print the difference to the authors' program on the splits that it was measured on."""
    pairs = [
        (accuracy_by_split[split], theirs)
        for split, theirs in enumerate(AUTHORS.get(epsilon, ()))
        if split in accuracy_by_split
    ]
    if pairs:
        ours, theirs = np.mean(pairs, axis=0)
        names = " and ".join(str(split) for split in range(len(pairs)))
        print(
            f"         split {names}: {ours:.4f}, the authors' program {theirs:.4f}, "
            f"difference {ours - theirs:+.4f}"
        )


# Goals ------------------------------------------------------------------------------------------


class Rows:
    """Measured rows by data set, method and epsilon."""

    def __init__(self, rows):
        self._rows = {(row["data"], row["method"], row["epsilon"]): row for row in rows}
        self.data = list(dict.fromkeys(row["data"] for row in rows))

    def get(self, data, method, epsilon, name):
        """A measure, NaN if it was not measured."""
        value = self._rows.get((data, method, epsilon), {}).get(name)
        return math.nan if value is None else value

    def epsilons(self, data, method="guided"):
        return sorted(e for d, m, e in self._rows if (d, m) == (data, method))

    def gaps(self, data, name, other, lowest=0.0):
        """A measure of guided less that of another method, by epsilon."""
        return {
            e: self.get(data, "guided", e, name)
            - self.get(data, other, None if other in PEERS and not PEERS[other][1] else e, name)
            for e in self.epsilons(data)
            if e >= lowest
        }


def goals(rows):
    """Yield (claim, what was measured, whether it is reached) where there is a measurement."""
    checks = (target_goals, paper_goals, trust_goals, random_goals, correlated_goals, small_goals)
    for check in (*checks, regression_goals):
        for claim, values, reached in check(Rows(rows)):
            if values and not np.isnan(list(values.values())).any():
                measured = ", ".join(f"{name} {value:.4f}" for name, value in values.items())
                yield claim, measured, reached


def target_goals(rows):
    for data, targets in TARGETS.items():
        for epsilon, (accuracy, auc) in targets.items():
            for name, target in (("accuracy", accuracy), ("auc", auc)):
                value = rows.get(data, "guided", epsilon, name)
                claim = f"{data}, {TITLES[name]} at least {target} at epsilon {epsilon:g}"
                yield claim, {"measured": value}, round(value, 4) >= target


def paper_goals(rows):
    for data in rows.data:
        ours = rows.get(data, "guided", 0.5, "accuracy")
        theirs = rows.get(data, "paper", 4.0, "accuracy")
        claim = f"{data}, guided at epsilon 0.5 as accurate as the paper's settings at 4"
        yield claim, {"guided": ours, "paper": theirs}, ours >= theirs


def trust_goals(rows):
    for data in rows.data:
        gaps = rows.gaps(data, "log_loss", "prior")
        claim = f"{data}, log loss less than of the class prior"
        yield claim, by_epsilon(gaps), max(gaps.values(), default=0) < 0
        ratios = {
            e: rows.get(data, "guided", e, "log_loss") / rows.get(data, "guided", e, "recalibrated")
            for e in rows.epsilons(data)
        }
        claim = f"{data}, log loss at most 1.05 times the recalibrated one"
        yield claim, by_epsilon(ratios), max(ratios.values(), default=0) <= 1.05


def random_goals(rows):
    for data in ("employment", "coverage", "flights", "adult_education3", "flights_bands3"):
        gaps = rows.gaps(data, "auc", "random")
        claim = f"{data}, ROC AUC better than of random splits"
        yield claim, by_epsilon(gaps), min(gaps.values(), default=0) > 0
    for data in ("employment", "coverage"):
        gaps = rows.gaps(data, "accuracy", "random")
        claim = f"{data}, accuracy at most 0.002 lower than of random splits"
        yield claim, by_epsilon(gaps), min(gaps.values(), default=0) >= -0.002


def correlated_goals(rows):
    """The score of copied columns is as good as that of the columns, nearly."""
    epsilons = rows.epsilons("correlated39", "score")
    gaps = {
        e: rows.get("correlated39", "score", e, "auc") - rows.get("adult", "score", e, "auc")
        for e in epsilons
    }
    claim = "correlated39, ROC AUC of the score at most 0.02 below that on adult"
    yield claim, by_epsilon(gaps), min(gaps.values(), default=0) >= -0.02
    prior = rows.get("correlated39", "prior", None, "log_loss")
    gaps = {e: rows.get("correlated39", "score", e, "log_loss") - prior for e in epsilons}
    claim = "correlated39, log loss of the score less than of the class prior"
    yield claim, by_epsilon(gaps), max(gaps.values(), default=0) < 0


def small_goals(rows):
    for data in ("adult_small", "acs_income_small"):
        gaps = rows.gaps(data, "accuracy", "prior", lowest=0.5)
        gap = gaps.get(1.0, math.nan)
        yield f"{data}, accuracy above the majority rate at epsilon 1", {"gap": gap}, gap > 0
        claim = f"{data}, accuracy at most 0.005 below the majority rate"
        yield claim, by_epsilon(gaps), min(gaps.values(), default=0) >= -0.005


def regression_goals(rows):
    ours = rows.get("bike", "guided", 4.0, "r2")
    theirs = rows.get("bike", "extra_trees", None, "r2")
    claim = "bike, R^2 at epsilon 4 at least 2/3 of the non-private forest's"
    yield claim, {"guided": ours, "extra_trees": theirs}, ours >= theirs * 2 / 3


def by_epsilon(values):
    return {f"at {epsilon:g}": value for epsilon, value in values.items()}


def print_goals(rows):
    lines = list(goals(rows))
    if not lines:
        return
    print()
    for claim, measured, reached in lines:
        print(f"goal: {claim}: {measured}: {'reached' if reached else 'missed'}")
    print(f"{sum(reached for *_, reached in lines)} of {len(lines)} goals reached")


# Figure -----------------------------------------------------------------------------------------

STYLES = {
    "guided": {"color": "C2", "marker": "o", "linewidth": 2.2},
    "score": {"color": "C2", "marker": ".", "linestyle": ":"},
    "random": {"color": "C0", "marker": "o"},
    "paper": {"color": "C1", "marker": "o"},
    "dp_ebm": {"color": "C4", "marker": "^", "linestyle": ":"},
    "dp_ebm_0.1": {"color": "C4", "marker": "^"},
    "diffprivlib": {"color": "C5", "marker": "s"},
    "boosting": {"color": "black", "linestyle": "--"},
    "extra_trees": {"color": "grey", "linestyle": "--"},
    "decision_tree": {"color": "grey", "linestyle": "-."},
    "prior": {"color": "grey", "linestyle": ":"},
}


def draw(rows, path):
    """Two panels a data set: accuracy and ROC AUC, or R^2 and error, over epsilon."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(row["data"] for row in rows))
    height = math.ceil(len(names) / 2)
    figure, axes = pyplot.subplots(
        height, 4, figsize=(15, 2.8 * height + 0.8), squeeze=False, layout="constrained"
    )
    panels = axes.reshape(-1, 2)
    for pair, data in zip(panels, names, strict=False):
        own = [row for row in rows if row["data"] == data]
        measured = REGRESSION if "r2" in own[0] else CLASSIFICATION[:2]
        for axis, name in zip(pair, measured, strict=True):
            draw_panel(axis, own, name)
            axis.set_title(f"{data}: {TITLES[name]}", fontsize=10)
    for axis in panels[len(names) :].ravel():
        axis.set_visible(False)
    handles = {}
    for axis in figure.axes:
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=6, fontsize=9)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def draw_panel(axis, rows, name):
    """Curves of the private methods, horizontal lines of the others."""
    epsilons = sorted({row["epsilon"] for row in rows} - {None})
    for method, style in STYLES.items():
        own = [row for row in rows if row["method"] == method]
        values = [row[name] for row in own]
        # A peer that is worse than a constant would only flatten the panels.
        hidden = method == "prior" and name == "auc"  # 0.5
        if hidden or not own or max(row.get("r2", 0) for row in own) < -0.2:
            continue
        if own[0]["epsilon"] is None:
            axis.axhline(values[0], label=method, **style)
        else:
            axis.plot([row["epsilon"] for row in own], values, label=method, **style)
    axis.set_xscale("log", base=2)
    axis.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axis.set_xlabel("epsilon", fontsize=9)
    axis.grid(alpha=0.3)


# Command ----------------------------------------------------------------------------------------


def setting(text):
    """A pair "name=value"; the value in Python's notation, or else plain text."""
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


def apply_settings(pairs):
    """Set constants such as ``guide.N_ROUNDS``; give back the parameters of the estimator."""
    parameters = {}
    for name, value in pairs:
        module, _, constant = name.rpartition(".")
        if module:
            module = importlib.import_module(f"lumberjack.{module}")
            if not hasattr(module, constant):
                raise SystemExit(f"--set: there is no {name}")
            setattr(module, constant, value)
        else:
            parameters[name] = value
    return parameters


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", nargs="+", choices=TASKS, default=list(TASKS), metavar="NAME")
    add("--method", nargs="+", choices=METHODS, default=METHODS, metavar="NAME")
    add("--epsilon", nargs="+", type=float, default=[0.5, 1, 2, 4, 8])
    add("--delta", type=float, default=1e-6)
    add("--splits", nargs="+", type=int, help="default: 0 to 4, or 0 to 2 with --inner")
    add("--seeds", type=int, default=2, help="fits per split")
    add("--rows", type=int, help="train on so many records only")
    add("--inner", action="store_true", help="inner splits, to choose settings")
    add(
        "--set", nargs="+", type=setting, default=[], action="extend", metavar="NAME=VALUE",
        help="parameters of guided, or constants of a module such as guide.N_ROUNDS",
    )  # fmt: skip
    add("--n-jobs", type=int, default=-1)
    add("--diffprivlib-python", help="the Python of an environment that has diffprivlib")
    add("--json", help="write the rows here")
    add("--figure", nargs="?", const=Path(__file__).with_suffix(".png"), help="draw the rows here")
    add("--read", nargs="+", metavar="JSON", help="rows of earlier runs instead of new ones")
    options = parser.parse_args()
    options.splits = options.splits or list(range(3 if options.inner else 5))
    options.settings = apply_settings(options.set)
    return options


def main():
    options = read_options()
    rows = []
    if options.read:
        rows = read_rows(options.read)
        print_tables(rows)
    else:
        for data in options.data:
            rows += run(data, options)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))
    if options.figure:
        draw(rows, options.figure)
    if not (options.inner or options.rows):
        print_goals(rows)


if __name__ == "__main__":
    main()
