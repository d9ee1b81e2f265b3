"""Privacy audit: attack the real estimator, and see that the attack would notice faults.

    python benchmarks/audit.py                    # 10^5 fits of each of two tables per claim
    python benchmarks/audit.py --short --n-jobs 2

For each case the estimator is fitted many times to one table and to its neighbour, which holds
one unit more. (epsilon, delta)-differential privacy bounds every event S, in both directions:

    delta >= P(S) - e^epsilon Q(S),    P, Q = with and without the unit, or the reverse.

The event is fixed before the first fit: log likelihood ratio of P and Q above epsilon, which
maximises the right side (Neyman, Pearson). The ratio comes from a model of the mechanism that is
written here anew from its definition; a mistake in it makes the audit weaker, never wrong. From
the counts of the event a lower bound of delta is computed (Clopper, Pearson), which holds with
99.9 % for all rows of the table together. It must stay below the claim.

Then faults are planted in the calibration that the same code is given, and each must be seen to
break the claim. Column "exact" is the largest right side for that pair of tables, by the model:
what the audit can find at best, and how much of the claim the case uses. (Of noisy counts it is
the value before they are rounded to integers, which takes away a little.)

A guide asks one question after another, each chosen by the noisy answers so far. The attacker
knows both tables, so the exact answer of both to every question: the log likelihood ratio of the
whole conversation is a sum of Gaussian ones. Here "exact" is what a unit could use that takes part
in every answer with all its weight, which is more than the pair of tables does.

Exit status 1: a claim is violated, or a fault is not noticed.
"""

import argparse
import contextlib
import functools
import itertools
import math
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from unittest import mock

import numpy as np
from joblib import effective_n_jobs
from scipy.special import log_softmax, ndtr
from scipy.stats import beta
from threadpoolctl import threadpool_limits

from lumberjack import (
    LumberjackClassifier,
    _predict,
    accounting,
    forest,
    guide,
    noise,
    privacy,
    trees,
)
from lumberjack.domain import Domain

CONFIDENCE = 0.999
RUNS = 100_000
FAULT_RUNS = 20_000  # enough to notice a fault
SHORT_RUNS = 6_000
CHUNK = 5_000

WITHOUT, WITH = 0, 1  # the two tables: without the unit and with it


