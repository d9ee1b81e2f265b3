"""The guide of a forest: what Gaussian-noised sums say about where to split.

Uniform thresholds and equally likely features waste most splits. The guide spends a share of the
budget once for the whole forest: class marginals of every feature, and an additive **score**
fitted to the residuals in a few rounds. From them follow, as post-processing, how likely each
feature, threshold and category is to be split, and one more column that the trees may split, the
score itself.

The records are read by four queries only (`Queries`); everything else in this file sees their
noisy answers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit
from threadpoolctl import threadpool_limits

from lumberjack import _guide, _tree, noise

if TYPE_CHECKING:
    from lumberjack.accounting import Calibration
    from lumberjack.domain import Domain
    from lumberjack.noise import SeededBits, SystemBits

# Shares of the guide's mu^2, chosen on data that no reported result is measured on.
MARGINALS_SHARE = 0.45
RESIDUALS_SHARE = 0.40
RECALIBRATION_SHARE = 0.10
CURVATURE_SHARE = 0.05

N_BINS = 32  # equal bins of a numeric feature's public range
N_ROUNDS = 3  # residual rounds after the marginals
LARGEST_OFFSET = 4.0  # a single table entry moves the log-odds by no more in one round
LARGEST_STEP = 0.5  # of a round's offsets: features overlap, so all of them overshoot
SMALLEST_STEP = 0.05
LARGEST_MOVE = 0.3  # per unit of `move_bound`: longer directions are shortened for the line search
DIRECTION_REACH = 2.5  # the change of a record's score is clipped here before it is squared
SCORE_REACH = 8.0  # the recalibration's histogram covers scores up to this
SCORE_CELLS = 40
SCORE_SHARE = 0.25  # of the splits go to the score columns
NOISE_CUT = 2.0  # noisy counts below so many standard deviations are taken for empty
VARIANCE_RATIO = 0.7  # p (1 - p) of a record against that of the class prior, on average

# Prior of the offsets of a feature: variances, and correlation lengths in bins.
PRIOR_VARIANCES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
PRIOR_LENGTHS = (1.5, 4.0, 10.0)
ROUGHNESS = 0.1  # share of the prior variance without correlation

# Gaussian noise has at most so many grid steps of standard deviation.
LARGEST_SIGMA = 2**12


@dataclass(frozen=True, eq=False)
class Score:
    """An additive model: log-odds of a class against the rest, one table entry a feature.

    Attributes
    ----------
    n_categories : int32 array of shape (n_features,)
    inner_edges : tuple of float32 arrays
        Edges between the bins of numeric features.
    tables : float64 array of shape (n_cells, n_scores)
        Cells of all features one after another, the last of each feature for missing values.
    intercepts : float64 array of shape (n_scores,)
        One score for two classes (of the second), else one a class.
    """

    n_categories: np.ndarray
    inner_edges: tuple
    tables: np.ndarray
    intercepts: np.ndarray

    @property
    def n_scores(self) -> int:
        """Number of scores, and of score columns."""
        return len(self.intercepts)

    def binning(self) -> _guide.Binning:
        """The cells of the features, for the kernels."""
        return _guide.Binning(self.n_categories, self.inner_edges)

    def columns(self, X: np.ndarray, n_threads: int = 1) -> np.ndarray:
        """Score columns of encoded records.

        Parameters
        ----------
        X : float32 array of shape (n_features, n_records)
        n_threads : int

        Returns
        -------
        float32 array of shape (n_scores, n_records)
        """
        z = np.empty((self.n_scores, X.shape[1]), dtype=np.float32)
        _guide.evaluate_score(
            X, False, self.binning(), self.tables, self.intercepts, self.intercepts, z, None,
            n_threads,
        )  # fmt: skip
        return z

    def fill_columns(
        self, X: np.ndarray, n_threads: int = 1, probabilities: np.ndarray | None = None
    ) -> None:
        """Write the score columns to the last rows of X, which are there for them.

        Parameters
        ----------
        X : float32 array of shape (n_features + n_scores, n_records)
        n_threads : int
        probabilities : float64 array of shape (n_records, n_scores), optional
            Receives the probabilities of the scores; see `class_probabilities`.
        """
        _guide.evaluate_score(
            X, False, self.binning(), self.tables, self.intercepts, self.intercepts,
            X[len(self.n_categories) :], probabilities, n_threads,
        )  # fmt: skip

    def evaluate(self, X: np.ndarray, n_threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Score columns and class probabilities of encoded rows.

        Parameters
        ----------
        X : float32 array of shape (n_records, n_features)
        n_threads : int

        Returns
        -------
        z : float32 array of shape (n_records, n_scores)
        probabilities : float64 array of shape (n_records, n_classes)
        """
        z = np.empty((len(X), self.n_scores), dtype=np.float32)
        p = np.empty((len(X), self.n_scores))
        _guide.evaluate_score(
            X, True, self.binning(), self.tables, self.intercepts, self.intercepts, z, p, n_threads
        )
        return z, class_probabilities(p)


