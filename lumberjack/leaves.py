"""Leaves: the noise of their counts, and their votes."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, cast

import numpy as np

from lumberjack import noise

if TYPE_CHECKING:
    from lumberjack.accounting import Calibration
    from lumberjack.noise import SeededBits, SystemBits

# Weight of the guide's score against the trees in the log-probabilities of a guided forest. The
# trees know interactions, the score has less noise; the mean of their log-odds has a lower log loss
# than either (`_predict.to_probabilities`).
SCORE_VOTE = 0.2
SMALLEST_PROBABILITY = 1e-4  # of a class before the two are combined


def release_leaves(
    leaf_counts: np.ndarray,
    leaf_paths: np.ndarray,
    calibration: Calibration,
    bits: SystemBits | SeededBits,
    unit: int = 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
        epsilon = cast(float, calibration.epsilon_leaf)  # None with counts only
        released = noise.exponential_choice(leaf_counts, epsilon, words)
        return released, np.eye(n_classes)[released], np.full(n_classes, 1 / n_classes)
    words = bits.draw("leaf counts", leaf_paths, n_classes)
    sigma = cast(float, calibration.sigma_leaves)  # None with majorities only
    released = leaf_counts + noise.rounded_gaussian(words, unit * sigma)
    if unit > 1:
        released = released / unit
    return released, *vote(released, sigma)


def vote(noisy_counts: np.ndarray, sigma: float) -> tuple[np.ndarray, np.ndarray]:
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


def balanced_weights(noisy_counts: np.ndarray, sigma: float) -> np.ndarray:
    """Weights inversely proportional to how often classes occur; post-processing.

    The sums over all leaves of all trees are not clipped, as the noise of many leaves then cancels.
    A class that they do not tell from noise counts as one standard deviation of it.

    Parameters
    ----------
    noisy_counts : int64 array of shape (n_leaves, n_classes)
    sigma : float
        Standard deviation of the noise.

    Returns
    -------
    float64 array of shape (n_classes,)
        The largest is 1.

    Examples
    --------
    >>> balanced_weights(np.array([[600, 20], [300, 280]]), 20.0)
    array([0.33333333, 1.        ])
    """
    totals = noisy_counts.sum(axis=0, dtype=np.float64)
    weights = 1 / np.maximum(totals, max(1.0, sigma * math.sqrt(len(noisy_counts))))
    return weights / weights.max()


def reweight(probabilities: np.ndarray, class_weight: np.ndarray) -> np.ndarray:
    """Class probabilities as if each class were as many times likelier as its weight says.

    The shift of the prior in Bayes' rule (Saerens, Latinne, Decaestecker 2002).

    Parameters
    ----------
    probabilities : float64 array of shape (n_rows, n_classes)
    class_weight : float64 array of shape (n_classes,)

    Returns
    -------
    float64 array of shape (n_rows, n_classes)

    Examples
    --------
    >>> reweight(np.array([[0.75, 0.25]]), np.array([1 / 3, 1.0]))
    array([[0.5, 0.5]])
    """
    weighted = probabilities * class_weight
    return weighted / functools.reduce(np.add, weighted.T)[:, None]
