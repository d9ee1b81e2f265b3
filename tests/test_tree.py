"""Splits: known answers, the oracle's draws, ranges that shrink, and the laws of the draws."""

import math

import numpy as np
import oracle
import pytest
from lumberjack._tree import NODE_DTYPE, NODE_VERSION
from oracle import NaiveBits, kernel_forest
from scipy.stats import chisquare, kstest

SEED = 0x123456789ABCDEF0


def make_problem(columns, n_categories, lower, upper):
    X = np.array(columns, dtype=np.float32)
    return {
        "X": X,
        "y": np.zeros(X.shape[1], dtype=np.int32),
        "n_classes": 1,
        "n_categories": np.array(n_categories, dtype=np.int32),
        "lower": np.array(lower, dtype=np.float32),
        "upper": np.array(upper, dtype=np.float32),
    }


def root_splits(problem, n_trees, split_seed=SEED, **weights):
    """The split of the root in many trees."""
    nodes, tree_offsets, *_ = kernel_forest(
        problem,
        1,
        oracle.exact_table(1),
        split_seed,
        n_trees,
        NaiveBits(0),
        plan=oracle.kernel_plan(problem, **weights),
    )
    return nodes[tree_offsets[:-1]]


def inner_nodes(nodes, offsets, plan, split_seed):
    """Every inner node with its path and state, by walking the kernel's trees from the root."""
    for t in range(len(offsets) - 1):
        rows = nodes[offsets[t] : offsets[t + 1]].tolist()
        pending = [(0, oracle.root_path(split_seed, t), plan.root_state())]
        while pending:
            index, path, state = pending.pop()
            feature, threshold, right, flags = rows[index]
            if feature < 0:
                continue
            split = {
                "feature": feature,
                "threshold": threshold,
                "categorical": bool(flags & 2),
                "missing_left": bool(flags & 1),
            }
            yield path, state, split
            children = zip(
                (index + 1, right),
                oracle.child_paths(path),
                oracle.child_states(state, split),
                strict=True,
            )
            pending.extend(children)


# --- known answers --------------------------------------------------------------------------


def test_node_layout():
    assert NODE_VERSION == 1
    assert NODE_DTYPE.itemsize == 16
    assert NODE_DTYPE.names == ("feature", "threshold", "right", "flags")
    assert [NODE_DTYPE[name].str for name in NODE_DTYPE.names] == ["<i4", "<f4", "<i4", "<u4"]


def test_oracle_functions_have_known_answers():
    # The first outputs of splitmix64 seeded with 0, as published with its reference code.
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [oracle.root_path(0, t) for t in range(3)] == published
    assert oracle.root_path(1, 0) == 0xBFEF8030DDC2D772
    assert oracle.root_path(2**64 - 1, 999) == 0x3A8789AEFDD56E0E
    root = oracle.root_path(0, 0)
    assert oracle.child_paths(root) == (0xDCC13AC9FE85F0A2, 0xAAC024EC93CD5424)
    draws = [0xA216B56933F51559, 0xA1169DC0E0F1ED01, 0x2A47925CEFDE5B59]
    assert [oracle.split_draw(root, i) for i in range(3)] == draws
    bits = NaiveBits(0)
    assert bits.purpose_key("test") == 0x8F33F595ED2BF63A
    assert NaiveBits(2**64 + 5).purpose_key("test") == 0xB7E7336D957EA9A9
    assert [bits.value("test", root, i) for i in range(2)] == [
        0xF997B82C05ABD08E,
        0x3DE56A1A9969FEF5,
    ]


