"""The naive forest: the method once more, recursive, slow and as literal as possible.

Everything here is plain Python on integers, lists and dictionaries and shares no code with the
package, so that the tests compare two independent readings of the method:

* the pseudo-random functions of the splits and of the seeded noise, on Python integers;
* ``choose_split``, with float32 semantics taken from ``numpy.float32``;
* ``NaiveTree``, a random tree of dictionaries that grows where it is looked at;
* ``NaiveTree.search``, the search for heavy hitters, level by level, without lazy tests;
* ``outcome_distribution``, the exact distribution of the search's result on a small tree;
* ``walk``, prediction by following the nodes;
* ``NaiveScore``, what one record adds to each query of the guide, and ``posterior_mean``.
"""

import hashlib
import math
from itertools import accumulate

import numpy as np
from scipy.stats import norm

HEAVY, LIGHT = "heavy", "light"

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
TRIES = 16  # rejection rounds before the scan


# --- pseudo-random functions ---------------------------------------------------------------


def mix64(z):
    """The finaliser of splitmix64."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def root_path(split_seed, tree):
    """The path hash of the root of a tree."""
    return mix64((mix64(split_seed & MASK) + (tree + 1) * GOLDEN) & MASK)


def child_paths(path):
    """The path hashes of the left and of the right child."""
    return (
        mix64((path + 0xA0761D6478BD642F) & MASK),
        mix64((path + 0xE7037ED1A0B428DB) & MASK),
    )


def split_draw(path, i):
    """The 64 bits of the i-th draw for the split of a node."""
    return mix64((mix64(path ^ 0x8EBC6AF09C88C6E3) + (i + 1) * GOLDEN) & MASK)


def unit_interval(bits):
    """A uniform number in [0, 1) from 64 bits."""
    return (bits >> 11) * 2.0**-53


class NaiveBits:
    """The seeded noise bits: a pure function of key, purpose, path and position."""

    seeded = True

    def __init__(self, key):
        self.key = key
        self._purposes = {}

    def purpose_key(self, purpose):
        """The 64-bit key of one purpose."""
        if purpose not in self._purposes:
            digest = hashlib.blake2b(
                purpose.encode(),
                key=self.key.to_bytes(16, "little"),
                digest_size=8,
                person=b"lumberjack noise",
            ).digest()
            self._purposes[purpose] = int.from_bytes(digest, "little")
        return self._purposes[purpose]

    def value(self, purpose, path, i):
        """The i-th 64-bit integer of a path."""
        stream = mix64((self.purpose_key(purpose) + mix64(path)) & MASK)
        return mix64((stream + (i + 1) * GOLDEN) & MASK)


# --- tables of the tests -------------------------------------------------------------------


def table_of(probabilities):
    """Thresholds and probabilities, as the kernels take them, of probabilities by count."""
    thresholds = [min(math.floor(p * 2.0**64), MASK) for p in probabilities]
    return np.array(thresholds, dtype=np.uint64), np.array(probabilities, dtype=np.float64)


def exact_table(tau, max_count=80):
    """Without noise: heavy exactly when count >= tau."""
    return table_of([float(count >= tau) for count in range(max(max_count, tau) + 1)])


def gaussian_table(tau, sigma, slack=None, max_count=80):
    """The probability that count + N(0, sigma^2) >= tau, and 0 up to tau - 1 - slack."""
    slack = tau - 1 if slack is None else slack
    cap = math.nextafter(1.0, 0.0)
    return table_of(
        [
            0.0 if count <= tau - 1 - slack else min(float(norm.cdf((count - tau) / sigma)), cap)
            for count in range(max_count + 1)
        ]
    )


# --- splits --------------------------------------------------------------------------------


class NaivePlan:
    """What may be split: for each feature its bounds, or how many categories it has."""

    def __init__(
        self,
        n_categories,
        lower,
        upper,
        feature_weights=None,
        threshold_cdfs=None,
        category_weights=None,
    ):
        self.n_categories = [int(c) for c in n_categories]
        self.lower = [float(np.float32(x)) for x in lower]
        self.upper = [float(np.float32(x)) for x in upper]
        n_features = len(self.n_categories)
        self.feature_weights = (
            [1.0] * n_features if feature_weights is None else [float(w) for w in feature_weights]
        )
        self.threshold_cdfs = threshold_cdfs or [None] * n_features
        category_weights = category_weights or [None] * n_features
        self.category_weights = [
            [1.0] * count if weights is None else [float(w) for w in weights]
            for count, weights in zip(self.n_categories, category_weights, strict=True)
        ]

    def root_state(self):
        """The state of the root: a range, or the set of open categories, for each feature."""
        return tuple(
            frozenset(range(count)) if count else (lo, hi)
            for count, lo, hi in zip(self.n_categories, self.lower, self.upper, strict=True)
        )

    def splittable(self, state, feature):
        """Whether a feature can still be split in a node with this state."""
        if self.n_categories[feature]:
            return len(state[feature]) >= 2
        lo, hi = state[feature]
        return lo < hi


def weighted_choice(weights, allowed, draws):
    """An allowed index by weight: a few rejections, then a scan; None if nothing is allowed."""
    cumulative = list(accumulate(weights))
    for _ in range(TRIES):
        target = unit_interval(next(draws)) * cumulative[-1]
        index = next(i for i, total in enumerate(cumulative) if total > target)
        if index in allowed:
            return index
    if not allowed:
        return None
    allowed = sorted(allowed)
    running = list(accumulate(weights[i] for i in allowed))
    target = unit_interval(next(draws)) * running[-1]
    for index, total in zip(allowed, running, strict=True):
        if total > target:
            return index
    return allowed[-1]


def choose_split(plan, path, state):
    """The split of a node, a pure function of its path; None if nothing can be split."""
    draws = (split_draw(path, i) for i in range(1000))
    missing_left = bool(next(draws) >> 63)
    features = {f for f in range(len(state)) if plan.splittable(state, f)}
    feature = weighted_choice(plan.feature_weights, features, draws)
    if feature is None:
        return None
    categorical = plan.n_categories[feature] > 0
    if categorical:
        value = float(weighted_choice(plan.category_weights[feature], state[feature], draws))
    else:
        u, cdf = unit_interval(next(draws)), plan.threshold_cdfs[feature]
        if cdf is not None:  # correct to rounding only
            value = quantile_threshold(*state[feature], u, *cdf)
        else:
            value = uniform_threshold(*state[feature], u)
    return {
        "feature": feature,
        "threshold": value,
        "categorical": categorical,
        "missing_left": missing_left,
    }


def uniform_threshold(lo, hi, u):
    """A float32 t with lo <= t < hi; everything but the result is double precision."""
    t = np.float32(lo + u * (hi - lo))
    if t >= np.float32(hi):
        t = np.nextafter(np.float32(hi), np.float32(-np.inf))
    return float(max(t, np.float32(lo)))


def quantile_threshold(lo, hi, u, edges, cdf):
    """A threshold by inverting a piecewise linear distribution function between lo and hi."""
    low, high = np.interp([lo, hi], edges, cdf)
    return float(np.interp(low + u * (high - low), cdf, edges))


def child_states(state, split):
    """The states of the two children of a split."""
    feature, value = split["feature"], split["threshold"]
    if split["categorical"]:
        parts = frozenset([int(value)]), state[feature] - {int(value)}
    else:
        lo, hi = state[feature]
        parts = (lo, value), (value, hi)
    return tuple(state[:feature] + (part,) + state[feature + 1 :] for part in parts)


def goes_left(split, x):
    """Whether the value of the split feature goes to the left child."""
    if math.isnan(x):
        return split["missing_left"]
    return x == split["threshold"] if split["categorical"] else x <= split["threshold"]


# --- the tree ------------------------------------------------------------------------------


class NaiveTree:
    """One random tree over records, expanded where the search looks.

    Parameters
    ----------
    columns : sequence of sequences of float
        The encoded table, column by column.
    plan : NaivePlan
        The public description of the features.
    path : int
        The path hash of the root.
    heavy_test : callable
        ``heavy_test(node)``: the outcome of the test of a node.
    """

    def __init__(self, columns, plan, path, heavy_test):
        self.columns = [[float(x) for x in column] for column in columns]
        self.plan = plan
        self.heavy_test = heavy_test
        n_records = len(self.columns[0])
        self.test_counts = [0] * n_records
        self.root = self._node(path, 0, range(n_records), plan.root_state(), None)

    @staticmethod
    def _node(path, depth, records, state, parent):
        return {
            "path": path,
            "depth": depth,
            "records": tuple(records),
            "state": state,
            "parent": parent,
            # descendants of a LIGHT node are LIGHT, also those that are expanded later
            "mark": LIGHT if parent and parent["mark"] == LIGHT else None,
        }

    def split(self, node):
        """The split of a node, or None."""
        if "split" not in node:
            node["split"] = choose_split(self.plan, node["path"], node["state"])
        return node["split"]

    def children(self, node):
        """The two children of a node, or none if it cannot be split."""
        if "children" not in node:
            split = self.split(node)
            node["children"] = () if split is None else self._expand(node, split)
        return node["children"]

    def _expand(self, node, split):
        column = self.columns[split["feature"]]
        left = [r for r in node["records"] if goes_left(split, column[r])]
        right = [r for r in node["records"] if not goes_left(split, column[r])]
        paths, states = child_paths(node["path"]), child_states(node["state"], split)
        return tuple(
            self._node(path, node["depth"] + 1, records, state, node)
            for path, records, state in zip(paths, (left, right), states, strict=True)
        )

    def level_below(self, node, levels):
        """The non-empty nodes exactly so many levels below a node, from left to right."""
        if not node["records"]:
            return []
        if levels == 0:
            return [node]
        return [v for c in self.children(node) for v in self.level_below(c, levels - 1)]

    def test(self, node):
        """One test: every record of the node takes part."""
        for record in node["records"]:
            self.test_counts[record] += 1
        return self.heavy_test(node)

    def search(self, r, h):
        """Mark the subtree of ``r`` down to ``h`` levels."""
        if h == 1:
            if r["mark"] is None:
                r["mark"] = HEAVY if self.test(r) else LIGHT
            return
        mid = h // 2
        level = [v for v in self.level_below(r, mid) if not below_light(v)]
        for v in level:
            if v["mark"] is None:
                if self.test(v):
                    mark_heavy_up_to(v, r)
                else:
                    mark_light_below(v)
        for v in level:
            if v["mark"] == HEAVY and h > 2:
                for child in self.children(v):
                    self.search(child, h - mid - 1)
        self.search(r, mid)

    def is_split_node(self, node, max_depth):
        """Whether a node of the finished tree is an inner one."""
        heavy = node["depth"] < max_depth and node["mark"] == HEAVY
        return heavy and self.split(node) is not None

    def check(self, max_depth):
        """Assert what the search promises whatever the noise was."""
        most = 1 + int(math.log2(max_depth))
        assert max(self.test_counts, default=0) <= most
        self._check_subtree(self.root, max_depth)

    def _check_subtree(self, node, max_depth):
        for child in node.get("children", ()):
            if child["mark"] == HEAVY:
                assert node["mark"] == HEAVY, "heavy nodes form a rooted subtree"
            if child["depth"] < max_depth and child["records"] and node["mark"] == HEAVY:
                assert child["mark"] in (HEAVY, LIGHT), "a child of a heavy node was tested"
            self._check_subtree(child, max_depth)

    def heavy_paths(self, node=None):
        """The paths of all HEAVY nodes."""
        node = node or self.root
        found = {node["path"]} if node["mark"] == HEAVY else set()
        return found.union(*(self.heavy_paths(child) for child in node.get("children", ())))

    def depth_first(self, max_depth):
        """The finished tree in depth-first order: rows of nodes, and its leaves."""
        rows, leaves = [], []

        def emit(node):
            if not self.is_split_node(node, max_depth):
                rows.append([-1, 0.0, len(leaves), 0])
                leaves.append(node)
                return
            split = node["split"]
            flags = split["missing_left"] + 2 * split["categorical"]
            row = [split["feature"], split["threshold"], None, flags]
            rows.append(row)
            left, right = self.children(node)
            emit(left)
            row[2] = len(rows)
            emit(right)

        emit(self.root)
        return rows, leaves


def below_light(node):
    """Whether a proper ancestor of a node is LIGHT."""
    while (node := node["parent"]) is not None:
        if node["mark"] == LIGHT:
            return True
    return False


def mark_heavy_up_to(node, top):
    """Mark a node and its unmarked ancestors up to ``top``."""
    while True:
        if node["mark"] is None:
            node["mark"] = HEAVY
        if node is top:
            return
        node = node["parent"]


def mark_light_below(node):
    """Mark a node and everything below it; what is not expanded yet inherits the mark."""
    node["mark"] = LIGHT
    for child in node.get("children", ()):
        mark_light_below(child)


def table_test(table, bits=None):
    """The outcome of a test by table, with seeded noise or for probabilities 0 and 1 alone."""
    thresholds = [int(t) for t in table[0]]
    probabilities = [float(p) for p in table[1]]

    def heavy(node):
        count = min(len(node["records"]), len(thresholds) - 1)
        if probabilities[count] in (0.0, 1.0):
            return probabilities[count] == 1.0
        return bits.value("test", node["path"], 0) < thresholds[count]

    return heavy


def grow_tree(columns, plan, max_depth, table, path, bits=None):
    """One searched and checked tree."""
    tree = NaiveTree(columns, plan, path, table_test(table, bits))
    tree.search(tree.root, max_depth)
    tree.check(max_depth)
    return tree


def grow_forest(X, y, n_classes, plan, max_depth, table, split_seed, n_estimators, bits=None):
    """The whole forest in the form of the kernel.

    Returns
    -------
    rows, tree_offsets, leaf_offsets, leaf_counts, leaf_paths : lists
        As the kernel's arrays; a row is (feature, threshold, right, flags).
    test_counts : list of lists of int
        For each tree, the number of tests that each record was in.
    """
    rows, tree_offsets, leaf_offsets, leaf_counts, leaf_paths = [], [0], [0], [], []
    test_counts = []
    for t in range(n_estimators):
        tree = grow_tree(X, plan, max_depth, table, root_path(split_seed, t), bits)
        tree_rows, leaves = tree.depth_first(max_depth)
        rows += [tuple(row) for row in tree_rows]
        tree_offsets.append(len(rows))
        for leaf in leaves:
            classes = [int(y[r]) for r in leaf["records"]]
            leaf_counts.append([classes.count(c) for c in range(n_classes)])
            leaf_paths.append(leaf["path"])
        leaf_offsets.append(len(leaf_paths))
        test_counts.append(tree.test_counts)
    return rows, tree_offsets, leaf_offsets, leaf_counts, leaf_paths, test_counts


# --- prediction ----------------------------------------------------------------------------


def walk(rows, x):
    """The index of the leaf node that a record reaches in one tree."""
    index = 0
    while rows[index][0] >= 0:
        feature, threshold, right, flags = rows[index]
        split = {
            "threshold": float(threshold),
            "categorical": bool(flags & 2),
            "missing_left": bool(flags & 1),
        }
        index = index + 1 if goes_left(split, float(x[feature])) else int(right)
    return index


# --- the exact distribution of the search --------------------------------------------------


def outcome_distribution(tree, max_depth, probabilities):
    """The exact distribution of the set of HEAVY nodes.

    Each test is an independent coin, what happens below two nodes of a tested level is
    independent, and the top part of a search depends on the level below only through the nodes
    already marked HEAVY. So the distribution of a search is a product over the nodes of the
    tested level, followed by the distribution of the top part given the marks.

    Parameters
    ----------
    tree : NaiveTree
        Only its splits and counts are used; it must not have been searched.
    max_depth : int
        The number of levels of the search.
    probabilities : sequence of float
        The probability that a node with a count is heavy, by count.

    Returns
    -------
    dict of {frozenset of int: float}
        For each possible set of paths of HEAVY nodes its probability.
    """
    memo = {}

    def heavy_probability(node):
        return probabilities[min(len(node["records"]), len(probabilities) - 1)]

    def level_with_ancestors(r, levels):
        """The non-empty nodes so far below r, with the paths from r down to each of them."""
        if not r["records"]:
            return []
        if levels == 0:
            return [(r, frozenset([r["path"]]))]
        below = [v for c in tree.children(r) for v in level_with_ancestors(c, levels - 1)]
        return [(v, paths | {r["path"]}) for v, paths in below]

    def region(r, levels):
        if levels == 0:
            return frozenset()
        parts = [region(child, levels - 1) for child in tree.children(r)]
        return frozenset([r["path"]]).union(*parts)

    def product(first, second):
        joint = {}
        for a, p in first.items():
            for b, q in second.items():
                joint[a | b] = joint.get(a | b, 0.0) + p * q
        return joint

    def search(r, h, heavy):
        """The distribution of the HEAVY nodes in h levels, given those already marked."""
        if not r["records"]:
            return {frozenset(): 1.0}
        key = r["path"], h, heavy
        if key not in memo:
            memo[key] = single(r, heavy) if h == 1 else halves(r, h, heavy)
        return memo[key]

    def single(r, heavy):
        if r["path"] in heavy:
            return {heavy: 1.0}
        p = heavy_probability(r)
        return {frozenset([r["path"]]): p, frozenset(): 1.0 - p}

    def halves(r, h, heavy):
        mid = h // 2
        bottom = {heavy: 1.0}
        for v, ancestors in level_with_ancestors(r, mid):
            p = 1.0 if v["path"] in heavy else heavy_probability(v)
            below = {ancestors: p}
            if h > 2:
                for child in tree.children(v):
                    marked = heavy & region(child, h - mid - 1)
                    below = product(below, search(child, h - mid - 1, marked))
            if p < 1.0:
                below[frozenset()] = 1.0 - p
            bottom = product(bottom, {k: q for k, q in below.items() if q > 0.0})
        top = region(r, mid)
        total = {}
        for marks, p in bottom.items():
            for more, q in search(r, mid, marks & top).items():
                if p * q > 0.0:
                    total[marks | more] = total.get(marks | more, 0.0) + p * q
        return total

    return search(tree.root, max_depth, frozenset())


def mark_outcome(tree, heavy_paths):
    """Give the tree the marks of one outcome, so that it can be written depth-first."""

    def mark(node):
        node["mark"] = HEAVY if node["path"] in heavy_paths else LIGHT
        if node["mark"] == HEAVY:
            for child in tree.children(node):
                mark(child)

    mark(tree.root)


# --- problems ------------------------------------------------------------------------------


def random_problem(rng, max_records=60):
    """A small random problem with everything that a table can hold.

    Returns
    -------
    dict
        With X (features by records, float32), y, n_classes, n_categories, lower and upper.
    """
    n_features = int(rng.integers(1, 6))
    n_records = int(rng.integers(1, max_records + 1))
    columns, n_categories, lower, upper = [], [], [], []
    for _ in range(n_features):
        if rng.random() < 0.4:
            count = int(rng.integers(1, 7))
            column = rng.integers(-1, count, n_records).astype(np.float32)
            bounds = 0.0, 0.0
        else:
            count = 0
            column, bounds = random_numeric(rng, n_records)
        column = np.asarray(column, dtype=np.float32)
        column[rng.random(n_records) < rng.choice([0.0, 0.1, 0.5])] = np.nan
        columns.append(column)
        n_categories.append(count)
        lower.append(bounds[0])
        upper.append(bounds[1])
    n_classes = int(rng.integers(1, 5))
    return {
        "X": np.ascontiguousarray(columns, dtype=np.float32),
        "y": rng.integers(0, n_classes, n_records).astype(np.int32),
        "n_classes": n_classes,
        "n_categories": np.array(n_categories, dtype=np.int32),
        "lower": np.array(lower, dtype=np.float32),
        "upper": np.array(upper, dtype=np.float32),
    }


def random_numeric(rng, n_records):
    """A numeric column and its bounds; some values lie outside, some ranges are tiny."""
    kind = rng.integers(0, 5)
    if kind == 0:  # few distinct values
        return rng.integers(0, 4, n_records), (0.0, 3.0)
    if kind == 1:  # values on both sides of the bounds
        return rng.normal(0.0, 2.0, n_records), (-1.0, 1.0)
    if kind == 2:  # nothing, one or a few thresholds are representable
        lo = np.float32(rng.choice([0.0, -1.0, 1e7]))
        hi = lo
        for _ in range(rng.integers(0, 4)):
            hi = np.nextafter(hi, np.float32(np.inf))
        return rng.choice([lo, hi], n_records), (lo, hi)
    if kind == 3:  # nearly always zero in a wide range
        return rng.random(n_records) ** 8 * 1e5, (0.0, 99999.0)
    return rng.random(n_records) * 6e38 - 3e38, (-3e38, 3e38)


# --- the kernel, called as the oracle is ---------------------------------------------------


def naive_plan(problem, **weights):
    """The oracle's plan of a problem."""
    return NaivePlan(problem["n_categories"], problem["lower"], problem["upper"], **weights)


