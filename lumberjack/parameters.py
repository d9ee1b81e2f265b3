"""Checks of the parameters of estimators."""

from collections.abc import Mapping
from numbers import Integral, Real

# Shares of the budget, chosen on data that no reported result is measured on.
DEFAULT_SHARES = {
    "guided": {"guide": 0.5, "structure": 0.2, "leaves": 0.3},
    "random": {"structure": 0.75, "leaves": 0.25},
}

# The samplers' error analysis (accounting.finite_precision) is for trees up to this deep.
MAX_DEPTH = 1023


def resolve_shares(budget_shares, splitter, accounting):
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
    return budget_shares


def check_integer(name, value, low=None, high=None):
    """Raise unless `value` is an integer in the range; a bool is not one."""
    limits = "" if low is None else f" at least {low}" if high is None else f" from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer{limits}, got {type(value).__name__}")
    if (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(f"{name} must be{limits}, got {value}")


def check_real(name, value):
    """Raise unless `value` is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    try:
        float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large for a number") from None


def check_choice(name, value, choices):
    """Raise unless `value` is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        allowed = " or ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
