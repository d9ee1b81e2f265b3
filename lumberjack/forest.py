"""The estimators: check, calibrate, grow, add noise, hold the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.validation import check_is_fitted, validate_data

from lumberjack import _forest, _predict, _tree, accounting, guide, ledger, noise, privacy
from lumberjack.domain import Domain, PrivacyLeakWarning, as_domain, read_labels, warn_user
from lumberjack.leaves import (
    SCORE_VOTE,
    SMALLEST_PROBABILITY,
    balanced_weights,
    release_leaves,
    reweight,
)
from lumberjack.parameters import (
    MAX_DEPTH,
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
from lumberjack.threads import Progress, count_threads, run_interruptibly, run_threads
from lumberjack.trees import Tree, path_matrix, read_tree

if TYPE_CHECKING:
    from typing_extensions import Self

    from lumberjack.accounting import Calibration
    from lumberjack.ledger import Ledgers
    from lumberjack.noise import SeededBits, SystemBits

T = TypeVar("T")

# Records are numbered by 32 bits in the kernels.
MAX_RECORDS = 2**31 - 1

LARGE_EPSILON = 20  # scikit-learn's checks of accuracy, with 300 records or less, need as much

# Below this many rows a thread, starting threads costs more than it gains; in a fit, below this
# many records times trees.
ROWS_PER_THREAD = 2048
RECORDS_PER_THREAD = 2**14

SEEDED = (
    "random_state is given: the noise can be recomputed by anyone who knows it, so this model must "
    "not be published; use random_state=None for a release"
)


class BaseLumberjack(ledger.LedgerPickling, BaseEstimator):
    """What classifier and regressor share: check, calibrate, grow, release, traverse."""

    leaf = "counts"  # overridden by a parameter of the classifier
    soft_labels = False  # whether a record is split between two classes

    # Set by `fit`.
    domain_: Domain
    privacy_: privacy.PrivacyReport
    guide_: Any  # guide.Guide, None with random splits
    nodes_: np.ndarray
    tree_offsets_: np.ndarray
    leaf_offsets_: np.ndarray
    leaf_counts_: np.ndarray
    leaf_votes_: np.ndarray
    class_prior_: np.ndarray
    n_features_in_: int
    feature_names_in_: np.ndarray

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.sparse = True
        return tags

    @property
    def _poor_score(self) -> bool:
        """The tag of this name: a few hundred records are too few at this epsilon."""
        return isinstance(self.epsilon, Real) and self.epsilon < LARGE_EPSILON

    def set_params(self, **params: Any) -> Self:
        """Set parameters.

        Parameters
        ----------
        **params
            As in the constructor.

        Returns
        -------
        self
        """
        for name in params:
            if name in REFUSED:
                raise ValueError(refusal(name))
        return super().set_params(**params)

    def _declare(self, X: Any, y: Any, **target: Any) -> Domain:
        """The domain of a table, declared by `domain` or by the other parameters."""
        columns = {
            "bounds": self.bounds,
            "categories": self.categories,
            "categorical_features": self.categorical_features,
        }
        if self.domain is None:
            return Domain.declare(X, y, **columns, **target)
        given = [
            name
            for name, value in columns.items()
            if not (value is None or isinstance(value, str) and value == "from_dtype")
        ]
        if given:
            raise ValueError(f"domain declares all columns; leave out {' and '.join(given)}")
        return as_domain(self.domain).match(X, y, **target)

    def _fit(
        self,
        X: Any,
        n_classes: int,
        domain: Domain,
        encode_target: Callable[[int], np.ndarray],
    ) -> dict[str, Any]:
        """Grow a private forest.

        Parameters
        ----------
        X
            The table, as given.
        n_classes : int
            2 for a regression.
        domain : Domain
        encode_target : callable
            From the unit of soft labels to the encoded target.

        Returns
        -------
        dict
            The fitted attributes.
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
            warn_user(SEEDED, PrivacyLeakWarning)
        if self.verbose:
            print(report)
        # Between here and the noise everything is private. Attributes are set only at the end, so
        # that a fit that fails or is interrupted leaves nothing half done.
        found, grown = self._grow(
            encoded, target, n_classes, unit, domain, calibration, split_seed, bits
        )
        nodes, tree_offsets, leaf_offsets, leaf_counts, leaf_paths = grown
        released, votes, prior = release_leaves(leaf_counts, leaf_paths, calibration, bits, unit)
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
        return fitted

    def _hold(self, X: Any, y: Any, fitted: dict[str, Any]) -> Self:
        """Set all fitted attributes, and only then say so."""
        domain = fitted["domain_"]
        validate_data(self, X, y, skip_check_array=True)
        if domain.named and hasattr(type(X), "columns"):
            # Of the frames of newer libraries older versions of scikit-learn see no names.
            self.feature_names_in_ = np.array(domain.feature_names, dtype=object)
        for name in ("leaf_counts_", "class_weight_"):  # of an earlier fit with other parameters
            self.__dict__.pop(name, None)
        self.__dict__.update(fitted)
        if self.verbose:
            from lumberjack import inspection

            print(f"released {self.n_estimators} trees with {len(self.leaf_votes_)} leaves")
            print(*(f"{line}\n" for line in inspection.advise(self)), sep="", end="")
        return self

    def _check_parameters(self) -> None:
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
        check_verbose(self.verbose)
        count_threads(self.n_jobs)
        resolve_shares(self.budget_shares, self.splitter, self.accounting)

    def _calibrate(self, domain: Domain, n_classes: int) -> Calibration:
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

    def _label_unit(self, calibration: Calibration, domain: Domain) -> int:
        """What a record adds to counts: 1, as labels are classes."""
        return 1

    def _grow(
        self,
        encoded: np.ndarray,
        target: np.ndarray,
        n_classes: int,
        unit: int,
        domain: Domain,
        calibration: Calibration,
        split_seed: int,
        bits: SystemBits | SeededBits,
    ) -> tuple[guide.Guide | None, tuple[np.ndarray, ...]]:
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

        def work() -> tuple[guide.Guide | None, tuple[np.ndarray, ...]]:
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
                overwrite_X=True,
                stop=stop,
                done=progress and progress.done,
            )

        return run_interruptibly(work, stop, progress)

    def _probabilities(self, X: Any) -> np.ndarray:
        """Class probabilities by the vote of the leaves, and of the score if there is one."""

        def work(n_threads: int) -> np.ndarray:
            rows, of_score = self._encode_rows(X, n_threads)
            votes = _predict.sum_votes(
                rows,
                self.nodes_,
                self.tree_offsets_,
                self.leaf_offsets_,
                self.leaf_votes_,
                n_threads,
            )
            _predict.to_probabilities(
                votes, self.class_prior_, of_score, SCORE_VOTE, SMALLEST_PROBABILITY, n_threads
            )
            return votes

        return self._predict_by_threads(X, work)

    def apply(self, X: Any) -> np.ndarray:
        """Index of the leaf that each row falls into, in each tree.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        int32 ndarray of shape (n_samples, n_estimators)
            Node indices as in `trees_`.
        """

        def work(n_threads: int) -> np.ndarray:
            rows, _ = self._encode_rows(X, n_threads)
            return _predict.apply(rows, self.nodes_, self.tree_offsets_, n_threads)

        return self._predict_by_threads(X, work)

    def decision_path(self, X: Any) -> tuple[sparse.csr_matrix, np.ndarray]:
        """The nodes that each row passes.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        indicator : CSR matrix of shape (n_samples, n_nodes)
            One where a row passes a node, the trees side by side.
        n_nodes_ptr : ndarray of shape (n_estimators + 1,)
            ``indicator[:, n_nodes_ptr[t]:n_nodes_ptr[t + 1]]`` is tree t.
        """
        leaves = self.apply(X)
        indicators = [path_matrix(tree, leaves[:, t]) for t, tree in enumerate(self.trees_)]
        return sparse.csr_matrix(sparse.hstack(indicators)), self.tree_offsets_.copy()

    @property
    def feature_importances_(self) -> np.ndarray:
        """How much each feature matters to the released forest, summing to 1; costs no privacy.

        Returns
        -------
        float64 ndarray of shape (n_features,)
            See `inspection.feature_importances` for what it means.
        """
        from lumberjack import inspection  # not needed to fit and to predict

        check_is_fitted(self)
        return inspection.feature_importances(self)

    @property
    def trees_(self) -> list[Tree]:
        """The released trees, a list of `Tree`."""
        check_is_fitted(self)
        return [
            read_tree(
                self.nodes_[self.tree_offsets_[t] : self.tree_offsets_[t + 1]],
                self.leaf_votes_[self.leaf_offsets_[t] : self.leaf_offsets_[t + 1]],
            )
            for t in range(len(self.tree_offsets_) - 1)
        ]

    def _record_exact_score(self) -> None:
        if ledger.record_exact_score(self.ledger, type(self).__name__):
            warn_user(ledger.EXACT_SCORE, PrivacyLeakWarning)

    def _encode_rows(self, X: Any, n_threads: int = 1) -> tuple[np.ndarray, np.ndarray | None]:
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
        return encoded.T, probabilities

    def _predict_by_threads(self, X: Any, work: Callable[[int], T]) -> T:
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
        Privacy parameter. Infinity means no noise and no privacy. A finite epsilon above about 14
        is refused with ``delta=1e-6``, as the samplers' finite precision then exceeds delta.
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
    categorical_features : "from_dtype", array-like or None, default="from_dtype"
        Which columns are categorical: "from_dtype", those in `categories`, those of a categorical
        type and those of text; otherwise a mask, or numbers or names of columns, or None for no
        column, as in scikit-learn's `HistGradientBoostingClassifier`.
    domain : Domain, dict or path of a JSON file, default=None
        Declares the columns, and perhaps the target, instead of these parameters.
    classes : array-like or "infer", default=None
        Public class labels.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, 1 for those that a dict does not name. "balanced": in inverse
        proportion to how often the noisy counts say that they occur. Probabilities become what
        they were if each class were as many times likelier, which moves the decision threshold.
        That is post-processing: it costs no privacy and changes no tree (``leaf="counts"`` only).
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
    class_weight_ : float64 array of shape (n_classes,)
        Weights of the classes, of which the largest is 1 (with `class_weight` only). They shift
        `predict_proba`, and are not in `leaf_votes_` and `class_prior_`.
    feature_importances_ : float64 array of shape (n_features,)

    Notes
    -----
    Weights of records (`sample_weight`), more trees later (`warm_start`) and monotonic constraints
    are refused: the noise is calibrated for records that count once and for the trees that were
    asked for, and leaves with noise of their own keep no order.

    To move the decision threshold costs nothing if the number comes from elsewhere: `class_weight`,
    or scikit-learn's ``FixedThresholdClassifier(FrozenEstimator(model), threshold=0.3)``. To tune
    it, or to calibrate the probabilities, reads records: give `TunedThresholdClassifierCV` (with
    ``cv="prefit"``) or `CalibratedClassifierCV` the frozen model and public records. With private
    records what they add lies outside the guarantee, whatever a `PrivacyLedger` counts.

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

    classes_: np.ndarray  # set by `fit`

    @explain_refused
    def __init__(
        self,
        n_estimators: int = 20,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        max_depth: int = 31,
        splitter: str = "guided",
        leaf: str = "counts",
        accounting: str = "joint",
        budget_shares: Mapping[str, float] | None = None,
        threshold: float | None = None,
        records_per_unit: int = 1,
        bounds: Any = None,
        categories: Any = None,
        categorical_features: Any = "from_dtype",
        domain: Any = None,
        classes: Any = None,
        class_weight: Mapping[Any, float] | str | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        ledger: Ledgers = None,
        verbose: int = 0,
    ) -> None:
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
        self.categorical_features = categorical_features
        self.domain = domain
        self.classes = classes
        self.class_weight = class_weight
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.ledger = ledger
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = self._poor_score
        return tags

    @explain_refused
    def fit(self, X: Any, y: Any) -> LumberjackClassifier:
        """Grow a private forest.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_samples, n_features)
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
        y = read_labels(y)
        domain = self._declare(X, y, classes=self.classes)
        weights = resolve_class_weight(self.class_weight, domain.classes, self.leaf)
        fitted = self._fit(X, len(domain.classes), domain, lambda unit: domain.encode_classes(y))
        fitted["classes_"] = domain.classes
        if isinstance(weights, str):
            calibration: Any = fitted["privacy_"].calibration  # of a forest, with counts
            weights = balanced_weights(fitted["leaf_counts_"], calibration.sigma_leaves)
        if weights is not None:
            fitted["class_weight_"] = weights
        return self._hold(X, y, fitted)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities: the mean of the leaves' votes, joined with the score's.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_samples, n_features)
            Values outside the bounds, unknown categories and missing values are routed, never an
            error.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        probabilities = self._probabilities(X)
        weights = getattr(self, "class_weight_", None)
        return probabilities if weights is None else reweight(probabilities, weights)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the class probabilities.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``; minus infinity where all leaves agree on another class.
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy, an exact number about the records that are scored.

        Inside a ledger it is recorded as outside the guarantee, with a `PrivacyLeakWarning`; see
        `make_private_scorer` for a score that is charged instead.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            A label that is not in ``classes_`` counts as wrong.
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        float
        """
        self._record_exact_score()
        predicted = np.argmax(self.predict_proba(X), axis=1)
        codes = self.domain_.encode_classes(y, n_records=len(predicted), allow_unknown=True)
        weights = read_weights(sample_weight, len(predicted))
        return float(accuracy_score(codes, predicted, sample_weight=weights))


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
        Privacy parameter. Infinity means no noise and no privacy. A finite epsilon above about 14
        is refused with ``delta=1e-6``, as the samplers' finite precision then exceeds delta.
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
    categorical_features : "from_dtype", array-like or None, default="from_dtype"
        Which columns are categorical: "from_dtype", those in `categories`, those of a categorical
        type and those of text; otherwise a mask, or numbers or names of columns, or None for no
        column, as in scikit-learn's `HistGradientBoostingClassifier`.
    domain : Domain, dict or path of a JSON file, default=None
        Declares the columns, and perhaps the target, instead of these parameters.
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
    feature_importances_ : float64 array of shape (n_features,)

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

    @explain_refused
    def __init__(
        self,
        n_estimators: int = 20,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        max_depth: int = 31,
        splitter: str = "guided",
        accounting: str = "joint",
        budget_shares: Mapping[str, float] | None = None,
        threshold: float | None = None,
        records_per_unit: int = 1,
        bounds: Any = None,
        categories: Any = None,
        categorical_features: Any = "from_dtype",
        domain: Any = None,
        target_bounds: Any = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        ledger: Ledgers = None,
        verbose: int = 0,
    ) -> None:
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
        self.categorical_features = categorical_features
        self.domain = domain
        self.target_bounds = target_bounds
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.ledger = ledger
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = self._poor_score
        return tags

    @explain_refused
    def fit(self, X: Any, y: Any) -> LumberjackRegressor:
        """Grow a private forest.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_samples, n_features)
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
        y = read_labels(y)
        domain = self._declare(X, y, target_bounds=self.target_bounds, regression=True)
        fitted = self._fit(X, 2, domain, lambda unit: domain.encode_target(y, unit))
        return self._hold(X, y, fitted)

    def _label_unit(self, calibration: Calibration, domain: Domain) -> int:
        """Steps of the scaled target in 1: as fine as the samplers allow (`guide.grid_steps`)."""
        sigma = cast(float, calibration.sigma_leaves)  # there are no majorities of targets
        if self.splitter == "guided":
            sigma = max(sigma, guide.largest_sigma(calibration, domain.n_features))
        return guide.grid_steps(sigma)

    def predict(self, X: Any) -> np.ndarray:
        """The expected target.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        float64 ndarray of shape (n_samples,)
        """
        share = self._probabilities(X)[:, 1]
        low, high = self.domain_.target_bounds
        return low + (high - low) * share

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R^2, an exact number about the records that are scored.

        Inside a ledger it is recorded as outside the guarantee, with a `PrivacyLeakWarning`; see
        `make_private_scorer` for a score that is charged instead.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        float
        """
        self._record_exact_score()
        predicted = self.predict(X)
        target = self.domain_.read_target(y, len(predicted))
        weights = read_weights(sample_weight, len(predicted))
        return float(r2_score(target, predicted, sample_weight=weights))