# Cases ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One pair of neighbouring tables, and what is claimed of the estimator on it.

    Attributes
    ----------
    name : str
    part : {"structure", "leaves", "marginals", "guide", "whole"}
        What the attacker sees. "marginals" is the first answer of a guide, "guide" all of them.
    parameters : dict
        Of the estimator. With `threshold` far above all counts every tree is one leaf: then the
        leaves are audited alone.
    unit : int
        Records of the unit, of class 1.
    crowd : int or None
        Other records, all in one place and of class 0; None for the number that the model finds
        worst.
    far : bool
        The first split of every tree parts the unit from the crowd; else they share one place.
    epsilon : float or None
        Where the curve of a part is audited; None for the estimator's own epsilon.
    fault : str
        Name of the fault that is planted, see `FAULTS` and `GUIDE_FAULTS`; empty for none.
    n_features : int
        Categorical features of a guided case, all alike; the others have a numeric one.
    n_classes : int
    soft : int
        Steps of soft labels, as in a regression (part "guide"); 1 for classes.
    rounds : int
        Rounds of residuals of a guide; fewer than the library's take less time.
    """

    name: str
    part: str
    parameters: dict = field(hash=False)
    unit: int = 1
    crowd: int | None = None
    far: bool = False
    epsilon: float | None = None
    fault: str = ""
    n_features: int = 1
    n_classes: int = 2
    soft: int = 1
    rounds: int = guide.N_ROUNDS

    @property
    def is_guided(self):
        """Whether there is a guide."""
        return self.parameters["splitter"] == "guided"

    @property
    def mode(self):
        """Accounting, leaves and size of a unit, trees and depth."""
        shown = {"accounting": "joint", "leaf": "counts", **self.parameters}
        person = f" g={self.unit}" if self.unit > 1 else ""
        size = f"k={shown['n_estimators']} h={shown['max_depth']}"
        if self.is_guided:
            labels = f" soft{self.soft}" if self.soft > 1 else f" C={self.n_classes}"
            size = f"F={self.n_features}{labels} r={self.rounds} k={shown['n_estimators']}"
            return f"guided {shown['leaf']}{person} {size}"
        return f"{shown['accounting']} {shown['leaf']}{person} {size}"


ONE_LEAF = 1e4  # a threshold that no table here comes near


def parameters(n_estimators, max_depth=1, epsilon=1.0, delta=0.05, **others):
    """Parameters of a small forest without a guide."""
    return {
        "splitter": "random",
        "n_estimators": n_estimators,
        "max_depth": max_depth,
        "epsilon": epsilon,
        "delta": delta,
        **others,
    }


def guided(n_estimators=1, share=0.8, epsilon=1.0, delta=0.1, **others):
    """Parameters of a small guided forest whose trees test their roots alone."""
    shares = {"guide": share, "structure": (1 - share) / 2, "leaves": (1 - share) / 2}
    return {
        **parameters(n_estimators, 1, epsilon, delta),
        "splitter": "guided",
        "budget_shares": shares,
        **others,
    }


def person(g):
    """Parameters for units of g records."""
    return {"records_per_unit": g}


SPLIT = {"accounting": "split"}
MAJORITY = {"leaf": "majority"}

CASES = [
    # A record far from all: the rare event that its node passes.
    Case("lone record", "structure", parameters(1), crowd=0),
    Case("lone record", "structure", parameters(3, epsilon=2.0, delta=0.1), crowd=0),
    Case("lone record, far", "structure", parameters(3, 3, **SPLIT), far=True),
    Case("lone person", "structure", parameters(2, **person(3)), crowd=0, unit=3),
    # A record that moves a count across the threshold.
    Case("crossing", "structure", parameters(1), epsilon=0.3),
    Case("crossing", "structure", parameters(3, 3, epsilon=2.0, delta=0.1), epsilon=0.6),
    Case("crossing", "structure", parameters(2, 3, delta=0.1, **SPLIT)),
    Case("crossing person", "structure", parameters(2, **person(3)), unit=3, epsilon=0.3),
    # A record that changes the class of its leaf.
    Case("leaf", "leaves", parameters(1, threshold=ONE_LEAF), epsilon=0.2),
    Case("leaf", "leaves", parameters(3, delta=0.1, threshold=ONE_LEAF, **SPLIT)),
    Case(
        "leaf",
        "leaves",
        parameters(4, epsilon=2.0, delta=0.1, threshold=ONE_LEAF, **MAJORITY),
        epsilon=0.4,
    ),
    Case("leaf", "leaves", parameters(4, delta=0.1, threshold=ONE_LEAF, **MAJORITY, **SPLIT)),
    Case(
        "leaf of a person",
        "leaves",
        parameters(2, threshold=ONE_LEAF, **person(3)),
        unit=3,
        epsilon=0.2,
    ),
    Case(
        "leaf of a person",
        "leaves",
        parameters(3, delta=0.1, threshold=ONE_LEAF, **MAJORITY, **person(3)),
        unit=3,
        epsilon=0.2,
    ),
    # All that is released.
    Case("lone record", "whole", parameters(1, delta=0.01), crowd=0),
    Case("lone record", "whole", parameters(1, delta=0.1, **MAJORITY), crowd=0),
    Case(
        "lone record", "whole", parameters(2, epsilon=2.0, delta=0.1, **MAJORITY, **SPLIT), crowd=0
    ),
    Case("lone record, far", "whole", parameters(2, 3, delta=0.1), far=True),
    Case("crossing", "whole", parameters(1)),
    Case("crossing", "whole", parameters(8, 3, delta=0.1)),
    Case("crossing", "whole", parameters(2, delta=0.1, **SPLIT)),
    Case("crossing", "whole", parameters(1, delta=0.1, **MAJORITY)),
    Case("crossing person", "whole", parameters(2, delta=0.1, **person(3)), unit=3),
    Case("crossing person", "whole", parameters(2, delta=0.1, **MAJORITY, **person(3)), unit=3),
    # A guide: a record of the other class among all others, so that residuals are largest.
    Case("odd one", "marginals", guided(), n_features=3, crowd=5, epsilon=0.3),
    Case("odd one", "guide", guided(), n_features=2, crowd=100, epsilon=0.3),
    Case("odd one", "guide", guided(), n_classes=3, crowd=100, epsilon=0.3, rounds=1),
    Case("odd one", "guide", guided(epsilon=2.0), soft=16, crowd=100, epsilon=0.5, rounds=1),
    Case("odd person", "guide", guided(**person(3)), unit=3, crowd=300, epsilon=0.3, rounds=1),
    Case("crossing", "whole", guided(share=0.9)),
    Case("odd one", "whole", guided(share=0.9, **MAJORITY), crowd=40, rounds=1),
]


# Faults -----------------------------------------------------------------------------------------


def without_slack(noisy):
    """Test every node against 1: half of the lone records pass."""
    return replace(noisy, slack=0.0, threshold=float(noisy.records_per_unit))


def half_slack(noisy):
    """Test with half the slack."""
    slack = noisy.slack / 2
    return replace(noisy, slack=slack, threshold=noisy.records_per_unit + slack)


def half_test_noise(noisy):
    """Test with half the noise."""
    return replace(noisy, sigma_tests=noisy.sigma_tests / 2)


def two_ignored(noisy):
    """Ignore counts of 1 and 2 while the threshold is the slack alone: a third record passes."""
    return replace(noisy, threshold=noisy.slack, slack=noisy.slack - 3.5)


def exact_leaves(noisy):
    """Store exact counts in the leaves."""
    return replace(noisy, sigma_leaves=0.0)


def half_leaf_noise(noisy):
    """Release leaf counts with half the noise."""
    return replace(noisy, sigma_leaves=noisy.sigma_leaves / 2)


def twice_the_rate(noisy):
    """Weights exp(2 epsilon count) in the exponential mechanism."""
    return replace(noisy, epsilon_leaf=2 * noisy.epsilon_leaf)


FAULTS = {
    function.__name__: function
    for function in (
        without_slack,
        half_slack,
        half_test_noise,
        two_ignored,
        exact_leaves,
        half_leaf_noise,
        twice_the_rate,
    )
}
# Not a change of the calibration: the estimator is told of one record a unit, the claim is for g.
PERSON_IGNORED = "person_ignored"


def half_guide_noise():
    """Answer all questions of the guide with half the noise."""
    sigma = guide.Queries.sigma
    return mock.patch.object(guide.Queries, "sigma", lambda *args: sigma(*args) / 2)


def one_feature_charged():
    """Forget sqrt(F) in the sensitivity of the residuals."""
    grid = guide.Queries._grid
    return mock.patch.object(
        guide.Queries, "_grid", lambda self, norm, repeats, share: grid(self, norm, 1.0, share)
    )


def shares_ignored():
    """Give every question all of mu."""
    sigma = guide.Queries.sigma
    return mock.patch.object(
        guide.Queries, "sigma", lambda self, sensitivity, share: sigma(self, sensitivity, 1.0)
    )


# Patches of the guide, and by what they multiply the mu that a unit can use, of F features.
GUIDE_FAULTS = {
    "half_guide_noise": (half_guide_noise, lambda n_features: 2.0),
    "one_feature_charged": (
        one_feature_charged,
        lambda n_features: math.sqrt(1 + guide.RESIDUALS_SHARE * (n_features - 1)),
    ),
    "shares_ignored": (
        shares_ignored,
        lambda n_features: math.sqrt(5),  # with one round
    ),
}

FAULTY_CASES = [
    Case("lone record", "structure", parameters(1), crowd=0, fault="without_slack"),
    Case("lone record, far", "whole", parameters(2, 3), far=True, fault="without_slack"),
    Case("lone record", "whole", parameters(3, delta=0.02), crowd=0, fault="half_slack"),
    Case("crossing", "structure", parameters(3, 3), epsilon=0.3, fault="half_test_noise"),
    Case("crossing", "whole", parameters(1, epsilon=2.0), fault="half_test_noise"),
    Case("third record", "whole", parameters(3), crowd=2, fault="two_ignored"),
    Case("leaf", "leaves", parameters(1, threshold=ONE_LEAF), fault="exact_leaves"),
    Case("lone record, far", "whole", parameters(2, 3), far=True, fault="exact_leaves"),
    Case("leaf", "leaves", parameters(3, threshold=ONE_LEAF), epsilon=0.2, fault="half_leaf_noise"),
    Case(
        "leaf",
        "leaves",
        parameters(4, epsilon=2.0, threshold=ONE_LEAF, **MAJORITY),
        epsilon=0.4,
        fault="twice_the_rate",
    ),
    Case(
        "leaf",
        "leaves",
        parameters(1, epsilon=2.0, delta=0.1, threshold=ONE_LEAF, **MAJORITY, **SPLIT),
        fault="twice_the_rate",
    ),
    Case(
        "lone person",
        "structure",
        parameters(1, **person(3)),
        unit=3,
        crowd=0,
        fault=PERSON_IGNORED,
    ),
    Case("crossing person", "whole", parameters(2, **person(3)), unit=3, fault=PERSON_IGNORED),
    Case(
        "odd one", "marginals", guided(epsilon=3.0), crowd=5, epsilon=0.5, fault="half_guide_noise"
    ),
    Case("odd one", "guide", guided(), crowd=100, epsilon=0.3, fault="half_guide_noise"),
    Case(
        "odd one",
        "guide",
        guided(),
        n_features=8,
        crowd=100,
        epsilon=0.3,
        fault="one_feature_charged",
    ),
    Case("odd one", "guide", guided(), crowd=100, epsilon=0.3, fault="shares_ignored", rounds=1),
    Case(
        "odd person",
        "guide",
        guided(**person(3)),
        unit=3,
        crowd=300,
        epsilon=0.3,
        fault=PERSON_IGNORED,
        rounds=1,
    ),
    Case(
        "odd one",
        "whole",
        guided(share=0.9, delta=0.05),
        crowd=40,
        fault="half_guide_noise",
        rounds=1,
    ),
]


# Claims -----------------------------------------------------------------------------------------


def calibrate(case, ignore_person=False):
    """The library's calibration for the parameters of the case."""
    given = dict(case.parameters)
    if ignore_person:
        del given["records_per_unit"]
    return LumberjackClassifier(**given)._calibrate(declare(case), case.n_classes)