def class_probabilities(probabilities: np.ndarray) -> np.ndarray:
    """The probabilities of all classes from those of the scores."""
    if probabilities.shape[1] > 1:
        return probabilities
    return np.hstack([1 - probabilities, probabilities])


@dataclass(frozen=True, eq=False)
class Guide:
    """What the noisy sums say about splits; post-processing of a Gaussian mechanism.

    Attributes
    ----------
    score : Score
    feature_weights : float64 array of shape (n_features + n_scores,)
        How likely each feature, then each score column, is to be split.
    threshold_cdfs : tuple
        Per numeric feature (edges, distribution function of the thresholds), else None.
    category_weights : tuple
        Per categorical feature how likely each category is to be split off, else None.
    marginals : tuple of float64 arrays of shape (n_cells of the feature, n_classes)
        Noisy class counts per feature: of its bins or categories, and of missing values.
    """

    score: Score
    feature_weights: np.ndarray
    threshold_cdfs: tuple
    category_weights: tuple
    marginals: tuple

    def split_plan(self, domain: Domain) -> _tree.SplitPlan:
        """The plan of the kernels: the features of the domain, then the score columns."""
        spare = self.score.n_scores
        return _tree.SplitPlan(
            np.append(domain.n_categories, np.zeros(spare, dtype=np.int32)),
            np.append(domain.lower, np.zeros(spare, dtype=np.float32)),
            np.append(domain.upper, np.ones(spare, dtype=np.float32)),
            self.feature_weights,
            [*self.threshold_cdfs] + [None] * spare,
            [*self.category_weights] + [None] * spare,
        )


# Queries ----------------------------------------------------------------------------------------


