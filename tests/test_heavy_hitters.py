"""The search for heavy hitters: invariants, exact noise, and the distribution of lazy tests."""

import math
from collections import Counter

import numpy as np
import oracle
import pytest
from lumberjack._heavy_hitters import alarm_tables
from lumberjack._tree import NODE_DTYPE
from oracle import NaiveBits, NaiveTree, kernel_forest
from scipy.stats import chi2

from lumberjack import noise

N_SAMPLES = 20_000


# --- the oracle itself ----------------------------------------------------------------------


def frequent_paths(tree, node, max_depth, tau):
    """The paths of all nodes that hold at least tau records, by looking at every node."""
    if node["depth"] == max_depth or len(node["records"]) < tau:
        return set()
    children = tree.children(node)
    return {node["path"]}.union(*(frequent_paths(tree, c, max_depth, tau) for c in children))


def test_oracle_without_noise_heavy_is_frequent():
    rng = np.random.default_rng(0)
    for seed in range(500):
        problem = oracle.random_problem(rng)
        max_depth, tau = int(rng.integers(1, 10)), int(rng.integers(1, 21))
        path = oracle.root_path(seed, 0)
        plan = oracle.naive_plan(problem)
        tree = oracle.grow_tree(problem["X"], plan, max_depth, oracle.exact_table(tau), path)
        assert tree.heavy_paths() == frequent_paths(tree, tree.root, max_depth, tau)


@pytest.mark.parametrize("max_depth", range(1, 33))
def test_oracle_number_of_tests_is_bounded_and_the_bound_is_reached(max_depth):
    # Coins instead of counts: the bound holds for every outcome, and some outcome reaches it.
    rng = np.random.default_rng(max_depth)
    plan = oracle.NaivePlan([0], [0.0], [1.0])
    most = 0
    for seed in range(40):
        p = rng.random()
        columns = rng.random((1, 4))
        path = oracle.root_path(seed, 0)
        tree = NaiveTree(columns, plan, path, lambda node, p=p: rng.random() < p)
        tree.search(tree.root, max_depth)
        tree.check(max_depth)
        most = max(most, *tree.test_counts)
    assert most == 1 + math.floor(math.log2(max_depth))


def test_oracle_never_tests_below_light_nor_a_marked_node():
    rng = np.random.default_rng(2)
    plan = oracle.NaivePlan([0, 4], [0.0, 0.0], [1.0, 0.0])

    def watched(node):
        assert node["mark"] is None and not oracle.below_light(node)
        return rng.random() < 0.6

    for seed in range(200):
        columns = rng.random(12), rng.integers(0, 4, 12)
        tree = NaiveTree(columns, plan, oracle.root_path(seed, 0), watched)
        tree.search(tree.root, int(rng.integers(1, 20)))


def test_the_exact_distribution_is_that_of_the_literal_search():
    # By replaying the literal search on every sequence of outcomes of its tests.
    for make_tree, max_depth in tiny_trees():
        probabilities = [0.0, 0.1, 0.3, 0.35, 0.6, 0.9, 0.95]
        expected = oracle.outcome_distribution(make_tree(None), max_depth, probabilities)
        found = replayed_distribution(make_tree, max_depth, probabilities)
        assert sum(expected.values()) == pytest.approx(1.0, abs=1e-12)
        assert {k for k, p in expected.items() if p > 0.0} == set(found)
        for heavy, p in found.items():
            assert expected[heavy] == pytest.approx(p, rel=1e-9)


def tiny_trees():
    """Trees whose searches have few enough sequences of outcomes to replay them all."""
    plan = oracle.NaivePlan([0, 3], [0.0, 0.0], [1.0, 0.0])
    columns = [0.1, 0.1, 0.3, 0.8, 0.8, 0.8], [0.0, 1.0, 1.0, 2.0, math.nan, -1.0]

    def maker(seed):
        path = oracle.root_path(seed, 0)
        return lambda heavy_test: NaiveTree(columns, plan, path, heavy_test)

    return [(maker(seed), max_depth) for seed in range(5) for max_depth in range(1, 5)]


def replayed_distribution(make_tree, max_depth, probabilities):
    """The distribution of the HEAVY nodes, by depth-first search over outcomes of the tests."""
    found = Counter()
    pending = [()]
    while pending:
        script = pending.pop()
        taken, weights = [], []

        def scripted(node, script=script, taken=taken, weights=weights):
            p = probabilities[min(len(node["records"]), len(probabilities) - 1)]
            heavy = script[len(taken)] if len(taken) < len(script) else p >= 1.0
            taken.append(heavy)
            weights.append(p if heavy else 1.0 - p)
            return heavy

        tree = make_tree(scripted)
        tree.search(tree.root, max_depth)
        # every free choice was "not heavy": turn each of them once
        for i in range(len(script), len(taken)):
            pending.append((*taken[:i], True))
        if math.prod(weights) > 0.0:
            found[frozenset(tree.heavy_paths())] += math.prod(weights)
    return found


