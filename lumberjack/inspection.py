"""Looking at a fitted forest: its trees, its budget, what matters to it, what would help it.

All of this reads fitted attributes only. They are public already, so that no text, picture or
number made here costs privacy. `PrivacyUtilityDisplay.from_estimator` is the exception: it fits
forests on the records that it is given, and says so.

Decision regions of two features need nothing of ours:
`sklearn.inspection.DecisionBoundaryDisplay.from_estimator` takes these forests as they are.

matplotlib is the optional extra ``plot``, imported when a picture is drawn.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.model_selection import check_cv, cross_val_score
from sklearn.utils.validation import check_is_fitted

from lumberjack import accounting, privacy
from lumberjack.domain import PrivacyLeakWarning
from lumberjack.leaves import SCORE_VOTE
from lumberjack.parameters import check_integer
from lumberjack.trees import Tree, split_levels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

    from lumberjack.accounting import Calibration
    from lumberjack.guide import Guide

__all__ = [
    "PrivacyBudgetDisplay",
    "PrivacyUtilityDisplay",
    "advise",
    "export_text",
    "feature_importances",
    "plot_tree",
]

# A fitted LumberjackClassifier or LumberjackRegressor: hints cannot tell what `fit` sets.
Forest = Any

# Told apart by eyes of any colour vision (Okabe, Ito 2008).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
GREY = "#999999"
CENTRED: dict[str, Any] = {"ha": "center", "va": "center"}

# A child of fewer records than so many standard deviations of their noise tells nothing.
NOISE_CUT = 2.0

FITS_OUTSIDE = (
    "PrivacyUtilityDisplay makes {n_fits} fits, each of which spends its own epsilon on these "
    "records, and scores them: the picture and every choice made by it are outside the guarantee, "
    "unless a ledger charges every fit and score (PrivacyLedger, make_private_scorer, folds drawn "
    "record by record); if the records are public, say public=True"
)

# What to think of before a change that `advise` lists.
CAUTIONS = {
    "delta": " (it must stay well below 1 / number of records)",
    "records_per_unit": " (if nobody has more)",
}


# Text of a tree -----------------------------------------------------------------------------------


def export_text(
    model: Forest,
    tree: int = 0,
    *,
    max_depth: int | None = 10,
    spacing: int = 3,
    decimals: int | None = None,
    show_counts: bool = True,
    show_missing: bool = False,
) -> str:
    """Tell the rules of a released tree, in the manner of `sklearn.tree.export_text`.

    Parameters
    ----------
    model : LumberjackClassifier or LumberjackRegressor
        A fitted forest.
    tree : int, default=0
        Number of the tree.
    max_depth : int or None, default=10
        Levels of splits to write; of deeper branches only the size. None writes all.
    spacing : int, default=3
        Dashes a level.
    decimals : int, default=None
        Decimals of thresholds and predicted targets. By default enough to tell apart thousandths
        of the declared range.
    show_counts : bool, default=True
        Whether leaves show their noisy counts, which may be negative (``leaf="counts"`` only).
    show_missing : bool, default=False
        Whether to say where missing values go.

    Returns
    -------
    str
        Thresholds are in the unit of their feature. A leaf shows the class with most of its vote
        and its share in that vote, or the target that it predicts.

    Raises
    ------
    TypeError, ValueError
        The model is not a fitted forest, or a parameter is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from lumberjack import LumberjackClassifier
    >>> from lumberjack.inspection import export_text
    >>> ages = np.random.default_rng(0).uniform(17, 90, size=(5000, 1))
    >>> rich = np.where(ages[:, 0] > 50, "yes", "no")
    >>> model = LumberjackClassifier(bounds=(17, 90), classes=["no", "yes"]).fit(ages, rich)
    >>> print(export_text(model, max_depth=1))
    |--- ... <= ...
    """
    if max_depth is not None:
        check_integer("max_depth", max_depth, 0)
    levels = math.inf if max_depth is None else max_depth
    check_integer("spacing", spacing, 1)
    view = _TreeView(model, tree, decimals)
    indent, dashes = "|" + " " * spacing, "|" + "-" * spacing + " "
    lines = []
    stack = [("", 0, 0)]  # condition that leads to a node, the node, its depth
    while stack:
        condition, node, depth = stack.pop()
        if condition:
            lines.append(indent * (depth - 1) + dashes + condition)
        if view.is_leaf(node):
            text = view.answer_text(node)
            if show_counts and view.counts is not None:
                text += f", {view.counts_text(view.counts[node])}"
            lines.append(indent * depth + dashes + text)
        elif depth >= levels:
            branch, n_leaves = view.branch_size(node)
            text = f"truncated branch of depth {branch} with {n_leaves} leaves"
            lines.append(indent * depth + dashes + text)
        else:
            conditions = view.conditions(node, show_missing)
            # The left child comes out first.
            for text, child in reversed(list(zip(conditions, view.children(node), strict=True))):
                stack.append((text, child, depth + 1))
    return "\n".join(lines)


class _TreeView:
    """A released tree, with words for what it holds.

    Attributes
    ----------
    counts : array of shape (n_nodes, n_classes) or None
        Noisy counts, those of split nodes summed from their leaves.
    """

    def __init__(self, model: Forest, number: int, decimals: int | None = None) -> None:
        _check_forest(model)
        trees = model.trees_
        check_integer("tree", number, 0, len(trees) - 1)
        if decimals is not None:
            check_integer("decimals", decimals, 0)
        self._tree, self._domain, self._decimals = trees[number], model.domain_, decimals
        self._names = [*self._domain.feature_names, *_score_names(model)]
        self._class_weight = getattr(model, "class_weight_", 1.0)
        self.counts = None
        if hasattr(model, "leaf_counts_"):
            own = slice(*model.leaf_offsets_[number : number + 2])
            self.counts, _ = _sum_upwards(self._tree, model.leaf_counts_[own])

    def is_leaf(self, node: int) -> bool:
        return self._tree.children_left[node] < 0

    def children(self, node: int) -> tuple[int, int]:
        return self._tree.children_left[node], self._tree.children_right[node]

    def split(self, node: int) -> tuple[str, str, str]:
        """Name of the feature of a split, sign and value of the condition to go left."""
        feature = self._tree.feature[node]
        threshold = self._tree.threshold[node]
        name = self._names[feature]
        if self._tree.is_categorical[node]:
            return name, "==", str(self._domain.categories[feature][int(threshold)])
        if feature >= len(self._domain.feature_names):
            return name, "<=", self._number(threshold, 0, 1)
        ends = self._domain.lower[feature], self._domain.upper[feature]
        return name, "<=", self._number(threshold, *ends)

    def conditions(self, node: int, show_missing: bool) -> list[str]:
        """What a row fulfils that goes left, and one that goes right."""
        name, sign, value = self.split(node)
        texts = [f"{name} {sign} {value}", f"{name} {'!=' if sign == '==' else '> '} {value}"]
        if show_missing:
            texts[0 if self._tree.missing_go_to_left[node] else 1] += " or missing"
        return texts

    def shares(self, node: int) -> np.ndarray | None:
        """Shares of the classes in the vote of a leaf or in the counts of a split, or None."""
        if self.is_leaf(node):
            amounts = self._tree.votes[self._tree.leaf[node]]
        elif self.counts is None:
            return None
        else:
            amounts = self._class_weight * np.maximum(self.counts[node], 0)
        return amounts / amounts.sum() if amounts.sum() > 0 else None

    def answer_text(self, node: int) -> str:
        """What a node says: its largest class, or the target of a regression."""
        shares = self.shares(node)
        if shares is None:
            return "no vote" if self.is_leaf(node) else ""
        if self._domain.classes is None:
            low, high = self._domain.target_bounds
            return f"value: {self._number(low + (high - low) * shares[1], low, high)}"
        best = np.argmax(shares)
        share = "" if self.counts is None else f" ({100 * shares[best]:.0f} %)"
        return f"class: {self._domain.classes[best]}{share}"

    def colour(self, node: int) -> tuple[int, float] | None:
        """Number and strength, 0 to 1, of the colour of a node; None if it says nothing."""
        shares = self.shares(node)
        if shares is None:
            return None
        if self._domain.classes is None:
            return 0, shares[1]
        chance = 1 / len(shares)
        return int(np.argmax(shares)), (shares.max() - chance) / (1 - chance)

    def counts_text(self, counts: np.ndarray) -> str:
        """Noisy counts by class; for a regression their sum, the records."""
        if self._domain.classes is None:
            return f"noisy count {counts.sum():.0f}"
        return "noisy counts " + ", ".join(f"{count:.0f}" for count in counts)

    def branch_size(self, node: int) -> tuple[int, int]:
        """Depth and number of leaves of the branch at a node."""
        depth, n_leaves, stack = 0, 0, [(node, 0)]
        while stack:
            own, height = stack.pop()
            depth = max(depth, height)
            if self.is_leaf(own):
                n_leaves += 1
            else:
                stack += [(child, height + 1) for child in self.children(own)]
        return depth, n_leaves

    def _number(self, value: float, low: float, high: float) -> str:
        decimals = self._decimals
        if decimals is None:
            step = max((float(high) - float(low)) / 1000, float(np.finfo(np.float32).tiny))
            # Less a little, as bounds are rounded to 32 bits.
            decimals = max(0, math.ceil(-math.log10(step) - 1e-6))
        return f"{value:.{decimals}f}"


def _score_names(model: Forest) -> list[str]:
    """Names of the score columns, which the trees split like features."""
    if model.guide_ is None:
        return []
    classes = model.domain_.classes
    if classes is None:
        return ["guide's score"]
    return [f"guide's score of {own}" for own in classes[-model.guide_.score.n_scores :]]


def _sum_upwards(tree: Tree, leaf_values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values of all nodes, each the sum of the leaves below, and how many leaves these are."""
    is_leaf = tree.leaf >= 0
    values = np.zeros((len(is_leaf), leaf_values.shape[1]), dtype=leaf_values.dtype)
    values[is_leaf] = leaf_values[tree.leaf[is_leaf]]
    n_leaves = is_leaf.astype(np.float64)
    for splits in reversed(split_levels(tree)):
        left, right = tree.children_left[splits], tree.children_right[splits]
        values[splits] = values[left] + values[right]
        n_leaves[splits] = n_leaves[left] + n_leaves[right]
    return values, n_leaves