def declare(case, X=((0.5,),), y=(0,)):
    """The domain of a case."""
    classes = list(range(case.n_classes))
    if not case.is_guided:
        return Domain.declare(X, y, bounds=(0, 1), classes=classes)
    categories = {f: [0, 1] for f in range(case.n_features)}
    return Domain.declare([[0] * case.n_features], [0], categories=categories, classes=classes)


def calibration_used(case):
    """The calibration that the estimator is given: the library's, or one with the fault."""
    if case.fault == PERSON_IGNORED:
        return calibrate(case, ignore_person=True)
    noisy = calibrate(case)
    return FAULTS[case.fault](noisy) if case.fault in FAULTS else noisy


def claim(case):
    """What is promised of the part: (epsilon, delta).

    The whole has the (epsilon, delta) of the estimator. With split accounting the parts have
    their shares of both; with joint accounting each part has the curve of its own noise.
    """
    noisy = calibrate(case)
    if case.part == "whole":
        return noisy.epsilon, noisy.delta
    if noisy.accounting == "split":
        share = dict(noisy.budget_shares)[case.part]
        return share * noisy.epsilon, share * noisy.delta
    epsilon = case.epsilon or noisy.epsilon
    if case.part in ("marginals", "guide"):
        return epsilon, accounting.gaussian_delta(epsilon, guide_mu(case, noisy))
    if case.part == "leaves":
        if noisy.leaf == "counts":
            return epsilon, accounting.gaussian_delta(epsilon, noisy.mu_leaves)
        return epsilon, accounting.zcdp_delta(epsilon, noisy.rho_leaves)
    return epsilon, accounting.forest_delta(
        epsilon,
        mu=noisy.mu_structure,
        n_tests=noisy.records_per_unit * noisy.tests_per_record,
        sigma=noisy.sigma_tests,
        slack=noisy.slack,
    )


def guide_mu(case, noisy):
    """mu of the answers that the attacker sees."""
    share = guide.MARGINALS_SHARE if case.part == "marginals" else 1.0
    return noisy.mu_guide * math.sqrt(share)


# Tables -----------------------------------------------------------------------------------------


class Tables(NamedTuple):
    """Both tables as the estimator encodes them; the unit comes last.

    Attributes
    ----------
    domain : Domain
    encoded : float32 array of shape (n_features, n_records)
    codes : int32 array of shape (n_records,)
    unit : int
        Records of the unit.
    """

    domain: Domain
    encoded: np.ndarray
    codes: np.ndarray
    unit: int

    def get(self, which):
        """Encoded features and classes of one table, which may be empty."""
        end = len(self.codes) - (self.unit if which == WITHOUT else 0)
        return np.ascontiguousarray(self.encoded[:, :end]), self.codes[:end]