def test_kernel_paths_have_known_answers():
    problem = make_problem([[0.0]], [0], [0.0], [1.0])
    result = kernel_forest(problem, 1, oracle.exact_table(1), 0, 1, NaiveBits(0))
    assert result[4].tolist() == [0xDCC13AC9FE85F0A2, 0xAAC024EC93CD5424]
    unsplit = kernel_forest(problem, 1, oracle.exact_table(2), 0, 3, NaiveBits(0))
    assert unsplit[4].tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_kernel_tree_has_a_known_answer():
    # A stored model and a later version of the package must mean the same tree by the same seed.
    columns = [[i % 10 + 0.5 for i in range(40)], [i % 4 for i in range(40)]]
    problem = make_problem(columns, [0, 4], [0.0, 0.0], [10.0, 0.0])
    nodes, _, _, leaf_counts, leaf_paths = kernel_forest(
        problem, 3, oracle.exact_table(4), 42, 1, NaiveBits(0)
    )
    assert nodes.tolist() == [
        (0, 9.981773376464844, 8, 1),
        (1, 2.0, 5, 2),
        (0, 2.012197732925415, 4, 1),
        (-1, 0.0, 0, 0),
        (-1, 0.0, 1, 0),
        (0, 8.2349271774292, 7, 0),
        (-1, 0.0, 2, 0),
        (-1, 0.0, 3, 0),
        (-1, 0.0, 4, 0),
    ]
    assert leaf_counts.ravel().tolist() == [2, 8, 24, 6, 0]
    assert leaf_paths.tolist() == [
        0x24215B7EFB8A0920,
        0xB127A246D880FA0B,
        0xD969A2C93754BB4F,
        0x9BEE3A11ED5A44E5,
        0x993646DE80E7D645,
    ]


# --- the oracle's draws -----------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1])
def test_root_splits_equal_the_oracle(seed):
    problem = make_problem(
        [[0.0]] * 6, [0, 5, 0, 1, 2, 0], [-1, 0, 0, 0, 0, 5], [1e-30, 0, 3e38, 0, 0, 5]
    )
    plan = oracle.naive_plan(problem)
    for t, node in enumerate(root_splits(problem, 500, seed).tolist()):
        split = oracle.choose_split(plan, oracle.root_path(seed, t), plan.root_state())
        flags = split["missing_left"] + 2 * split["categorical"]
        assert node[:2] == (split["feature"], split["threshold"])
        assert node[3] == flags


def assert_trees_equal_the_oracle(problem, max_depth, n_estimators, **weights):
    """All nodes that hold records, split wherever they can be."""
    arguments = max_depth, oracle.exact_table(1), SEED, n_estimators
    naive = oracle.grow_forest(
        *(problem[name] for name in ("X", "y", "n_classes")),
        *(oracle.naive_plan(problem, **weights), *arguments),
    )
    plan = oracle.kernel_plan(problem, **weights)
    kernel = kernel_forest(problem, *arguments, NaiveBits(0), plan=plan)
    oracle.assert_same_forest(kernel, naive)
    return kernel


def test_few_splittable_features_among_many():
    # Rejection hardly ever finds them, so the scan over the splittable ones decides.
    rng = np.random.default_rng(0)
    n_features = 300
    upper = np.zeros(n_features)
    upper[[17, 250]] = 1.0
    n_categories = np.zeros(n_features, dtype=int)
    n_categories[[3, 299]] = 3, 1
    columns = rng.random((n_features, 30))
    columns[3] = rng.integers(0, 3, 30)
    columns[299] = 0
    problem = make_problem(columns, n_categories, np.zeros(n_features), upper)
    nodes, *_ = assert_trees_equal_the_oracle(problem, 9, 8)
    assert set(nodes["feature"].tolist()) == {-1, 3, 17, 250}


def test_few_open_categories_among_many():
    # The weights of all but four are tiny, so that those are soon used up.
    rng = np.random.default_rng(1)
    count = 50
    weights = np.full(count, 1e-6)
    weights[[3, 20, 21, 49]] = 1.0, 2.0, 3.0, 0.5
    problem = make_problem([rng.integers(0, count, 40)], [count], [0.0], [0.0])
    nodes, *_ = assert_trees_equal_the_oracle(problem, 40, 6, category_weights=[weights])
    used = set(nodes["threshold"][nodes["feature"] == 0].tolist())
    assert used > {3.0, 20.0, 21.0, 49.0}


def test_a_feature_whose_categories_are_used_up_is_not_split_again():
    problem = make_problem([[0, 1, 2, 2, 1, 0, -1, math.nan]], [3], [0.0], [0.0])
    nodes, tree_offsets, *_ = assert_trees_equal_the_oracle(problem, 9, 50)
    # three categories: two splits, whatever the order, then nothing is left
    assert (np.diff(tree_offsets) == 5).all()
    assert set(nodes["threshold"][nodes["feature"] == 0].tolist()) == {0.0, 1.0, 2.0}


