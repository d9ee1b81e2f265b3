"""Draw the figures of the README, on public data.

    python benchmarks/figures.py
    python benchmarks/figures.py --only tree --out /tmp

Trees, budget and privacy-utility curve are those of Adult if it is there (see
`lumberjack.datasets`), else of the toy.
"""

import argparse
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("agg")

import numpy as np
from matplotlib import pyplot
from matplotlib.colors import ListedColormap
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.inspection import DecisionBoundaryDisplay

from lumberjack import LumberjackClassifier, PrivacyLeakWarning, inspection
from lumberjack.datasets import load_adult, make_moons_and_blob

EPSILONS = (0.25, 0.5, 1, 2, 4, 8)
DPI = 110
TOY_CLASSES = ["blue", "green", "red"]
TOY_COLOURS = ["#0072B2", "#009E73", "#D55E00"]  # told apart with any colour vision


def load():
    """Features, labels and declarations of Adult, or else of the toy."""
    try:
        table = load_adult()
    except FileNotFoundError as error:
        print(f"the toy instead of Adult: {error}")
        X, y, bounds = make_moons_and_blob()
        return X, y, {"bounds": bounds, "classes": TOY_CLASSES}
    public = {"bounds": table.bounds, "categories": table.categories, "classes": table.classes}
    return table.X, table.y, public


def fit(X, y, **parameters):
    """A forest with fixed noise, so that the figure can be drawn again; the data is public."""
    model = LumberjackClassifier(random_state=0, **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return model.fit(X, y)


def draw_budget():
    """Where the budget of a forest goes."""
    X, y, public = load()
    # Without a seed: the figure shows calibration only, and a seeded forest is marked as such.
    model = LumberjackClassifier(**public).fit(X, y)
    return inspection.PrivacyBudgetDisplay.from_estimator(model).figure_


def draw_privacy_utility():
    """ROC AUC over epsilon."""
    X, y, public = load()
    scoring = "roc_auc" if len(public["classes"]) == 2 else "accuracy"
    figure, ax = pyplot.subplots(figsize=(6.5, 4), layout="constrained")
    inspection.PrivacyUtilityDisplay.from_estimator(
        LumberjackClassifier(**public),
        X,
        y,
        epsilons=EPSILONS,
        scoring=scoring,
        score_name="ROC AUC" if scoring == "roc_auc" else "Accuracy",
        baseline=HistGradientBoostingClassifier(categorical_features="from_dtype"),
        public=True,
        ax=ax,
    )
    return figure


def draw_tree():
    """The top of a released tree."""
    X, y, public = load()
    model = fit(X, y, **public)
    return inspection.plot_tree(model, max_depth=2)[0].figure


def draw_regions():
    """Decision regions of the toy, with and without privacy."""
    X, y, bounds = make_moons_and_blob()
    fresh_X, fresh_y, _ = make_moons_and_blob(random_state=1)
    public = {"bounds": bounds, "classes": TOY_CLASSES}
    models = {
        f"private, $\\varepsilon$ = {epsilon:g}": fit(X, y, epsilon=epsilon, **public)
        for epsilon in (0.2, 1)
    }
    models["not private (extra trees)"] = ExtraTreesClassifier(random_state=0).fit(X, y)
    figure, axes = pyplot.subplots(
        1, len(models), figsize=(9, 3), sharex=True, sharey=True, layout="constrained"
    )
    window = np.array([[0, 0], [5, 4]])
    colours = dict(zip(TOY_CLASSES, TOY_COLOURS, strict=True))
    for ax, (title, model) in zip(axes, models.items(), strict=True):
        display = DecisionBoundaryDisplay.from_estimator(
            model, window, eps=0, grid_resolution=250, response_method="predict",
            plot_method="pcolormesh", alpha=0.35, ax=ax,
        )  # fmt: skip
        # Set afterwards, as the parameter for it differs between versions of scikit-learn.
        display.surface_.set(cmap=ListedColormap(TOY_COLOURS), clim=(-0.5, len(colours) - 0.5))
        for name, colour in colours.items():
            points = X[y == name][::5]
            ax.scatter(*points.T, s=3, color=colour, linewidths=0, rasterized=True)
        ax.set_title(f"{title}\naccuracy {model.score(fresh_X, fresh_y):.1%}", fontsize=10)
        ax.set(xlabel="first feature", xlim=window[:, 0], ylim=window[:, 1])
    axes[0].set_ylabel("second feature")
    return figure


FIGURES = {
    "budget": draw_budget,
    "privacy_utility": draw_privacy_utility,
    "tree": draw_tree,
    "regions": draw_regions,
}


def main():
    """Draw what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=list(FIGURES))
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(""))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        path = options.out / f"{name}.png"
        FIGURES[name]().savefig(path, dpi=DPI)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