# Picture of a tree --------------------------------------------------------------------------------


def plot_tree(
    model: Forest,
    tree: int = 0,
    *,
    max_depth: int = 3,
    decimals: int | None = None,
    fontsize: float = 9,
    ax: Axes | None = None,
) -> list[Text]:
    """Draw the top of a released tree.

    Rows that fulfil the condition of a split go left. A node tells how many records the noisy
    counts of the leaves below sum to, and which class is largest among them, weighted by
    `class_weight` (for a regression, the mean target). The colour is that of the class, the
    stronger the larger its share; for a regression, the stronger the larger the target.

    Parameters
    ----------
    model : LumberjackClassifier or LumberjackRegressor
        A fitted forest.
    tree : int, default=0
        Number of the tree.
    max_depth : int, default=3
        Levels of splits to draw; of deeper branches only the size.
    decimals : int, default=None
        Decimals of thresholds and targets; see `export_text`.
    fontsize : float, default=9
        In points.
    ax : matplotlib Axes, default=None
        By default a new figure, as large as the tree needs.

    Returns
    -------
    list of matplotlib Text
        The nodes, depth first.

    Raises
    ------
    ImportError
        matplotlib, which is optional, is not installed.
    TypeError, ValueError
        As in `export_text`.

    Examples
    --------
    >>> import numpy as np
    >>> from lumberjack import LumberjackClassifier
    >>> from lumberjack.inspection import plot_tree
    >>> ages = np.random.default_rng(0).uniform(17, 90, size=(5000, 1))
    >>> rich = np.where(ages[:, 0] > 50, "yes", "no")
    >>> model = LumberjackClassifier(bounds=(17, 90), classes=["no", "yes"]).fit(ages, rich)
    >>> nodes = plot_tree(model, max_depth=2)
    >>> nodes[0].figure.savefig("tree.png")  # doctest: +SKIP
    """
    pyplot = _import_pyplot("plot_tree")
    check_integer("max_depth", max_depth, 0)
    view = _TreeView(model, tree, decimals)
    shown, columns = _layout(view, max_depth)
    labels = {node: _node_label(view, node, is_end) for node, _, is_end in shown}
    if ax is None:
        size = _tree_size(shown, labels, fontsize)
        _, ax = pyplot.subplots(figsize=size, layout="constrained")
    # Names may hold a $, which matplotlib would take for mathematics.
    style: dict[str, Any] = {**CENTRED, "fontsize": fontsize, "parse_math": False}
    texts = []
    for node, depth, is_end in shown:
        box: dict[str, Any] = {
            "boxstyle": "round,pad=0.4" if is_end else "square,pad=0.4",
            "facecolor": _node_colour(view, node),
            "edgecolor": "black",
            "linewidth": 0.7,
        }
        texts.append(ax.text(columns[node], -depth, labels[node], bbox=box, zorder=2, **style))
        if not is_end:
            for child, word in zip(view.children(node), ("yes", "no"), strict=True):
                ends = (columns[node], columns[child])
                ax.plot(ends, (-depth, -depth - 1), color=GREY, linewidth=1, zorder=1)
                if node == 0:
                    box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
                    ax.text(sum(ends) / 2, -0.5, word, bbox=box, zorder=1.5, **style)
    n_ends, n_levels = sum(is_end for *_, is_end in shown), 1 + max(depth for _, depth, _ in shown)
    ax.set(xlim=(-0.5, n_ends - 0.5), ylim=(0.5 - n_levels, 0.5))
    ax.set_axis_off()
    return texts


