"""Checks of parameters, each by itself."""

import inspect
import math

import numpy as np
import pytest

from lumberjack import parameters
from lumberjack.parameters import (
    REFUSED,
    check_choice,
    check_integer,
    check_real,
    check_verbose,
    explain_refused,
    read_weights,
    refusal,
    resolve_class_weight,
    resolve_shares,
)

CLASSES = np.array(["no", "yes"])


def test_default_shares_sum_to_one_and_go_with_the_splitter():
    for splitter, shares in parameters.DEFAULT_SHARES.items():
        assert math.isclose(sum(shares.values()), 1)
        assert resolve_shares(None, splitter, "joint") is shares
        assert ("guide" in shares) == (splitter == "guided")


@pytest.mark.parametrize(
    "shares",
    [
        {name: np.float32(own) for name, own in {"structure": 0.6, "leaves": 0.4}.items()},
        {name: np.float32(own) for name, own in {"structure": 0.9, "leaves": 0.1}.items()},
        {"structure": 0.333333, "leaves": 0.666667},
    ],
)
def test_shares_of_few_digits_are_made_to_sum_to_one(shares):
    found = resolve_shares(shares, "random", "joint")
    assert math.isclose(math.fsum(found.values()), 1, rel_tol=1e-15)
    assert all(type(own) is float for own in found.values())
    assert found == pytest.approx(shares, rel=1e-6)


def test_shares_that_do_not_sum_to_one_are_left_for_the_account_to_refuse():
    shares = {"structure": 0.5, "leaves": 0.4999}
    assert resolve_shares(shares, "random", "joint") is shares
    shares = {"structure": "much", "leaves": 0.5}
    assert resolve_shares(shares, "random", "joint") is shares


@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_not_an_integer(value):
    with pytest.raises(TypeError, match="n must be an integer from 1 to 3"):
        check_integer("n", value, 1, 3)


def test_integers_in_a_range():
    check_integer("n", np.int32(3), 1, 3)
    for value in (0, 4):
        with pytest.raises(ValueError, match="n must be from 1 to 3"):
            check_integer("n", value, 1, 3)


def test_numbers():
    for value in (1, 0.5, np.float32(2), math.inf):
        check_real("x", value)
    for value in (True, "1", None, 1j):
        with pytest.raises(TypeError, match="x must be a number"):
            check_real("x", value)
    with pytest.raises(ValueError, match="too large"):
        check_real("x", 10**400)


def test_choices():
    check_choice("leaf", "counts", ("counts", "majority"))
    for value in ("count", None, ["counts"]):
        with pytest.raises(ValueError, match="leaf must be 'counts' or 'majority'"):
            check_choice("leaf", value, ("counts", "majority"))


def test_verbose():
    for value in (0, 2, True, np.bool_(False), np.int64(1)):
        check_verbose(value)
    for value in ("x", 0.5, None):
        with pytest.raises(TypeError, match="verbose must be an integer"):
            check_verbose(value)
    with pytest.raises(ValueError, match="verbose"):
        check_verbose(-1)


def test_class_weights_are_normalised_in_the_order_of_the_classes():
    weights = resolve_class_weight({"no": 2, "yes": 8.0}, CLASSES, "counts")
    assert weights.tolist() == [0.25, 1]
    assert resolve_class_weight({"yes": 4}, CLASSES, "counts").tolist() == [0.25, 1]
    assert resolve_class_weight({}, CLASSES, "counts").tolist() == [1, 1]
    assert resolve_class_weight({True: 2}, np.array([False, True]), "counts").tolist() == [0.5, 1]
    assert resolve_class_weight("balanced", CLASSES, "counts") == "balanced"
    for leaf in ("counts", "majority"):
        assert resolve_class_weight(None, CLASSES, leaf) is None


def test_weights_of_records():
    assert read_weights(None, 3) is None
    assert read_weights([1, 0, 2], 3).tolist() == [1, 0, 2]


def test_refused_arguments_are_explained_but_not_part_of_the_signature():
    @explain_refused
    def fit(X, y):
        """Fit."""
        return X + y

    assert fit(1, y=2) == 3 and fit.__doc__ == "Fit."
    assert list(inspect.signature(fit).parameters) == ["X", "y"]
    for name, reason in REFUSED.items():
        with pytest.raises(TypeError) as caught:
            fit(1, 2, **{name: None})
        assert str(caught.value) == refusal(name) and reason in refusal(name)
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        fit(1, 2, z=3)
