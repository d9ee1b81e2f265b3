"""The forest kernel against the naive forest, and its independence of threads and order."""

import numpy as np
import oracle
import pytest
from lumberjack._tree import NODE_DTYPE
from oracle import NaiveBits, kernel_forest

from lumberjack import noise

N_PROBLEMS = 4000


def kernel_arrays(result):
    """The kernel's arrays as bytes, to be compared bit for bit."""
    return [np.ascontiguousarray(part).tobytes() for part in result]


def noise_free_problems(seed, n_problems):
    rng = np.random.default_rng(seed)
    for _ in range(n_problems):
        problem = oracle.random_problem(rng)
        settings = {
            "max_depth": int(rng.integers(1, 10)),
            "tau": int(rng.integers(1, 21)),
            "split_seed": int(rng.integers(0, 2**64, dtype=np.uint64)),
            "n_estimators": int(rng.integers(1, 4)),
        }
        yield problem, settings


@pytest.mark.parametrize("part", range(4))
def test_without_noise_the_kernel_equals_the_oracle(part):
    inner = 0
    for problem, s in noise_free_problems(part, N_PROBLEMS // 4):
        table = oracle.exact_table(s["tau"])
        arguments = s["max_depth"], table, s["split_seed"], s["n_estimators"]
        plan = oracle.naive_plan(problem)
        naive = oracle.grow_forest(
            problem["X"], problem["y"], problem["n_classes"], plan, *arguments
        )
        for lazy in (False, True):
            kernel = kernel_forest(problem, *arguments, NaiveBits(1), lazy=lazy)
            oracle.assert_same_forest(kernel, naive)
        inner += sum(row[0] >= 0 for row in naive[0])
    assert inner > 2000, "the problems hold trees worth comparing"


def test_without_noise_exactly_the_frequent_nodes_are_split():
    # Read off the kernel's own tree, without the oracle's search.
    for problem, s in noise_free_problems(10, 300):
        tau, max_depth = s["tau"], s["max_depth"]
        nodes, offsets, *_ = kernel_forest(
            problem, max_depth, oracle.exact_table(tau), s["split_seed"], 1, NaiveBits(0)
        )
        rows = nodes[: offsets[1]].tolist()
        plan = oracle.naive_plan(problem)
        pending = [(0, 0, list(range(problem["X"].shape[1])), plan.root_state())]
        while pending:
            index, depth, records, state = pending.pop()
            feature, threshold, right, flags = rows[index]
            splittable = any(plan.splittable(state, f) for f in range(len(state)))
            if feature < 0:
                assert depth == max_depth or len(records) < tau or not splittable
                continue
            assert depth < max_depth and len(records) >= tau
            split = {
                "feature": feature,
                "threshold": threshold,
                "categorical": bool(flags & 2),
                "missing_left": bool(flags & 1),
            }
            column = problem["X"][feature].tolist()
            left = [r for r in records if oracle.goes_left(split, column[r])]
            rest = [r for r in records if not oracle.goes_left(split, column[r])]
            states = oracle.child_states(state, split)
            pending.append((index + 1, depth + 1, left, states[0]))
            pending.append((right, depth + 1, rest, states[1]))


@pytest.mark.parametrize("lazy", [False, True])
def test_array_forms(lazy):
    rng = np.random.default_rng(5)
    problem = oracle.random_problem(rng)
    result = kernel_forest(problem, 7, oracle.exact_table(3), 9, 4, NaiveBits(0), lazy=lazy)
    nodes, tree_offsets, leaf_offsets, leaf_counts, leaf_paths = result
    assert nodes.dtype == NODE_DTYPE
    assert tree_offsets.dtype == leaf_offsets.dtype == leaf_counts.dtype == np.int64
    assert leaf_paths.dtype == np.uint64
    assert tree_offsets.shape == leaf_offsets.shape == (5,)
    assert leaf_counts.shape == (leaf_offsets[-1], problem["n_classes"])
    assert leaf_paths.shape == (leaf_offsets[-1],)
    assert len(np.unique(leaf_paths)) == len(leaf_paths)
    assert nodes.shape == (tree_offsets[-1],)
    # a binary tree has one leaf more than inner nodes
    assert np.array_equal(np.diff(tree_offsets) + 1, 2 * np.diff(leaf_offsets))
    # every record is in one leaf of each tree
    totals = np.add.reduceat(leaf_counts, leaf_offsets[:-1], axis=0)
    expected = np.bincount(problem["y"], minlength=problem["n_classes"])
    assert (totals == expected).all()


def test_nothing_but_the_structure_is_in_the_node_array():
    # No byte depends on allocation or on what was there before: leaves are zero but for number.
    rng = np.random.default_rng(8)
    problem = oracle.random_problem(rng)
    table = oracle.gaussian_table(6, 3.0)
    nodes, *_ = kernel_forest(problem, 7, table, 1, 10, NaiveBits(2))
    leaves = nodes[nodes["feature"] < 0]
    assert (leaves["feature"] == -1).all()
    assert (leaves["threshold"] == 0).all() and (leaves["flags"] == 0).all()
    assert (nodes["flags"] <= 3).all()
    assert nodes.tobytes() == kernel_forest(problem, 7, table, 1, 10, NaiveBits(2))[0].tobytes()


def larger_problem(seed, n_records):
    rng = np.random.default_rng(seed)
    return {
        "X": np.stack(
            [
                rng.normal(size=n_records),
                rng.exponential(size=n_records),
                rng.integers(-1, 9, n_records),
                np.where(rng.random(n_records) < 0.2, np.nan, rng.random(n_records)),
            ]
        ).astype(np.float32),
        "y": rng.integers(0, 3, n_records).astype(np.int32),
        "n_classes": 3,
        "n_categories": np.array([0, 0, 9, 0], dtype=np.int32),
        "lower": np.array([-3, 0, 0, 0], dtype=np.float32),
        "upper": np.array([3, 5, 0, 1], dtype=np.float32),
    }


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("sigma", [0.0, 25.0])
def test_the_number_of_threads_changes_nothing(lazy, sigma):
    problem = larger_problem(0, 3000)
    n_records = problem["X"].shape[1]
    table = (
        oracle.gaussian_table(80, sigma, max_count=n_records)
        if sigma
        else oracle.exact_table(80, n_records)
    )
    results = [
        kernel_arrays(
            kernel_forest(problem, 31, table, 3, 13, NaiveBits(4), lazy=lazy, n_threads=n_threads)
        )
        for n_threads in (1, 2, 4, 32)
    ]
    assert all(result == results[0] for result in results)
    assert len(results[0][0]) > 13 * 16 * 10, "the trees are not stumps"


@pytest.mark.parametrize("lazy", [False, True])
def test_a_tree_does_not_depend_on_how_many_there_are(lazy):
    problem = larger_problem(1, 500)
    table = oracle.gaussian_table(30, 10.0, max_count=500)
    bits = NaiveBits(6)
    nodes, tree_offsets, leaf_offsets, leaf_counts, leaf_paths = kernel_forest(
        problem, 15, table, 12, 9, bits, lazy=lazy, n_threads=2
    )
    for k in (1, 2, 5):
        small = kernel_forest(problem, 15, table, 12, k, bits, lazy=lazy)
        assert np.array_equal(small[0], nodes[: tree_offsets[k]])
        assert np.array_equal(small[1], tree_offsets[: k + 1])
        assert np.array_equal(small[2], leaf_offsets[: k + 1])
        assert np.array_equal(small[3], leaf_counts[: leaf_offsets[k]])
        assert np.array_equal(small[4], leaf_paths[: leaf_offsets[k]])


@pytest.mark.parametrize("lazy", [False, True])
def test_the_trees_of_a_forest_differ(lazy):
    problem = larger_problem(1, 500)
    table = oracle.exact_table(30, 500)
    nodes, offsets, *_ = kernel_forest(problem, 15, table, 12, 20, NaiveBits(0), lazy=lazy)
    trees = {nodes[a:b].tobytes() for a, b in zip(offsets[:-1], offsets[1:], strict=True)}
    assert len(trees) == 20


def test_the_split_seed_decides_the_splits_and_the_bits_the_noise():
    problem = larger_problem(2, 500)
    exact, noisy = oracle.exact_table(30, 500), oracle.gaussian_table(30, 10.0, max_count=500)

    def grow(table, split_seed, key):
        return kernel_arrays(kernel_forest(problem, 15, table, split_seed, 3, NaiveBits(key)))

    assert grow(exact, 1, 1) == grow(exact, 1, 2)
    assert grow(exact, 1, 1) != grow(exact, 2, 1)
    assert grow(noisy, 1, 1) != grow(noisy, 1, 2)
    assert grow(noisy, 1, 1) == grow(noisy, 1, 1)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_two_forests_with_system_bits_differ(lazy, n_threads):
    problem = larger_problem(3, 500)
    table = oracle.gaussian_table(30, 10.0, max_count=500)
    grown = [
        kernel_arrays(
            kernel_forest(
                problem, 15, table, 5, 5, noise.SystemBits(), lazy=lazy, n_threads=n_threads
            )
        )
        for _ in range(2)
    ]
    assert grown[0] != grown[1]


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_system_bits_are_not_used_twice(lazy, n_threads):
    # One test of probability 1/2 (or 1/16, where lazy tests are drawn) in each of many trees:
    # the outcomes are independent coins, in neighbouring trees too.
    problem = {
        "X": np.zeros((1, 3), dtype=np.float32),
        "y": np.zeros(3, dtype=np.int32),
        "n_classes": 1,
        "n_categories": np.zeros(1, dtype=np.int32),
        "lower": np.zeros(1, dtype=np.float32),
        "upper": np.ones(1, dtype=np.float32),
    }
    n_trees = 20_000
    for p in (0.5, 0.0625):
        table = oracle.table_of([0.0, p, p, p])
        _, tree_offsets, *_ = kernel_forest(
            problem, 1, table, 7, n_trees, noise.SystemBits(), lazy=lazy, n_threads=n_threads
        )
        heavy = (np.diff(tree_offsets) == 3).astype(float) - p
        sd = np.sqrt(p * (1 - p))
        assert abs(heavy.sum()) < 6 * sd * np.sqrt(n_trees)
        for lag in (1, 2, 3, 7):
            assert abs((heavy[lag:] * heavy[:-lag]).sum()) < 6 * sd**2 * np.sqrt(n_trees)


@pytest.mark.parametrize("lazy", [False, True])
def test_one_record_and_one_constant_feature(lazy):
    problem = {
        "X": np.full((1, 1), np.nan, dtype=np.float32),
        "y": np.array([2], dtype=np.int32),
        "n_classes": 3,
        "n_categories": np.zeros(1, dtype=np.int32),
        "lower": np.ones(1, dtype=np.float32),
        "upper": np.ones(1, dtype=np.float32),
    }
    result = kernel_forest(problem, 9, oracle.exact_table(1), 0, 2, NaiveBits(0), lazy=lazy)
    assert result[0].tolist() == [(-1, 0.0, 0, 0)] * 2
    assert result[1].tolist() == result[2].tolist() == [0, 1, 2]
    assert result[3].tolist() == [[0, 0, 1]] * 2
    assert result[4].tolist() == [oracle.root_path(0, t) for t in range(2)]


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("max_depth", [31, 100, 127])
def test_deep_trees_equal_the_oracle(lazy, max_depth):
    # Depths far beyond the float32 resolution of the ranges: long chains and dead ends.
    rng = np.random.default_rng(max_depth)
    for seed in range(6):
        problem = oracle.random_problem(rng, max_records=12)
        arguments = max_depth, oracle.exact_table(2 + seed), seed, 1
        naive = oracle.grow_forest(
            problem["X"],
            problem["y"],
            problem["n_classes"],
            oracle.naive_plan(problem),
            *arguments,
        )
        kernel = kernel_forest(problem, *arguments, NaiveBits(0), lazy=lazy)
        oracle.assert_same_forest(kernel, naive)


@pytest.mark.parametrize("lazy", [False, True])
def test_no_records(lazy):
    problem = {**larger_problem(0, 1), "X": np.empty((4, 0), np.float32), "y": np.empty(0, "i4")}
    result = kernel_forest(problem, 9, oracle.exact_table(1), 0, 2, NaiveBits(0), lazy=lazy)
    assert result[0].tolist() == [(-1, 0.0, 0, 0)] * 2
    assert result[3].tolist() == [[0, 0, 0]] * 2


@pytest.mark.parametrize("n_threads", [1, 2])
def test_growing_can_be_stopped(n_threads):
    problem, table = larger_problem(0, 100), oracle.exact_table(5)
    stop = np.ones(1, dtype=np.int32)
    with pytest.raises(KeyboardInterrupt):
        kernel_forest(problem, 9, table, 0, 3, NaiveBits(0), stop=stop, n_threads=n_threads)
    stop[0] = 0
    assert kernel_forest(problem, 9, table, 0, 3, NaiveBits(0), stop=stop)[0].size


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("lazy", [False, True])
def test_a_failing_source_of_randomness_is_an_error(lazy, n_threads):
    class Broken:
        seeded = False

        def __init__(self, good):
            self.good = good

        def draw(self, purpose, paths, n):
            self.good -= 1
            if self.good < 0:
                raise OSError("no entropy")
            return np.full((len(paths), n), 2**62, dtype=np.uint64)

    problem, table = larger_problem(0, 3000), oracle.gaussian_table(20, 9.0, max_count=3000)
    for good in (0, 3):
        with pytest.raises(RuntimeError):
            kernel_forest(problem, 31, table, 0, 20, Broken(good), lazy=lazy, n_threads=n_threads)


def test_each_tree_is_reported_done():
    problem = larger_problem(3, 300)
    done = np.zeros(5, dtype=np.int8)
    table = oracle.exact_table(20, 300)
    kernel_forest(problem, 7, table, 1, 5, NaiveBits(0), n_threads=2, done=done)
    assert done.tolist() == [1] * 5