def _layout(
    view: _TreeView, max_depth: int
) -> tuple[list[tuple[int, int, bool]], dict[int, float]]:
    """Nodes to draw as (node, depth, whether the drawing ends there), and their columns."""
    shown, stack = [], [(0, 0)]
    while stack:
        node, depth = stack.pop()
        is_end = view.is_leaf(node) or depth == max_depth
        shown.append((node, depth, is_end))
        if not is_end:
            left, right = view.children(node)
            stack += [(right, depth + 1), (left, depth + 1)]
    ends = [node for node, _, is_end in shown if is_end]
    columns = {node: float(column) for column, node in enumerate(ends)}
    for node, _, is_end in reversed(shown):
        if not is_end:
            columns[node] = sum(columns[child] for child in view.children(node)) / 2
    return shown, columns


def _node_label(view: _TreeView, node: int, is_end: bool) -> str:
    lines = []
    if not is_end:
        name, sign, value = view.split(node)
        lines += [name, f"{sign} {value}"]
    if view.counts is not None:
        # Noise may take more than all records away.
        lines.append(f"\u2248 {max(0, round(float(view.counts[node].sum()))):,} records")
    lines.append(view.answer_text(node))
    if is_end and not view.is_leaf(node):
        _, n_leaves = view.branch_size(node)
        lines.append(f"({n_leaves} leaves below)")
    return "\n".join(filter(None, lines))


def _node_colour(view: _TreeView, node: int) -> Any:
    from matplotlib.colors import to_rgb

    found = view.colour(node)
    if found is None:
        return "white"
    number, strength = found
    full = np.array(to_rgb(COLOURS[number % len(COLOURS)]))
    return tuple(1 - 0.6 * strength * (1 - full))  # black text stays legible


def _tree_size(
    shown: list[tuple[int, int, bool]], labels: dict[int, str], fontsize: float
) -> tuple[float, float]:
    """Width and height, in inches, of a figure in which no nodes overlap."""
    widths = {True: [0.0], False: [0.0]}  # of ends and of splits
    for node, _, is_end in shown:
        widths[is_end].append(max(map(len, labels[node].split("\n"))) * 0.6 * fontsize / 72)
    end, split = max(widths[True]), max(widths[False])
    # Beside a split there is more than a column, as it has two columns below it.
    column = 0.35 + max(end, split / 1.5)
    lines = max(label.count("\n") + 1 for label in labels.values())
    level = 0.5 + lines * 1.3 * fontsize / 72
    n_ends = sum(is_end for *_, is_end in shown)
    return column * n_ends, level * (1 + max(depth for _, depth, _ in shown))


# Budget -------------------------------------------------------------------------------------------


