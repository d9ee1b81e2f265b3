"""Explains the predictions of a private forest for Adult by SHAP, and draws the picture.

    python benchmarks/explain.py
    python benchmarks/explain.py --rows 1000 --figure shap.png

One tenth of the records is left out of the fit; its rows are explained, against a background of 100
others of them. Each dot of the picture is a row; its place is by how much the feature moves the
probability of an income over 50,000 dollars for this row. Categories have no order and are grey.
That the explained records are shown lies outside the guarantee of the model; these are public.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np

from lumberjack import LumberjackClassifier, datasets, export

FIGURE = Path(__file__).parent / "figures" / "shap.png"
BACKGROUND = 100  # rows


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=300, help="rows to explain (default: 300)")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--figure", type=Path, default=FIGURE)
    options = parser.parse_args()
    table = datasets.load_adult()
    train, test = datasets.splits(len(table.X), 0)
    declared = {"bounds": table.bounds, "categories": table.categories, "classes": table.classes}
    model = LumberjackClassifier(epsilon=options.epsilon, **declared)
    model.fit(table.X.iloc[train], table.y.iloc[train])
    held_out = table.X.iloc[test]
    background, rows = held_out[:BACKGROUND], held_out[BACKGROUND : BACKGROUND + options.rows]

    explainer = export.shap_explainer(model, background)
    explainer(rows[:1], silent=True)  # compiles what SHAP computes with
    started = time.perf_counter()
    explanation = explainer(rows, silent=True)
    seconds = time.perf_counter() - started
    sums = explanation.values.sum(axis=1) + explanation.base_values
    worst = np.abs(sums - model.predict_proba(rows)).max()
    print(f"{len(rows)} rows in {seconds:.1f} s, {100 * seconds / len(rows):.1f} s for 100")
    print(f"values and base values sum to the predictions within {worst:.1e}")
    draw(explanation[..., 1], model, options)
    print(f"picture: {options.figure}")


def draw(explanation, model, options):
    """Draw how features move the probability of one class."""
    import shap
    from matplotlib import pyplot

    explanation.data[:, model.domain_.is_categorical] = np.nan
    shap.plots.beeswarm(explanation, max_display=14, plot_size=(9, 5.5), s=8, show=False)
    figure = pyplot.gcf()
    label = model.classes_[1]
    axes = figure.axes[0]
    axes.set_title(f"Adult, ε = {model.epsilon:g}: {len(explanation)} people", fontsize=12)
    axes.set_xlabel(f"SHAP value: moves the probability of {label} by", fontsize=11)
    axes.tick_params(labelsize=11)
    options.figure.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.figure, dpi=80, bbox_inches="tight")
    pyplot.close(figure)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of SHAP about its own dependencies
        main()
