"""The estimators: check, calibrate, grow, add noise, hold the result."""

import functools
import os
import threading
import time
import warnings
from collections.abc import Mapping
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
from joblib import effective_n_jobs
from joblib.parallel import get_active_backend
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from lumberjack import _forest, _predict, _tree, accounting, guide, ledger, noise, privacy
from lumberjack.domain import Domain, PrivacyLeakWarning

# Shares of the budget, chosen on data that no reported result is measured on.
DEFAULT_SHARES = {
    "guided": {"guide": 0.5, "structure": 0.2, "leaves": 0.3},
    "random": {"structure": 0.75, "leaves": 0.25},
}

# Weight of the guide's score against the trees in the log-probabilities of a guided forest.
SCORE_VOTE = 0.2
SMALLEST_PROBABILITY = 1e-4  # of a class before the two are combined

# The samplers' error analysis (accounting.finite_precision) is for trees up to this deep.
MAX_DEPTH = 1023

# Records are numbered by 32 bits in the kernels.
MAX_RECORDS = 2**31 - 1

# Below this many rows a thread, starting threads costs more than it gains; in a fit, below this
# many records times trees.
ROWS_PER_THREAD = 2048
MAX_THREADS = 1024  # beyond any machine, and fewer than kill a process
RECORDS_PER_THREAD = 2**14


SEEDED = (
    "random_state is given: the noise can be recomputed by anyone who knows it, so this model must "
    "not be published; use random_state=None for a release"
)


class Tree(NamedTuple):
    """The arrays of one released tree, one entry a node, nodes in depth-first order.

    Attributes
    ----------
    children_left, children_right : int32 arrays
        Index of the children, -1 in a leaf.
    feature : int32 array
        Feature that is split, -1 in a leaf.
    threshold : float32 array
        A numeric value ``x <= threshold`` goes left; for a categorical split the code of the
        category that goes left (its position in ``domain_.categories``); 0 in a leaf.
    is_categorical, missing_go_to_left : bool arrays
    leaf : int32 array
        Row of `votes` that belongs to the node, -1 in a split node.
    votes : float64 array of shape (n_leaves, n_classes)
        What each leaf adds to the classes when it votes.
    """

    children_left: np.ndarray
    children_right: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    is_categorical: np.ndarray
    missing_go_to_left: np.ndarray
    leaf: np.ndarray
    votes: np.ndarray