class Queries:
    """The only reads of the records: sums with Gaussian noise, each with its part of the budget.

    For a query of l2 sensitivity s a record, share w of the guide's mu^2 and g records a unit, the
    noise is sigma = g s / (mu sqrt(w)), so that the sum of (g s / sigma)^2 is mu^2 (Dong, Roth, Su
    2022, Corollary 3.3). Sums are integers in steps of a public grid and the noise is rounded to
    them, which costs nothing (`noise.rounded_gaussian`).

    Parameters
    ----------
    X : float32 array of shape (n_features, n_records)
    y : int32 array of shape (n_records,)
        Class codes, or with ``unit > 1`` soft labels from 0 to `unit`.
    n_classes, unit : int
    binning : _guide.Binning
    mu : float
        Gaussian differential privacy of all queries together, for one unit.
    records_per_unit : int
    bits : noise.SystemBits or noise.SeededBits
    n_threads : int
    stop : int32 array of shape (1,) or None
        Set it to non-zero from another thread to give up.
    """

    def __init__(
        self,
        X: np.ndarray,
        y: np.ndarray,
        n_classes: int,
        unit: int,
        binning: _guide.Binning,
        mu: float,
        records_per_unit: int,
        bits: SystemBits | SeededBits,
        n_threads: int,
        stop: np.ndarray | None = None,
    ) -> None:
        self._X, self._y = X, y
        self._stop = stop
        self._unit, self._bits, self._n_threads = unit, bits, n_threads
        self._mu, self._records_per_unit = mu, records_per_unit
        self.binning, self.n_classes = binning, n_classes
        self.n_scores = score_count(n_classes)
        self.n_features = len(binning.cell_start) - 1

    def sigma(self, sensitivity: float, share: float) -> float:
        """Standard deviation of the noise of a query."""
        return self._records_per_unit * sensitivity / (self._mu * math.sqrt(share))

    def _grid(self, norm: float, repeats: float, share: float) -> tuple[float, int]:
        """Noise of a query of rounded values, and the steps of its grid in 1.

        A record's values have at most this norm before rounding, and enter the query so often
        that its sensitivity is `repeats` times their norm. Rounding one value keeps it within 1,
        a multiple of the step; rounding several adds sqrt(n_scores) / (2 steps) to their norm.
        The grid is as fine as `LARGEST_SIGMA` allows.
        """
        rounding = 0.0 if self.n_scores == 1 else math.sqrt(self.n_scores) / 2
        largest = self.sigma((norm + rounding) * repeats, share)
        steps = grid_steps(largest)
        return self.sigma((norm + rounding / steps) * repeats, share), steps

    def _noisy(self, sums: np.ndarray, sigma: float, purpose: str) -> np.ndarray:
        if self._stop is not None and self._stop[0]:
            raise KeyboardInterrupt
        flat = sums.reshape(len(sums), -1)
        words = self._bits.draw(f"guide {purpose}", np.arange(len(flat)), flat.shape[1])
        return (flat + noise.rounded_gaussian(words, sigma)).reshape(sums.shape)

    def marginals(self) -> tuple[np.ndarray, float]:
        """Class counts of the cells of every feature, and the standard deviation of their noise.

        A record is in one cell of each feature: sensitivity sqrt(n_features).
        """
        sigma = self.sigma(math.sqrt(self.n_features), MARGINALS_SHARE)
        sums = _guide.class_marginals(
            self._X, self._y, self.n_classes, self._unit, self.binning, self._n_threads
        )
        return self._noisy(sums, sigma * self._unit, "marginals") / self._unit, sigma

    def residuals(
        self, tables: np.ndarray, intercepts: np.ndarray, number: int
    ) -> tuple[np.ndarray, float]:
        """Sums of y - p over the cells in round `number`, and their noise.

        Sensitivity sqrt(n_features) times the norm of a record's residual, at most 1 for one
        score, sqrt(2) for several and what rounding adds.
        """
        sigma, steps = self._grid(
            1.0 if self.n_scores == 1 else math.sqrt(2),
            math.sqrt(self.n_features),
            RESIDUALS_SHARE / N_ROUNDS,
        )
        sums = _guide.residual_sums(
            self._X, self._y, self._unit, self.binning, tables, intercepts, steps, self._n_threads
        )
        return self._noisy(sums, sigma * steps, f"residuals {number}") / steps, sigma

    def curvature(
        self, tables: np.ndarray, intercepts: np.ndarray, direction: np.ndarray, number: int
    ) -> tuple[np.ndarray, float]:
        """Sums of p (1 - p) d^2 for the changes d of the scores in a direction, and their noise.

        In units of ``DIRECTION_REACH**2 / 4`` the sensitivity is 1 for one score and at most 2 for
        several, and what rounding adds.
        """
        share = CURVATURE_SHARE / (N_ROUNDS + 1)
        sigma, steps = self._grid(1.0 if self.n_scores == 1 else 2.0, 1.0, share)
        sums = _guide.curvature_sums(
            self._X, self.binning, tables, intercepts, direction, DIRECTION_REACH, steps,
            self._n_threads,
        )  # fmt: skip
        scale = DIRECTION_REACH**2 / 4
        noisy = self._noisy(sums, sigma * steps, f"curvature {number}") / steps
        return noisy * scale, sigma * scale

    def score_histogram(
        self, tables: np.ndarray, intercepts: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """Counts of each score's class against the rest over cells of the score, and their noise.

        A record is in one cell of each score: sensitivity sqrt(n_scores).
        """
        sigma = self.sigma(math.sqrt(self.n_scores), RECALIBRATION_SHARE)
        sums = _guide.score_histogram(
            self._X, self._y, self._unit, self.binning, tables, intercepts, SCORE_CELLS,
            SCORE_REACH, self._n_threads,
        )  # fmt: skip
        return self._noisy(sums, sigma * self._unit, "recalibration") / self._unit, sigma


def score_count(n_classes: int) -> int:
    """Number of scores, and of score columns: one for two classes, else one a class."""
    return 1 if n_classes == 2 else n_classes


def grid_steps(sigma: float) -> int:
    """Steps of a grid in 1 such that noise has at most `LARGEST_SIGMA` steps of deviation."""
    if sigma == 0:
        return LARGEST_SIGMA
    return max(1, min(LARGEST_SIGMA, math.floor(LARGEST_SIGMA / sigma)))


def largest_sigma(calibration: Calibration, n_features: int) -> float:
    """Noise, in records, of the noisier of marginals and histogram, before there is a guide."""
    if math.isinf(calibration.mu_guide):
        return 0.0
    scale = math.sqrt(max(n_features / MARGINALS_SHARE, 1 / RECALIBRATION_SHARE))
    return calibration.records_per_unit * scale / calibration.mu_guide


# Fitting ----------------------------------------------------------------------------------------


def fit_guide(
    X: np.ndarray,
    y: np.ndarray,
    domain: Domain,
    n_classes: int,
    mu: float,
    bits: SystemBits | SeededBits,
    *,
    unit: int = 1,
    records_per_unit: int = 1,
    n_threads: int = 1,
    stop: np.ndarray | None = None,
) -> Guide:
    """Fit the guide of a forest.

    Parameters
    ----------
    X : float32 array of shape (n_features, n_records)
        It may have more features behind those of the domain, which are not read.
    y : int32 array of shape (n_records,)
        Class codes, or with ``unit > 1`` soft labels from 0 to `unit` for two classes.
    domain : Domain
    n_classes : int
    mu : float
        Gaussian differential privacy of the guide for one unit; infinity: no noise.
    bits : noise.SystemBits or noise.SeededBits
    unit, records_per_unit, n_threads : int
    stop : int32 array of shape (1,), optional
        Set it to non-zero from another thread to give up, with a KeyboardInterrupt.

    Returns
    -------
    Guide
    """
    edges = tuple(
        np.zeros(0, dtype=np.float32) if k else bin_edges(low, high)[1:-1].astype(np.float32)
        for k, low, high in zip(domain.n_categories, domain.lower, domain.upper, strict=True)
    )
    binning = _guide.Binning(domain.n_categories, edges, stop)
    queries = Queries(X, y, n_classes, unit, binning, mu, records_per_unit, bits, n_threads, stop)
    marginals, sigma = queries.marginals()
    parts = [slice(*ends) for ends in itertools.pairwise(binning.cell_start)]
    # The matrices are small: more threads of BLAS cost more than they save, up to 30 times as much
    # on a busy machine.
    with threadpool_limits(1, user_api="blas"):
        tables, intercepts = fit_score(queries, marginals, sigma, parts, domain.n_categories == 0)
    score = Score(domain.n_categories, edges, tables, intercepts)
    return plan_splits([marginals[part].copy() for part in parts], sigma, domain, score)


def bin_edges(low: float, high: float) -> np.ndarray:
    """Edges of `N_BINS` equal bins of a public range."""
    return np.linspace(float(low), float(high), N_BINS + 1)


def fit_score(
    queries: Queries,
    marginals: np.ndarray,
    sigma: float,
    parts: list[slice],
    is_numeric: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Fit the score: offsets from the marginals, then rounds of residuals, then recalibration.

    A round estimates offsets of the log-odds feature by feature (`posterior_offsets`). As features
    overlap, all offsets together overshoot; the step along them is one Newton step of a line
    search, from one more noisy sum, `Queries.curvature`.

    Parameters
    ----------
    queries : Queries
    marginals : float64 array of shape (n_cells, n_classes)
        Noisy class counts.
    sigma : float
        Standard deviation of their noise.
    parts : list of slices
        The cells of each feature.
    is_numeric : bool array of shape (n_features,)

    Returns
    -------
    tables : float64 array of shape (n_cells, n_scores)
    intercepts : float64 array of shape (n_scores,)
    """
    n_scores = queries.n_scores
    prior = class_prior(marginals, parts)
    own = [1] if n_scores == 1 else list(range(n_scores))
    prior = prior[own]
    totals = marginals.sum(axis=1)
    counts = np.where(totals > NOISE_CUT * sigma * math.sqrt(marginals.shape[1]), totals, 0)
    variance = prior * (1 - prior)
    tables = np.zeros((len(marginals), n_scores))
    intercepts = logit(prior)
    for number in range(N_ROUNDS + 1):
        if number == 0:
            # The residuals of the prior are already in the marginals.
            sums = marginals[:, own] - prior * totals[:, None]
            noise_variance = sigma**2 * ((1 - prior) ** 2 + (marginals.shape[1] - 1) * prior**2)
            weights = counts[:, None] * variance
        else:
            sums, sigma_residuals = queries.residuals(tables, intercepts, number)
            noise_variance = np.full(n_scores, sigma_residuals**2)
            weights = counts[:, None] * np.maximum(VARIANCE_RATIO * variance, 1e-3)
            intercepts = intercepts + common_offset(sums, weights, parts)
        direction = np.zeros_like(tables)
        for part, numeric in zip(parts, is_numeric, strict=True):
            for s in range(n_scores):
                direction[part, s] = centred_offsets(
                    sums[part, s], weights[part, s], noise_variance[s], numeric
                )
        scale = np.maximum(1, LARGEST_MOVE * move_bound(direction, weights, parts))
        curvature, noise_level = queries.curvature(tables, intercepts, direction / scale, number)
        gain = (weights * direction**2).sum(axis=0)
        least = np.maximum(noise_level * scale**2, 1e-9)
        step = gain / np.maximum(curvature * scale**2, least)
        tables = tables + np.clip(step, SMALLEST_STEP, LARGEST_STEP) * direction
    histogram, sigma_cells = queries.score_histogram(tables, intercepts)
    slopes, shifts = np.transpose([recalibrate(cells, sigma_cells) for cells in histogram])
    return np.ascontiguousarray(tables * slopes), np.ascontiguousarray(intercepts * slopes + shifts)


def move_bound(direction: np.ndarray, weights: np.ndarray, parts: list[slice]) -> np.ndarray:
    """How far a direction moves the score of a record, in root mean square, at most.

    Features that are copies of each other all move it the same way, by the sum of their moves.
    """
    squares = weights * direction**2
    return np.sum(
        [
            np.sqrt(squares[part].sum(axis=0) / np.maximum(weights[part].sum(axis=0), 1e-9))
            for part in parts
        ],
        axis=0,
    )


def class_prior(marginals: np.ndarray, parts: list[slice]) -> np.ndarray:
    """Noisy class shares, averaged over the features, none of them 0."""
    totals = np.mean([np.clip(marginals[part].sum(axis=0), 0, None) for part in parts], axis=0)
    prior = np.clip(totals / max(totals.sum(), 1), 0.005, None)
    return np.clip(prior / prior.sum(), None, 0.995)


def common_offset(sums: np.ndarray, weights: np.ndarray, parts: list[slice]) -> np.ndarray:
    """What all cells of a feature have in common, averaged over the features."""
    offsets = [sums[part].sum(axis=0) / np.maximum(weights[part].sum(axis=0), 1) for part in parts]
    return np.clip(np.mean(offsets, axis=0), -1, 1)


def centred_offsets(
    sums: np.ndarray, weights: np.ndarray, noise_variance: float, is_numeric: bool
) -> np.ndarray:
    """Posterior offsets of one feature's cells without what they have in common."""
    total = max(weights.sum(), 1e-9)
    offsets = posterior_offsets(
        sums - weights * (sums.sum() / total), weights, noise_variance, is_numeric
    )
    offsets = np.clip(offsets, -LARGEST_OFFSET, LARGEST_OFFSET)
    return offsets - (weights * offsets).sum() / total


def posterior_offsets(
    sums: np.ndarray, weights: np.ndarray, noise_variance: float, is_ordered: bool
) -> np.ndarray:
    """Empirical-Bayes posterior mean of the offsets behind noisy sums.

    Model: sums = weights * offsets + e, with independent e of variance noise_variance + weights
    (the noise, and the sampling variance of the residuals), and Gaussian offsets: independent with
    a common variance, or for ordered cells with a squared-exponential correlation along the bins
    (the last cell, missing values, stands alone). The posterior means under a grid of variances
    and lengths are averaged by their marginal likelihood (Rasmussen, Williams 2006, chapters 2
    and 5).

    Parameters
    ----------
    sums, weights : float64 arrays of shape (n_cells,)
    noise_variance : float
    is_ordered : bool

    Returns
    -------
    float64 array of shape (n_cells,)
    """
    scale = np.sqrt(noise_variance + weights + 1e-12)
    signal, whitened = weights / scale, sums / scale
    # Without correlation each cell is an eigenvector of its own: finding them all the same took
    # most of a fit with a feature of 500 categories.
    likelihood, coefficients = prior_grid(signal**2, whitened)
    likelihoods, means = [likelihood], [coefficients * signal]
    for correlation in prior_correlations(len(sums)) if is_ordered else ():
        values, vectors = np.linalg.eigh(signal[:, None] * correlation * signal)
        likelihood, coefficients = prior_grid(np.maximum(values, 0), vectors.T @ whitened)
        likelihoods.append(likelihood)
        means.append((coefficients @ vectors.T * signal) @ correlation)
    log_odds = np.concatenate(likelihoods)
    odds = np.exp(log_odds - log_odds.max())
    return (odds / odds.sum()) @ np.concatenate(means)


def prior_grid(values: np.ndarray, rotated: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihood and posterior coefficients, by eigenvector, for each variance of the prior."""
    variances = np.array(PRIOR_VARIANCES)[:, None]
    spread = variances * values + 1
    return -0.5 * (np.log(spread) + rotated**2 / spread).sum(axis=1), variances * rotated / spread


def prior_correlations(n_cells: int) -> Iterator[np.ndarray]:
    """Correlation matrices of the prior for ordered cells, one for each length."""
    bins = np.arange(n_cells - 1)
    for length in PRIOR_LENGTHS:
        correlation = np.eye(n_cells)
        smooth = np.exp(-0.5 * ((bins[:, None] - bins) / length) ** 2)
        correlation[:-1, :-1] = (1 - ROUGHNESS) * smooth + ROUGHNESS * np.eye(n_cells - 1)
        yield correlation


def recalibrate(histogram: np.ndarray, sigma: float) -> tuple[float, float] | np.ndarray:
    """Slope and intercept of a logistic fit to a noisy histogram of the score by class.

    Parameters
    ----------
    histogram : float64 array of shape (SCORE_CELLS, 2)
    sigma : float
        Standard deviation of its noise.

    Returns
    -------
    slope, intercept : float
        The recalibrated score is ``slope * score + intercept``.
    """
    counts = np.where(histogram > NOISE_CUT * sigma, histogram, 0)
    if not (counts.sum(axis=0) > 0).all():
        return 1.0, 0.0  # one class only: no slope explains it
    score = ((np.arange(SCORE_CELLS) + 0.5) / SCORE_CELLS * 2 - 1) * SCORE_REACH

    def loss_and_gradient(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        linear = parameters[0] * score + parameters[1]
        loss = counts[:, 0] @ np.logaddexp(0, linear) + counts[:, 1] @ np.logaddexp(0, -linear)
        slope = counts.sum(axis=1) * expit(linear) - counts[:, 1]
        return loss / counts.sum(), np.array([slope @ score, slope.sum()]) / counts.sum()

    found = minimize(
        loss_and_gradient, [1.0, 0.0], jac=True, bounds=[(0.05, 2.0), (-5.0, 5.0)],
        method="L-BFGS-B",
    )  # fmt: skip
    return found.x


# Planning splits ----------------------------------------------------------------------------------


def plan_splits(marginals: list[np.ndarray], sigma: float, domain: Domain, score: Score) -> Guide:
    """Weights of features and categories and densities of thresholds, from noisy marginals.

    Parameters
    ----------
    marginals : list of float64 arrays of shape (n_bins or n_categories, and 1, n_classes)
        Noisy class counts; the last cell, of missing values, is not looked at.
    sigma : float
        Standard deviation of their noise.
    domain : Domain
    score : Score

    Returns
    -------
    Guide
    """
    cdfs: list[tuple[np.ndarray, np.ndarray] | None] = []
    category_weights: list[np.ndarray | None] = []
    gains = []
    for f, own in enumerate(marginals):
        counts = np.where(own[:-1] > NOISE_CUT * sigma, own[:-1], 0)
        if domain.n_categories[f]:
            gain, weights = category_gains(counts)
            cdfs.append(None)
            category_weights.append(weights)
        else:
            gain, cdf = threshold_cdf(counts)
            cdfs.append((bin_edges(domain.lower[f], domain.upper[f]), cdf))
            category_weights.append(None)
        gains.append(gain)
    weights = np.sqrt(np.array(gains) / max(*gains, 1e-12)) + 1e-12
    weights = 0.9 * weights / weights.sum() + 0.1 / len(weights)
    spare = np.full(score.n_scores, SCORE_SHARE / score.n_scores)
    return Guide(
        score,
        np.concatenate([(1 - SCORE_SHARE) * weights, spare]),
        tuple(cdfs),
        tuple(category_weights),
        tuple(marginals),
    )


def gini_gain(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Decrease of the Gini impurity per record by a split, from class counts (..., n_classes)."""

    def impurity_sum(counts: np.ndarray) -> np.ndarray:
        total = counts.sum(axis=-1)
        return total - (counts**2).sum(axis=-1) / np.maximum(total, 1e-9)

    whole = left + right
    gain = impurity_sum(whole) - impurity_sum(left) - impurity_sum(right)
    return np.maximum(gain, 0) / np.maximum(whole.sum(axis=-1), 1)


def category_gains(counts: np.ndarray) -> tuple[float, np.ndarray]:
    """Best gain, and weights of the categories: 80 % by gain against the rest, 20 % uniform."""
    gains = gini_gain(counts, counts.sum(axis=0) - counts)
    return gains.max(), 0.8 * gains / max(gains.sum(), 1e-12) + 0.2 / len(gains)


def threshold_cdf(counts: np.ndarray) -> tuple[float, np.ndarray]:
    """Best gain, and the distribution function of thresholds at the bin edges.

    Their density is 30 % the records' mass, 50 % the gain of a split at the nearest edges, 20 %
    uniform.
    """
    cumulative = np.cumsum(counts, axis=0)
    gains = gini_gain(cumulative[:-1], cumulative[-1] - cumulative[:-1])
    near = (np.append(gains, 0) + np.append(0, gains)) / 2
    mass = counts.sum(axis=1)
    density = 0.3 * mass / max(mass.sum(), 1e-9) + 0.5 * near / max(near.sum(), 1e-12)
    cumulated = np.append(0, np.cumsum(density + 0.2 / len(counts)))
    return gains.max(), cumulated / cumulated[-1]