def make_tables(case):
    """Place the crowd and the unit on one feature."""
    place = [0.1 if case.far else 0.9] * case.crowd + [0.9] * case.unit
    labels = [0] * case.crowd + [1] * case.unit
    X = np.array(place)[:, None]
    domain = declare(case, X, labels)
    return Tables(domain, domain.encode(X), domain.encode_classes(labels), case.unit)


def make_guided_tables(case):
    """Crowd and unit with the same features, and labels at the two ends."""
    codes = np.array([0] * case.crowd + [case.soft] * case.unit, dtype=np.int32)
    encoded = np.zeros((case.n_features, len(codes)), dtype=np.float32)
    return Tables(declare(case), encoded, codes, case.unit)


def find_seed(case, tables):
    """The first public seed whose trees suit the case."""
    for seed in itertools.count():
        trees = grow_everything(case, tables, seed)
        if not case.far or all(0.1 < tree.threshold[0] < 0.9 for tree in trees):
            return seed, trees


def grow_everything(case, tables, seed):
    """The trees with every node that holds a record, from the library without noise."""
    estimator = LumberjackClassifier(
        case.parameters["n_estimators"],
        splitter="random",
        epsilon=math.inf,
        threshold=1,
        max_depth=case.parameters["max_depth"],
        n_jobs=1,
    )
    n_classes = case.n_classes
    noiseless = estimator._calibrate(tables.domain, n_classes)
    _, (nodes, offsets, *_) = estimator._grow(
        *tables.get(WITH), n_classes, 1, tables.domain, noiseless, seed, noise.SystemBits()
    )
    return [trees.read_tree(nodes[start:end], None) for start, end in itertools.pairwise(offsets)]


# The model: exact distribution of what a forest releases -----------------------------------------


class Hierarchy:
    """One tree with all its nodes, and the class counts of both tables in each.

    Attributes
    ----------
    children : list of tuple of int
    parent : list of int
    counts : int array of shape (2, n_nodes, n_classes)
    """

    def __init__(self, tree, tables):
        self.children = [
            (left, right) if left >= 0 else ()
            for left, right in zip(tree.children_left, tree.children_right, strict=True)
        ]
        self.parent = [-1] * len(self.children)
        for node, below in enumerate(self.children):
            for child in below:
                self.parent[child] = node
        self.counts = np.zeros((2, len(self.children), 2), dtype=np.int64)
        for which in (WITHOUT, WITH):
            X, codes = tables.get(which)
            for x, code in zip(X[0], codes, strict=True):
                for node in walk(tree, x):
                    self.counts[which, node, code] += 1

    def ancestors(self, node):
        """Yield the nodes above, from the parent to the root."""
        while self.parent[node] >= 0:
            node = self.parent[node]
            yield node

    def below(self, root, levels):
        """The nodes so many levels below the root that hold records in either table."""
        level = [root]
        for _ in range(levels):
            level = [child for node in level for child in self.children[node]]
        return [node for node in level if self.counts[WITH, node].any()]


def walk(tree, x):
    """Yield the nodes that a record visits."""
    node = 0
    while tree.children_left[node] >= 0:
        yield node
        left = x <= tree.threshold[node]
        node = tree.children_left[node] if left else tree.children_right[node]
    yield node


def search(tree, root, height, marks, test):
    """The heavy-hitter search by its definition; `marks` receives node -> heavy or not."""
    if height == 1:
        if root not in marks:
            marks[root] = test(root)
        return
    middle = height // 2
    level = [
        node
        for node in tree.below(root, middle)
        if all(marks.get(above, True) for above in tree.ancestors(node))
    ]
    for node in level:
        if node not in marks:
            marks[node] = test(node)
        if marks[node]:
            marks.update(dict.fromkeys(tree.ancestors(node), True))
    if height > 2:
        for node in level:
            for child in tree.below(node, 1) if marks[node] else ():
                search(tree, child, height - middle - 1, marks, test)
    search(tree, root, middle, marks, test)


class Outcome(NamedTuple):
    """A structure that one tree may get.

    Attributes
    ----------
    key : bytes
        1 for a split, 0 for a leaf, depth-first.
    probabilities : pair of float
        In both tables.
    leaves : int array of shape (2, n_leaves, n_classes)
        Exact class counts in both tables.
    """

    key: bytes
    probabilities: tuple
    leaves: np.ndarray


def pass_probability(count, noisy):
    """Probability that a node of so many records is heavy."""
    if count <= max(0.0, noisy.threshold - noisy.records_per_unit - noisy.slack + 1e-9):
        return 0.0
    return float(ndtr((count - noisy.threshold) / noisy.sigma_tests))


def list_outcomes(tree, noisy, height):
    """Every structure of the tree, by trying all results of its tests."""
    sizes = tree.counts.sum(axis=2)
    passes = [[pass_probability(size, noisy) for size in sizes[which]] for which in range(2)]
    scripts = [[]]
    while scripts:
        script = scripts.pop()
        tested, marks = [], {}

        def test(node, script=script, tested=tested):
            tested.append(node)
            if len(tested) > len(script):
                if passes[WITHOUT][node] or passes[WITH][node]:
                    scripts.append([*script, True])
                script.append(False)
            return script[len(tested) - 1]

        search(tree, 0, height, marks, test)
        probabilities = tuple(
            math.prod(
                p[node] if passed else 1 - p[node]
                for node, passed in zip(tested, script, strict=True)
            )
            for p in passes
        )
        key, leaves = write(tree, 0, marks)
        yield Outcome(key, probabilities, tree.counts[:, leaves])


def write(tree, node, marks):
    """Key and leaves of the structure, depth-first: heavy nodes are split."""
    if not marks.get(node, False):
        return b"\0", [node]
    parts = [write(tree, child, marks) for child in tree.children[node]]
    return b"\1" + b"".join(key for key, _ in parts), sum((leaves for _, leaves in parts), [])