def kernel_plan(problem, **weights):
    """The kernel's plan of a problem."""
    from lumberjack._tree import SplitPlan

    return SplitPlan(problem["n_categories"], problem["lower"], problem["upper"], **weights)


def kernel_forest(problem, max_depth, table, split_seed, n_estimators, bits, plan=None, **options):
    """The kernel's forest of a problem."""
    from lumberjack._forest import grow_forest as kernel

    return kernel(
        problem["X"],
        problem["y"],
        problem["n_classes"],
        plan or kernel_plan(problem),
        max_depth,
        *table,
        split_seed,
        n_estimators,
        bits,
        **options,
    )


def assert_same_forest(kernel, naive):
    """Assert that the kernel's arrays hold exactly what the oracle found."""
    nodes, tree_offsets, leaf_offsets, leaf_counts, leaf_paths = kernel
    rows, *expected = naive[:5]
    assert tree_offsets.tolist() == expected[0]
    found = zip(nodes["feature"], nodes["threshold"], nodes["right"], nodes["flags"], strict=True)
    assert [tuple(x.item() for x in row) for row in found] == rows
    assert leaf_offsets.tolist() == expected[1]
    assert leaf_counts.tolist() == expected[2]
    assert leaf_paths.tolist() == expected[3]


# --- the guide's queries -------------------------------------------------------------------