class PrivacyBudgetDisplay:
    """Where the budget of a fitted forest went, as two bars.

    The first shows how rho, the zero-concentrated differential privacy of the whole, is made up of
    guide, structure and leaves. For Gaussian noise rho = mu^2 / 2, so that these are the shares of
    mu^2, too. The second shows what delta is spent on: the chance that a node which one unit fills
    alone passes a test, what the noise leaves open, and the rest, set aside for finite precision.

    It is recommended to use `from_estimator`; the parameter is stored as an attribute.

    Parameters
    ----------
    report : PrivacyReport
        The guarantee of a forest, its ``privacy_``.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    bars_ : list of matplotlib BarContainer
        The parts of rho, then those of delta.

    Examples
    --------
    >>> from lumberjack import LumberjackClassifier
    >>> from lumberjack.inspection import PrivacyBudgetDisplay
    >>> model = LumberjackClassifier(bounds=(0, 1), classes=[0, 1])
    >>> display = PrivacyBudgetDisplay.from_estimator(model.fit([[0.25], [0.75]], [0, 1]))
    >>> {part: round(share, 3) for part, share in display.rho_shares.items()}
    {'guide': 0.5, 'structure': 0.2, 'leaves': 0.3}
    """

    def __init__(self, report: privacy.PrivacyReport) -> None:
        self.report = report

    @classmethod
    def from_estimator(
        cls, estimator: Forest, *, ax: Axes | None = None, bar_kw: dict[str, Any] | None = None
    ) -> PrivacyBudgetDisplay:
        """Draw the budget of a fitted forest.

        Parameters
        ----------
        estimator : LumberjackClassifier or LumberjackRegressor
            A fitted forest.
        ax : matplotlib Axes, default=None
            By default a new figure.
        bar_kw : dict, default=None
            For `matplotlib.axes.Axes.barh`.

        Returns
        -------
        PrivacyBudgetDisplay
        """
        _check_forest(estimator)
        return cls(estimator.privacy_).plot(ax, bar_kw=bar_kw)

    @property
    def rho_shares(self) -> dict[str, float]:
        """Shares of rho by part, a dict; a ValueError if epsilon is infinite."""
        if not self.report.epsilon < math.inf:
            raise ValueError("epsilon is infinite: there is no noise and no budget to show")
        total = math.fsum(own.rho for own in self.report.mechanisms)
        if not 0 < total < math.inf:
            raise ValueError("the report tells of no budget: its rho is not positive and finite")
        return {own.part: own.rho / total for own in self.report.mechanisms}

    @property
    def delta_shares(self) -> dict[str, float]:
        """Shares of delta by cause, a dict: "lone unit", "noise" and "set aside"."""
        report = self.report
        (tests,) = (own for own in report.mechanisms if own.part == "structure")
        tail = accounting.tail_delta(tests.queries_per_unit, tests.noise, report.slack)
        aside = report.delta - report.delta_reached + report.finite_precision[1]
        parts = {"lone unit": tail, "noise": report.delta - tail - aside, "set aside": aside}
        return {cause: part / report.delta for cause, part in parts.items()}

    def plot(
        self, ax: Axes | None = None, *, bar_kw: dict[str, Any] | None = None
    ) -> PrivacyBudgetDisplay:
        """Draw the bars.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            By default a new figure.
        bar_kw : dict, default=None
            For `matplotlib.axes.Axes.barh`.

        Returns
        -------
        PrivacyBudgetDisplay
        """
        pyplot = _import_pyplot("PrivacyBudgetDisplay")
        from matplotlib.transforms import ScaledTranslation

        rho, delta = self.rho_shares, self.delta_shares
        if ax is None:
            _, ax = pyplot.subplots(figsize=(7.5, 3.6), layout="constrained")
        details = {own.part: _noise_text(own) for own in self.report.mechanisms} | {
            "lone unit": "a node that holds one unit alone passes a test",
            "noise": "the noise of all parts together",
            "set aside": "finite precision and rounding",
        }
        self.bars_ = []
        for y, shares, colours in ((1, rho, COLOURS), (0, delta, COLOURS[3:])):
            start = 0.0
            for (name, share), colour in zip(shares.items(), colours, strict=False):
                if share < 0.001:
                    continue  # invisible
                label = f"{name} {share:.0%}: {details[name]}"
                style = {"height": 0.6, "color": colour, "edgecolor": "white", **(bar_kw or {})}
                self.bars_.append(ax.barh(y, 100 * share, left=100 * start, label=label, **style))
                if share >= 0.15:  # else there is no room
                    middle = 100 * (start + share / 2)
                    ax.text(middle, y, f"{name}\n{share:.0%}", color=_ink(colour), **CENTRED)
                start += share
        total = math.fsum(own.rho for own in self.report.mechanisms)
        names = [rf"$\rho$ = {total:.3g}", rf"$\delta$ = {self.report.delta:.3g}"]
        ax.set_yticks([1, 0], names)
        ax.set(xlim=(0, 100), xlabel="share (%)", title=_budget_title(self.report))
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(axis="y", length=0)
        # Below the label of the axis, whatever the height of the axes.
        below = ax.transAxes + ScaledTranslation(0, -45 / 72, ax.figure.dpi_scale_trans)
        ax.legend(
            loc="upper left",
            bbox_to_anchor=(0, 0),
            bbox_transform=below,
            borderaxespad=0,
            fontsize="small",
            frameon=False,
        )
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _ink(colour: str) -> str:
    """Black or white, whichever is legible on a colour."""
    from matplotlib.colors import to_rgb

    return "white" if np.dot(to_rgb(colour), (0.299, 0.587, 0.114)) < 0.5 else "black"


