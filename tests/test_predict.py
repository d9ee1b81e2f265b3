"""Prediction by the kernel against walking the nodes."""

import numpy as np
import oracle
import pytest
from oracle import NaiveBits, kernel_forest

from lumberjack._predict import apply, sum_votes, to_probabilities


def grown(rng, n_estimators=5):
    """A random problem with its forest and random leaf values."""
    problem = oracle.random_problem(rng)
    table = oracle.exact_table(int(rng.integers(1, 6)))
    max_depth = int(rng.integers(1, 10))
    seed = int(rng.integers(0, 1000))
    nodes, tree_offsets, leaf_offsets, leaf_counts, _ = kernel_forest(
        problem, max_depth, table, seed, n_estimators, NaiveBits(0)
    )
    leaf_values = rng.normal(size=leaf_counts.shape)
    return problem, nodes, tree_offsets, leaf_offsets, leaf_values, leaf_counts


def rows_to_predict(rng, problem, nodes, n_rows):
    """Rows of training values, thresholds hit exactly or nearly, and values never seen."""
    columns = []
    for f, count in enumerate(problem["n_categories"]):
        thresholds = nodes["threshold"][nodes["feature"] == f]
        pool = [problem["X"][f], thresholds, [np.nan]]
        if count:
            pool.append(np.arange(-1, count + 2))
        else:
            nearby = [np.nextafter(thresholds, np.float32(s)) for s in (-np.inf, np.inf)]
            pool += [*nearby, [-3e38, 3e38, -np.inf, np.inf, 0.0, -0.0]]
        columns.append(rng.choice(np.concatenate(pool).astype(np.float32), n_rows))
    return np.ascontiguousarray(np.stack(columns, axis=1), dtype=np.float32)


def walk_all(X, nodes, tree_offsets):
    """The index of the leaf node of every row in every tree."""
    trees = [nodes[a:b].tolist() for a, b in zip(tree_offsets[:-1], tree_offsets[1:], strict=True)]
    return np.array([[oracle.walk(rows, x) for rows in trees] for x in X.tolist()])


@pytest.mark.parametrize("part", range(3))
def test_apply_and_votes_equal_the_walk(part):
    rng = np.random.default_rng(part)
    for _ in range(60):
        problem, nodes, tree_offsets, leaf_offsets, leaf_values, _ = grown(rng)
        X = rows_to_predict(rng, problem, nodes, int(rng.integers(1, 40)))
        leaf_nodes = walk_all(X, nodes, tree_offsets)
        indices = apply(X, nodes, tree_offsets, 1)
        assert indices.dtype == np.int32
        assert np.array_equal(indices, leaf_nodes)
        leaves = nodes["right"][tree_offsets[:-1] + leaf_nodes] + leaf_offsets[:-1]
        expected = np.zeros((len(X), leaf_values.shape[1]))
        for t in range(leaves.shape[1]):  # in the order of the trees, as the kernel adds
            expected += leaf_values[leaves[:, t]]
        votes = sum_votes(X, nodes, tree_offsets, leaf_offsets, leaf_values, 1)
        assert votes.dtype == np.float64
        assert np.array_equal(votes, expected)


def test_blocks_of_rows_equal_the_walk():
    # More rows than go down a tree together, through larger trees.
    rng = np.random.default_rng(5)
    n_records = 600
    problem = {
        "X": np.stack(
            [
                rng.normal(size=n_records),
                rng.integers(-1, 5, n_records),
                np.where(rng.random(n_records) < 0.3, np.nan, rng.random(n_records)),
            ]
        ).astype(np.float32),
        "y": rng.integers(0, 2, n_records).astype(np.int32),
        "n_classes": 2,
        "n_categories": np.array([0, 5, 0], dtype=np.int32),
        "lower": np.array([-3, 0, 0], dtype=np.float32),
        "upper": np.array([3, 0, 1], dtype=np.float32),
    }
    nodes, tree_offsets, *_ = kernel_forest(
        problem, 40, oracle.exact_table(3, n_records), 1, 2, NaiveBits(0)
    )
    X = rows_to_predict(rng, problem, nodes, 9000)
    X[:, 0] = rng.normal(size=len(X))
    assert np.array_equal(apply(X, nodes, tree_offsets, 2), walk_all(X, nodes, tree_offsets))


def test_training_records_are_found_in_the_leaves_they_were_counted_in():
    rng = np.random.default_rng(17)
    for _ in range(60):
        problem, nodes, tree_offsets, leaf_offsets, _, leaf_counts = grown(rng)
        X = np.ascontiguousarray(problem["X"].T)
        leaf_nodes = apply(X, nodes, tree_offsets, 1)
        leaves = nodes["right"][tree_offsets[:-1] + leaf_nodes] + leaf_offsets[:-1]
        counts = np.zeros_like(leaf_counts)
        for column in leaves.T:
            np.add.at(counts, (column, problem["y"]), 1)
        assert np.array_equal(counts, leaf_counts)


def test_the_number_of_threads_and_of_rows_changes_nothing():
    rng = np.random.default_rng(3)
    problem, nodes, tree_offsets, leaf_offsets, leaf_values, _ = grown(rng, n_estimators=11)
    X = rows_to_predict(rng, problem, nodes, 5000)
    indices = apply(X, nodes, tree_offsets, 1)
    votes = sum_votes(X, nodes, tree_offsets, leaf_offsets, leaf_values, 1)
    for n_threads in (2, 4, 32):
        assert np.array_equal(apply(X, nodes, tree_offsets, n_threads), indices)
        threaded = sum_votes(X, nodes, tree_offsets, leaf_offsets, leaf_values, n_threads)
        assert threaded.tobytes() == votes.tobytes()
    for rows in (slice(0, 1), slice(4999, 5000), slice(7, 12)):
        part = np.ascontiguousarray(X[rows])
        assert np.array_equal(apply(part, nodes, tree_offsets, 2), indices[rows])
        single = sum_votes(part, nodes, tree_offsets, leaf_offsets, leaf_values, 2)
        assert single.tobytes() == votes[rows].tobytes()