class NaiveScore:
    """Cells and score of one record at a time, and what the record adds to each query.

    Parameters
    ----------
    n_categories : sequence of int
        For each feature, 0 for a numeric one.
    inner_edges : sequence of sequences of float
        For each numeric feature the edges between its bins.
    tables : sequence of sequences of float, optional
        One row a cell, one column a score.
    intercepts : sequence of float, optional
    """

    def __init__(self, n_categories, inner_edges, tables=(), intercepts=()):
        self.n_categories = [int(count) for count in n_categories]
        self.edges = [[float(edge) for edge in edges] for edges in inner_edges]
        self.tables = [[float(entry) for entry in row] for row in tables]
        self.intercepts = [float(own) for own in intercepts]
        sizes = [
            (count or len(edges) + 1) + 1
            for count, edges in zip(self.n_categories, self.edges, strict=True)
        ]
        self.starts = [0, *accumulate(sizes)]

    def cells(self, x):
        """The cell of each feature of a record, None for an unknown category."""
        found = []
        for f, value in enumerate(x):
            value = float(value)
            if math.isnan(value):
                found.append(self.starts[f + 1] - 1)
            elif self.n_categories[f]:
                found.append(self.starts[f] + int(value) if value >= 0 else None)
            else:
                found.append(self.starts[f] + sum(edge < value for edge in self.edges[f]))
        return found

    def scores(self, x):
        """The log-odds: intercept and table entries, added in the order of the features."""
        scores = list(self.intercepts)
        for cell in self.cells(x):
            if cell is not None:
                scores = [s + entry for s, entry in zip(scores, self.tables[cell], strict=True)]
        return scores

    def probabilities(self, x):
        """Of class 1 for one score, else of every class."""
        odds = [sigmoid(s) for s in self.scores(x)]
        if len(odds) == 1:
            return odds
        total = 0.0
        for own in odds:
            total += own
        return [own / total for own in odds]

    def columns(self, x, centres):
        """The score columns."""
        pairs = zip(self.scores(x), centres, strict=True)
        return [0.5 * (sigmoid(s) + sigmoid(s - centre)) for s, centre in pairs]

    def marginals(self, x, y, n_classes, unit):
        """What a record adds to the class marginals, by (cell, class)."""
        added = soft_counts(y, n_classes, unit)
        cells = [cell for cell in self.cells(x) if cell is not None]
        return {(cell, c): n for cell in cells for c, n in enumerate(added) if n}

    def residuals(self, x, y, unit, steps):
        """What a record adds to the residual sums, by (cell, score)."""
        p = self.probabilities(x)
        labels = [y / unit] if len(p) == 1 else [float(y == s) for s in range(len(p))]
        rounded = [
            math.floor((label - own) * steps + 0.5) for label, own in zip(labels, p, strict=True)
        ]
        cells = [cell for cell in self.cells(x) if cell is not None]
        return {(cell, s): n for cell in cells for s, n in enumerate(rounded)}

    def curvature(self, x, direction, reach, steps):
        """What a record adds to the curvature sums, by score."""
        zeros = [0.0] * len(self.intercepts)
        change = NaiveScore(self.n_categories, self.edges, direction, zeros).scores(x)
        added = {}
        for s, (p, own) in enumerate(zip(self.probabilities(x), change, strict=True)):
            d = min(abs(own), reach) / reach
            added[s] = math.floor(4 * p * (1 - p) * d * d * steps + 0.5)
        return added

    def histogram(self, x, y, unit, n_cells, reach):
        """What a record adds to the score histogram, by (score, cell, class or the rest)."""
        added = {}
        for s, score in enumerate(self.scores(x)):
            position = (score + reach) / (2 * reach) * n_cells
            cell = min(max(math.floor(position), 0), n_cells - 1)
            own = y if len(self.intercepts) == 1 else int(y == s)
            for side, n in enumerate(soft_counts(own, 2, unit)):
                added[s, cell, side] = n
        return added