def _noise_text(mechanism: privacy.Mechanism) -> str:
    if mechanism.name == privacy.CHOICE:
        return f"{mechanism.name}, epsilon {mechanism.noise:.3g} a leaf"
    return f"{mechanism.name}, noise {mechanism.noise:.3g} records"


def _budget_title(report: privacy.PrivacyReport) -> str:
    title = f"{privacy.guarantee_text(report.epsilon, report.delta)}, unit: {report.unit}"
    if report.is_private:
        return title
    return f"{title}\nDOES NOT HOLD: {'SEEDED' if report.seeded else 'READ FROM THE DATA'}"


# Utility ------------------------------------------------------------------------------------------


class PrivacyUtilityDisplay:
    """Score over epsilon: what privacy costs in accuracy.

    **Drawing this costs privacy.** `from_estimator` fits a forest for every epsilon and fold, and
    each spends its own epsilon on the given records; exact scores are outside of any guarantee.
    Draw it on public records like your own, or inside a `PrivacyLedger` with
    `make_private_scorer` and folds drawn record by record.

    It is recommended to use `from_estimator`; all parameters are stored as attributes.

    Parameters
    ----------
    epsilons : array-like of shape (n_epsilons,)
    test_scores : array-like of shape (n_epsilons, n_folds)
    baseline_scores : array-like of shape (n_folds,), default=None
        Of an estimator without privacy.
    baseline_name : str, default="not private"
    score_name : str, default="Score"

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    line_ : matplotlib Line2D or None
        Mean scores; None with ``std_display_style="errorbar"``.
    fill_between_ : matplotlib PolyCollection or None
        One standard deviation of the folds around the mean.
    errorbar_ : matplotlib ErrorbarContainer or None
        The same, as error bars.
    baseline_ : matplotlib Line2D or None

    See Also
    --------
    sklearn.model_selection.ValidationCurveDisplay : Score over any parameter.

    Examples
    --------
    >>> from sklearn.ensemble import ExtraTreesClassifier
    >>> from lumberjack import LumberjackClassifier
    >>> from lumberjack.datasets import make_moons_and_blob
    >>> from lumberjack.inspection import PrivacyUtilityDisplay
    >>> X, y, bounds = make_moons_and_blob()
    >>> display = PrivacyUtilityDisplay.from_estimator(
    ...     LumberjackClassifier(bounds=bounds, classes=["red", "blue", "green"]),
    ...     X, y, epsilons=[0.5, 2], cv=2, baseline=ExtraTreesClassifier(10), public=True,
    ... )
    >>> display.test_scores.shape
    (2, 2)
    """

    def __init__(
        self,
        *,
        epsilons: Any,
        test_scores: Any,
        baseline_scores: Any = None,
        baseline_name: str = "not private",
        score_name: str = "Score",
    ) -> None:
        self.epsilons = epsilons
        self.test_scores = test_scores
        self.baseline_scores = baseline_scores
        self.baseline_name = baseline_name
        self.score_name = score_name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        epsilons: Any,
        scoring: str | Callable | None = None,
        cv: Any = None,
        groups: Any = None,
        baseline: Any = None,
        param_name: str = "epsilon",
        n_jobs: int | None = None,
        public: bool = False,
        ax: Axes | None = None,
        score_name: str | None = None,
        std_display_style: str | None = "fill_between",
        line_kw: dict[str, Any] | None = None,
        fill_between_kw: dict[str, Any] | None = None,
        errorbar_kw: dict[str, Any] | None = None,
        baseline_kw: dict[str, Any] | None = None,
    ) -> PrivacyUtilityDisplay:
        """Fit and score at every epsilon by cross-validation, then draw.

        Every fit spends its own epsilon on the records, every fold once more: see the class.

        Parameters
        ----------
        estimator : estimator
            A forest or a pipeline with one, fitted or not; clones of it are fitted.
        X : array-like or frame of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        epsilons : array-like of shape (n_epsilons,)
            Positive and finite.
        scoring : str or callable, default=None
            As in `sklearn.model_selection.cross_val_score`; None takes the estimator's ``score``.
        cv : int, cross-validation generator or iterable, default=None
            As in `sklearn.model_selection.cross_val_score`. All estimators get the same folds.
        groups : array-like of shape (n_samples,), default=None
            The person of each record, for a `cv` that keeps the records of a person together.
        baseline : estimator, default=None
            One without privacy, to compare with.
        param_name : str, default="epsilon"
            Name of epsilon in a pipeline, such as "lumberjackclassifier__epsilon".
        n_jobs : int, default=None
            Fits at a time.
        public : bool, default=False
            Say True if the records are public. Otherwise a `PrivacyLeakWarning` reminds of what
            this costs.
        ax : matplotlib Axes, default=None
            By default a new figure.
        score_name, std_display_style, line_kw, fill_between_kw, errorbar_kw, baseline_kw
            See `plot`. The name of the score follows from `scoring` by default.

        Returns
        -------
        PrivacyUtilityDisplay

        Raises
        ------
        ImportError
            matplotlib, which is optional, is not installed; before anything is spent.
        ValueError
            An epsilon is not positive and finite.
        """
        _import_pyplot("PrivacyUtilityDisplay")  # before anything is spent
        _check_style(std_display_style)
        epsilons = _check_epsilons(epsilons)
        folds = check_cv(cv, y, classifier=is_classifier(estimator))
        folds = list(folds.split(X, y, groups))
        if not public:
            warnings.warn(
                FITS_OUTSIDE.format(n_fits=len(epsilons) * len(folds)),
                PrivacyLeakWarning,
                stacklevel=2,
            )

        def scores_of(model: Any) -> np.ndarray:
            return cross_val_score(
                model, X, y, cv=folds, scoring=scoring, n_jobs=n_jobs, error_score="raise"
            )

        display = cls(
            epsilons=epsilons,
            test_scores=np.array(
                [
                    scores_of(clone(estimator).set_params(**{param_name: float(epsilon)}))
                    for epsilon in epsilons
                ]
            ),
            baseline_scores=None if baseline is None else scores_of(baseline),
            baseline_name=f"{_name_of(baseline)}, not private",
            score_name=_score_name(scoring, estimator) if score_name is None else score_name,
        )
        return display.plot(
            ax,
            std_display_style=std_display_style,
            line_kw=line_kw,
            fill_between_kw=fill_between_kw,
            errorbar_kw=errorbar_kw,
            baseline_kw=baseline_kw,
        )

    def plot(
        self,
        ax: Axes | None = None,
        *,
        score_name: str | None = None,
        std_display_style: str | None = "fill_between",
        line_kw: dict[str, Any] | None = None,
        fill_between_kw: dict[str, Any] | None = None,
        errorbar_kw: dict[str, Any] | None = None,
        baseline_kw: dict[str, Any] | None = None,
    ) -> PrivacyUtilityDisplay:
        """Draw the scores over epsilon.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            By default a new figure.
        score_name : str, default=None
            Label of the y-axis instead of the attribute.
        std_display_style : {"fill_between", "errorbar"} or None, default="fill_between"
            How to show one standard deviation of the folds around the mean.
        line_kw, fill_between_kw, errorbar_kw, baseline_kw : dict, default=None
            For the `plot`, `fill_between`, `errorbar` and `axhline` of matplotlib's axes.

        Returns
        -------
        PrivacyUtilityDisplay
        """
        pyplot = _import_pyplot("PrivacyUtilityDisplay")
        _check_style(std_display_style)
        if ax is None:
            _, ax = pyplot.subplots(layout="constrained")
        mean, std = np.mean(self.test_scores, axis=1), np.std(self.test_scores, axis=1)
        label = "private, mean of the folds"
        style: dict[str, Any] = {"color": COLOURS[0], "marker": "o", "label": label}
        self.line_: Any = None
        self.fill_between_: Any = None
        self.errorbar_: Any = None
        self.baseline_: Any = None
        if std_display_style == "errorbar":
            style |= {"capsize": 3, **(errorbar_kw or {})}
            self.errorbar_ = ax.errorbar(self.epsilons, mean, std, **style)
        else:
            (self.line_,) = ax.plot(self.epsilons, mean, **{**style, **(line_kw or {})})
        if std_display_style == "fill_between":
            style = {"color": self.line_.get_color(), "alpha": 0.25, "linewidth": 0}
            style |= {"label": "\u00b1 1 standard deviation", **(fill_between_kw or {})}
            self.fill_between_ = ax.fill_between(self.epsilons, mean - std, mean + std, **style)
        if self.baseline_scores is not None:
            style = {"color": "black", "linestyle": "--", "label": self.baseline_name}
            baseline = np.mean(self.baseline_scores)
            self.baseline_ = ax.axhline(baseline, **{**style, **(baseline_kw or {})})
        ax.set_xscale("log")
        ax.set_xticks(self.epsilons, [f"{epsilon:g}" for epsilon in self.epsilons])
        ax.minorticks_off()
        ax.set_xlabel(r"privacy budget of a fit, $\varepsilon$ (log scale)")
        ax.set_ylabel(self.score_name if score_name is None else score_name)
        ax.grid(alpha=0.3)
        ax.legend(loc="best")
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _check_epsilons(epsilons: Any) -> np.ndarray:
    values = np.unique(np.asarray(epsilons, dtype=float))
    if not (values.size and values[0] > 0 and values[-1] < math.inf):
        raise ValueError(
            "epsilons must be positive and finite, one at least; for no privacy give a baseline"
        )
    return values