# --- the kernel, noise for noise -------------------------------------------------------------


def noisy_table(rng):
    """A table of moderate or small probabilities, smooth or with steps."""
    if rng.random() < 0.7:
        tau = int(rng.integers(1, 21))
        slack = None if rng.random() < 0.5 else float(rng.uniform(0.0, tau - 1))
        return oracle.gaussian_table(tau, float(rng.uniform(0.5, 8.0)), slack)
    return oracle.table_of([0.0, *np.sort(rng.random(int(rng.integers(1, 30))) ** 2)])


@pytest.mark.parametrize("part", range(4))
def test_with_seeded_noise_the_kernel_equals_the_oracle(part):
    rng = np.random.default_rng(100 + part)
    for seed in range(300):
        problem = oracle.random_problem(rng)
        max_depth, n_estimators = int(rng.integers(1, 10)), int(rng.integers(1, 4))
        table = noisy_table(rng)
        bits = NaiveBits(int(rng.integers(0, 2**62)))
        plan = oracle.naive_plan(problem)
        naive = oracle.grow_forest(
            *(problem[name] for name in ("X", "y", "n_classes")),
            *(plan, max_depth, table, seed, n_estimators, bits),
        )
        counts = np.zeros((n_estimators, problem["X"].shape[1]), dtype=np.int32)
        kernel = kernel_forest(
            problem, max_depth, table, seed, n_estimators, bits, lazy=False, test_counts=counts
        )
        oracle.assert_same_forest(kernel, naive)
        if (table[0][1:] > 0).all():
            assert counts.tolist() == naive[5], "the same records are tested as often"
        else:  # tests that cannot pass may be skipped
            assert (counts <= naive[5]).all()


def test_the_seeded_source_of_the_package_is_the_one_of_the_oracle():
    for key in (0, 1, 2**64, 2**128 - 1):
        package, naive = noise.SeededBits(key), NaiveBits(key)
        assert package.seeded
        for purpose in ("test", "alarm", "thin", "leaf"):
            assert package.purpose_key(purpose) == naive.purpose_key(purpose)
            drawn = package.draw(purpose, np.array([0, 5, 2**64 - 1], dtype=np.uint64), 3)
            expected = [[naive.value(purpose, p, i) for i in range(3)] for p in (0, 5, 2**64 - 1)]
            assert drawn.tolist() == expected


@pytest.mark.parametrize("lazy", [False, True])
def test_sure_tests_need_no_luck(lazy):
    # Probability 1 passes and probability 0 fails whatever the bits are.
    class Extreme:
        seeded = False

        def __init__(self, value):
            self.value = value

        def draw(self, purpose, paths, n):
            return np.full((len(paths), n), self.value, dtype=np.uint64)

    rng = np.random.default_rng(4)
    for seed in range(30):
        problem = oracle.random_problem(rng)
        arguments = 7, oracle.exact_table(1 + seed % 9), seed, 2
        expected = kernel_forest(problem, *arguments, NaiveBits(0), lazy=False)
        for value in (0, 2**64 - 1):
            found = kernel_forest(problem, *arguments, Extreme(value), lazy=lazy)
            assert found[0].tobytes() == expected[0].tobytes()


# --- how often a record is tested ------------------------------------------------------------


@pytest.mark.parametrize("lazy", [False, True])
def test_no_record_is_in_too_many_tests(lazy):
    rng = np.random.default_rng(7)
    reached = set()
    for seed in range(400):
        problem = oracle.random_problem(rng)
        max_depth = int(rng.integers(1, 40))
        counts = np.zeros((2, problem["X"].shape[1]), dtype=np.int32)
        bits = NaiveBits(seed)
        kernel_forest(
            problem, max_depth, noisy_table(rng), seed, 2, bits, lazy=lazy, test_counts=counts
        )
        most = 1 + math.floor(math.log2(max_depth))
        assert counts.max() <= most
        if counts.max() == most:
            reached.add(most)
    assert reached == {1, 2, 3, 4, 5, 6}, "the bound is met, so the hook counts"


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("max_depth", range(1, 16))
def test_where_nothing_passes_every_record_is_tested_in_every_round(lazy, max_depth):
    # An alarm drawn for a node counts as one test of each of its records.
    problem = case_problem({"columns": [np.linspace(0.0, 1.0, 20)], "n_categories": [0]})
    counts = np.zeros((3, 20), dtype=np.int32)
    table = oracle.table_of([0.0, 1e-15])
    kernel_forest(problem, max_depth, table, 0, 3, NaiveBits(0), lazy=lazy, test_counts=counts)
    assert (counts == 1 + math.floor(math.log2(max_depth))).all()