class Forest:
    """Exact distribution of what the estimator releases for both tables of a case.

    Parameters
    ----------
    case : Case
        With a given `crowd`.
    noisy : accounting.Calibration
        The one that the estimator uses.
    """

    def __init__(self, case, noisy):
        self.part = case.part
        self.noisy = noisy
        self.tables = make_tables(case)
        self.seed, trees = find_seed(case, self.tables)
        self.trees = [
            {
                outcome.key: outcome
                for outcome in list_outcomes(
                    Hierarchy(tree, self.tables), noisy, case.parameters["max_depth"]
                )
            }
            for tree in trees
        ]
        self.atoms = self._merge_trees()

    def scores(self, key, released):
        """Log likelihood ratios, with the unit over without, of models of one structure.

        Parameters
        ----------
        key : bytes
            The keys of all trees, one after the other.
        released : array of shape (n_models, n_leaves, n_classes) or (n_models, n_leaves)
            Noisy counts, or the chosen classes.

        Returns
        -------
        float64 array of shape (n_models,)
        """
        outcomes = self._outcomes(key)
        scores = np.full(len(released), sum(log_ratio(o.probabilities) for o in outcomes))
        if self.part == "structure":
            return scores
        leaves = np.concatenate([o.leaves for o in outcomes], axis=1)
        if self.noisy.leaf == "counts":
            return scores + gaussian_scores(released, leaves, self.noisy.sigma_leaves)
        log_weights = log_softmax(self.noisy.epsilon_leaf * leaves, axis=2)
        log_ratios = log_weights[WITH] - log_weights[WITHOUT]
        return scores + log_ratios[np.arange(leaves.shape[1]), released].sum(axis=1)

    def _outcomes(self, key):
        outcomes, start = [], 0
        for tree in self.trees:
            end, open_nodes = start, 1
            while open_nodes:
                open_nodes += 1 if key[end] else -1
                end += 1
            outcomes.append(tree[key[start:end]])
            start = end
        return outcomes

    def _merge_trees(self):
        """The distribution of the log likelihood ratio, as a list of mixed parts.

        Each is (p, q, mu^2): its probability without and with the unit, and the mu of Gaussian
        noise that remains to be seen in it.
        """
        atoms = [(1.0, 1.0, 0.0)]
        for tree in self.trees:
            parts = [atom for outcome in tree.values() for atom in self._atoms_of(outcome)]
            atoms = merge(
                (p * other_p, q * other_q, square + other_square)
                for p, q, square in atoms
                for other_p, other_q, other_square in parts
            )
        return atoms

    def _atoms_of(self, outcome):
        p, q = outcome.probabilities
        if self.part == "structure":
            return [(p, q, 0.0)]
        if self.noisy.leaf == "counts":
            shift = outcome.leaves[WITH] - outcome.leaves[WITHOUT]
            sigma = self.noisy.sigma_leaves
            return [(p, q, float((shift**2).sum()) / sigma**2 if sigma else math.inf)]
        changed = (outcome.leaves[WITH] != outcome.leaves[WITHOUT]).any(axis=1)
        atoms = [(p, q, 0.0)]
        for leaf in np.flatnonzero(changed):
            weights = log_softmax(self.noisy.epsilon_leaf * outcome.leaves[:, leaf], axis=1)
            atoms = [
                (p * a, q * b, 0.0) for p, q, _ in atoms for a, b in np.exp(weights).T.tolist()
            ]
        return atoms

    def event(self, direction, epsilon):
        """Exact probabilities of the event of `direction` under its P and its Q."""
        atoms = self.atoms
        if direction == "add":
            atoms = [(q, p, square) for p, q, square in atoms]
        pairs = [event_of_atom(*atom, epsilon) for atom in atoms]
        return tuple(math.fsum(side) for side in zip(*pairs, strict=True))

    def exact_delta(self, direction, epsilon):
        """The least delta for this pair of tables in this direction."""
        p, q = self.event(direction, epsilon)
        return p - math.exp(epsilon) * q


class Guided:
    """What an attacker knows of a guided case; the trees test their roots alone.

    Parameters
    ----------
    case : Case
        With a given `crowd`.
    noisy : accounting.Calibration
        The one that the estimator uses.
    """

    def __init__(self, case, noisy):
        self.case, self.noisy, self.seed = case, noisy, 0
        self.tables = make_guided_tables(case)
        self.rows = np.zeros((1, case.n_features), dtype=np.float32)

    def score_of_trees(self, estimator):
        """Log likelihood ratio of the trees, given the guide and the public seed of the splits."""
        columns, _ = estimator.guide_.score.evaluate(self.rows)
        rows = np.hstack([self.rows, columns])
        reached = _predict.apply(rows, estimator.nodes_, estimator.tree_offsets_, 1)[0]
        size = self.case.crowd, self.case.crowd + self.case.unit
        passes = [pass_probability(n, self.noisy) for n in size]
        leaves = np.zeros((2, len(estimator.leaf_votes_), self.case.n_classes), dtype=np.int64)
        score = 0.0
        for t, node in enumerate(reached):
            start, end = estimator.tree_offsets_[t : t + 2]
            is_split = end - start > 1
            score += log_ratio([p if is_split else 1 - p for p in passes])
            leaf = estimator.leaf_offsets_[t] + estimator.nodes_["right"][start + node]
            leaves[:, leaf, 0] = self.case.crowd
            leaves[WITH, leaf, 1] = self.case.unit
        if self.noisy.leaf == "counts":
            released = leaves_of(estimator)[None]
            return score + gaussian_scores(released, leaves, self.noisy.sigma_leaves)[0]
        log_weights = log_softmax(self.noisy.epsilon_leaf * leaves, axis=2)
        chosen = (log_weights[WITH] - log_weights[WITHOUT])[
            np.arange(leaves.shape[1]), leaves_of(estimator)
        ]
        return score + chosen.sum()

    def exact_delta(self, direction, epsilon):
        """What a unit can use at best, by the claims with the noise that is drawn."""
        case, noisy = self.case, self.noisy
        mu = guide_mu(case, noisy)
        if case.fault in GUIDE_FAULTS:
            mu *= GUIDE_FAULTS[case.fault][1](case.n_features)
        if case.fault == PERSON_IGNORED:
            mu *= case.unit
        if case.part != "whole":
            return accounting.gaussian_delta(epsilon, mu)
        return accounting.forest_delta(
            epsilon,
            mu=math.hypot(mu, noisy.mu_structure, noisy.mu_leaves),
            rho=noisy.rho_leaves,
            n_tests=noisy.records_per_unit * noisy.tests_per_record,
            sigma=noisy.sigma_tests,
            slack=noisy.slack,
        )

    def event(self, direction, epsilon):
        """Unknown: the conversation depends on its answers."""
        return None