def _check_style(std_display_style: str | None) -> None:
    if std_display_style not in ("fill_between", "errorbar", None):
        raise ValueError(
            'std_display_style must be "fill_between", "errorbar" or None, '
            f"got {std_display_style!r}"
        )


def _name_of(estimator: Any) -> str:
    """Class of an estimator, or of the last step of a pipeline."""
    steps = getattr(estimator, "steps", None)
    return type(steps[-1][1] if steps else estimator).__name__


def _score_name(scoring: str | Callable | None, estimator: Any) -> str:
    if scoring is None:
        return "Accuracy" if is_classifier(estimator) else "$R^2$"
    if not isinstance(scoring, str):
        return "Score"
    words = scoring.replace("neg_", "negative ").replace("_", " ")
    return words[:1].upper() + words[1:]


# Importances --------------------------------------------------------------------------------------


def feature_importances(model: Forest) -> np.ndarray:
    """Importances of the features, from the noisy leaves and the guide alone.

    For every split, the noisy class counts n_c of the leaves below its children l and r estimate
    how much the split lowers the Gini impurity of the records in it (for a regression, twice the
    sum of squares of the scaled target),

        D = n_l n_r / (n_l + n_r) * sum over c of (n_lc / n_l - n_rc / n_r)^2.

    Noise makes D larger, by its variance to first order, and so does chance, by about the Gini
    impurity of the node; both are subtracted, so that a split without any effect counts 0 on
    average. A child whose noisy total is within two standard deviations of its noise of 0 tells
    nothing: its split counts 0. The sum of D over all splits of a column, in all trees, is the
    column's; one below 0 counts 0. That of a score of the guide is handed on to the features in
    proportion to the variance of their tables in this score under the noisy marginals: what they
    move the score. These sums, normalised, are weighted with the shares of the trees in the vote,
    and the variances of the tables, normalised, with that of the score, which joins the vote.

    They mean what the impurity-based importances of scikit-learn mean, and have their weaknesses:
    they describe this forest, not the world, features that say the same share their importance,
    and one that acts in combination with others only is underrated by the score. The correction
    spares them one weakness: many values or categories are no advantage. With few records and a
    small epsilon they are noise, as is the forest. Class weights have no part in them.

    Parameters
    ----------
    model : LumberjackClassifier or LumberjackRegressor
        A fitted forest with ``leaf="counts"``.

    Returns
    -------
    float64 ndarray of shape (n_features,)
        Not negative, of sum 1, in the order of the columns; all 0 if nothing was found.

    Raises
    ------
    AttributeError
        The leaves have no counts (``leaf="majority"``).
    TypeError, ValueError
        The model is not a fitted forest.

    Notes
    -----
    With e the noise of a child's counts, of variance v in each of C classes (the variance of a
    leaf times the leaves below), the share p_c = n_c / n has the error (e_c - p_c sum e) / n to
    first order, and the sum over c of its squares the mean v (C - 2 + C sum p_c^2) / n^2.

    Examples
    --------
    >>> import numpy as np
    >>> from lumberjack import LumberjackClassifier
    >>> from lumberjack.inspection import feature_importances
    >>> X = np.random.default_rng(0).uniform(size=(20000, 3))
    >>> y = (X[:, 1] > 0.5).astype(int)
    >>> model = LumberjackClassifier(bounds=(0, 1), classes=[0, 1]).fit(X, y)
    >>> bool(feature_importances(model)[1] > 0.9)
    True
    """
    _check_forest(model)
    if not hasattr(model, "leaf_counts_"):
        raise AttributeError(
            'feature importances need noisy counts, which leaf="majority" does not release: '
            'use leaf="counts"'
        )
    n_features = len(model.domain_.feature_names)
    decreases = np.maximum(_impurity_decreases(model), 0)
    by_trees, of_scores = decreases[:n_features], decreases[n_features:]
    if model.guide_ is None:
        return _normalised(by_trees)
    moves = _score_variances(model.guide_)
    by_trees = by_trees + _normalised(moves) @ of_scores
    shares = (1 - SCORE_VOTE) * _normalised(by_trees) + SCORE_VOTE * _normalised(moves.sum(axis=1))
    return _normalised(shares)


