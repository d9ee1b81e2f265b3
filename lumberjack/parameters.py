"""Checks of the parameters of estimators."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
T = TypeVar("T")

# Shares of the budget, chosen on data that no reported result is measured on.
DEFAULT_SHARES = {
    "guided": {"guide": 0.5, "structure": 0.2, "leaves": 0.3},
    "random": {"structure": 0.75, "leaves": 0.25},
}
SHARES_TOLERANCE = 1e-6  # of their sum, which is then made 1

# Class weights further apart than this leave nothing of the smaller ones in 64-bit floats.
LARGEST_WEIGHT_RATIO = 1e9

# What scikit-learn's forests take and these do not, and why.
_BY_TESTS = (
    "the noisy tests alone decide which nodes are split, as what they hold is private; "
    "threshold= raises the number of records that it takes"
)
_BY_DRAWING = "splits are drawn, not searched for; splitter= says how"
_ALL_RECORDS = "every tree is grown from all records, and the noise is calibrated for that"
REFUSED = {
    "sample_weight": (
        "the noise hides a record that counts once, and a record of weight w would need w times "
        "as much; class_weight= is free"
    ),
    "warm_start": (
        "the budget is shared out before the first tree is grown, and nothing is left for more; "
        "fit anew, within a PrivacyLedger to account for both fits"
    ),
    "monotonic_cst": (
        "each leaf answers with noise of its own, so that no order among leaves can be kept"
    ),
    "criterion": _BY_DRAWING,
    "max_features": _BY_DRAWING,
    "min_samples_split": _BY_TESTS,
    "min_samples_leaf": _BY_TESTS,
    "min_weight_fraction_leaf": _BY_TESTS,
    "max_leaf_nodes": _BY_TESTS,
    "min_impurity_decrease": _BY_TESTS,
    "ccp_alpha": _BY_TESTS,
    "bootstrap": _ALL_RECORDS,
    "max_samples": _ALL_RECORDS,
    "oob_score": _ALL_RECORDS,
}

# The samplers' error analysis (accounting.finite_precision) is for trees up to this deep.
MAX_DEPTH = 1023


def resolve_shares(budget_shares: Any, splitter: str, accounting: str) -> Mapping[str, float]:
    """The budget shares asked for; the guide gets one if and only if there is a guide.

    Parameters
    ----------
    budget_shares : dict or None
    splitter : {"guided", "random"}
    accounting : {"joint", "split"}

    Returns
    -------
    dict
    """
    default = DEFAULT_SHARES[splitter]
    if splitter == "guided" and accounting == "split":
        raise ValueError(
            'accounting="split" knows no guide: use accounting="joint", or splitter="random" for '
            "the method of the paper"
        )
    if budget_shares is None:
        return default
    if not isinstance(budget_shares, Mapping):
        raise TypeError(f"budget_shares must be a dict of shares that sum to 1, such as {default}")
    if (splitter == "guided") != (budget_shares.get("guide", 0) != 0):
        raise ValueError(
            'budget_shares must give "guide" a share with splitter="guided", and none with '
            f'splitter="random", such as {default}'
        )
    total = _sum_of(budget_shares.values())
    if abs(total - 1) <= SHARES_TOLERANCE:  # shares of 32-bit floats, or thirds to a few digits
        return {name: float(share) / total for name, share in budget_shares.items()}
    return budget_shares


def _sum_of(shares: Iterable[Any]) -> float:
    """The sum of numbers; NaN, if they are none."""
    if any(isinstance(share, bool) or not isinstance(share, Real) for share in shares):
        return math.nan
    return math.fsum(shares)


def resolve_class_weight(
    class_weight: Any, classes: np.ndarray, leaf: str
) -> np.ndarray | str | None:
    """Weights of the classes, of which the largest is 1.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        From label to weight, 1 for a class that it does not name.
    classes : array of shape (n_classes,)
    leaf : {"counts", "majority"}

    Returns
    -------
    float64 array of shape (n_classes,), "balanced" or None
    """
    if class_weight is None:
        return None
    if leaf == "majority":
        raise ValueError(
            'class_weight needs leaf="counts": the majorities of leaves are no probabilities that '
            "weights could shift"
        )
    if isinstance(class_weight, str) and class_weight == "balanced":
        return "balanced"
    if not isinstance(class_weight, Mapping):
        raise TypeError('class_weight must be None, "balanced" or a dict from class to weight')
    places = {label: place for place, label in enumerate(classes.tolist())}
    weights = np.ones(len(classes))
    for label, weight in class_weight.items():
        if label not in places:
            raise ValueError(f"class_weight names {label!r}, which is not in classes")
        check_real("class_weight", weight)
        if not 0 < weight < np.inf:
            raise ValueError("class_weight must hold finite numbers above 0")
        weights[places[label]] = weight
    weights = weights / weights.max()
    if weights.min() * LARGEST_WEIGHT_RATIO < 1:
        raise ValueError("class_weight holds weights more than 10^9 times apart")
    return weights


def read_weights(sample_weight: Any, n_records: int) -> np.ndarray | None:
    """Weights of records for an exact score.

    Parameters
    ----------
    sample_weight : array-like of shape (n_records,) or None
    n_records : int

    Returns
    -------
    float64 array of shape (n_records,) or None
    """
    if sample_weight is None:
        return None
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("sample_weight must hold numbers") from None
    if weights.shape != (n_records,):
        raise ValueError("sample_weight must be a 1d array of one weight for each record")
    if not (np.isfinite(weights) & (weights >= 0)).all() or not weights.any():
        raise ValueError("sample_weight must be finite, not negative, and not all zero")
    return weights


def explain_refused(function: Callable[P, T]) -> Callable[P, T]:
    """Say why a keyword argument is refused that scikit-learn's forests take.

    It is no part of the signature. Other unknown arguments meet Python's own error.
    """

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        for name in kwargs:
            if name in REFUSED:
                raise TypeError(refusal(name))
        return function(*args, **kwargs)

    return wrapper


def refusal(name: str) -> str:
    """The message about a parameter of `REFUSED`."""
    return f"{name} is no parameter of these forests: {REFUSED[name]}"


def check_verbose(verbose: Any) -> None:
    """Raise unless `verbose` is a bool or an integer."""
    if not isinstance(verbose, bool | np.bool_):
        check_integer("verbose", verbose, 0)


def check_integer(name: str, value: Any, low: int | None = None, high: int | None = None) -> None:
    """Raise unless `value` is an integer in the range; a bool is not one."""
    limits = "" if low is None else f" at least {low}" if high is None else f" from {low} to {high}"
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_integer:
        raise TypeError(f"{name} must be an integer{limits}, got {type(value).__name__}")
    if (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(f"{name} must be{limits}, got {value}")


def check_real(name: str, value: Any) -> None:
    """Raise unless `value` is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    try:
        float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large for a number") from None


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise unless `value` is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        allowed = " or ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