class BaseLumberjack(BaseEstimator):
    """What classifier and regressor share: check, calibrate, grow, release, traverse."""

    leaf = "counts"  # overridden by a parameter of the classifier
    soft_labels = False  # whether a record is split between two classes

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.non_deterministic = self.random_state is None
        return tags

    def _fit(self, X, y, n_classes, domain, encode_target):
        """Grow a private forest and set all fitted attributes.

        Parameters
        ----------
        X, y
            The table, as given.
        n_classes : int
            2 for a regression.
        domain : Domain
        encode_target : callable
            From the unit of soft labels to the encoded target.
        """
        calibration = self._calibrate(domain, n_classes)
        split_seed, bits = noise.derive_keys(self.random_state)
        report = privacy.make_report(calibration, domain.inferred, bits)
        # Before the records are read, and not given back whatever happens: what is left then says
        # nothing about them.
        ledger.charge_fit(self.ledger, report, type(self).__name__)
        unit = self._label_unit(calibration, domain)
        spare = guide.score_count(n_classes) if self.splitter == "guided" else 0
        encoded = domain.encode(X, caller=type(self).__name__, spare=spare)
        target = encode_target(unit)
        if encoded.shape[1] > MAX_RECORDS:
            raise ValueError("X has too many rows: at most 2^31 - 1 can be fitted")
        if bits.seeded:
            warnings.warn(SEEDED, PrivacyLeakWarning, stacklevel=3)
        if self.verbose:
            print(report)
        # Between here and the noise everything is private. Attributes are set only at the end, so
        # that a fit that fails or is interrupted leaves nothing half done.
        found, grown = self._grow(
            encoded, target, n_classes, unit, domain, calibration, split_seed, bits
        )
        nodes, tree_offsets, leaf_offsets, leaf_counts, leaf_paths = grown
        released, votes, prior = release_leaves(leaf_counts, leaf_paths, calibration, bits, unit)
        validate_data(self, X, y, skip_check_array=True)
        fitted = {
            "domain_": domain,
            "privacy_": report,
            "guide_": found,
            "nodes_": nodes,
            "tree_offsets_": tree_offsets,
            "leaf_offsets_": leaf_offsets,
            "leaf_votes_": votes,
            "class_prior_": prior,
        }
        if self.leaf == "counts":
            fitted["leaf_counts_"] = released
        self.__dict__.pop("leaf_counts_", None)
        self.__dict__.update(fitted)
        if self.verbose:
            print(f"released {self.n_estimators} trees with {len(votes)} leaves")
        return self

    def _check_parameters(self):
        check_integer("n_estimators", self.n_estimators, 1)
        check_integer("max_depth", self.max_depth, 1, MAX_DEPTH)
        check_integer("records_per_unit", self.records_per_unit, 1)
        check_choice("splitter", self.splitter, ("guided", "random"))
        check_choice("leaf", self.leaf, ("counts", "majority"))
        check_choice("accounting", self.accounting, ("joint", "split"))
        check_real("epsilon", self.epsilon)
        check_real("delta", self.delta)
        if self.threshold is not None:
            check_real("threshold", self.threshold)
        count_threads(self.n_jobs)
        resolve_shares(self.budget_shares, self.splitter, self.accounting)

    def _calibrate(self, domain, n_classes):
        return accounting.calibrate(
            self.epsilon,
            self.delta,
            n_estimators=self.n_estimators,
            max_depth=self.max_depth,
            leaf=self.leaf,
            accounting=self.accounting,
            budget_shares=resolve_shares(self.budget_shares, self.splitter, self.accounting),
            records_per_unit=self.records_per_unit,
            threshold=self.threshold,
            n_features=len(domain.feature_names),
            n_classes=n_classes,
            soft_labels=self.soft_labels,
        )

    def _label_unit(self, calibration, domain):
        """What a record adds to counts: 1, as labels are classes."""
        return 1

    def _grow(self, encoded, target, n_classes, unit, domain, calibration, split_seed, bits):
        """Fit the guide, if any, and grow; the leaf counts that come back are exact and private."""
        thresholds, probabilities = noise.test_table(
            calibration.sigma_tests,
            calibration.threshold,
            calibration.slack,
            calibration.records_per_unit,
            encoded.shape[1],
        )
        work_size = encoded.shape[1] * self.n_estimators
        n_threads = min(count_threads(self.n_jobs), 1 + work_size // RECORDS_PER_THREAD)
        stop = np.zeros(1, dtype=np.int32)
        progress = Progress(self.n_estimators) if self.verbose else None

        def work():
            found = None
            plan = _tree.SplitPlan(domain.n_categories, domain.lower, domain.upper)
            if self.splitter == "guided":
                found = guide.fit_guide(
                    encoded,
                    target,
                    domain,
                    n_classes,
                    calibration.mu_guide,
                    bits,
                    unit=unit,
                    records_per_unit=calibration.records_per_unit,
                    n_threads=n_threads,
                    stop=stop,
                )
                found.score.fill_columns(encoded, n_threads)
                plan = found.split_plan(domain)
            return found, _forest.grow_forest(
                encoded,
                target,
                n_classes,
                plan,
                self.max_depth,
                thresholds,
                probabilities,
                split_seed,
                self.n_estimators,
                bits,
                unit=unit,
                n_threads=min(n_threads, self.n_estimators),
                stop=stop,
                done=progress and progress.done,
            )

        return run_interruptibly(work, stop, progress)

    def _probabilities(self, X):
        """Class probabilities by the vote of the leaves, and of the score if there is one."""

        def work(n_threads):
            rows, of_score = self._encode_rows(X, n_threads)
            votes = _predict.sum_votes(
                rows,
                self.nodes_,
                self.tree_offsets_,
                self.leaf_offsets_,
                self.leaf_votes_,
                n_threads,
            )
            return votes, of_score

        votes, of_score = self._predict_by_threads(X, work)
        total = functools.reduce(np.add, votes.T)[:, None]  # sum(axis=1) takes five times as long
        silent = total[:, 0] == 0
        votes[silent] = self.class_prior_
        total[silent] = 1
        return votes / total if of_score is None else combine(votes / total, of_score)

    def __getstate__(self):
        state = super().__getstate__()
        charged = ledger.ledger_to_pickle(self.ledger, fitted=hasattr(self, "privacy_"))
        return {**state, "ledger": charged}

    def __setstate__(self, state):
        charged = ledger.ledger_from_pickle(state.get("ledger"))
        super().__setstate__({**state, "ledger": charged})

    def apply(self, X):
        """Index of the leaf that each row falls into, in each tree.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)

        Returns
        -------
        int32 ndarray of shape (n_samples, n_estimators)
            Node indices as in `trees_`.
        """

        def work(n_threads):
            rows, _ = self._encode_rows(X, n_threads)
            return _predict.apply(rows, self.nodes_, self.tree_offsets_, n_threads)

        return self._predict_by_threads(X, work)

    def decision_path(self, X):
        """The nodes that each row passes.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)

        Returns
        -------
        indicator : CSR matrix of shape (n_samples, n_nodes)
            One where a row passes a node, the trees side by side.
        n_nodes_ptr : ndarray of shape (n_estimators + 1,)
            ``indicator[:, n_nodes_ptr[t]:n_nodes_ptr[t + 1]]`` is tree t.
        """
        leaves = self.apply(X)
        indicators = [
            sparse.csr_array(path_matrix(tree))[leaves[:, t]] for t, tree in enumerate(self.trees_)
        ]
        return sparse.csr_matrix(sparse.hstack(indicators)), self.tree_offsets_.copy()

    @property
    def trees_(self):
        """The released trees, a list of `Tree`."""
        check_is_fitted(self)
        return [
            read_tree(
                self.nodes_[self.tree_offsets_[t] : self.tree_offsets_[t + 1]],
                self.leaf_votes_[self.leaf_offsets_[t] : self.leaf_offsets_[t + 1]],
            )
            for t in range(len(self.tree_offsets_) - 1)
        ]

    def _encode_rows(self, X, n_threads=1):
        """Encoded rows with their score columns, and the score's probabilities (or None).

        The rows lie in memory by columns, as all kernels read them fastest.
        """
        score = None if self.guide_ is None else self.guide_.score
        encoded = self.domain_.encode(
            X,
            caller=type(self).__name__,
            spare=0 if score is None else score.n_scores,
            n_threads=n_threads,
        )
        if score is None:
            return encoded.T, None
        probabilities = np.empty((encoded.shape[1], score.n_scores))
        score.fill_columns(encoded, n_threads, probabilities)
        return encoded.T, guide.class_probabilities(probabilities)

    def _predict_by_threads(self, X, work):
        """Call ``work(n_threads)`` with as many threads as pay off for a table."""
        check_is_fitted(self)
        n_rows = X.shape[0] if getattr(X, "shape", ()) else 0
        n_threads = max(1, min(count_threads(self.n_jobs), n_rows // ROWS_PER_THREAD))
        return run_threads(lambda: work(n_threads), n_threads)


class LumberjackClassifier(ClassifierMixin, BaseLumberjack):
    """A differentially private random forest for classification.

    Grows random trees and prunes them by a private heavy-hitter search, so that only well-filled
    nodes are split; each leaf then releases noisy class counts or a noisy majority. What the
    fitted estimator holds is (epsilon, delta)-differentially private under adding or removing one
    unit, given that bounds, categories and classes were declared without looking at the data.

    Parameters
    ----------
    n_estimators : int, default=20
        Number of trees.
    epsilon : float, default=1.0
        Privacy parameter. Infinity means no noise and no privacy.
    delta : float, default=1e-6
        Privacy parameter, well below one over the number of records.
    max_depth : int, default=31
        Number of levels of nodes that may be split. The privacy cost grows with
        ``1 + floor(log2(max_depth))`` only, so that values of the form 2^j - 1 waste nothing.
    splitter : {"guided", "random"}, default="guided"
        How splits are drawn. "guided": likelier where noisy marginals promise most, with a
        privately fitted additive score as one more feature, which also joins the vote. "random":
        independent of the data, features equally likely, thresholds uniform, as in the paper.
    leaf : {"counts", "majority"}, default="counts"
        What leaves release: noisy class counts, or one class by the exponential mechanism.
    accounting : {"joint", "split"}, default="joint"
        One budget shared by structure and leaves, or basic composition of the two.
    budget_shares : dict, default=None
        Shares of "guide", "structure" and "leaves", summing to 1; 0.5, 0.2 and 0.3 by default,
        and 0.75 and 0.25 for structure and leaves of random splits.
    threshold : float, default=None
        Records that a node needs to be split, tau. By default the least that privacy allows. With
        an infinite epsilon it must be given.
    records_per_unit : int, default=1
        Up to how many records belong to one protected unit, such as a person.
    bounds : pair, pair of arrays, dict or "infer", default=None
        Public bounds of the numeric columns.
    categories : dict or "infer", default=None
        Public categories of the categorical columns. A pandas categorical column declares its own.
    classes : array-like or "infer", default=None
        Public class labels.
    n_jobs : int, default=None
        Threads, as in scikit-learn; the result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        None draws all noise from the operating system. Anything else makes the fit reproducible
        and voids the guarantee against anyone who knows it.
    ledger : PrivacyLedger or tuple of them, default=None
        Accounts that the fit is charged to before it reads a record, beside those of every active
        ``with PrivacyLedger(...)``. It refuses a fit that would overdraw.
    verbose : int, default=0
        Print what is public, the calibration and the size of the released forest, and show how
        many trees are done and about how long the others take.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    domain_ : Domain
        The declared (or inferred) domain.
    privacy_ : privacy.PrivacyReport
        The guarantee; ``print(model.privacy_)`` reads well.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when the columns have names.
    guide_ : guide.Guide or None
        Weights and densities of the splits and the additive score (``splitter="guided"``). The
        score columns are features ``n_features_in_`` and up of the trees.
    nodes_ : structured array
        Nodes of all trees: feature, threshold, right, flags. See `trees_` for the plain arrays.
    tree_offsets_, leaf_offsets_ : int64 arrays of shape (n_estimators + 1,)
        Where the nodes and the leaves of each tree start.
    leaf_counts_ : int64 array of shape (n_leaves, n_classes)
        Noisy class counts (``leaf="counts"``).
    leaf_votes_ : float64 array of shape (n_leaves, n_classes)
        What each leaf adds to the classes.
    class_prior_ : float64 array of shape (n_classes,)
        Answer where no leaf has a vote.

    Examples
    --------
    >>> from lumberjack import LumberjackClassifier
    >>> from lumberjack.datasets import make_moons_and_blob
    >>> X, y, bounds = make_moons_and_blob()
    >>> model = LumberjackClassifier(
    ...     epsilon=2, delta=1e-6, bounds=bounds, classes=["red", "blue", "green"]
    ... ).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    >>> print(model.privacy_)
    (2, 1e-06)-differential privacy, add or remove one unit
    ...
    """

    def __init__(
        self,
        n_estimators=20,
        *,
        epsilon=1.0,
        delta=1e-6,
        max_depth=31,
        splitter="guided",
        leaf="counts",
        accounting="joint",
        budget_shares=None,
        threshold=None,
        records_per_unit=1,
        bounds=None,
        categories=None,
        classes=None,
        n_jobs=None,
        random_state=None,
        ledger=None,
        verbose=0,
    ):
        self.n_estimators = n_estimators
        self.epsilon = epsilon
        self.delta = delta
        self.max_depth = max_depth
        self.splitter = splitter
        self.leaf = leaf
        self.accounting = accounting
        self.budget_shares = budget_shares
        self.threshold = threshold
        self.records_per_unit = records_per_unit
        self.bounds = bounds
        self.categories = categories
        self.classes = classes
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.ledger = ledger
        self.verbose = verbose

    def fit(self, X, y):
        """Grow a private forest.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            A parameter or a declaration is wrong or missing, or the table is: infinite values,
            undeclared labels, no rows. These messages name parameters and columns, never a value;
            they go to whoever holds the data and lie outside the guarantee.
        PrivacyBudgetError
            A ledger has too little left for this fit (a ValueError, too).
        """
        self._check_parameters()
        domain = Domain.declare(
            X, y, bounds=self.bounds, categories=self.categories, classes=self.classes
        )
        self._fit(X, y, len(domain.classes), domain, lambda unit: domain.encode_classes(y))
        self.classes_ = domain.classes
        return self

    def predict_proba(self, X):
        """Class probabilities: the mean of the leaves' votes, joined with the score's.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            Values outside the bounds, unknown categories and missing values are routed, never an
            error.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        return self._probabilities(X)

    def predict(self, X):
        """The most probable class.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        probabilities = self._probabilities(X)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def score(self, X, y, sample_weight=None):
        """Accuracy, an exact number about the records that are scored.

        Inside a ledger it is recorded as outside the guarantee, with a `PrivacyLeakWarning`; see
        `make_private_scorer` for a score that is charged instead.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        float
        """
        if ledger.record_exact_score(self.ledger, type(self).__name__):
            warnings.warn(ledger.EXACT_SCORE, PrivacyLeakWarning, stacklevel=2)
        return super().score(X, y, sample_weight)


class LumberjackRegressor(RegressorMixin, BaseLumberjack):
    """A differentially private random forest for regression.

    Grows random trees and prunes them by a private heavy-hitter search, so that only well-filled
    nodes are split. The target, clipped to its public bounds and scaled to y in [0, 1], counts as y
    of one class and 1 - y of another, so that leaves release noisy sums of both. What the fitted
    estimator holds is (epsilon, delta)-differentially private under adding or removing one unit,
    given that all bounds and categories were declared without looking at the data.

    Parameters
    ----------
    n_estimators : int, default=20
        Number of trees.
    epsilon : float, default=1.0
        Privacy parameter. Infinity means no noise and no privacy.
    delta : float, default=1e-6
        Privacy parameter, well below one over the number of records.
    max_depth : int, default=31
        Number of levels of nodes that may be split. The privacy cost grows with
        ``1 + floor(log2(max_depth))`` only, so that values of the form 2^j - 1 waste nothing.
    splitter : {"guided", "random"}, default="guided"
        How splits are drawn. "guided": likelier where noisy marginals promise most, with a
        privately fitted additive score as one more feature, which also joins the vote. "random":
        independent of the data, features equally likely, thresholds uniform, as in the paper.
    accounting : {"joint", "split"}, default="joint"
        One budget shared by structure and leaves, or basic composition of the two.
    budget_shares : dict, default=None
        Shares of "guide", "structure" and "leaves", summing to 1; 0.5, 0.2 and 0.3 by default,
        and 0.75 and 0.25 for structure and leaves of random splits.
    threshold : float, default=None
        Records that a node needs to be split, tau. By default the least that privacy allows. With
        an infinite epsilon it must be given.
    records_per_unit : int, default=1
        Up to how many records belong to one protected unit, such as a person.
    bounds : pair, pair of arrays, dict or "infer", default=None
        Public bounds of the numeric columns.
    categories : dict or "infer", default=None
        Public categories of the categorical columns. A pandas categorical column declares its own.
    target_bounds : pair or "infer", default=None
        Public bounds of the target.
    n_jobs : int, default=None
        Threads, as in scikit-learn; the result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        None draws all noise from the operating system. Anything else makes the fit reproducible
        and voids the guarantee against anyone who knows it.
    ledger : PrivacyLedger or tuple of them, default=None
        Accounts that the fit is charged to before it reads a record, beside those of every active
        ``with PrivacyLedger(...)``. It refuses a fit that would overdraw.
    verbose : int, default=0
        Print what is public, the calibration and the size of the released forest, and show how
        many trees are done and about how long the others take.

    Attributes
    ----------
    domain_ : Domain
        The declared (or inferred) domain.
    privacy_ : privacy.PrivacyReport
        The guarantee; ``print(model.privacy_)`` reads well.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when the columns have names.
    guide_ : guide.Guide or None
        Weights and densities of the splits and the additive score (``splitter="guided"``). The
        score columns are features ``n_features_in_`` and up of the trees.
    nodes_ : structured array
        Nodes of all trees: feature, threshold, right, flags. See `trees_` for the plain arrays.
    tree_offsets_, leaf_offsets_ : int64 arrays of shape (n_estimators + 1,)
        Where the nodes and the leaves of each tree start.
    leaf_counts_ : float64 array of shape (n_leaves, 2)
        Noisy sums of 1 - y and y, the target scaled to [0, 1].
    leaf_votes_ : float64 array of shape (n_leaves, 2)
        What each leaf adds to both.
    class_prior_ : float64 array of shape (2,)
        Answer where no leaf has a vote.

    Examples
    --------
    >>> import numpy as np
    >>> from lumberjack import LumberjackRegressor
    >>> hours = np.random.default_rng(0).uniform(0, 24, size=(5000, 1))
    >>> demand = 50 - 40 * np.cos(hours[:, 0] / 12 * np.pi)
    >>> model = LumberjackRegressor(bounds=(0, 24), target_bounds=(0, 100)).fit(hours, demand)
    >>> model.score(hours, demand) > 0.8
    True
    """

    soft_labels = True

    def __init__(
        self,
        n_estimators=20,
        *,
        epsilon=1.0,
        delta=1e-6,
        max_depth=31,
        splitter="guided",
        accounting="joint",
        budget_shares=None,
        threshold=None,
        records_per_unit=1,
        bounds=None,
        categories=None,
        target_bounds=None,
        n_jobs=None,
        random_state=None,
        ledger=None,
        verbose=0,
    ):
        self.n_estimators = n_estimators
        self.epsilon = epsilon
        self.delta = delta
        self.max_depth = max_depth
        self.splitter = splitter
        self.accounting = accounting
        self.budget_shares = budget_shares
        self.threshold = threshold
        self.records_per_unit = records_per_unit
        self.bounds = bounds
        self.categories = categories
        self.target_bounds = target_bounds
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.ledger = ledger
        self.verbose = verbose

    def fit(self, X, y):
        """Grow a private forest.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Values outside `target_bounds` are clipped.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            As in `LumberjackClassifier.fit`.
        PrivacyBudgetError
            A ledger has too little left for this fit (a ValueError, too).
        """
        self._check_parameters()
        domain = Domain.declare(
            X,
            y,
            bounds=self.bounds,
            categories=self.categories,
            target_bounds=self.target_bounds,
            regression=True,
        )
        return self._fit(X, y, 2, domain, lambda unit: domain.encode_target(y, unit))

    def _label_unit(self, calibration, domain):
        """Steps of the scaled target in 1: as fine as the samplers allow (`guide.grid_steps`)."""
        sigma = calibration.sigma_leaves
        if self.splitter == "guided":
            sigma = max(sigma, guide.largest_sigma(calibration, domain.n_features))
        return guide.grid_steps(sigma)

    def predict(self, X):
        """The expected target.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)

        Returns
        -------
        float64 ndarray of shape (n_samples,)
        """
        share = self._probabilities(X)[:, 1]
        low, high = self.domain_.target_bounds
        return low + (high - low) * share

    def score(self, X, y, sample_weight=None):
        """R^2, an exact number about the records that are scored.

        Inside a ledger it is recorded as outside the guarantee, with a `PrivacyLeakWarning`; see
        `make_private_scorer` for a score that is charged instead.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        float
        """
        if ledger.record_exact_score(self.ledger, type(self).__name__):
            warnings.warn(ledger.EXACT_SCORE, PrivacyLeakWarning, stacklevel=2)
        return super().score(X, y, sample_weight)


# Leaves ---------------------------------------------------------------------------------------


def release_leaves(leaf_counts, leaf_paths, calibration, bits, unit=1):
    """Make the private leaf counts public: noise, votes and the class prior.

    Every cell of every leaf gets noise, empty ones too.

    Parameters
    ----------
    leaf_counts : int64 array of shape (n_leaves, n_classes)
    leaf_paths : uint64 array of shape (n_leaves,)
    calibration : accounting.Calibration
    bits : noise.SystemBits or noise.SeededBits
    unit : int
        What one record adds to the counts.

    Returns
    -------
    released : array
        Noisy counts (n_leaves, n_classes) in records, or the chosen classes (n_leaves,).
    votes : float64 array of shape (n_leaves, n_classes)
    prior : float64 array of shape (n_classes,)
    """
    n_classes = leaf_counts.shape[1]
    if calibration.leaf == "majority":
        words = bits.draw("leaf classes", leaf_paths, 1)[:, 0]
        released = noise.exponential_choice(leaf_counts, calibration.epsilon_leaf, words)
        return released, np.eye(n_classes)[released], np.full(n_classes, 1 / n_classes)
    words = bits.draw("leaf counts", leaf_paths, n_classes)
    released = leaf_counts + noise.rounded_gaussian(words, unit * calibration.sigma_leaves)
    if unit > 1:
        released = released / unit
    return released, *vote(released, calibration.sigma_leaves)


def vote(noisy_counts, sigma):
    """Votes of leaves and the class prior from noisy counts; post-processing.

    A leaf votes for its clipped, normalised counts with weight n/(n + sigma), n its clipped
    total: a leaf that is mostly noise speaks softly.

    Parameters
    ----------
    noisy_counts : int64 array of shape (n_leaves, n_classes)
    sigma : float
        Standard deviation of the noise.

    Returns
    -------
    votes : float64 array of shape (n_leaves, n_classes)
    prior : float64 array of shape (n_classes,)

    Examples
    --------
    >>> votes, prior = vote(np.array([[60, 20], [-5, 20]]), 20.0)
    >>> votes
    array([[0.6, 0.2],
           [0. , 0.5]])
    >>> prior
    array([0.6, 0.4])
    """
    clipped = np.maximum(noisy_counts, 0).astype(np.float64)
    totals = clipped.sum(axis=1, keepdims=True)
    votes = np.divide(clipped, totals + sigma, out=np.zeros_like(clipped), where=totals > 0)
    by_class = clipped.sum(axis=0)
    if by_class.sum() > 0:
        return votes, by_class / by_class.sum()
    return votes, np.full(len(by_class), 1 / len(by_class))


def combine(forest, score):
    """Geometric mean of the probabilities of trees and score, weighted by `SCORE_VOTE`.

    The trees know interactions, the score has less noise; the mean of their log-odds has a lower
    log loss than either.

    Parameters
    ----------
    forest, score : float64 arrays of shape (n_rows, n_classes)

    Returns
    -------
    float64 array of shape (n_rows, n_classes)
    """
    log_forest = np.log(np.maximum(forest, SMALLEST_PROBABILITY))
    log_score = np.log(np.maximum(score, SMALLEST_PROBABILITY))
    product = np.exp((1 - SCORE_VOTE) * log_forest + SCORE_VOTE * log_score)
    return product / functools.reduce(np.add, product.T)[:, None]


# Reading trees ----------------------------------------------------------------------------------


def read_tree(nodes, votes):
    """The plain arrays of one tree from its packed nodes."""
    is_leaf = nodes["feature"] < 0
    positions = np.arange(len(nodes), dtype=np.int32)
    return Tree(
        children_left=np.where(is_leaf, -1, positions + 1).astype(np.int32),
        children_right=np.where(is_leaf, -1, nodes["right"]).astype(np.int32),
        feature=nodes["feature"].copy(),
        threshold=nodes["threshold"].copy(),
        is_categorical=(nodes["flags"] & _tree.CATEGORICAL_FLAG) != 0,
        missing_go_to_left=(nodes["flags"] & _tree.MISSING_LEFT_FLAG) != 0,
        leaf=np.where(is_leaf, nodes["right"], -1).astype(np.int32),
        votes=votes,
    )


def path_matrix(tree):
    """Sparse matrix whose row i marks node i and its ancestors."""
    n_nodes = len(tree.feature)
    parents = np.full(n_nodes, -1)
    for children in (tree.children_left, tree.children_right):
        split = np.flatnonzero(children >= 0)
        parents[children[split]] = split
    rows, columns, current = [], [], np.arange(n_nodes)
    nodes = np.arange(n_nodes)
    while len(nodes):
        rows.append(nodes)
        columns.append(current)
        current = parents[current]
        nodes, current = nodes[current >= 0], current[current >= 0]
    rows, columns = np.concatenate(rows), np.concatenate(columns)
    ones = np.ones(len(rows), dtype=np.int64)
    return sparse.csr_array((ones, (rows, columns)), shape=(n_nodes, n_nodes))


# Threads ----------------------------------------------------------------------------------------


def count_threads(n_jobs):
    """Threads that `n_jobs` asks for, as joblib counts cores: within affinity and cgroup limits.

    A negative number asks for the cores that are not given away: at most OMP_NUM_THREADS, which
    joblib sets in its worker processes, and one in its worker threads.

    Parameters
    ----------
    n_jobs : int or None

    Returns
    -------
    int
    """
    if n_jobs is not None:
        check_integer("n_jobs", n_jobs)
    if n_jobs == 0:
        raise ValueError("n_jobs must not be 0: give a number of threads, or -1 for all cores")
    n_threads = min(effective_n_jobs(n_jobs), MAX_THREADS)
    if n_jobs is None or n_jobs > 0:
        return n_threads
    backend, _ = get_active_backend()
    if backend.nesting_level and backend.supports_sharedmem:
        return 1
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return min(n_threads, int(limit)) if limit.isdigit() and int(limit) else n_threads


class Progress:
    """Trees done and an estimate of the time left, for the curator who waits.

    By tqdm, if it is installed, or in plain lines. Nothing else of a running fit is shown, as
    everything else is private; how long it takes depends on the data, too, and is no secret to
    who can see this.

    Parameters
    ----------
    n_trees : int

    Attributes
    ----------
    done : int8 array of shape (n_trees,)
        Set to 1, tree by tree, by the kernel.
    """

    interval = 0.2  # seconds between looks
    line_interval = 10.0  # seconds between plain lines

    def __init__(self, n_trees):
        self.done = np.zeros(n_trees, dtype=np.int8)
        self.started = self.printed = time.monotonic()
        try:
            from tqdm import tqdm
        except ImportError:
            self.bar = None
        else:
            self.bar = tqdm(total=n_trees, desc="lumberjack", unit="tree")

    def show(self):
        """Show how far it is."""
        n_done = int(self.done.sum())
        now = time.monotonic()
        if self.bar is not None:
            self.bar.update(n_done - self.bar.n)
        elif n_done and now - self.printed >= self.line_interval:
            left = (now - self.started) / n_done * (len(self.done) - n_done)
            print(f"{n_done} of {len(self.done)} trees, about {left:.0f} s left", flush=True)
            self.printed = now

    def close(self):
        """Show the end."""
        self.show()
        if self.bar is not None:
            self.bar.close()


def run_interruptibly(function, stop, progress=None):
    """Run a kernel in a thread of its own; Ctrl-C sets `stop` and is raised when it gave up.

    The OpenMP pool then belongs to that thread and ends with it, so that a process forked later
    from this one can use OpenMP, too.
    """
    result, error = [], []
    finished = threading.Event()  # Thread.join, once interrupted, does not wait again

    def work():
        try:
            result.append(function())
        except BaseException as raised:
            error.append(raised)
        finally:
            finished.set()

    thread = threading.Thread(target=work, name="lumberjack")
    thread.start()
    try:
        while not finished.wait(progress and progress.interval):
            progress.show()
    except KeyboardInterrupt:
        stop[0] = 1
        finished.wait()
        raise
    finally:
        thread.join()
        if progress is not None:
            progress.close()
    if error:
        raise error[0]
    return result[0]


def run_threads(function, n_threads):
    """Run a kernel that uses `n_threads` threads; see `run_interruptibly` for the reason."""
    if n_threads == 1:
        return function()
    return run_interruptibly(function, np.zeros(1, dtype=np.int32))


# Parameters ---------------------------------------------------------------------------------------


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