# --- lazy tests: the same distribution -------------------------------------------------------


def padded_table(probabilities, max_count=12):
    """A table whose last entry is repeated: lazy tests are used inside the table only."""
    more = max_count + 1 - len(probabilities)
    return oracle.table_of([*probabilities, *[probabilities[-1]] * more])


# Few records with repeated values, so that counts stay large for several levels, and tables in
# which lazy tests are used everywhere (less than 1/2 alarm expected), nowhere, or both.
CASES = {
    "chain of small probabilities": {
        "columns": [[0.1] * 5 + [0.7] * 3],
        "n_categories": [0],
        "max_depth": 7,
        "table": oracle.gaussian_table(10, 3.0),
    },
    "moderate probabilities, lazy below": {
        "columns": [[0.05] * 4 + [0.3] * 3 + [0.6] * 3 + [0.9] * 2],
        "n_categories": [0],
        "max_depth": 6,
        "table": oracle.gaussian_table(9, 4.0),
    },
    "three single records, lazy everywhere": {
        "columns": [[0.2, 0.5, 0.8]],
        "n_categories": [0],
        "max_depth": 7,
        "table": padded_table([0.0, 0.12, 0.14, 0.16]),
    },
    "two records that every first split parts: the same nodes thin in two rounds": {
        "columns": [[0.0, 1.0]],
        "n_categories": [0],
        "max_depth": 7,
        "table": padded_table([0.0, 0.12, 0.24]),
    },
    "steep table: thinning decides": {
        "columns": [[0.1, 0.1, 0.4, 0.4, 0.7, 0.9]],
        "n_categories": [0],
        "max_depth": 5,
        "table": padded_table([0.0, 0.005, 0.02, 0.05, 0.06, 0.075, 0.08]),
    },
    "categories and missing values": {
        "columns": [
            [0.0, 0.0, 1.0, 1.0, 2.0, math.nan, math.nan, -1.0],
            [0.1, 0.9, 0.1, 0.1, math.nan, 0.9, 0.9, 7.0],
        ],
        "n_categories": [3, 0],
        "max_depth": 4,
        "table": padded_table([0.0, 0.02, 0.04, 0.05, 0.05, 0.06, 0.06, 0.07, 0.45]),
    },
    "flat table: every node alike": {
        "columns": [[0.3, 0.3, 0.6, 0.6]],
        "n_categories": [0],
        "max_depth": 6,
        "table": padded_table([0.0, 0.11]),
    },
    "low tests only: two rounds over the same nodes": {
        "columns": [[0.3] * 6],
        "n_categories": [0],
        "max_depth": 7,
        "table": oracle.gaussian_table(12, 4.0),
    },
    "probabilities near one half, and the same for all": {
        "columns": [[0.1, 0.2, 0.5, 0.5, 0.8]],
        "n_categories": [0],
        "max_depth": 6,
        "table": padded_table([0.0, 0.09, 0.3, 0.38, 0.39]),
    },
    "dead ends above the tested level": {
        "columns": [[0.0, 0.0, 1.0, 1.0, 1.0, 2.0]],
        "n_categories": [3],
        "max_depth": 7,
        "table": padded_table([0.0, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09]),
    },
}


@pytest.mark.parametrize("seed", range(20))
def test_alarms_give_the_probability_of_the_plain_test(seed):
    rng = np.random.default_rng(seed)
    probabilities = noisy_table(rng)[1]
    hazards, alarms, kept = alarm_tables(probabilities)
    assert (np.diff(hazards) >= 0).all() and (np.diff(alarms) >= 0).all(), "alarms can be thinned"
    assert ((kept >= 0) & (kept <= 1)).all()
    inside = hazards < math.inf
    assert alarms[inside] == pytest.approx(1.0 - np.exp(-hazards[inside]), rel=1e-12)
    counts = np.maximum(np.arange(len(probabilities)), 1)
    none = (1.0 - alarms * kept) ** counts
    assert none[inside] == pytest.approx(1.0 - probabilities[inside], abs=1e-13)
    tiny = probabilities < 1e-6
    assert (counts * alarms * kept)[tiny] == pytest.approx(probabilities[tiny], rel=1e-5)