def log_ratio(probabilities):
    """Logarithm of the second over the first."""
    p, q = probabilities
    if p == 0 or q == 0:
        return math.inf if q > p else -math.inf
    return math.log(q) - math.log(p)


def gaussian_scores(released, leaves, sigma):
    """Log likelihood ratios of noisy counts; without noise they are infinite."""
    distances = [(released - counts).astype(np.float64) for counts in leaves]
    squares = [(distance**2).sum(axis=(1, 2)) for distance in distances]
    if sigma:
        return (squares[WITHOUT] - squares[WITH]) / (2 * sigma**2)
    same = (leaves[WITHOUT] == leaves[WITH]).all()
    return np.zeros(len(released)) if same else np.where(squares[WITH] == 0, np.inf, -np.inf)


def event_of_atom(p, q, square, epsilon):
    """Probabilities under P and Q of the part of an atom whose log ratio is above epsilon."""
    if p == 0:
        return 0.0, 0.0
    if math.isinf(square) or q == 0:
        return p, 0.0
    excess = math.log(p / q) - epsilon
    if square == 0:
        return (p, q) if excess > 0 else (0.0, 0.0)
    mu = math.sqrt(square)
    return p * float(ndtr(excess / mu + mu / 2)), q * float(ndtr(excess / mu - mu / 2))


def merge(atoms):
    """Add up atoms of equal likelihood ratio."""
    sums = defaultdict(lambda: (0.0, 0.0, 0.0))
    for p, q, square in atoms:
        if p or q:
            name = round(log_ratio((p, q)), 9), round(square, 9)
            sums[name] = sums[name][0] + p, sums[name][1] + q, square
    return list(sums.values())


# Fits -------------------------------------------------------------------------------------------


class GeneratorBits:
    """A bit source like `noise.SystemBits`, but repeatable: for the tests of this program.

    Parameters
    ----------
    entropy : sequence of int
    """

    seeded = False  # to the kernels: ask `draw` for everything

    def __init__(self, entropy):
        self._generator = np.random.default_rng(entropy)

    def draw(self, purpose, paths, n):
        """Uniform 64-bit integers of shape (len(paths), n)."""
        return self._generator.integers(
            0, 2**64 - 1, size=(len(paths), n), dtype=np.uint64, endpoint=True
        )


class EncodedOnce:
    """Stands for the domain of a fit: what it declares, and a table encoded beforehand."""

    def __init__(self, domain, X, codes):
        self._domain, self._X, self._codes = domain, X, codes

    def __getattr__(self, name):
        return getattr(self._domain, name)

    def declare(self, X, y, **declarations):
        return self

    def encode(self, X, **options):
        return self._X

    def encode_classes(self, y):
        return self._codes


class Calibrated(LumberjackClassifier):
    """The classifier with a calibration made beforehand."""

    def _calibrate(self, domain, n_classes):
        return self._noisy


def fit_many(case, model, which, runs, bits):
    """Fit the classifier again and again; yield the estimator.

    `LumberjackClassifier.fit` runs as it is, but for what is the same every time or needs a
    table that is not empty: calibration, report, table of the tests, encoding, checks of names.
    The seed of the splits is fixed: it is public. The kernel runs in this thread, because the
    other one only serves interruptions.
    """
    X, codes = model.tables.get(which)
    estimator = Calibrated(n_jobs=1, **case.parameters)
    estimator._noisy = model.noisy
    report = privacy.make_report(calibrate(case), (), bits)
    with (
        mock.patch.multiple(
            forest,
            Domain=EncodedOnce(model.tables.domain, X, codes),
            validate_data=lambda *args, **options: None,
            read_labels=lambda y: y,
            run_interruptibly=lambda function, *rest: function(),
        ),
        mock.patch.multiple(
            noise,
            derive_keys=lambda random_state: (model.seed, bits),
            test_table=functools.cache(noise.test_table),
        ),
        mock.patch.object(privacy, "make_report", lambda *args: report),
    ):
        for _ in range(runs):
            estimator.fit(None, None)
            yield estimator


def leaves_of(estimator):
    """What the leaves released: noisy counts, or the chosen classes."""
    if estimator.leaf == "counts":
        return estimator.leaf_counts_
    return estimator.leaf_votes_.argmax(axis=1)


def forest_scores(case, model, which, runs, bits):
    """Log likelihood ratios of fits without a guide, those of one structure together."""
    released = defaultdict(list)
    for estimator in fit_many(case, model, which, runs, bits):
        key = (estimator.nodes_["feature"] >= 0).tobytes()
        released[key].append(leaves_of(estimator))
    return np.concatenate([model.scores(key, np.array(leaves)) for key, leaves in released.items()])