def sigmoid(s):
    """1 / (1 + e^-s)."""
    try:
        return 1.0 / (1.0 + math.exp(-s))
    except OverflowError:
        return 0.0


def soft_counts(y, n_classes, unit):
    """The counts that one label adds to the classes: `unit` in all."""
    if unit > 1:
        return [unit - int(y), int(y)]
    return [int(c == y) for c in range(n_classes)]


def sum_up(shape, contributions):
    """Sum of what single records add."""
    total = np.zeros(shape, dtype=np.int64)
    for added in contributions:
        for place, n in added.items():
            total[place] += n
    return total


def posterior_mean(sums, weights, noise_variance, covariances):
    """Bayesian model average of Gaussian regressions with dense matrices.

    sums = weights * offsets + e with var e = noise_variance + weights; offsets ~ N(0, C) for each
    of the equally likely `covariances` C.
    """
    design = np.diag(weights)
    error = np.diag(noise_variance + weights + 1e-12)
    log_likelihoods, means = [], []
    for covariance in covariances:
        marginal = design @ covariance @ design + error
        solved = np.linalg.solve(marginal, sums)
        log_likelihoods.append(-0.5 * (np.linalg.slogdet(marginal)[1] + sums @ solved))
        means.append(covariance @ design @ solved)
    odds = np.exp(np.array(log_likelihoods) - max(log_likelihoods))
    return odds / odds.sum() @ np.array(means)


# --- probabilities ---------------------------------------------------------------------------


def combine(forest, score, score_vote=0.2, smallest=1e-4):
    """Normalised geometric mean of the probabilities of trees and score."""
    result = []
    for first, second in zip(forest, score, strict=True):
        product = [
            max(a, smallest) ** (1 - score_vote) * max(b, smallest) ** score_vote
            for a, b in zip(first, second, strict=True)
        ]
        result.append([value / math.fsum(product) for value in product])
    return np.array(result)
