"""Codes of large tables: the forest is that of the values, bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumberjack import _forest, noise
from lumberjack._tree import SplitPlan

LOWER, UPPER = -2.0, 3.0

# How numbers may lie: where a split by a threshold is hardest to tell from the codes.
NUMBERS = {
    "uniform": lambda rng, n: rng.uniform(LOWER, UPPER, n),
    "constant": lambda rng, n: np.full(n, 0.25),
    "two values": lambda rng, n: rng.choice([-0.0, 0.0, 1e-45], n),
    "mostly zero": lambda rng, n: np.where(rng.random(n) < 0.9, 0, rng.exponential(50, n)),
    "heavy tail": lambda rng, n: np.exp(rng.normal(0, 30, n)),
    "beyond the bounds": lambda rng, n: rng.normal(0, 1e30, n),
    "all missing": lambda rng, n: np.full(n, np.nan),
    "some missing": lambda rng, n: np.where(rng.random(n) < 0.3, np.nan, rng.normal(0, 1, n)),
    "integers": lambda rng, n: rng.integers(-2, 4, n),
    "neighbours": lambda rng, n: np.nextafter(np.float32(1), rng.choice([0, 2], n)),
}


def table(rng, kinds, sizes, n):
    """Encoded columns: numbers of the given kinds, then categories, missing and unknown ones."""
    with np.errstate(over="ignore"):
        columns = [np.clip(NUMBERS[kind](rng, n), -3e38, 3e38) for kind in kinds]
    columns += [rng.integers(-1, size, n) for size in sizes]
    X = np.array(columns, dtype=np.float32)
    for f in range(len(kinds), len(X)):
        X[f, rng.random(n) < 0.1] = np.nan
    n_categories = np.array([0] * len(kinds) + sizes, dtype=np.int32)
    bounds = [np.full(len(X), value, dtype=np.float32) for value in (LOWER, UPPER)]
    return X, SplitPlan(n_categories, *bounds)


def grow(X, plan, seed, **options):
    """A seeded forest, its exact leaf counts and the tests that each record was in."""
    n_trees = 3
    y = (np.arange(X.shape[1]) % 2).astype(np.int32)
    bits = noise.derive_keys(seed)[1]
    tests = np.zeros((n_trees, X.shape[1]), dtype=np.int32)
    tables = noise.test_table(3.0, 12.0, 9.0, 1, X.shape[1])
    grown = _forest.grow_forest(
        X, y, 2, plan, 20, *tables, 77 + seed, n_trees, bits, test_counts=tests, **options
    )
    return [*(array.tobytes() for array in grown), tests.tobytes()]


@settings(max_examples=60, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(sorted(NUMBERS)), max_size=3),
    sizes=st.lists(st.sampled_from([1, 2, 7, 253, 254, 255, 256, 400]), max_size=3),
    n=st.sampled_from([1, 2, 40, 700, 3000]),
    seed=st.integers(0, 2**32 - 1),
    lazy=st.booleans(),
    n_threads=st.integers(1, 3),
)
def test_a_forest_by_codes_is_that_of_the_values(kinds, sizes, n, seed, lazy, n_threads):
    if not kinds and not sizes:
        kinds = ["uniform"]
    X, plan = table(np.random.default_rng(seed), kinds, sizes, n)
    expected = grow(X, plan, seed, lazy=lazy, compact=False)
    assert grow(X, plan, seed, lazy=lazy, compact=True, n_threads=n_threads) == expected
    assert grow(X.copy(), plan, seed, lazy=lazy, compact=True, overwrite_X=True) == expected


@pytest.mark.parametrize("n_features", [4, 64, 65])
@pytest.mark.parametrize("lazy", [True, False])
def test_large_tables_gather_the_codes_of_subtrees(n_features, lazy):
    """More records than a subtree gathers, so that nodes lie on both sides of the limit."""
    rng = np.random.default_rng(n_features)
    n = 2 * 262144 // n_features + 5
    kinds = [sorted(NUMBERS)[f % len(NUMBERS)] for f in range(n_features // 2)]
    sizes = [(2, 300)[f % 2] for f in range(n_features - len(kinds))]
    X, plan = table(rng, kinds, sizes, n)
    assert grow(X, plan, 1, lazy=lazy, compact=True) == grow(X, plan, 1, lazy=lazy, compact=False)


def test_codes_are_used_for_large_tables_and_x_is_kept_unless_told():
    rng = np.random.default_rng(0)
    X, plan = table(rng, ["uniform"] * 3, [5, 5], 262144)
    assert X.size > 2**20
    before = X.copy()
    expected = grow(X, plan, 0, compact=False)
    assert grow(X, plan, 0) == expected
    np.testing.assert_array_equal(X, before)
    assert grow(X, plan, 0, overwrite_X=True) == expected