def guided_scores(case, model, which, runs, bits):
    """Log likelihood ratios of guides, or of guided forests."""
    scores = np.empty(runs)
    with contextlib.ExitStack() as stack:
        if case.fault in GUIDE_FAULTS:
            stack.enter_context(GUIDE_FAULTS[case.fault][0]())
        conversation = stack.enter_context(Conversation(model.tables, which))
        stack.enter_context(mock.patch.object(guide, "N_ROUNDS", case.rounds))
        # Limits of threads for all fits at once: to look for the libraries takes longer than a fit.
        stack.enter_context(threadpool_limits(1, user_api="blas"))
        no_limits = contextlib.nullcontext()
        stack.enter_context(
            mock.patch.object(guide, "threadpool_limits", lambda *args, **options: no_limits)
        )
        if case.part == "whole":
            for i, estimator in enumerate(fit_many(case, model, which, runs, bits)):
                scores[i] = conversation.take() + model.score_of_trees(estimator)
            return scores
        # What follows from the last answer that is seen need not be computed.
        stack.enter_context(mock.patch.object(guide, "plan_splits", lambda *args: None))
        if case.part == "marginals":
            nothing = np.zeros((1, 1)), np.zeros(1)
            stack.enter_context(mock.patch.object(guide, "fit_score", lambda *args: nothing))
        else:
            stack.enter_context(mock.patch.object(guide, "recalibrate", lambda *args: (1.0, 0.0)))
        X, codes = model.tables.get(which)
        noisy = model.noisy
        for i in range(runs):
            guide.fit_guide(
                X,
                codes,
                model.tables.domain,
                case.n_classes,
                noisy.mu_guide,
                bits,
                unit=case.soft,
                records_per_unit=noisy.records_per_unit,
            )
            scores[i] = conversation.take()
    return scores


class Conversation:
    """Listens to a guide: log likelihood ratio of its noisy answers, with the unit over without.

    Both tables are asked what the guide asks one of them.

    Parameters
    ----------
    tables : Tables
    which : {WITHOUT, WITH}
        The table that answers.
    """

    KERNELS = ("class_marginals", "residual_sums", "curvature_sums", "score_histogram")

    def __init__(self, tables, which):
        self._other = tables.get(WITH if which == WITHOUT else WITHOUT)
        self._sign = 1 if which == WITH else -1
        self._score = 0.0
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        for name in self.KERNELS:
            asked = self._ask_both(getattr(guide._guide, name), takes_y=name != "curvature_sums")
            self._stack.enter_context(mock.patch.object(guide._guide, name, asked))
        add_noise = guide.Queries._noisy

        def noisy(queries, sums, sigma, purpose):
            answer = add_noise(queries, sums, sigma, purpose)
            own, other = answer - sums, answer - self._other_sums
            self._score += self._sign * float((other**2 - own**2).sum()) / (2 * sigma**2)
            return answer

        self._stack.enter_context(mock.patch.object(guide.Queries, "_noisy", noisy))
        return self

    def __exit__(self, *error):
        return self._stack.__exit__(*error)

    def _ask_both(self, kernel, takes_y):
        def asked(X, *rest):
            other = (self._other[0], self._other[1], *rest[1:]) if takes_y else (
                self._other[0], *rest
            )  # fmt: skip
            self._other_sums = kernel(*other)
            return kernel(X, *rest)

        return asked

    def take(self):
        """The log likelihood ratio of what was said since the last call."""
        score, self._score = self._score, 0.0
        return score


@functools.cache
def build_model(case):
    """The model of the mechanism as it is used in the case."""
    return (Guided if case.is_guided else Forest)(case, calibration_used(case))


def count_events(case, epsilon, which, runs, entropy=None):
    """Fit one table and count both events.

    Parameters
    ----------
    case : Case
    epsilon : float
        Of the claim.
    which : {WITHOUT, WITH}
    runs : int
    entropy : sequence of int, optional
        Repeatable bits instead of those of the operating system.

    Returns
    -------
    int array
        How often the log likelihood ratio exceeded epsilon ("add"), and how often it was below
        -epsilon ("remove").
    """
    model = build_model(case)
    bits = noise.SystemBits() if entropy is None else GeneratorBits(entropy)
    scores_of = guided_scores if case.is_guided else forest_scores
    scores = scores_of(case, model, which, runs, bits)
    return np.array([(scores > epsilon).sum(), (scores < -epsilon).sum()])


