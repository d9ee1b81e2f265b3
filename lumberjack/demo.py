"""``lumberjack demo``: a private forest beside fully random trees, on a toy or on a table."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lumberjack import LumberjackClassifier, PrivacyLeakWarning
from lumberjack.datasets import make_moons_and_blob
from lumberjack.files import CommandError, check_writable, load_optional, whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The paper's Figure 1.
PRIVATE: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "max_depth": 100}
FULLY_RANDOM: dict[str, Any] = {"epsilon": math.inf, "threshold": 1, "max_depth": 10}
BOTH: dict[str, Any] = {
    "splitter": "random",
    "leaf": "majority",
    "accounting": "split",
    "n_jobs": -1,
}
SCALES = (1, 10, 1000)
CLASSES = ("blue", "green", "red")
COLOURS = ("#3b6fb6", "#4f9d55", "#c9453d")
PICTURE = "lumberjack-demo.png"
PICTURE_FORMATS = (".png", ".pdf", ".svg")
NO_MATPLOTLIB = "it needs matplotlib (the extra 'plot'): python -m pip install matplotlib"

SETTINGS = (
    "Both are of the paper, not the defaults of fit: {n_trees} trees, random splits, majority "
    "leaves; the private one with epsilon 2, delta 1e-6 and its budget split in two."
)


def make_forests(n_trees: int, declaration: dict[str, Any]) -> list[LumberjackClassifier]:
    """Return the two forests that are compared, not yet trained."""
    return [
        LumberjackClassifier(n_trees, **own, **BOTH, **declaration)
        for own in (PRIVATE, FULLY_RANDOM)
    ]


def fit_both(n_trees: int, X: Any, y: Any, declaration: dict[str, Any]) -> list[Any]:
    """Return the two forests, trained."""
    private, fully_random = make_forests(n_trees, declaration)
    private.fit(X, y)
    with warnings.catch_warnings():
        # The same domain has been warned of already.
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return [private, fully_random.fit(X, y)]


def compare_on_toy(n_trees: int, out: Path | None) -> None:
    """Compare both methods on the toy, on three ranges of the features."""
    picture = out or Path(PICTURE)
    check_picture(picture)
    figure = new_figure((11, 6.6), required=out is not None)
    print("Two moons near the origin and a blob in the far corner: 10,000 made-up points.")
    print("Accuracy on 10,000 fresh ones:\n")
    print(f"{'features in':24}{'private forest':>18}{'fully random trees':>22}")
    pairs = []
    for scale in SCALES:
        pairs.append(train_on_toy(n_trees, scale))
        (_, private), (_, fully_random) = pairs[-1]
        print(f"{ranges_text(scale):24}{private:18.3f}{fully_random:22.3f}")
    print_guarantees(*(model for model, _ in pairs[-1]))
    if figure is None:
        print(f"no picture: {NO_MATPLOTLIB}")
        return
    draw_picture(figure, pairs)
    save_figure(figure, picture)
    print(f"picture: {picture}")


def train_on_toy(n_trees: int, scale: float) -> list[tuple[LumberjackClassifier, float]]:
    """Return both forests, trained on the toy of a scale, with their accuracies on fresh points."""
    X, y, bounds = make_moons_and_blob(scale)
    fresh_X, fresh_y, _ = make_moons_and_blob(scale, random_state=1)
    forests = fit_both(n_trees, X, y, {"bounds": bounds, "classes": CLASSES})
    return [(model, model.score(fresh_X, fresh_y)) for model in forests]


def ranges_text(scale: float) -> str:
    """Return the ranges of the toy's features as text."""
    return f"[0, {5 * scale}] x [0, {4 * scale}]"


def print_guarantees(private: LumberjackClassifier, fully_random: LumberjackClassifier) -> None:
    """Print the guarantees of the two forests."""
    print(f"\nPrivate forest, {private.n_estimators} trees of depth up to {private.max_depth}:")
    print("  " + str(private.privacy_).replace("\n", "\n  "))
    print(f"Fully random trees, {fully_random.n_estimators} of depth {fully_random.max_depth}:")
    print("  " + str(fully_random.privacy_).splitlines()[0].split(",")[0])


# Pictures ---------------------------------------------------------------------------------------


def check_picture(path: Path) -> None:
    """Refuse a picture that could not be written."""
    if path.suffix.lower() not in PICTURE_FORMATS:
        raise CommandError(f"the name of a picture must end in {' or '.join(PICTURE_FORMATS)}")
    check_writable(path)


def new_figure(size: tuple[float, float], required: bool = True) -> Figure | None:
    """Return an empty figure, or None without matplotlib."""
    try:
        figure = load_optional("matplotlib.figure", "plot", "a picture")
    except CommandError:
        if required:
            raise
        return None
    return figure.Figure(figsize=size, layout="constrained")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a picture."""
    with whole_file(path) as file:
        figure.savefig(file, format=path.suffix[1:].lower(), dpi=120)


def draw_picture(figure: Figure, pairs: list[list[tuple[LumberjackClassifier, float]]]) -> None:
    """Draw what both methods predict around the points, a column for each scale."""
    axes = figure.subplots(2, len(pairs))
    names = ("Private forest", "Fully random trees")
    for column, (scale, pair) in enumerate(zip(SCALES, pairs, strict=True)):
        for row, (model, accuracy) in enumerate(pair):
            ax = axes[row, column]
            draw_regions(ax, model, scale, (0, 5, 0, 4))
            if scale > 1:
                corner = ax.inset_axes((0.66, 0.6, 0.32, 0.38))
                far = (5 * scale - 2, 5 * scale, 4 * scale - 2, 4 * scale)
                draw_regions(corner, model, scale, far)
                corner.set(xticks=[], yticks=[], xlabel="far corner")
            ax.set_title(f"features in {ranges_text(scale)}: {accuracy:.1%}", fontsize=10)
            if column == 0:
                ax.set_ylabel(names[row], fontsize=12)


def draw_regions(
    ax: Axes, model: LumberjackClassifier, scale: float, window: tuple[float, float, float, float]
) -> None:
    """Draw predicted classes as areas and some of the points in a window of the plane."""
    left, right, bottom, top = window
    x, y = np.linspace(left, right, 201), np.linspace(bottom, top, 161)
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    predicted = np.searchsorted(CLASSES, model.predict(grid)).reshape(len(y), len(x))
    colours = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in COLOURS])
    pale = 0.65 + 0.35 * colours
    ax.imshow(pale[predicted], extent=window, origin="lower", aspect="auto")
    points, labels, _ = make_moons_and_blob(scale)
    for label, colour in zip(CLASSES, COLOURS, strict=True):
        own = points[labels == label][::4]
        ax.scatter(own[:, 0], own[:, 1], s=2, color=colour, linewidths=0)
    ax.set(xlim=(left, right), ylim=(bottom, top))