def test_weights_of_features_and_categories_equal_the_oracle():
    rng = np.random.default_rng(2)
    for _ in range(100):
        problem = oracle.random_problem(rng)
        problem.update(y=np.zeros_like(problem["y"]), n_classes=1)
        weights = {
            "feature_weights": rng.random(len(problem["X"])) + 0.01,
            "category_weights": [
                rng.random(count) + 0.01 if count else None for count in problem["n_categories"]
            ],
        }
        assert_trees_equal_the_oracle(problem, 6, 2, **weights)


def test_thresholds_of_a_given_density_are_its_quantiles():
    # Inverted from the draw of the node's path, to the rounding of float32.
    rng = np.random.default_rng(3)
    edges = np.array([0.0, 0.1, 0.5, 3.0, 10.0])
    cdf = np.array([0.0, 0.4, 0.45, 0.95, 1.0])
    problem = make_problem([rng.random(200) * 10, rng.random(200)], [0, 0], [0, 0], [10, 1])
    weights = {"threshold_cdfs": [(edges, cdf), None]}
    plan = oracle.naive_plan(problem, **weights)
    nodes, offsets, *_ = kernel_forest(
        problem,
        8,
        oracle.exact_table(1),
        SEED,
        10,
        NaiveBits(0),
        plan=oracle.kernel_plan(problem, **weights),
    )
    seen = 0
    for path, state, split in inner_nodes(nodes, offsets, plan, SEED):
        expected = oracle.choose_split(plan, path, state)
        assert split["feature"] == expected["feature"]
        assert split["threshold"] == pytest.approx(expected["threshold"], rel=1e-5, abs=1e-6)
        seen += split["feature"] == 0
    assert seen > 200


# --- ranges -----------------------------------------------------------------------------------


def test_ranges_shrink_and_thresholds_lie_in_them():
    rng = np.random.default_rng(4)
    seen = 0
    for seed in range(100):
        problem = oracle.random_problem(rng)
        plan = oracle.naive_plan(problem)
        nodes, offsets, *_ = kernel_forest(
            problem, 30, oracle.exact_table(2), seed, 2, NaiveBits(0)
        )
        for _, state, split in inner_nodes(nodes, offsets, plan, seed):
            part, value = state[split["feature"]], split["threshold"]
            assert split["categorical"] == (plan.n_categories[split["feature"]] > 0)
            if split["categorical"]:
                assert len(part) >= 2 and value in part
            else:
                assert part[0] <= value < part[1]
                assert value == np.float32(value)
            seen += 1
    assert seen > 2000


@pytest.mark.parametrize("lo", [0.0, 1.0, -1.0, 1e30, -(2.0**-149)])
def test_a_range_of_two_neighbouring_numbers_has_one_threshold(lo):
    lo = np.float32(lo)
    hi = np.nextafter(lo, np.float32(np.inf))
    problem = make_problem([[lo, lo, hi]], [0], [lo], [hi])
    for tree in root_splits(problem, 50):
        assert tree["feature"] == 0 and tree["threshold"] == lo
    # the left child [lo, lo] is a leaf; the right one is [lo, hi] again, a chain of 9 splits
    nodes, offsets, *_ = kernel_forest(problem, 9, oracle.exact_table(1), 0, 50, NaiveBits(0))
    assert (np.diff(offsets) == 19).all()
    inner = np.flatnonzero(nodes["feature"] == 0)
    assert (nodes["feature"][inner + 1] == -1).all()


# --- laws of the draws --------------------------------------------------------------------------


def test_features_are_equally_likely_and_the_coin_is_fair():
    # A categorical feature is one feature, however many categories it has.
    problem = make_problem([[0.0]] * 4, [0, 100, 2, 0], [0, 0, 0, -5], [1, 0, 0, 99999])
    roots = root_splits(problem, 20_000)
    assert chisquare(np.bincount(roots["feature"], minlength=4)).pvalue > 1e-3
    for feature in range(4):
        missing_left = roots["flags"][roots["feature"] == feature] & 1
        assert chisquare(np.bincount(missing_left, minlength=2)).pvalue > 1e-3
    for feature, count in ((1, 100), (2, 2)):
        chosen = roots["threshold"][roots["feature"] == feature].astype(int)
        assert chisquare(np.bincount(chosen, minlength=count)).pvalue > 1e-3