def _normalised(values: np.ndarray) -> np.ndarray:
    """Columns divided by their sums, if these are not 0."""
    total = values.sum(axis=0)
    return np.divide(values, total, out=np.zeros_like(values), where=total > 0)


def _impurity_decreases(model: Forest) -> np.ndarray:
    """What the splits of each feature, then of each score, lower the impurity, in records."""
    n_columns = len(model.domain_.feature_names) + len(_score_names(model))
    variance = model.privacy_.calibration.sigma_leaves**2
    decreases = np.zeros(n_columns)
    for tree, own in zip(model.trees_, _slices(model.leaf_offsets_), strict=True):
        counts, n_leaves = _sum_upwards(tree, model.leaf_counts_[own])
        splits = np.flatnonzero(tree.feature >= 0)
        children = [tree.children_left[splits], tree.children_right[splits]]
        by_split = _gini_decreases(
            *(counts[child] for child in children),
            *(n_leaves[child] * variance for child in children),
        )
        np.add.at(decreases, tree.feature[splits], by_split)
    return decreases


def _slices(offsets: np.ndarray) -> list[slice]:
    return [slice(start, end) for start, end in zip(offsets[:-1], offsets[1:], strict=True)]


def _gini_decreases(
    left: np.ndarray, right: np.ndarray, variance_left: np.ndarray, variance_right: np.ndarray
) -> np.ndarray:
    """Decrease of the Gini impurity, in records, by splits; without bias to first order.

    Parameters
    ----------
    left, right : arrays of shape (n_splits, n_classes)
        Noisy counts of the children.
    variance_left, variance_right : arrays of shape (n_splits,)
        Of the noise of each of their counts.

    Returns
    -------
    float64 array of shape (n_splits,)
        0 where a child holds too little to tell.
    """
    n_classes = left.shape[1]
    totals, shares, biases, clear = [], [], [], True
    for counts, variance in ((left, variance_left), (right, variance_right)):
        total = counts.sum(axis=1)
        clear = clear & (total > NOISE_CUT * np.sqrt(n_classes * variance))
        total = np.where(total > 0, total, 1)
        share = counts / total[:, None]
        norm = (share**2).sum(axis=1)
        totals.append(total)
        shares.append(share)
        biases.append(variance * (n_classes - 2 + n_classes * norm) / total**2)
    whole = totals[0] + totals[1]
    distance = ((shares[0] - shares[1]) ** 2).sum(axis=1) - biases[0] - biases[1]
    chance = 1 - (((left + right) / whole[:, None]) ** 2).sum(axis=1)
    return np.where(clear, totals[0] * totals[1] / whole * distance - chance, 0)


def _score_variances(guide: Guide) -> np.ndarray:
    """Variance of each feature's entries in each score, under its noisy marginal.

    Returns
    -------
    float64 array of shape (n_features, n_scores)
    """
    ends = np.cumsum([len(own) for own in guide.marginals])[:-1]
    variances = []
    for counts, table in zip(guide.marginals, np.split(guide.score.tables, ends), strict=True):
        weights = _normalised(np.maximum(counts.sum(axis=1), 0))
        variances.append(weights @ table**2 - (weights @ table) ** 2)
    return np.maximum(variances, 0)