class UnseededBits:
    """Like the operating system's bits in form, but the same in every run of the test."""

    seeded = False

    def __init__(self, seed):
        self.generator = np.random.default_rng(seed)
        self.block = np.empty((1, 0), dtype=np.uint64)

    def draw(self, purpose, paths, n):
        """Fresh bits; a block serves several forests, and no bit serves twice."""
        needed = len(paths) * n
        if self.block.shape[1] < needed:
            size = max(needed, 2**16)
            self.block = self.generator.integers(0, 2**64, (1, size), dtype=np.uint64)
        taken, self.block = self.block[:, :needed], self.block[:, needed:]
        return np.ascontiguousarray(taken).reshape(len(paths), n)


def case_problem(case):
    """A case in the form that the kernel takes."""
    X = np.array(case["columns"], dtype=np.float32)
    n_features, n_records = X.shape
    return {
        "X": X,
        "y": np.zeros(n_records, dtype=np.int32),
        "n_classes": 1,
        "n_categories": np.array(case["n_categories"], dtype=np.int32),
        "lower": np.zeros(n_features, dtype=np.float32),
        "upper": np.ones(n_features, dtype=np.float32),
    }


def expected_outcomes(problem, max_depth, table, split_seed):
    """The exact distribution of the written tree, and which nodes each one splits."""
    plan, path = oracle.naive_plan(problem), oracle.root_path(split_seed, 0)

    def tree():
        return NaiveTree(problem["X"], plan, path, None)

    probabilities = [int(t) / 2.0**64 for t in table[0]]
    expected = Counter()
    split_nodes = {}
    for heavy, p in oracle.outcome_distribution(tree(), max_depth, probabilities).items():
        if p > 0.0:
            marked = tree()
            oracle.mark_outcome(marked, heavy)
            rows = tuple(map(tuple, marked.depth_first(max_depth)[0]))
            expected[rows] += p
            split_nodes[rows] = {
                v for v in heavy if marked.is_split_node(find(marked.root, v), max_depth)
            }
    return expected, split_nodes


def find(node, path):
    """The expanded node with a path."""
    pending = [node]
    while pending:
        node = pending.pop()
        if node["path"] == path:
            return node
        pending.extend(node.get("children", ()))
    raise KeyError(path)


def sampled_outcomes(problem, max_depth, table, split_seed, lazy, sources):
    """How often each tree is written, one forest of one tree for each source of bits."""
    plan = oracle.kernel_plan(problem)
    seen = Counter(
        kernel_forest(problem, max_depth, table, split_seed, 1, bits, plan=plan, lazy=lazy)[
            0
        ].tobytes()
        for bits in sources
    )
    return Counter(
        {tuple(np.frombuffer(key, dtype=NODE_DTYPE).tolist()): n for key, n in seen.items()}
    )


def chi_square_p_value(seen, expected, n_samples):
    """The p-value of a chi-square test; outcomes expected fewer than 5 times are pooled."""
    cells, rare_seen, rare_expected = [], 0.0, 0.0
    for outcome, p in expected.items():
        if n_samples * p >= 5.0:
            cells.append((seen[outcome], n_samples * p))
        else:
            rare_seen += seen[outcome]
            rare_expected += n_samples * p
    if rare_expected >= 5.0:
        cells.append((rare_seen, rare_expected))
    statistic = sum((o - e) ** 2 / e for o, e in cells)
    return chi2.sf(statistic, len(cells) - 1)


def assert_same_distribution(seen, expected, split_nodes, n_samples):
    """Compare by chi-square, and the frequency with which each node, and each pair, is split."""
    assert set(seen) <= set(expected), "an impossible tree"
    assert chi_square_p_value(seen, expected, n_samples) > 1e-3
    all_nodes = sorted(set().union(*split_nodes.values()))
    for i, a in enumerate(all_nodes):
        for b in all_nodes[i:]:
            together = [rows for rows, nodes in split_nodes.items() if a in nodes and b in nodes]
            p = sum(expected[rows] for rows in together)
            if n_samples * p >= 10.0 and p < 1.0:
                n = sum(seen[rows] for rows in together)
                z = (n - n_samples * p) / math.sqrt(n_samples * p * (1.0 - p))
                assert abs(z) < 5.0, (n, n_samples * p)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seeded", [True, False])
def test_lazy_and_plain_tests_have_the_exact_distribution(name, seeded):
    case = CASES[name]
    problem, max_depth, table = case_problem(case), case["max_depth"], case["table"]
    split_seed = 11 + list(CASES).index(name)
    expected, split_nodes = expected_outcomes(problem, max_depth, table, split_seed)
    for lazy in (False, True):
        n_samples = N_SAMPLES
        if seeded:
            sources = (NaiveBits(2**32 * lazy + key) for key in range(n_samples))
        else:
            sources = [UnseededBits(3 + lazy)] * n_samples
        seen = sampled_outcomes(problem, max_depth, table, split_seed, lazy, sources)
        assert seen.total() == n_samples
        assert_same_distribution(seen, expected, split_nodes, n_samples)