def test_weights_are_the_odds():
    problem = make_problem([[0.0]] * 2, [0, 4], [0, 0], [1, 0])
    odds = np.array([1.0, 4.0, 0.5, 2.5])
    roots = root_splits(
        problem, 20_000, feature_weights=np.array([0.3, 2.7]), category_weights=[None, odds]
    )
    found = np.bincount(roots["feature"], minlength=2)
    assert chisquare(found, [2_000, 18_000]).pvalue > 1e-3
    chosen = np.bincount(roots["threshold"][roots["feature"] == 1].astype(int), minlength=4)
    assert chisquare(chosen, found[1] * odds / odds.sum()).pvalue > 1e-3


def test_the_scan_has_the_law_of_the_rejection():
    # Unsplittable features with nearly all of the weight: nearly every draw comes to the scan.
    problem = make_problem([[0.0]] * 4, [1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 1, 1])
    roots = root_splits(problem, 20_000, feature_weights=np.array([1e6, 1.0, 2.0, 5.0]))
    found = np.bincount(roots["feature"], minlength=4)
    assert found[0] == 0
    assert chisquare(found[1:], np.array([1, 2, 5]) * 2_500).pvalue > 1e-3


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-7.5, 3.25), (-3e38, 3e38), (0.0, 99999.0)])
def test_thresholds_are_uniform_in_the_range(bounds):
    lo, hi = map(float, np.array(bounds, dtype=np.float32))
    problem = make_problem([[0.0]], [0], [lo], [hi])
    thresholds = root_splits(problem, 10_000)["threshold"].astype(float)
    assert kstest(thresholds, "uniform", (lo, hi - lo)).pvalue > 1e-3


def test_thresholds_are_uniform_in_the_ranges_below():
    # The position within the node's own range, over all nodes of many trees.
    problem = make_problem([np.linspace(0, 1, 100)], [0], [0], [1])
    nodes, offsets, *_ = kernel_forest(problem, 6, oracle.exact_table(1), SEED, 200, NaiveBits(0))
    plan = oracle.naive_plan(problem)
    positions = [
        (split["threshold"] - state[0][0]) / (state[0][1] - state[0][0])
        for _, state, split in inner_nodes(nodes, offsets, plan, SEED)
        if state[0][1] - state[0][0] > 1e-3
    ]
    assert len(positions) > 2_000
    assert kstest(positions, "uniform").pvalue > 1e-3


def test_thresholds_follow_a_given_density():
    edges = np.array([-1.0, 0.0, 0.5, 4.0])
    cdf = np.array([0.0, 0.7, 0.75, 1.0])
    problem = make_problem([[0.0]], [0], [-1.0], [4.0])
    thresholds = root_splits(problem, 10_000, threshold_cdfs=[(edges, cdf)])["threshold"]
    assert kstest(thresholds.astype(float), lambda x: np.interp(x, edges, cdf)).pvalue > 1e-3


def test_the_draws_of_neighbouring_nodes_are_independent():
    # Root, left and right child of each tree, and roots of neighbouring trees.
    problem = make_problem([np.linspace(0, 1, 1000)], [0], [0], [1])
    nodes, offsets, *_ = kernel_forest(problem, 2, oracle.exact_table(2), SEED, 5000, NaiveBits(0))
    positions = []
    for a, b in zip(offsets[:-1], offsets[1:], strict=True):
        if b - a == 7:  # three inner nodes
            tree = nodes[a:b]
            root, left, right = tree["threshold"][[0, 1, tree["right"][0]]].astype(float)
            positions.append((root, left / root, (right - root) / (1.0 - root)))
    u = np.array(positions) - 0.5
    limit = 4.0 * math.sqrt(len(u)) / 12.0  # each product has standard deviation 1/12
    assert len(u) > 4_900
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert abs(u[:, i] @ u[:, j]) < limit
    for lag in (1, 2, 3, 64):
        assert abs(u[lag:, 0] @ u[:-lag, 0]) < limit