# Advice -------------------------------------------------------------------------------------------


def advise(model: Forest, n_records: int | None = None) -> list[str]:
    """What to change if a forest came out nearly empty: most of its trees single leaves.

    Parameters
    ----------
    model : LumberjackClassifier or LumberjackRegressor
        A fitted forest.
    n_records : int, default=None
        Number of records, if it is public. By default the noisy leaf counts tell it.

    Returns
    -------
    list of str
        Lines of text; none if the trees are grown. They follow from what is released, and may be
        published like the model, if `n_records` may.

    Raises
    ------
    TypeError, ValueError
        The model is not a fitted forest.

    Examples
    --------
    >>> from lumberjack import LumberjackClassifier
    >>> from lumberjack.inspection import advise
    >>> model = LumberjackClassifier(epsilon=1, bounds=(0, 1), classes=[0, 1])
    >>> advise(model.fit([[0.25], [0.75]], [0, 1]))[0]
    '20 of 20 trees are a single leaf, which says the same of every row.'
    """
    _check_forest(model)
    n_single = int((np.diff(model.leaf_offsets_) == 1).sum())
    n_trees, report = len(model.leaf_offsets_) - 1, model.privacy_
    if 2 * n_single < n_trees:
        return []
    lines = [
        f"{n_single} of {n_trees} trees are a single leaf, which says the same of every row.",
        f"A node is split from about tau = {_count(report.threshold)} records on; "
        f"{_records_text(model, n_records)}. Several times tau are needed.",
    ]
    if report.epsilon == math.inf:
        return [*lines, "Without noise any threshold will do: give a smaller one."]
    changes = [f"  {change}" for change in _changes(model)]
    if changes:
        changes.insert(0, "What tau would be with one change, all else equal:")
    return [
        *lines,
        *changes,
        "Another fit on the same records spends its own epsilon and delta beside this one's.",
    ]


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _records_text(model: Forest, n_records: int | None) -> str:
    if n_records is not None:
        check_integer("n_records", n_records, 0)
        return f"there are {_count(n_records)}"
    counts = getattr(model, "leaf_counts_", None)
    if counts is None:
        return "compare it with the number of records"
    # Every tree counts all records.
    n_trees = len(model.leaf_offsets_) - 1
    sigma = model.privacy_.calibration.sigma_leaves * math.sqrt(counts.size) / n_trees
    found = max(0.0, counts.sum() / n_trees)
    return f"the noisy leaves tell of {_count(found)} (standard deviation {_count(sigma)})"


def _changes(model: Forest) -> Iterator[str]:
    """Yield changes of the parameters and the threshold that each would give."""
    c = model.privacy_.calibration
    least = c.records_per_unit + c.slack
    if c.threshold > least * (1 + 1e-9):
        yield f"threshold=None: {_count(least)}"
    for changes in _candidates(c):
        try:
            threshold = _threshold_with(model, changes)
        except ValueError:
            continue  # no noise can be calibrated so, as with an epsilon beyond finite precision
        settings = ", ".join(f"{name}={_setting(value)}" for name, value in changes.items())
        caution = "".join(CAUTIONS.get(name, "") for name in changes)
        yield f"{settings}: {_count(threshold)}{caution}"


def _candidates(calibration: Calibration) -> Iterator[dict[str, Any]]:
    """Yield parameters that lower the threshold."""
    c, shares = calibration, dict(calibration.budget_shares)
    yield {"epsilon": 2 * c.epsilon}
    if 10 * c.delta < 0.01:
        yield {"delta": 10 * c.delta}
    fewer = {"n_estimators": c.n_estimators // 2} if c.n_estimators > 1 else {}
    levels = 2 ** (c.max_depth.bit_length() - 1) - 1  # one test a tree less
    shallower = {"max_depth": levels} if levels else {}
    yield from filter(None, (fewer, shallower))
    if fewer and shallower:
        yield fewer | shallower
    if shares["guide"] > 0:
        half = shares["guide"] / 2
        moved = shares | {"guide": half, "structure": shares["structure"] + half}
        yield {"budget_shares": moved}
    if c.records_per_unit > 1:
        yield {"records_per_unit": 1}


def _setting(value: Any) -> str:
    """A parameter as one writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{name}": {share:g}' for name, share in value.items()) + "}"
    return f"{value:g}"


def _threshold_with(model: Forest, changes: dict[str, Any]) -> float:
    """Least threshold of a fit with other parameters."""
    c, domain = model.privacy_.calibration, model.domain_
    kept = ("epsilon", "delta", "n_estimators", "max_depth", "leaf", "accounting")
    parameters = {name: getattr(c, name) for name in (*kept, "records_per_unit")}
    parameters["budget_shares"] = dict(c.budget_shares)
    return accounting.calibrate(
        **parameters | changes,
        n_features=len(domain.feature_names),
        n_classes=2 if domain.classes is None else len(domain.classes),
        soft_labels=domain.classes is None,
    ).threshold


# Checks -------------------------------------------------------------------------------------------


def _check_forest(model: Any) -> None:
    if not hasattr(type(model), "trees_"):
        raise TypeError(
            f"this needs a LumberjackClassifier or LumberjackRegressor, got {type(model).__name__};"
            " of a pipeline give the last step, pipeline[-1]"
        )
    check_is_fitted(model)


def _import_pyplot(what: str) -> Any:
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError(
            f"{what} needs matplotlib, the extra 'plot': pip install 'lumberjack-dp[plot]'"
        ) from None
    return pyplot