# The audit --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One direction of one case.

    Attributes
    ----------
    case : Case
    direction : {"add", "remove"}
        Whether P is the table with the unit ("add") or the one without.
    runs : int
        Fits of each table.
    epsilon, delta : float
        The claim.
    exact : float
        The largest delta that the event can show, by the model.
    event : pair of float or None
        Exact probabilities of the event under P and Q, by the model, if it knows them.
    hits : pair of int
        How often the event was seen under P and Q.
    lower : float
        Lower confidence bound of delta at epsilon.
    """

    case: Case
    direction: str
    runs: int
    epsilon: float
    delta: float
    exact: float
    event: tuple | None
    hits: tuple
    lower: float

    @property
    def is_violated(self):
        """Whether the claim was seen to be false."""
        return self.lower > self.delta

    @property
    def is_good(self):
        """Whether claims hold without a fault and fail with one."""
        return self.is_violated == bool(self.case.fault)

    @property
    def verdict(self):
        """The same in a word."""
        if self.case.fault:
            return "caught" if self.is_violated else "MISSED"
        return "VIOLATED" if self.is_violated else "holds"


def interval(hits, runs, confidence):
    """Clopper and Pearson's confidence interval of a probability.

    Examples
    --------
    >>> low, high = interval(0, 100, 0.95)
    >>> low, round(high, 4)
    (0.0, 0.0362)
    """
    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, hits, runs - hits + 1)) if hits else 0.0
    high = float(beta.isf(tail, hits + 1, runs - hits)) if hits < runs else 1.0
    return low, high


def lower_delta(hits, runs, epsilon, confidence):
    """Lower confidence bound of P(S) - e^epsilon Q(S).

    Each of the two one-sided bounds may fail with half of 1 - confidence.
    """
    least, _ = interval(hits[0], runs, confidence)
    _, most = interval(hits[1], runs, confidence)
    return max(0.0, least - math.exp(epsilon) * most)


def choose_crowd(case):
    """Fill in the crowd that uses most of the claim, by the model."""
    if case.crowd is not None:
        return case
    epsilon, _ = claim(case)
    noisy = calibration_used(case)
    if case.is_guided:  # where a test is least sure
        return replace(case, crowd=round(noisy.threshold))

    def worst(crowd):
        model = Forest(replace(case, crowd=crowd), noisy)
        return max(model.exact_delta(direction, epsilon) for direction in ("add", "remove"))

    return replace(case, crowd=max(range(1, 60), key=worst))


def choose_directions(case, epsilon):
    """Both, but for a fault only the one in which the model expects more of it."""
    both = ("add", "remove")
    if not case.fault:
        return both
    model = build_model(case)
    return (max(both, key=lambda direction: model.exact_delta(direction, epsilon)),)


def make_row(case, direction, runs, counts, confidence):
    """Evaluate one direction; `counts[which]` are the two counts of `count_events`."""
    epsilon, delta = claim(case)
    model = build_model(case)
    number, order = (0, (WITH, WITHOUT)) if direction == "add" else (1, (WITHOUT, WITH))
    hits = tuple(int(counts[which][number]) for which in order)
    return Row(
        case=case,
        direction=direction,
        runs=runs,
        epsilon=epsilon,
        delta=delta,
        exact=model.exact_delta(direction, epsilon),
        event=model.event(direction, epsilon),
        hits=hits,
        lower=lower_delta(hits, runs, epsilon, confidence),
    )


def audit(cases, runs, n_jobs=1, seed=None, show=None):
    """Audit the cases.

    Parameters
    ----------
    cases : list of Case
    runs : int
        Fits of each of the two tables of a case; at most `FAULT_RUNS` of one with a fault.
    n_jobs : int, default=1
        Processes.
    seed : int, optional
        Repeatable noise, independent in every process; by default the operating system's.
    show : callable, optional
        Called with each `Row` when it is known.

    Returns
    -------
    list of Row
    """
    with workers(n_jobs) as run_all:
        plans = list(run_all(plan, cases))
        n_rows = sum(len(directions) for *_, directions in plans)
        confidence = 1 - (1 - CONFIDENCE) / n_rows
        # All fits of all cases are handed out at once, so that no process waits for another.
        tasks = [
            list_tasks(case, epsilon, number, runs_of(case, runs), seed)
            for number, (case, epsilon, _) in enumerate(plans)
        ]
        events = iter(run_all(run_task, itertools.chain.from_iterable(tasks)))
        rows = []
        for (case, _, directions), tasks_of_case in zip(plans, tasks, strict=True):
            counts = np.zeros((2, 2), dtype=np.int64)
            for task in tasks_of_case:
                counts[task.which] += next(events)
            for direction in directions:
                rows.append(make_row(case, direction, runs_of(case, runs), counts, confidence))
                if show:
                    show(rows[-1])
    return rows


@contextlib.contextmanager
def workers(n_jobs):
    """A `map` over processes; a plain one for one process."""
    n_jobs = effective_n_jobs(n_jobs)
    if n_jobs == 1:
        yield map
        return
    with ProcessPoolExecutor(n_jobs) as pool:
        yield pool.map


def plan(case):
    """What is fixed before the fits: the tables, the claimed epsilon, the directions."""
    case = choose_crowd(case)
    epsilon, _ = claim(case)
    return case, epsilon, choose_directions(case, epsilon)


class Task(NamedTuple):
    """Arguments of `count_events`."""

    case: Case
    epsilon: float
    which: int
    runs: int
    entropy: tuple | None


def run_task(task):
    """Count the events of one task."""
    return count_events(*task)


def runs_of(case, runs):
    """How many of the fits asked for are made."""
    return min(runs, FAULT_RUNS) if case.fault else runs


def list_tasks(case, epsilon, number, runs, seed):
    """Fits of both tables in chunks."""
    return [
        Task(
            case,
            epsilon,
            which,
            min(CHUNK, runs - start),
            None if seed is None else (seed, number, which, start),
        )
        for which in (WITHOUT, WITH)
        for start in range(0, runs, CHUNK)
    ]


HEADER = (
    f"{'case':18} {'part':9} {'mode':34} {'fault':19} {'':6} {'runs':>7} {'epsilon':>7} "
    f"{'delta':>8} {'exact':>8} {'bound':>8}  verdict"
)


def show_row(row):
    """Print one line of the table."""
    case = row.case
    print(
        f"{case.name:18} {case.part:9} {case.mode:34} {case.fault:19} {row.direction:6} "
        f"{row.runs:7d} {row.epsilon:7.3g} {row.delta:8.5f} {row.exact:8.5f} {row.lower:8.5f}  "
        f"{row.verdict}",
        flush=True,
    )


def main(arguments=None):
    """Run the audit; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=RUNS, help="fits of each table of a case")
    parser.add_argument("--short", action="store_true", help=f"{SHORT_RUNS} fits instead")
    parser.add_argument("--n-jobs", type=int, default=-1, help="processes")
    parser.add_argument("--seed", type=int, help="repeatable noise, not the operating system's")
    options = parser.parse_args(arguments)
    runs = SHORT_RUNS if options.short else options.runs
    print("delta: claimed; exact: of this pair by the model; bound: lower confidence bound of")
    print(f"delta, {CONFIDENCE:.1%} for all rows together; runs: fits of each of the two tables\n")
    print(HEADER, flush=True)
    start = time.perf_counter()
    rows = audit(CASES + FAULTY_CASES, runs, options.n_jobs, options.seed, show_row)
    good = all(row.is_good for row in rows)
    print(f"\n{time.perf_counter() - start:.0f} s, " + ("as it should be" if good else "FAILED"))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