@pytest.mark.parametrize("n_threads", [1, 2])
def test_no_rows(n_threads):
    rng = np.random.default_rng(4)
    problem, nodes, tree_offsets, leaf_offsets, leaf_values, _ = grown(rng, n_estimators=3)
    X = np.empty((0, len(problem["X"])), dtype=np.float32)
    assert apply(X, nodes, tree_offsets, n_threads).shape == (0, 3)
    votes = sum_votes(X, nodes, tree_offsets, leaf_offsets, leaf_values, n_threads)
    assert votes.shape == (0, problem["n_classes"])


def test_a_value_on_the_threshold_goes_left_and_the_next_one_right():
    problem = {
        "X": np.zeros((1, 1), dtype=np.float32),
        "y": np.zeros(1, dtype=np.int32),
        "n_classes": 1,
        "n_categories": np.zeros(1, dtype=np.int32),
        "lower": np.zeros(1, dtype=np.float32),
        "upper": np.ones(1, dtype=np.float32),
    }
    nodes, tree_offsets, *_ = kernel_forest(problem, 1, oracle.exact_table(1), 0, 1, NaiveBits(0))
    threshold = nodes["threshold"][0]
    above = np.nextafter(threshold, np.float32(2))
    X = np.array([[threshold], [above], [-np.inf], [np.inf]], dtype=np.float32)
    assert apply(X, nodes, tree_offsets, 1)[:, 0].tolist() == [1, 2, 1, 2]


def test_missing_values_and_unknown_categories():
    problem = {
        "X": np.zeros((1, 1), dtype=np.float32),
        "y": np.zeros(1, dtype=np.int32),
        "n_classes": 1,
        "n_categories": np.array([3], dtype=np.int32),
        "lower": np.zeros(1, dtype=np.float32),
        "upper": np.zeros(1, dtype=np.float32),
    }
    nodes, tree_offsets, *_ = kernel_forest(problem, 1, oracle.exact_table(1), 0, 50, NaiveBits(0))
    X = np.array([[-1.0], [7.0], [np.nan]], dtype=np.float32)
    unknown, beyond, missing = apply(X, nodes, tree_offsets, 1)
    roots = nodes[tree_offsets[:-1]]
    assert (unknown == 2).all() and (beyond == 2).all()
    assert np.array_equal(missing, np.where(roots["flags"] & 1, 1, 2))
    assert set(missing.tolist()) == {1, 2}
    known = np.arange(3, dtype=np.float32)[:, None]
    expected = np.where(known == roots["threshold"], 1, 2)
    assert np.array_equal(apply(known, nodes, tree_offsets, 1), expected)


def test_a_forest_of_single_leaves():
    problem = {
        "X": np.zeros((2, 4), dtype=np.float32),
        "y": np.zeros(4, dtype=np.int32),
        "n_classes": 2,
        "n_categories": np.zeros(2, dtype=np.int32),
        "lower": np.zeros(2, dtype=np.float32),
        "upper": np.ones(2, dtype=np.float32),
    }
    nodes, tree_offsets, leaf_offsets, *_ = kernel_forest(
        problem, 5, oracle.exact_table(5), 0, 3, NaiveBits(0)
    )
    X = np.zeros((2, 2), dtype=np.float32)
    assert apply(X, nodes, tree_offsets, 1).tolist() == [[0, 0, 0]] * 2
    values = np.array([[1.0, 0.5], [2.0, 0.25], [4.0, 0.125]])
    votes = sum_votes(X, nodes, tree_offsets, leaf_offsets, values, 1)
    assert votes.tolist() == [[7.0, 0.875]] * 2


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_probabilities_by_hand(n_classes, n_threads):
    rng = np.random.default_rng(n_classes)
    votes = rng.random((9000, n_classes))  # more than one block
    votes[::5] = 0
    votes[1::5, 0] = 0
    votes[2::5, 1:] = 0
    prior = rng.dirichlet(np.ones(n_classes))
    totals = votes.sum(axis=1, keepdims=True)
    forest = np.where(totals > 0, votes / np.where(totals > 0, totals, 1), prior)
    found = votes.copy()
    to_probabilities(found, prior, n_threads=n_threads)
    np.testing.assert_allclose(found, forest, rtol=1e-15)
    score = rng.dirichlet(np.full(n_classes, 0.1), size=len(votes))
    found = votes.copy()
    own = score[:, 1:].copy() if n_classes == 2 else score
    to_probabilities(found, prior, own, 0.3, 1e-3, n_threads)
    np.testing.assert_allclose(found, oracle.combine(forest, score, 0.3, 1e-3), rtol=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), 1)


def test_probabilities_of_a_score_that_agrees_are_those_of_the_forest():
    forest = np.random.default_rng(0).dirichlet(np.ones(3), size=50) * 0.9 + 0.1 / 3
    found = forest.copy()
    to_probabilities(found, np.full(3, 1 / 3), forest, 0.2, 1e-4)
    np.testing.assert_allclose(found, forest)
